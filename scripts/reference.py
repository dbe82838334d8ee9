"""What the documentation generates from the code: public names, commands, errors. A page says where each stands, by the
comment ``<!-- generated: commands -->``; readers of the page's source see what stands around it.
"""

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import click

from scripts.errors import ErrorClass, codes_above, error_classes, read_released

ROOT = Path(__file__).resolve().parents[1]
_PLACE = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def fill_page(_app: object, page: str, source: list[str]) -> None:
    """Put what is generated into a page (Sphinx's event source-read)."""
    source[0] = _with_search_words(page, _PLACE.sub(lambda place: GENERATORS[place[1]](), source[0]))


# --- words that people search for -------------------------------------------------------------------------------------

SEARCH_WORDS = {
    "concepts": ("watermark", "event time", "trigger"),
    "how-to/airflow": ("DAG", "schedule"),
    "how-to/backfill": ("backfill", "replay", "reprocess", "recompute history"),
    "how-to/change-data": (
        "upsert",
        "CDC",
        "change data capture",
        "Debezium",
        "SCD 2",
        "slowly changing dimension",
        "merge",
    ),
    "how-to/cleaning-up": ("retention", "vacuum", "garbage collection", "small files"),
    "how-to/columns": ("schema", "nested JSON", "rename a column"),
    "how-to/dlt": ("dlt", "ingestion", "ELT"),
    "how-to/duplicates": ("dedupe", "deduplicate", "duplicates", "at least once"),
    "how-to/from-a-lambda": ("lambda architecture", "kappa architecture", "batch and streaming"),
    "how-to/groups": ("top N", "latest row", "first row", "row_number"),
    "how-to/joins": ("join", "as of join", "lookup", "enrich"),
    "how-to/late-data": ("late data", "late arriving", "out of order", "allowed lateness"),
    "how-to/quality": ("data quality", "expectations", "Great Expectations", "write audit publish"),
    "how-to/reading": ("query results", "pandas", "Polars", "DuckDB"),
    "how-to/recovery": ("rollback", "undo", "bad data", "restore"),
    "how-to/sinks": ("sink", "exactly once", "PostgreSQL", "Delta", "Iceberg"),
    "how-to/history": ("time travel", "audit log"),
    "how-to/testing": ("unit test", "pytest"),
    "how-to/waiting": ("watermark stuck", "no results", "idle partition", "window does not fire"),
    "peers": ("Structured Streaming", "Flink", "Bytewax", "Pathway", "benchmark"),
}
"""What people type into the search of the site, by the page that answers. There it is an entry of the index, which the
search puts above titles and text.
"""


def _with_search_words(page: str, text: str) -> str:
    """A page with its words for the search, below its heading."""
    if page not in SEARCH_WORDS:
        return text
    head, line, rest = text.partition("\n")
    return f"{head}{line}\n```{{index}} {', '.join(f'! {word}' for word in SEARCH_WORDS[page])}\n```\n{rest}"


# --- commands ---------------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command of ``headrace``, those of headrace_lab too: what it does, its usage, arguments and options."""
    return "\n\n".join(_command(command, f"headrace {name}") for name, command in sorted(all_commands().items()))


def all_commands() -> dict[str, click.Command]:
    """Headrace's own commands and headrace_lab's, by name."""
    from headrace.cli.app import COMMANDS, LAB
    from headrace.cli.main import app

    return {**app.commands, **{name: COMMANDS[name] for name in LAB}}


def _command(command: Any, name: str) -> str:
    choices = {one: _choices(kind) for one, kind in get_type_hints(command.callback).items()}
    arguments = [_metavar(parameter) for parameter in command.params if isinstance(parameter, click.Argument)]
    rows = [_parameter(parameter, choices.get(parameter.name, ())) for parameter in command.params]
    parts = [
        f"## {name}",
        _paragraphs(command.help),
        f"```text\n{' '.join([name, *arguments, '[OPTIONS]'])}\n```",
        "\n".join(["| | | default |", "|---|---|---|", *rows]),
        _example(command.epilog),
    ]
    return "\n\n".join(part for part in parts if part)


def _example(epilog: str | None) -> str:
    """The last lines of a command's help: how it is used."""
    lines = [line.strip() for line in (epilog or "").replace("\b", "").splitlines()]
    code_lines = [
        f"$ {line}" if line.startswith("headrace ") else line for line in lines if line and line != "Example:"
    ]
    return "\n".join(["```console", *code_lines, "```"]) if code_lines else ""


