"""What a run would do with a pipeline as it is written now: go on from a snapshot, or refuse since the state that it
holds means something else.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.pipeline.code import changed_code
from headrace.pipeline.fingerprint import fingerprint, parts
from headrace.pipeline.graph import Pipeline
from headrace_snapshots.format.manifest import Manifest


class Action(StrEnum):
    """What becomes of state: there is none yet; it stays; it has to be made anew from all input."""

    BEGIN = "begin"
    KEEP = "keep"
    REPLAY = "replay"


_PARTS = {
    "path": "path",
    "schema": "schema",
    "transform": "Spark code",
    "event_time": "event time, watermark or splits",
    "columns": "columns for the pipeline",
    "key": "key",
    "filter": "filter",
    "where": "where (windows)",
    "when": "when (trigger)",
    "how": "how (accumulation, lateness, behaviour)",
}
_UNKNOWN = "which part of it is not recorded: the snapshot is from before manifests said so"


@dataclass(frozen=True)
class Change:
    """A part of a pipeline that is not what it was. ``stage``: its aggregation, counted from 1, None if all read it."""

    part: str
    change: str
    stage: int | None = None

    def __str__(self) -> str:
        return f"{self.part} {self.change}"

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"part": self.part, "change": self.change}


@dataclass(frozen=True)
class StagePlan:
    """What becomes of the state of an aggregation, and why."""

    number: int
    action: Action
    because: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"stage": self.number, "action": self.action.value, "because": list(self.because)}


@dataclass(frozen=True)
class Plan:
    """A pipeline against a snapshot (None: there is none). ``changes`` are its parts that are not what they were,
    ``code`` the names of own code that has changed, for which state stays.
    """

    pipeline: str
    snapshot: str | None
    epoch: int | None
    action: Action
    stages: Sequence[StagePlan]
    changes: Sequence[Change] = ()
    code: Sequence[str] = ()

    @property
    def run(self) -> str:
        """What ``headrace run`` does."""
        match self.action:
            case Action.BEGIN:
                return "headrace run reads all input from the beginning"
            case Action.KEEP:
                return "headrace run goes on from this snapshot"
        return (
            "headrace run refuses (config.changed_pipeline). "
            f"`headrace backfill {self.pipeline} --promote` replays all input with the pipeline as it is now, "
            "all aggregations of it, into a branch, audits that, and makes it main and published; until then readers "
            "see what they see now"
        )

    def lines(self) -> Iterator[str]:
        """In words."""
        at = "there is no snapshot yet" if self.snapshot is None else f"snapshot {self.snapshot} (epoch {self.epoch})"
        yield f"{self.pipeline} as it is written now, against {at}"
        for change in self.changes:
            yield f"  {'' if change.stage is None else f'aggregation {change.stage}: '}{change}"
        for stage in self.stages:
            because = f" ({'; '.join(stage.because)})" if stage.because else ""
            yield f"aggregation {stage.number}: {stage.action}{because}"
        for name in self.code:
            yield f"the code of {name} has changed: state stays what it was (headrace run --strict refuses)"
        yield self.run

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "pipeline": self.pipeline,
            "snapshot": self.snapshot,
            "epoch": self.epoch,
            "action": self.action.value,
            "changes": [{**change.to_json(), "stage": change.stage} for change in self.changes],
            "stages": [stage.to_json() for stage in self.stages],
            "code": list(self.code),
            "run": self.run,
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())


def plan(pipeline: Pipeline, manifest: Manifest | None) -> Plan:
    """What a run of ``pipeline`` would do with the state of the snapshot of ``manifest``."""
    numbers = range(1, len(pipeline.stages) + 1)
    if manifest is None:
        return Plan(pipeline.name, None, None, Action.BEGIN, [StagePlan(number, Action.BEGIN) for number in numbers])
    found = changes(pipeline, manifest)
    code = changed_code(pipeline, manifest.code)
    action = Action.REPLAY if found else Action.KEEP
    stages = [_stage(number, found) for number in numbers]
    return Plan(pipeline.name, manifest.snapshot_id, manifest.epoch, action, stages, found, code)


def changes(pipeline: Pipeline, manifest: Manifest) -> list[Change]:
    """The parts of ``pipeline`` that are not those of the snapshot: at least one if its fingerprint is another."""
    if manifest.fingerprint == fingerprint(pipeline):
        return []
    if not manifest.parts:
        return [Change("the definition", f"has changed; {_UNKNOWN}")]
    return [*_differences(manifest.parts, parts(pipeline))]


def named(found: Sequence[Change]) -> str:
    """Changes one after another, in words."""
    return "; ".join(f"{change}{'' if change.stage is None else f' (aggregation {change.stage})'}" for change in found)


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Change]:
    names = [*before, *(name for name in now if name not in before)]
    different = [name for name in names if before.get(name) != now.get(name)]
    for name in different:
        number = name.split("/")[1] if name.startswith("stages/") else None
        key = f"stages/{number}/where"  # which every aggregation has
        if number is not None and (key in before) != (key in now):
            if name == key:
                yield Change("the aggregation", "is new" if key in now else "is gone", int(number))
            continue
        if not any(other.startswith(f"{name}/") for other in different):  # the list of what is named by itself
            change = "has changed" if name in before and name in now else "is new" if name in now else "is gone"
            yield _change(name, change)


def _change(name: str, change: str) -> Change:
    match name.split("/", 3):
        case ["inputs"]:
            return Change("the order of the inputs", change)
        case ["inputs", of, *rest]:
            part = "/".join(rest)
            return Change(f"{_PARTS.get(part, part)} of input {of!r}", change)
        case ["stages", number, "what"]:
            return Change("the order of the aggregates", change, int(number))
        case ["stages", number, "what", aggregate]:
            return Change(f"aggregate {aggregate!r}", change, int(number))
        case ["stages", number, part]:
            return Change(_PARTS.get(part, part), change, int(number))
    return Change({"deduplicate": "deduplication"}.get(name, f"the {name}"), change)


def _stage(number: int, found: Sequence[Change]) -> StagePlan:
    """An aggregation is made anew if it is another, or if what it reads is."""
    own = [str(change) for change in found if change.stage == number]
    read = [f"it reads what has changed: {change}" for change in found if change.stage is None]
    above = sorted({change.stage for change in found if change.stage is not None and change.stage < number})
    read += [f"it reads panes of aggregation {each}" for each in above]
    return StagePlan(number, Action.REPLAY if own or read else Action.KEEP, [*own, *read])
