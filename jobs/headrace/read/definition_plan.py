"""What a run would do with a pipeline as it is written now: continue from a snapshot, with its state or a migrated one,
or refuse because that state means something else.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.errors import FixConfigError
from headrace.pipeline.aggregation import Stage
from headrace.pipeline.identity.fingerprint import fingerprint
from headrace.pipeline.identity.renaming import Formerly, renamed
from headrace.pipeline.loading.code_digests import changed_code
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_changes import Action, Change, changes
from headrace.read.views.columns import ViewColumns
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import called_now, output_names, outputs_of, seen_by, with_names


class FormerNameError(FixConfigError, code="config.former_name"):
    """An output whose former name no snapshot knows, where another output is gone: it may be that one."""


_UNKNOWN = "has changed; the snapshot is too old to say which part of it"


@dataclass(frozen=True)
class StagePlan:
    """What becomes of the state of an aggregation, and why."""

    number: int
    action: Action
    reasons: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"stage": self.number, "action": self.action.value, "reasons": list(self.reasons)}


@dataclass(frozen=True, repr=False)
class Plan:
    """A pipeline against a snapshot (None: there is none). ``changes`` are its parts that are not what they were,
    ``code`` the names of own code that has changed, for which state stays. ``columns``: what the columns of each
    aggregation were called, where state can be migrated. ``output``: the one of several that it is about.
    """

    pipeline: str
    snapshot: str | None
    epoch: int | None
    action: Action
    stages: Sequence[StagePlan]
    changes: Sequence[Change] = ()
    code: Sequence[str] = ()
    columns: Sequence[Formerly] = ()
    output: str = ""

    @property
    def starting_empty(self) -> list[str]:
        """The aggregates that a run would begin with nothing, if it is told to."""
        if self.action is not Action.MIGRATE:
            return []
        return [f"{change.part} of aggregation {change.stage}" for change in self.changes if change.starts_empty]

    @property
    def choice(self) -> str:
        """What there is to choose where aggregates are new."""
        return (
            f"(a) `headrace run {self.pipeline} --allow-new-aggregates`: the new aggregates count only new data, also "
            f"in open windows, and are NULL in older panes, as new columns of results are. (b) {self._replay}"
        )

    @property
    def _replay(self) -> str:
        if self.output:
            return (
                f"`headrace backfill {self.pipeline}.{self.output} --promote`: a branch computes this output again, of "
                "all that was read, with what is computed of it; main adopts it once its audit succeeds, and until "
                "then readers see what they see now"
            )
        return (
            f"`headrace backfill {self.pipeline} --promote`: a branch computes the full history again, of all "
            "aggregations, and becomes main and published once its audit succeeds; until then readers see what they "
            "see now"
        )

    @property
    def run(self) -> str:
        """What ``headrace run`` does."""
        if self.output and self.snapshot is not None:
            return self._run_of_output
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

    @property
    def _run_of_output(self) -> str:
        """What it does with an output of several on main; on another branch it refuses where the output would wait."""
        waits = (
            f"headrace run parks output {self.output} on main (config.changed_pipeline): its readers see what they see "
            "now, the other outputs go on"
        )
        if self.starting_empty:
            return f"{waits}, until you choose for {', '.join(self.starting_empty)}: {self.choice}"
        match self.action:
            case Action.BEGIN:
                return (
                    f"headrace run computes output {self.output} of all that was read before; it appears with the "
                    "run's next epoch"
                )
            case Action.KEEP:
                return f"headrace run continues output {self.output} from this snapshot"
            case Action.MIGRATE:
                return (
                    f"headrace run continues output {self.output} from this snapshot, and migrates its state with its "
                    "first epoch"
                )
        return f"{waits}. Take the change back, and it goes on where it stands. Or {self._replay}"

    def lines(self) -> Iterator[str]:
        """In words."""
        at = "there is no snapshot yet" if self.snapshot is None else f"snapshot {self.snapshot} (epoch {self.epoch})"
        what = f"output {self.output} of {self.pipeline}" if self.output else self.pipeline
        lacks = ", which lacks it" if self.action is Action.BEGIN and self.snapshot is not None else ""
        yield f"{what} as it is written now, against {at}{lacks}"
        for change in self.changes:
            yield f"  {'' if change.stage is None else f'aggregation {change.stage}: '}{change}"
        for stage in self.stages:
            reasons = f" ({'; '.join(stage.reasons)})" if stage.reasons else ""
            yield f"aggregation {stage.number}: {stage.action}{reasons}"
        for name in self.code:
            yield f"the code of {name} has changed: state stays as it is (headrace run --strict refuses)"
        yield self.run

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "pipeline": self.pipeline,
            **({"output": self.output} if self.output else {}),
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
    changed = changes(pipeline, before)
    stages = _stages(pipeline, changed)
    action = max((*(part.action for part in changed), *(part.action for part in stages)), key=[*Action].index)
    return made(action, stages, changed, columns=() if action is Action.REPLAY else before.stages)


def plans_of_outputs(pipeline: Pipeline, manifest: Manifest | None) -> dict[str, Plan]:
    """The plan of each output with a name; also of one that is new, or has a new name."""
    here = None if manifest is None else under_new_names(pipeline, manifest)
    had = () if here is None else outputs_of(here)
    plans = {}
    for name, alone in pipeline.by_output.items():
        planned = plan(alone, seen_by(here, name) if here is not None and name in had else None)
        if manifest is not None and name not in had:
            planned = replace(planned, snapshot=manifest.snapshot_id, epoch=manifest.epoch)
        plans[name] = replace(planned, output=name)
    return plans


def under_new_names(pipeline: Pipeline, manifest: Manifest) -> Manifest:
    """``manifest`` with its outputs called what ``pipeline`` calls them now. ``formerly`` is the name that an output
    has there, or one that it had earlier. Raises FormerNameError.
    """
    had = output_names(manifest)
    formerly = {name: output.formerly for name, output in pipeline.outputs.items() if name not in had}
    called = {name: old for name, old in formerly.items() if old is not None and old in had}
    left = [name for name in had if name not in pipeline.outputs and name not in called.values()]
    for name, old in formerly.items():
        if old is None or name in called or not left:
            continue
        if (now := called_now(manifest, old)) not in left:
            raise FormerNameError(_unknown_name(pipeline, manifest, name, left))
        called[name] = now
        left.remove(now)
    return with_names(manifest, called)


def _unknown_name(pipeline: Pipeline, manifest: Manifest, name: str, others: Sequence[str]) -> str:
    former, gone = pipeline.outputs[name].formerly, [other or "the output without a name" for other in others]
    return (
        f"output {name} of {pipeline.name} was called {former!r} formerly, as its definition says, and snapshot "
        f"{manifest.snapshot_id} (epoch {manifest.epoch}) has none of that name, nor one that was called so. It has "
        f"{', '.join(gone)}, which the definition has not. Say formerly={others[0]!r} for {name} if that is "
        f"what it is called there; or leave formerly out, and {name} begins with nothing"
    )


def _stages(pipeline: Pipeline, changed: Sequence[Change]) -> list[StagePlan]:
    """The plan of each aggregation: REPLAY if it cannot take over its state, or if its input means something else. One
    that looks at all columns of its input cannot take over its state if any of them changes.
    """
    read = [change for change in changed if change.stage is None]
    plans: list[StagePlan] = []
    for number, stage in enumerate(pipeline.stages, start=1):
        own = [change for change in changed if change.stage == number]
        action = max((change.action for change in own), key=[*Action].index, default=Action.KEEP)
        reasons = [str(change) for change in own]
        replays = [f"it reads what has changed: {change}" for change in read if change.action is Action.REPLAY]
        replays += [f"it reads panes of aggregation {above.number}" for above in plans if above.action is Action.REPLAY]
        columns = read if number == 1 else [change for change in changed if change.stage == number - 1]
        if not replays and columns and _looks_at_all(stage):
            replays = [f"it looks at all columns of what it reads: {change}" for change in columns]
        plans.append(StagePlan(number, Action.REPLAY if replays else action, [*reasons, *replays]))
    return plans


def _looks_at_all(stage: Stage) -> bool:
    """Whether the aggregation depends on all columns of what it reads, not only on those that it names."""
    from headrace.kernel.stage import CompiledStage  # which those do without who read results alone

    compiled = CompiledStage(stage)
    return stage.aggregation.transform is not None or compiled.reads_records or compiled.reads_size


def columns_after(pipeline: Pipeline, manifest: Manifest | None, epoch: int | None = None) -> ViewColumns:
    """The columns of views once ``pipeline`` continues from the snapshot of ``manifest``, which it can. Files have
    those of before up to ``epoch``, None: that of the snapshot.
    """
    own = ViewColumns.of(pipeline)
    if manifest is None:
        return own
    earlier = ViewColumns.from_json(manifest.schema)
    if manifest.fingerprint == fingerprint(pipeline):
        return own.going_on(earlier)
    return own.after(earlier, manifest.epoch if epoch is None else epoch, plan(pipeline, manifest).columns)
