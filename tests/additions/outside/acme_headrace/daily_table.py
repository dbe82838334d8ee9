"""Days of a table in a SQLite database: each that is over is a split."""

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headrace.ext.sources import (
    OpenSource,
    Source,
    SourceConnector,
    SourcePosition,
    SourceReader,
    SourceSplit,
    SplitEnumerator,
    SplitGoneError,
)
from headrace.ext.stores import ObjectStore

if TYPE_CHECKING:
    from headrace.ext.formats import RequiredColumns, ScannedRecords, Span


@dataclass(frozen=True)
class DailyTable(Source):
    """The rows of ``table`` in the file ``database``, by their column ``day``. The newest day may grow, and waits."""

    database: str
    table: str
    schema: Mapping[str, Any]
    kind: ClassVar[str] = "daily_table"

    @property
    def place(self) -> str:
        return f"{self.database}/{self.table}"

    @property
    def is_watched(self) -> bool:
        return True

    def query(self, sql: str, *values: object) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            return database.execute(sql.replace("TABLE", f'"{self.table}"'), values).fetchall()


@dataclass(frozen=True)
class Days(SplitEnumerator):
    source: DailyTable

    def unread(self, position: SourcePosition, read: Collection[str] | None = None) -> Iterator[SourceSplit]:
        days = self.source.query(
            "SELECT day, count(*) AS rows, max(rowid) AS newest FROM TABLE "
            "WHERE day > ? AND day < (SELECT max(day) FROM TABLE) GROUP BY day ORDER BY day",
            position.mark,
        )
        for day in days:
            yield SourceSplit(day["day"], size=100 * day["rows"], etag=f"{day['rows']}-{day['newest']}")

    def after(self, position: SourcePosition, splits: Sequence[SourceSplit]) -> SourcePosition:
        return position.passed(splits[-1].path, splits) if splits else position

    def missing(self, splits: Iterable[SourceSplit]) -> Iterator[tuple[SourceSplit, str]]:
        splits_by_path_there = {split.path: split for split in self.unread(SourcePosition())}
        for split in splits:
            if split.path not in splits_by_path_there:
                yield split, "is gone"
            elif not self.is_same(split, splits_by_path_there[split.path]):
                yield split, "has changed"

    def explain(self) -> str:
        return f"no day of {self.source.place} is over"


@dataclass(frozen=True)
class Rows(SourceReader):
    source: DailyTable

    def read(self, split: SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        from headrace.ext.formats import JSON

        for _, how in Days(self.source).missing([split]):
            raise SplitGoneError(split.path, how)
        rows = self.source.query("SELECT * FROM TABLE WHERE day = ? ORDER BY rowid", split.path)
        lines = "\n".join(json.dumps(dict(row)) for row in rows)
        return JSON.read(lines.encode(), self.source.fields, required, split.path, span)


class DailyTables(SourceConnector):
    def open(self, source: Source, root: ObjectStore) -> OpenSource:
        assert isinstance(source, DailyTable)
        return OpenSource(Days(source), Rows(source))


DAILY_TABLES: Final = DailyTables()
