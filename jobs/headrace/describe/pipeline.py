"""A pipeline in words: its inputs, and of each aggregation what, where, when and how."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headrace.describe.windows import life
from headrace.model.accumulation import Accumulation, Firing, How, TimestampCombiner
from headrace.model.combiners import render_aggregate
from headrace.model.expressions.expr import Expr, is_decided, render, walk
from headrace.model.time import render_duration
from headrace.model.triggers.leaves import AfterProcessingTime
from headrace.model.triggers.words import panes
from headrace.model.watermarks import BoundedOutOfOrderness, Ingestion, Monotonic, Punctuated, SplitStrategy
from headrace.model.windows import GlobalWindows, SlidingWindows, describe_windows
from headrace.pipeline.aggregation import Stage
from headrace.pipeline.checks.trigger_checks import nodes
from headrace.pipeline.event_time import EventTime
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import Input

_HOW = {
    Accumulation.DISCARDING: "discarding: a pane holds what came since the one before it",
    Accumulation.ACCUMULATING: "accumulating: a pane holds everything so far",
    Accumulation.RETRACTING: "retracting: a pane holds everything so far, and the one before it is withdrawn",
}


@dataclass(frozen=True)
class Section:
    """A part of a description: a heading, and lines below it."""

    heading: str
    lines: Sequence[str]


def describe(pipeline: Pipeline) -> list[Section]:
    """What ``pipeline`` means, from its inputs to its panes."""
    parts = [Section(f"input {given.name}", [*_input(given)]) for given in pipeline.inputs]
    if pipeline.deduplicate is not None:
        horizon = render_duration(pipeline.deduplicate.horizon)
        what = f"by {render(pipeline.deduplicate.id)}; an id is remembered for {horizon} of event time"
        parts.append(Section("duplicates", [what]))
    if pipeline.has_names and pipeline.filter is not None:
        parts.append(Section("filter", [f"all outputs are of what passes {render(pipeline.filter)}"]))
    for output, alone in pipeline.by_output.items():
        parts += _of_output(alone, f" of output {output}" if output else "")
    if pipeline.limits is not None:
        parts.append(Section("limits", [*pipeline.limits.lines()]))
    if pipeline.usual:
        parts.append(Section("usual", [check.line() for check in pipeline.usual]))
    return parts


def _of_output(pipeline: Pipeline, of_output: str) -> Iterator[Section]:
    several = len(pipeline.stages) > 1
    for number, stage in enumerate(pipeline.stages, start=1):
        where = f" of aggregation {number}" if several else ""
        for part in _stage(pipeline, stage, number):
            yield Section(f"{part.heading}{where}{of_output}", part.lines)


MANY_WINDOWS = 1_000
"""More windows than that for one record are worth a note."""

MANY_VALUES = 10_000
"""A combiner that keeps more values than that for each window is worth a note."""


def notes(pipeline: Pipeline) -> Iterator[str]:
    """What is allowed, and may still not be what was meant."""
    if pipeline.deduplicate is not None and pipeline.deduplicate.horizon == 0:
        yield (
            "an id is forgotten as soon as the watermark has passed its record (Deduplicate with horizon 0s): a "
            "duplicate that comes after that is dropped as late, like a new record of that time"
        )
    for output, alone in pipeline.by_output.items():
        yield from (f"output {output}: {note}" if output else note for note in _output_notes(alone))
    for given in pipeline.inputs:
        if (given.event_time.split is not None or pipeline.union) and _idle(given.event_time) is None:
            yield f"input {given.name} has no idle=: a split or input that falls silent holds the watermark back"


def _output_notes(pipeline: Pipeline) -> Iterator[str]:
    for upper, lower in pairwise(pipeline.stages):
        if _is_of_all_time(upper) and not _is_of_all_time(lower):
            yield (
                "panes of the global window are dated at the end of time, so windows downstream of it do not end "
                "before the input does: give them another timestamp (timestamp= of how=)"
            )
    for stage in pipeline.stages:
        yield from _of_stage(stage)
        if stage.aggregation.how.allowed_lateness is None and not isinstance(stage.aggregation.where, GlobalWindows):
            yield "windows never expire (allowed_lateness None): their state grows with time"
        if pipeline.schedule is None and any(isinstance(node, AfterProcessingTime) for node in nodes(stage.when)):
            yield "a trigger waits for the clock, and without a schedule= only runs by hand look at the clock"


def _of_stage(stage: Stage) -> Iterator[str]:
    """What may not be meant in one aggregation."""
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
    for purpose, expr in stage.aggregation.expressions():
        for part in walk(expr):
            if (always := is_decided(part)) is not None:
                often = "always" if always else "never"
                yield f"{render(part)} in {purpose} is {often} true: NaN is above every number"
    for name, made in stage.aggregation.what.items():
        if made.k is not None and made.k > MANY_VALUES:
            yield f"aggregate {name} keeps up to {made.k:,} values for each key and window: top is for a few"


def _is_of_all_time(stage: Stage) -> bool:
    """Whether panes are dated at the end of the global window."""
    at_the_end = stage.aggregation.how.timestamp is TimestampCombiner.END_OF_WINDOW
    return isinstance(stage.aggregation.where, GlobalWindows) and at_the_end


def graph(pipeline: Pipeline) -> list[str]:
    """The pipeline as a column of steps, from its inputs to what readers see."""
    steps = [[f"{given.name}: {given.source.path} ({given.source.format})" for given in pipeline.inputs]]
    if pipeline.filter is not None:
        steps.append([f"filter {render(pipeline.filter)}"])
    if pipeline.deduplicate is not None:
        steps.append([f"one of each {render(pipeline.deduplicate.id)}"])
    if not pipeline.has_names:
        return _drawn([*steps, *_steps(pipeline)])
    lines = _drawn(steps)
    for output, alone in pipeline.by_output.items():
        own = pipeline.outputs[output].filter
        filtered = [] if own is None else [[f"filter {render(own)}"]]
        first, *others = _drawn([*filtered, *_steps(alone)])
        lines += ["  │", f"  ├─▶ {output}", f"  │     {first}", *(f"  │     {line}" for line in others)]
    return lines


def _steps(pipeline: Pipeline) -> list[list[str]]:
    """What happens to records that pass the filters of the pipeline's first aggregation."""
    steps: list[list[str]] = []
    for number, stage in enumerate(pipeline.stages):
        made = stage.aggregation
        if number and made.transform is not None:
            steps.append([f"Spark code {made.transform.name}"])
        if number and made.filter is not None:
            steps.append([f"filter {render(made.filter)}"])
        keys = ", ".join(made.key) or "window alone"
        steps.append([f"{', '.join(made.what)} per {keys}: {describe_windows(made.where).partition(';')[0]}"])
    steps.append(["panes, current   (beside them: late, rejected)"])
    return steps


