"""What can be wrong with a pipeline when it is built, each with what to change (semantics 4.8).

Its size is checked before anything else looks into its expressions and triggers. An output with a loop has rules of its
own for where, when and how (semantics 13); so has a pipeline whose records can withdraw others (``withdrawals``).
Pipelines that read each other in a circle are refused: none could ever be the first to be computed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from headrace.errors import PipelineError
from headrace.model import windows
from headrace.model.accumulation import (
    EVENT_TIME,
    LATE_COLUMNS,
    PANE_COLUMNS,
    ROW_COLUMNS,
    WINDOW_END,
    WINDOW_START,
    Accumulation,
    How,
    TimestampCombiner,
)
from headrace.model.arguments import kinds_by_word, locate_errors
from headrace.model.event_time import Deduplicate, EventTime, Punctuated, SplitStrategy, WatermarkStrategy
from headrace.model.expressions.data_types import (
    ColumnType,
    DataType,
    NestedType,
    PairsType,
    Schema,
    in_words,
    is_text,
    parts_of,
)
from headrace.model.expressions.expr import Aggregate, Column, Expr, render
from headrace.model.expressions.typing import columns_of, kind_of, output_type, too_large, tree_extent, type_of
from headrace.model.triggers import Trigger
from headrace.model.triggers.custom import CustomTrigger
from headrace.model.triggers.data_driven import AfterPattern, DataDriven
from headrace.model.triggers.elementary import AfterPercentileWatermark, Default
from headrace.pipeline.deployment import FileSchedule
from headrace.pipeline.endpoints import OWN, Input, Source
from headrace.pipeline.joins import wrong_beside_joins
from headrace.pipeline.loops import OF_PANES, LoopError, element_schema
from headrace.pipeline.parts import PipelineParts, Upstream
from headrace.pipeline.rows import BUCKET, GroupRows, check_event_time_name
from headrace.pipeline.sources import FilesSource, UpstreamSource, upstream_sources
from headrace.pipeline.stages import Aggregation, Stage, check_finishing
from headrace.pipeline.stages import check_own_triggers as check_own
from headrace.pipeline.stages import check_trigger_reads as check_reads
from headrace.pipeline.stages import trigger_nodes as nodes
from headrace.pipeline.withdrawals import (
    check_changelog,
    check_versions,
    wrong_for_versions,
    wrong_for_withdrawals,
    wrong_for_withdrawn_rows,
)

AnyPipeline = PipelineParts[Any]


def check_loop(pipeline: AnyPipeline) -> None:
    """Raise LoopError if the loop of a ``pipeline`` has no result, or one that depends on how input is cut."""
    assert pipeline.loop is not None
    if pipeline.upstream:
        raise LoopError(f"loop: {OF_PANES}")
    element_schema(pipeline.loop, pipeline.key, pipeline.schema)
    for why in (_wrong_loop_windows(pipeline), _wrong_loop_how(pipeline), _wrong_loop_trigger(pipeline)):
        if why is not None:
            raise LoopError(why)


def _wrong_loop_windows(pipeline: AnyPipeline) -> str | None:
    where = pipeline.first.where
    if isinstance(where, windows.GlobalWindows | windows.CalendarWindows) or (
        isinstance(where, windows.FixedWindows) and where.phase is None
    ):
        return None
    return (
        f"where={where!r}: the ends of an edge must be in the same window, and in one: a loop takes GlobalWindows(), "
        "FixedWindows without a phase, or CalendarWindows"
    )


def _wrong_loop_how(pipeline: AnyPipeline) -> str | None:
    how = pipeline.first.how
    if how.accumulation is Accumulation.DISCARDING:
        return (
            "how: discarding forgets the value of a vertex with each pane, and edges that come later need it; use "
            "how=retracting() or how=accumulating()"
        )
    if how.keep_last is not None:
        return "how: keep_last needs an order of arrival, which the values of a loop do not have; leave it out"
    if how.timestamp is not TimestampCombiner.END_OF_WINDOW:
        return "how: the values of a loop are of the whole window, at its end; leave timestamp out"
    return None


def _wrong_loop_trigger(pipeline: AnyPipeline) -> str | None:
    if pipeline.allow_finishing:
        return (
            "allow_finishing=True: a window that has finished forgets its values, and edges that come later need them; "
            "leave it out"
        )
    one_by_one = [node for node in nodes(pipeline.stages[0].when) if isinstance(node, AfterPattern | CustomTrigger)]
    if one_by_one:
        return (
            f"when: {type(one_by_one[0]).__name__} looks at elements in their order of arrival, which the values of a "
            "loop do not have; use another trigger"
        )
    return None


N = TypeVar("N")


class UpstreamCycleError(PipelineError, code="config.upstream_cycle"):
    """A pipeline reads itself, also by way of others."""

    @classmethod
    def from_cycle(cls, circle: Iterable[object]) -> "UpstreamCycleError":
        """The error that names a ``circle``, with the same pipeline at both ends."""
        path = " reads ".join(map(str, circle))
        return cls(f"{path}: a pipeline cannot read itself, also not by way of others; leave one of the inputs out")


def check_no_circle(start: N, upstreams: Callable[[N], Iterable[N]]) -> None:
    """Raise UpstreamCycleError, with the shortest way round, if ``start`` reads itself. ``upstreams`` is asked of each
    pipeline once.
    """
    ways: dict[N, tuple[N, ...]] = {start: (start,)}
    front = [start]
    for name in front:  # which grows
        for upstream in upstreams(name):
            if upstream == start:
                raise UpstreamCycleError.from_cycle((*ways[name], start))
            if upstream not in ways:
                ways[upstream] = (*ways[name], upstream)
                front.append(upstream)


def check_beside(pipeline: AnyPipeline, other_pipelines: Iterable[AnyPipeline] = ()) -> None:
    """Raise UpstreamCycleError if ``pipeline`` reads itself through ``other_pipelines``, whatever root they are under.
    An input that names its root counts for nothing.
    """
    if not read_beside(pipeline):
        return
    pipelines_by_name = {one.name: one for one in (*other_pipelines, pipeline)}
    check_no_circle(
        pipeline.name, lambda name: read_beside(pipelines_by_name[name]) if name in pipelines_by_name else ()
    )


def read_beside(pipeline: AnyPipeline) -> list[str]:
    """The pipelines that ``pipeline`` reads under its own root, whatever that is."""
    if not any(input_.source.is_upstream for input_ in pipeline.inputs):
        return []
    return [source.pipeline for source in upstream_sources(pipeline.inputs).values() if source.root is None]


MOST_AGGREGATIONS = 100
MOST_TRIGGERS, DEEPEST_TRIGGER = 500, 50


def check_bounds(inputs: Sequence[Input], deduplicate: Deduplicate | None, aggregations: Sequence[Aggregation]) -> None:
    """Raise PipelineError for a pipeline of these parts that is too large."""
    if len(aggregations) > MOST_AGGREGATIONS:
        raise PipelineError(
            f"it has {len(aggregations):,} aggregations, and may have {MOST_AGGREGATIONS}: write several pipelines"
        )
    for aggregation in aggregations:
        if aggregation.when is not None:
            _check_trigger(aggregation.when)
    for purpose, expr in _expressions_by_purpose(inputs, deduplicate, aggregations):
        if why := too_large(expr):
            raise PipelineError(f"{purpose}: {why}")


def _check_trigger(trigger: Trigger) -> None:
    size = tree_extent(trigger, lambda node: node.children if isinstance(node, Trigger) else ())
    if size.depth > DEEPEST_TRIGGER or size.nodes > MOST_TRIGGERS:
        raise PipelineError(
            f"when: the trigger has {size.nodes:,} nodes in {size.depth:,} levels, and may have {MOST_TRIGGERS} in "
            f"{DEEPEST_TRIGGER}: leave out what does not change when it fires"
        )


def _expressions_by_purpose(
    inputs: Sequence[Input], deduplicate: Deduplicate | None, aggregations: Sequence[Aggregation]
) -> Iterator[tuple[str, Expr]]:
    for input_ in inputs:
        yield from input_.event_time.expressions()
        yield from ((f"column {name} of input {input_.name}", expr) for name, expr in input_.columns.items())
    if deduplicate is not None:
        yield "the id of Deduplicate", deduplicate.id
    for aggregation in aggregations:
        yield from aggregation.expressions()
        yield from aggregation.result_expressions()
        where = windows.unshift_windows(aggregation.where)
        if isinstance(where, windows.FixedWindows) and where.phase is not None:
            yield "the phase", where.phase
        for node in () if aggregation.when is None else nodes(aggregation.when):
            if isinstance(node, DataDriven):
                yield "DataDriven", node.ready_if


def validate_pipeline(pipeline: AnyPipeline) -> None:
    """Raise PipelineError for the first mistake found in ``pipeline``."""
    with locate_errors(f"pipeline {pipeline.name}", kind=None):
        aggregations = [pipeline.first, *pipeline.then]
        check_bounds(pipeline.inputs, pipeline.deduplicate, [*pipeline.of_edges, *aggregations])
        _check_inputs(pipeline)
        for aggregation in aggregations:
            _check_vocabulary(aggregation.when or pipeline.when, aggregation.where)
        _check_edges(pipeline)
        stages = pipeline.stages
        _check_null_keys(pipeline)
        _check_changelogs(pipeline)
        _check_versions(pipeline)
        times = [input_.event_time.expr for input_ in pipeline.left_inputs]
        check_event_time_name(pipeline.rows, [Column(EVENT_TIME)] if pipeline.upstream else times)
    check_beside(pipeline)
    for number, stage in enumerate(stages, start=1):
        place = f"aggregation {number} of " if pipeline.then else ""
        with locate_errors(f"{place}pipeline {pipeline.name}", kind=None):
            _check_stage(stage, pipeline.allow_finishing)
    _check_id(pipeline)
    for name in pipeline.key:
        if name.lower() in LATE_COLUMNS:
            raise PipelineError(
                f"pipeline {pipeline.name}: key {name!r} is a column of late records; choose another name than "
                f"{', '.join(LATE_COLUMNS)}"
            )
    own_columns = ROW_COLUMNS if pipeline.rows else PANE_COLUMNS
    with locate_errors(f"pipeline {pipeline.name}"):
        for expectation in pipeline.expectations:
            expectation.check_columns([*pipeline.key_types, *pipeline.value_types, *own_columns])
        for usual_check in pipeline.usual:
            usual_check.check_column({**pipeline.key_types, **pipeline.value_types})
    _check_sinks(pipeline)
    for upstream_output in pipeline.upstream:
        place = f"pipeline {pipeline.name}: output {upstream_output.output}"
        _check_edge(upstream_output.stage, stages[0], place, pipeline.allow_double_counting)
        _check_order(upstream_output, stages[0], place)
    for number, (upper, lower) in enumerate(pairwise(stages), start=1):
        _check_edge(upper, lower, f"pipeline {pipeline.name}: aggregation {number}", pipeline.allow_double_counting)


def _check_id(pipeline: AnyPipeline) -> None:
    """The columns of ``id``: values, also of rows that a function or a query gives."""
    for name in pipeline.id:
        kind = pipeline.value_types.get(name)
        if isinstance(kind, NestedType):
            why = f"{name!r} is a {in_words(kind)}, and few targets know rows by one; name values"
            raise PipelineError(f"pipeline {pipeline.name}: id: {why}")
        if name not in (*pipeline.value_types, EVENT_TIME):
            columns_text = ", ".join(pipeline.value_types)
            raise PipelineError(
                f"pipeline {pipeline.name}: id={name!r}: there is no such column; rows have {columns_text}"
            )


def _check_null_keys(pipeline: AnyPipeline) -> None:
    if pipeline.null_keys and pipeline.loop is not None:
        raise LoopError("null_keys=True: a key has the ends of an edge, and NULL is no vertex; leave it out")
    if pipeline.null_keys and not any(stage.aggregation.key for stage in pipeline.stages):
        raise PipelineError("null_keys=True: there is no key that could be NULL; leave it out, or give a key=")


def _check_sinks(pipeline: AnyPipeline) -> None:
    for sink in pipeline.sinks:
        if pipeline.rows and sink.gets_final_rows and (why := _never_final(pipeline)) is not None:
            raise PipelineError(f"pipeline {pipeline.name}: sink {sink.name} gets final rows, and {why}")
        for name in (*pipeline.key_types, *pipeline.value_types):
            if (why := sink.refuses_column(name)) is not None:
                raise PipelineError(
                    f"pipeline {pipeline.name}: sink {sink.name} has no column {name!r}: {why}; rename it"
                )


def _never_final(pipeline: AnyPipeline) -> str | None:
    """Why rows as they are cannot be handed to who cannot take back."""
    if pipeline.stages[-1].withdraws:
        return "these can be withdrawn at any time: deliver to a sink that can take back"
    if not pipeline.id:
        return 'one that comes again is known by its id: write id=, such as id="order"'
    return None


def _expect_type(what: str, expr: Expr, schema: Schema, expected_type: DataType) -> None:
    actual = type_of(expr, schema)
    if actual is not expected_type:
        raise PipelineError(f"{what} is {actual}, and must be {expected_type}")


def _check_inputs(pipeline: AnyPipeline) -> None:
    _check_event_time(pipeline.event_time, pipeline.schema)
    for input_ in pipeline.inputs:
        if isinstance(input_.source, FilesSource):
            _check_place(pipeline, input_.source.path)
        elif isinstance(pipeline.schedule, FileSchedule):
            _check_watched(input_.name, input_.source)
    names = [input_.name for input_ in pipeline.inputs]
    _check_joins(pipeline)
    for other in pipeline.union:
        if not other.name or names.count(other.name) > 1:
            raise PipelineError(f"every further input needs a name of its own besides {OWN!r}, found {names[1:]}")
        _check_event_time(other.event_time, other.source.columns)
        other.expressions(pipeline.schema)
    if pipeline.deduplicate is not None:
        with locate_errors("deduplicate"):
            kind = kind_of(pipeline.deduplicate.id, pipeline.schema)
            if kind in (None, DataType.FLOAT):
                raise PipelineError(f"the id is {kind}, which does not compare exactly; cast it to string")
            if isinstance(kind, NestedType) and DataType.FLOAT in parts_of(kind):
                raise PipelineError(
                    f"the id is a {in_words(kind)}, and a float in it does not compare exactly; declare that as "
                    "Decimal, or take a part of the id without it"
                )


_ONE_BY_ONE = (AfterPattern, CustomTrigger, AfterPercentileWatermark)


def _check_joins(pipeline: AnyPipeline) -> None:
    """What is joined, and whether what is behind it can do without an order of arrival."""
    joins, left = pipeline.join, () if pipeline.upstream else pipeline.left_inputs
    if not joins:
        return
    names = {input_.name for input_ in left}
    for join in joins:
        if join.is_of_output:
            continue
        if join.name in names:
            raise PipelineError(f"join: an input {join.name!r} is there already; give one of them another name")
        with locate_errors(f"event time of {join.name}"):
            _check_event_time(join.right.event_time, join.right.source.columns)
    if problem := wrong_beside_joins(joins, left, has_loop=pipeline.loop is not None):
        raise PipelineError(problem)
    pipeline.joined_schema  # noqa: B018 - which says what is wrong with their sides
    first = pipeline.first
    when = () if first.when is None else nodes(first.when)
    one_by_one = [type(node).__name__ for node in when if isinstance(node, _ONE_BY_ONE)]
    if one_by_one or first.how.keep_last is not None:
        raise PipelineError(
            f"{one_by_one[0] if one_by_one else 'keep_last'} goes by what records say one by one, or by the order in "
            "which they come, and joined rows have none; use another trigger, or let a further aggregation do it"
        )


def _check_watched(name: str, source: Source) -> None:
    if not source.is_watched:
        raise PipelineError(
            f"schedule=on_files(...) watches files, topics and sources that say so, and input {name} reads {source}: "
            'only a run can ask that what is new. Write a schedule by times, such as "*/5 * * * *"'
        )
    source.watched_fields()


def _check_place(pipeline: AnyPipeline, path: str) -> None:
    """Whether input lies outside of the pipeline's own folder, of which expiry deletes what it lists there."""
    if "://" in path:
        return  # a run compares it with its root
    top_folder = path.strip("/").partition("/")[0]
    if top_folder in ("", pipeline.name):
        holds = "is in" if top_folder else "holds"
        raise PipelineError(
            f"input {path!r} {holds} the folder {pipeline.name}/, where Headrace keeps the pipeline's snapshots: land "
            f'files elsewhere and write "landing/{pipeline.name}", or give the pipeline another name'
        )


