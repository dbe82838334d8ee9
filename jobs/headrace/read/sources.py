"""Where the rows of lazy views come from: data files that a manifest names, or manifests themselves."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import duckdb
import pyarrow as pa

from headrace.model.time import Instant, is_finite
from headrace.read.columns import View, ViewColumns
from headrace.read.damage import ways_out
from headrace.read.database import check_room, literal, quoted
from headrace.read.folding import newest_of
from headrace.read.progress import StoredProgress
from headrace.read.rows import check_files
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.datafiles import put_under
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import TAGS
from headrace_snapshots.store import LocalStore

_FETCHING = 4
"""Files on their way at a time: each of up to 128 MB is held in memory until it is on the disk."""

_TIME = pa.timestamp("us", "UTC")


class Source(Protocol):
    """All rows of a view."""

    @property
    def columns(self) -> pa.Schema:
        """What each row has."""

    @property
    def order(self) -> Sequence[str]:
        """The columns by which rows are ordered."""

    @property
    def rows(self) -> int | None:
        """How many rows there are, None if that is known only once they are read."""

    @property
    def identity(self) -> Sequence[str] | None:
        """What records are folded by, None if each is a row."""

    def describe(self) -> str:
        """How many rows there are, for people."""

    def files(self) -> list[str]:
        """Paths of a local root, or URIs, of what rows are read from, oldest first."""

    def verify(self) -> None:
        """Hold the files against their lengths and checksums. Raises BrokenObjectError."""

    def bring(self, folder: Path) -> list[Path]:
        """The files under ``folder``, verified. Raises BrokenObjectError."""

    def relation(self, connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> duckdb.DuckDBPyRelation:
        """The rows, read from files that were brought."""


@dataclass(frozen=True)
class OutputFiles:
    """A view of the output. ``ref``: the branch or tag by which the snapshot was found."""

    catalog: Catalog
    manifest: Manifest | None
    view: View
    definition: ViewColumns
    ref: str | None

    @property
    def columns(self) -> pa.Schema:
        """Those of the definition that made the snapshot."""
        return self.definition.schema(self.view)

    @property
    def order(self) -> Sequence[str]:
        """By window and key, or as they were emitted."""
        return self.definition.order(self.view)

    @property
    def identity(self) -> Sequence[str] | None:
        """Key and window for ``current``."""
        return self.definition.identity if self.view is View.CURRENT else None

    @property
    def rows(self) -> int | None:
        """As the manifest counts them."""
        return None if self.view is View.CURRENT and self._records else self._records

    def describe(self) -> str:
        """Of ``current`` the number of records that it is folded from."""
        return f"{self._records:,} rows" if self.rows is not None else f"folded from {self._records:,} panes"

    def files(self) -> list[str]:
        """Records of ``current`` are still to be folded."""
        store = self.catalog.store
        if isinstance(store, LocalStore):
            return [str(store.root / file.path) for file in self.data_files]
        return [f"{store.uri.rstrip('/')}/{file.path}" for file in self.data_files]

    def verify(self) -> None:
        """Reads all of them."""
        with ways_out(self.catalog, self.ref or ""):
            check_files(self.catalog.store, self.data_files)

    def bring(self, folder: Path) -> list[Path]:
        """Copies, or links where the root is local."""
        with ways_out(self.catalog, self.ref or ""):
            return brought(self.catalog, self.data_files, folder)

    def relation(self, connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> duckdb.DuckDBPyRelation:
        """``current`` is folded as it is read."""
        if not files:
            return connection.from_arrow(pa.Table.from_batches([], self.columns))
        rows = parquet(files)
        if self.identity is None:
            return connection.sql(f"select {quoted(self.columns.names)} from {rows}")
        return connection.sql(newest_of(rows, self.columns.names, self.identity))

    @cached_property
    def data_files(self) -> tuple[DataFile, ...]:
        """What rows are read from, oldest first."""
        if self.manifest is None:
            return ()
        if self.view is View.CURRENT:
            return tuple(file for layer in self.manifest.tables.get("current", ()) for file in layer.files)
        log = self.manifest.logs.get(self.view)
        records = () if log is None else self.catalog.files(log)
        return tuple(file for record in records for file in record.files if isinstance(file, DataFile))

    @property
    def _records(self) -> int:
        if self.manifest is None:
            return 0
        if self.view is View.CURRENT:
            return sum(layer.rows for layer in self.manifest.tables.get("current", ()))
        log = self.manifest.logs.get(self.view)
        return 0 if log is None else log.rows


@dataclass(frozen=True)
class SnapshotRows:
    """A row for ``manifest`` and for each snapshot before it, newest last."""

    catalog: Catalog
    manifest: Manifest | None

    columns = pa.schema(
        [
            ("snapshot", pa.string()),
            ("epoch", pa.int64()),
            ("parent", pa.string()),
            ("branch", pa.string()),
            ("refs", pa.list_(pa.string())),
            ("committed_at", _TIME),
            ("processing_time", _TIME),
            ("watermark", _TIME),
            ("fingerprint", pa.string()),
            ("counts", pa.map_(pa.string(), pa.int64())),
        ]
    )
    order = ("epoch",)
    identity = None

    @property
    def rows(self) -> int | None:
        """Known only without any."""
        return 0 if self.manifest is None else None

    def describe(self) -> str:
        """How far they go."""
        return "no rows" if self.manifest is None else "a row for each snapshot up to it"

    def files(self) -> list[str]:
        """None: manifests are not data files."""
        return []

    def verify(self) -> None:
        """Manifests are held against their checksums whenever they are read."""

    def bring(self, folder: Path) -> list[Path]:
        """Nothing."""
        return []

    def relation(self, connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> duckdb.DuckDBPyRelation:
        """A request for each snapshot that this catalog has not read yet."""
        return connection.from_arrow(pa.Table.from_pylist([*self._found()], schema=self.columns))

    def _found(self) -> Iterator[dict[str, Any]]:
        if self.manifest is None:
            return
        refs: dict[str, list[str]] = {}
        for ref, snapshot in sorted(self.catalog.head().refs.items()):
            refs.setdefault(snapshot, []).append(ref.removeprefix(TAGS))
        for manifest in self.catalog.ancestry(self.manifest.snapshot_id):
            progress = StoredProgress.of(manifest)
            yield {
                "snapshot": manifest.snapshot_id,
                "epoch": manifest.epoch,
                "parent": manifest.parent,
                "branch": manifest.branch,
                "refs": refs.get(manifest.snapshot_id, []),
                "committed_at": datetime.fromisoformat(manifest.created_at),
                "processing_time": _finite(progress.processing_time),
                "watermark": _finite(progress.watermark),
                "fingerprint": manifest.fingerprint,
                "counts": [*manifest.counts.items()],
            }


def brought(catalog: Catalog, files: Sequence[DataFile], folder: Path) -> list[Path]:
    """Where under ``folder`` each of ``files`` can be read, verified: copies, or links where the root is local.

    Raises BrokenObjectError, and ReadResourcesError where there is no room for copies.
    """
    if not isinstance(catalog.store, LocalStore):
        check_room(sum(file.bytes for file in files), folder)
    paths = [folder / f"{number:06}.parquet" for number in range(len(files))]
    with ThreadPoolExecutor(_FETCHING, thread_name_prefix="read") as pool:
        for _ in pool.map(partial(put_under, catalog.store), files, paths):
            pass
    return paths


def parquet(files: Sequence[Path]) -> str:
    """The rows of ``files``, of which there is one at least (SQL)."""
    return f"read_parquet([{', '.join(literal(escaped(str(file))) for file in files)}])"


def escaped(path: str) -> str:
    """``path`` for DuckDB, which takes some characters of a path for a pattern."""
    return "".join(f"[{each}]" if each in "[*?" else each for each in path)


def _finite(instant: Instant) -> int | None:
    return int(instant) if is_finite(instant) else None
