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

from headrace.engine.delta import Fate
from headrace.engine.expressions import by_reference
from headrace.engine.layers import Added, Layer, expired, put_on_top
from headrace.engine.state import union
from headrace.engine.types import SPARK_TYPES, DataFrame, SparkColumn
from headrace.model.expr import DataType, Schema
from headrace.model.time import MIN_INSTANT, Instant
from headrace.model.typing import type_of
from headrace.pipeline.inputs import Deduplicate
from headrace.program import columns as c

_AT, _KNOWN, _RANK = "at", "_known", "_rank"


@dataclass(frozen=True)
class Duplicates:
    """The ids of one pipeline after an epoch, under the watermark that it left."""

    deduplicate: Deduplicate
    partitions: int
    layers: tuple[Layer, ...] = ()
    watermark: Instant = MIN_INSTANT

    def schema(self, columns: Schema) -> t.StructType:
        """A stored row; ``columns`` are those that the id is computed of."""
        kind = SPARK_TYPES[type_of(self.deduplicate.id, columns) or DataType.STRING]
        long = t.LongType()
        return t.StructType(
            [t.StructField(c.ID, kind), t.StructField(_AT, long), t.StructField(c.EPOCH, long)],
        )

    def load(self, stored: DataFrame) -> DataFrame:
        """``stored`` rows, partitioned by id: the only shuffle that they ever see."""
        return stored.repartition(self.partitions, c.ID).localCheckpoint(eager=False)

    def by_id(self, judged: DataFrame) -> DataFrame:
        """``judged`` records, those of one id together."""
        return judged.repartition(self.partitions, c.ID)

    def judged(self, rows: DataFrame) -> DataFrame:
        """``by_id`` records with ``_seen``: DUPLICATE if the id is known or another one of its records came before in
        this epoch, FORGOTTEN if nobody can tell any more, NULL for the first of an id and for what takes no part.
        """
        takes_part = _takes_part()
        beyond = self._is_beyond(c.EVENT_TIME)
        rows = rows.withColumn(_KNOWN, f.lit(False))
        if self.layers:
            ids = union([layer.rows for layer in self.layers])
            alive = ids.where(~self._is_beyond(_AT)).select(c.ID)
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

    def _is_beyond(self, at: str) -> SparkColumn:
        return by_reference(self.watermark, at) > f.col(at) + f.lit(int(self.deduplicate.horizon))

    def after(self, epoch: int, seen: DataFrame | None, watermark: Instant) -> tuple["Duplicates", Added]:
        """Ids after ``epoch``, whose records are ``seen`` (None: it had none), and what that means for the stored ones.
        One Spark job if there are any, one more when layers merge.
        """
        gone = expired(self.layers, watermark)
        layers, added = list(self.layers[gone:]), Added()
        if seen is not None:
            found = seen.where(_takes_part() & f.col(c.SEEN).isNull()).select(
                c.ID,
                f.col(c.EVENT_TIME).alias(_AT),
                by_reference(epoch, c.EVENT_TIME).alias(c.EPOCH),
            )
            top = self._held(found, (epoch, epoch))
            if top.count:
                layers, added = put_on_top(layers, top, self._merged)
        return replace(self, layers=tuple(layers), watermark=watermark), replace(added, expired=gone)

    def _merged(self, layers: Sequence[Layer], _is_lowest: bool) -> Layer:
        rows = union([layer.rows for layer in layers])
        # under the old watermark: this epoch's records were judged by it, a redone epoch would be again
        alive = rows.where(~self._is_beyond(_AT))
        return self._held(alive, (layers[0].first_epoch, layers[-1].last_epoch))

    def _held(self, rows: DataFrame, epochs: tuple[int, int]) -> Layer:
        """``rows``, computed once and held."""
        held = rows.localCheckpoint(eager=False)
        found = held.agg(f.count(f.lit(1)).alias("rows"), f.max(_AT).alias("latest")).collect()[0]
        horizon = int(self.deduplicate.horizon)
        expires = MIN_INSTANT if found["latest"] is None else Instant(found["latest"] + horizon)
        return Layer(held, found["rows"], *epochs, expires)


def _takes_part() -> SparkColumn:
    return f.col(c.REJECT).isNull() & f.col(c.ADMITTED) & f.col(c.EVENT_TIME).isNotNull()
