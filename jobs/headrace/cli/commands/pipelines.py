"""The commands about pipelines as they are written: new, test, pipelines, lineage, check.

``new`` writes a pipeline, its unit test, and sample data that run at once, for the user to change. ``test`` runs the
tests beside pipelines: a line for each, and every difference from what they expect.
"""

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from click.exceptions import Exit

from headrace.cli.app import (
    EXIT_DONE,
    FAILED_CASES,
    Argument,
    FormatOption,
    Option,
    RootOption,
    command,
    complete_pipeline,
    given_options,
)
from headrace.cli.output import Format, print_if_json, print_json, print_lines, print_notice, print_table
from headrace.errors import FixConfigError
from headrace.pipeline.scheduling import PIPELINE_NAME
from headrace_snapshots.names import PUBLISHED

if TYPE_CHECKING:
    from headrace.read.lineage.cut import KnownReaders
    from headrace.read.lineage.waits import DeploymentWaits
    from headrace.testing.suite import TestedItem


_DATA = "data"
_SAMPLE_FILES = {f"{_DATA}/landing/{{name}}/orders-{number}.jsonl": f"orders-{number}.jsonl" for number in (1, 2, 3)}
_EXAMPLE_FILES = {"{name}.py": "pipeline.py.txt", "tests/{name}.yaml": "test.yaml.txt", **_SAMPLE_FILES}
"""Where each file of the example goes. Names that end in .txt are templates, which get the name of the pipeline."""

_FILES_OF_ROWS = {"{name}.py": "rows.py.txt", "tests/{name}.yaml": "rows.yaml.txt", **_SAMPLE_FILES}
"""The same of one that gives rows."""


class NewPipelineError(FixConfigError, code="config.new_pipeline"):
    """A name that a pipeline cannot have, or files that are in the way."""


class Example(msgspec.Struct, frozen=True):
    """The files that were written, first the pipeline's, then that of its test; the root of its data."""

    files: tuple[Path, ...]
    root: str

    @property
    def next_steps(self) -> list[str]:
        """Commands for a shell."""
        where = [str(self.files[0]), "--root", self.root]
        return [
            shlex.join(["headrace", "check", str(self.files[0])]),
            shlex.join(["headrace", "test", str(self.files[1])]),
            shlex.join(["headrace", "run", *where, "--files-per-epoch", "1"]),
            shlex.join(["headrace", "read", *where]),
        ]

    def to_json(self) -> dict[str, Any]:
        """A JSON value: the files, and what to do next."""
        return {"files": [str(file) for file in self.files], "next": self.next_steps}


