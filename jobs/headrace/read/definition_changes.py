"""Definitions that have changed since a snapshot was made: which parts of them, and what each means for state."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from headrace.pipeline.aggregation import Stage
from headrace.pipeline.identity.fingerprint import definition, fingerprint, parts
from headrace.pipeline.identity.renaming import Renamed, renamed, upstream_before
from headrace.pipeline.pipeline import Pipeline
from headrace_snapshots.format.manifest import Manifest


class Action(StrEnum):
    """What becomes of state: it does not exist yet; it stays; its columns change with the first epoch; all input has to
    be read again to make it.
    """

    BEGIN = "begin"
    KEEP = "keep"
    MIGRATE = "migrate"
    REPLAY = "replay"


_PARTS = {
    "path": "path",
    "schema": "schema",
    "dialect": "dialect of CSV",
    "transform": "Spark code",
    "changelog": "changelog",
    "event_time": "event time, watermark or splits",
    "columns": "columns for the pipeline",
    "key": "key",
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
    read before, or a column of results, which rows that stand do not have.
    """

    part: str
    change: str
    stage: int | None = None
    action: Action = Action.REPLAY
    starts_empty: bool = False

    def __str__(self) -> str:
        return f"{self.part} {self.change}"

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"part": self.part, "change": self.change, "stage": self.stage, "action": self.action.value}


def changed_since(pipeline: Pipeline, manifest: Manifest) -> str | None:
    """A warning if ``pipeline`` has another definition now than when the snapshot was made; else None."""
    if manifest.fingerprint == fingerprint(pipeline):
        return None
    return (
        f"pipeline {pipeline.name} has changed since snapshot {manifest.snapshot_id} (epoch {manifest.epoch}): the "
        "snapshot still has the columns, and their meaning, of the definition that made it"
    )


def changes(pipeline: Pipeline, before: Renamed) -> list[Change]:
    """The parts of ``pipeline`` that are not those of the definition ``before`` it, which is another: at least one.

    What is not known to leave state right is REPLAY.
    """
    now = definition(pipeline)
    changed = [*_upstream(pipeline, before.definition), *_renames(pipeline, before)]
    changed += _differences(pipeline, before.definition, now)
    return changed or [Change("the definition", "has changed")]


def _upstream(pipeline: Pipeline, before: Mapping[str, Any]) -> Iterator[Change]:
    """What has changed of the outputs that its only output reads: their panes mean something else, or they have only
    come by columns, or lost some.
    """
    now = definition(pipeline)
    of = [[above["output"] for above in side.get("of", ())] for side in (before, now)]
    if of[0] != of[1]:
        yield Change("of (the outputs that it reads)", "has changed")
        return
    for above, *sides in zip(pipeline.upstream, before.get("of", ()), now.get("of", ()), strict=True):
        if sides[0].get("columns") != sides[1].get("columns"):
            yield Change(f"columns of output {above.output!r}", "has changed")
        then = upstream_before(before, above.output)
        if then is None or sides[0] == sides[1]:
            continue
        changed = changes(above.pipeline, renamed(above.pipeline, then))
        action = max((change.action for change in changed), key=[*Action].index)
        action = Action.REPLAY if action is Action.REPLAY else Action.KEEP
        yield Change(f"output {above.output!r}", f"has changed: {named(changed)}", action=action)


def named(changed: Sequence[Change]) -> str:
    """Changes one after another, in words."""
    return "; ".join(
        f"{change}{'' if change.stage is None else f' (aggregation {change.stage})'}" for change in changed
    )


def _renames(pipeline: Pipeline, before: Renamed) -> Iterator[Change]:
    for number, (stage, then) in enumerate(zip(pipeline.stages, before.stages, strict=False), start=1):
        for name, old in {**then.keys, **then.values}.items():
            if name != old:
                made = stage.aggregation
                kind = "key" if name in made.key else "aggregate" if name in made.aggregates else "column"
                yield Change(f"{kind} {name!r}", f"was {old!r}", number, Action.MIGRATE)


