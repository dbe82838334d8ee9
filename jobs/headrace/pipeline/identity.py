"""The identity of a pipeline: its parts in words that never change, fingerprints, renamed columns.

The parts of a pipeline are JSON, in words that stand beside the classes (``model.arguments``). Neither names in the
code nor defaults count, so a class may be renamed, and a default may change. Objects of a user's own go by the name of
their class, their fields, and what they declare of their state. Fingerprints are made of that. They say whether the
state that a snapshot holds still belongs to the pipeline as it is written now.

What has been renamed is declared (``Aggregation.renamed``). So the definition by which a snapshot was made can be
compared as if nobody had renamed anything: what differs then has changed. All of it is worked out once of a pipeline,
which never changes, since runs ask again at each step.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from typing import Any, TypeVar

from headrace.model.arguments import WORDS, Word
from headrace.model.combiners import CustomCombiner, accumulator_types, result_type
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.typing import constant_to_json, to_json
from headrace.model.triggers.custom import CustomTrigger, state_types
from headrace.pipeline.endpoints import Input
from headrace.pipeline.joins import Join
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.rows import GroupRows
from headrace.pipeline.sources import FilesSource
from headrace.pipeline.stages import Aggregation, Stage

Answer = TypeVar("Answer")


def cache_per_pipeline(function: Callable[[Pipeline], Answer]) -> Callable[[Pipeline], Answer]:
    """``function``, which is asked once of each pipeline. Its answer lives in the pipeline, and no longer."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def ask_once(pipeline: Pipeline) -> Answer:
        if name not in pipeline.__dict__:
            pipeline.__dict__[name] = function(pipeline)
        answer: Answer = pipeline.__dict__[name]
        return answer

    return ask_once


def encode_value(value: Any) -> Any:
    """``value``, a part of a pipeline, as JSON."""
    if isinstance(value, Expr):
        return to_json(value)
    if isinstance(value, Mapping):
        return [[name, encode_value(part)] for name, part in value.items()]
    if isinstance(value, list | tuple):
        return [encode_value(part) for part in value]
    if type(value) in WORDS:
        return _encode_with_word(value, WORDS[type(value)])
    return _encode_own_object(value) if is_dataclass(value) else _encode_plain(value)


def _encode_plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and float(value).is_integer():
        return int(value)  # 95 and 95.0 mean the same
    return constant_to_json(value)


def _encode_with_word(value: Any, word: Word) -> dict[str, Any]:
    parts = {name: (getattr(value, name), left_out) for name, left_out in word.parts.items()}
    return {
        "is": word.name,
        **{name: encode_value(part) for name, (part, default) in parts.items() if not _is_out(part, default)},
    }


def _is_out(part: Any, left_out: Any) -> bool:
    if isinstance(part, Expr):  # its == builds an expression
        return False
    return part in left_out if isinstance(left_out, tuple) else bool(part == left_out)


def _encode_own_object(value: Any) -> dict[str, Any]:
    """An object of a user's own class. What it says of its state need not be a field of it."""
    encoded_fields = {field.name: encode_value(getattr(value, field.name)) for field in fields(value)}
    match value:
        case CustomCombiner():
            declarations = {
                "accumulator": encode_value(accumulator_types(value)),
                "result": encode_value(result_type(value)),
            }
        case CustomTrigger():
            declarations = {"state": encode_value(state_types(value)), "signals": sorted({*value.signals})}
        case _:
            declarations = {}
    return {"own": type(value).__name__, "fields": encoded_fields, **declarations}


FORMAT = 1
"""The format of what fingerprints are made of; ``tests/pipeline/golden`` holds some of each format."""

FORMAT_OF_SEVERAL = 2
"""The same where outputs have names."""


@cache_per_pipeline
def fingerprint(pipeline: Pipeline) -> str:
    """Hex digest of all that decides what the state means. What the outputs are called whose panes one reads does
    not.
    """
    return fingerprint_of(pipeline_meaning(pipeline))


def fingerprint_of(meaning: Mapping[str, Any]) -> str:
    """The fingerprint of what ``pipeline_meaning`` gives."""
    return _json_digest(_without_names(meaning))[:32]


def pipeline_meaning(pipeline: Pipeline) -> dict[str, Any]:
    """What a fingerprint is made of, as JSON. It has inputs, event time, splits and duplicates. Each aggregation has
    its key, filter, where, when, how, what, columns of results and having, its loop and its rounds; rows have their
    columns and filter.

    Batch sizes, expectations, limits, checks against history, schedules, backfills, retention, executors, options of
    Airflow and descriptions may change freely. What is not used does not count. Where outputs have names, stages are
    those of each: with the inputs they mean what those of a pipeline mean that has this output alone.
    """
    read = {
        "inputs": [_encode_input(input_) for input_ in pipeline.inputs],
        **_encode_if_used(deduplicate=pipeline.deduplicate),
    }
    if pipeline.has_names:
        outputs = {
            output: _encode_computation(output_pipeline) for output, output_pipeline in pipeline.by_output.items()
        }
        return {"format": FORMAT_OF_SEVERAL, **read, "outputs": outputs}
    return {"format": FORMAT, **read, **_encode_computation(pipeline)}


