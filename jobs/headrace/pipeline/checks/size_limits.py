"""How large a pipeline may be, checked before anything else looks into its expressions and triggers."""

from collections.abc import Iterator, Sequence

from headrace.errors import PipelineError
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.tree_size import extent, too_large
from headrace.model.triggers import Trigger
from headrace.model.triggers.data_driven import DataDriven
from headrace.model.windows import FixedWindows, ShiftedOutputTime
from headrace.pipeline.aggregation import Aggregation
from headrace.pipeline.checks.trigger_checks import nodes
from headrace.pipeline.deduplicate import Deduplicate
from headrace.pipeline.source import Input

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
        where = aggregation.where.inner if isinstance(aggregation.where, ShiftedOutputTime) else aggregation.where
        if isinstance(where, FixedWindows) and where.phase is not None:
            yield "the phase", where.phase
        for node in () if aggregation.when is None else nodes(aggregation.when):
            if isinstance(node, DataDriven):
                yield "DataDriven", node.ready_if