def _check_event_time(event_time: EventTime, schema: Schema) -> None:
    strategy = event_time.watermark
    if not isinstance(strategy, WatermarkStrategy):
        raise PipelineError(f"{strategy!r} is not a watermark strategy; use BoundedOutOfOrderness(bound) or another")
    if isinstance(strategy, SplitStrategy) is (event_time.expr is None):
        raise PipelineError(
            "Ingestion() takes the time of arrival, so its event time is None; every other strategy needs an expression"
        )
    if event_time.expr is not None:
        with locate_errors("event_time(at)"):
            _expect_type("the event time", event_time.expr, schema, DataType.TIMESTAMP)
    if event_time.split is not None:
        with locate_errors("event_time(split)"):
            _expect_type("the split", event_time.split, schema, DataType.STRING)
    if isinstance(strategy, Punctuated):
        with locate_errors("Punctuated(asserted)"):
            _expect_type("what Punctuated asserts", strategy.asserted, schema, DataType.TIMESTAMP)


def _check_vocabulary(when: Trigger | None, where: windows.WindowFn) -> None:
    """Whether these are triggers and windows that executors know; None is the trigger of what is above."""
    if when is not None:
        list(nodes(when))
    inner = windows.unshift_windows(where)
    window_kinds = (*kinds_by_word(windows.WindowFn).values(), windows.CustomWindows)
    if isinstance(inner, windows.ShiftedOutputTime) or not isinstance(inner, window_kinds):
        raise PipelineError(
            f"where={where!r} is not a window function that Headrace knows; derive it from CustomWindows"
        )


