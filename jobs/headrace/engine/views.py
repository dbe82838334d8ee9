"""What readers see of a snapshot, as DataFrames: panes of a range of epochs, and the ``current`` rows that they
change.
"""

from pyspark.sql import Window
from pyspark.sql import functions as f

from headrace.engine.plan import Plan
from headrace.engine.types import DataFrame


def newest_records(plan: Plan, panes: DataFrame) -> DataFrame:
    """The newest record of each (key, window), retraction or not."""
    newest_first = (f.col("epoch").desc(), f.col("sequence").desc())
    order = Window.partitionBy(*plan.keys, "window_start", "window_end").orderBy(*newest_first)
    return panes.withColumn("_rank", f.row_number().over(order)).where(f.col("_rank") == 1).drop("_rank")


def current(plan: Plan, panes: DataFrame) -> DataFrame:
    """The latest pane of each (key, window) after retractions, folded from ``panes``."""
    return newest_records(plan, panes).where(~f.col("is_retraction"))


def changed_current(plan: Plan, panes: DataFrame, since_epoch: int) -> DataFrame:
    """Of ``current`` the rows that epochs after ``since_epoch`` wrote: newest wins, so a changed row carries its
    epoch.
    """
    return current(plan, panes).where(f.col("epoch") > since_epoch)
