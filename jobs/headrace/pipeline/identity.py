"""The identity of a pipeline: its parts in words that never change, fingerprints, renamed columns.

The parts of a pipeline are JSON, in words that stand beside the classes (``model.arguments``): neither the names in the
code nor its defaults count, so a class may be renamed, and a default may change. Objects of a user's own go by the name
of their class, their fields, and what they declare of their state. Fingerprints are made of that. They say whether the
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
from headrace.pipeline.endpoints import Input, Source
from headrace.pipeline.group_rows import GroupRows
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FilesSource
from headrace.pipeline.stages import Aggregation, Stage

Answer = TypeVar("Answer")


def once(function: Callable[[Pipeline], Answer]) -> Callable[[Pipeline], Answer]:
    """``function``, which is asked once of each pipeline. Its answer lives in the pipeline, and no longer."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(pipeline: Pipeline) -> Answer:
        if name not in pipeline.__dict__:
            pipeline.__dict__[name] = function(pipeline)
        answer: Answer = pipeline.__dict__[name]
        return answer

    return kept


def encoded(value: Any) -> Any:
    """``value``, a part of a pipeline, as JSON."""
    if isinstance(value, Expr):
        return to_json(value)
    if isinstance(value, Mapping):
        return [[name, encoded(part)] for name, part in value.items()]
    if isinstance(value, list | tuple):
        return [encoded(part) for part in value]
    if type(value) in WORDS:
        return _known(value, WORDS[type(value)])
    return _own(value) if is_dataclass(value) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and float(value).is_integer():
        return int(value)  # 95 and 95.0 mean the same
    return constant_to_json(value)


def _known(value: Any, word: Word) -> dict[str, Any]:
    parts = {name: (getattr(value, name), left_out) for name, left_out in word.parts.items()}
    return {"is": word.name, **{name: encoded(part) for name, (part, out) in parts.items() if not _is_out(part, out)}}


def _is_out(part: Any, left_out: Any) -> bool:
    if isinstance(part, Expr):  # its == builds an expression
        return False
    return part in left_out if isinstance(left_out, tuple) else bool(part == left_out)


def _own(value: Any) -> dict[str, Any]:
    """An object of a user's own class. What it says of its state need not be a field of it."""
    named = {field.name: encoded(getattr(value, field.name)) for field in fields(value)}
    match value:
        case CustomCombiner():
            declared = {"accumulator": encoded(accumulator_types(value)), "result": encoded(result_type(value))}
        case CustomTrigger():
            declared = {"state": encoded(state_types(value)), "signals": sorted({*value.signals})}
        case _:
            declared = {}
    return {"own": type(value).__name__, "fields": named, **declared}


FORMAT = 1
"""Of what fingerprints are made; ``tests/pipeline/golden`` holds some of each format."""

FORMAT_OF_SEVERAL = 2
"""The same where outputs have names."""


@once
def fingerprint(pipeline: Pipeline) -> str:
    """Hex digest of all that decides what the state means. What the outputs are called whose panes one reads does
    not.
    """
    return fingerprint_of(meaning(pipeline))


def fingerprint_of(meant: Mapping[str, Any]) -> str:
    """The fingerprint of what ``meaning`` gives."""
    return _digest(_without_names(meant))[:32]


def meaning(pipeline: Pipeline) -> dict[str, Any]:
    """What a fingerprint is made of, as JSON: inputs, event time, splits, duplicates, and of each aggregation its key,
    filter, where, when, how, what, columns of results and having, and the loop and its rounds; of rows their columns
    and filter.

    Batch sizes, expectations, limits, checks against history, schedules, backfills, retention, executors, options of
    Airflow and descriptions may change freely. What is not used does not count. Where outputs have names, stages are
    those of each: with the inputs they mean what those of a pipeline mean that has this output alone.
    """
    read = {"inputs": [_input(given) for given in pipeline.inputs], **_used(deduplicate=pipeline.deduplicate)}
    if pipeline.has_names:
        outputs = {output: _computed(alone) for output, alone in pipeline.by_output.items()}
        return {"format": FORMAT_OF_SEVERAL, **read, "outputs": outputs}
    return {"format": FORMAT, **read, **_computed(pipeline)}


