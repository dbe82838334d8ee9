"""What has changed of a pipeline since a snapshot was made, and what a run would do about it.

``definition_changes`` names the parts that are not what they were, and what each means for state. A ``Plan`` follows
from these: continue from the snapshot, with its state or a migrated one, or refuse because that state means something
else.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

from headrace.errors import FixConfigError
from headrace.pipeline.identity import (
    Formerly,
    RenamedDefinition,
    fingerprint,
    part_digests,
    recorded_definition,
    upstream_before,
    with_declared_names,
)
from headrace.pipeline.loading.code_digests import changed_code
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.stages import Stage
from headrace.read.views.columns import ViewColumns
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import called_now, output_names, outputs_of, seen_by, with_names


class Action(StrEnum):
    """What becomes of state: none is there; it stays; its columns change; or only reading all input again makes it."""

    BEGIN = "begin"
    KEEP = "keep"
    MIGRATE = "migrate"
    REPLAY = "replay"


_PART_TEXTS = {
    "path": "path",
    "schema": "schema",
    "dialect": "dialect of CSV",
    "transform": "transform (code of your own)",
    "explode": "explode",
    "changelog": "changelog",
    "versions": "versions=",
    "event_time": "event time, watermark or splits",
    "columns": "columns for the pipeline",
    "key": "key",
    "null_keys": "null_keys (NULL as a group)",
    "filter": "filter",
    "where": "where (windows)",
    "when": "when (trigger)",
    "how": "how (accumulation, lateness, behaviour)",
    "loop": "loop (its edges, start, step, combine)",
    "rounds": "rounds of the loop",
}


@dataclass(frozen=True)
class Change:
    """A part of a pipeline that is not what it was. ``stage``: its aggregation, counted from 1, None if all read it.
    ``action``: what becomes of state for it; ``starts_empty``: an aggregate, whose state would know nothing of what was
    read before, or a column of results, which rows that stand do not have. ``of_rows``: the stage gives rows as they
    are, and is no aggregation.
    """

    part: str
    change: str
    stage: int | None = None
    action: Action = Action.REPLAY
    starts_empty: bool = False
    of_rows: bool = False

    def __str__(self) -> str:
        return f"{self.part} {self.change}"

    @property
    def place(self) -> str:
        """Which part of the pipeline it is of, for people; "" if all read it."""
        return "" if self.stage is None else _stage_label(self.stage, self.of_rows)

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"part": self.part, "change": self.change, "stage": self.stage, "action": self.action.value}


def _stage_label(stage: int, of_rows: bool) -> str:
    return "rows" if of_rows else f"aggregation {stage}"


def changed_since(pipeline: Pipeline, manifest: Manifest) -> str | None:
    """A warning if ``pipeline`` has another definition now than when the snapshot was made; else None."""
    if manifest.fingerprint == fingerprint(pipeline):
        return None
    return (
        f"pipeline {pipeline.name} has changed since snapshot {manifest.snapshot_id} (epoch {manifest.epoch}): the "
        "snapshot still has the columns, and their meaning, of the definition that made it"
    )


def definition_changes(pipeline: Pipeline, old_definition: RenamedDefinition) -> list[Change]:
    """The parts of ``pipeline`` that are not those of ``old_definition``, which is another: at least one.

    What is not known to leave state right is REPLAY.
    """
    now = recorded_definition(pipeline)
    changes = [*_upstream_changes(pipeline, old_definition.definition), *_rename_changes(pipeline, old_definition)]
    changes += _changed_parts(pipeline, old_definition.definition, now)
    if pipeline.stages[0].gives_rows:
        changes = [replace(change, of_rows=change.stage is not None) for change in changes]
    return changes or [Change("the definition", "has changed")]


def _upstream_changes(pipeline: Pipeline, old_definition: Mapping[str, Any]) -> Iterator[Change]:
    """What changed of outputs that its only output reads: their meaning, or columns that came or went."""
    now = recorded_definition(pipeline)
    upstream_names = [
        [upstream_output["output"] for upstream_output in side.get("of", ())] for side in (old_definition, now)
    ]
    if upstream_names[0] != upstream_names[1]:
        yield Change("of (the outputs that it reads)", "has changed")
        return
    for upstream_output, *sides in zip(pipeline.upstream, old_definition.get("of", ()), now.get("of", ()), strict=True):
        for part in ("columns", "side"):
            if sides[0].get(part) != sides[1].get(part):
                yield Change(f"{part} of output {upstream_output.output!r}", "has changed")
        old_upstream = upstream_before(old_definition, upstream_output.output)
        if old_upstream is None or sides[0] == sides[1]:
            continue
        changes = definition_changes(
            upstream_output.pipeline, with_declared_names(upstream_output.pipeline, old_upstream)
        )
        action = max((change.action for change in changes), key=[*Action].index)
        action = Action.REPLAY if action is Action.REPLAY else Action.KEEP
        yield Change(f"output {upstream_output.output!r}", f"has changed: {describe_changes(changes)}", action=action)


def describe_changes(changes: Sequence[Change]) -> str:
    """Changes one after another, in words."""
    return "; ".join(f"{change}{f' ({change.place})' if change.place else ''}" for change in changes)


def _rename_changes(pipeline: Pipeline, old_definition: RenamedDefinition) -> Iterator[Change]:
    for number, (stage, old_stage) in enumerate(zip(pipeline.stages, old_definition.stages, strict=False), start=1):
        for name, old in {**old_stage.keys, **old_stage.values}.items():
            if name != old:
                aggregation = stage.aggregation
                kind = "key" if name in aggregation.key else "aggregate" if name in aggregation.aggregates else "column"
                yield Change(f"{kind} {name!r}", f"was {old!r}", number, Action.MIGRATE)


def _changed_parts(pipeline: Pipeline, old_definition: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    old_digests, own = part_digests(old_definition), part_digests(now)
    names = [*old_digests, *(name for name in own if name not in old_digests)]
    different = [name for name in names if old_digests.get(name) != own.get(name)]
    for name in different:
        number = name.split("/")[1] if name.startswith("stages/") else None
        key = f"stages/{number}/where"  # which every aggregation has
        if number is not None and (key in old_digests) != (key in own):
            if name == key:
                yield Change("the aggregation", "is new" if key in own else "is gone", int(number))
            continue
        other = _other_kind(name)
        if other is not None and other in (old_digests if name in own else own):
            if name in own:
                yield _change_of_part(pipeline, name, f"was {_COLUMN_NOUNS[other.split('/')[2]]}")
            continue
        if not any(other.startswith(f"{name}/") for other in different):  # the list of what is named by itself
            change = "has changed" if name in old_digests and name in own else "is new" if name in own else "is gone"
            columns = _column_changes(name, old_definition, now) if name in old_digests and name in own else None
            if columns is None:
                yield _change_of_part(pipeline, name, change)
            else:
                yield from columns


_COLUMN_NOUNS = {"what": "an aggregate", "results": "a column of results"}


def _other_kind(name: str) -> str | None:
    """The part that has the name of that aggregate as a column of results, or the other way round."""
    match name.split("/", 3):
        case ["stages", number, ("what" | "results") as kind, column]:
            return f"stages/{number}/{'results' if kind == 'what' else 'what'}/{column}"
    return None


def _column_changes(name: str, old_definition: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change] | None:
    """The columns of an input's schema that have come or gone, which leaves state as it is, or are others now; None if
    that is not all.
    """
    match name.split("/"):
        case ["inputs", input_name, "schema"]:
            old, new = (_stored_input(side, input_name) for side in (old_definition, now))
            if "transform" in new:
                return None
            columns, others = dict(old["schema"]), dict(new["schema"])
            changes = [(name, "is gone", Action.KEEP) for name in columns if name not in others]
            changes += [(name, "is new", Action.KEEP) for name in others if name not in columns]
            changes += [
                (name, _describe_field_change(field, others[name]), Action.REPLAY)
                for name, field in columns.items()
                if others.get(name, field) != field
            ]
            return [
                Change(f"column {name!r} of input {input_name!r}", how, action=action) for name, how, action in changes
            ]
    return None


def _describe_field_change(old: object, new: object) -> str:
    has_plain_types = isinstance(old, str) and isinstance(new, str)
    return f"was of type {old}, and is of type {new}" if has_plain_types else "is read in another way"


def _stored_input(definition: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    (stored_input,) = [input_ for input_ in definition["inputs"] if input_["name"] == name]
    return dict(stored_input)


def _change_of_part(pipeline: Pipeline, name: str, change: str) -> Change:
    match name.split("/", 3):
        case ["inputs"]:
            return Change("the order of the inputs", change)
        case ["inputs", input_name, *rest]:
            part = "/".join(rest)
            return Change(f"{_PART_TEXTS.get(part, part)} of input {input_name!r}", change)
        case ["joins", number, part]:
            joins = pipeline.join[int(number) - 1 : int(number)]
            return Change(f"{part} of the join with {joins[0].name}" if joins else f"join {number}", change)
        case ["stages", number, "rows", *column]:
            return _rows_change(pipeline.stages[int(number) - 1], column, change, int(number))
        case ["stages", number, *rest]:
            return _stage_change(pipeline.stages[int(number) - 1], rest, change, int(number))
    return Change({"deduplicate": "deduplication"}.get(name, f"the {name}"), change)


def _rows_change(stage: Stage, column: Sequence[str], change: str, number: int) -> Change:
    part = f"column {column[0]!r}" if column else "the order of the columns"
    if not stage.is_stateless:
        return Change(part, f"{change}, and rows of groups are kept with what it was", number)
    return _column_of_rows(stage, column[0], change, number) if column else Change(part, change, number, Action.MIGRATE)


def _stage_change(stage: Stage, part: Sequence[str], change: str, number: int) -> Change:
    match part:
        case ["what"]:
            action = Action.REPLAY if _keeps_elements(stage) else Action.MIGRATE
            return Change("the order of the aggregates", change, number, action)
        case ["what", aggregate]:
            return _aggregate_change(stage, aggregate, change, number)
        case ["results"]:
            return Change("the order of the columns of results", change, number, Action.MIGRATE)
        case ["results", column]:
            return _column_of_results(column, change, number)
        case ["having"]:
            return Change("having", f"{change}, and rows stand, or are withheld, by what it was", number)
    action = Action.KEEP if part[0] == "rounds" else Action.REPLAY  # a loop comes to the same in any rounds
    return Change(_PART_TEXTS.get(part[0], part[0]), change, number, action)


def _aggregate_change(stage: Stage, name: str, change: str, number: int) -> Change:
    """An aggregate may go. It may begin with nothing, unless elements that it has never seen can be withdrawn from it;
    another one under the same name cannot.
    """
    part = f"aggregate {name!r}"
    if _keeps_elements(stage) or change not in ("is gone", "is new"):
        return Change(part, change, number)
    if change == "is gone":
        return Change(part, change, number, Action.MIGRATE)
    if stage.withdrawable:
        return Change(part, "is new, and what it has never seen may be withdrawn", number)
    return Change(part, change, number, Action.MIGRATE, starts_empty=True)


def _column_of_results(name: str, change: str, number: int) -> Change:
    """A column of results may go, and may come: rows that stand do not have it then. It cannot become another: these
    rows would have what it was.
    """
    part = f"column {name!r}"
    if change == "is gone":
        return Change(part, change, number, Action.MIGRATE)
    if change == "is new":
        return Change(part, change, number, Action.MIGRATE, starts_empty=True)
    return Change(part, f"{change}, and rows that stand have what it was", number)


def _column_of_rows(stage: Stage, name: str, change: str, number: int) -> Change:
    """What a column of rows is like one of results; but where rows can be withdrawn none may come, for those that stand
    without it are known by all their columns.
    """
    if change == "is new" and stage.withdrawable:
        return Change(f"column {name!r}", "is new, and rows that stand without it may be withdrawn", number)
    return _column_of_results(name, change, number)


def _keeps_elements(stage: Stage) -> bool:
    """Whether its state is the last elements themselves, as far as its aggregates read them."""
    return stage.aggregation.how.keep_last is not None


class FormerNameError(FixConfigError, code="config.former_name"):
    """An output whose former name no snapshot knows, where another output is gone: it may be that one."""


_UNKNOWN_PART = "has changed; the snapshot is too old to say which part of it"


@dataclass(frozen=True)
class StagePlan:
    """What becomes of the state of an aggregation, or of rows as they are, and why."""

    number: int
    action: Action
    reasons: Sequence[str] = ()
    of_rows: bool = False

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
    def are_rows(self) -> bool:
        """Whether it gives rows as they are, and has no aggregations."""
        return any(stage.of_rows for stage in self.stages)

    @property
    def starting_empty(self) -> list[str]:
        """The aggregates that a run would begin with nothing, if it is told to."""
        if self.action is not Action.MIGRATE:
            return []
        return [f"{change.part} of {change.place}" for change in self.changes if change.starts_empty]

    @property
    def choice(self) -> str:
        """What there is to choose where aggregates, or columns of rows, are new."""
        begins = (
            "rows that stand have NULL in the new columns"
            if self.are_rows
            else "the new aggregates count only new data, also in open windows, and are NULL in older panes, as new "
            "columns of results are"
        )
        return f"(a) `headrace run {self.pipeline} --allow-new-aggregates`: {begins}. (b) {self._replay}"

    @property
    def _replay(self) -> str:
        if self.output:
            return (
                f"`headrace backfill {self.pipeline}.{self.output} --promote`: a branch computes this output again, of "
                "all that was read, with what is computed of it; main adopts it once its audit succeeds, and until "
                "then readers see what they see now"
            )
        return (
            f"`headrace backfill {self.pipeline} --promote`: a branch computes the full history again"
            f"{'' if self.are_rows else ', of all aggregations'}, and becomes main and published once its audit "
            "succeeds; until then readers see what they see now"
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
        place = (
            "there is no snapshot yet" if self.snapshot is None else f"snapshot {self.snapshot} (epoch {self.epoch})"
        )
        what = f"output {self.output} of {self.pipeline}" if self.output else self.pipeline
        lacks = ", which lacks it" if self.action is Action.BEGIN and self.snapshot is not None else ""
        yield f"{what} as it is written now, against {place}{lacks}"
        for change in self.changes:
            yield f"  {f'{change.place}: ' if change.place else ''}{change}"
        for stage in self.stages:
            reasons = f" ({'; '.join(stage.reasons)})" if stage.reasons else ""
            yield f"{_stage_label(stage.number, stage.of_rows)}: {stage.action}{reasons}"
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


def plan_definition_change(pipeline: Pipeline, manifest: Manifest | None) -> Plan:
    """What a run of ``pipeline`` would do with the state of the snapshot of ``manifest``."""
    if manifest is None:
        return Plan(pipeline.name, None, None, Action.BEGIN, _all_stages(pipeline, Action.BEGIN))
    make_plan = partial(
        Plan, pipeline.name, manifest.snapshot_id, manifest.epoch, code=changed_code(pipeline, manifest.code)
    )
    if manifest.fingerprint == fingerprint(pipeline):
        return make_plan(Action.KEEP, _all_stages(pipeline, Action.KEEP))
    if not manifest.definition:
        unknown = Change("the definition", _UNKNOWN_PART)
        return make_plan(Action.REPLAY, _stage_plans(pipeline, [unknown]), [unknown])
    renamed_definition = with_declared_names(pipeline, manifest.definition)
    changes = definition_changes(pipeline, renamed_definition)
    stages = _stage_plans(pipeline, changes)
    action = max((*(part.action for part in changes), *(part.action for part in stages)), key=[*Action].index)
    return make_plan(action, stages, changes, columns=() if action is Action.REPLAY else renamed_definition.stages)


def plans_of_outputs(pipeline: Pipeline, manifest: Manifest | None) -> dict[str, Plan]:
    """The plan of each output with a name; also of one that is new, or has a new name."""
    renamed_manifest = None if manifest is None else under_new_names(pipeline, manifest)
    had = () if renamed_manifest is None else outputs_of(renamed_manifest)
    plans = {}
    for name, output_pipeline in pipeline.by_output.items():
        output_plan = plan_definition_change(
            output_pipeline, seen_by(renamed_manifest, name) if renamed_manifest is not None and name in had else None
        )
        if manifest is not None and name not in had:
            output_plan = replace(output_plan, snapshot=manifest.snapshot_id, epoch=manifest.epoch)
        plans[name] = replace(output_plan, output=name)
    return plans


def under_new_names(pipeline: Pipeline, manifest: Manifest) -> Manifest:
    """``manifest`` with its outputs called what ``pipeline`` calls them now. ``formerly`` is the name that an output
    has there, or one that it had earlier. Raises FormerNameError.
    """
    had = output_names(manifest)
    formerly = {name: output.formerly for name, output in pipeline.outputs.items() if name not in had}
    old_names = {name: old for name, old in formerly.items() if old is not None and old in had}
    left = [name for name in had if name not in pipeline.outputs and name not in old_names.values()]
    for name, old in formerly.items():
        if old is None or name in old_names or not left:
            continue
        if (now := called_now(manifest, old)) not in left:
            raise FormerNameError(_unknown_name(pipeline, manifest, name, left))
        old_names[name] = now
        left.remove(now)
    return with_names(manifest, old_names)


def _unknown_name(pipeline: Pipeline, manifest: Manifest, name: str, others: Sequence[str]) -> str:
    former, other_names = pipeline.outputs[name].formerly, [other or "the output without a name" for other in others]
    return (
        f"output {name} of {pipeline.name} was called {former!r} formerly, as its definition says. Snapshot "
        f"{manifest.snapshot_id} (epoch {manifest.epoch}) has none of that name, nor one that was called so. It has "
        f"{', '.join(other_names)}, which the definition has not. Say formerly={others[0]!r} for {name} if that is "
        f"what it is called there; or leave formerly out, and {name} begins with nothing"
    )


def _all_stages(pipeline: Pipeline, action: Action) -> list[StagePlan]:
    return [StagePlan(number, action, (), stage.gives_rows) for number, stage in enumerate(pipeline.stages, start=1)]


def _stage_plans(pipeline: Pipeline, changes: Sequence[Change]) -> list[StagePlan]:
    """The plan of each aggregation: REPLAY if it cannot take over its state, or if its input means something else. One
    that looks at all columns of its input cannot take over its state if any of them changes.
    """
    read = [change for change in changes if change.stage is None]
    plans: list[StagePlan] = []
    for number, stage in enumerate(pipeline.stages, start=1):
        own = [change for change in changes if change.stage == number]
        action = max((change.action for change in own), key=[*Action].index, default=Action.KEEP)
        reasons = [str(change) for change in own]
        replays = [f"it reads what has changed: {change}" for change in read if change.action is Action.REPLAY]
        replays += [
            f"it reads panes of aggregation {earlier_plan.number}"
            for earlier_plan in plans
            if earlier_plan.action is Action.REPLAY
        ]
        columns = read if number == 1 else [change for change in changes if change.stage == number - 1]
        if not replays and columns and _looks_at_all(stage):
            replays = [f"it looks at all columns of what it reads: {change}" for change in columns]
        plans.append(StagePlan(number, Action.REPLAY if replays else action, [*reasons, *replays], stage.gives_rows))
    return plans


def _looks_at_all(stage: Stage) -> bool:
    """Whether the aggregation depends on all columns of what it reads, not only on those that it names."""
    from headrace.kernel.stage import CompiledStage  # which those do without who read results alone

    compiled_stage = CompiledStage(stage)
    return stage.aggregation.transform is not None or compiled_stage.reads_records or compiled_stage.reads_size


def columns_after(pipeline: Pipeline, manifest: Manifest | None, epoch: int | None = None) -> ViewColumns:
    """The columns of views once ``pipeline`` continues from the snapshot of ``manifest``, which it can. Files have
    those of before up to ``epoch``, None: that of the snapshot.
    """
    own = ViewColumns.from_pipeline(pipeline)
    if manifest is None:
        return own
    earlier = ViewColumns.from_json(manifest.schema)
    if manifest.fingerprint == fingerprint(pipeline):
        return own.going_on(earlier)
    return own.continue_from(
        earlier, manifest.epoch if epoch is None else epoch, plan_definition_change(pipeline, manifest).columns
    )
