"""A pipeline in words and as a graph: its inputs, and of each aggregation what, where, when and how.

*Where* is told by an example of the windows, with the times at which it fires and expires (``example_window_lines``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import pairwise

from headrace.model import event_time as model_event_time
from headrace.model.accumulation import Accumulation, Firing, How, TimestampCombiner
from headrace.model.arguments import short_repr
from headrace.model.combiners import Combiner
from headrace.model.expressions.columns import ColumnType, SourceField
from headrace.model.expressions.data_types import in_words
from headrace.model.expressions.expr import Binary, Expr, Literal, render_aggregate
from headrace.model.expressions.expr import render as render_expression
from headrace.model.expressions.typing import walk
from headrace.model.time import END_OF_CALENDAR, Duration, Instant, render_duration, to_instant
from headrace.model.time import render as render_time
from headrace.model.triggers.elementary import AfterProcessingTime, panes
from headrace.model.windows import GlobalWindows, SlidingWindows, WindowFn, describe_windows, window_at
from headrace.pipeline.endpoints import Input, Sink, Source
from headrace.pipeline.joins import Join, Meets
from headrace.pipeline.loops import VERTEX, Loop
from headrace.pipeline.output import upstream_first
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.rows import Distinct, GroupFunction, GroupQuery, Newest, Top
from headrace.pipeline.sources import FilesSource, NameOrder
from headrace.pipeline.stages import Stage, looks_at_values, trigger_nodes

_EXAMPLE = to_instant(datetime(2026, 1, 1, tzinfo=UTC))


def example_window_lines(where: WindowFn, how: How, watermarks: list[model_event_time.WatermarkStrategy]) -> list[str]:
    """When an example of the windows is on time, and when it expires."""
    window = window_at(where, _EXAMPLE)
    if window is None:
        return []
    lines = [f"example: [{render_time(window.start)}, {render_time(window.end)})"]
    on_time = f"on time when the watermark passes {render_time(window.end)}"
    bound = _watermark_bound(watermarks)
    if bound is not None:
        on_time += f": once a record of {render_time(Instant(window.end + bound))} or later has been read"
    lines.append(f"  {on_time}")
    if how.allowed_lateness is None:
        return [*lines, "  never expires: its state is kept for good"]
    if window.end + how.allowed_lateness > END_OF_CALENDAR:
        return [*lines, f"  expires {render_duration(how.allowed_lateness)} after that"]
    end = render_time(Instant(window.end + how.allowed_lateness))
    return [*lines, f"  expires when the watermark passes {end}; what comes for it after that is dropped as late"]


def _watermark_bound(watermarks: list[model_event_time.WatermarkStrategy]) -> Duration | None:
    """How far the watermark is behind the newest record, if it is the only one and that is all that it follows."""
    match watermarks:
        case [model_event_time.BoundedOutOfOrderness() as strategy]:
            return strategy.bound
        case [model_event_time.Monotonic()]:
            return Duration(0)
    return None


_WRONG = {1: "below zero or missing", 0: "missing", -1: "above zero or missing"}


def loop_lines(pipeline: Pipeline, loop: Loop) -> Iterator[str]:
    """What goes round over the edges of a ``pipeline`` with a ``loop``."""
    begin, end = _column_texts(pipeline.key)
    directions = f"between {begin} and {end}, in both directions" if loop.both_ways else f"from {begin} to {end}"
    yield f"a record is an edge {directions}"
    if pipeline.filter is not None:
        yield f"of what passes {render_expression(pipeline.filter)}"
    yield f"a {VERTEX} has by itself: {render_expression(loop.start)}"
    yield f"over an edge its value becomes: {render_expression(loop.step)}"
    for term in loop.compiled_step.terms:
        yield f"an edge is a dead letter if {render_expression(term.expr)} is {_WRONG[term.sign]}"
    yield f"of several values it keeps the {loop.combine}"
    if loop.rounds is None:
        yield "an epoch turns rounds until nothing changes"
    else:
        rounds = "one round" if loop.rounds == 1 else f"{loop.rounds:,} rounds"
        yield f"an epoch turns at most {rounds}; what is in flight then goes on in the next epoch"


def loop_step(pipeline: Pipeline, loop: Loop) -> str:
    """The same in the graph of the pipeline."""
    arrow = "<->" if loop.both_ways else "->"
    return f"loop over {f' {arrow} '.join(pipeline.key)}: the {loop.combine} of {render_expression(loop.step)}"


_ACCUMULATION_TEXTS = {
    Accumulation.DISCARDING: "discarding: a pane holds what came since the one before it",
    Accumulation.ACCUMULATING: "accumulating: a pane holds everything so far",
    Accumulation.RETRACTING: "retracting: a pane holds everything so far, and the one before it is withdrawn",
}


@dataclass(frozen=True)
class Section:
    """A part of a description: a heading, and lines below it."""

    heading: str
    lines: Sequence[str]


def pipeline_sections(pipeline: Pipeline) -> list[Section]:
    """What ``pipeline`` means, from its inputs to its panes."""
    parts = [Section(f"input {input_.name}", [*_input_lines(input_)]) for input_ in pipeline.inputs]
    if pipeline.deduplicate is not None:
        horizon = render_duration(pipeline.deduplicate.horizon)
        what = f"by {render_expression(pipeline.deduplicate.id)}; an id is remembered for {horizon} of event time"
        parts.append(Section("duplicates", [what]))
    if pipeline.has_names and pipeline.filter is not None:
        parts.append(Section("filter", [f"all outputs are of what passes {render_expression(pipeline.filter)}"]))
    for output, output_pipeline in pipeline.by_output.items():
        parts += _of_output(output_pipeline, f" of output {output}" if output else "")
    if pipeline.limits is not None:
        parts.append(Section("limits", [*pipeline.limits.lines()]))
    for output, output_pipeline in pipeline.by_output.items():
        if output_pipeline.usual:
            of_output = f" of output {output}" if output else ""
            parts.append(Section(f"usual{of_output}", [check.describe_rule() for check in output_pipeline.usual]))
    return parts


def _of_output(pipeline: Pipeline, of_output: str) -> Iterator[Section]:
    if pipeline.upstream:
        yield Section(f"reads{of_output}", [*_upstream_lines(pipeline)])
    if pipeline.loop is not None:
        yield Section(f"loop{of_output}", [*loop_lines(pipeline, pipeline.loop)])
    for join, lateness in zip(pipeline.join, pipeline.latenesses, strict=True):
        yield Section(f"join of {join.name}{of_output}", [*_join_lines(join, lateness)])
    several = len(pipeline.stages) > 1
    for number, stage in enumerate(pipeline.stages, start=1):
        where = f" of aggregation {number}" if several else ""
        for part in _stage_sections(pipeline, stage, number):
            yield Section(f"{part.heading}{where}{of_output}", part.lines)
    if pipeline.sinks:
        yield Section(f"sinks{of_output}", [_describe_sink(sink) for sink in pipeline.sinks])


def _join_lines(join: Join, lateness: Duration | None) -> Iterator[str]:
    conditions = ", ".join(f"{name} = {render_expression(expr)} of {join.name}" for name, expr in join.on.items())
    yield f"each row meets {join.describe_met_rows()}, where {conditions}"
    if join.where is not None:
        yield f"of {join.name} only what is {render_expression(join.where)}"
    if join.deleted is not None:
        yield f"from a version on that is {render_expression(join.deleted)} it meets nothing"
    if join.columns:
        yield f"along come {', '.join(f'{name} ({render_expression(expr)})' for name, expr in join.columns.items())}"
    yield "a row that meets nothing leaves with NULLs" if join.outer else "a row that meets nothing does not leave"
    if join.spread > 1:
        yield f"the rows of a key are spread over {join.spread} places, at each of which is all of {join.name}"
    lateness_text = "for ever" if lateness is None else f"until {render_duration(lateness)} behind the watermark"
    if join.by_arrival:
        yield f"a row that comes late is still joined, {lateness_text}; what left is never corrected"
        return
    yield f"what comes late still corrects what left, {lateness_text}"
    if join.history is not None and lateness is not None:
        history_text = render_duration(Duration(lateness + join.history))
        yield f"versions can be withdrawn until {history_text} behind the watermark"


def _describe_sink(sink: Sink) -> str:
    """A sink's name, kind and connection; then its other arguments, where they say what the name does not."""
    shared_names = ("name", "connection", "package")
    field_values = {field.name: getattr(sink, field.name) for field in fields(sink) if field.name not in shared_names}
    arguments = [
        name if value is True else f"{name} {value}" for name, value in field_values.items() if _is_news(value, sink)
    ]
    connection_text = f", by connection {sink.connection}" if sink.connection else ""
    return f"{sink.name}: {', '.join([sink.kind, *arguments])}{connection_text}"


