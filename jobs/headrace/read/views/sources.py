"""Where the rows of lazy views come from: data files that a manifest names, or manifests themselves."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.time import Instant, is_finite
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.snapshot_refs import ways_out
from headrace.read.views.columns import LOG_OF_VIEW, Folding, View, ViewColumns
from headrace.read.views.conditions import ALL, NeededRows, QueryError, RowCondition, RowSchema, needed_parts
from headrace.read.views.database import no_rows, sql_columns, sql_types
from headrace.read.views.row_files import NamedFile, check_files, local_paths, rows_of, standing_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.names import TAGS
from headrace_snapshots.store import LocalStore

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from headrace.kernel.columns import Names

REQUEST_BYTES = 2**16
"""What is read in the time that a request to a store takes."""


class RowSource(RowSchema, Protocol):
    """All rows of a view."""

    @property
    def keys(self) -> Sequence[str]:
        """The columns of the key."""

    @property
    def order(self) -> Sequence[str]:
        """The columns by which rows are ordered."""

    @property
    def bytes_to_read(self) -> int:
        """About how many bytes have to be read to know all rows; a request counts as REQUEST_BYTES."""

    def with_first_rows(self, rows: int) -> "RowSource":
        """The same, without files that have none of the first ``rows``, as far as that is known without reading."""

    @property
    def rows(self) -> int | None:
        """How many rows there are, None if that is known only once they are read."""

    @property
    def identity(self) -> Sequence[str] | None:
        """What records are folded by, None if each is a row."""

    def where(self, condition: RowCondition) -> "RowSource":
        """The same rows, without files that can have none which fulfil ``condition``."""

    def describe(self) -> str:
        """How many rows there are, for people."""

    def file_locations(self) -> list[str]:
        """Paths of a local root, or URIs, of what rows are read from, oldest first."""

    def verify(self) -> None:
        """Hold the files against their lengths and checksums. Raises BrokenObjectError."""

    def fetch_files(self, folder: Path) -> list[Path]:
        """Where the files can be read, verified: under ``folder``, or where they are. Raises BrokenObjectError."""

    def relation(self, connection: "duckdb.DuckDBPyConnection", files: Sequence[Path]) -> "duckdb.DuckDBPyRelation":
        """The rows, read from files that were brought."""


@dataclass(frozen=True)
class OutputFiles:
    """A view of the output. ``ref``: the branch or tag by which the snapshot was found."""

    catalog: Catalog
    manifest: Manifest | None
    view: View
    definition: ViewColumns
    ref: str | None
    needed_rows: NeededRows = ALL
    last_epoch: int | None = None
    """The last epoch whose rows are wanted, None for all."""

    def where(self, condition: RowCondition) -> "OutputFiles":
        """By key, window and epoch, as far as files and their chunks say what they have (``pruning``)."""
        keys = {View.LATE: self.definition.late_keys, View.REJECTED: {}}.get(self.view, self.definition.keys)
        extent = (WINDOW_START, WINDOW_END) if self.view is View.LATE else self.definition.extent
        return replace(
            self,
            needed_rows=needed_parts(condition.column_bounds(self.definition.column_types(self.view)), keys, extent),
        )

    @property
    def column_names(self) -> Sequence[str]:
        """Names of the columns of the definition that made the snapshot."""
        return [*self.definition.column_types(self.view)]

    @cached_property
    def columns(self) -> "pa.Schema":
        return self.definition.arrow_schema(self.view)

    @property
    def keys(self) -> Sequence[str]:
        """The columns of the last aggregation's key."""
        return [*self.definition.keys]

    @property
    def order(self) -> Sequence[str]:
        """By window and key, or as they were emitted."""
        return self.definition.row_order(self.view)

    @property
    def bytes_to_read(self) -> int:
        return sum(file.bytes for file in self.wanted_files)

    def with_first_rows(self, rows: int) -> "OutputFiles":
        """The first epochs that have so many; all of ``current``, whose rows no epoch has for itself."""
        if self.view is View.CURRENT:
            return self
        row_count = 0
        for _, last, files in self._by_epochs:
            row_count += sum(file.rows for file in files)
            if row_count >= rows:
                return replace(self, last_epoch=last)
        return self

    @property
    def identity(self) -> Sequence[str] | None:
        """Key and window for ``current``; all columns for rows that can be withdrawn."""
        return self.definition.identity if self._is_folded else None

    @property
    def rows(self) -> int | None:
        """Row count from the manifest; None if the view must be folded."""
        return None if self._is_folded and self._records else self._records

    def describe(self) -> str:
        """Says how many rows there are; for ``current``, how many records it is folded from."""
        return f"{self._records:,} rows" if self.rows is not None else f"folded from {self._records:,} panes"

    def file_locations(self) -> list[str]:
        """Records of ``current`` are still to be folded. Raises QueryError where files call columns otherwise."""
        store = self.catalog.store
        renames = {(name, old_name) for names in self.names.values() for name, old_name in names.items()}
        others = [f"{name} is {old_name or 'not there'}" for name, old_name in renames]
        if others:
            raise QueryError(
                f"files of view {self.view} were written before the pipeline changed, and have other names for "
                f"columns ({', '.join(sorted(others))}): a reader of these files would find NULL. Read the view, also "
                "as a DuckDB relation or a Spark DataFrame; or let a backfill write them again"
            )
        if isinstance(store, LocalStore):
            return [str(store.root / file.path) for file in self.data_files]
        return [f"{store.uri.rstrip('/')}/{file.path}" for file in self.data_files]

    def verify(self) -> None:
        with ways_out(self.catalog, self.ref or ""):
            check_files(self.catalog.store, self.data_files)

    def fetch_files(self, folder: Path) -> list[Path]:
        """Copies, or where they are if the root is local; needed rows alone for files that say where rows are."""
        with ways_out(self.catalog, self.ref or ""):
            return local_paths(self.catalog.store, self.wanted_files, folder, self.needed_rows)

    def relation(self, connection: "duckdb.DuckDBPyConnection", files: Sequence[Path]) -> "duckdb.DuckDBPyRelation":
        """``current`` is folded as it is read."""
        if not files:
            return self.no_rows(connection)
        named_files = [
            NamedFile.from_path(path, self.names[file.path], self.column_names)
            for path, file in zip(files, self.wanted_files, strict=True)
        ]
        rows = rows_of(named_files, sql_types(self.definition.column_types(self.view)))
        if self.identity is None:
            return connection.sql(f"select {sql_columns(self.column_names)} from {rows}")
        return connection.sql(standing_of(rows, self.column_names, self.definition))

    def no_rows(self, connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyRelation":
        """An empty batch with the types of the definition."""
        return connection.sql(no_rows(self.definition.column_types(self.view)))

    @cached_property
    def data_files(self) -> tuple[DataFile, ...]:
        """What rows are read from, oldest first."""
        return tuple(file for _, _, files in self._by_epochs for file in files)

    @cached_property
    def wanted_files(self) -> tuple[DataFile, ...]:
        """Files that may have ``needed_rows``."""
        return tuple(
            file
            for first, last, files in self._by_epochs
            if self.last_epoch is None or last <= self.last_epoch
            if self._may_be_of(first, last)
            for file in files
            if self.needed_rows.may_be_in(file.groups, file.windows)
        )

    def _may_be_of(self, first: int, last: int) -> bool:
        """Whether records of these epochs are needed: sums need all, and an older one may be withdrawn."""
        if self._is_folded and self.definition.folding is Folding.SUMMED:
            return True
        return self.needed_rows.may_be_of(first, last, is_folded=self._is_folded)

    @cached_property
    def names(self) -> "Mapping[str, Names]":
        """What columns are called in the data files, by their paths."""
        by_epoch = ((self.definition.names_in_epoch(self.view, last), files) for _, last, files in self._by_epochs)
        return {file.path: names for names, files in by_epoch for file in files}

    @cached_property
    def _by_epochs(self) -> Sequence[tuple[int, int, Sequence[DataFile]]]:
        """The first and the last epoch that files have rows of, and the files."""
        if self.manifest is None:
            return ()
        if self.view is View.CURRENT:
            with ways_out(self.catalog, self.ref or ""):
                layers = self.catalog.layers(self.manifest, [UNNAMED.current])
                return [(layer.first_epoch, layer.last_epoch, layer.files) for layer in layers]
        log = self.manifest.logs.get(LOG_OF_VIEW[self.view])
        with ways_out(self.catalog, self.ref or ""):
            records = (
                [] if log is None else [*self.catalog.file_records(log, since_epoch=self.needed_rows.last_epoch_before)]
            )
        files_by_epoch = (
            (record.epoch, [file for file in record.files if isinstance(file, DataFile)]) for record in records
        )
        return [(epoch, epoch, files) for epoch, files in files_by_epoch]

    @property
    def _is_folded(self) -> bool:
        """Whether records become rows only once they are read."""
        return self.view is View.CURRENT and self.definition.folding is not Folding.NOTHING

    @property
    def _records(self) -> int:
        if self.manifest is None:
            return 0
        if self.view is View.CURRENT:
            return sum(layer.rows for layer in self.manifest.tables.get(UNNAMED.current, ()))
        log = self.manifest.logs.get(LOG_OF_VIEW[self.view])
        return 0 if log is None else log.rows


@dataclass(frozen=True)
class SnapshotRows:
    """A row for ``manifest`` and for each snapshot before it, newest last."""

    catalog: Catalog
    manifest: Manifest | None

    column_names = (
        "snapshot",
        "epoch",
        "parent",
        "branch",
        "refs",
        "committed_at",
        "processing_time",
        "watermark",
        "fingerprint",
        "counts",
    )
    keys = ()
    order = ("epoch",)
    identity = None

    @property
    def bytes_to_read(self) -> int:
        """A request for each snapshot."""
        return 0 if self.manifest is None else (self.manifest.epoch + 1) * REQUEST_BYTES

    def with_first_rows(self, rows: int) -> "SnapshotRows":
        """All of them: each is known by those after it."""
        del rows
        return self

    @cached_property
    def columns(self) -> "pa.Schema":
        import pyarrow as pa

        from headrace.read.views.arrow_types import TIME

        others = {
            "epoch": pa.int64(),
            "refs": pa.list_(pa.string()),
            "committed_at": TIME,
            "processing_time": TIME,
            "watermark": TIME,
            "counts": pa.map_(pa.string(), pa.int64()),
        }
        return pa.schema([(name, others.get(name, pa.string())) for name in self.column_names])

    @property
    def rows(self) -> int | None:
        """Known only without any."""
        return 0 if self.manifest is None else None

    def where(self, condition: RowCondition) -> "SnapshotRows":
        """All of them: manifests are no data files."""
        del condition
        return self

    def describe(self) -> str:
        """How far they go."""
        return "no rows" if self.manifest is None else "a row for each snapshot up to it"

    def file_locations(self) -> list[str]:
        """None: manifests are not data files."""
        return []

    def verify(self) -> None:
        """Manifests are held against their checksums whenever they are read."""

    def fetch_files(self, folder: Path) -> list[Path]:
        """Nothing."""
        return []

    def relation(self, connection: "duckdb.DuckDBPyConnection", files: Sequence[Path]) -> "duckdb.DuckDBPyRelation":
        """A request for each snapshot that this catalog has not read yet."""
        import pyarrow as pa

        return connection.from_arrow(pa.Table.from_pylist([*self._snapshot_rows()], schema=self.columns))

    def no_rows(self, connection: "duckdb.DuckDBPyConnection") -> "duckdb.DuckDBPyRelation":
        """Without a request."""
        return connection.from_arrow(self.columns.empty_table())

    def _snapshot_rows(self) -> Iterator[dict[str, Any]]:
        if self.manifest is None:
            return
        refs: dict[str, list[str]] = {}
        for ref, snapshot in sorted(self.catalog.head().refs.items()):
            refs.setdefault(snapshot, []).append(ref.removeprefix(TAGS))
        for manifest in self.catalog.ancestry(self.manifest.snapshot_id):
            progress = StoredProgress.from_manifest(manifest)
            yield {
                "snapshot": manifest.snapshot_id,
                "epoch": manifest.epoch,
                "parent": manifest.parent,
                "branch": manifest.branch,
                "refs": refs.get(manifest.snapshot_id, []),
                "committed_at": datetime.fromisoformat(manifest.created_at),
                "processing_time": _finite_or_none(progress.processing_time),
                "watermark": _finite_or_none(progress.watermark),
                "fingerprint": manifest.fingerprint,
                "counts": [*manifest.counts.items()],
            }


def _finite_or_none(instant: Instant) -> int | None:
    return int(instant) if is_finite(instant) else None
