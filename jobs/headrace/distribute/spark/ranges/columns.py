"""Whether a DataFrame has the columns that a source says, before anything of it is landed."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.distribute.spark.ranges.errors import RangeColumnsError
from headrace.distribute.spark.types import DataFrame
from headrace.formats.errors import FileColumnsError
from headrace.formats.parquet import places, stored_columns
from headrace.pipeline.source import OnMissing
from headrace.pipeline.systems.spark import SparkSource


def check_columns(frame: DataFrame, source: SparkSource) -> None:
    """Raise RangeColumnsError, which names each column of ``frame`` that is not as ``source`` says."""
    names = frame.columns
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RangeColumnsError(
            f"{source}: read() gives column {twice[0]} {names.count(twice[0])} times: name each once (alias, drop)"
        )
    if dotted := [name for name in names if "." in name]:
        raise RangeColumnsError(
            f"{source}: read() gives column {dotted[0]}, and Spark takes what is before a dot for an object: give it "
            "another name (alias), or leave it out"
        )
    try:
        schema = to_arrow_schema(frame.schema, timezone="UTC")
    except PySparkException as error:  # a type that has no form outside of Spark
        raise RangeColumnsError(
            f"{source}: read() gives a column that cannot be landed ({error}): cast it, or leave it out"
        ) from error
    if empty := [field.name for field in schema if _is_empty(field.type)]:
        raise RangeColumnsError(
            f"{source}: read() gives column {empty[0]}, an object without fields, which Parquet cannot hold: "
            "leave it out"
        )
    if wrong := [*_misfits(schema, source)]:
        raise RangeColumnsError(
            f"{source}: what read() gives does not fit the schema: {'; '.join(wrong)}. It has "
            f"{', '.join(f'{field.name} ({field.type})' for field in schema)}. Nothing was landed: correct the schema, "
            "or cast and name the columns in read()"
        )


def _is_empty(kind: pa.DataType) -> bool:
    """Whether somewhere in it there is an object that has no field."""
    is_object = pa.types.is_struct(kind)
    return (is_object and not kind.num_fields) or any(_is_empty(kind.field(n).type) for n in range(kind.num_fields))


def _misfits(schema: pa.Schema, source: SparkSource) -> Iterator[str]:
    fields = source.as_read.fields
    there = {*places(schema, fields)}
    for name, field in fields.items():
        try:
            stored_columns(schema, {name: field}, str(source))
        except FileColumnsError as error:
            yield error.reason
        else:
            if field.place not in there and source.missing is OnMissing.FAIL:
                yield f"there is no column {field.named(name)}"
