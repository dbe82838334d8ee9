"""Layers of the tables of state merged beside the epochs, a part of the keys at a time: which layers become one, what a
task does for it, and what the tables are with the layer that came of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.distribute.tasks.background.thread import Stop
from headrace.distribute.tasks.tables import files_of, open_layers, put_pieces
from headrace.distribute.tasks.task_environment import TaskEnvironment
from headrace.distribute.tasks.task_results import Failure, Files, Merged, Message, TaskResult, collect_failure
from headrace.model.time import Instant
from headrace.state.ids import RememberedIds
from headrace.state.merge import merge_ids, merge_layers, merge_rows
from headrace_snapshots.format.files import Layer
from headrace_snapshots.format.layers import plan_merge
from headrace_snapshots.format.table_names import IDS

Tables = Mapping[str, tuple[Layer, ...]]


@dataclass(frozen=True)
class LayerMerge:
    """Neighbouring ``layers`` of a table, oldest first. ``is_lowest``: nothing lies below them."""

    layers: tuple[Layer, ...]
    is_lowest: bool

    @property
    def epochs(self) -> tuple[int, int]:
        """Whose rows they hold."""
        return self.layers[0].first_epoch, self.layers[-1].last_epoch

    def merged(self, files: Files) -> list[Layer]:
        """The layer that they become, none if nothing of them is left."""
        ends = [layer.expires for layer in self.layers]
        expires = None if None in ends else max(end for end in ends if end is not None)
        return [Layer.of(files, *self.epochs, expires)] if files else []

    def replaced(self, layers: Sequence[Layer], files: Files) -> tuple[Layer, ...]:
        """``layers`` with what they became in their place; the oldest of them may be gone meanwhile."""
        first, last = self.epochs
        merged = [layer for layer in layers if first <= layer.first_epoch and layer.last_epoch <= last]
        if not merged:
            return tuple(layers)
        at = layers.index(merged[0])
        return (*layers[:at], *self.merged(files), *layers[at + len(merged) :])


@dataclass(frozen=True)
class MergePlan:
    """Tables to merge into files below ``prefix``, in so many ``parts``. ``watermark``: that of the first stage, or of
    one behind it that takes what a loop makes of records.
    """

    prefix: str
    parts: int
    watermark: Instant
    tables: Mapping[str, LayerMerge]

    def replaced(self, tables: Tables, results: Sequence[Merged]) -> dict[str, tuple[Layer, ...]]:
        """``tables`` with the ``results`` of the parts in place of their layers."""
        files = {name: tuple(file for part in results for file in part.files[name]) for name in self.tables}
        changed = {name: merging.replaced(tables[name], files[name]) for name, merging in self.tables.items()}
        return {**tables, **changed}


def mergings(tables: Tables) -> dict[str, LayerMerge]:
    """What is to be merged of ``tables`` (``format.layers``)."""
    planned = {name: plan_merge([layer.rows for layer in layers]) for name, layers in tables.items()}
    return {name: LayerMerge(tables[name][at:], at == 0) for name, at in planned.items() if at is not None}


def merge_task(work: TaskEnvironment, plan: MergePlan, part: int, stop: Stop | None = None) -> Message:
    """What becomes of a part of the keys. Raises CancelledError once ``stop`` is set."""
    before, merged = work.requests(), None
    failures: list[Failure] = []
    with collect_failure(failures):
        merged = _merge(work, plan, part, stop or Stop())
    return Message(part, TaskResult(merged, error=next(iter(failures), None), requests=work.requests_since(before)))


def _merge(work: TaskEnvironment, plan: MergePlan, part: int, stop: Stop) -> Merged:
    return Merged({name: _table(work, plan, part, name, stop) for name in stop.checked(plan.tables)})


def _table(work: TaskEnvironment, plan: MergePlan, part: int, name: str, stop: Stop) -> Files:
    merging = plan.tables[name]
    if name == IDS:
        remembered = RememberedIds.of(work.pipeline, plan.watermark)
        layers = open_layers(work, merging.layers, remembered.schema, part, plan.parts)
        pieces = merge_ids(remembered.schema, layers, remembered.counts)
    elif (loop := work.chain_of(name).loop) is not None and name == work.chain_of(name).names.edges:
        layers = open_layers(work, merging.layers, loop.edge_schema, part, plan.parts)
        pieces = merge_rows(layers, partial(loop.distinct_edges, watermark=plan.watermark))
    else:
        stage = work.chain_of(name).stage_of(name)
        layers = open_layers(work, merging.layers, stage.state_schema, part, plan.parts)
        pieces = merge_layers(stage, layers, is_lowest=merging.is_lowest)
    return files_of(put_pieces(work, plan.prefix, f"{name}-merged", part, stop.checked(pieces)))
