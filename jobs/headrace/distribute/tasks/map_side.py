"""The map side: a share of an epoch's input is read and judged, then aggregated by key or sent to tell duplicates.

What is aggregated is for the keys of the first stage; what is sent goes to the tasks that tell duplicates.

Records of an input that goes through a user's own Spark code are only read here (``read_rows``), but for those that do
not parse. What that code makes of the others comes back (``map_rows``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.distribute.epoch import DivergedError, RecomputedEpoch
from headrace.distribute.records import FileRecords, Records, input_named, read_one, read_records
from headrace.distribute.tasks import exchange
from headrace.distribute.tasks.plan import EpochTask, address_bundles, parts_at
from headrace.distribute.tasks.task_results import BundleOutput, Failure, ShareOutput, isolate_failure
from headrace.distribute.views import dead_letters_of_none, late_rows, late_sides, rejected_rows
from headrace.distribute.watermark_inputs import InputObservations, ObservationContext, observe_records
from headrace.formats.file_format import DividedFileError, ScannedRecords
from headrace.kernel.columns import arrow_type, as_numpy
from headrace.kernel.delta import Columns, Disposition, KeyHashes, aggregate_rows, fates_of, takes_part
from headrace.kernel.rows import select_rows
from headrace.model.expressions.data_types import ColumnType, DataType, Schema
from headrace.sources.changelogs import with_signs
from headrace.sources.progress import later_of
from headrace.sources.validation import judge_records
from headrace_snapshots.format.manifest import REJECTED, UNNAMED

if TYPE_CHECKING:
    from headrace.kernel.joins.sides import CompiledJoins

Bundles = Mapping[int, pa.RecordBatch]
T = TypeVar("T")


def map_share(task: EpochTask) -> tuple[ShareOutput, Bundles]:
    """What a share gives, and rows for each part of the level below: of the ids where duplicates are told, else of the
    keys. Raises UnreadableFileError where a source says FAIL.
    """
    plan, work = task.plan, task.work
    pieces = plan.shares[task.number]
    share = read_records(
        work.pipeline, work.firsts, work.landing, pieces, plan.processing_time, parked_chains=plan.parked_chains
    )
    records = share.records
    if records is None:
        return ShareOutput(InputObservations(newest_read=share.handed_on)), {}
    output, bundles = _map_records(
        task, records, lambda: exchange.record_places(records, task.number, has_items=work.has_items)
    )
    newest = later_of(output.observations.newest_read, share.handed_on)
    return replace(output, observations=replace(output.observations, newest_read=newest)), bundles


def read_rows(task: EpochTask, name: str) -> Iterator[pa.RecordBatch]:
    """The records of input ``name`` in a share, for a user's own Spark code: those that parse, with their ``PLACE``."""
    work = task.work
    input_ = input_named(work.pipeline, name)
    for number, piece in enumerate(task.plan.shares[task.number]):
        if piece.input != name:
            continue
        try:
            records = read_one(work.pipeline, work.landing, input_, piece).records
        except DividedFileError:  # which the map side says (``map_share``)
            records = None
        if records is None:
            continue
        position = pa.array(records.position)
        place = [
            pa.repeat(pa.scalar(number_in_epoch, pa.int64()), len(position))
            for number_in_epoch in (task.number, number)
        ]
        rows = pa.RecordBatch.from_pydict(
            {**dict(zip(exchange.PLACE, (*place, position), strict=True)), **records.columns}
        )
        yield rows.filter(records.unparsed.is_null())


def map_rows(task: EpochTask, name: str, batches: Iterable[pa.RecordBatch]) -> tuple[ShareOutput, Bundles]:
    """What ``batches`` give, which a user's own code made of records of input ``name``."""
    plan, work = task.plan, task.work
    input_ = input_named(work.pipeline, name)
    rows = exchange.in_arrival_order(pa.concat_batches(list(batches)))
    parsed_columns = cast_columns(rows, input_.source.columns)
    place = {column: rows.column(column) for column in exchange.PLACE}
    place[exchange.ITEM] = pa.array(np.arange(rows.num_rows))
    scanned_records = ScannedRecords(
        parsed_columns, pa.nulls(rows.num_rows, pa.string()), as_numpy(rows.column(exchange.PLACE[-1])), _no_raw
    )
    scanned_records = with_signs(input_.source, scanned_records)
    records = judge_records(
        work.pipeline, work.firsts, input_, scanned_records, plan.processing_time, parked_chains=plan.parked_chains
    )
    return _map_records(task, exchange.ShippedRecords(task, records, place), lambda: place)


def _no_raw(rows: object) -> pa.Array:
    raise NotImplementedError("what a user's code made has no text of its own")