def _check_stage(stage: Stage, allow_finishing: bool) -> None:
    aggregation = stage.aggregation
    _check_filter(stage)
    if stage.gives_rows:
        _check_rows(stage)
    if stage.is_stateless:
        return
    _check_columns([name for name in aggregation.key if name != BUCKET], aggregation.what, stage)
    _check_phase(aggregation.where, stage.key_types)
    check_reads(stage.when, stage.schema)
    check_own(stage.when, aggregation.where.merges)
    _check_when(stage.when, aggregation.where, aggregation.how, allow_finishing)
    for name, aggregate in aggregation.aggregates.items():
        with locate_errors(f"what[{name!r}]"):
            _check_inputs_of(aggregate, stage)
            output_type(aggregate, stage.schema)
    _check_results(stage)


def _check_rows(stage: Stage) -> None:
    ends = (WINDOW_START, WINDOW_END) if stage.shows_windows else ()
    _check_names(stage.row_columns, (*ROW_COLUMNS, *ends), "a column of every row")
    _check_names(stage.leaving_types, (*ROW_COLUMNS, *ends), "a column of every row")
    for name, kind in stage.row_types.items() if stage.computed_types is not None else ():
        if not isinstance(kind, ColumnType):
            why = f"it is a {in_words(kind)}, which no function of a group gets; take a value of it"
            raise PipelineError(f"rows[{name!r}]: {why}")
    if stage.is_stateless:
        return
    is_final = stage.aggregation.takes_each and stage.fires_once  # where nothing comes after what has left
    if stage.withdrawable and not is_final and stage.aggregation.how.accumulation is Accumulation.DISCARDING:
        raise PipelineError(
            "how=discarding() gives the rows of what came since the last pane, and what comes here can be withdrawn "
            "later: use retracting(...)"
        )
    _check_computed(stage)
    assert isinstance(stage.aggregation, GroupRows)
    with locate_errors("take"):
        if stage.aggregation.take.unless is not None:
            _expect_type("deleted", stage.aggregation.take.unless, stage.schema, DataType.BOOL)
        for order in stage.aggregation.take.by:
            of_by = kind_of(order, stage.schema)
            if not isinstance(of_by, DataType):
                raise PipelineError(f"{render(order)} is {'NULL' if of_by is None else 'a list'}, which has no order")