def _is_news(value: object, sink: Sink) -> bool:
    return value is not None and value is not False and value != sink.name


MANY_WINDOWS = 1_000
"""More windows than that for one record are worth a note."""

MANY_VALUES = 10_000
"""A combiner that keeps more values than that for each window is worth a note."""


def pipeline_notes(pipeline: Pipeline) -> Iterator[str]:
    """What is allowed, and may still not be what was meant."""
    if pipeline.deduplicate is not None and pipeline.deduplicate.horizon == 0:
        yield (
            "an id is forgotten as soon as the watermark has passed its record (Deduplicate with horizon 0s). A "
            "duplicate that comes after that is dropped as late, like a new record of that time"
        )
    for output, output_pipeline in pipeline.by_output.items():
        yield from (f"output {output}: {note}" if output else note for note in _output_notes(output_pipeline))
    for input_ in pipeline.inputs:
        is_alone = input_.event_time.split is None and not pipeline.union and not pipeline.joins_of_inputs
        if not is_alone and _may_fall_silent(input_.event_time):
            yield f"input {input_.name} has no idle=: {_silence(pipeline, input_)}"
        if input_.source.versions is not None and input_.source.versions.order is None:
            yield (
                f"input {input_.name}: of two versions of a row with one event time the deletion counts, or the one "
                "whose columns are larger, whichever came last; name in order= of versions= what rises with each"
            )


