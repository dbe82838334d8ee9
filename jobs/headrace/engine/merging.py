"""Windows that merge: open and new windows of a key grouped into what they become (semantics 2.4, 3.5, 12.8)."""

from enum import IntEnum
from functools import cached_property

from pyspark.sql import Window
from pyspark.sql import functions as f
from pyspark.sql import types as t

from headrace.engine.custom_windows import END, START, merged_window, output_times
from headrace.engine.delta import in_order
from headrace.engine.kept import KEPT_VALUE
from headrace.engine.matching import initial, null
from headrace.engine.plan import Plan
from headrace.engine.prepared import Aggregates, Selection
from headrace.engine.state import newest, union
from headrace.engine.types import DataFrame, SparkColumn
from headrace.errors import PipelineError
from headrace.model.accumulation import TimestampCombiner
from headrace.model.time import NEVER
from headrace.model.windows import Sessions
from headrace.program import columns as c
from headrace.program.triggers import Fold, Sources

SOURCES = "_sources"
"""Column of the open windows (``ws``, ``we``) that a row's window came out of, itself perhaps among them."""

GONE = "_gone"
"""Column of how many of them are other windows, which vanished."""

BARRIER = "_folds"
"""Column that keeps the program of ``firing`` out of the aggregation. Beside a user's own combiner Spark would write
each value of it wherever it is read: a million characters of expressions, planned for ten seconds."""

_KIND, _FROM, _TO, _REACH, _STARTS, _GROUP = "_kind", "_from", "_to", "_reach", "_starts", "_group"
_ITSELF, _LENGTH, _INDEX, _NONSPECULATIVE = "_itself", "_itself_length", "_itself_index", "_itself_nonspec"


class _Kind(IntEnum):
    """What a row's group is: open and new windows that became one, a closed one, or a window left as it is."""

    MERGED = 0
    CLOSED = 1
    SPARED = 2


def _together(col: SparkColumn | str) -> SparkColumn:
    return f.flatten(f.collect_list(col))


def _sorted(col: SparkColumn | str) -> SparkColumn:
    return f.array_sort(_together(col))