def _check_computed(stage: Stage) -> None:
    """The columns that a function or a query gives of the rows of a group."""
    computed_types = stage.computed_types
    if computed_types is None:
        return
    for name in stage.aggregation.key:
        if computed_types.get(name) not in (None, stage.row_types[name]):
            raise PipelineError(
                f"take: it gives column {name!r} as {in_words(computed_types[name])}, and that is the key, which is "
                f"{stage.row_types[name]}, and which rows have by itself; give it another name"
            )
    if computed_types.get(EVENT_TIME) not in (None, DataType.TIMESTAMP):
        kind = in_words(computed_types[EVENT_TIME])
        raise PipelineError(f"take: it gives {EVENT_TIME} as {kind}, and that is a timestamp")
    if EVENT_TIME not in computed_types and not stage.shows_windows:
        raise PipelineError(
            f"take: it gives no column {EVENT_TIME}, and the rows of a window have its end as their event time, which "
            f"the global window has not. Give them one, such as max({EVENT_TIME}), or write where="
        )


def _check_filter(stage: Stage) -> None:
    if stage.aggregation.filter is not None:
        with locate_errors("filter"):
            _expect_type("the filter", stage.aggregation.filter, stage.schema, DataType.BOOL)


def _check_edges(pipeline: AnyPipeline) -> None:
    if pipeline.loop is None:
        return
    check_loop(pipeline)
    if pipeline.edges is not None:
        _check_filter(pipeline.edges)
        _check_columns([*pipeline.key], [], pipeline.edges)