def cast_columns(rows: pa.RecordBatch, schema: Schema) -> dict[str, pa.Array]:
    """Columns of Spark's as those of ``schema``, in which all values of what is nested are as they should be."""
    return {name: _cast_column(rows.column(name), kind) for name, kind in schema.items()}


def _cast_column(values: pa.Array, kind: ColumnType) -> pa.Array:
    if isinstance(kind, DataType):
        return values.cast(arrow_type(kind))
    from headrace.formats.parquet import values_as  # a format that few runs need

    return values_as(values, kind)[0]


def _map_records(
    task: EpochTask, records: FileRecords | exchange.ShippedRecords, place: Callable[[], Columns]
) -> tuple[ShareOutput, Bundles]:
    plan, work = task.plan, task.work
    context = ObservationContext(plan.clocks, plan.processing_time, work.percentiles, plan.newest)
    observations = observe_records(work.pipeline, records, context)
    if plan.recomputed_epoch is None:
        nobody = None if work.pipeline.has_names else UNNAMED.output
        by_none = records.is_rejected
        rejected_files = task.store_rows(REJECTED, rejected_rows(records, plan.epoch, output=nobody))
    else:
        # dead letters of all were stored when the epoch was recorded
        by_none, rejected_files = _taken_by_none(task, plan.recomputed_epoch, place(), records.is_rejected), ()
        divergences = _divergence_errors(task, plan.recomputed_epoch, records.chains, by_none)
        records = replace(records, judged=records.judged.with_errors(divergences))
    if work.tells_ids:
        counts = takes_part(records.columns)
        aside, errors = for_each_reader(task, records, partial(_without_ids, rows=~counts))
        rows = exchange.travelling_batch(
            records.judged, place(), counts, skipped_chains={*plan.parked_numbers, *errors}
        )
        chains = _with_dead_letters(task, records, aside, by_none)
        return ShareOutput(observations, chains, rejected_files, errors), exchange.by_id(rows, plan.id_parts)
    chains, errors, bundles = into_chains(task, records, place if work.reads_in_turns else None)
    return ShareOutput(
        observations, _with_dead_letters(task, records, chains, by_none), rejected_files, errors
    ), bundles


