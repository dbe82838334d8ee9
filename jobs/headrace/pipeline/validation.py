"""What can be wrong with a pipeline when it is built, each with what to change (semantics 4.8).

Its size is checked before anything else looks into its expressions and triggers. An output with a loop has rules of its
own for where, when and how (semantics 13); so has a pipeline whose records can withdraw others, since not everything
can take back (semantics 14.9). Of pipelines that read each other in a circle, none could ever be the first to be
computed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

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
from headrace.model.arguments import words
from headrace.model.changelog import DebeziumEnvelope, RecordSign, SignedBy
from headrace.model.combiners import Aggregate
from headrace.model.event_time import Deduplicate, EventTime, Punctuated, SplitStrategy, WatermarkStrategy
from headrace.model.expressions.data_types import DataType, Schema, is_text
from headrace.model.expressions.expr import Column, Expr, render
from headrace.model.expressions.typing import columns_of, extent, kind_of, output_type, too_large, type_of
from headrace.model.triggers import Trigger
from headrace.model.triggers.custom import CustomTrigger
from headrace.model.triggers.data_driven import AfterPattern, DataDriven
from headrace.model.triggers.elementary import Default
from headrace.pipeline.deployment import FileSchedule
from headrace.pipeline.endpoints import OWN, Input, Source
from headrace.pipeline.rows import check_event_time_name
from headrace.pipeline.sources import FilesSource
from headrace.pipeline.stages import OF_PANES, Aggregation, LoopError, check_finishing, element_schema, looks_at_values
from headrace.pipeline.stages import check_own_triggers as check_own
from headrace.pipeline.stages import check_trigger_reads as check_reads
from headrace.pipeline.stages import trigger_nodes as nodes
from headrace.pipeline.upstream_source import UpstreamSource

if TYPE_CHECKING:
    from headrace.pipeline.output import Upstream
    from headrace.pipeline.pipeline import Pipeline
    from headrace.pipeline.stages import Stage


def check_loop(pipeline: "Pipeline") -> None:
    """Raise LoopError if the loop of a ``pipeline`` has no result, or one that depends on how input is cut."""
    assert pipeline.loop is not None
    if pipeline.upstream:
        raise LoopError(f"loop: {OF_PANES}")
    element_schema(pipeline.loop, pipeline.key, pipeline.schema)
    for why in (_wrong_loop_windows(pipeline), _wrong_loop_how(pipeline), _wrong_loop_trigger(pipeline)):
        if why is not None:
            raise LoopError(why)


def _wrong_loop_windows(pipeline: "Pipeline") -> str | None:
    where = pipeline.first.where
    if isinstance(where, windows.GlobalWindows | windows.CalendarWindows) or (
        isinstance(where, windows.FixedWindows) and where.phase is None
    ):
        return None
    return (
        f"where={where!r}: the ends of an edge must be in the same window, and in one: a loop takes GlobalWindows(), "
        "FixedWindows without a phase, or CalendarWindows"
    )


def _wrong_loop_how(pipeline: "Pipeline") -> str | None:
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


def _wrong_loop_trigger(pipeline: "Pipeline") -> str | None:
    if pipeline.allow_finishing:
        return (
            "allow_finishing=True: a window that has finished forgets its values, and edges that come later need them; "
            "leave it out"
        )
    ordered = [node for node in nodes(pipeline.stages[0].when) if isinstance(node, AfterPattern | CustomTrigger)]
    if ordered:
        return (
            f"when: {type(ordered[0]).__name__} looks at elements in their order of arrival, which the values of a "
            "loop do not have; use another trigger"
        )
    return None


_WITHDRAWN = "records can be withdrawn"


def check_changelogs(pipeline: "Pipeline") -> None:
    """Raise PipelineError if changelogs of inputs do not fit their records, or if the first aggregation of the only
    output of a ``pipeline``, which reads records, could not take them back.
    """
    for given in pipeline.inputs:
        if isinstance(given.source, UpstreamSource) and pipeline.deduplicate is not None:
            raise PipelineError(
                f"deduplicate: what input {given.name} reads can be taken back and come again, and would count as a "
                f"duplicate then; leave it out, and let {given.source.upstream} count its records once"
            )
        try:
            _check_input(given)
        except PipelineError as error:
            raise PipelineError(f"changelog of input {given.name}: {error}") from None
    if not pipeline.withdraws_records or pipeline.upstream:
        return
    if pipeline.rows:
        for problem in (_wrong_time_of_rows(pipeline), _wrong_columns_of_rows(pipeline)):
            if problem is not None:
                raise PipelineError(problem)
    if pipeline.rows and pipeline.take is None:
        return
    for problem in (_wrong_how(pipeline), _wrong_windows(pipeline), _wrong_trigger(pipeline)):
        if problem is not None:
            raise PipelineError(problem)


def _check_input(given: Input) -> None:
    source, changelog = given.source, given.source.changelog
    if changelog is None:
        return
    transform = source.transform
    if transform is not None and not isinstance(changelog, SignedBy):
        raise PipelineError(
            f"it is read of the source's own records, and {transform.name} makes others of them: let the function give "
            "a column of 1 and -1, and name that one"
        )
    if transform is not None and not transform.deterministic:
        raise PipelineError(
            f"{transform.name} is declared not deterministic: nobody could find again what it made of a record, to "
            "withdraw it; use a deterministic function"
        )
    if isinstance(changelog, DebeziumEnvelope) and isinstance(source, FilesSource) and source.format == "csv":
        raise PipelineError("a CSV file has no objects, and an envelope is one; read JSON or Parquet")
    if isinstance(changelog, RecordSign):
        kind = type_of(changelog.sign_of(source.schema), source.as_read.columns)
        if kind is not DataType.INT:
            raise PipelineError(
                f"it is {kind}, and must be int: 1 of a record that adds a row, -1 of one that withdraws it"
            )


def _wrong_how(pipeline: "Pipeline") -> str | None:
    how = pipeline.first.how
    if how.keep_last is not None:
        return (
            f"how: {_WITHDRAWN}, and a window that keeps its last elements may have forgotten them; leave out keep_last"
        )
    if how.accumulation is Accumulation.RETRACTING:
        return None
    which = how.accumulation.name.lower()
    left = {
        Accumulation.ACCUMULATING: "the row of a window would stand whose records are all withdrawn",
        Accumulation.DISCARDING: "a pane has only what came since the one before it, which is not what is there",
    }
    return f"how: {_WITHDRAWN}, and in {which} mode {left[how.accumulation]}; use how=retracting(...)"


def _wrong_windows(pipeline: "Pipeline") -> str | None:
    where = pipeline.first.where
    if pipeline.loop is not None:
        return (
            f"loop: {_WITHDRAWN}, and the values of a loop hold each other up: on a circle that nothing leads to any "
            "more each would keep what its neighbour says"
        )
    if where.merges:
        return (
            f"where: {_WITHDRAWN}, and a withdrawn one may have linked two sessions, which never split; use windows "
            "that do not merge"
        )
    of_arrival = _withdrawn_by_arrival(pipeline)
    if of_arrival is not None and not isinstance(where, windows.GlobalWindows):
        return (
            f"where: {of_arrival}, so a withdrawal would come to another window than what it withdraws; give it the "
            "event time of the row, or use GlobalWindows()"
        )
    return None


def _wrong_time_of_rows(pipeline: "Pipeline") -> str | None:
    of_arrival = _withdrawn_by_arrival(pipeline)
    if of_arrival is None:
        return None
    return (
        f"rows: {of_arrival}, so a withdrawal would have another event time than the row that it withdraws; give it "
        "the event time of the row"
    )


def _wrong_columns_of_rows(pipeline: "Pipeline") -> str | None:
    shared = {name for given in pipeline.inputs for name in getattr(given.source.changelog, "shared", ())}
    (stage,) = pipeline.stages
    for what, expr in stage.aggregation.expressions():
        if what != "the filter" and (read := sorted(columns_of(expr) & shared)):
            return (
                f"rows: {what} reads {read[0]!r}, which the envelope of a change has for both rows, so a withdrawal "
                "would have another value than the row that it withdraws; leave it out"
            )
    return None


def _withdrawn_by_arrival(pipeline: "Pipeline") -> str | None:
    of_arrival = [given.name for given in pipeline.inputs if given.source.changelog and given.event_time.expr is None]
    return f"records of input {of_arrival[0]} can be withdrawn, and go by the time of arrival" if of_arrival else None


def _wrong_trigger(pipeline: "Pipeline") -> str | None:
    when, how = pipeline.stages[0].when, pipeline.first.how
    if (of_values := looks_at_values(when)) is not None:
        return (
            f"when: {_WITHDRAWN}, and {of_values} looks at what elements hold, where a withdrawal would be one "
            "more; use on_update(), or a trigger that counts or waits"
        )
    try:
        check_finishing(when, how.allowed_lateness)
    except PipelineError:
        return (
            f"when: {_WITHDRAWN}, and a trigger that finishes closes its window, where nothing is withdrawn any more; "
            "use Repeatedly(...), or AfterWatermark with a late trigger"
        )
    return None


N = TypeVar("N")


class UpstreamCycleError(PipelineError, code="config.upstream_cycle"):
    """A pipeline reads itself, through whatever others."""

    @classmethod
    def along(cls, circle: Iterable[object]) -> "UpstreamCycleError":
        """The error that names a ``circle``, with the same pipeline at both ends."""
        path = " reads ".join(map(str, circle))
        return cls(f"{path}: a pipeline cannot read itself, through whatever others; leave one of the inputs out")


def check_no_circle(start: N, upstreams: Callable[[N], Iterable[N]]) -> None:
    """Raise UpstreamCycleError, with the shortest way round, if ``start`` reads itself. ``upstreams`` is asked of each
    pipeline once.
    """
    ways: dict[N, tuple[N, ...]] = {start: (start,)}
    front = [start]
    for name in front:  # which grows
        for above in upstreams(name):
            if above == start:
                raise UpstreamCycleError.along((*ways[name], start))
            if above not in ways:
                ways[above] = (*ways[name], above)
                front.append(above)


def check_beside(pipeline: "Pipeline", beside: "Iterable[Pipeline]" = ()) -> None:
    """Raise UpstreamCycleError if ``pipeline`` reads itself through those ``beside`` it, whatever root they are under:
    what is read under a root that is named counts for nothing.
    """
    if not read_beside(pipeline):
        return
    known = {one.name: one for one in (*beside, pipeline)}
    check_no_circle(pipeline.name, lambda name: read_beside(known[name]) if name in known else ())


def read_beside(pipeline: "Pipeline") -> list[str]:
    """The pipelines that ``pipeline`` reads under its own root, whatever that is."""
    if not any(given.source.is_upstream for given in pipeline.inputs):
        return []
    from headrace.pipeline.upstream_source import upstream_sources  # which most pipelines do without

    return [source.pipeline for source in upstream_sources(pipeline).values() if source.root is None]


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
    for purpose, expr in _expressions(inputs, deduplicate, aggregations):
        if why := too_large(expr):
            raise PipelineError(f"{purpose}: {why}")


def _check_trigger(trigger: Trigger) -> None:
    size = extent(trigger, lambda node: node.children if isinstance(node, Trigger) else ())
    if size.depth > DEEPEST_TRIGGER or size.nodes > MOST_TRIGGERS:
        raise PipelineError(
            f"when: the trigger has {size.nodes:,} nodes in {size.depth:,} levels, and may have {MOST_TRIGGERS} in "
            f"{DEEPEST_TRIGGER}: leave out what does not change when it fires"
        )


def _expressions(
    inputs: Sequence[Input], deduplicate: Deduplicate | None, aggregations: Sequence[Aggregation]
) -> Iterator[tuple[str, Expr]]:
    for given in inputs:
        yield from given.event_time.expressions()
        yield from ((f"column {name} of input {given.name}", expr) for name, expr in given.columns.items())
    if deduplicate is not None:
        yield "the id of Deduplicate", deduplicate.id
    for aggregation in aggregations:
        yield from aggregation.expressions()
        yield from aggregation.result_expressions()
        where = (
            aggregation.where.inner if isinstance(aggregation.where, windows.ShiftedOutputTime) else aggregation.where
        )
        if isinstance(where, windows.FixedWindows) and where.phase is not None:
            yield "the phase", where.phase
        for node in () if aggregation.when is None else nodes(aggregation.when):
            if isinstance(node, DataDriven):
                yield "DataDriven", node.ready_if


def check(pipeline: "Pipeline") -> None:
    """Raise PipelineError for the first mistake found in ``pipeline``."""
    try:
        aggregations = [pipeline.first, *pipeline.then]
        check_bounds(pipeline.inputs, pipeline.deduplicate, [*pipeline.of_edges, *aggregations])
        _check_inputs(pipeline)
        for aggregation in aggregations:
            _check_vocabulary(aggregation.when or pipeline.when, aggregation.where)
        _check_edges(pipeline)
        stages = pipeline.stages
        _check_changelogs(pipeline)
        times = [given.event_time.expr for given in pipeline.inputs]
        check_event_time_name(pipeline.rows, [Column(EVENT_TIME)] if pipeline.upstream else times)
    except PipelineError as error:
        kind = LoopError if isinstance(error, LoopError) else PipelineError
        raise kind(f"pipeline {pipeline.name}: {error}") from None
    check_beside(pipeline)
    for number, stage in enumerate(stages, start=1):
        try:
            _check_stage(stage, pipeline.allow_finishing)
        except PipelineError as error:
            place = f"aggregation {number} of " if pipeline.then else ""
            raise PipelineError(f"{place}pipeline {pipeline.name}: {error}") from None
    for name in pipeline.key:
        if name.lower() in LATE_COLUMNS:
            raise PipelineError(
                f"pipeline {pipeline.name}: key {name!r} is a column of late records; choose another name than "
                f"{', '.join(LATE_COLUMNS)}"
            )
    shown = ROW_COLUMNS if pipeline.rows else PANE_COLUMNS
    for expectation in pipeline.expectations:
        try:
            expectation.check_columns([*pipeline.key_types, *pipeline.value_types, *shown])
        except PipelineError as error:
            raise PipelineError(f"pipeline {pipeline.name}: {error}") from None
    for compared in pipeline.usual:
        try:
            compared.check_column({**pipeline.key_types, **pipeline.value_types})
        except PipelineError as error:
            raise PipelineError(f"pipeline {pipeline.name}: {error}") from None
    _check_sinks(pipeline)
    for above in pipeline.upstream:
        place = f"pipeline {pipeline.name}: output {above.output}"
        _check_edge(above.stage, stages[0], place, pipeline.allow_double_counting)
        _check_order(above, stages[0], place)
    for number, (upper, lower) in enumerate(pairwise(stages), start=1):
        _check_edge(upper, lower, f"pipeline {pipeline.name}: aggregation {number}", pipeline.allow_double_counting)


def _check_sinks(pipeline: "Pipeline") -> None:
    for sink in pipeline.sinks:
        if pipeline.rows and sink.gets_final_rows and (why := _never_final(pipeline)) is not None:
            raise PipelineError(f"pipeline {pipeline.name}: sink {sink.name} gets final rows, and {why}")
        for name in (*pipeline.key_types, *pipeline.value_types):
            if (why := sink.refuses_column(name)) is not None:
                raise PipelineError(
                    f"pipeline {pipeline.name}: sink {sink.name} has no column {name!r}: {why}; rename it"
                )


def _never_final(pipeline: "Pipeline") -> str | None:
    """Why rows as they are cannot be handed to who cannot take back."""
    if pipeline.stages[-1].withdraws:
        return "these can be withdrawn at any time: deliver to a sink that can take back"
    if not pipeline.id:
        return 'one that comes again is known by its id: write id=, such as id="order"'
    return None


def _expect_type(what: str, expr: Expr, schema: Schema, wanted: DataType) -> None:
    actual = type_of(expr, schema)
    if actual is not wanted:
        raise PipelineError(f"{what} is {actual}, and must be {wanted}")


def _check_inputs(pipeline: "Pipeline") -> None:
    _check_event_time(pipeline.event_time, pipeline.schema)
    for given in pipeline.inputs:
        if isinstance(given.source, FilesSource):
            _check_place(pipeline, given.source.path)
        elif isinstance(pipeline.schedule, FileSchedule):
            _check_watched(given.name, given.source)
    names = [given.name for given in pipeline.inputs]
    for other in pipeline.union:
        if not other.name or names.count(other.name) > 1:
            raise PipelineError(f"every further input needs a name of its own besides {OWN!r}, found {names[1:]}")
        _check_event_time(other.event_time, other.source.columns)
        other.expressions(pipeline.schema)
    if pipeline.deduplicate is not None:
        with _of_argument("deduplicate"):
            kind = type_of(pipeline.deduplicate.id, pipeline.schema)
            if kind in (None, DataType.FLOAT):
                raise PipelineError(f"the id is {kind}, which does not compare exactly; cast it to string")


def _check_watched(name: str, source: Source) -> None:
    if not source.is_watched:
        raise PipelineError(
            f"schedule=on_files(...) watches files, topics and sources that say so, and input {name} reads {source}: "
            'only a run can ask that what is new. Write a schedule by times, such as "*/5 * * * *"'
        )
    source.watched_fields()


def _check_place(pipeline: "Pipeline", path: str) -> None:
    """Whether input lies outside of the pipeline's own folder, of which expiry deletes what it lists there."""
    if "://" in path:
        return  # a run compares it with its root
    above = path.strip("/").partition("/")[0]
    if above in ("", pipeline.name):
        holds = "is in" if above else "holds"
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
        with _of_argument("event_time(at)"):
            _expect_type("the event time", event_time.expr, schema, DataType.TIMESTAMP)
    if event_time.split is not None:
        with _of_argument("event_time(split)"):
            _expect_type("the split", event_time.split, schema, DataType.STRING)
    if isinstance(strategy, Punctuated):
        with _of_argument("Punctuated(asserted)"):
            _expect_type("what Punctuated asserts", strategy.asserted, schema, DataType.TIMESTAMP)


