"""``current``, folded from its files: the newest record of a key and window counts, if it is not a retraction."""

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from headrace.read.columns import ViewColumns
from headrace.read.database import identifier, quoted

_NEWEST = '"_headrace_newest"'
_PLACE = "{{'epoch': {0}epoch, 'sequence': {0}sequence}}"


def newest_of(rows: str, columns: Sequence[str], identity: Sequence[str]) -> str:
    """A query of ``columns`` of the live records among ``rows`` (SQL), which it reads twice.

    The first time finds where the newest record of each ``identity`` is, so that no wide row waits for another.
    """
    same = " and ".join(f"r.{name} is not distinct from n.{name}" for name in map(identifier, identity))
    taken = ", ".join(f"r.{identifier(name)}" for name in columns)
    return (
        f"select {taken} from {rows} r semi join "
        f"(select {quoted(identity)}, max({_PLACE.format('')}) as {_NEWEST} from {rows} group by {quoted(identity)}) n "
        f"on {same} and {_PLACE.format('r.')} = n.{_NEWEST} where not r.is_retraction"
    )


def newest_rows(rows: pa.Table, columns: ViewColumns) -> pa.Table:
    """``current`` of the records of ``rows``, in memory."""
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        connection.register("rows", rows)
        query = newest_of("rows", rows.schema.names, columns.identity)
        return connection.sql(query).to_arrow_table().cast(rows.schema)