def recorded_definition(pipeline: Pipeline) -> dict[str, Any]:
    """``pipeline_meaning`` as a manifest records it: floats that are not finite are texts."""
    definition: dict[str, Any] = json.loads(json.dumps(pipeline_meaning(pipeline)), parse_constant=str)
    return definition


def part_digests(definition: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the parts of a ``definition`` of one output, by their names: they say which part of it has changed
    where its fingerprint has. What it reads of other outputs is not among them.
    """
    parts: dict[str, Any] = {
        "format": definition["format"],
        "inputs": [input_["name"] for input_ in definition["inputs"]],
    }
    for input_ in definition["inputs"]:
        parts |= {f"inputs/{input_['name']}/{part}": value for part, value in input_.items() if part != "name"}
    if "deduplicate" in definition:
        parts["deduplicate"] = definition["deduplicate"]
    for number, join in enumerate(definition.get("joins", ()), start=1):
        parts |= {f"joins/{number}/{part}": value for part, value in join.items()}
    for number, stage in enumerate(definition["stages"], start=1):
        parts |= {f"stages/{number}/{part}": value for part, value in stage.items()}
        for kind in _PARTS_WITH_COLUMNS:
            if kind in stage:
                parts |= {f"stages/{number}/{kind}/{name}": value for name, value in stage[kind]}
                parts[f"stages/{number}/{kind}"] = [name for name, _ in stage[kind]]
    return {name: _json_digest(value)[:16] for name, value in parts.items()}


_PARTS_WITH_COLUMNS = ("what", "results", "rows")
"""Parts of a stage that name columns."""


def _json_digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _encode_if_used(**parts: Any) -> dict[str, Any]:
    return {name: encode_value(part) for name, part in parts.items() if part is not None}


def _encode_input(input_: Input) -> dict[str, Any]:
    source = input_.source
    dialect = source.dialect if isinstance(source, FilesSource) else None
    return _encode_if_used(
        name=input_.name,
        kind=None if isinstance(source, FilesSource) else source.kind,
        path=source.place,
        schema=dict(sorted(source.schema.items())),
        dialect=None if dialect is None else dict(sorted(dialect.options.items())),
        transform=source.transform,
        explode=source.explode,
        changelog=source.changelog,
        versions=source.versions,
        event_time=input_.event_time,
        columns=input_.columns or None,
    )


def _encode_computation(pipeline: Pipeline) -> dict[str, Any]:
    """Its stages, and what they read unless it is records: panes of outputs, with what gives them."""
    upstream = [
        {
            "output": upstream_output.output,
            **_encode_if_used(columns=upstream_output.columns or None, side=upstream_output.side or None),
            **_encode_computation(upstream_output.pipeline),
        }
        for upstream_output in pipeline.upstream
    ]
    joins = [_encode_join(join) for join in pipeline.join]
    return {
        **({"of": upstream} if upstream else {}),
        **({"joins": joins} if joins else {}),
        "stages": _encode_stages(pipeline),
    }


def _encode_join(join: Join) -> dict[str, Any]:
    """A join in words: what is left out is not used."""
    names = ("on", "columns", "meets", "begin", "end", "window", "order", "deleted", "where", "lateness", "history")
    parts = _encode_if_used(**{name: getattr(join, name) for name in names})
    parts |= _encode_if_used(
        outer=join.outer or None,
        spread=join.spread if join.spread > 1 else None,
        computed=join.computed or None,
        by_arrival=join.by_arrival or None,
    )
    return parts if join.is_of_output else {"input": join.name, **parts}


def _without_names(meaning: Any) -> Any:
    match meaning:
        case {"of": upstream, **others}:
            nameless = [
                {part: value for part, value in upstream_output.items() if part != "output"}
                for upstream_output in upstream
            ]
            return {"of": _without_names(nameless), **_without_names(others)}
        case {"outputs": outputs, **others}:
            return {**others, "outputs": {name: _without_names(output) for name, output in outputs.items()}}
        case list():
            return [_without_names(part) for part in meaning]
    return meaning


def _encode_stages(pipeline: Pipeline) -> list[dict[str, Any]]:
    stages = [_encode_stage(stage.aggregation) for stage in pipeline.stages]
    for encoded_stage, stage in zip(stages, pipeline.stages, strict=True):
        if stage.null_keys and stage.aggregation.key:
            encoded_stage["null_keys"] = True
    if pipeline.loop is not None:
        edges = _encode_if_used(key=pipeline.key, filter=pipeline.filter, values=pipeline.loop)
        stages[0] |= {"loop": edges, "rounds": pipeline.loop.rounds}
    return stages


def _encode_stage(aggregation: Aggregation) -> dict[str, Any]:
    if isinstance(aggregation, GroupRows):
        names = ("key", "filter", "take", "where", "when", "how", "rows")
        return _encode_if_used(
            **{name: getattr(aggregation, name) for name in names if name != "key" or not aggregation.takes_each}
        )
    if aggregation.rows:
        return {**_encode_if_used(filter=aggregation.filter), "rows": encode_value(aggregation.rows)}
    return _encode_if_used(
        key=aggregation.key,
        filter=aggregation.filter,
        what=aggregation.aggregates,
        results=aggregation.results or None,
        having=aggregation.having,
        where=aggregation.where,
        when=aggregation.when,
        how=aggregation.how,
        transform=aggregation.transform,
    )


_PARTS_OF_RESULTS = ("results", "having")
"""Parts of a definition that read the columns of their own aggregation; the others read those of what comes to it."""


@dataclass(frozen=True)
class Formerly:
    """The columns of an aggregation in a snapshot, in its order, aggregates before columns of results: old names by new
    ones.
    A column that is gone has the name that it would have now.
    """

    keys: Mapping[str, str]
    values: Mapping[str, str]

    @property
    def names_now(self) -> dict[str, str]:
        """What is called something else now, by its old name."""
        return {old: name for name, old in {**self.keys, **self.values}.items() if old != name}


@dataclass(frozen=True)
class RenamedDefinition:
    """A ``definition`` with new names for old ones, and the columns of the aggregations that it and the pipeline have
    in common.
    """

    definition: Mapping[str, Any]
    stages: Sequence[Formerly]


def with_declared_names(pipeline: Pipeline, old_definition: Mapping[str, Any]) -> RenamedDefinition:
    """The ``old_definition`` (``definition``) with the names that ``pipeline`` declares."""
    stored_stages: list[dict[str, Any]] = [*old_definition["stages"]]
    stages: list[Formerly] = []
    renames_above = _renamed_above(pipeline, old_definition)
    for number, (stage, old) in enumerate(zip(pipeline.stages, old_definition["stages"], strict=False)):
        formerly = _declared_renames(stage, old)
        stored_stages[number] = _stage_renamed(old, formerly, renames_above)
        stages.append(formerly)
        renames_above = formerly.names_now
    return RenamedDefinition({**old_definition, "stages": stored_stages}, stages)


def _declared_renames(stage: Stage, old: Mapping[str, Any]) -> Formerly:
    """Old and new names that are declared: the old column is gone, and the new one was not there."""
    keys = [name for name, _ in old.get("key", ())]
    values = [name for part in _PARTS_WITH_COLUMNS for name, _ in old.get(part, ())]
    old_columns = {*keys, *values}
    declared_renames = {a: b for a, b in stage.aggregation.renamed.items() if a in old_columns and b not in old_columns}
    claims = Counter(declared_renames.values())  # two columns cannot both be the same one: neither is
    parts = {name: part for part in ("key", *_PARTS_WITH_COLUMNS) for name, _ in old.get(part, ())}
    names = {a: b for a, b in declared_renames.items() if claims[b] == 1 and _part_name(stage, b) == parts[a]}
    return Formerly(*({names.get(name, name): name for name in columns} for columns in (keys, values)))


def _part_name(stage: Stage, name: str) -> str:
    aggregation = stage.aggregation
    if aggregation.rows:
        return "rows"
    return "key" if name in aggregation.key else "what" if name in aggregation.aggregates else "results"


def _stage_renamed(old: Mapping[str, Any], formerly: Formerly, renames_above: Mapping[str, str]) -> dict[str, Any]:
    own = formerly.names_now
    stage_then = {
        part: _rename_columns(value, own if part in _PARTS_OF_RESULTS else renames_above) for part, value in old.items()
    }
    for part in ("key", *_PARTS_WITH_COLUMNS):
        if part in old:
            stage_then[part] = [[own.get(name, name), value] for name, value in stage_then[part]]
    return stage_then


def _rename_columns(value: Any, names: Mapping[str, str]) -> Any:
    """A part of a definition that reads columns by these ``names``, which are old ones."""
    match value:
        case ["column", str(name)]:
            return ["column", names.get(name, name)]
        case list():
            return [_rename_columns(part, names) for part in value]
        case dict():
            return {part: _rename_columns(item, names) for part, item in value.items()}
    return value


def upstream_before(old_definition: Mapping[str, Any], output: str) -> Mapping[str, Any] | None:
    """The definition of an ``output`` that one with ``old_definition`` read; None if it did not."""
    for upstream_definition in old_definition.get("of", ()):
        if upstream_definition["output"] == output:
            shared_parts = {part: value for part, value in old_definition.items() if part not in ("of", "stages")}
            return {
                **shared_parts,
                **{part: value for part, value in upstream_definition.items() if part in ("of", "stages")},
            }
    return None


def _renamed_above(pipeline: Pipeline, old_definition: Mapping[str, Any]) -> Mapping[str, str]:
    """New names by old ones of the columns of the only output that ``pipeline`` reads, if it reads them as they are."""
    if len(pipeline.upstream) != 1 or pipeline.upstream[0].columns:
        return {}
    (upstream_output,) = pipeline.upstream
    old_upstream = upstream_before(old_definition, upstream_output.output)
    stages = [] if old_upstream is None else with_declared_names(upstream_output.pipeline, old_upstream).stages
    return stages[-1].names_now if len(stages) == len(upstream_output.pipeline.stages) else {}