def _check_changelogs(pipeline: AnyPipeline) -> None:
    """Changelogs of inputs, and whether the first aggregation of the only output could take back their records."""
    if not pipeline.withdraws_elements:
        return
    for input_ in pipeline.inputs:
        if isinstance(input_.source, UpstreamSource) and pipeline.deduplicate is not None:
            raise PipelineError(
                f"deduplicate: what input {input_.name} reads can be taken back and come again, and would count as a "
                f"duplicate then; leave it out, and let {input_.source.upstream} count its records once"
            )
        with locate_errors(f"changelog of input {input_.name}"):
            check_changelog(input_)
    if pipeline.upstream and not pipeline.join:
        return
    (stage, *_) = pipeline.stages
    inputs = () if pipeline.upstream else pipeline.left_inputs
    if pipeline.rows and (problem := wrong_for_withdrawn_rows(inputs, stage.aggregation)):
        raise PipelineError(problem)
    if pipeline.rows and pipeline.take is None:
        return
    first, has_loop = pipeline.first, pipeline.loop is not None
    if problem := wrong_for_withdrawals(inputs, first.where, stage.when, first.how, has_loop=has_loop):
        raise PipelineError(problem)


def _check_versions(pipeline: AnyPipeline) -> None:
    """Versions of inputs, and whether the first aggregation of the only output knows what they are."""
    versioned_inputs = [input_ for input_ in pipeline.inputs if input_.source.versions is not None]
    for input_ in versioned_inputs:
        with locate_errors(f"versions of input {input_.name}"):
            check_versions(input_)
    left = pipeline.left_inputs
    if pipeline.upstream or all(input_.source.versions is None for input_ in left):
        return
    id_ = None if pipeline.deduplicate is None else pipeline.deduplicate.id
    if problem := wrong_for_versions(left, id_, pipeline.first, are_joined=bool(pipeline.join)):
        raise PipelineError(problem)