def _differences(pipeline: Pipeline, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Change]:
    then, own = parts(before), parts(now)
    names = [*then, *(name for name in own if name not in then)]
    different = [name for name in names if then.get(name) != own.get(name)]
    for name in different:
        number = name.split("/")[1] if name.startswith("stages/") else None
        key = f"stages/{number}/where"  # which every aggregation has
        if number is not None and (key in then) != (key in own):
            if name == key:
                yield Change("the aggregation", "is new" if key in own else "is gone", int(number))
            continue
        other = _other_kind(name)
        if other is not None and other in (then if name in own else own):
            if name in own:
                yield _change(pipeline, name, f"was {_KINDS[other.split('/')[2]]}")
            continue
        if not any(other.startswith(f"{name}/") for other in different):  # the list of what is named by itself
            change = "has changed" if name in then and name in own else "is new" if name in own else "is gone"
            if (columns := _columns(name, before, now)) is None:
                yield _change(pipeline, name, change)
            else:
                yield from columns


_KINDS = {"what": "an aggregate", "results": "a column of results"}


def _other_kind(name: str) -> str | None:
    """The part that has the name of that aggregate as a column of results, or the other way round."""
    match name.split("/", 3):
        case ["stages", number, ("what" | "results") as kind, column]:
            return f"stages/{number}/{'results' if kind == 'what' else 'what'}/{column}"
    return None


def _columns(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change] | None:
    """The columns of an input's schema that have come or gone, which leaves state as it is; None if that is not all."""
    match name.split("/"):
        case ["inputs", of, "schema"]:
            old, new = (_input(side, of) for side in (before, now))
            columns, others = dict(old["schema"]), dict(new["schema"])
            if "transform" in new or any(others.get(name, kind) != kind for name, kind in columns.items()):
                return None
            gone = [(name, "is gone") for name in columns if name not in others]
            come = [(name, "is new") for name in others if name not in columns]
            return [Change(f"column {name!r} of input {of!r}", how, action=Action.KEEP) for name, how in gone + come]
    return None


def _input(stored: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    (described,) = [given for given in stored["inputs"] if given["name"] == name]
    return dict(described)


def _change(pipeline: Pipeline, name: str, change: str) -> Change:
    match name.split("/", 3):
        case ["inputs"]:
            return Change("the order of the inputs", change)
        case ["inputs", of, *rest]:
            part = "/".join(rest)
            return Change(f"{_PARTS.get(part, part)} of input {of!r}", change)
        case ["stages", number, *rest]:
            return _stage_change(pipeline.stages[int(number) - 1], rest, change, int(number))
    return Change({"deduplicate": "deduplication"}.get(name, f"the {name}"), change)


def _stage_change(stage: Stage, part: Sequence[str], change: str, number: int) -> Change:
    match part:
        case ["what"]:
            action = Action.REPLAY if _keeps_elements(stage) else Action.MIGRATE
            return Change("the order of the aggregates", change, number, action)
        case ["what", aggregate]:
            return _aggregate(stage, aggregate, change, number)
        case ["results"]:
            return Change("the order of the columns of results", change, number, Action.MIGRATE)
        case ["results", column]:
            return _column_of_results(column, change, number)
        case ["having"]:
            return Change("having", f"{change}, and rows stand, or are withheld, by what it was", number)
    action = Action.KEEP if part[0] == "rounds" else Action.REPLAY  # a loop comes to the same in any rounds
    return Change(_PARTS.get(part[0], part[0]), change, number, action)


def _aggregate(stage: Stage, name: str, change: str, number: int) -> Change:
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


def _keeps_elements(stage: Stage) -> bool:
    """Whether its state is the last elements themselves, as far as its aggregates read them."""
    return stage.aggregation.how.keep_last is not None
