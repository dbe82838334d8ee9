"""The newest event time of all records that were read, whatever became of them: filtered, rejected, duplicates, dropped
by a user's own code. A backfill of a range begins before anything as new as the range was read.

Records too far ahead of the clock are left out (semantics 12.14): one that is wrong would count for ever.
"""

import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.file_format import ScannedRecords
from headrace.kernel.columns import TIMESTAMP
from headrace.kernel.expressions.evaluation import column_apart
from headrace.model.expressions.typing import columns_of
from headrace.model.time import MAX_INSTANT, Instant
from headrace.pipeline.endpoints import Input
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.progress import EpochClocks
from headrace.sources.validation import LATEST

NOT_SAID = MAX_INSTANT
"""In the place of the newest event time where a manifest does not have it: those of before it was recorded."""


def newest_of(given: Input, times: pa.Array, processing_time: Instant) -> Instant | None:
    """The newest of the event ``times`` of records of an input; None if there is none."""
    latest = min(int(given.event_time.latest(processing_time)), LATEST)
    newest = pc.max(times.filter(pc.less_equal(times, latest).fill_null(False))).as_py()
    return None if newest is None else Instant(newest)


def newest_handed_on(given: Input, records: ScannedRecords, processing_time: Instant) -> Instant | None:
    """The newest event time of ``records`` before a user's own code, which may drop some, gets them. It is read from
    columns with the names of those that the code makes; event times of other columns are the latest possible.
    """
    event_time, source = given.event_time, given.source
    parses = records.unparsed.is_null()
    if not pc.any(parses).as_py():
        return None
    if event_time.expr is None:
        return processing_time
    if any(source.types.get(name) != source.columns[name] for name in columns_of(event_time.expr)):
        return event_time.latest(processing_time)
    times, _ = column_apart(event_time.expr, records.columns, source.types, len(records))
    times = times.cast(TIMESTAMP).cast(pa.int64())
    return newest_of(given, times.filter(parses), processing_time)


def newest_read(pipeline: Pipeline, clocks: EpochClocks) -> Instant | None:
    """No record that was read up to there is newer; None if none was read.

    Manifests of before this was recorded know it of the records in windows. If others may have been dropped unseen, it
    is as late as it may be.
    """
    if clocks.newest_read != NOT_SAID:
        return clocks.newest_read
    if not _drops(pipeline):
        return clocks.newest
    return max(given.event_time.latest(clocks.processing_time) for given in pipeline.inputs)


def _drops(pipeline: Pipeline) -> bool:
    is_filtered = any(alone.filter is not None for alone in pipeline.of_records.values())
    return is_filtered or any(given.source.transform is not None for given in pipeline.inputs)