def _check_inputs_of(aggregate: Aggregate, stage: Stage) -> None:
    """Whether it reads elements, not results of its own aggregation."""
    for name in sorted(frozenset[str]().union(*map(columns_of, aggregate.inputs)) - {*stage.schema}):
        if name in stage.aggregation.what:
            raise PipelineError(
                f"{name!r} is a result of this aggregation, and an aggregate reads what comes into it: an aggregate of "
                f'results is a further one, then=[Aggregation(what={{...: col("{name}").max()}}, ...)]; an expression '
                "over results stands in what= by itself"
            )


def _check_results(stage: Stage) -> None:
    aggregation = stage.aggregation
    kinds = {name: output_type(aggregate, stage.schema) for name, aggregate in aggregation.aggregates.items()}
    pairs = {name for name, kind in kinds.items() if isinstance(kind, PairsType)}
    for place, expr in aggregation.result_expressions():
        if read := sorted(columns_of(expr) & pairs):
            raise PipelineError(f"{place}: {read[0]!r} is a list of pairs, which no expression reads; leave it out")
    stage.value_types  # noqa: B018 - which says what is wrong with columns of results
    if aggregation.having is None:
        return
    with locate_errors("having"):
        _expect_type("the condition", aggregation.having, stage.pane_schema, DataType.BOOL)
    if stage.withdraws and aggregation.how.accumulation is Accumulation.ACCUMULATING and aggregation.where.merges:
        raise PipelineError(
            "having: accumulating windows that merge leave the rows of what they merged standing, and nobody could "
            "tell which of them to withdraw; use how=retracting()"
        )


