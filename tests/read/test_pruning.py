"""Files and chunks that can have no row which fulfils a condition are not read, and no row is missing for that."""

import os
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import Expr, col
from headrace.kernel.stage import CompiledStage
from headrace.model.expressions.data_types import of_billionths
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.views.columns import EarlierColumns, View, ViewColumns
from headrace.read.views.conditions import ColumnBounds, NeededRows, needed_parts
from headrace.read.views.lazy_view import LazyView
from headrace.read.views.sources import OutputFiles
from headrace.state.files import put_rows
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.store import ObjectStore
from headrace_snapshots.testing import FaultyStore
from tests.cli.deployments import Deployment, hour, pane
from tests.reading import schema

PLACES, CONDITIONS, LEAST = (200, 120, 5) if os.environ.get("HEADRACE_CORRUPTIONS") == "all" else (20, 15, 2)
"""At how many places of a file a bit is turned; how many conditions are tried on each type of keys, and than how many
more find rows, and leave something out. ``make exhaustive`` tries more.
"""

PIPELINE = """
from datetime import date, datetime
from decimal import Decimal

import headrace as hr
from headrace import col

landed = hr.parquet("landing/clicks", {{"k": {kind}, "l": str, "at": datetime, "amount": int}})
clicks = hr.Pipeline(
    "clicks",
    landed.event_time("at", bound="10m"),
    key={keys},
    what={{"clicks": hr.count(), "amount": col("amount").sum()}},
    where=hr.FixedWindows("1h"),
    when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
    how=hr.retracting(allowed_lateness="1d"),
)
"""
MOMENT = datetime(2026, 3, 1, 2, 30, 0, 1, tzinfo=UTC)
VALUES: dict[str, list[Any]] = {
    "int": [None, 0, 1, -1, 5, 2**53 + 1, 2**63 - 1, -(2**63), *range(10, 40)],
    "str": [
        None,
        "",
        "a",
        "A",
        "é",
        "e\u0301",
        "漢",
        "😄",
        "it's",
        "5",
        "05",
        "a\0",
        *(f"user {n}" for n in range(30)),
    ],
    "bool": [None, True, False],
    "datetime": [None, MOMENT, *(MOMENT + timedelta(days=n, microseconds=n) for n in range(-3, 30))],
    "date": [None, date(1, 1, 1), date(9999, 12, 31), *(date(2026, 3, 1) + timedelta(days=n) for n in range(30))],
    "Decimal": [None, *(of_billionths(n * 10**8 + (n % 3)) for n in range(-3, 30)), Decimal(10**27 - 1)],
}


class ChunkedDeployment(Deployment):
    """A deployment whose files are those of runs: in the order of keys, in chunks. Up to epoch ``end_epoch`` they
    call the key otherwise.
    """

    end_epoch = -1

    def write(self, path: str, view: str, rows: Any, epoch: int) -> DataFile:
        """A file of a view, as tasks write it."""
        table = pa.Table.from_pylist(
            [{**row, "epoch": epoch} for row in rows], schema=schema(self.pipeline, View(view))
        )
        (batch,) = table.combine_chunks().to_batches()
        stage = CompiledStage(self.pipeline.stages[0])
        if epoch <= self.end_epoch:
            batch = batch.rename_columns(["old" if name == "k" else name for name in batch.schema.names])

        def hash_batch(some: pa.RecordBatch) -> Any:
            return stage.hashes_of(some.rename_columns(table.schema.names))

        (file,) = put_rows(
            self.store, path.removesuffix("-0.parquet"), [batch], hash_batch if view != "rejected" else None
        )
        return file


class CountingStore(FaultyStore):
    """A store that notes how many bytes each look at an object gave."""

    def __init__(self, inner: ObjectStore, read: list[int]) -> None:
        super().__init__(inner, lambda _: None)
        self._read = read

    def read(self, path: str) -> bytes:
        return self._note_size(super().read(path))

    def read_range(self, path: str, start: int, length: int) -> bytes:
        return self._note_size(super().read_range(path, start, length))

    def _note_size(self, data: bytes) -> bytes:
        self._read.append(len(data))
        return data


@pytest.fixture
def small() -> Iterator[None]:
    """Chunks of four rows, and files that are worth reading in part, however small they are."""
    with set_sizes(chunk_rows=4, least_footers=0, most_of_a_file=1, small_file_bytes=0):
        yield


def random_rows(source: random.Random, kind: str, epoch: int) -> list[dict[str, Any]]:
    """Panes and retractions of some keys, in order; some windows have no ends."""
    rows = []
    for sequence in range(source.randrange(1, 25)):
        first = source.randrange(6)
        row = pane("", first, source.randrange(9), retraction=source.random() < 0.3, sequence=sequence)
        del row["user"]
        row |= {"k": source.choice(VALUES[kind]), "l": source.choice(["x", "y", None]), "amount": epoch}
        if source.random() < 0.15:
            row |= {"window_start": None, "window_end": None}
        elif source.random() < 0.1:
            row |= {"window_end": None}
        rows.append(row)
    return rows


