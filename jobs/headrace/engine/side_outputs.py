"""What an epoch drops, as rows that can be read: late records, and dead letters."""

from pyspark.sql import functions as f

from headrace.engine.delta import Fate, assigned
from headrace.engine.elements import judged_as_text
from headrace.engine.plan import Plan
from headrace.engine.source_records import POSITION, RAW
from headrace.engine.types import DataFrame
from headrace.engine.windowing import FIRST
from headrace.model.time import Instant
from headrace.program import columns as c


def late_rows(plan: Plan, judged: DataFrame, watermark: Instant, epoch: int) -> DataFrame:
    """Dropped (record, window) pairs: keys, event time, window, the reason, input, file, the raw record and the epoch.

    ``watermark`` is that under which the epoch was judged. The window of a record that is too late to be told from a
    duplicate is NULL.
    """
    rows = assigned(plan, judged, watermark)
    in_time = f.col("_fate") == int(Fate.LATE)
    forgotten = (f.col("_fate") == int(Fate.FORGOTTEN)) & (f.col(FIRST) == 1)
    rows = rows.where(in_time | forgotten)
    return rows.select(
        *plan.keys,
        f.timestamp_micros(c.EVENT_TIME).alias("event_time"),
        f.when(in_time, f.timestamp_micros(c.WINDOW_START)).alias("window_start"),
        f.when(in_time, f.timestamp_micros(c.WINDOW_END)).alias("window_end"),
        f.when(in_time, "window expired").otherwise("id beyond its horizon").alias("reason"),
        f.col(c.INPUT).alias("input"),
        f.col(c.FILE).alias("file"),
        f.col(RAW).alias("raw"),
        f.lit(epoch).cast("long").alias("epoch"),
    )


def rejected_panes(plan: Plan, panes: DataFrame, above: int, epoch: int) -> DataFrame:
    """The dead letters among ``panes`` that come to the aggregation of ``plan``, as ``rejected_rows`` gives them.

    Their input is the aggregation that emitted them, the number ``above`` of the pipeline; they have no file.
    """
    records = judged_as_text(plan, panes).select(
        "*",
        f.lit(f"aggregation {above}").alias(c.INPUT),
        f.lit(None).cast("string").alias(c.FILE),
        f.lit(None).cast("long").alias(POSITION),
    )
    return rejected_rows(records, epoch)


def rejected_rows(records: DataFrame, epoch: int) -> DataFrame:
    """The dead letters among judged ``records``: ``input``, ``file``, ``position``, ``reason``, ``raw``, ``raw_bytes``,
    ``epoch``.

    ``position`` and ``raw`` are NULL for a file that cannot be read at all. ``raw_bytes`` are those of a record that is
    no text; ``raw`` has U+FFFD in place of some then.
    """
    return records.where(f.col(c.REJECT).isNotNull()).select(
        f.col(c.INPUT).alias("input"),
        f.col(c.FILE).alias("file"),
        f.col(POSITION).alias("position"),
        f.col(c.REJECT).alias("reason"),
        f.make_valid_utf8(RAW).alias("raw"),
        f.when(~f.is_valid_utf8(RAW), f.col(RAW).cast("binary")).alias("raw_bytes"),
        f.lit(epoch).cast("long").alias("epoch"),
    )