def _check_columns(key: Collection[str], what: Collection[str], stage: Stage) -> None:
    """The names of columns of a ``key`` and of ``what`` is computed, and the key's types."""
    for name in key:
        if name in what:
            raise PipelineError(f"column {name!r} is both a key and an aggregate; rename one of them")
    _check_names((*key, *what), PANE_COLUMNS, "a pane column")
    for name in key:
        expr = stage.aggregation.key[name]
        with locate_errors(f"key[{name!r}]"):
            kind = type_of(expr, stage.schema)
            if kind is None:
                raise PipelineError("it is always NULL; give an expression that names a column")
            if kind is DataType.FLOAT:
                raise PipelineError("it is a float, which does not compare exactly; cast it to int or str")


def _check_names(names: Iterable[str], reserved_names: Sequence[str], whose: str) -> None:
    """Refuse columns with one of ``reserved_names``; ``whose`` says what these are."""
    spellings: dict[str, str] = {}
    for name in names:
        if name.startswith("_"):
            raise PipelineError(f"column {name!r}: names that start with _ belong to Headrace")
        if not name or {".", "`", "\0"} & {*name} or not is_text(name):
            raise PipelineError(
                f"column {name!r}: a name is text that is not empty and has no dots, backticks or NUL; rename it"
            )
        if name.lower() in reserved_names:
            raise PipelineError(f"column {name!r} is {whose}; choose another name than {', '.join(reserved_names)}")
        if spellings.setdefault(name.lower(), name) != name:
            raise PipelineError(
                f"columns {spellings[name.lower()]!r} and {name!r} differ only in case, which readers do not tell "
                "apart; rename one of them"
            )