def _taken_by_none(
    task: EpochTask, recomputed_epoch: RecomputedEpoch, place: Columns, is_rejected: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which records no output could take when the epoch was recorded. Where one record made several, exactly as many as
    were dead letters must be ``is_rejected`` now. Otherwise nobody can tell which they were, and all are taken for it.
    """
    letters = dead_letters_of_none(task.work.store, recomputed_epoch.letters)
    share, file, position = (as_numpy(place[name]) for name in exchange.PLACE)
    by_none = np.zeros(len(position), np.bool_)
    for share_number, number in {*zip(share.tolist(), file.tolist(), strict=True)} if letters else ():
        piece = task.plan.shares[share_number][number]
        positions = letters.get((piece.input, piece.file.path), [])
        rows = (share == share_number) & (file == number)
        if None not in positions:
            letters_of_piece = np.array(positions, np.int64)
            expected = np.count_nonzero(np.isin(letters_of_piece, position[rows]))
            rows &= np.isin(position, letters_of_piece)
            if np.count_nonzero(rows) != expected == np.count_nonzero(rows & is_rejected):
                rows &= is_rejected
        by_none |= rows
    return by_none


def _divergence_errors(
    task: EpochTask, recomputed_epoch: RecomputedEpoch, chains: Sequence[Columns], by_none: NDArray[np.bool_]
) -> dict[int, DivergedError]:
    """An error for each of the ``chains`` that now takes records which no output took when the epoch was recorded. They
    are dead letters of all outputs, which may have landed again.
    """
    name = task.work.pipeline.name
    error = DivergedError(
        f"records of epoch {task.plan.epoch} would count now that no output took when it was recorded. Then they "
        "were dead letters of all outputs. Dead letters may land again, and these records would count twice. Run "
        f"`headrace backfill {name} --promote`, which computes all outputs again"
    )
    asked_tasks = (own for own in task.for_each_reader() if own.chain.names.output in recomputed_epoch.asked_outputs)
    return {own.of_chain: error for own in asked_tasks if (by_none & takes_part(chains[own.of_chain])).any()}


def _with_dead_letters(
    task: EpochTask,
    records: Records,
    chains: Mapping[int, BundleOutput],
    by_none: NDArray[np.bool_],
) -> dict[int, BundleOutput]:
    """What became of ``records`` in each chain, with those that it cannot take, but for what is taken ``by_none``."""
    if not task.work.pipeline.has_names:
        return {**chains}
    outputs = {}
    for number, output in chains.items():
        name = task.work.chains[number].names.output
        dead = rejected_rows(records, task.plan.epoch, output=name, judged_rows=records.chains[number], by_none=by_none)
        outputs[number] = replace(output, rejected=task.store_rows(REJECTED, dead))
    return outputs


def for_each_reader(
    task: EpochTask, records: Records, run: Callable[[EpochTask, Columns], T]
) -> tuple[dict[int, T], dict[int, Failure]]:
    """What ``run`` gives for each chain that takes ``records``, by number; the errors of those that fail alone."""
    outputs: dict[int, T] = {}
    errors = {n: Failure.from_error(error) for n, error in records.errors.items() if n not in task.plan.parked_numbers}
    for own in task.for_each_reader():
        number = own.of_chain
        if number in errors:
            continue
        with isolate_failure(errors, number, isolates=task.plan.isolates):
            outputs[number] = run(own, records.chains[number])
    return outputs, errors


def _without_ids(task: EpochTask, judged_rows: Columns, *, rows: NDArray[np.bool_]) -> BundleOutput:
    """What became of those ``rows`` in a chain whose ids count for nothing, since none takes part."""
    selected_columns = {name: values.filter(pa.array(rows)) for name, values in judged_rows.items()}
    if task.chain.joins is not None:
        return _into_sides(task, task.chain.joins, None, selected_columns)[0]
    if task.chain.is_stateless:
        return store_rows(task, selected_columns)
    return BundleOutput(
        aggregate_rows(task.chain.of_records, selected_columns, task.state.clocks[0].watermark).accounting
    )


def store_rows(task: EpochTask, judged_rows: Columns) -> BundleOutput:
    """What leaves of ``judged_rows`` as rows of the chain of the task, stored."""
    plan, watermark = task.plan, task.state.clocks[0].watermark
    leaving = select_rows(task.chain.stages[0], judged_rows, watermark, epoch=plan.epoch, task=task.number)
    files = task.store_rows(task.chain.names.panes, leaving.rows)
    return BundleOutput(leaving.accounting, rows=files, counts=leaving.counts)


def _into_sides(
    task: EpochTask, joins: "CompiledJoins", records: Records | None, judged_rows: Columns
) -> tuple[BundleOutput, Bundles]:
    """What becomes of ``records`` on their way to the sides of ``joins``, and what of them goes to which part. None:
    none of ``judged_rows`` takes part.
    """
    from headrace.kernel.joins.sides import account_of_sides  # which few pipelines need

    is_late = joins.late_mask(judged_rows, task.plan.watermark)
    late = None if records is None else late_sides(records, judged_rows, is_late, task.plan.epoch)
    is_taken = (fates_of(judged_rows) == Disposition.ACCEPTED) & ~is_late
    parts = exchange.sides_by_part(
        joins.rows_of(judged_rows, is_taken), parts_at(task.plan, task.job, 0, task.of_chain)
    )
    output = BundleOutput(account_of_sides(judged_rows, is_late), task.store_rows(task.chain.names.late, late))
    return output, address_bundles(task.plan, task.job, 0, task.of_chain, parts)


def into_chains(
    task: EpochTask, records: Records, place: Callable[[], Columns] | None
) -> tuple[dict[int, BundleOutput], dict[int, Failure], Bundles]:
    """What becomes of ``records`` in the first stage of each chain that takes them, or its error, and the bundle for
    each part there. ``place``: where they are from, unless the order of tasks is that of records.
    """

    key_hashes = KeyHashes()

    def aggregate_chain(own: EpochTask, columns: Columns) -> tuple[BundleOutput, Bundles]:
        if own.chain.joins is not None:
            return _into_sides(own, own.chain.joins, records, columns)
        first = own.chain.of_records
        if own.chain.is_stateless:
            output = store_rows(own, columns)
            late = late_rows(first, records, columns, None, task.plan.epoch)
            return replace(output, late=own.store_rows(own.chain.names.late, late)), {}
        shuffle_input = exchange.build_shuffle_input(
            first,
            columns,
            place() if place is not None and first.is_ordered else None,
            own.state.clocks[0].watermark,
            own.output_watermark(),
            share=task.number,
            number=parts_at(task.plan, task.job, 0, own.of_chain),
            key_hashes=key_hashes,
        )
        late = late_rows(first, records, columns, shuffle_input.aggregated.late, task.plan.epoch)
        output = BundleOutput(
            shuffle_input.aggregated.accounting, own.store_rows(own.chain.names.late, late, in_key_order=True)
        )
        return output, address_bundles(task.plan, task.job, 0, own.of_chain, shuffle_input.parts)

    ran, errors = for_each_reader(task, records, aggregate_chain)
    bundles = {part: rows for _, own in ran.values() for part, rows in own.items()}
    return {number: output for number, (output, _) in ran.items()}, errors, bundles
