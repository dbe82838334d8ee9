"""The definition that a snapshot was made by, with its columns called as the pipeline calls them now.

What has been renamed is declared (``Aggregation.renamed``). So two definitions can be compared as if nobody had renamed
anything: what differs then has changed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.pipeline.aggregation import Stage
from headrace.pipeline.pipeline import Pipeline

_VALUES = ("what", "results")
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
    """The definition ``before`` (``fingerprint.definition``) with the names that ``pipeline`` declares."""
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
    keys = [name for name, _ in old["key"]]
    values = [name for part in _VALUES for name, _ in old.get(part, ())]
    then = {*keys, *values}
    declared = {a: b for a, b in stage.aggregation.renamed.items() if a in then and b not in then}
    claims = Counter(declared.values())  # two columns cannot both be the same one: neither is
    parts = {name: part for part in ("key", *_VALUES) for name, _ in old.get(part, ())}
    names = {a: b for a, b in declared.items() if claims[b] == 1 and _part(stage, b) == parts[a]}
    return Formerly(*({names.get(name, name): name for name in columns} for columns in (keys, values)))


def _part(stage: Stage, name: str) -> str:
    made = stage.aggregation
    return "key" if name in made.key else "what" if name in made.aggregates else "results"


def _stage_renamed(old: Mapping[str, Any], formerly: Formerly, above: Mapping[str, str]) -> dict[str, Any]:
    own = formerly.renamed
    stage_then = {part: _reading(value, own if part in _OF_ROWS else above) for part, value in old.items()}
    for part in ("key", *_VALUES):
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