def _check_phase(where: windows.WindowFn, key_types: Schema) -> None:
    if isinstance(where, windows.ShiftedOutputTime):
        _check_phase(where.inner, key_types)
    elif isinstance(where, windows.FixedWindows) and where.phase is not None:
        _expect_type("the phase of fixed windows, which reads the key,", where.phase, key_types, DataType.INT)


def _check_when(when: Trigger, where: windows.WindowFn, how: How, allow_finishing: bool) -> None:
    if isinstance(where, windows.GlobalWindows) and isinstance(when, Default):
        raise PipelineError(
            "the global window never ends, so the default trigger never fires; "
            "use when=Repeatedly(AfterCount(n)) or another"
        )
    if how.keep_last is not None and where.merges:
        raise PipelineError(
            "keep_last needs the order of arrival, which windows that merge do not have; use windows that do not merge"
        )
    if not allow_finishing:
        check_finishing(when, how.allowed_lateness)


def _check_order(upstream_output: Upstream[Any], lower: Stage, place: str) -> None:
    """Whether rows that ``lower`` reads are in the order in which they came, where it goes by that."""
    by_order = next(
        (type(node).__name__ for node in nodes(lower.when) if isinstance(node, AfterPattern | CustomTrigger)), None
    )
    if lower.aggregation.how.keep_last is not None:
        by_order = "keep_last"
    pipeline = upstream_output.pipeline
    if by_order is None or not upstream_output.stage.gives_rows:
        return
    if pipeline.deduplicate is not None or pipeline.upstream or pipeline.take is not None:
        raise PipelineError(
            f"{place} gives rows in no order, since it has deduplicate= or take=, or reads another output. {by_order} "
            "goes by the order in which rows come; let it read what these rows are made of"
        )


def _check_edge(upper: Stage, lower: Stage, place: str, allow_double_counting: bool) -> None:
    """What panes of ``upper`` mean to ``lower``."""
    accumulation = upper.aggregation.how.accumulation
    if upper.withdraws and lower.aggregation.where.merges:
        raise PipelineError(
            f"{place} withdraws panes from windows that merge: a withdrawn one may have bridged two sessions, and "
            f"sessions never split; use windows that do not merge downstream of it, or how=discarding() in it"
        )
    transform = lower.aggregation.transform
    if upper.withdraws and transform is not None and not transform.deterministic:
        raise PipelineError(
            f"{place} withdraws panes, and {transform.name} downstream of it is declared not deterministic: nobody "
            "could find again what it made of a pane, to withdraw it; use how=discarding(), or a deterministic function"
        )
    if upper.withdraws and lower.aggregation.how.keep_last is not None:
        raise PipelineError(
            f"{place} withdraws panes, and the aggregation downstream of it keeps only its last elements and may have "
            "forgotten these panes; leave out keep_last there, or use how=discarding() in it"
        )
    if accumulation is Accumulation.ACCUMULATING and lower.gives_rows and not upper.fires_once:
        raise PipelineError(
            f"{place} accumulates, so rows of a pane and of its refinements would all stand; use how=retracting() or "
            "how=discarding() in it"
        )
    if accumulation is Accumulation.ACCUMULATING and not allow_double_counting and not upper.fires_once:
        raise PipelineError(
            f"{place} accumulates, so the next aggregation would count a pane and its refinements; use "
            f"how=retracting() or how=discarding(), or accept it with allow_double_counting=True"
        )
