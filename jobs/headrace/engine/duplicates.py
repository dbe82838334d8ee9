"""Ids that are remembered, and what they say of new records: only the first of an id counts (semantics 12.10).

A remembered id is a row: the id, the event time of its record, and the epoch that it came in. Rows are kept in
immutable layers as state is, partitioned by id. An id is forgotten once the watermark has passed its event time plus
the horizon: it counts no more from then on, and is left out when its layer is merged.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine import columns as c
from headrace.engine.delta import Fate
from headrace.engine.expressions import by_reference
from headrace.engine.state import union
from headrace.engine.types import SPARK_TYPES, DataFrame, SparkColumn, SparkSession
from headrace.model.expr import DataType, Schema
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.typing import type_of
from headrace.pipeline.inputs import Deduplicate
from headrace_snapshots.format.layers import plan_merge

TABLE = "ids"
"""The table of a snapshot that holds them."""

_AT, _KNOWN, _RANK = "at", "_known", "_rank"


@dataclass(frozen=True)
class IdLayer:
    """Ids that came in epochs ``first_epoch`` to ``last_epoch``."""

    rows: DataFrame
    count: int
    first_epoch: int
    last_epoch: int


@dataclass(frozen=True)
class Remembered:
    """What an epoch adds: ``rows`` are to be stored in place of the ``replaces`` newest layers, None if there is
    nothing new.
    """

    rows: DataFrame | None = None
    replaces: int = 0
    epochs: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Duplicates:
    """The ids of one pipeline after an epoch, under the watermark that it left."""

    deduplicate: Deduplicate
    partitions: int
    layers: tuple[IdLayer, ...] = ()
    watermark: Instant = MIN_INSTANT

    def schema(self, columns: Schema) -> t.StructType:
        """A stored row; ``columns`` are those that the id is computed of."""
        kind = SPARK_TYPES[type_of(self.deduplicate.id, columns) or DataType.STRING]
        long = t.LongType()
        return t.StructType(
            [t.StructField(c.ID, kind), t.StructField(_AT, long), t.StructField(c.EPOCH, long)],
        )

    def load(self, spark: SparkSession, columns: Schema, uris: Sequence[str]) -> DataFrame:
        """Stored rows, partitioned by id: the only shuffle that they ever see."""
        rows = spark.read.schema(self.schema(columns)).parquet(*uris)
        return rows.repartition(self.partitions, c.ID).localCheckpoint(eager=False)

    def by_id(self, judged: DataFrame) -> DataFrame:
        """``judged`` records, those of one id together."""
        return judged.repartition(self.partitions, c.ID)

    def judged(self, rows: DataFrame) -> DataFrame:
        """``by_id`` records with ``_seen``: DUPLICATE if the id is known or another one of its records came before in
        this epoch, FORGOTTEN if nobody can tell any more, NULL for the first of an id and for what takes no part.
        """
        takes_part = _takes_part()
        beyond = self._is_beyond(f.col(c.EVENT_TIME))
        rows = rows.withColumn(_KNOWN, f.lit(False))
        if self.layers:
            ids = union([layer.rows for layer in self.layers])
            alive = ids.where(~self._is_beyond(f.col(_AT))).select(c.ID)
            asked = rows.where(takes_part).select(c.ID)
            known = alive.join(asked.hint("shuffle_hash"), c.ID, "left_semi").select(c.ID, f.lit(True).alias(_KNOWN))
            rows = rows.drop(_KNOWN).join(known.hint("shuffle_hash"), c.ID, "left")
        counts = f.coalesce(takes_part & ~beyond, f.lit(False))
        in_order = Window.partitionBy(c.ID, counts).orderBy(c.ORDER)
        again = f.coalesce(f.col(_KNOWN), f.lit(False)) | (f.col(_RANK) > 1)
        seen = f.when(takes_part & beyond, int(Fate.FORGOTTEN)).when(counts & again, int(Fate.DUPLICATE))
        return (
            rows.withColumn(_RANK, f.row_number().over(in_order))
            .withColumn(c.SEEN, seen.cast("int"))
            .drop(_RANK, _KNOWN)
        )

    def _is_beyond(self, at: SparkColumn) -> SparkColumn:
        return by_reference(int(self.watermark), at) > at + f.lit(int(self.deduplicate.horizon))

    def after(self, epoch: int, seen: DataFrame | None, watermark: Instant) -> tuple["Duplicates", Remembered]:
        """Ids after ``epoch``, whose records are ``seen`` (None: it had none), and what is to be stored. One Spark job
        if there are any, one more when layers merge.
        """
        if seen is None:
            return self._with(self.layers, watermark), Remembered()
        found = seen.where(_takes_part() & f.col(c.SEEN).isNull()).select(
            c.ID,
            f.col(c.EVENT_TIME).alias(_AT),
            by_reference(epoch, f.col(c.EVENT_TIME)).cast("long").alias(c.EPOCH),
        )
        rows, count = _held(found)
        if not count:
            return self._with(self.layers, watermark), Remembered()
        layers = (*self.layers, IdLayer(rows, count, epoch, epoch))
        start = plan_merge([layer.count for layer in layers])
        if start is None:
            return self._with(layers, watermark), Remembered(rows, 0, (epoch, epoch))
        merged = union([layer.rows for layer in layers[start:]])
        # under the old watermark: this epoch's records were judged by it, a redone epoch would be again
        rows, count = _held(merged.where(~self._is_beyond(f.col(_AT))))
        first = layers[start].first_epoch
        whole = (IdLayer(rows, count, first, epoch),) if count else ()
        stored = Remembered(rows, len(layers) - 1 - start, (first, epoch))
        return self._with((*layers[:start], *whole), watermark), stored

    def _with(self, layers: tuple[IdLayer, ...], watermark: Instant) -> "Duplicates":
        return replace(self, layers=layers, watermark=watermark)


def _takes_part() -> SparkColumn:
    return f.col(c.REJECT).isNull() & f.col(c.ADMITTED) & f.col(c.EVENT_TIME).isNotNull()


def _held(rows: DataFrame) -> tuple[DataFrame, int]:
    """``rows``, computed once and held, and how many they are."""
    held = rows.localCheckpoint(eager=False)
    return held, held.count()