def _check_vocabulary(when: Trigger | None, where: windows.WindowFn) -> None:
    """Whether these are triggers and windows that executors know; None is the trigger of what is above."""
    if when is not None:
        list(nodes(when))
    inner = where.inner if isinstance(where, windows.ShiftedOutputTime) else where
    known = (*words(windows.WindowFn).values(), windows.CustomWindows)
    if isinstance(inner, windows.ShiftedOutputTime) or not isinstance(inner, known):
        raise PipelineError(
            f"where={where!r} is not a window function that Headrace knows; derive it from CustomWindows"
        )


def _check_stage(stage: "Stage", allow_finishing: bool) -> None:
    aggregation = stage.aggregation
    _check_filter(stage)
    if stage.gives_rows:
        _check_rows(stage)
    if stage.is_stateless:
        return
    _check_columns(aggregation.key, aggregation.what, stage)
    _check_phase(aggregation.where, stage.key_types)
    check_reads(stage.when, stage.schema)
    check_own(stage.when, aggregation.where.merges)
    _check_when(stage.when, aggregation.where, aggregation.how, allow_finishing)
    for name, aggregate in aggregation.aggregates.items():
        with _of_argument(f"what[{name!r}]"):
            _check_inputs_of(aggregate, stage)
            output_type(aggregate, stage.schema)
    _check_results(stage)