def _may_fall_silent(event_time: model_event_time.EventTime) -> bool:
    """Whether the watermark follows the data alone, and no idle timeout lets go of it. A clock and another pipeline
    advance by themselves.
    """
    goes_on = isinstance(event_time.watermark, model_event_time.Ingestion | model_event_time.FromSource)
    return not goes_on and _idle_timeout(event_time) is None


def _silence(pipeline: Pipeline, input_: Input) -> str:
    """What becomes of the watermark where an input falls silent."""
    if any(join.name == input_.name and join.meets is Meets.LAST for join in pipeline.joins_of_inputs):
        return (
            "its versions may come seldom, and all that waits for the watermark waits for the next one; write "
            f'.event_time(..., idle="10m") before .named("{input_.name}"), and it is left out once it is silent so long'
        )
    return "a split or input that falls silent holds the watermark back"


def _output_notes(pipeline: Pipeline) -> Iterator[str]:
    for join in pipeline.join:
        if join.begin is None and join.window is None and join.history is None and join.right.source.changelog:
            yield (
                f"versions of {join.name} can be withdrawn at any time, so all are kept for good; history= of as_of "
                "says for how long those that newer ones hide are"
            )
    upstream_pairs = [(upstream.stage, pipeline.stages[0]) for upstream in pipeline.upstream]
    for upper, lower in [*upstream_pairs, *pairwise(pipeline.stages)]:
        if _is_of_all_time(upper) and not _is_of_all_time(lower):
            yield (
                "panes of the global window are dated at the end of time, so windows downstream of it do not end "
                "before the input does. Give them another timestamp (timestamp= of how=)"
            )
        is_withdrawn = upper.aggregation.how.accumulation is Accumulation.RETRACTING
        if is_withdrawn and (trigger := looks_at_values(lower.when)) is not None:
            yield (
                f"panes above are withdrawn. {trigger} looks at what elements hold, where a withdrawn pane counts "
                "on, beside the one that replaces it: it may fire early. Use on_update(), or one that counts or waits"
            )
    if pipeline.edges is not None:
        yield from _of_expressions(pipeline.edges)
    for stage in pipeline.stages:
        yield from _of_stage(stage)
        if stage.aggregation.how.allowed_lateness is None and not isinstance(stage.aggregation.where, GlobalWindows):
            yield "windows never expire (allowed_lateness None): their state grows with time"
        if pipeline.schedule is None and any(
            isinstance(node, AfterProcessingTime) for node in trigger_nodes(stage.when)
        ):
            yield "a trigger waits for the clock, and without a schedule= only runs by hand look at the clock"


