"""The pipeline itself: a frozen value whose fields read in the order of the model's questions.

input, key, *what* (aggregates), *where* (windows), *when* (trigger), *how* (accumulation, lateness), and the rest.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, How, behind, retracting
from headrace.model.arguments import Arguments
from headrace.model.combiners import Aggregate, readable_types
from headrace.model.expressions.coercion import Key, expression, key_columns
from headrace.model.expressions.expr import DataType, Expr, Schema
from headrace.model.expressions.typing import type_of
from headrace.model.expressions.value_types import ValueType
from headrace.model.panes import WINDOW_END, WINDOW_START
from headrace.model.suggestions import keywords
from headrace.model.triggers import Default, Trigger
from headrace.model.windows import WindowFn
from headrace.pipeline.executors import Executor
from headrace.pipeline.expectations import Expectation
from headrace.pipeline.inputs import OWN, Deduplicate, EventTime, Input
from headrace.pipeline.schedules import Backfill, Retention, scheduled
from headrace.pipeline.sources import FileSource, SparkFunction
from headrace.pipeline.trigger_checks import nodes
from headrace.pipeline.validation import check

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True, init=False)
class Aggregation:
    """One grouping: *what* is computed of each ``key``, *where* in event time, *when* in processing time, and *how*
    refinements relate, over rows that pass ``filter``.

    As one of ``then``, it reads the key, aggregates, ``window_start`` and ``window_end`` of the panes of the one before
    it; their event time is the panes' own timestamp (semantics 7). A pane whose key is NULL there goes to the
    dead letters, which ``max_rejected`` of a source does not count. ``when`` None continues the trigger of the
    aggregation before it (4.7). ``transform`` makes other rows of the panes, before anything else reads them.
    ``renamed`` says what columns of its key and aggregates were called before, ``{"old name": "name"}``, so that a run
    goes on from snapshots that know them by their old names.
    """

    key: Mapping[str, Expr]
    what: Mapping[str, Aggregate]
    where: WindowFn
    when: Trigger | None
    how: How
    filter: Expr | None
    transform: SparkFunction | None
    renamed: Mapping[str, str]

    @keywords
    def __init__(
        self,
        *,
        key: Key = None,
        what: Mapping[str, Aggregate],
        where: WindowFn,
        when: Trigger | None = None,
        how: How | None = None,
        filter: Expr | None = None,  # noqa: A002 (the word of the domain)
        transform: SparkFunction | None = None,
        renamed: Mapping[str, str] | None = None,
        _owner: str = "Aggregation",
    ) -> None:
        given = Arguments(_owner)
        set_ = object.__setattr__
        set_(self, "key", key_columns(given, "key", key))
        set_(self, "what", given.mapping("what", what, Aggregate, _WHAT))
        set_(self, "where", given.instance("where", where, WindowFn, 'windows such as FixedWindows("1h")'))
        trigger = "a trigger such as AfterWatermark(early=AfterCount(100))"
        set_(self, "when", None if when is None else given.instance("when", when, Trigger, trigger))
        relation = 'retracting("2d"), accumulating(...) or discarding(...)'
        set_(self, "how", retracting() if how is None else given.instance("how", how, How, relation))
        set_(self, "filter", None if filter is None else expression(given, "filter", filter))
        function = 'SparkFunction("module:function", ...)'
        made = None if transform is None else given.instance("transform", transform, SparkFunction, function)
        set_(self, "transform", made)
        set_(self, "renamed", _renamed(given, renamed, {*self.key, *self.what}))


def _renamed(given: Arguments, renamed: object, columns: Collection[str]) -> dict[str, str]:
    if renamed is None:
        return {}
    found = given.mapping("renamed", renamed, str, '{"old name": "name"}', least=0)
    for old, name in found.items():
        if old.startswith("_"):
            raise given.wrong("renamed", renamed, f"column {old!r}: names that start with _ belong to Headrace")
        if name not in columns:
            raise given.wrong(
                "renamed", renamed, f"there is no column {name!r}; there are {', '.join(sorted(columns))}"
            )
        if old in columns:
            raise given.wrong("renamed", renamed, f"there is a column {old!r}: leave out what is not renamed any more")
    return found


_WHAT = '{"name": aggregate}, such as {"flights": count(), "worst": col("delay").max()}'


@dataclass(frozen=True)
class Stage:
    """An aggregation as it runs: its trigger and lateness settled, and the types of the rows that reach it.

    ``withdrawable``: these rows can be withdrawn again.
    """

    aggregation: Aggregation
    schema: Schema
    withdrawable: bool = False

    @property
    def when(self) -> Trigger:
        """Its trigger, never None."""
        if self.aggregation.when is None:
            raise PipelineError("when= is missing: the first aggregation of a pipeline has no trigger to continue")
        return self.aggregation.when

    def followed_by(self, aggregation: Aggregation) -> "Stage":
        """The next stage. It continues the trigger if it has none (4.7), and its allowed lateness is at
        least that of this one (5.2)."""
        above = self.aggregation.how
        settled = replace(
            aggregation, when=aggregation.when or self.when.continuation, how=behind(above, aggregation.how)
        )
        schema = self.pane_schema if aggregation.transform is None else aggregation.transform.returns
        return Stage(settled, schema, above.accumulation is Accumulation.RETRACTING)

    @cached_property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns and their types, in order."""
        return {name: type_of(expr, self.schema) or DataType.STRING for name, expr in self.aggregation.key.items()}

    @cached_property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregate columns and their types, in order."""
        return {name: aggregate.output_type(self.schema) for name, aggregate in self.aggregation.what.items()}

    @cached_property
    def pane_schema(self) -> Schema:
        """Columns of its panes that the next stage can read."""
        values = readable_types(self.aggregation.what, self.schema)
        window = {WINDOW_START: DataType.TIMESTAMP, WINDOW_END: DataType.TIMESTAMP}
        return {**self.key_types, **values, **window}


_AT_THE_END = Default()


@dataclass(frozen=True, init=False)
class Pipeline:
    """One aggregation of ``input``, or several in a chain (``then``).

    ``key`` is the name of a column, a list of names, expressions by name, or None for one group of all; a record whose
    event time or any key is NULL goes to the dead letter. ``what``, ``where``, ``when`` and ``how`` are the four
    questions of the model. ``filter`` is applied after the check for NULL; what it removes still moves the watermark.
    ``allow_finishing`` accepts a trigger that can finish and so drop data (semantics 4.8), ``allow_double_counting``
    accumulating panes that feed another aggregation, where a pane and its refinements all count (7.6).
    ``schedule`` is a cron expression or one of Airflow's presets; None: runs are started by hand. ``backfill``: what is
    computed anew on a schedule of its own, beside those runs. ``retention``: what of its history is kept.
    ``executor`` is where epochs are computed unless a run is asked for another: "spark", "local", or "auto": without
    Spark while there is little to do.
    ``renamed`` is that of its first aggregation (see ``Aggregation``).
    ``union`` are further inputs, united with ``input`` (12.9). ``deduplicate`` applies to all inputs together, after
    the filter (12.10).
    Raises PipelineError, saying what to change, when the parts do not fit.
    """

    name: str
    input: Input
    key: Mapping[str, Expr]
    what: Mapping[str, Aggregate]
    where: WindowFn
    when: Trigger
    how: How
    filter: Expr | None
    renamed: Mapping[str, str]
    deduplicate: Deduplicate | None
    union: tuple[Input, ...]
    then: tuple[Aggregation, ...]
    expectations: tuple[Expectation, ...]
    description: str
    schedule: str | None
    backfill: Backfill | None
    retention: Retention | None
    executor: Executor
    allow_finishing: bool
    allow_double_counting: bool

    @keywords
    def __init__(
        self,
        name: str,
        input: Input,  # noqa: A002 (the word of the domain)
        *,
        key: Key = None,
        what: Mapping[str, Aggregate],
        where: WindowFn,
        when: Trigger = _AT_THE_END,
        how: How | None = None,
        filter: Expr | None = None,  # noqa: A002 (the word of the domain)
        renamed: Mapping[str, str] | None = None,
        deduplicate: Deduplicate | None = None,
        union: Sequence[Input] = (),
        then: Sequence[Aggregation] = (),
        expectations: Sequence[Expectation] = (),
        description: str = "",
        schedule: str | None = None,
        backfill: Backfill | None = None,
        retention: Retention | None = None,
        executor: Executor | str = Executor.SPARK,
        allow_finishing: bool = False,
        allow_double_counting: bool = False,
    ) -> None:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise Arguments("Pipeline").wrong(
                "name", name, "write lower case letters, digits and _, at most 63, starting with a letter"
            )
        given = Arguments(f"Pipeline {name}")
        if when is None:
            raise given.wrong("when", when, "there is no trigger before it to continue; leave it out for Default()")
        first = Aggregation(
            key=key,
            what=what,
            where=where,
            when=when,
            how=how,
            filter=filter,
            renamed=renamed,
            _owner=given.owner,
        )
        set_ = object.__setattr__
        set_(self, "name", name)
        set_(self, "input", _own_input(given, input))
        for part in ("key", "what", "where", "when", "how", "filter", "renamed"):
            set_(self, part, getattr(first, part))
        ids = 'Deduplicate("id", "1d")'
        once = None if deduplicate is None else given.instance("deduplicate", deduplicate, Deduplicate, ids)
        set_(self, "deduplicate", once)
        set_(self, "union", given.several("union", union, Input, 'csv(...).event_time(...).named("weather")'))
        set_(self, "then", given.several("then", then, Aggregation, "Aggregation(...)"))
        set_(self, "expectations", given.several("expectations", expectations, Expectation, "expect(...)"))
        set_(self, "description", given.instance("description", description, str, "text"))
        set_(self, "schedule", scheduled(given, schedule))
        anew = 'Backfill("0 3 * * *", last="7d")'
        set_(self, "backfill", None if backfill is None else given.instance("backfill", backfill, Backfill, anew))
        rule = 'Retention(keep_last=100, keep_for="30d")'
        kept = None if retention is None else given.instance("retention", retention, Retention, rule)
        set_(self, "retention", kept)
        set_(self, "executor", given.choice("executor", executor, Executor))
        set_(self, "allow_finishing", given.flag("allow_finishing", allow_finishing))
        set_(self, "allow_double_counting", given.flag("allow_double_counting", allow_double_counting))
        check(self)

    @property
    def source(self) -> FileSource:
        """The files of its own input."""
        return self.input.source

    @property
    def event_time(self) -> EventTime:
        """Event time and watermark of its own input."""
        return self.input.event_time

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Its aggregations as they run, first to last."""
        first = Aggregation(
            key=self.key,
            what=self.what,
            where=self.where,
            when=self.when,
            how=self.how,
            filter=self.filter,
            renamed=self.renamed,
        )
        stages = [Stage(first, self.schema)]
        for aggregation in self.then:
            stages.append(stages[-1].followed_by(aggregation))
        return tuple(stages)

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """All inputs in the order in which their records arrive, its own first, under the name ``OWN``."""
        return (self.input, *self.union)

    @property
    def spark_functions(self) -> tuple[SparkFunction, ...]:
        """The Spark code of a user's own that it names, at its inputs and between its stages."""
        named = [each.source.transform for each in self.inputs]
        named += [stage.aggregation.transform for stage in self.stages]
        return tuple(function for function in named if function is not None)

    @property
    def signals(self) -> list[str]:
        """The names of the signals that its triggers wait for."""
        found = [node for stage in self.stages for node in nodes(stage.when)]
        return sorted({name for node in found for name in node.signals})

    @property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns of its panes (those of the last stage) and their types, in order."""
        return self.stages[-1].key_types

    @property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregate columns of its panes and their types, in order."""
        return self.stages[-1].value_types

    @property
    def schema(self) -> Schema:
        """Columns of a record, as event time, key and aggregates read them."""
        return self.source.columns


def _own_input(given: Arguments, value: object) -> Input:
    if isinstance(value, FileSource):
        raise given.wrong(
            "input", value, 'it has no event time; write .event_time("at", bound="1h") after it, or .arrival_time()'
        )
    found = given.instance("input", value, Input, 'json("landing/flights", {...}).event_time("at", bound="1h")')
    if found.name != OWN:
        raise given.wrong("input", value, "only the inputs of union= are named; leave out .named(...)")
    return found
