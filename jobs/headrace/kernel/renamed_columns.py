"""Columns of stored rows that were called something else when the rows were written, or were not there yet."""

from collections.abc import Mapping

import pyarrow as pa

Names = Mapping[str, str | None]
"""What columns are called in rows as they were written, None: they are not there. Others have the name of today."""


def names_there(schema: pa.Schema, names: Names) -> list[str]:
    """The columns of rows as they were written that ``schema`` has under the names of today."""
    there = (names.get(name, name) for name in schema.names)
    return [name for name in there if name is not None]


def as_now(rows: pa.Table, schema: pa.Schema, names: Names) -> pa.Table:
    """Rows as they were written with the columns of ``schema``; what was not there is NULL."""

    def column(field: pa.Field) -> pa.Array:
        name = names.get(field.name, field.name)
        return pa.nulls(rows.num_rows, field.type) if name is None else rows.column(name).cast(field.type)

    return pa.table([column(field) for field in schema], schema=schema)