def _of_stage(stage: Stage) -> Iterator[str]:
    where = stage.aggregation.where
    if isinstance(where, GlobalWindows) and stage.when.waits_for_the_end:
        yield (
            f"the global window never ends, and the trigger {type(stage.when).__name__} waits for its end: only a run "
            "with --mode batch gives results; use when=Repeatedly(AfterCount(n)) or another"
        )
    if isinstance(where, SlidingWindows) and (number := -(-where.size // where.period)) > MANY_WINDOWS:
        yield (
            f"every record is in {number:,} sliding windows, each with a row of state and panes: is the period as you "
            "mean it?"
        )
    yield from _of_expressions(stage)
    for combiner in (Combiner.FIRST, Combiner.LAST):
        names = [name for name, aggregate in stage.aggregation.aggregates.items() if aggregate.combiner is combiner]
        if len(names) > 1:
            yield (
                f"aggregates {', '.join(names)} are each the {combiner} value that is not NULL, by itself. Where a "
                "record has a NULL, or two have one event time, they may be of different records. Their row then "
                'never was. hr.Rows(key=..., take=hr.newest("updated_at")) gives the newest record as it is '
                "(docs/how-to/rows.md)"
            )
    for name, aggregate in stage.aggregation.aggregates.items():
        if aggregate.k is not None and aggregate.k > MANY_VALUES:
            yield (
                f"aggregate {name} keeps up to {aggregate.k:,} values of each key and window: {aggregate.combiner} "
                "is for a few"
            )


def _of_expressions(stage: Stage) -> Iterator[str]:
    """Comparisons that no value decides."""
    for purpose, expr in (*stage.aggregation.expressions(), *stage.aggregation.result_expressions()):
        for part in walk(expr):
            if (decided_value := _is_decided(part)) is not None:
                frequency = "always" if decided_value else "never"
                yield f"{render_expression(part)} in {purpose} is {frequency} true: NaN is above every number"


def _is_nan(expr: Expr) -> bool:
    return isinstance(expr, Literal) and isinstance(expr.value, float) and expr.value != expr.value


def _is_decided(expr: Expr) -> bool | None:
    """Whether ``expr`` is a comparison with the constant NaN that is TRUE (FALSE) of every value that is not NULL: NaN
    is above every number. None if values decide.
    """
    match expr:
        case Binary(">", _, constant) | Binary("<", constant, _) if _is_nan(constant):
            return False
        case Binary("<=", _, constant) | Binary(">=", constant, _) if _is_nan(constant):
            return True
    return None


def _is_of_all_time(stage: Stage) -> bool:
    """Whether panes are dated at the end of the global window."""
    at_the_end = stage.aggregation.how.timestamp is TimestampCombiner.END_OF_WINDOW
    return isinstance(stage.aggregation.where, GlobalWindows) and at_the_end


def draw_graph(pipeline: Pipeline) -> list[str]:
    """The pipeline as a column of steps, from its inputs to what readers see."""
    steps = [[f"{input_.name}: {_describe_source(input_)}" for input_ in pipeline.left_inputs]]
    steps += [*_join_steps(pipeline.join)]
    if pipeline.filter is not None:
        steps.append([f"filter {render_expression(pipeline.filter)}"])
    if pipeline.deduplicate is not None:
        steps.append([f"one of each {render_expression(pipeline.deduplicate.id)}"])
    if not pipeline.has_names:
        return _draw_steps([*steps, *_pipeline_steps(pipeline)])
    lines = _draw_steps(steps)
    by_upstream: dict[tuple[str, ...], list[str]] = {}
    for output in sorted(upstream_first(pipeline.outputs), key=lambda name: bool(pipeline.outputs[name].of)):
        by_upstream.setdefault(pipeline.outputs[output].of, []).append(output)
    for upstream, outputs in by_upstream.items():
        lines += ["", f"panes of {' and '.join(upstream)}"] if upstream else []
        for output in outputs:
            own = pipeline.outputs[output].filter
            filter_steps = [] if own is None else [[f"filter {render_expression(own)}"]]
            joins = _join_steps(pipeline.outputs[output].join)
            first, *others = _draw_steps([*joins, *filter_steps, *_pipeline_steps(pipeline.by_output[output])])
            lines += ["  │", f"  ├─▶ {output}", f"  │     {first}", *(f"  │     {line}" for line in others)]
    return lines


def _join_steps(joins: Sequence[Join]) -> Iterator[list[str]]:
    for join in joins:
        right = f"panes of {join.name}" if join.is_of_output else f"{join.name}: {_describe_source(join.right)}"
        yield [f"join {join.describe_met_rows()}", right]


def _upstream_lines(pipeline: Pipeline) -> Iterator[str]:
    sources = [output.output for output in pipeline.upstream if not output.side]
    yield f"panes of {' and '.join(sources)}"
    for upstream in pipeline.upstream:
        if upstream.columns:
            columns = ", ".join(f"{name} = {render_expression(expr)}" for name, expr in upstream.columns.items())
            yield f"of {upstream.output} as: {columns}"
    names = [*dict.fromkeys(output.output for output in pipeline.upstream)]
    which = "the output watermark of" if len(names) == 1 else "the least of the output watermarks of"
    yield f"watermark: {which} {', '.join(names)}"


def _pipeline_steps(pipeline: Pipeline) -> list[list[str]]:
    """What happens to records that pass the filters of the pipeline's first aggregation."""
    steps: list[list[str]] = [] if pipeline.loop is None else [[loop_step(pipeline, pipeline.loop)]]
    for number, stage in enumerate(pipeline.stages):
        aggregation = stage.aggregation
        if number and aggregation.transform is not None:
            steps.append([aggregation.transform.in_words])
        if number and aggregation.filter is not None:
            steps.append([f"filter {render_expression(aggregation.filter)}"])
        if stage.gives_rows:
            steps.append([f"{_describe_take(stage)}: {', '.join(stage.value_types)}"])
            continue
        keys = ", ".join(aggregation.key) or "window alone"
        columns = ", ".join((*aggregation.aggregates, *aggregation.results))
        steps.append([f"{columns} per {keys}: {describe_windows(aggregation.where).partition(';')[0]}"])
        if aggregation.having is not None:
            steps.append([f"having {render_expression(aggregation.having)}"])
    steps.append(["panes, current   (beside them: late, rejected)"])
    return steps


def _draw_steps(steps: Sequence[Sequence[str]]) -> list[str]:
    lines: list[str] = []
    for step in steps:
        lines += [*(["  │", "  ▼"] if lines else []), *step]
    return lines


def _describe_source(input_: Input) -> str:
    source = input_.source
    return f"{source.path} ({source.format})" if isinstance(source, FilesSource) else f"{source.place} ({source.kind})"


def _input_lines(input_: Input) -> Iterator[str]:
    source, event_time = input_.source, input_.event_time
    if isinstance(source, FilesSource):
        ascend = ", which ascend as files land" if source.names is NameOrder.ORDERED else ""
        yield f"{source}, read in the order of their names{ascend}"
        yield from _dialect_lines(source)
    else:
        yield str(source)
    if not source.is_durable:
        yield "landed first: each run writes what is new to the folder of the pipeline, and reads it from there"
    yield f"columns: {', '.join(_source_column(*column) for column in source.schema.items())}"
    if source.changelog is not None:
        yield f"changes: {source.changelog.in_words}"
    if source.versions is not None:
        yield f"versions: {source.versions.in_words}"
    yield from _transform_lines(source)
    if input_.columns:
        yield f"as: {', '.join(f'{name} = {render_expression(expr)}' for name, expr in input_.columns.items())}"
    if event_time.expr is None:
        yield "event time: the time at which an epoch reads a record"
    else:
        yield f"event time: {render_expression(event_time.expr)}"
    yield f"watermark: {_describe_watermark(event_time)}"
    if event_time.split is not None:
        yield f"splits: by {render_expression(event_time.split)}; the slowest holds the watermark back"
    if (idle := _idle_timeout(event_time)) is not None:
        yield f"idle: what has been silent for {idle} does not hold it back"
    if event_time.expr is not None and event_time.max_ahead is not None:
        yield f"a record dated more than {render_duration(event_time.max_ahead)} ahead of the clock moves no watermark"
    if source.max_rejected is not None:
        yield f"an epoch with more than {source.max_rejected:,} dead letters fails"


def _transform_lines(source: Source) -> Iterator[str]:
    if source.transform is not None:
        columns = ", ".join(f"{name} {kind}" for name, kind in source.transform.returns.items())
        yield f"through {source.transform.in_words}, to {columns}"
    if source.explode is not None:
        yield f"exploded: a record for each item of {source.explode}"


def _dialect_lines(source: FilesSource) -> Iterator[str]:
    if source.dialect is not None:
        options = (f"{name} {short_repr(value)}" for name, value in source.dialect.options.items())
        yield f"written with {', '.join(options)}"


def _source_column(name: str, column: ColumnType | SourceField) -> str:
    return f"{name} {column if isinstance(column, SourceField) else in_words(column)}"


def _describe_watermark(event_time: model_event_time.EventTime) -> str:
    match event_time.watermark:
        case model_event_time.Ingestion():
            return "the clock itself; nothing is ever late"
        case model_event_time.BoundedOutOfOrderness(bound=bound):
            return f"{render_duration(bound)} behind the latest event time"
        case model_event_time.Monotonic():
            return "the latest event time"
        case model_event_time.Punctuated(asserted=assertion):
            return f"as records assert it by {render_expression(assertion)}"
        case model_event_time.FromSource():
            return "as the source knows it"
    return f"by a strategy of your own: {event_time.watermark!r}"


def _idle_timeout(event_time: model_event_time.EventTime) -> str | None:
    strategy = event_time.watermark
    timeout = strategy.idle_timeout if isinstance(strategy, model_event_time.SplitStrategy) else None
    return None if timeout is None else render_duration(timeout)


def _stage_sections(pipeline: Pipeline, stage: Stage, number: int) -> Iterator[Section]:
    aggregation = stage.aggregation
    if stage.is_stateless or aggregation.takes_each:
        yield from _row_sections(pipeline, stage)
        return
    what = [f"{name} = {render_aggregate(aggregate)}" for name, aggregate in aggregation.aggregates.items()]
    what += [f"{name} = {render_expression(expr)}, of each row of these" for name, expr in aggregation.results.items()]
    if aggregation.filter is not None:
        what.append(f"of what passes {render_expression(aggregation.filter)}")
    if aggregation.having is not None:
        what.append(
            f"only rows leave of which {render_expression(aggregation.having)} is true{_withdrawal_clause(stage)}"
        )
    if stage.gives_rows:
        what = [_describe_take(stage), f"columns: {', '.join(stage.value_types)}", *what]
        what += [f"no two have the same {' and '.join(pipeline.id)}: the audit holds them to it"] if pipeline.id else []
    keys = ", ".join(_column_texts(aggregation.key)) or "window alone: there is no key"
    nulls = ["NULL in the key is a group"] if stage.null_keys and aggregation.key else []
    yield Section("rows" if stage.gives_rows else "what", [*what, f"per {keys}", *nulls])
    reads_records = number == 1 and not pipeline.upstream
    watermarks = [input_.event_time.watermark for input_ in pipeline.inputs] if reads_records else []
    yield Section(
        "where",
        [describe_windows(aggregation.where), *example_window_lines(aggregation.where, aggregation.how, watermarks)],
    )
    yield Section("when", panes(stage.when))
    yield Section("how", [*_how_lines(aggregation.how)])


def _row_sections(pipeline: Pipeline, stage: Stage) -> Iterator[Section]:
    what = [*_column_texts(stage.row_columns), f"one of each {'pane' if pipeline.upstream else 'record'}"]
    if stage.aggregation.filter is not None:
        what.append(f"of what passes {render_expression(stage.aggregation.filter)}")
    if pipeline.id:
        what.append(f"no two have the same {' and '.join(pipeline.id)}: the audit holds them to it")
    yield Section("rows", what)
    yield Section("when a row leaves", [*_leaves(stage)])


def _leaves(stage: Stage) -> Iterator[str]:
    """When one of rows without a key leaves, and whether it stays."""
    stays = "it is withdrawn when what it was made of is" if stage.withdraws else "it stays for good"
    if stage.is_stateless:
        yield "with its epoch, also behind the watermark, where its timing is LATE"
        yield stays
        return
    yield "once the watermark has passed its event time; until then it waits, and is kept"
    if stage.withdrawable:
        yield "one that is withdrawn while it waits never leaves"
    lateness = stage.aggregation.how.allowed_lateness
    if lateness is not None:
        lateness_text = f" by more than {render_duration(lateness)}" if lateness else ""
        yield f"what comes behind the watermark{lateness_text} is late"
    if lateness != 0:
        yield "what comes behind it otherwise leaves at once, and its timing is LATE"
    yield stays


def _describe_take(stage: Stage) -> str:
    take = getattr(stage.aggregation, "take", None)
    match take:
        case Newest(order, deletion):
            order_text = "event time" if order is None else render_expression(order)
            unless = "" if deletion is None else f", unless {render_expression(deletion)}"
            return f"the newest row by {order_text}{unless}"
        case Top(number):
            return f"the {number:,} rows with the largest {', then '.join(map(render_expression, take.by))}"
        case Distinct():
            return "each distinct row"
        case GroupFunction():
            return f"what {take.in_words} makes of all rows of a group"
        case GroupQuery(sql):
            return f"what a query makes of all rows of a group: {' '.join(sql.split())}"
    return "rows"


def _withdrawal_clause(stage: Stage) -> str:
    """What becomes of a row that fulfilled ``having`` and does not any more."""
    if stage.aggregation.how.accumulation is Accumulation.DISCARDING:
        return ""
    return "" if stage.fires_once else "; one that no longer is so is withdrawn"


def _column_texts(columns: Mapping[str, Expr]) -> list[str]:
    texts = {name: render_expression(expr) for name, expr in columns.items()}
    return [name if text == name else f"{name} = {text}" for name, text in texts.items()]


def _how_lines(how: How) -> Iterator[str]:
    yield _ACCUMULATION_TEXTS[how.accumulation]
    if how.allowed_lateness is None:
        yield "allowed lateness: without end"
    else:
        yield f"allowed lateness: {render_duration(how.allowed_lateness)}"
    if how.keep_last is not None:
        yield f"a window keeps its last {how.keep_last:,} elements"
    if how.on_time is Firing.IF_NON_EMPTY:
        yield "the pane on time is left out if nothing came since the one before it"
    if how.closing is Firing.ALWAYS:
        yield "a window gives a last pane when it expires, even if nothing came since the one before it"
    if how.timestamp is not TimestampCombiner.END_OF_WINDOW:
        yield f"a pane is dated by its {'first' if how.timestamp is TimestampCombiner.EARLIEST else 'last'} element"
    if how.elide_unchanged:
        yield "a pane that would change nothing is left out"