def write_example(name: str, folder: Path, *, rows: bool) -> Example:
    """Write the example, or that of ``rows``, under ``folder``; nothing if a file of it is there already. Raises
    NewPipelineError.
    """
    if not PIPELINE_NAME.fullmatch(name):
        raise NewPipelineError(f"{name!r} cannot name a pipeline: use lower case letters, digits and _, a letter first")
    texts = {folder / place.format(name=name): text for place, text in _scaffold_files(name, rows=rows).items()}
    if existing_files := [str(file) for file in texts if file.exists()]:
        raise NewPipelineError(
            f"nothing was written, since this is there already: {', '.join(existing_files)}. Choose another name or "
            "--folder"
        )
    try:
        for file, text in texts.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            with file.open("x", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as error:
        raise NewPipelineError(
            f"{error.filename} cannot be written: {error.strerror}. Choose another --folder"
        ) from error
    return Example(tuple(texts), (folder / _DATA).resolve().as_uri())


def _scaffold_files(name: str, *, rows: bool) -> Mapping[str, str]:
    from importlib.resources import files

    example, templates = files("headrace.cli") / "example", _FILES_OF_ROWS if rows else _EXAMPLE_FILES
    texts = {place: (example / template).read_text(encoding="utf-8") for place, template in templates.items()}
    return {
        place: text.format(name=name) if templates[place].endswith(".txt") else text for place, text in texts.items()
    }


@command("headrace test pipelines/")
def test(
    path: Annotated[
        Path,
        Argument(
            metavar="PATH",
            help="A file of tests, or a folder with NAME.test.yaml, tests/NAME.yaml or test_NAME.py in it.",
        ),
    ] = Path(),
    executor: Annotated[
        str,
        Option(
            metavar="[local|reference]",
            help="What computes tests in YAML: the kernel of all runs, or the reference interpreter (of headrace-lab).",
        ),
    ] = "local",
    output: FormatOption = Format.TEXT,
) -> None:
    """Run the unit tests beside pipelines: given these rows, expect these panes. No files, no JVM."""
    from headrace.testing.pipeline_run import WITHOUT_INTERPRETER, checked_executor, has_interpreter
    from headrace.testing.suite import find_tests, run_suite

    executor_name, tests = checked_executor(executor), find_tests(path)
    if executor_name == "reference" and not has_interpreter():
        print_notice(WITHOUT_INTERPRETER)
    for file in tests.others:
        print_notice(f"{file} is left out: it has no key `tests`")
    report = run_suite(
        tests, executor_name, None if output is Format.JSON else lambda item: print_lines(_test_lines(item))
    )
    if not print_if_json(report, output):
        print_notice(
            ", ".join(f"{number} {verdict}" for verdict, number in sorted(report.counts.items())) or "no tests"
        )
    raise Exit(_exit_code(report.counts))


def _exit_code(counts: Mapping[str, int]) -> int:
    if "error" in counts:
        return FixConfigError.exit_code
    return FAILED_CASES if "failed" in counts else EXIT_DONE


def _test_lines(item: "TestedItem") -> list[str]:
    place = item.file if item.line is None else f"{item.file}:{item.line}"
    head = f"{item.verdict:<7} {place} {item.name} ({item.seconds:.2f} s)"
    return [head, *(f"    {line}" for line in item.message.splitlines())]


@command("headrace pipelines --root file:///tmp/hr")
def pipelines(
    root: Annotated[
        str | None, Option(help="Also say how far each has come under this root.", envvar="HEADRACE_ROOT")
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """List the registered pipelines: the ones that ship, and the ones in the folders of HEADRACE_PIPELINES.

    With a root, also list the pipelines that have run there from files of their own, without what only their files say.
    """
    from headrace.read.deployment import Deployment, pipeline_list
    from headrace_snapshots.store import open_store

    pipelines_listed = pipeline_list(None) if root is None else Deployment(open_store(root)).pipelines()
    rows = pipelines_listed.to_json()
    if output is Format.JSON:
        print_json(rows)
    else:
        table_rows = pipelines_listed.rows()
        columns = list(table_rows[0]) if table_rows else ["name"]
        print_table(columns, ([row[column] for column in columns] for row in table_rows))
    for why in pipelines_listed.broken.values():
        print_notice(f"cannot be used: {why}")
    if not rows and not pipelines_listed.broken:
        print_notice("There are no pipelines: HEADRACE_PIPELINES names the folders to look in")
    elif any(row["source"] is None for row in rows):
        print_notice(
            "Only the results of pipelines without a source are known here: give commands that run these their file"
        )


@command("headrace lineage --root file:///tmp/hr", options="lineage")
def lineage(
    *,
    root: RootOption,
    of: Annotated[
        str | None,
        Option(metavar="PIPELINE", help="Name its readers, and their readers, that have consumed a snapshot of it."),
    ] = None,
    at: Annotated[str, Option(metavar="SNAPSHOT", help="An id, a branch, a tag, or a time.")] = PUBLISHED,
    stuck: Annotated[
        bool, Option(help="Say what is in flight, and which pipeline waits for which; or that nothing is.")
    ] = False,
    output: FormatOption = Format.TEXT,
    **options: Any,
) -> None:
    """Show which pipelines read which, and how far behind each is, in one consistent cut over all of them.

    It also shows registered pipelines that have not run yet. Readers under other roots are known by the objects that
    they put under this root, or if --reader-root names their root.

    With --of, name the readers that have consumed a snapshot, and the first snapshot of each that contains it.

    With --stuck, say which pipeline waits for which, in the same cut. It ends with 1 if something is in flight.
    """
    from headrace.pipeline.loading.registry import registered_files
    from headrace.read.deployment import Deployment
    from headrace.read.pipeline_reader import check_root
    from headrace_snapshots.store import open_store

    store = open_store(root)
    check_root(store)
    deployment, options_given = Deployment(store), given_options(options)
    if of is not None:
        dependents = deployment.dependents(of, at, **options_given)
        if not print_if_json(dependents, output):
            print_table(["reader", "since", "epoch"], ([*one.to_json().values()] for one in dependents.readers))
            _print_limits(dependents.searched)
        return
    definitions = [one.pipeline for one in registered_files().pipelines.values()]
    if stuck:
        _print_waits(deployment.waits(definitions, now=datetime.now(UTC), **options_given), output)
        return
    lineage_shown = deployment.lineage(definitions, **options_given)
    if print_if_json(lineage_shown, output):
        return
    rows = lineage_shown.rows()
    columns = list(rows[0]) if rows else ["pipeline"]
    print_table(columns, ([row[column] for column in columns] for row in rows))
    _print_limits(lineage_shown.searched)


def _print_limits(readers_found: "KnownReaders") -> None:
    for limit in readers_found.limits:
        print_notice(limit)


def _print_waits(waits: "DeploymentWaits", output: Format) -> None:
    if not print_if_json(waits, output):
        if waits.waits:
            columns = ["pipeline", "waits for", "kind", "why"]
            print_table(columns, ([row[column] for column in columns] for row in waits.rows()))
        print_notice("nothing is in flight" if waits.is_quiet else _why_not_quiet(waits))
        if waits.unlooked:
            print_notice(f"nobody looked at all input of {', '.join(waits.unlooked)}: not registered, or no files")
        _print_limits(waits.searched)
    raise Exit(EXIT_DONE if waits.is_quiet else FAILED_CASES)


def _why_not_quiet(waits: "DeploymentWaits") -> str:
    if any(wait.kind.is_in_flight for wait in waits.waits):
        return "something is in flight"
    unseen = "; ".join(f"{one.reader} reads {one.upstream}: {one.why}" for one in waits.searched.unseen)
    return f"nobody can say that nothing is in flight: {unseen}"


@command("headrace check delays.py")
def check(
    pipeline: Annotated[
        str | None,
        Argument(
            metavar="[PIPELINE]",
            help="A registered name, or path/to/file.py[:name]; by default all registered pipelines.",
            complete=complete_pipeline,
        ),
    ] = None,
    output: FormatOption = Format.TEXT,
) -> None:
    """Say in words what a pipeline means, draw its graph, name its DAGs, and tell what is wrong with it.

    The exit code is 0 if nothing is wrong with the pipeline or with any of the files, else 10. Notes do not count.
    """
    from headrace.describe.check import check as checked

    report = checked(pipeline)
    if not print_if_json(report, output):
        print_lines(report.lines())
    if report.is_wrong:
        raise Exit(FixConfigError.exit_code)


@command("headrace new shop")
def new(
    name: Annotated[str, Argument(metavar="NAME", help="The name of the pipeline and of its file.")],
    folder: Annotated[Path | None, Option(help="Where to write; by default a folder of that name.")] = None,
    rows: Annotated[
        bool, Option(help="Write a pipeline that gives rows of its records, and aggregates nothing.")
    ] = False,
    output: FormatOption = Format.TEXT,
) -> None:
    """Write a pipeline, a unit test and sample data that run at once. Existing files stay as they are."""

    example = write_example(name, Path(name) if folder is None else folder, rows=rows)
    if print_if_json(example, output):
        return
    print_lines(f"wrote {file}" for file in example.files)
    print_lines(["next:", *(f"  {step}" for step in example.next_steps)])