def _check_rows(stage: "Stage") -> None:
    """The columns of rows, and what rows of a group go by."""
    ends = (WINDOW_START, WINDOW_END) if stage.shows_windows else ()
    _check_names(stage.row_columns, (*ROW_COLUMNS, *ends), "a column of every row")
    kinds = stage.value_types
    why = "what is withdrawn is" if stage.is_stateless else "rows of a group are"
    for name, kind in kinds.items() if stage.withdraws or not stage.is_stateless else ():
        if not isinstance(kind, DataType):
            raise PipelineError(f"rows[{name!r}]: it is a list, and {why} compared with rows; take a value of it")
    if stage.is_stateless:
        return
    if stage.withdrawable and stage.aggregation.how.accumulation is Accumulation.DISCARDING:
        raise PipelineError(
            "how=discarding() gives the rows of what came since the last pane, and what comes here can be withdrawn "
            "later: use retracting(...)"
        )
    by, unless = stage.aggregation.taken_by, stage.aggregation.taken_unless
    if unless is not None:
        with _of_argument("take"):
            _expect_type("deleted", unless, stage.schema, DataType.BOOL)
    if by is not None:
        with _of_argument("take"):
            of_by = kind_of(by, stage.schema)
            if not isinstance(of_by, DataType):
                raise PipelineError(f"{render(by)} is {'NULL' if of_by is None else 'a list'}, which has no order")


