"""The pipeline itself: a frozen value whose fields read in the order of the model's questions.

input, key, *what* (aggregates), *where* (windows), *when* (trigger), *how* (accumulation, lateness), and the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, reduce
from operator import and_
from typing import Any, Final

from headrace.errors import PipelineError
from headrace.model.accumulation import WINDOW_END, WINDOW_START, How
from headrace.model.arguments import Arguments, check_keywords
from headrace.model.event_time import Deduplicate
from headrace.model.expressions.columns import Key, require_expression
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Aggregate, Column, Expr
from headrace.model.triggers import Trigger
from headrace.model.triggers.elementary import Default
from headrace.model.windows import WindowFn
from headrace.pipeline import output as pipeline_output
from headrace.pipeline.deployment import AirflowOptions, Backfill, Retention, Schedule, checked_schedule
from headrace.pipeline.endpoints import OWN, Input, OwnFunction, Sink, Source, SparkFunction, named_sinks
from headrace.pipeline.joins import Join
from headrace.pipeline.loops import Loop
from headrace.pipeline.parts import PipelineParts, Upstream
from headrace.pipeline.quality import Expectation, Limits, UsualCheck
from headrace.pipeline.rows import (
    AT_THE_END,
    AtTheEnd,
    Every,
    GroupFunction,
    GroupRows,
    Newest,
    RowColumns,
    Selection,
    Take,
    check_no_aggregate,
    select_columns,
)
from headrace.pipeline.scheduling import PIPELINE_NAME, SPARK, executor_name
from headrace.pipeline.stages import Aggregation, make_grouping, trigger_nodes
from headrace.pipeline.validation import validate_pipeline

_NOT_AS_THEY_ARE: Final = frozenset({"of", "columns", "join", "first", "filter", "limits", "description", "formerly"})
"""Fields of an output that a pipeline with it alone lacks, or has with something more."""

_WINDOW_ENDS: Final = (WINDOW_START, WINDOW_END)

_OF_ALL_OUTPUTS: Final = ("deduplicate", "union", "schedule", "retention", "airflow", "executor")
"""What a pipeline says for all its outputs."""


_PARTS_UNUSED: Final[Mapping[str, object]] = {
    **{name: {} for name in ("key", "what", "renamed", "rows")},
    **dict.fromkeys(("where", "how", "having", "loop", "first", "_edges", "take")),
    "id": (),
}
"""What a pipeline with outputs has of what each of them has by itself."""


@dataclass(frozen=True, init=False)
class Pipeline(PipelineParts["Pipeline"]):
    """One aggregation of ``input``, or several in a chain (``then``); or several ``outputs``, each with its own.

    ``key`` is the name of a column, a list of names, expressions by name, or None for one group of all; a record whose
    event time or any key is NULL goes to the dead letter; with ``null_keys=True`` NULL is a value of a key like others,
    there and in ``then``, as in SQL's GROUP BY. ``what``, ``where``, ``when`` and ``how`` are the four
    questions of the model; ``what`` can name expressions over aggregates, too, and only rows of results of which
    ``having`` is TRUE leave (see ``Aggregation``). ``filter`` is applied after the check for NULL; what it removes
    still moves the watermark.
    ``allow_finishing`` accepts a trigger that can finish and so drop data (semantics 4.8).
    ``allow_double_counting`` accepts accumulating panes that feed another aggregation, where a pane and its refinements
    all count (7.6).
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
    ``join`` brings rows of further inputs along, one join behind the other: ``as_of``, ``within``, ``same_window``,
    ``next_event``, ``lookup``. What comes after it (filter, key, aggregates, columns of rows) reads columns of both
    sides.
    ``rows`` replace ``key``, ``what``, ``where``, ``when`` and ``how``: each record that passes ``filter`` leaves as a
    row of these columns. ``id`` names the columns that are unique; with ``take`` some rows of each ``key`` leave (see
    ``Rows``).
    ``outputs``, by name, are computed of the same records, each with a key, windows and all else of its own (see
    ``Output``); ``filter`` and ``deduplicate`` come before all of them. The pipeline has no key of its own then.
    ``description`` is text for people. Raises PipelineError, saying what to change, when the parts do not fit.

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

    @check_keywords
    def __init__(
        self,
        name: str,
        input: Input,  # noqa: A002 (the word of the domain)
        *,
        key: Key = None,
        what: Mapping[str, Aggregate | Expr] | None = None,
        where: WindowFn | None = None,
        when: Trigger | None = AT_THE_END,
        how: How | None = None,
        filter: Expr | None = None,  # noqa: A002 (the word of the domain)
        having: Expr | None = None,
        renamed: Mapping[str, str] | None = None,
        loop: Loop | None = None,
        deduplicate: Deduplicate | None = None,
        union: Sequence[Input] = (),
        join: Sequence[Join] = (),
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
        null_keys: bool = False,
        allow_finishing: bool = False,
        allow_double_counting: bool = False,
        _upstream: Sequence[Upstream["Pipeline"]] = (),
    ) -> None:
        if not isinstance(name, str) or not PIPELINE_NAME.fullmatch(name):
            raise Arguments("Pipeline").refusal(
                "name", name, "write lower case letters, digits and _, at most 63, starting with a letter"
            )
        arguments = Arguments(f"Pipeline {name}")
        set_ = object.__setattr__
        set_(self, "_upstream", tuple(_upstream))
        if when is None and not _upstream:
            raise arguments.refusal(
                "when", when, "there is no trigger before it to continue; leave it out for Default()"
            )
        set_(self, "name", name)
        set_(self, "input", _own_input(arguments, input))
        set_(self, "union", arguments.tuple_of("union", union, Input, 'csv(...).event_time(...).named("weather")'))
        set_(self, "join", _own_joins(arguments, join, of_records=not _upstream))
        several = pipeline_output.named_outputs(arguments, outputs)
        set_(self, "outputs", several)
        own: dict[str, object] = {"key": key, "what": what, "where": where, "how": how, "having": having, "loop": loop}
        own |= {"then": then, "when": when, "rows": rows, "take": take, "null_keys": null_keys}
        own |= {"allow_finishing": allow_finishing, "allow_double_counting": allow_double_counting}
        if several:
            own |= {"renamed": renamed, "id": id}
            own |= {"expectations": expectations, "usual": usual, "sinks": sinks}
            own |= {"when": None if isinstance(when, Default) else when}
            pipeline_output.check_apart(arguments, own)
            parts: dict[str, object] = {**_PARTS_UNUSED, "when": _trigger_as_written(when)}
            parts |= {"filter": None if filter is None else require_expression(arguments, "filter", filter)}
        elif take is not None or (rows is not None and rows != {}):
            selection = self._make_selection(arguments, own, filter, renamed)
            parts = {**selection.fields, "_edges": None, "id": selection.id_columns(arguments, id)}
        else:
            if id is not None and id != ():
                raise arguments.refusal(
                    "id", id, "it names columns of rows=; what an aggregation gives goes by its key"
                )
            trigger = _trigger_as_written(when)
            questions = {"where": where, "when": trigger, "how": how, "having": having, "renamed": renamed}
            first = make_grouping(arguments, loop, key=key, what=what, filter=filter, **questions)
            parts = {**first.fields, "_edges": first.edges, "rows": {}, "id": (), "take": None}
        deduplicate_example = 'Deduplicate("id", "1d")'
        rule = 'Retention(keep_last=100, keep_for="30d")'
        options = 'airflow(owner="sales", retries=3)'
        parts |= {
            "deduplicate": arguments.optional_instance("deduplicate", deduplicate, Deduplicate, deduplicate_example),
            "then": arguments.tuple_of("then", then, Aggregation, "Aggregation(...)"),
            "expectations": arguments.tuple_of("expectations", expectations, Expectation, "expect(...)"),
            "limits": arguments.optional_instance("limits", limits, Limits, 'Limits(rejected="1%", newest_file="1h")'),
            "usual": arguments.tuple_of("usual", usual, UsualCheck, "usual_volume(within=2)"),
            "sinks": named_sinks(arguments, sinks),
            "description": arguments.instance("description", description, str, "text"),
            "schedule": checked_schedule(arguments, schedule),
            "backfill": arguments.optional_instance("backfill", backfill, Backfill, 'Backfill("0 3 * * *", last="7d")'),
            "retention": arguments.optional_instance("retention", retention, Retention, rule),
            "airflow": arguments.optional_instance("airflow", airflow, AirflowOptions, options),
            "executor": executor_name(arguments, executor),
            "null_keys": arguments.flag("null_keys", null_keys),
            "allow_finishing": arguments.flag("allow_finishing", allow_finishing),
            "allow_double_counting": arguments.flag("allow_double_counting", allow_double_counting),
        }
        for part, value in parts.items():
            set_(self, part, value)
        _check_whole(arguments, self)

    @cached_property
    def by_output(self) -> "Mapping[str, Pipeline]":
        """The pipeline as each output alone has it, by name; one without names itself, called ""."""
        pipelines: dict[str, Pipeline] = {}
        for name in pipeline_output.upstream_first(self.outputs):
            pipelines[name] = self._single_output(name, pipelines)
        return {name: pipelines[name] for name in self.outputs} or {"": self}

    @property
    def of_records(self) -> "Mapping[str, Pipeline]":
        """Outputs of ``by_output`` that read records; the others read panes of outputs."""
        return {
            name: output_pipeline for name, output_pipeline in self.by_output.items() if not output_pipeline.upstream
        }

    def _single_output(self, output: str, upstream_pipelines: "Mapping[str, Pipeline]") -> "Pipeline":
        """The pipeline with that output alone, given those that it reads. Raises PipelineError for a mistake in it."""
        own = self.outputs[output]
        of_records = [] if own.of else [self.filter]
        both = [condition for condition in (*of_records, own.filter) if condition is not None]
        names = [part.name for part in fields(own) if part.name not in _NOT_AS_THEY_ARE]
        parts: dict[str, Any] = {name: getattr(own, name) for name in names}
        parts |= {name: getattr(self, name) for name in _OF_ALL_OUTPUTS}
        parts["join"] = (*self.join, *own.join)
        if own.of:
            parts["join"] = [
                join.with_panes(stage.pane_schema, can_be_withdrawn=stage.withdraws)
                for join, stage in ((join, upstream_pipelines[join.name].stages[-1]) for join in own.join)
            ]
        sides = enumerate(own.join, start=1) if own.of else ()
        try:
            return Pipeline(
                self.name,
                self.input,
                filter=reduce(and_, both) if both else None,
                limits=self.limits if own.limits is None else own.limits.over(self.limits),
                description=own.description or self.description,
                _upstream=[
                    *(Upstream(name, upstream_pipelines[name], own.columns.get(name, {})) for name in own.of),
                    *(Upstream(join.name, upstream_pipelines[join.name], {}, number) for number, join in sides),
                ],
                **parts,
            )
        except PipelineError as error:
            raise type(error)(f"output {output} of {error}") from None

    @property
    def expected(self) -> Mapping[str, tuple[Expectation, ...]]:
        """What is expected of each output, by its name."""
        return {output: output_pipeline.expectations for output, output_pipeline in self.by_output.items()}

    def _make_selection(
        self, arguments: Arguments, own: Mapping[str, Any], condition: Expr | None, renames: Mapping[str, str] | None
    ) -> Selection:
        """What its rows are made of."""
        rows, take = own["rows"], own["take"]
        if take is None or isinstance(take, Every):
            return select_columns(arguments.owner, rows, own, condition=condition, renamed=renames)
        check_no_aggregate(arguments, own)
        versions = None if self.upstream else self.source.versions
        if versions is not None and isinstance(take, Newest):
            take = take.of_versions(arguments, versions)
        where_when_how = {name: own[name] for name in ("where", "when", "how")}
        return GroupRows(
            arguments.owner,
            rows or self._columns_that_come(has_lists=not getattr(take, "computes", False)),
            key=own["key"],
            take=take,
            condition=condition,
            renamed=renames,
            **where_when_how,
        )

    def _columns_that_come(self, *, has_lists: bool) -> dict[str, Expr]:
        """The columns of what comes to its first stage, with lists or without, but what a source says beside them."""
        schema = self.joined_schema if self.join or self.united_panes is None else self.united_panes.schema
        left = _WINDOW_ENDS if self.upstream else {*_WINDOW_ENDS, *self.source.columns_beside}
        kinds = {name: kind for name, kind in schema.items() if name not in left}
        return {name: Column(name) for name, kind in kinds.items() if has_lists or isinstance(kind, DataType)}

    @property
    def own_functions(self) -> tuple[OwnFunction, ...]:
        """The functions of a user's own that it names, at its inputs and between its stages."""
        functions = [input_.source.transform for input_ in self.inputs]
        functions += [stage.aggregation.transform for own in self.by_output.values() for stage in own.stages]
        return (*(function for function in functions if function is not None), *self.group_functions)

    @property
    def group_functions(self) -> tuple[GroupFunction, ...]:
        """The functions of a user's own that make rows of those of a group."""
        takes = [own.take for own in self.by_output.values()]
        return tuple(take for take in takes if isinstance(take, GroupFunction))

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


