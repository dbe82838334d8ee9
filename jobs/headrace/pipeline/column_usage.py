"""Which columns of the files of each input are read, and what for."""

from collections.abc import Iterator, Mapping

from headrace.model.changelog import SignedBy
from headrace.model.expressions.expr import Column, Expr
from headrace.model.expressions.traversal import columns_of
from headrace.model.triggers.custom import CustomTrigger
from headrace.model.windows import CustomWindows, ShiftedOutputTime
from headrace.pipeline.checks.trigger_checks import nodes
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import OWN, Input


def columns_read(pipeline: Pipeline, given: Input) -> Mapping[str, str]:
    """The columns of ``given.source.schema`` that something reads, each with what reads it first ("aggregate total").

    Code of a user's own that is handed whole records reads all of them. What the pipeline's own input gets from another
    one (``named(columns=)``) need not be in its files, and is left out.
    """
    purposes: dict[str, str] = {}
    if given.source.transform is not None:
        return dict.fromkeys(given.source.schema, f"Spark function {given.source.transform.name}")
    own = [*given.event_time.expressions()]
    if isinstance(changelog := given.source.changelog, SignedBy):
        own.append(("the changelog", changelog.sign))
    for purpose, expr in own:
        for name in columns_of(expr):
            purposes.setdefault(name, purpose)
    form = given.expressions(pipeline.schema)
    elsewhere = {name for other in pipeline.union for name in other.columns} if given.name == OWN else set()
    for purpose, expr in (read for alone in pipeline.of_records.values() for read in _of_records(alone)):
        for column in columns_of(expr) - elsewhere:
            for name in columns_of(form[column]):
                purposes.setdefault(name, purpose)
    return purposes


def _of_records(pipeline: Pipeline) -> Iterator[tuple[str, Expr]]:
    """What is computed of records in the form of the pipeline's own."""
    first, loop = pipeline.first, pipeline.loop
    if loop is None:
        yield from first.expressions()
    else:
        yield from ((f"key {name}", expr) for name, expr in pipeline.key.items())
        yield from (("the step of the loop", term.expr) for term in loop.compiled_step.terms)
        yield from () if pipeline.filter is None else [("the filter", pipeline.filter)]
    if pipeline.deduplicate is not None:
        yield "the id of Deduplicate", pipeline.deduplicate.id
    where = first.where.inner if isinstance(first.where, ShiftedOutputTime) else first.where
    own = [where] if isinstance(where, CustomWindows) else []
    for user_code in [*own, *(node for node in nodes(pipeline.stages[0].when) if isinstance(node, CustomTrigger))]:
        yield from ((type(user_code).__name__, Column(name)) for name in pipeline.schema)