class Merging:
    """Columns of the query, made once for all epochs of an application: making them costs more than running them."""

    def __init__(self, plan: Plan, clocks: list[str]) -> None:
        self.touching = isinstance(plan.where, Sessions) and plan.where.touching_merges
        if not plan.custom and not isinstance(plan.where, Sessions):
            raise PipelineError(f"the Spark engine does not merge windows of {plan.where!r} yet")
        self.plan, self.clocks = plan, clocks
        self.by_result = plan.may_finish or plan.custom is not None
        self._lists = [measure.name for measure in plan.trigger.measures if measure.fold is Fold.LIST]
        self._known: dict[bool, Selection] = {}

    def combine(self, found: DataFrame | None, touched: DataFrame | None, moment: list[SparkColumn]) -> DataFrame:
        """Rows for the program of ``firing``, and the windows that each replaces (``SOURCES``)."""
        plan = self.plan
        sides = []
        if found is not None:
            known = newest(plan, found).where(f.col(c.STATUS) != c.DELETED)
            sides.append(self._from_state(touched).of(known.select("*", *moment)))
        if touched is not None:
            sides.append(self._from_delta.of(touched.select("*", *moment)))
        rows = self._becoming(union(sides))
        if plan.may_finish:
            rows = self._spared.of(rows.select("*", self._meets_closed))
        groups = self._folded.of(rows)
        return self._after.of(groups.select("*", *self._itself))

    def _from_state(self, touched: DataFrame | None) -> Selection:
        if (touched is None) not in self._known:
            types = dict(self.plan.carried)
            for name in self._lists:  # only the rows know what type the places in the order of arrival have
                if touched is None:
                    kind = types[name]
                    assert isinstance(kind, t.ArrayType)
                    types[name] = t.ArrayType(t.StructType([t.StructField(KEPT_VALUE, kind.elementType)]))
                else:
                    types[name] = touched.schema[name].dataType
            nothing = [f.lit(None).cast(kind).alias(name) for name, kind in types.items()]
            known = [f.lit(0).cast("long").alias(c.COUNT), *nothing, *map(f.col, self.plan.bookkeeping.names)]
            self._known[touched is None] = Selection([*self.plan.identity, *self.clocks, *known])
        return self._known[touched is None]

    @cached_property
    def _from_delta(self) -> Selection:
        parts = {part.name for part in self.plan.parts}
        fields = [f.col(n) if n in parts else null(self.plan, n) for n in self.plan.bookkeeping.names]
        return Selection([*self.plan.identity, *self.clocks, c.COUNT, *self.plan.carried, *fields])

    # --- which rows become one window

    def _becoming(self, rows: DataFrame) -> DataFrame:
        """Each row with its group. Closed windows stay what they are: they take no part in merging (3.5)."""
        if self.by_result:
            rows = rows.select("*", self._kind)
        if self.plan.custom:
            return rows.select("*", *self._of_key).select("*", self._result).select("*", *self._become)
        rows = rows.select("*", self._reach).select("*", self._starts).select("*", self._group)
        return rows.select("*", *self._extent) if self.by_result else rows

    @cached_property
    def _kind(self) -> SparkColumn:
        return f.when(f.col(c.STATUS) == c.CLOSED, int(_Kind.CLOSED)).otherwise(int(_Kind.MERGED)).alias(_KIND)

    @cached_property
    def _partition(self) -> list[str]:
        return [*self.plan.keys, *([_KIND] if self.by_result else [])]

    @cached_property
    def _reach(self) -> SparkColumn:
        order = Window.partitionBy(*self._partition).orderBy(c.WINDOW_START, c.WINDOW_END)
        return f.max(c.WINDOW_END).over(order.rowsBetween(Window.unboundedPreceding, -1)).alias(_REACH)

    @cached_property
    def _starts(self) -> SparkColumn:
        start, reach = f.col(c.WINDOW_START), f.col(_REACH)
        starts = reach.isNull() | (start > reach if self.touching else start >= reach)
        if self.plan.may_finish:
            starts = starts | (f.col(_KIND) == int(_Kind.CLOSED))
        return f.when(starts, 1).otherwise(0).alias(_STARTS)

    @cached_property
    def _group(self) -> SparkColumn:
        order = Window.partitionBy(*self._partition).orderBy(c.WINDOW_START, c.WINDOW_END)
        return f.sum(_STARTS).over(order.rowsBetween(Window.unboundedPreceding, 0)).alias(_GROUP)

    @cached_property
    def _extent(self) -> list[SparkColumn]:
        group = Window.partitionBy(*self._partition, _GROUP)
        return [f.min(c.WINDOW_START).over(group).alias(_FROM), f.max(c.WINDOW_END).over(group).alias(_TO)]

    @cached_property
    def _of_key(self) -> list[SparkColumn]:
        """The open and new windows of a row's key, none where nothing new came: then nothing merges."""
        key = Window.partitionBy(*self.plan.keys)
        window = f.when(f.col(_KIND) == int(_Kind.MERGED), self._own_window)
        windows = f.array_sort(f.collect_set(window).over(key))
        return [f.when(f.max(c.COUNT).over(key) > 0, windows).alias("_windows")]

    @property
    def _own_window(self) -> SparkColumn:
        return f.struct(f.col(c.WINDOW_START).alias(START), f.col(c.WINDOW_END).alias(END))

    @cached_property
    def _result(self) -> SparkColumn:
        if self.plan.custom is None:
            raise AssertionError(self.plan.where)
        return merged_window(self.plan.custom, self._own_window, f.col("_windows")).alias("_result")

    @cached_property
    def _become(self) -> list[SparkColumn]:
        takes_part = f.col(_KIND) == int(_Kind.MERGED)
        ends = {_FROM: (START, c.WINDOW_START), _TO: (END, c.WINDOW_END)}
        return [
            f.when(takes_part, f.col(f"_result.{field}")).otherwise(f.col(own)).alias(name)
            for name, (field, own) in ends.items()
        ]

    @cached_property
    def _meets_closed(self) -> SparkColumn:
        same = Window.partitionBy(*self.plan.keys, _FROM, _TO)
        return (f.max(_KIND).over(same) == int(_Kind.CLOSED)).alias("_meets_closed")

    @cached_property
    def _spared(self) -> Selection:
        """A merge that gives exactly a closed window does not happen: its new elements belong to the closed window,
        which drops them, and what is open stays as it is (3.1c, 3.5).
        """
        meets = f.col("_meets_closed")
        spared = meets & f.coalesce(f.col(c.STATUS) == c.OPEN, f.lit(False))
        kind = f.when(spared, int(_Kind.SPARED)).when(meets, int(_Kind.CLOSED)).otherwise(f.col(_KIND))
        names = [*self.plan.identity, *self.clocks, c.COUNT, *self.plan.carried, *self.plan.bookkeeping.names]
        return Selection(
            [
                *names,
                f.when(spared, f.col(c.WINDOW_START)).otherwise(f.col(_FROM)).alias(_FROM),
                f.when(spared, f.col(c.WINDOW_END)).otherwise(f.col(_TO)).alias(_TO),
                kind.alias(_KIND),
            ]
        )

    # --- one row for each group

    @cached_property
    def _by(self) -> list[str]:
        return [*self.plan.keys, *([_FROM, _TO, _KIND] if self.by_result else [_GROUP])]

    @cached_property
    def _folded(self) -> Aggregates:
        """State columns folded over the open windows of a group, elements and contents over all of it."""
        plan = self.plan
        source = f.struct(
            f.col(c.WINDOW_START).alias("ws"),
            f.col(c.WINDOW_END).alias("we"),
            f.col(c.INDEX).alias("index"),
            f.col(c.NONSPECULATIVE).alias("nonspec"),
        )
        folds = {Fold.SUM: f.sum, Fold.MIN: f.min, Fold.MAX: f.max, Fold.ANY: f.max, Fold.ALL: f.min}
        latest = plan.how.timestamp is TimestampCombiner.LATEST
        carried = {c.HELD: f.max if latest else f.min, c.RETRACTED: f.sum, c.BEHIND: f.max, c.TIMES: _together}
        carried |= {measure.name: folds.get(measure.fold, _sorted) for measure in plan.trigger.measures}
        live = [f.sort_array(_together(c.LIVE)).alias(c.LIVE)] if plan.retracting else []
        extent = [f.min(c.WINDOW_START).alias(_FROM), f.max(c.WINDOW_END).alias(_TO)]
        return Aggregates(
            self._by,
            [
                *([] if self.by_result else extent),
                *[f.max(name).alias(name) for name in self.clocks],
                f.sum(c.COUNT).alias(c.COUNT),
                f.collect_list(f.when(f.col(c.STATUS) == c.OPEN, source)).alias(SOURCES),
                *self._longest,
                f.coalesce(f.sum(c.NEW), f.lit(0).cast("long")).alias(c.NEW),
                (f.max if latest else f.min)(c.HOLD).alias(c.HOLD),
                *[f.coalesce(f.min(name), f.lit(int(NEVER))).alias(name) for name in (c.DUE_EVENT, c.DUE_TIME)],
                *[carried[name](name).alias(name) for name in plan.carried],
                *[folds[field.fold](field.name).alias(field.name) for field in plan.trigger.fields],
                *[self._in_sources(sources) for sources in plan.trigger.sources],
                *[part.gather(f.col(part.name)).alias(part.name) for part in plan.parts],
                *live,
            ],
        )

    @staticmethod
    def _in_sources(sources: Sources) -> SparkColumn:
        window = [f.col(c.WINDOW_START).alias("ws"), f.col(c.WINDOW_END).alias("we")]
        progress = f.struct(*window, *[f.col(column).alias(name) for name, column in sources.fields.items()])
        return f.array_sort(f.collect_list(f.when(f.col(c.STATUS) == c.OPEN, progress))).alias(sources.name)

    @staticmethod
    def _is_result(source: SparkColumn) -> SparkColumn:
        return (source["ws"] == f.col(_FROM)) & (source["we"] == f.col(_TO))

    @cached_property
    def _longest(self) -> list[SparkColumn]:
        """Of the longest source its counters and its length. Of sessions only the result itself is as long as it."""
        if self.plan.custom:
            return []
        length = f.when(f.col(c.STATUS) == c.OPEN, f.col(c.WINDOW_END) - f.col(c.WINDOW_START))
        counters = {_INDEX: c.INDEX, _NONSPECULATIVE: c.NONSPECULATIVE}
        return [f.max(length).alias(_LENGTH), *[f.max_by(of, length).alias(name) for name, of in counters.items()]]

    @cached_property
    def _itself(self) -> list[SparkColumn]:
        """Whether the result is one of the sources, and that one's counters where they are not known yet."""
        if not self.plan.custom:
            is_itself = f.coalesce(f.col(_LENGTH) == f.col(_TO) - f.col(_FROM), f.lit(False)).alias(_ITSELF)
            return [is_itself]
        source = f.try_element_at(f.filter(SOURCES, self._is_result), f.lit(1))
        counters = {_INDEX: "index", _NONSPECULATIVE: "nonspec"}
        return [source.isNotNull().alias(_ITSELF), *[source[of].alias(name) for name, of in counters.items()]]

    @property
    def _held(self) -> SparkColumn:
        """What the elements of a merged window lend its pane (semantics 6.1, 6.2)."""
        assert self.plan.custom is not None
        window = f.struct(f.col(_FROM).alias(START), f.col(_TO).alias(END))
        found = output_times(self.plan.custom, f.col(c.TIMES), window)
        stamps = f.transform(found, lambda at: at + f.lit(self.plan.output_shift))
        ahead = f.filter(stamps, lambda stamp: stamp >= f.col(c.BEHIND))
        return f.array_min(ahead) if self.plan.how.timestamp is TimestampCombiner.EARLIEST else f.array_max(ahead)

    @cached_property
    def _after(self) -> Selection:
        """Pane counters survive only in a window that is one of its sources; the other sources leave tombstones."""
        plan = self.plan
        fresh = initial(plan)
        has = f.size(SOURCES) > 0
        closed = f.col(_KIND) == int(_Kind.CLOSED) if self.by_result else f.lit(False)
        known = {
            field.name: f.when(has, f.col(field.name)).otherwise(fresh[field.name]) for field in plan.trigger.fields
        }
        columns = {
            **known,
            **{name: in_order(f.col(name)) for name in self._lists},
            c.WINDOW_START: f.col(_FROM),
            c.WINDOW_END: f.col(_TO),
            c.INDEX: f.when(f.col(_ITSELF), f.col(_INDEX)).otherwise(f.lit(0).cast("long")),
            c.NONSPECULATIVE: f.when(f.col(_ITSELF), f.col(_NONSPECULATIVE)).otherwise(f.lit(0).cast("long")),
            c.HAS_STATE: has,
            c.WAS_CLOSED: closed,
            c.STORED: closed | f.col(_ITSELF),
            c.MERGED: has & ~((f.size(SOURCES) == 1) & f.col(_ITSELF)),
            SOURCES: f.col(SOURCES),
            GONE: f.size(SOURCES) - f.when(f.col(_ITSELF), 1).otherwise(0),
            **({c.HELD: self._held} if plan.stamps_merged else {}),
        }
        known_of_sources = [sources.name for sources in plan.trigger.sources]
        rest = [n for n in (*self.clocks, c.COUNT, *plan.carried, *known_of_sources, *fresh) if n not in columns]
        barrier = f.monotonically_increasing_id().alias(BARRIER)
        return Selection([*plan.keys, *rest, *[column.alias(name) for name, column in columns.items()], barrier])