def _check_filter(stage: "Stage") -> None:
    if stage.aggregation.filter is not None:
        with _of_argument("filter"):
            _expect_type("the filter", stage.aggregation.filter, stage.schema, DataType.BOOL)


def _check_edges(pipeline: "Pipeline") -> None:
    """Records as the edges of a loop."""
    if pipeline.loop is None:
        return

    check_loop(pipeline)
    if pipeline.edges is not None:
        _check_filter(pipeline.edges)
        _check_columns([*pipeline.key], [], pipeline.edges)


def _check_changelogs(pipeline: "Pipeline") -> None:
    """Records that can withdraw others."""
    if pipeline.withdraws_records:
        check_changelogs(pipeline)


def _check_inputs_of(aggregate: Aggregate, stage: "Stage") -> None:
    """Whether it reads elements, not results of its own aggregation."""
    for name in sorted(frozenset[str]().union(*map(columns_of, aggregate.inputs)) - {*stage.schema}):
        if name in stage.aggregation.what:
            raise PipelineError(
                f"{name!r} is a result of this aggregation, and an aggregate reads what comes into it: an aggregate of "
                f'results is a further one, then=[Aggregation(what={{...: col("{name}").max()}}, ...)]; an expression '
                "over results stands in what= by itself"
            )


def _check_results(stage: "Stage") -> None:
    """Columns of results and ``having`` of an aggregation."""
    aggregation = stage.aggregation
    kinds = {name: output_type(made, stage.schema) for name, made in aggregation.aggregates.items()}
    lists = {name for name, kind in kinds.items() if not isinstance(kind, DataType)}
    for place, expr in aggregation.result_expressions():
        if read := sorted(columns_of(expr) & lists):
            raise PipelineError(f"{place}: {read[0]!r} is a list, which no expression reads; leave it out of it")
    stage.value_types  # noqa: B018 - which says what is wrong with columns of results
    if aggregation.having is None:
        return
    with _of_argument("having"):
        _expect_type("the condition", aggregation.having, stage.pane_schema, DataType.BOOL)
    if stage.withdraws and aggregation.how.accumulation is Accumulation.ACCUMULATING and aggregation.where.merges:
        raise PipelineError(
            "having: accumulating windows that merge leave the rows of what they merged standing, and nobody could "
            "tell which of them to withdraw; use how=retracting()"
        )


