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


@dataclass(frozen=True)
class Formerly:
    """The columns of an aggregation in a snapshot, in its order: old names by new ones.
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
    above: Mapping[str, str] = {}
    for number, (stage, old) in enumerate(zip(pipeline.stages, before["stages"], strict=False)):
        formerly = _formerly(stage, old)
        stored_stages[number] = _stage_renamed(old, formerly, above)
        stages.append(formerly)
        above = formerly.renamed
    return Renamed({**before, "stages": stored_stages}, stages)


def _formerly(stage: Stage, old: Mapping[str, Any]) -> Formerly:
    """Old and new names that are declared: the old column is gone, and the new one was not there."""
    keys, values = ([name for name, _ in old[part]] for part in ("key", "what"))
    then = {*keys, *values}
    declared = {a: b for a, b in stage.aggregation.renamed.items() if a in then and b not in then}
    claims = Counter(declared.values())  # two columns cannot both be the same one: neither is
    names = {a: b for a, b in declared.items() if claims[b] == 1 and _is_same_kind(stage, b, is_key=a in keys)}
    return Formerly(*({names.get(name, name): name for name in columns} for columns in (keys, values)))


def _is_same_kind(stage: Stage, name: str, *, is_key: bool) -> bool:
    return name in (stage.aggregation.key if is_key else stage.aggregation.what)


def _stage_renamed(old: Mapping[str, Any], formerly: Formerly, above: Mapping[str, str]) -> dict[str, Any]:
    stage_then = {part: _reading(value, above) for part, value in old.items()}
    for part, columns in (("key", formerly.keys), ("what", formerly.values)):
        stage_then[part] = [[name, value] for name, (_, value) in zip(columns, stage_then[part], strict=True)]
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