def _metavar(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _choices(kind: object) -> tuple[str, ...]:
    """The words that a parameter of type ``kind`` may be, if they are counted."""
    for one in (kind, *get_args(kind)):
        if isinstance(one, type) and issubclass(one, Enum):
            return tuple(str(choice.value) for choice in one)
    return ()


def _parameter(parameter: Any, choices: tuple[str, ...]) -> str:
    is_option = isinstance(parameter, click.Option)
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [_metavar(parameter)]
    sentences = [str(parameter.help or "")]
    if choices:
        sentences.append(f"One of {', '.join(f'`{choice}`' for choice in choices)}.")
    if parameter.envvar:
        sentences.append(f"Or the variable `{parameter.envvar}`.")
    default = "must be given" if parameter.required else _default(parameter)
    return f"| {', '.join(f'`{name}`' for name in names)} | {_cell(' '.join(sentences))} | {default} |"


def _default(parameter: Any) -> str:
    value = parameter.opts[0] if parameter.default is True else parameter.default
    if value in (None, False, (), "") or callable(value):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def _paragraphs(text: str | None) -> str:
    return re.sub(r"[ \t]*\n[ \t]*(?!\n)", "\n", (text or "").replace("\b", "").replace("\f", "")).strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# --- errors -----------------------------------------------------------------------------------------------------------


def errors() -> str:
    """A table for each branch of the error tree: code, class, what it means."""
    classes = error_classes()
    branches = sorted((e for e in classes.values() if e.base == "HeadraceError"), key=lambda e: e.exit_code or 0)
    return "\n\n".join(_branch(branch, classes) for branch in branches)


def exit_codes() -> str:
    """What a command ends with, and what to do about it."""
    from headrace.cli.app import exit_code_meanings

    return "\n".join(
        ["| exit code | what to do |", "|---|---|", *(f"| {code} | {words} |" for code, words in exit_code_meanings())]
    )


def _branch(branch: ErrorClass, classes: dict[str, ErrorClass]) -> str:
    errors = [error for error in classes.values() if branch.code in codes_above(error, classes)]
    released_errors = read_released()
    rows = [
        f"| `{error.code}` | `{error.name}` | {released_errors[error.code].since} | "
        f"{_cell(error.meaning.replace('``', '`'))} |"
        for error in sorted(errors, key=lambda error: error.code)
    ]
    head = f"## {branch.code}: exit code {branch.exit_code}"
    table = ["| code | class, in `hr.errors` | since | meaning |", "|---|---|---|---|", *rows]
    return "\n".join([head, "", f"`hr.errors.{branch.name}`: {branch.meaning}", "", *table])


# --- public names -----------------------------------------------------------------------------------------------------

SECTIONS = {
    "Pipelines": (
        "headrace.pipeline.pipeline",
        "headrace.pipeline.stages",
        "headrace.pipeline.loops",
        "headrace.pipeline.output",
        "headrace.describe.check",
    ),
    "Sources": (
        "headrace.connectors.files.definition",
        "headrace.connectors.kafka.definition.avro",
        "headrace.connectors.kafka.definition.kafka",
        "headrace.connectors.spark.definition.spark_source",
        "headrace.connectors.published.definition.published",
        "headrace.model.expressions.columns.field",
        "headrace.pipeline.endpoints.BatchFunction",
        "headrace.pipeline.endpoints.SparkFunction",
        "headrace.model.changelog",
        "headrace.model.changelog",
    ),
    "Inputs: event time and duplicates": ("headrace.pipeline.endpoints", "headrace.model.event_time"),
    "Expressions": (
        "headrace.model.expressions.expr.Expr",
        "headrace.model.expressions.expr.col",
        "headrace.model.expressions.expr.lit",
        "headrace.model.expressions.columns",
        "headrace.model.expressions.data_types",
    ),
    "Joins": ("headrace.pipeline.joins",),
    "What: aggregates": (
        "headrace.model.combiners",
        "headrace.model.expressions.expr.Aggregate",
        "headrace.model.expressions.expr.count",
        "headrace.model.expressions.methods",
        "headrace.kernel.aggregates.sketches",
    ),
    "What: rows of a group": ("headrace.pipeline.rows",),
    "Where: windows": ("headrace.model.windows",),
    "When: triggers": ("headrace.model.triggers",),
    "How: accumulation and lateness": ("headrace.model.accumulation",),
    "Sinks": (
        "headrace.connectors.delta.sink.delta",
        "headrace.connectors.final_rows.final_rows",
        "headrace.connectors.iceberg.sink.iceberg",
        "headrace.connectors.kafka.definition.kafka_sink",
        "headrace.connectors.postgres.sink.postgres",
        "headrace.connectors.spark.definition.spark_sink",
    ),
    "Expectations and limits": ("headrace.pipeline.quality",),
    "Schedules and retention": ("headrace.pipeline.scheduling", "headrace.pipeline.deployment"),
    "Reading": ("headrace.read", "headrace.runs", "headrace.observe", "headrace_snapshots"),
    "Testing": ("headrace.testing",),
}
"""Where in the reference a name stands: by itself, by the module that has it, or one that the module is in."""


REACHED_PATHS = (
    "headrace.read.deployment.Deployment",
    "headrace.read.pipeline_reader.PipelineReader",
    "headrace.runs.client.history.PipelineHistory",
    "headrace.runs.client.history.PipelineStorage",
    "headrace.read.deployment.ListedPipeline",
    "headrace.read.deployment.PipelinePosition",
    "headrace.describe.check.CheckedPipeline",
    "headrace.read.diff.comparison.InputDiff",
    "headrace.read.diff.comparison.StageDiff",
    "headrace.read.diff.comparison.LogDiff",
    "headrace.read.diff.comparison.OutputDiff",
    "headrace.read.diff.comparison.ColumnsDiff",
    "headrace.read.diff.comparison.SnapshotName",
    "headrace.read.diff.comparison.Pair",
    "headrace.read.diff.layered_tables.RowCounts",
    "headrace.read.diff.layered_tables.RowChange",
    "headrace.testing.connectors.worlds.SinkWorld",
    "headrace.read.snapshots.catalog_log.GraphRow",
    "headrace.read.definition_plan.StagePlan",
    "headrace.read.definition_plan.Change",
    "headrace.read.explanation.WindowExplained",
    "headrace.read.explanation.Holding",
    "headrace_snapshots.expiry.Total",
    "headrace_snapshots.expiry.ObjectAmount",
)
"""Classes that users reach through those of ``hr.types``, and never name."""

WHOLE = frozenset({"headrace.Expr", "headrace.Pipeline"})
"""What is shown with all that it inherits: its members stand in several modules."""


def public_names() -> str:
    """Every name of ``headrace.__all__``, and of the modules among them, in sections, for Sphinx's autodoc."""
    import headrace

    paths_by_section: dict[str, list[str]] = {section: [] for section in SECTIONS}
    for path, value in _public(headrace):
        paths_by_section[_section(path.rpartition(".")[2], value)].append(path)
    paths_by_section["Reading"] += REACHED_PATHS
    parts = [(section, f"{_table(names)}\n\n{_autodoc(names)}") for section, names in paths_by_section.items() if names]
    return "\n\n".join(f"## {section}\n\n{part}" for section, part in parts)


def _table(names: Sequence[str]) -> str:
    """What each of the ``names`` is, and its first sentence; a class that users never name is not in it."""
    paths = [path for path in names if path.startswith("headrace.") and path not in REACHED_PATHS]
    rows = [
        f"| {_reference(path)} | {_role(_value(path))} | {_cell(_first_sentence(_value(path)))} |" for path in paths
    ]
    return "\n".join(["| name | it is | |", "|---|---|---|", *rows])


def _reference(path: str) -> str:
    """``hr.json``, as a link to what is said of it."""
    return f"[`hr.{path.removeprefix('headrace.')}`](#{path})"


def _first_sentence(value: object) -> str:
    text = " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split()).replace("``", "`")
    return re.split(r"(?<=\.) (?=[A-Z`])", text)[0]