@contextmanager
def _of_argument(name: str) -> Iterator[None]:
    """Errors from within say which argument they are about."""
    try:
        yield
    except PipelineError as error:
        raise PipelineError(f"{name}: {error}") from None


def _check_columns(key: Collection[str], what: Collection[str], stage: "Stage") -> None:
    """The names of columns of a ``key`` and of ``what`` is computed, and the key's types."""
    for name in key:
        if name in what:
            raise PipelineError(f"column {name!r} is both a key and an aggregate; rename one of them")
    _check_names((*key, *what), PANE_COLUMNS, "a pane column")
    for name in key:
        expr = stage.aggregation.key[name]
        with _of_argument(f"key[{name!r}]"):
            kind = type_of(expr, stage.schema)
            if kind is None:
                raise PipelineError("it is always NULL; give an expression that names a column")
            if kind is DataType.FLOAT:
                raise PipelineError("it is a float, which does not compare exactly; cast it to int or str")


def _check_names(names: Iterable[str], taken: Sequence[str], whose: str) -> None:
    """The names of columns, of which some are ``taken``, and ``whose`` these are."""
    spellings: dict[str, str] = {}
    for name in names:
        if name.startswith("_"):
            raise PipelineError(f"column {name!r}: names that start with _ belong to Headrace")
        if not name or {".", "`", "\0"} & {*name} or not is_text(name):
            raise PipelineError(
                f"column {name!r}: a name is text that is not empty and has no dots, backticks or NUL; rename it"
            )
        if name.lower() in taken:
            raise PipelineError(f"column {name!r} is {whose}; choose another name than {', '.join(taken)}")
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


def _check_order(above: "Upstream", lower: "Stage", place: str) -> None:
    """Whether rows that ``lower`` reads are in the order in which they came, where it goes by that."""
    by_order = next(
        (type(node).__name__ for node in nodes(lower.when) if isinstance(node, AfterPattern | CustomTrigger)), None
    )
    if lower.aggregation.how.keep_last is not None:
        by_order = "keep_last"
    made = above.pipeline
    if by_order is None or not above.stage.gives_rows:
        return
    if made.deduplicate is not None or made.upstream or made.take is not None:
        raise PipelineError(
            f"{place} gives rows in no order where duplicates are told, and of panes and groups, and {by_order} goes "
            "by the order in which they come; let it read what the rows are made of"
        )


def _check_edge(upper: "Stage", lower: "Stage", place: str, allow_double_counting: bool) -> None:
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
            "could find again what it made of a pane, to withdraw it; use how=discarding(), or a deterministic "
            "function"
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
