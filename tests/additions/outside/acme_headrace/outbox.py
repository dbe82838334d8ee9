"""An outbox in a SQLite database: messages in the order in which they came, which others remove after some time."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.ext.sources import (
    FetchingReader,
    OpenSource,
    Source,
    SourceConnector,
    SourcePosition,
    SourceSplit,
    SplitEnumerator,
    SplitGoneError,
)
from headrace.ext.stores import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.ext.formats import RequiredColumns, ScannedRecords

AT_ONCE: Final = 1_000


@dataclass(frozen=True)
class Outbox(Source):
    """The messages of the table ``outbox`` in the file ``database``: JSON objects, by their growing number."""

    database: str
    schema: Mapping[str, Any]
    kind: ClassVar[str] = "outbox"

    @property
    def is_durable(self) -> bool:
        return False

    @property
    def is_watched(self) -> bool:
        return True

    @property
    def place(self) -> str:
        return self.database

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
            return database.execute(sql, values).fetchall()


@dataclass(frozen=True)
class Messages(SplitEnumerator):
    """Splits are ranges of numbers; the position is the last number."""

    source: Outbox

    def unread(self, position: SourcePosition, read: Collection[str] | None = None) -> Iterator[SourceSplit]:
        [(newest,)] = self.source.query("SELECT coalesce(max(number), 0) FROM outbox")
        for start in range(int(position.mark or 0), newest, AT_ONCE):
            end = min(start + AT_ONCE, newest)
            yield SourceSplit(f"{start}-{end}", size=100 * (end - start), etag="")

    def after(self, position: SourcePosition, splits: Sequence[SourceSplit]) -> SourcePosition:
        return position.passed(splits[-1].path.partition("-")[2], splits) if splits else position

    def missing(self, splits: Iterable[SourceSplit]) -> Iterator[tuple[SourceSplit, str]]:
        for split in splits:
            if self.lacks(split):
                yield split, "is gone"

    def lacks(self, split: SourceSplit) -> bool:
        start, end = map(int, split.path.split("-"))
        [(count,)] = self.source.query("SELECT count(*) FROM outbox WHERE number > ? AND number <= ?", start, end)
        return bool(count < end - start)

    def explain(self) -> str:
        return f"there is no message in {self.source.place}"


@dataclass(frozen=True)
class MessageReader(FetchingReader):
    source: Outbox

    def fetch(self, split: SourceSplit) -> "pa.Table":
        import pyarrow as pa

        if Messages(self.source).lacks(split):
            raise SplitGoneError(split.path, "is gone")
        rows = self.source.query(
            "SELECT number, message FROM outbox WHERE number > ? AND number <= ? ORDER BY number",
            *map(int, split.path.split("-")),
        )
        columns = [
            pa.array([number for number, _ in rows], pa.int64()),
            pa.array([text for _, text in rows], pa.binary()),
        ]
        return pa.table(columns, ["number", "message"])

    def scanned(self, table: "pa.Table", required: "RequiredColumns", path: str) -> "ScannedRecords":
        from headrace.ext.formats import read_json

        whole = table.combine_chunks()
        numbers, messages = (whole.column(name).combine_chunks() for name in ("number", "message"))
        return read_json(messages, numbers.to_numpy(), self.source.fields, required, path)


class Outboxes(SourceConnector):
    def open(self, source: Source, root: ObjectStore) -> OpenSource:
        assert isinstance(source, Outbox)
        return OpenSource(Messages(source), MessageReader(source))


OUTBOXES: Final = Outboxes()
