"""The columns of views have the same types for Arrow and for DuckDB."""

import duckdb

from headrace.model.expressions.data_types import DataType, ListType, MapType, PairsType, StructType, ValueType
from headrace.read.views.arrow_types import schema_of
from headrace.read.views.database import in_utc, no_rows, sql_types


def test_a_view_without_rows_has_columns_of_the_types_that_rows_have() -> None:
    columns: dict[str, ValueType] = {f'a "{kind}"': kind for kind in DataType}
    columns |= {f"list of {kind}": ListType(kind) for kind in DataType}
    columns |= {f"{left} and {right}": PairsType(left, right) for left in DataType for right in DataType}
    place = StructType((("a b", DataType.TIMESTAMP), ("b'", MapType(DataType.DECIMAL))))
    columns["nested pairs"] = PairsType(place, ListType(place))
    with in_utc(duckdb.connect()) as connection:
        relation = connection.sql(no_rows(columns))
        assert [*map(str, relation.types)] == [*sql_types(columns).values()]
        arrow_table = relation.to_arrow_table()
    assert arrow_table.num_rows == 0
    assert arrow_table.schema == schema_of(columns)
