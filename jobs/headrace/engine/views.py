"""What readers see of a snapshot, as DataFrames: panes of a range of epochs, and the ``current`` rows that they
change.
"""

from collections.abc import Sequence

from pyspark.sql import functions as f

from headrace.engine.plan import Plan
from headrace.engine.storage import spark_uri
from headrace.engine.types import DataFrame, SparkSession
from headrace.model.time import MIN_INSTANT
from headrace_snapshots.format.files import DataFile

_FROM, _TO, _AGE = "_from", "_to", "_age"


def read_panes(spark: SparkSession, plan: Plan, root: str, files: Sequence[DataFile]) -> DataFrame:
    """Rows of pane-shaped files of the store at ``root``."""
    if not files:
        return spark.createDataFrame([], plan.pane_schema)
    return spark.read.schema(plan.pane_schema).parquet(*[spark_uri(root, file.path) for file in files])


def newest_records(plan: Plan, panes: DataFrame) -> DataFrame:
    """The newest record of each (key, window), retraction or not. Which one that is is looked up, instead of sorting
    whole rows.
    """
    ends = {_FROM: "window_start", _TO: "window_end"}  # NULL for the global window, and NULL joins nothing
    identity = [*plan.keys, *ends]
    known = panes.select(
        "*",
        *[f.coalesce(f.unix_micros(end), f.lit(int(MIN_INSTANT))).alias(name) for name, end in ends.items()],
        (f.col("epoch") * f.lit(2**32) + f.col("sequence")).alias(_AGE),
    )
    latest = known.groupBy(*identity).agg(f.max(_AGE).alias(_AGE))
    return known.join(latest.hint("shuffle_hash"), [*identity, _AGE], "left_semi").select(*panes.columns)


def current(plan: Plan, panes: DataFrame) -> DataFrame:
    """The latest pane of each (key, window) after retractions, folded from ``panes``."""
    return newest_records(plan, panes).where(~f.col("is_retraction"))


def changed_current(plan: Plan, panes: DataFrame, since_epoch: int) -> DataFrame:
    """Of ``current`` the rows that epochs after ``since_epoch`` wrote: newest wins, so a changed row carries its
    epoch.
    """
    return current(plan, panes).where(f.col("epoch") > since_epoch)
