"""Which columns a file of an input must have, by what the pipeline reads.

Which columns of the files of each input are read, and what for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headrace.formats.file_format import RequiredColumns
from headrace.model.changelog import DebeziumEnvelope, DeltaChangeType, SignedBy
from headrace.model.expressions.expr import Column, Expr
from headrace.model.expressions.typing import columns_of
from headrace.model.triggers.custom import CustomTrigger
from headrace.model.windows import CustomWindows, ShiftedOutputTime
from headrace.moved import moved
from headrace.pipeline.endpoints import OWN, Input, OnMissing
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.stages import trigger_nodes
from headrace.program.columns import substitute


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
    for user_code in [
        *own,
        *(node for node in trigger_nodes(pipeline.stages[0].when) if isinstance(node, CustomTrigger)),
    ]:
        yield from ((type(user_code).__name__, Column(name)) for name in pipeline.schema)


__getattr__ = moved(__name__)


def required_by(pipeline: Pipeline, given: Input) -> RequiredColumns:
    """What a file of ``given`` must have, by the columns that it is read with."""
    required = _of_rows(pipeline, given)
    match given.source.changelog:
        case DeltaChangeType() as changelog:
            sign = {"changelog": Column(changelog.column(given.source.schema))}
            return replace(required, identities={**sign, **required.identities}, fields=given.source.as_read.fields)
        case DebeziumEnvelope() as envelope:
            read = {
                envelope.of_row(row, name): reader
                for name, reader in required.columns.items()
                if name not in given.source.metadata
                for row in (envelope.before, envelope.after)
            }
            return RequiredColumns({"changelog": Column(envelope.op)}, read, given.source.as_read.fields)
    return required


def _of_rows(pipeline: Pipeline, given: Input) -> RequiredColumns:
    """What must be there of the columns of its schema."""
    read = columns_read(pipeline, given) if given.source.missing is OnMissing.FAIL else {}
    if given.source.transform is not None:
        return RequiredColumns(columns=read, fields=given.source.fields)
    columns = given.expressions(pipeline.schema)
    outputs = [*pipeline.of_records.values()]
    key = outputs[0].key if len(outputs) == 1 else {}  # of several, others take records that have none
    keys = {f"key {name}": substitute(expr, columns) for name, expr in key.items()}
    expr = given.event_time.expr
    return RequiredColumns(keys if expr is None else {"event time": expr, **keys}, read, given.source.fields)
