"""What a run would do with a pipeline as it is written now: continue from a snapshot, with its state or a migrated one,
or refuse since the state that it holds means something else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.pipeline.aggregation import Stage
from headrace.pipeline.identity.fingerprint import fingerprint
from headrace.pipeline.identity.renaming import Formerly, renamed
from headrace.pipeline.loading.code_digests import changed_code
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_changes import Action, Change, changes
from headrace.read.views.columns import ViewColumns
from headrace_snapshots.format.manifest import Manifest

_UNKNOWN = "has changed; which part of it is not recorded: the snapshot is from before manifests said so"


@dataclass(frozen=True)
class StagePlan:
    """What becomes of the state of an aggregation, and why."""

    number: int
    action: Action
    because: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"stage": self.number, "action": self.action.value, "because": list(self.because)}


@dataclass(frozen=True, repr=False)
class Plan:
    """A pipeline against a snapshot (None: there is none). ``changes`` are its parts that are not what they were,
    ``code`` the names of own code that has changed, for which state stays. ``columns``: what the columns of each
    aggregation were called, where state can be migrated.
    """

    pipeline: str
    snapshot: str | None
    epoch: int | None
    action: Action
    stages: Sequence[StagePlan]
    changes: Sequence[Change] = ()
    code: Sequence[str] = ()
    columns: Sequence[Formerly] = ()

    @property
    def starting_empty(self) -> list[str]:
        """The aggregates that a run would begin with nothing, if it is told to."""
        if self.action is not Action.MIGRATE:
            return []
        return [f"{each.part} of aggregation {each.stage}" for each in self.changes if each.starts_empty]

    @property
    def choice(self) -> str:
        """What there is to choose where aggregates are new."""
        return (
            f"(a) `headrace run {self.pipeline} --allow-new-aggregates`: the new aggregates count only new data, also "
            f"in open windows, and are NULL in older panes. (b) {self._replay}"
        )

    @property
    def _replay(self) -> str:
        return (
            f"`headrace backfill {self.pipeline} --promote`: a branch computes the full history again, of all "
            "aggregations, and becomes main and published once its audit succeeds; until then readers see what they "
            "see now"
        )

    @property
    def run(self) -> str:
        """What ``headrace run`` does."""
        if self.starting_empty:
            return (
                "headrace run refuses (config.changed_pipeline) until you choose for "
                f"{', '.join(self.starting_empty)}: {self.choice}"
            )
        match self.action:
            case Action.BEGIN:
                return "headrace run reads all input from the beginning"
            case Action.KEEP:
                return "headrace run continues from this snapshot"
            case Action.MIGRATE:
                return "headrace run continues from this snapshot, whose state it migrates with its first epoch"
        return f"headrace run refuses (config.changed_pipeline). {self._replay}"

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
            "changes": [change.to_json() for change in self.changes],
            "stages": [stage.to_json() for stage in self.stages],
            "starting_empty": self.starting_empty,
            "code": list(self.code),
            "run": self.run,
        }

    def __repr__(self) -> str:
        return "\n".join(self.lines())


def plan(pipeline: Pipeline, manifest: Manifest | None) -> Plan:
    """What a run of ``pipeline`` would do with the state of the snapshot of ``manifest``."""
    numbers = range(1, len(pipeline.stages) + 1)
    if manifest is None:
        return Plan(pipeline.name, None, None, Action.BEGIN, [StagePlan(number, Action.BEGIN) for number in numbers])
    made = partial(
        Plan, pipeline.name, manifest.snapshot_id, manifest.epoch, code=changed_code(pipeline, manifest.code)
    )
    if manifest.fingerprint == fingerprint(pipeline):
        return made(Action.KEEP, [StagePlan(number, Action.KEEP) for number in numbers])
    if not manifest.definition:
        unknown = Change("the definition", _UNKNOWN)
        return made(Action.REPLAY, _stages(pipeline, [unknown]), [unknown])
    before = renamed(pipeline, manifest.definition)
    found = changes(pipeline, before)
    stages = _stages(pipeline, found)
    action = max((*(each.action for each in found), *(each.action for each in stages)), key=[*Action].index)
    return made(action, stages, found, columns=() if action is Action.REPLAY else before.stages)


def _stages(pipeline: Pipeline, found: Sequence[Change]) -> list[StagePlan]:
    """An aggregation is made anew if it cannot take over its state, or if what it reads is another. One that looks at
    all columns of what it reads is another with other columns.
    """
    read = [each for each in found if each.stage is None]
    plans: list[StagePlan] = []
    for number, stage in enumerate(pipeline.stages, start=1):
        own = [each for each in found if each.stage == number]
        action = max((each.action for each in own), key=[*Action].index, default=Action.KEEP)
        because = [str(each) for each in own]
        anew = [f"it reads what has changed: {each}" for each in read if each.action is Action.REPLAY]
        anew += [f"it reads panes of aggregation {each.number}" for each in plans if each.action is Action.REPLAY]
        columns = read if number == 1 else [each for each in found if each.stage == number - 1]
        if not anew and columns and _looks_at_all(stage):
            anew = [f"it looks at all columns of what it reads: {each}" for each in columns]
        plans.append(StagePlan(number, Action.REPLAY if anew else action, [*because, *anew]))
    return plans


def _looks_at_all(stage: Stage) -> bool:
    """Whether the aggregation depends on all columns of what it reads, not only on those that it names."""
    from headrace.kernel.stage import CompiledStage  # which those do without who read results alone

    compiled = CompiledStage(stage)
    return stage.aggregation.transform is not None or compiled.reads_records or compiled.reads_size


def columns_after(pipeline: Pipeline, manifest: Manifest | None) -> ViewColumns:
    """The columns of views once ``pipeline`` continues from the snapshot of ``manifest``, which it can."""
    own = ViewColumns.of(pipeline)
    if manifest is None:
        return own
    earlier = ViewColumns.from_json(manifest.schema)
    if manifest.fingerprint == fingerprint(pipeline):
        return replace(own, before=earlier.before)
    return own.after(earlier, manifest.epoch, plan(pipeline, manifest).columns)