def definition(pipeline: Pipeline) -> dict[str, Any]:
    """``meaning`` as a manifest records it: floats that are not finite are texts."""
    meant: dict[str, Any] = json.loads(json.dumps(meaning(pipeline)), parse_constant=str)
    return meant


def parts(stored: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the parts of a ``definition``, by their names: they say which part of a pipeline has changed where its
    fingerprint has.
    """
    named: dict[str, Any] = {"format": stored["format"], "inputs": [given["name"] for given in stored["inputs"]]}
    for given in stored["inputs"]:
        named |= {f"inputs/{given['name']}/{part}": value for part, value in given.items() if part != "name"}
    if "deduplicate" in stored:
        named["deduplicate"] = stored["deduplicate"]
    for number, stage in enumerate(stored["stages"], start=1):
        named |= {f"stages/{number}/{part}": value for part, value in stage.items()}
        for kind in _COLUMNS:
            if kind in stage:
                named |= {f"stages/{number}/{kind}/{name}": value for name, value in stage[kind]}
                named[f"stages/{number}/{kind}"] = [name for name, _ in stage[kind]]
    return {name: _digest(value)[:16] for name, value in named.items()}


_COLUMNS = ("what", "results", "rows")
"""Parts of a stage that name columns."""


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _used(**parts: Any) -> dict[str, Any]:
    return {name: encoded(part) for name, part in parts.items() if part is not None}


def _input(given: Input) -> dict[str, Any]:
    source = given.source
    return _used(
        name=given.name,
        kind=None if isinstance(source, FilesSource) else source.kind,
        path=source.place,
        schema=dict(sorted(source.schema.items())),
        dialect=_options(source),
        transform=source.transform,
        explode=source.explode,
        changelog=source.changelog,
        event_time=given.event_time,
        columns=given.columns or None,
    )


def _options(source: Source) -> dict[str, Any] | None:
    """How its files are written, if it is not as the format says."""
    dialect = source.dialect if isinstance(source, FilesSource) else None
    return None if dialect is None else dict(sorted(dialect.options.items()))


def _computed(pipeline: Pipeline) -> dict[str, Any]:
    """Its stages, and what they read unless it is records: panes of outputs, with what gives them."""
    of = [
        {"output": above.output, **_used(columns=above.columns or None), **_computed(above.pipeline)}
        for above in pipeline.upstream
    ]
    return {**({"of": of} if of else {}), "stages": _stages(pipeline)}


def _without_names(meant: Any) -> Any:
    match meant:
        case {"of": of, **others}:
            nameless = [{part: value for part, value in above.items() if part != "output"} for above in of]
            return {"of": _without_names(nameless), **_without_names(others)}
        case {"outputs": outputs, **others}:
            return {**others, "outputs": {name: _without_names(output) for name, output in outputs.items()}}
        case list():
            return [_without_names(part) for part in meant]
    return meant


def _stages(pipeline: Pipeline) -> list[dict[str, Any]]:
    stages = [_stage(stage.aggregation) for stage in pipeline.stages]
    if pipeline.loop is not None:
        edges = _used(key=pipeline.key, filter=pipeline.filter, values=pipeline.loop)
        stages[0] |= {"loop": edges, "rounds": pipeline.loop.rounds}
    return stages


def _stage(aggregation: Aggregation) -> dict[str, Any]:
    if isinstance(aggregation, GroupRows):
        names = ("key", "filter", "take", "where", "when", "how", "rows")
        return _used(**{name: getattr(aggregation, name) for name in names})
    if aggregation.rows:
        return {**_used(filter=aggregation.filter), "rows": encoded(aggregation.rows)}
    return _used(
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


_OF_ROWS = ("results", "having")
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
    def renamed(self) -> dict[str, str]:
        """What is called something else now, by its old name."""
        return {old: name for name, old in {**self.keys, **self.values}.items() if old != name}


@dataclass(frozen=True)
class Renamed:
    """A ``definition`` with new names for old ones, and the columns of the aggregations that it and the pipeline have
    in common.
    """

    definition: Mapping[str, Any]
    stages: Sequence[Formerly]


def renamed(pipeline: Pipeline, before: Mapping[str, Any]) -> Renamed:
    """The definition ``before`` (``definition``) with the names that ``pipeline`` declares."""
    stored_stages: list[dict[str, Any]] = [*before["stages"]]
    stages: list[Formerly] = []
    above = _renamed_above(pipeline, before)
    for number, (stage, old) in enumerate(zip(pipeline.stages, before["stages"], strict=False)):
        formerly = _formerly(stage, old)
        stored_stages[number] = _stage_renamed(old, formerly, above)
        stages.append(formerly)
        above = formerly.renamed
    return Renamed({**before, "stages": stored_stages}, stages)


def _formerly(stage: Stage, old: Mapping[str, Any]) -> Formerly:
    """Old and new names that are declared: the old column is gone, and the new one was not there."""
    keys = [name for name, _ in old.get("key", ())]
    values = [name for part in _COLUMNS for name, _ in old.get(part, ())]
    then = {*keys, *values}
    declared = {a: b for a, b in stage.aggregation.renamed.items() if a in then and b not in then}
    claims = Counter(declared.values())  # two columns cannot both be the same one: neither is
    parts = {name: part for part in ("key", *_COLUMNS) for name, _ in old.get(part, ())}
    names = {a: b for a, b in declared.items() if claims[b] == 1 and _part(stage, b) == parts[a]}
    return Formerly(*({names.get(name, name): name for name in columns} for columns in (keys, values)))


def _part(stage: Stage, name: str) -> str:
    made = stage.aggregation
    if made.rows:
        return "rows"
    return "key" if name in made.key else "what" if name in made.aggregates else "results"


def _stage_renamed(old: Mapping[str, Any], formerly: Formerly, above: Mapping[str, str]) -> dict[str, Any]:
    own = formerly.renamed
    stage_then = {part: _reading(value, own if part in _OF_ROWS else above) for part, value in old.items()}
    for part in ("key", *_COLUMNS):
        if part in old:
            stage_then[part] = [[own.get(name, name), value] for name, value in stage_then[part]]
    return stage_then


def _reading(value: Any, names: Mapping[str, str]) -> Any:
    """A part of a definition that reads columns by these ``names``, which are old ones."""
    match value:
        case ["column", str(name)]:
            return ["column", names.get(name, name)]
        case list():
            return [_reading(part, names) for part in value]
        case dict():
            return {part: _reading(item, names) for part, item in value.items()}
    return value


def upstream_before(before: Mapping[str, Any], output: str) -> Mapping[str, Any] | None:
    """The definition of an ``output`` that one with the definition ``before`` read; None if it did not."""
    for above in before.get("of", ()):
        if above["output"] == output:
            shared = {part: value for part, value in before.items() if part not in ("of", "stages")}
            return {**shared, **{part: value for part, value in above.items() if part in ("of", "stages")}}
    return None


def _renamed_above(pipeline: Pipeline, before: Mapping[str, Any]) -> Mapping[str, str]:
    """New names by old ones of the columns of the only output that ``pipeline`` reads, if it reads them as they are."""
    if len(pipeline.upstream) != 1 or pipeline.upstream[0].columns:
        return {}
    (above,) = pipeline.upstream
    then = upstream_before(before, above.output)
    stages = [] if then is None else renamed(above.pipeline, then).stages
    return stages[-1].renamed if len(stages) == len(above.pipeline.stages) else {}
