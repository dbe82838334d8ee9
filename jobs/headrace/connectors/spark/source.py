"""Sources that Spark reads, on the driver and in tasks.

Only a driver that finds something new needs Spark: what is landed is read without it.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.connections import Connection, connection
from headrace.connectors.spark.definition import SparkSource
from headrace.connectors.spark.ranges import SESSIONS
from headrace.ext import sources as source_ports
from headrace.ext.formats import FORMATS
from headrace.installed import require_extra
from headrace.pipeline.endpoints import Source
from headrace.sources.landed.ranges import way_on
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore

if TYPE_CHECKING:
    from headrace.connectors.spark.ranges import NamedRanges
    from headrace.formats.file_format import RequiredColumns, ScannedRecords, Span


_UNKNOWN_SIZE: Final = 1
"""The size of a range that nobody has read: some size, as every split has."""


@dataclass(frozen=True)
class RangeEnumerator(source_ports.SplitEnumerator):
    """Asks the function of ``source`` which ranges are new; what was written of others is in the ``store``."""

    source: SparkSource
    store: ObjectStore

    def unread(
        self, position: source_ports.SourcePosition, read: Collection[str] | None = None
    ) -> Iterator[source_ports.SourceSplit]:
        """Ranges behind the position, each up to the next end. Raises RangeFunctionError, RangeRefusedError,
        RangeFailedError, and MissingConnectionError.
        """
        begin = position.mark or None
        with _open_ranges(self.source) as ranges:
            ends = ranges.ends(begin)
        for end in ends:
            if end != begin:
                words = f"{self.source.name} {'from the beginning' if begin is None else f'behind {begin}'} to {end}"
                yield source_ports.SourceSplit(words, _UNKNOWN_SIZE, json.dumps([begin, end]))
            begin = end

    def after(
        self, position: source_ports.SourcePosition, splits: Sequence[source_ports.SourceSplit]
    ) -> source_ports.SourcePosition:
        """Where the last range ends."""
        return position.passed(_bounds_of(splits[-1])[1], splits) if splits else position

    def missing(self, splits: Iterable[source_ports.SourceSplit]) -> Iterator[tuple[source_ports.SourceSplit, str]]:
        """Files that were written and are gone, or have another size. Reading holds each against its digest."""
        wanted_splits = [*splits]
        folders = {split.path.rpartition("/")[0] + "/" for split in wanted_splits}
        size_by_path = {info.path: info.size for folder in folders for info in self.store.list(folder)}
        for split in wanted_splits:
            if split.path not in size_by_path:
                yield split, "is gone"
            elif size_by_path[split.path] != split.size:
                yield split, "has changed"

    def explain(self) -> str:
        """Says that no range has had a record."""
        return f"{self.source} has given no range with a record in it"


@dataclass(frozen=True)
class WrittenReader(source_ports.WritingReader):
    """Has Spark write the ranges of ``source`` below a ``store``, and reads what was written."""

    source: SparkSource
    store: ObjectStore

    def new_attempt(self) -> str:
        """16 random digits."""
        return uuid.uuid4().hex[:16]

    def write(self, split: source_ports.SourceSplit, folder: str) -> Sequence[source_ports.SourceSplit]:
        """Run the job. Raises RangeColumnsError, RangeFunctionError, RangeRefusedError, RangeFailedError and errors of
        Spark.
        """
        with _open_ranges(self.source) as ranges:
            from headrace.connectors.spark.ranges import check_columns, named_failures, write_frame

            frame = ranges.read(*_bounds_of(split))
            with named_failures(self.source, ranges.session.connection):
                check_columns(frame, self.source)
                return write_frame(ranges.session.spark, frame, self.store.uri, folder)

    def read(self, split: source_ports.SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """The rows of a file. Raises SplitGoneError, LandedColumnsError."""
        from headrace.connectors.spark.definition import LandedColumnsError
        from headrace.formats.file_format import FileColumnsError
        from headrace.sources.landed.ranges import digest_of

        try:
            data = self.store.read(split.path)
        except ObjectNotFoundError as error:
            raise source_ports.SplitGoneError(split.path, "is gone", way_on(split.path)) from error
        if digest_of(data) != split.etag:
            raise source_ports.SplitGoneError(split.path, "has changed", way_on(split.path))
        try:
            return FORMATS["parquet"].read(data, self.source.fields, required, split.path, span)
        except FileColumnsError as error:
            raise LandedColumnsError(error.path, error.reason) from error


class SparkConnector(source_ports.SourceConnector):
    """Whatever Spark reads."""

    def open(self, source: Source, root: ObjectStore) -> source_ports.OpenSource:
        """The ranges of ``source``, which are written below ``root``; nothing is asked yet."""
        assert isinstance(source, SparkSource)
        return source_ports.OpenSource(RangeEnumerator(source, root), WrittenReader(source, root))

    @contextmanager
    def staying_connected(self) -> Iterator[None]:
        """One session, which epochs on Spark have, too."""
        with SESSIONS.keep_open():
            yield


SPARK: Final = SparkConnector()


@contextmanager
def _open_ranges(source: SparkSource) -> "Iterator[NamedRanges]":
    """The ranges of ``source``. Raises NotInstalledError, MissingConnectionError, RangeFunctionError."""
    require_extra("spark", str(source))
    from headrace.connectors.spark.ranges import ranges_of

    spark_connection: Connection | None = connection(source.connection) if source.connection else None
    with ranges_of(source, spark_connection) as ranges:
        yield ranges


def _bounds_of(split: source_ports.SourceSplit) -> tuple[str | None, str]:
    begin, end = json.loads(split.etag)
    return begin, end
