"""Which columns of the files of each input are read, and what for."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.model.custom_triggers import CustomTrigger
from headrace.model.expressions.expr import Column, Expr, columns_of
from headrace.model.triggers import AfterPattern, AfterPunctuation, DataDriven
from headrace.model.watermarks import SplitStrategy
from headrace.model.windows import CustomWindows, ShiftedOutputTime
from headrace.pipeline.inputs import OWN, EventTime, Input
from headrace.pipeline.trigger_checks import nodes

if TYPE_CHECKING:
    from headrace.pipeline.pipeline import Aggregation, Pipeline


def columns_read(pipeline: "Pipeline", given: Input) -> Mapping[str, str]:
    """The columns of ``given.source.schema`` that something reads, each with what reads it first ("aggregate total").

    Code of a user's own that is handed whole records reads all of them. What the pipeline's own input gets from another
    one (``named(columns=)``) need not be in its files, and is left out.
    """
    found: dict[str, str] = {}
    if given.source.transform is not None:
        return dict.fromkeys(given.source.schema, f"Spark function {given.source.transform.name}")
    for purpose, expr in of_event_time(given.event_time):
        for name in columns_of(expr):
            found.setdefault(name, purpose)
    form = given.expressions(pipeline.schema)
    elsewhere = {name for other in pipeline.union for name in other.columns} if given.name == OWN else set()
    for purpose, expr in _of_records(pipeline):
        for column in columns_of(expr) - elsewhere:
            for name in columns_of(form[column]):
                found.setdefault(name, purpose)
    return found


def of_event_time(event_time: EventTime) -> Iterator[tuple[str, Expr]]:
    """What is computed of records for their event time and the watermark, each with its purpose."""
    if event_time.expr is None:
        return
    yield "the event time", event_time.expr
    if event_time.split is not None:
        yield "the split", event_time.split
    if isinstance(event_time.watermark, SplitStrategy):
        yield "the watermark", event_time.watermark.mark(event_time.expr)


def _of_records(pipeline: "Pipeline") -> Iterator[tuple[str, Expr]]:
    """What is computed of records in the form of the pipeline's own."""
    first = pipeline.stages[0].aggregation
    yield from expressions(first)
    if pipeline.deduplicate is not None:
        yield "the id of Deduplicate", pipeline.deduplicate.id
    where = first.where.inner if isinstance(first.where, ShiftedOutputTime) else first.where
    own = [where] if isinstance(where, CustomWindows) else []
    for user_code in [*own, *(node for node in nodes(pipeline.when) if isinstance(node, CustomTrigger))]:
        yield from ((type(user_code).__name__, Column(name)) for name in pipeline.schema)


def expressions(aggregation: "Aggregation | Pipeline") -> Iterator[tuple[str, Expr]]:
    """What ``aggregation`` (a pipeline stands for its first) computes of rows that reach it, each with its purpose."""
    for name, expr in aggregation.key.items():
        yield f"key {name}", expr
    if aggregation.filter is not None:
        yield "the filter", aggregation.filter
    for name, aggregate in aggregation.what.items():
        yield from ((f"aggregate {name}", expr) for expr in aggregate.inputs)
    for node in () if aggregation.when is None else nodes(aggregation.when):
        match node:
            case AfterPunctuation(predicate):
                yield "AfterPunctuation", predicate
            case AfterPattern(_, predicates):
                yield from (("AfterPattern", predicate) for predicate in predicates.values())
            case DataDriven(what, _):
                yield from (("DataDriven", expr) for aggregate in what.values() for expr in aggregate.inputs)
