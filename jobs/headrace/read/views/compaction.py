"""``current``, folded from its files: the newest record of a key and window counts, if it is not a retraction."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.read.views.columns import ViewColumns
from headrace.read.views.database import identifier, in_memory, literal, quoted

if TYPE_CHECKING:
    import pyarrow as pa

_NEWEST = '"_headrace_newest"'
PLACE = ("epoch", "sequence")
GONE = "is_retraction"


def newest_of(
    rows: str, columns: Sequence[str], identity: Sequence[str], *, place: Sequence[str] = PLACE, gone: str = GONE
) -> str:
    """A query of ``columns`` of the live records among ``rows`` (SQL), which it reads twice: of those of one identity
    that of the greatest ``place``, unless it is ``gone`` (SQL).

    The first time finds where the newest record of each ``identity`` is, so that no wide row waits for another.
    """
    same = f"{same_identity('r', 'n', identity)} and {row_of(place, 'r.')} = n.{_NEWEST}"
    taken = ", ".join(f"r.{identifier(name)}" for name in columns)
    return (
        f"select {taken} from {rows} r semi join "
        f"(select {quoted(identity)}, max({row_of(place)}) as {_NEWEST} from {rows} group by {quoted(identity)}) n "
        f"on {same} where not ({gone})"
    )


def number_of(rows: str, identity: Sequence[str], *, place: Sequence[str] = PLACE, gone: str = GONE) -> str:
    """A query of how many rows ``newest_of`` finds, which reads ``rows`` once and little of them."""
    newest = f"max({{'place': {row_of(place)}, 'gone': {gone}}}) as newest"
    return f"select count(*) from (select {newest} from {rows} group by {quoted(identity)}) where not newest.gone"


def same_identity(left: str, right: str, identity: Sequence[str]) -> str:
    """SQL: join condition on the identity columns of ``left`` and ``right``."""
    return " and ".join(f"{left}.{name} is not distinct from {right}.{name}" for name in map(identifier, identity))


def row_of(names: Sequence[str], of: str = "") -> str:
    """``names`` as one value, which is compared by the first of them, then by the next (SQL)."""
    return "{" + ", ".join(f"{literal(name)}: {of}{identifier(name)}" for name in names) + "}"


def newest_rows(rows: "pa.Table", columns: ViewColumns) -> "pa.Table":
    """``current`` of the records of ``rows``, in memory."""
    with in_memory(rows.num_rows) as connection:
        connection.register("rows", rows)
        query = newest_of("rows", rows.schema.names, columns.identity)
        return connection.sql(query).to_arrow_table().cast(rows.schema)


def rows_without(rows: "pa.Table", others: "pa.Table", columns: Sequence[str]) -> "pa.Table":
    """The ``rows`` that are not among ``others`` by ``columns``; NULL is NULL and NaN is NaN."""
    with in_memory(rows.num_rows + others.num_rows) as connection:
        connection.register("rows", rows)
        connection.register("others", others)
        query = f"select r.* from rows r anti join others o on {same_identity('r', 'o', columns)}"
        return connection.sql(query).to_arrow_table().cast(rows.schema)
