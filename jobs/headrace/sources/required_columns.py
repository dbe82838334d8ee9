"""Which columns a file of an input must have, by what the pipeline reads."""

from dataclasses import replace

from headrace.formats.required import RequiredColumns
from headrace.model.changelog import DebeziumEnvelope, DeltaChangeType
from headrace.model.expressions.expr import Column
from headrace.moved import moved
from headrace.pipeline.column_usage import columns_read
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import Input, OnMissing
from headrace.program.lets import substitute

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
