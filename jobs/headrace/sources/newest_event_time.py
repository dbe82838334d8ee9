"""The newest event time of all records that were read, whatever became of them: filtered, rejected, duplicates, dropped
by a user's own code. A backfill of a range begins before anything as new as the range was read.
"""

from headrace.model.time import MAX_INSTANT, Instant
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.progress import EpochClocks

NOT_SAID = MAX_INSTANT
"""In the place of the newest event time where a manifest does not have it: those of before it was recorded."""


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