def _trigger_as_written(when: Trigger | None) -> Trigger | None:
    """``when``, or the trigger that it is where nobody wrote it."""
    return Default() if isinstance(when, AtTheEnd) else when


def _check_whole(arguments: Arguments, pipeline: Pipeline) -> None:
    """Raise PipelineError if parts of ``pipeline``, each of which is right, do not fit."""
    if pipeline.backfill is not None:
        pipeline.backfill.check_output(arguments, pipeline.outputs)
    by_name = {one.name: one for one in pipeline.inputs}
    for join in pipeline.joins_of_inputs:
        if repr(join.right) != repr(by_name[join.name]):  # an expression equals nothing
            raise arguments.refusal(
                "join", join.name, "two joins have other inputs of this name; name one of them otherwise"
            )
    for output_pipeline in pipeline.by_output.values():
        validate_pipeline(output_pipeline)


def _own_joins(arguments: Arguments, value: Sequence[Join], *, of_records: bool) -> tuple[Join, ...]:
    joins = arguments.tuple_of("join", value, Join, 'as_of(rates, on="currency")')
    for join in joins:
        if of_records and join.is_of_output:
            why = 'records are joined with inputs; an output joins outputs: hr.Output(of="trades", join=[...])'
            raise arguments.refusal("join", join.name, why)
    return joins


def _own_input(arguments: Arguments, value: object) -> Input:
    if isinstance(value, Source):
        raise arguments.refusal(
            "input", value, 'it has no event time; write .event_time("at", bound="1h") after it, or .arrival_time()'
        )
    own = arguments.instance("input", value, Input, 'json("landing/flights", {...}).event_time("at", bound="1h")')
    if own.name != OWN:
        raise arguments.refusal("input", value, "only the inputs of union= are named; leave out .named(...)")
    return own