def sql_of(value: Any, source: random.Random) -> str:
    """A constant, one way or another."""
    text = f"{value:f}" if isinstance(value, Decimal) else repr(value)
    match value:
        case None:
            text = "null"
        case bool() | int():
            text = source.choice([str(value).lower(), f"'{str(value).lower()}'"])
        case str():
            text = "'" + value.replace("'", "''") + "'" if "\0" not in value else "'a' || chr(0)"
        case datetime():
            text = source.choice(["", "timestamptz ", "timestamp with time zone "]) + f"'{value.isoformat()}'"
        case date():
            text = source.choice(["", "date "]) + f"'{value.isoformat()}'"
    return text


def random_sql(source: random.Random, kind: str) -> str:
    """A condition over key, window and epoch, and others."""
    value = lambda: sql_of(source.choice(VALUES[kind]), source)  # noqa: E731
    when = lambda: sql_of(hour(source.randrange(-1, 9)), source)  # noqa: E731
    op = lambda: source.choice(["=", "=", "=", "<", "<=", ">", ">=", "<>"])  # noqa: E731
    simple = [
        lambda: f"k {op()} {value()}",
        lambda: f"{value()} {op()} K",
        lambda: f"k = {value()}",
        lambda: f"k in ({value()}, {value()})",
        lambda: f"k between {value()} and {value()}",
        lambda: f"(k = {value()} or k = {value()})",
        lambda: f"(k = {value()} or clicks > 4)",
        lambda: f"not (k = {value()})",
        lambda: "k is null",
        lambda: f"k is not distinct from {value()}",
        lambda: f"l = {sql_of(source.choice('xyz'), source)}",
        lambda: f"window_start {op()} {when()}",
        lambda: f"window_end {op()} {when()}",
        lambda: f"window_start between {when()} and {when()}",
        lambda: "window_end is null",
        lambda: f"epoch {op()} {source.randrange(-1, 7)}",
        lambda: f"epoch in ({source.randrange(6)}, {source.randrange(6)})",
        lambda: f"epoch not between 1 and {source.randrange(6)}",
        lambda: f"clicks > {source.randrange(9)}",
    ]
    return " and ".join(source.choice(simple)() for _ in range(source.randrange(1, 4)))


def random_expression(source: random.Random, kind: str) -> Expr:
    """The same, as an expression."""
    own = [value for value in VALUES[kind] if value is not None]
    compare = [lambda a, b: a == b, lambda a, b: a == b, lambda a, b: a < b, lambda a, b: a >= b, lambda a, b: b == a]

    def one() -> Expr:
        expression_makers: list[Any] = [
            lambda: source.choice(compare)(col("k"), source.choice(own)),
            lambda: col("k").is_in([source.choice(own), source.choice(own)]),
            lambda: (col("k") == source.choice(own)) | (col("k") == source.choice(own)),
            lambda: (col("k") == source.choice(own)) | (col("clicks") > 4),
            lambda: ~(col("k") == source.choice(own)),
            lambda: col("k").is_null(),
            lambda: col("l") == source.choice("xyz"),
            lambda: source.choice(compare)(col("window_start"), hour(source.randrange(-1, 9))),
            lambda: source.choice(compare)(col("window_end"), hour(source.randrange(-1, 9))),
            lambda: source.choice(compare)(col("epoch"), source.randrange(-1, 7)),
        ]
        expr: Expr = source.choice(expression_makers)()
        return expr

    expr = one()
    for _ in range(source.randrange(3)):
        expr &= one()
    return expr


def answers(view: LazyView) -> Any:
    """What a view gives, or why it does not."""
    try:
        return view.to_arrow().to_pandas().astype(str).to_dict("records")
    except Exception as error:
        return type(error).__name__


