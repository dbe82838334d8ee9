"""What earlier epochs left: layers of state rows, of which the newest per (key, window) counts.

Every layer is an immutable DataFrame that is materialised once and partitioned as the delta is, so that looking up
the touched windows moves no state between partitions. An epoch adds one layer; layers of similar size are merged now
and then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Window
from pyspark.sql import functions as f

from headrace.engine import columns as c
from headrace.engine.firing import Clocks
from headrace.engine.plan import Plan
from headrace.engine.types import DataFrame, SparkSession
from headrace.model.time import NEVER, Instant


@dataclass(frozen=True)
class StateLayer:
    """State rows written by epochs ``first_epoch`` to ``last_epoch``, and the earliest activation that any of them
    wants.
    """

    rows: DataFrame
    count: int
    first_epoch: int
    last_epoch: int
    due_event: Instant
    due_time: Instant

    def is_due(self, clocks: Clocks) -> bool:
        """Whether some row may want an activation under ``clocks`` (a newer layer may know better)."""
        return self.due_event < clocks.watermark_after or self.due_time <= clocks.processing_time


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of frames of one schema; keeps a partitioning that they share."""
    return reduce(DataFrame.union, frames)


def newest(plan: Plan, rows: DataFrame) -> DataFrame:
    """Of the rows of one (key, window) the one of the newest epoch."""
    order = Window.partitionBy(*plan.identity).orderBy(f.col(c.EPOCH).desc())
    return rows.withColumn("_rank", f.row_number().over(order)).where(f.col("_rank") == 1).drop("_rank")


def look_ahead(layers: Sequence[StateLayer], clocks: Clocks) -> list[StateLayer]:
    """The layers with their next deadline after ``clocks``: a Spark job for each whose deadline has just passed."""
    return [
        layer if layer.due_time > clocks.processing_time else replace(layer, due_time=_next_time(layer, clocks))
        for layer in layers
    ]


def _next_time(layer: StateLayer, clocks: Clocks) -> Instant:
    pending = layer.rows.where(f.col(c.DUE_TIME) > int(clocks.processing_time))
    found = pending.agg(f.min(c.DUE_TIME)).collect()[0][0]
    return NEVER if found is None else Instant(found)


def next_due(layers: Sequence[StateLayer]) -> tuple[Instant, Instant]:
    """Lower bounds of the next watermark and the next processing time at which some window wants an activation."""
    return (
        Instant(min((layer.due_event for layer in layers), default=NEVER)),
        Instant(min((layer.due_time for layer in layers), default=NEVER)),
    )


def lookup(plan: Plan, layers: Sequence[StateLayer], touched: DataFrame | None, clocks: Clocks) -> DataFrame | None:
    """Every version of the state rows that this epoch may change: of touched keys, and of rows with a due activation.

    ``touched`` is the data of the delta. None when there is nothing to look up.
    """
    wanted = [] if touched is None else [touched.select(*plan.partitioning)]
    # what was due before was activated then, and a newer layer holds what became of it
    by_event = f.col(c.DUE_EVENT) >= int(clocks.watermark_before)
    by_time = f.col(c.DUE_TIME) > int(clocks.previous_processing_time)
    due = (by_event & (f.col(c.DUE_EVENT) < int(clocks.watermark_after))) | (
        by_time & (f.col(c.DUE_TIME) <= int(clocks.processing_time))
    )
    wanted += [layer.rows.where(due).select(*plan.partitioning) for layer in layers if layer.is_due(clocks)]
    if not layers or not wanted:
        return None
    rows = union([layer.rows for layer in layers])
    return rows.join(union(wanted).hint("shuffle_hash"), plan.partitioning, "left_semi")


def merge(plan: Plan, layers: Sequence[StateLayer], drop_deleted: bool) -> DataFrame:
    """One layer's rows out of several; tombstones go only when nothing older is left below (``drop_deleted``)."""
    rows = newest(plan, union([layer.rows for layer in layers]))
    return rows.where(f.col(c.STATUS) != c.DELETED) if drop_deleted else rows


def load(spark: SparkSession, plan: Plan, uris: Sequence[str], partitions: int) -> DataFrame:
    """State rows from Parquet files, partitioned as the delta is: the only shuffle that state ever sees."""
    rows = spark.read.schema(plan.state_schema).parquet(*uris)
    return rows.select(*plan.state_schema.names).repartition(partitions, *plan.partitioning)
