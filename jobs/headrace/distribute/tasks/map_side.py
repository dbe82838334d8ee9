"""The map side: a share of an epoch's input read, judged, and aggregated for the keys of the first stage, or sent to
the tasks that tell duplicates.

Records of an input that goes through a user's own Spark code are only read here (``read_rows``), but for those that do
not parse; what that code makes of the others comes back (``map_rows``).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.distribute.epoch import Again, DivergedError
from headrace.distribute.records import FileRecords, input_named, read_one, read_records
from headrace.distribute.tasks import exchange
from headrace.distribute.tasks.plan import EpochTask, addressed, parts_at
from headrace.distribute.tasks.task_results import BundleOutput, Failure, ShareOutput, isolate_failure
from headrace.distribute.views import dead_letters_of_none, late_rows, rejected_rows
from headrace.distribute.watermark_inputs import InputObservations, ObservationContext, observe
from headrace.formats.file_format import DividedFileError, ScannedRecords
from headrace.kernel.columns import arrow_type, as_numpy
from headrace.kernel.delta import Columns, KeyHashes, aggregate, takes_part
from headrace.kernel.rows import select_rows
from headrace.model.expressions.data_types import Schema
from headrace.program import columns as c
from headrace.sources.changelogs import with_signs
from headrace.sources.progress import later_of
from headrace.sources.validation import judged
from headrace_snapshots.format.manifest import REJECTED, UNNAMED

Bundles = Mapping[int, pa.RecordBatch]
T = TypeVar("T")


def map_share(task: EpochTask) -> tuple[ShareOutput, Bundles]:
    """What a share gives, and rows for each part of the level below: of the ids where duplicates are told, else of the
    keys. Raises UnreadableFileError where a source says FAIL.
    """
    plan, work = task.plan, task.work
    pieces = plan.shares[task.number]
    share = read_records(work.pipeline, work.firsts, work.landing, pieces, plan.processing_time, apart=plan.apart)
    records = share.records
    if records is None:
        return ShareOutput(InputObservations(newest_read=share.handed_on)), {}
    output, bundles = _mapped(task, records, lambda: exchange.places(records, task.number, has_items=work.has_items))
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
        place = [pa.repeat(pa.scalar(at, pa.int64()), len(position)) for at in (task.number, number)]
        rows = pa.RecordBatch.from_pydict(
            {**dict(zip(exchange.PLACE, (*place, position), strict=True)), **records.columns}
        )
        yield rows.filter(records.unparsed.is_null())


def map_rows(task: EpochTask, name: str, batches: Iterable[pa.RecordBatch]) -> tuple[ShareOutput, Bundles]:
    """What ``batches`` give, which a user's own code made of records of input ``name``."""
    plan, work = task.plan, task.work
    input_ = input_named(work.pipeline, name)
    rows = exchange.in_arrival_order(pa.concat_batches(list(batches)))
    parsed_columns = typed(rows, input_.source.columns)
    place = {column: rows.column(column) for column in exchange.PLACE}
    place[exchange.ITEM] = pa.array(np.arange(rows.num_rows))
    parsed = ScannedRecords(
        parsed_columns, pa.nulls(rows.num_rows, pa.string()), as_numpy(rows.column(exchange.PLACE[-1])), _no_raw
    )
    parsed = with_signs(input_.source, parsed)
    records = judged(work.pipeline, work.firsts, input_, parsed, plan.processing_time, apart=plan.apart)
    return _mapped(task, exchange.ShippedRecords(task, records, place), lambda: place)


def _no_raw(rows: object) -> pa.Array:
    raise NotImplementedError("what a user's code made has no text of its own")


def typed(rows: pa.RecordBatch, schema: Schema) -> dict[str, pa.Array]:
    """Columns of Spark's as those of ``schema``."""
    return {name: rows.column(name).cast(arrow_type(kind)) for name, kind in schema.items()}


def _mapped(
    task: EpochTask, records: FileRecords | exchange.ShippedRecords, place: Callable[[], Columns]
) -> tuple[ShareOutput, Bundles]:
    plan, work = task.plan, task.work
    context = ObservationContext(plan.clocks, plan.processing_time, work.percentiles, plan.newest)
    observations = observe(work.pipeline, records, context)
    if plan.again is None:
        nobody = None if work.pipeline.has_names else UNNAMED.output
        by_none = records.is_rejected
        rejected = task.put(REJECTED, rejected_rows(records, plan.epoch, output=nobody))
    else:
        by_none, rejected = _taken_by_none(task, plan.again, place(), records.is_rejected), ()
        diverged = _diverged(task, plan.again, records.chains, by_none)
        records = replace(records, judged=records.judged.failing(diverged))
    if work.tells_ids:
        counts = takes_part(records.columns)
        aside, errors = for_each_reader(task, records, partial(_without_ids, rows=~counts))
        rows = exchange.travelling(records.judged, place(), counts, without={*plan.parked, *errors})
        chains = _with_dead_letters(task, records, aside, by_none)
        return ShareOutput(observations, chains, rejected, errors), exchange.by_part(rows, [c.ID], plan.id_parts)
    chains, errors, bundles = into_chains(task, records, place if work.reads_in_turns else None)
    return ShareOutput(observations, _with_dead_letters(task, records, chains, by_none), rejected, errors), bundles