def _role(value: object) -> str:
    """What a name is in a pipeline: by the class that it is, or that it makes."""
    is_class = isinstance(value, type)
    result_type = value if is_class or not callable(value) else inspect.signature(value).return_annotation
    for role, kinds in _roles().items():
        if isinstance(result_type, type) and issubclass(result_type, kinds):
            return f"{'an' if role[0] in 'aeiou' else 'a'} {role}"
    return "a class" if is_class else "a function" if callable(value) else "a type"


@cache
def _roles() -> dict[str, tuple[type, ...]]:
    """The class of each part of a pipeline; what is of no such class is a value, a class or a function."""
    import headrace as hr
    from headrace.connectors.kafka.definition import AvroValues
    from headrace.model.changelog import Changelog, Versions
    from headrace.model.expressions.columns import SourceField
    from headrace.pipeline.endpoints import OwnFunction, Sink, Source
    from headrace.pipeline.joins import Join
    from headrace.pipeline.rows import Take

    return {
        "source": (Source,),
        "input: a source with its event time": (hr.Input,),
        "sink": (Sink,),
        "trigger": (hr.Trigger,),
        "window function": (hr.WindowFn,),
        "value: `what` of rows": (Take,),
        "join": (Join,),
        "aggregate": (hr.Aggregate,),
        "expression": (hr.Expr,),
        "value: `how`": (hr.How,),
        "expectation": (hr.Expectation,),
        "value: `values` of Kafka": (AvroValues,),
        "value: `changelog` of a source": (Changelog,),
        "value: `versions` of a source": (Versions,),
        "value: a column of a schema": (SourceField,),
        "value: `transform` of a source": (OwnFunction,),
    }


def _value(path: str) -> object:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _public(module: ModuleType) -> Iterator[tuple[str, object]]:
    for name in module.__all__:
        value = getattr(module, name)
        if name == "errors":  # which have a page of their own
            continue
        if isinstance(value, ModuleType):
            yield from _public(value)
        else:
            yield f"{module.__name__}.{name}", value


