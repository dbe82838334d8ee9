"""The pipeline itself: a frozen value whose fields read in the order of the model's questions.

input, key, *what* (aggregates), *where* (windows), *when* (trigger), *how* (accumulation, lateness), and the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, reduce
from operator import and_
from typing import Any, Final

from headrace.errors import PipelineError
from headrace.model.accumulation import WINDOW_END, WINDOW_START, How
from headrace.model.arguments import Arguments, Suggesting, keywords
from headrace.model.combiners import Aggregate
from headrace.model.event_time import Deduplicate, EventTime
from headrace.model.expressions.columns import Key, expression
from headrace.model.expressions.data_types import DataType, Schema, ValueType
from headrace.model.expressions.expr import Column, Expr
from headrace.model.triggers import Trigger
from headrace.model.triggers.elementary import Default
from headrace.model.windows import WindowFn
from headrace.pipeline import output as pipeline_output
from headrace.pipeline.deployment import AirflowOptions, Backfill, Retention, Schedule, scheduled
from headrace.pipeline.endpoints import OWN, Input, OwnFunction, Sink, Source, SparkFunction, named_sinks
from headrace.pipeline.group_rows import GroupRows, Take, check_no_aggregate
from headrace.pipeline.quality import Expectation, Limits, UsualCheck
from headrace.pipeline.rows import RowColumns, Selection, check_without_windows, id_columns
from headrace.pipeline.scheduling import PIPELINE_NAME, SPARK, executor_name
from headrace.pipeline.stages import Aggregation, Loop, LoopError, Stage, element_schema, grouping, trigger_nodes
from headrace.pipeline.validation import check

_NOT_AS_THEY_ARE: Final = frozenset({"of", "columns", "first", "filter", "limits", "description", "formerly"})
"""Fields of an output that a pipeline with it alone lacks, or has with something more."""

_ENDS: Final = (WINDOW_START, WINDOW_END)

_OF_ALL_OUTPUTS: Final = ("deduplicate", "union", "schedule", "retention", "airflow", "executor")
"""What a pipeline says for all its outputs."""


_NOTHING: Final[Mapping[str, object]] = {
    **{name: {} for name in ("key", "what", "renamed", "rows")},
    **dict.fromkeys(("where", "how", "having", "loop", "first", "_edges", "take")),
    "id": (),
}
"""What a pipeline with outputs has of what each of them has by itself."""


class SeveralOutputsError(PipelineError, code="config.several_outputs"):
    """A pipeline with several outputs was taken for one with one."""


@dataclass(frozen=True, init=False)
class Pipeline(Suggesting):
    """One aggregation of ``input``, or several in a chain (``then``); or several ``outputs``, each with its own.

    ``key`` is the name of a column, a list of names, expressions by name, or None for one group of all; a record whose
    event time or any key is NULL goes to the dead letter. ``what``, ``where``, ``when`` and ``how`` are the four
    questions of the model; ``what`` can name expressions over aggregates, too, and only rows of results of which
    ``having`` is TRUE leave (see ``Aggregation``). ``filter`` is applied after the check for NULL; what it removes
    still moves the watermark.
    ``allow_finishing`` accepts a trigger that can finish and so drop data (semantics 4.8), ``allow_double_counting``
    accumulating panes that feed another aggregation, where a pane and its refinements all count (7.6).
    ``expectations``, ``limits`` and ``usual`` say what must hold before readers see what a run computed; what is
    ``usual`` earlier versions know.
    ``sinks`` are tables elsewhere that follow what readers see (``headrace deliver``).
    ``schedule`` is a cron expression in UTC, one of Airflow's presets, ``cron(...)`` in a time zone, a timedelta,
    ``on_files(...)`` or ``on_assets(...)``; None: runs are started by hand. ``airflow``: how its DAGs run.
    ``backfill``: what is computed again on a schedule of its own, beside those runs. ``retention``: what of its history
    is kept.
    ``executor`` is where epochs are computed unless a run is asked for another: "spark", "local", or "auto": without
    Spark while there is little to do.
    ``renamed`` is that of its first aggregation (see ``Aggregation``). With a ``loop`` records are edges, ``key`` names
    their two ends, and the first aggregation is of the values of vertices (see ``Loop``).
    ``union`` are further inputs, united with ``input`` (12.9). ``deduplicate`` applies to all inputs together, after
    the filter (12.10).
    ``rows`` in place of ``key``, ``what``, ``where``, ``when`` and ``how``: each record that passes ``filter`` leaves
    as a row of these columns, and ``id`` names those that are unique; with ``take`` some rows of each ``key`` leave
    (see ``Rows``).
    ``outputs``, by name, are computed of the same records, each with a key, windows and all else of its own (see
    ``Output``); ``filter`` and ``deduplicate`` come before all of them. The pipeline has no key of its own then.
    Raises PipelineError, saying what to change, when the parts do not fit.

    >>> clicks = hr.json("landing/clicks", {"shop": str, "amount": int, "at": datetime})
    >>> sales = hr.Pipeline(
    ...     "sales",
    ...     clicks.event_time("at", bound="1h"),
    ...     key="shop",
    ...     what={"total": hr.col("amount").sum()},
    ...     where=hr.FixedWindows("1h"),
    ...     when=hr.on_update(),
    ...     how=hr.retracting("2d"),
    ... )
    >>> list(sales.value_types)
    ['total']
    """

    name: str
    input: Input
    key: Mapping[str, Expr]
    what: Mapping[str, Aggregate | Expr]
    where: WindowFn
    when: Trigger | None
    how: How
    filter: Expr | None
    having: Expr | None
    renamed: Mapping[str, str]
    loop: Loop | None
    first: Aggregation = field(init=False, repr=False, compare=False)
    _edges: Aggregation | None = field(init=False, repr=False, compare=False)
    deduplicate: Deduplicate | None
    union: tuple[Input, ...]
    outputs: Mapping[str, pipeline_output.AnyOutput]
    rows: Mapping[str, Expr]
    take: Take | None
    id: tuple[str, ...]
    then: tuple[Aggregation, ...]
    expectations: tuple[Expectation, ...]
    limits: Limits | None
    usual: tuple[UsualCheck, ...]
    sinks: tuple[Sink, ...]
    description: str
    schedule: Schedule | None
    backfill: Backfill | None
    retention: Retention | None
    airflow: AirflowOptions | None
    executor: str
    allow_finishing: bool
    allow_double_counting: bool
    _upstream: tuple[pipeline_output.Upstream, ...] = field(repr=False)

    @keywords
    def __init__(
        self,
        name: str,
        input: Input,  # noqa: A002 (the word of the domain)
        *,
        key: Key = None,
        what: Mapping[str, Aggregate | Expr] | None = None,
        where: WindowFn | None = None,
        when: Trigger | None = pipeline_output.AT_THE_END,
        how: How | None = None,
        filter: Expr | None = None,  # noqa: A002 (the word of the domain)
        having: Expr | None = None,
        renamed: Mapping[str, str] | None = None,
        loop: Loop | None = None,
        deduplicate: Deduplicate | None = None,
        union: Sequence[Input] = (),
        outputs: Mapping[str, pipeline_output.AnyOutput] | None = None,
        rows: RowColumns | None = None,
        take: Take | None = None,
        id: str | Sequence[str] | None = None,  # noqa: A002 (the word of the domain)
        then: Sequence[Aggregation] = (),
        expectations: Sequence[Expectation] = (),
        limits: Limits | None = None,
        usual: Sequence[UsualCheck] = (),
        sinks: Sequence[Sink] = (),
        description: str = "",
        schedule: Schedule | None = None,
        backfill: Backfill | None = None,
        retention: Retention | None = None,
        airflow: AirflowOptions | None = None,
        executor: str = SPARK,
        allow_finishing: bool = False,
        allow_double_counting: bool = False,
        _upstream: Sequence[pipeline_output.Upstream] = (),
    ) -> None:
        if not isinstance(name, str) or not PIPELINE_NAME.fullmatch(name):
            raise Arguments("Pipeline").wrong(
                "name", name, "write lower case letters, digits and _, at most 63, starting with a letter"
            )
        given = Arguments(f"Pipeline {name}")
        set_ = object.__setattr__
        set_(self, "_upstream", tuple(_upstream))
        if when is None and not _upstream:
            raise given.wrong("when", when, "there is no trigger before it to continue; leave it out for Default()")
        set_(self, "name", name)
        set_(self, "input", _own_input(given, input))
        several = pipeline_output.named_outputs(given, outputs)
        set_(self, "outputs", several)
        own: dict[str, object] = {"key": key, "what": what, "where": where, "how": how, "having": having, "loop": loop}
        own |= {"then": then, "when": None if isinstance(when, Default) else when}
        own |= {"rows": rows, "take": take}
        own |= {"allow_finishing": allow_finishing, "allow_double_counting": allow_double_counting}
        if several:
            own |= {"renamed": renamed, "id": id}
            own |= {"expectations": expectations, "usual": usual, "sinks": sinks}
            pipeline_output.check_apart(given, own)
            parts: dict[str, object] = {**_NOTHING, "when": when}
            parts |= {"filter": None if filter is None else expression(given, "filter", filter)}
        elif take is not None or (rows is not None and rows != {}):
            selection = self._selection(given, own, filter, renamed)
            parts = {**selection.fields, "_edges": None, "id": id_columns(given, id, selection.rows)}
        else:
            if id is not None and id != ():
                raise given.wrong("id", id, "it names columns of rows=; what an aggregation gives goes by its key")
            first = grouping(
                given,
                loop,
                key=key,
                what={} if what is None else what,
                where=where,
                when=when,
                how=how,
                filter=filter,
                having=having,
                renamed=renamed,
            )
            parts = {**first.fields, "_edges": first.edges, "rows": {}, "id": (), "take": None}
        for part, value in parts.items():
            set_(self, part, value)
        once = 'Deduplicate("id", "1d")'
        set_(self, "deduplicate", given.optional("deduplicate", deduplicate, Deduplicate, once))
        set_(self, "union", given.several("union", union, Input, 'csv(...).event_time(...).named("weather")'))
        set_(self, "then", given.several("then", then, Aggregation, "Aggregation(...)"))
        set_(self, "expectations", given.several("expectations", expectations, Expectation, "expect(...)"))
        set_(self, "limits", given.optional("limits", limits, Limits, 'Limits(rejected="1%", newest_file="1h")'))
        set_(self, "usual", given.several("usual", usual, UsualCheck, "usual_volume(within=2)"))
        set_(self, "sinks", named_sinks(given, sinks))
        set_(self, "description", given.instance("description", description, str, "text"))
        set_(self, "schedule", scheduled(given, schedule))
        set_(self, "backfill", given.optional("backfill", backfill, Backfill, 'Backfill("0 3 * * *", last="7d")'))
        rule = 'Retention(keep_last=100, keep_for="30d")'
        set_(self, "retention", given.optional("retention", retention, Retention, rule))
        options = 'airflow(owner="sales", retries=3)'
        set_(self, "airflow", given.optional("airflow", airflow, AirflowOptions, options))
        set_(self, "executor", executor_name(given, executor))
        set_(self, "allow_finishing", given.flag("allow_finishing", allow_finishing))
        set_(self, "allow_double_counting", given.flag("allow_double_counting", allow_double_counting))
        _check_whole(given, self)

    @cached_property
    def by_output(self) -> "Mapping[str, Pipeline]":
        """The pipeline as each output alone has it, by name; one without names itself, called ""."""
        alone: dict[str, Pipeline] = {}
        for name in pipeline_output.upstream_first(self.outputs):
            alone[name] = self._alone(name, alone)
        return {name: alone[name] for name in self.outputs} or {"": self}

    @property
    def of_records(self) -> "Mapping[str, Pipeline]":
        """Outputs of ``by_output`` that read records; the others read panes of outputs."""
        return {name: alone for name, alone in self.by_output.items() if not alone.upstream}

    @property
    def upstream(self) -> tuple[pipeline_output.Upstream, ...]:
        """The outputs whose panes its only output reads; none: it reads records."""
        return self._upstream

    def _alone(self, output: str, above: "Mapping[str, Pipeline]") -> "Pipeline":
        """The pipeline with that output alone, given those that it reads. Raises PipelineError for a mistake in it."""
        own = self.outputs[output]
        of_records = [] if own.of else [self.filter]
        both = [condition for condition in (*of_records, own.filter) if condition is not None]
        names = [part.name for part in fields(own) if part.name not in _NOT_AS_THEY_ARE]
        parts: dict[str, Any] = {name: getattr(own, name) for name in names}
        parts |= {name: getattr(self, name) for name in _OF_ALL_OUTPUTS}
        try:
            return Pipeline(
                self.name,
                self.input,
                filter=reduce(and_, both) if both else None,
                limits=self.limits if own.limits is None else own.limits.over(self.limits),
                description=own.description or self.description,
                _upstream=[pipeline_output.Upstream(name, above[name], own.columns.get(name, {})) for name in own.of],
                **parts,
            )
        except PipelineError as error:
            kind = LoopError if isinstance(error, LoopError) else PipelineError
            raise kind(f"output {output} of {error}") from None

    @property
    def expected(self) -> Mapping[str, tuple[Expectation, ...]]:
        """What is expected of each output, by its name."""
        return {output: alone.expectations for output, alone in self.by_output.items()}

    @property
    def has_names(self) -> bool:
        """Whether its outputs have names; the only one of others has none."""
        return bool(self.outputs)

    @property
    def source(self) -> Source:
        """The source of its own input."""
        return self.input.source

    @property
    def event_time(self) -> EventTime:
        """Event time and watermark of its own input."""
        return self.input.event_time

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Its aggregations as they run, first to last. Raises SeveralOutputsError if it has outputs with names: each
        of ``by_output`` has its own.
        """
        if self.outputs:
            raise SeveralOutputsError(
                f"pipeline {self.name} has the outputs {', '.join(self.outputs)}: name one of them, such as "
                f"{self.name}.{next(iter(self.outputs))}"
            )
        united = pipeline_output.UnitedPanes(self.upstream) if self.upstream else None
        schema = self.schema if self.loop is None else element_schema(self.loop, self.key, self.schema)
        first = Stage(self.first, schema, self.withdraws_records)
        stages = [(first if united is None else united.stage(self.first)).appending_once]
        for aggregation in self.then:
            stages.append(stages[-1].followed_by(aggregation))
        return tuple(stages)

    def _selection(
        self, given: Arguments, own: Mapping[str, Any], condition: Expr | None, renamed: Mapping[str, str] | None
    ) -> Selection:
        """What its rows are made of."""
        rows, take = own["rows"], own["take"]
        if take is None:
            check_without_windows(given, own)
            return Selection(given.owner, rows, condition, renamed)
        check_no_aggregate(given, own)
        where_when_how = {name: own[name] for name in ("where", "when", "how")}
        return GroupRows(
            given.owner,
            rows or self._columns_that_come,
            key=own["key"],
            take=take,
            condition=condition,
            renamed=renamed,
            **where_when_how,
        )

    @property
    def _columns_that_come(self) -> dict[str, Expr]:
        """The columns of what comes to its first stage that hold one value each."""
        schema = pipeline_output.UnitedPanes(self.upstream).schema if self.upstream else self.schema
        return {name: Column(name) for name, kind in schema.items() if isinstance(kind, DataType) and name not in _ENDS}

    @property
    def of_edges(self) -> tuple[Aggregation, ...]:
        """The grouping of records as edges, where it has a loop."""
        return () if self._edges is None else (self._edges,)

    @cached_property
    def edges(self) -> Stage | None:
        """Records as the edges of its loop, grouped by their ends and what the loop's step reads of them; None without
        a loop. What becomes of records is decided here; its first aggregation is of what the loop makes of them.
        """
        if self.loop is None or self._edges is None:
            return None
        return Stage(self._edges, self.schema, terms=self.loop.compiled_step.terms)

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """All inputs in the order in which their records arrive, its own first, under the name ``OWN``."""
        return (self.input, *self.union)

    @property
    def withdraws_records(self) -> bool:
        """Whether records of some input can withdraw others (semantics 14)."""
        return any(given.source.changelog is not None for given in self.inputs)

    @property
    def own_functions(self) -> tuple[OwnFunction, ...]:
        """The functions of a user's own that it names, at its inputs and between its stages."""
        named = [given.source.transform for given in self.inputs]
        named += [stage.aggregation.transform for own in self.by_output.values() for stage in own.stages]
        return tuple(function for function in named if function is not None)

    @property
    def spark_functions(self) -> tuple[SparkFunction, ...]:
        """The Spark code of a user's own that it names, at its inputs and between its stages."""
        return tuple(function for function in self.own_functions if isinstance(function, SparkFunction))

    @property
    def signals(self) -> list[str]:
        """The names of the signals that its triggers wait for."""
        stages = [stage for own in self.by_output.values() for stage in own.stages]
        triggers = [node for stage in stages for node in trigger_nodes(stage.when)]
        return sorted({name for node in triggers for name in node.signals})

    @property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns of its panes (those of the last stage) and their types, in order."""
        return self.stages[-1].key_types

    @property
    def record_key_types(self) -> Mapping[str, DataType]:
        """Columns of the key that records have, or panes of outputs that it reads, and their types, in order."""
        if self.edges is None:
            return self.stages[0].key_types
        return {name: kind for name, kind in self.edges.key_types.items() if name in self.key}

    @property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregate columns of its panes and their types, in order."""
        return self.stages[-1].value_types

    @property
    def schema(self) -> Schema:
        """Columns of a record, as event time, key and aggregates read them."""
        return self.source.columns


def _check_whole(given: Arguments, pipeline: Pipeline) -> None:
    """Raise PipelineError if parts of ``pipeline``, each of which is right, do not fit."""
    if pipeline.backfill is not None:
        pipeline.backfill.check_output(given, pipeline.outputs)
    for alone in pipeline.by_output.values():
        check(alone)


def _own_input(given: Arguments, value: object) -> Input:
    if isinstance(value, Source):
        raise given.wrong(
            "input", value, 'it has no event time; write .event_time("at", bound="1h") after it, or .arrival_time()'
        )
    own = given.instance("input", value, Input, 'json("landing/flights", {...}).event_time("at", bound="1h")')
    if own.name != OWN:
        raise given.wrong("input", value, "only the inputs of union= are named; leave out .named(...)")
    return own