def keys_of(kind: str) -> list[str]:
    return ["k"] if kind != "bool" else ["k", "l"]


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("kind", "is_renamed"), [*((kind, False) for kind in VALUES), ("str", True), ("Decimal", True)]
)
def test_any_condition_finds_what_it_finds_among_all_rows(
    kind: str, is_renamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = random.Random(f"{kind} {is_renamed}")
    deployment = ChunkedDeployment(
        tmp_path, f"memory://{uuid.uuid4().hex}", file_text=PIPELINE.format(kind=kind, keys=keys_of(kind))
    )
    deployment.end_epoch = 2 if is_renamed else -1
    for epoch in range(6):
        rows = random_rows(source, kind, epoch)
        late = [
            {name: row[name] for name in (*keys_of(kind), "window_start", "window_end")}
            | {"event_time": hour(1), "reason": "r", "input": "i", "file": "f", "raw": "{}"}
            for row in random_rows(source, kind, epoch)
        ]
        deployment.commit(panes=rows, late=late)
    names = {"k": "old"}
    earlier_columns_before = (EarlierColumns(2, names, names),) if is_renamed else ()
    own = ViewColumns.from_pipeline(deployment.pipeline)
    definition = ViewColumns(own.keys, own.values, own.late_keys, earlier_columns_before)
    assert deployment.head is not None
    read: list[int] = []
    catalog = Catalog(CountingStore(deployment.store, read), "clicks")
    less = pruned_count = 0
    for number in range(CONDITIONS):
        where = random_sql(source, kind) if number % 3 else random_expression(source, kind)
        view = source.choice([View.CURRENT, View.CURRENT, View.PANES, View.LATE])
        if view is View.LATE and "clicks" in str(where):
            continue
        files_of_it = OutputFiles(catalog, deployment.head, view, definition, None)
        try:
            lazy = LazyView(view, files_of_it, deployment.head, where=where)
        except Exception:
            continue  # a condition that no row could fulfil
        read.clear()
        answer, bytes_read = answers(lazy), sum(read)
        with monkeypatch.context() as context:
            context.setattr(OutputFiles, "where", lambda self, _condition: self)
            read.clear()
            assert answer == answers(lazy) or isinstance(answers(lazy), str), where
        less += bytes_read < sum(read)
        pruned_count += bool(answer)
    assert pruned_count > LEAST
    assert less > LEAST, "conditions that leave something out"


@pytest.fixture
def clicks(tmp_path: Path, small: None) -> Iterator[ChunkedDeployment]:
    """Three epochs of 40 keys, the last of which withdraws some rows."""
    del small
    deployment = ChunkedDeployment(
        tmp_path, f"memory://{uuid.uuid4().hex}", file_text=PIPELINE.format(kind="str", keys=["k"])
    )
    for epoch in range(3):
        rows = []
        for n in range(40):
            row = pane("", n % 5 + epoch, n, retraction=epoch == 2 and n % 2 == 0) | {"k": f"user {n}"}
            del row["user"]
            rows.append(row | {"window_start": hour(n % 5), "window_end": hour(n % 5 + 1)})
        deployment.commit(panes=rows)
    return deployment


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("k = 'user 2'", []),
        ("k = 'user 3'", [2]),
        ("k = 'user 3' and epoch <= 1", []),
        ("epoch < 2", []),
        ("epoch >= 2 and k in ('user 3', 'user 4', 'user 5')", [2, 2]),
        ("k in ()", []),
    ],
)
def test_what_is_left_out_hides_no_newer_record_and_no_retraction(
    clicks: ChunkedDeployment, where: str, expected: list[int]
) -> None:
    if where == "k in ()":
        assert (
            needed_parts([ColumnBounds("k", ())], {"k": ViewColumns.from_pipeline(clicks.pipeline).keys["k"]}).groups
            == frozenset()
        )
        return
    rows = PipelineReader(clicks.catalog).current(at="main", where=where).to_arrow().to_pylist()
    assert [row["epoch"] for row in rows] == expected


@pytest.mark.slow
def test_a_chunk_is_held_against_its_checksum_and_so_is_the_footer(clicks: ChunkedDeployment) -> None:
    assert clicks.head is not None
    file = clicks.head.tables["current"][0].files[0]
    assert file.footer is not None
    whole = clicks.store.read(file.path)

    def rows() -> list[Any]:
        return (
            PipelineReader(Catalog(clicks.store, "clicks"))
            .panes(at="main", where="k = 'user 3'")
            .to_arrow()
            .to_pylist()
        )

    expected = rows()
    detections = 0
    for place in range(0, len(whole), max(1, len(whole) // PLACES)):
        clicks.store.write(file.path, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            assert rows() == expected
        except BrokenObjectError as error:
            detections += 1
            assert file.path in str(error)
    assert 0 < detections < PLACES, "what is read is verified, and not all is read"
    for content in (whole[:-3], b"", whole[:100]):
        clicks.store.write(file.path, content)
        with pytest.raises(BrokenObjectError, match=file.path):
            rows()
    clicks.store.delete(file.path)
    with pytest.raises(BrokenObjectError, match="is missing"):
        rows()


def test_what_files_say_survives_the_manifest_and_need_not_be_there() -> None:
    from headrace_snapshots.format.files import Footer

    for file in (
        DataFile("p", 1, 2, "s"),
        DataFile("p", 1, 2, "s", (1, 2)),
        DataFile("p", 1, 2, "s", (1, 2), (-5, 7), Footer(3, "t")),
    ):
        assert DataFile.from_json(file.to_json()) == file
    everything = NeededRows(frozenset({1}), (10, 20), (3, 4))
    assert everything.may_be_in(None, None)
    assert not everything.may_be_in((2, 5), None)
    assert not everything.may_be_in(None, (21, 30))
    assert everything.may_be_in((0, 1), (20, 30))
    assert [everything.may_be_of(*epochs, is_folded=True) for epochs in ((0, 2), (0, 3), (5, 6))] == [False, True, True]
    assert not everything.may_be_of(5, 6, is_folded=False)
