"""Schemas as users write them: a Python type, or a DataType, for each column."""

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal

from headrace.model.arguments import Arguments
from headrace.model.expressions.data_types import DataType, is_text

Columns = Mapping[str, type | DataType]
"""Types of columns by name."""

PYTHON_TYPES: Mapping[type, DataType] = {
    str: DataType.STRING,
    int: DataType.INT,
    float: DataType.FLOAT,
    bool: DataType.BOOL,
    datetime: DataType.TIMESTAMP,
    date: DataType.DATE,
    bytes: DataType.BYTES,
    Decimal: DataType.DECIMAL,
}


def schema_of(given: Arguments, name: str, value: object) -> dict[str, DataType]:
    """The columns of ``value``, in order. Raises PipelineError."""
    if not isinstance(value, Mapping) or not value:
        raise given.wrong(name, value, 'name the columns and their types, such as {"origin": str, "delay": int}')
    for column, kind in value.items():
        column_name(given, name, column, kind)
    return {column: data_type(given, f"{name}[{column!r}]", kind) for column, kind in value.items()}


def column_name(given: Arguments, name: str, column: object, kind: object, instead: str = "") -> str:
    """``column``, the name of a column of ``name`` that holds ``kind``. Raises PipelineError, which says what to write
    ``instead`` of a name that belongs to Headrace.
    """
    text = given.text(f"a column of {name}", column, "origin")
    if not is_text(text):
        raise given.wrong(f"{name}[{text!r}]", kind, "half of a surrogate pair is not a character")
    if text.startswith("_"):
        why = "names that start with _ belong to Headrace"
        raise given.wrong(f"{name}[{text!r}]", kind, f"{why}; {instead}" if instead else why)
    return text


def data_type(given: Arguments, name: str, kind: object) -> DataType:
    """The type ``kind`` of a column. Raises PipelineError."""
    if isinstance(kind, DataType):
        return kind
    if isinstance(kind, type) and kind in PYTHON_TYPES:
        return PYTHON_TYPES[kind]
    possible = ", ".join(python_type.__name__ for python_type in PYTHON_TYPES)
    raise given.wrong(name, kind, f"write one of {possible}, or a DataType")