def _drawn(steps: Sequence[Sequence[str]]) -> list[str]:
    lines: list[str] = []
    for step in steps:
        lines += [*(["  │", "  ▼"] if lines else []), *step]
    return lines


def _input(given: Input) -> Iterator[str]:
    source, event_time = given.source, given.event_time
    yield f"{source.format} files under {source.path}, read in the order of their names"
    yield f"columns: {', '.join(f'{name} {kind}' for name, kind in source.schema.items())}"
    if source.transform is not None:
        yield f"through Spark code {source.transform.name}, to {_columns(source.transform.returns)}"
    if given.columns:
        yield f"as: {', '.join(f'{name} = {render(expr)}' for name, expr in given.columns.items())}"
    if event_time.expr is None:
        yield "event time: the time at which an epoch reads a record"
    else:
        yield f"event time: {render(event_time.expr)}"
    yield f"watermark: {_watermark(event_time)}"
    if event_time.split is not None:
        yield f"splits: by {render(event_time.split)}; the slowest holds the watermark back"
    if (idle := _idle(event_time)) is not None:
        yield f"idle: what has been silent for {idle} does not hold it back"
    if event_time.expr is not None and event_time.max_ahead is not None:
        yield f"a record dated more than {render_duration(event_time.max_ahead)} ahead of the clock moves no watermark"
    if source.max_rejected is not None:
        yield f"an epoch with more than {source.max_rejected:,} dead letters fails"


def _watermark(event_time: EventTime) -> str:
    match event_time.watermark:
        case Ingestion():
            return "the clock itself; nothing is ever late"
        case BoundedOutOfOrderness(bound=bound):
            return f"{render_duration(bound)} behind the latest event time"
        case Monotonic():
            return "the latest event time"
        case Punctuated(asserted=asserted):
            return f"as records assert it by {render(asserted)}"
    return f"by a strategy of your own: {event_time.watermark!r}"


def _idle(event_time: EventTime) -> str | None:
    strategy = event_time.watermark
    timeout = strategy.idle_timeout if isinstance(strategy, SplitStrategy) else None
    return None if timeout is None else render_duration(timeout)


def _stage(pipeline: Pipeline, stage: Stage, number: int) -> Iterator[Section]:
    made = stage.aggregation
    what = [f"{name} = {render_aggregate(aggregate)}" for name, aggregate in made.what.items()]
    if made.filter is not None:
        what.append(f"of what passes {render(made.filter)}")
    yield Section("what", [*what, f"per {_keys(made.key)}"])
    watermarks = [given.event_time.watermark for given in pipeline.inputs] if number == 1 else []
    yield Section("where", [describe_windows(made.where), *life(made.where, made.how, watermarks)])
    yield Section("when", panes(stage.when))
    yield Section("how", [*_how(made.how)])


def _keys(key: Mapping[str, Expr]) -> str:
    named = [name if render(expr) == name else f"{name} = {render(expr)}" for name, expr in key.items()]
    return ", ".join(named) or "window alone: there is no key"


def _how(how: How) -> Iterator[str]:
    yield _HOW[how.accumulation]
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


def _columns(schema: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in schema.items())