def _section(name: str, value: object) -> str:
    """Where the module stands that defines ``name``; an alias of a type does not know its own."""
    own = f"{getattr(value, '__module__', '')}.{name}."
    homes = [(section, module) for section, modules in SECTIONS.items() for module in modules]
    for section, module in homes:
        if own.startswith(f"{module}."):
            return section
    for section, module in homes:
        if getattr(sys.modules.get(module), name, None) is value:
            return section
    raise ValueError(f"the reference has no section for {name}, which is {own[:-1]}; give it one in SECTIONS")


def _autodoc(names: Sequence[str], no_index: Collection[str] = ()) -> str:
    lines = []
    for name in names:
        lines += [
            f".. auto{_kind(name)}:: {name}",
            *(["   :inherited-members:"] if name in WHOLE else []),
            *(["   :no-index:"] if name in no_index else []),
            "",
        ]
    return "\n".join(["```{eval-rst}", *lines, "```"])


def _kind(path: str) -> str:
    value = _value(path)
    if isinstance(value, type):
        return "exception" if issubclass(value, Exception) else "class"
    return "function" if callable(value) else "data"


# --- ports ------------------------------------------------------------------------------------------------------------

PORTS = ("sources", "sinks", "formats", "stores", "executors", "airflow")
"""Modules of ``headrace.ext``, in the order of the page."""


def ports() -> str:
    """Each module of ``headrace.ext``: its essay, then its names, for Sphinx's autodoc."""
    import headrace

    listed_ids = {id(value) for _, value in _public(headrace)}
    return "\n\n".join(_port(role, listed_ids) for role in PORTS)


def _port(role: str, listed_ids: set[int]) -> str:
    """The part of a module; what is in ``listed_ids`` is in no index again."""
    module = import_module(f"headrace.ext.{role}")
    essay = "\n".join(["```{eval-rst}", f".. automodule:: {module.__name__}", "   :no-members:", "```"])
    values = {f"{module.__name__}.{name}": getattr(module, name) for name in module.__all__}
    no_index = [path for path, value in values.items() if id(value) in listed_ids]
    listed_ids |= set(map(id, values.values()))
    return f"## {role.capitalize()}\n\n{essay}\n\n{_autodoc([*values], no_index)}"


# --- citations of the model's rules -----------------------------------------------------------------------------------

_CITATION = re.compile(r"semantics (\d+\.\d+)|\((\d+\.\d+)\)")


def link_citations(_app: object, _what: str, _name: str, _value: object, _options: object, lines: list[str]) -> None:
    """Make links of the citations in a docstring (autodoc's event autodoc-process-docstring)."""
    anchors = _anchors()
    for number, line in enumerate(lines):
        lines[number] = _CITATION.sub(lambda match: _link(match, anchors), line)


def _link(match: re.Match[str], anchors: dict[str, str]) -> str:
    anchor = anchors.get(match[1] or match[2])
    if anchor is None:
        return match[0]
    link = f"`{match[0].strip('()')} <../semantics.html#{anchor}>`__"
    return f"({link})" if match[2] else link


@cache
def _anchors() -> dict[str, str]:
    """The anchor of each section of docs/semantics.md, by its number."""
    from myst_parser.mdit_to_docutils.base import default_slugify  # with all of docutils

    headings = re.findall(r"^### (.+)$", (ROOT / "docs" / "semantics.md").read_text(), re.MULTILINE)
    return {heading.split()[0]: default_slugify(heading) for heading in headings}


# --- what modules say of themselves -----------------------------------------------------------------------------------


def key_hash() -> str:
    """How the hash of a key is made."""
    from headrace.kernel import keys

    text_parts = str(keys.__doc__).partition("The hash of a key is")
    return "".join(text_parts[1:]).strip()


# --- pages that stand beside docs/ ------------------------------------------------------------------------------------

PAGES_BY_FILE = {"CONTRIBUTING.md": "contributing.md", "ARCHITECTURE.md": "architecture.md", "README.md": "index.md"}
"""Files at the top of the repository, and the pages that they are in the site."""


def read_root_file(name: str) -> str:
    """The file ``name`` at the top of the repository, with links that hold in docs/."""
    text = (ROOT / name).read_text().replace("](docs/", "](")
    for file, page in PAGES_BY_FILE.items():
        text = text.replace(f"]({file})", f"]({page})")
    return text


GENERATORS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "errors": errors,
    "exit_codes": exit_codes,
    "key_hash": key_hash,
    "public_names": public_names,
    "ports": ports,
    "contributing": lambda: read_root_file("CONTRIBUTING.md"),
    "architecture": lambda: read_root_file("ARCHITECTURE.md"),
}