def _taken_by_none(task: EpochTask, again: Again, place: Columns, is_rejected: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which records no output could take when the epoch was recorded. Of several that were made of one, these are as
    many as ``is_rejected`` now; else nobody can tell which, and it is said of all.
    """
    letters = dead_letters_of_none(task.work.store, again.letters)
    share, file, position = (as_numpy(place[name]) for name in exchange.PLACE)
    by_none = np.zeros(len(position), np.bool_)
    for at, number in {*zip(share.tolist(), file.tolist(), strict=True)} if letters else ():
        piece = task.plan.shares[at][number]
        positions = letters.get((piece.input, piece.file.path), [])
        rows = (share == at) & (file == number)
        if None not in positions:
            letters_of_piece = np.array(positions, np.int64)
            expected = np.count_nonzero(np.isin(letters_of_piece, position[rows]))
            rows &= np.isin(position, letters_of_piece)
            if np.count_nonzero(rows) != expected == np.count_nonzero(rows & is_rejected):
                rows &= is_rejected
        by_none |= rows
    return by_none


def _diverged(
    task: EpochTask, again: Again, chains: Sequence[Columns], by_none: NDArray[np.bool_]
) -> dict[int, DivergedError]:
    """An error for each of the ``chains`` that takes records now which no output took when the epoch was recorded: they
    are dead letters of all, which may have landed again.
    """
    name = task.work.pipeline.name
    error = DivergedError(
        f"records of epoch {task.plan.epoch} would count now that no output took when it was recorded: they are dead "
        "letters of all, which have landed again or may yet, and would count twice. Run `headrace backfill "
        f"{name} --promote`, which computes all outputs again"
    )
    asked = (own for own in task.for_each_reader() if own.chain.names.output in again.asked)
    return {own.of_chain: error for own in asked if (by_none & takes_part(chains[own.of_chain])).any()}


def _with_dead_letters(
    task: EpochTask,
    records: FileRecords | exchange.ShippedRecords,
    chains: Mapping[int, BundleOutput],
    by_none: NDArray[np.bool_],
) -> dict[int, BundleOutput]:
    """What became of ``records`` in each chain, with those that it cannot take, but for what is taken ``by_none``."""
    if not task.work.pipeline.has_names:
        return {**chains}
    outputs = {}
    for number, output in chains.items():
        name = task.work.chains[number].names.output
        dead = rejected_rows(records, task.plan.epoch, output=name, judged=records.chains[number], by_none=by_none)
        outputs[number] = replace(output, rejected=task.put(REJECTED, dead))
    return outputs


def for_each_reader(
    task: EpochTask, records: FileRecords | exchange.ShippedRecords, run: Callable[[EpochTask, Columns], T]
) -> tuple[dict[int, T], dict[int, Failure]]:
    """What ``run`` gives of ``records`` for each chain that takes them, by its number; and the errors of those that
    fail alone.
    """
    outputs: dict[int, T] = {}
    errors = {n: Failure.of(error) for n, error in records.errors.items() if n not in task.plan.parked}
    for own in task.for_each_reader():
        number = own.of_chain
        if number in errors:
            continue
        with isolate_failure(errors, number, isolates=task.plan.isolates):
            outputs[number] = run(own, records.chains[number])
    return outputs, errors


def _without_ids(task: EpochTask, judged: Columns, *, rows: NDArray[np.bool_]) -> BundleOutput:
    """What became of those ``rows`` in a chain whose ids count for nothing, since none takes part."""
    apart = {name: values.filter(pa.array(rows)) for name, values in judged.items()}
    if task.chain.is_stateless:
        return store_rows(task, apart)
    return BundleOutput(aggregate(task.chain.of_records, apart, task.state.clocks[0].watermark).accounting)


def store_rows(task: EpochTask, judged: Columns) -> BundleOutput:
    """What leaves of ``judged`` elements as rows of the chain of the task, stored."""
    plan, watermark = task.plan, task.state.clocks[0].watermark
    leaving = select_rows(task.chain.stages[0], judged, watermark, epoch=plan.epoch, task=task.number)
    files = task.put(task.chain.names.panes, leaving.rows)
    return BundleOutput(leaving.accounting, rows=files, counts=leaving.counts)


def into_chains(
    task: EpochTask, records: FileRecords | exchange.ShippedRecords, place: Callable[[], Columns] | None
) -> tuple[dict[int, BundleOutput], dict[int, Failure], Bundles]:
    """What becomes of ``records`` in the first stage of each chain that takes them, or its error, and what of them goes
    to which part there. ``place``: where they are from, unless the order of tasks is that of records.
    """

    hashed = KeyHashes()

    def into(own: EpochTask, columns: Columns) -> tuple[BundleOutput, Bundles]:
        first = own.chain.of_records
        if own.chain.is_stateless:
            output = store_rows(own, columns)
            late = late_rows(first, records, columns, None, task.plan.epoch)
            return replace(output, late=own.put(own.chain.names.late, late)), {}
        shuffled = exchange.bundle(
            first,
            columns,
            place() if place is not None and first.is_ordered else None,
            own.state.clocks[0].watermark,
            own.output_watermark(),
            share=task.number,
            number=parts_at(task.plan, task.job, 0, own.of_chain),
            hashed=hashed,
        )
        late = late_rows(first, records, columns, shuffled.aggregated.late, task.plan.epoch)
        output = BundleOutput(shuffled.aggregated.accounting, own.put(own.chain.names.late, late, keyed=True))
        return output, addressed(task.plan, task.job, 0, own.of_chain, shuffled.parts)

    ran, errors = for_each_reader(task, records, into)
    bundles = {part: rows for _, own in ran.values() for part, rows in own.items()}
    return {number: output for number, (output, _) in ran.items()}, errors, bundles
