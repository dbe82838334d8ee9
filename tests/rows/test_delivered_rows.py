"""Targets hold the rows that readers see, whichever way these come to be what they are."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import RefusedError
from headrace.ext.sinks import (
    AppliedCounts,
    ChangeRecords,
    Changes,
    ChangeSource,
    OpenChangeLog,
    OpenSink,
    SinkRefusedError,
    SinkState,
    UndeliverableError,
)
from tests.reading import zoneless_rows
from tests.rows.orders import ORDERS, Orders, minute, order, rows, signed_rows
from tests.sinks.given_target import delivering_to
from tests.sinks.warehouse import Warehouse
from tests.sinks.worlds import DeltaWorld, IcebergWorld

SINK = hr.postgres("orders", connection="nowhere")


@dataclass
class Table(OpenSink):
    """Rows by what they are known by."""

    there: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    last: SinkState | None = None
    source: ChangeSource | None = None

    def held(self) -> SinkState | None:
        return self.last

    def apply(self, changes: Changes, old_state: SinkState | None, new_state: SinkState) -> AppliedCounts:
        assert old_state == self.last
        self.last, self.source = new_state, changes.source
        if changes.source is ChangeSource.ALL_ROWS:
            self.there.clear()
        removed_rows = [row for batch in changes.removed() for row in zoneless_rows(batch)]
        for row in removed_rows:
            del self.there[tuple(row.values())]
        written_rows = [row for batch in changes.rows() for row in zoneless_rows(batch)]
        known_rows = [tuple(row[name] for name in changes.identity) for row in written_rows]
        assert len({*known_rows}) == len(known_rows)
        self.there.update(zip(known_rows, written_rows, strict=True))
        return AppliedCounts(len(removed_rows), len(written_rows))

    def rows(self) -> Iterator[Mapping[str, Any]]:
        yield from self.there.values()


@dataclass
class Log(OpenChangeLog):
    """The sum of records."""

    sums: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    last: SinkState | None = None
    number: int = 0
    identity: tuple[str, ...] = ()

    def held(self) -> SinkState | None:
        return self.last

    def append(self, records: ChangeRecords, old_state: SinkState | None, new_state: SinkState) -> None:
        assert old_state == self.last
        self.last, self.identity = new_state, tuple(records.identity)
        for batch in records.batches():
            for row in zoneless_rows(batch):
                self.number += 1
                assert row["_change"] == self.number
                sign, content = row["_sign"], tuple(row[name] for name in [*row][3:])
                if sign == 0:
                    self.sums.clear()
                else:
                    self.sums[content] += sign

    @contextmanager
    def records(self, columns: object) -> Iterator[Any]:
        raise NotImplementedError


def move(orders: Orders, pipeline: hr.Pipeline, rng: random.Random, step: int) -> None:
    """One of the ways in which what readers see becomes other rows."""
    handle = orders.handle(pipeline)
    main = handle.catalog.head().refs.get("main")
    chosen_step = rng.choice(["run", "run", "run", "rollback", "replay", "patch", "patch", "nothing"])
    if main is None or chosen_step == "run":
        ids = rng.sample("abcdefgh", 3) if not pipeline.id else [f"{step}-{number}" for number in range(3)]
        signs = [1] * 3 if not pipeline.withdraws_records else [rng.choice([1, 1, -1]) for _ in ids]
        records = [
            order(id_, rng.randint(0, 1), rng.choice([0, 2000]), sign=sign)
            for id_, sign in zip(ids, signs, strict=True)
        ]
        orders.run(pipeline, *records)
    elif chosen_step == "rollback":
        kept_snapshots = [manifest.snapshot_id for manifest in handle.catalog.ancestry(main)]
        with suppress(RefusedError):  # it is there already, or was never published
            handle.rollback(to=rng.choice(kept_snapshots))
    elif chosen_step == "replay":
        handle.backfill(promote=True)
    elif chosen_step == "patch":
        landed_names = sorted(path.stem for path in (orders.folder / "landing/orders").iterdir())
        name, id_ = rng.choice(landed_names), f"{step}-patched" if pipeline.id else rng.choice("abcdefgh")
        records = [order(id_, rng.randint(0, 1), minute, sign=1) for minute in (0, 2000)[: 2 - len(pipeline.id)]]
        orders.backfill_corrected(pipeline, {name: records}, branch=f"fix-{step}")
        handle.promote(f"fix-{step}", patch=True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("pipeline", [rows(), signed_rows(), rows(id="id")], ids=["appended", "signed", "known"])
def test_a_table_and_a_log_hold_what_readers_see(tmp_path: Path, pipeline: hr.Pipeline, seed: int) -> None:
    orders, rng = Orders(tmp_path), random.Random(seed)
    pipeline = hr.Pipeline("orders", pipeline.input, rows=pipeline.rows, id=pipeline.id, sinks=[SINK], executor="local")
    table, log = Table(), Log()
    for step in range(12):
        move(orders, pipeline, rng, step)
        if rng.random() < 0.6:
            for target in (table, log):
                with delivering_to(target):
                    orders.handle(pipeline).deliver()
            seen_rows = orders.current(pipeline)
            held_rows = Counter(
                tuple(row[name] for name in ("id", "shop", "double", "event_time")) for row in table.rows()
            )
            assert held_rows == seen_rows
            assert +log.sums == seen_rows
            assert min(log.sums.values(), default=0) >= 0


def test_what_comes_later_is_read_alone(tmp_path: Path) -> None:
    orders, table = Orders(tmp_path), Table()
    pipeline = rows(sinks=[SINK])
    orders.run(pipeline, order("a"))
    with delivering_to(table):
        orders.handle(pipeline).deliver()
    orders.run(pipeline, order("a"))
    with delivering_to(table):
        orders.handle(pipeline).deliver()
    assert (len(table.there), table.source) == (2, ChangeSource.PANES)
    assert [*table.there] == [(0, 0), (1, 0)]


def test_a_row_takes_the_place_of_that_with_its_id(tmp_path: Path) -> None:
    orders, table = Orders(tmp_path), Table()
    pipeline = signed_rows(sinks=[SINK], id="id")
    orders.run(pipeline, order("a", 1, sign=1), order("b", 2, sign=1), order("c", 3, sign=1))
    with delivering_to(table):
        orders.handle(pipeline).deliver()
    orders.run(pipeline, order("a", 1, sign=-1), order("a", 5, 90, sign=1), order("b", 2, sign=-1))
    with delivering_to(table):
        orders.handle(pipeline).deliver()
    assert {key: row["double"] for key, row in table.there.items()} == {("a",): 10, ("c",): 6}


def test_two_rows_of_one_id_are_not_delivered(tmp_path: Path) -> None:
    orders, table = Orders(tmp_path), Table()
    pipeline_with_id = rows(sinks=[SINK], id="id")
    orders.run(rows(), order("a", 1), order("a", 2))
    orders.run(pipeline_with_id, order("b"))
    with pytest.raises(UndeliverableError, match=r"two rows have the same id \(id='a'\)"), delivering_to(table):
        orders.handle(pipeline_with_id).deliver()


def test_records_of_a_row_have_its_content_or_id_in_common(tmp_path: Path) -> None:
    for number, (pipeline, identity) in enumerate(
        [(rows(sinks=[SINK]), ("id", "shop", "double", "event_time")), (rows(sinks=[SINK], id="id"), ("id",))]
    ):
        orders, log = Orders(tmp_path / str(number)), Log()
        orders.run(pipeline, order("a"))
        with delivering_to(log):
            orders.handle(pipeline).deliver()
        assert log.identity == identity


def history(orders: Orders, pipeline: hr.Pipeline, read_rows: Any) -> None:
    """Rows come, go, and are computed again; after each the target, which ``read_rows`` reads, has what readers see."""
    names = (*pipeline.value_types, "event_time")

    def check() -> None:
        orders.handle(pipeline).deliver()
        other_rows = Counter(tuple(_plain(row[name]) for name in names) for row in read_rows())
        assert other_rows == orders.current(pipeline)
        (sink_check,) = orders.handle(pipeline).check_sinks()
        assert sink_check.comparison is not None and sink_check.comparison.is_equal, sink_check

    orders.run(pipeline, order("a", 1, sign=1), order("b", 2, 5, sign=1), order("b", 2, 5, sign=1))
    check()
    first = orders.handle(pipeline).catalog.head().refs["published"]
    orders.run(pipeline, order("b", 2, 5, sign=-1), order("c", None, 3000, sign=1), order("a", 1, sign=-1))
    orders.run(pipeline, order("a", 7, 3000, sign=1))
    check()
    orders.handle(pipeline).rollback(to=first)
    check()
    orders.run(pipeline)
    check()


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if getattr(value, "tzinfo", None) is not None else value


@pytest.mark.slow
def test_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DeltaWorld(str(tmp_path / "lake"))
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    history(Orders(tmp_path), signed_rows(sinks=[world.sink]), world.rows)


@pytest.mark.slow
def test_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").mkdir()
    world = IcebergWorld(f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'lake').as_uri()}")
    monkeypatch.setenv("HEADRACE_CONN_LAKE", world.uri)
    history(Orders(tmp_path), signed_rows(sinks=[world.sink]), world.rows)


@pytest.mark.slow
def test_iceberg_moves_a_row_with_its_id_to_another_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").mkdir()
    world = IcebergWorld(f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'lake').as_uri()}")
    monkeypatch.setenv("HEADRACE_CONN_LAKE", world.uri)
    orders, pipeline = Orders(tmp_path), signed_rows(sinks=[world.sink], id="id")
    orders.run(pipeline, order("a", 1, sign=1), order("b", 1, sign=1))
    orders.handle(pipeline).deliver()
    orders.run(pipeline, order("a", 1, sign=-1), order("a", 2, 5000, sign=1))
    orders.handle(pipeline).deliver()
    assert sorted((row["id"], row["double"]) for row in world.rows()) == [("a", 4), ("b", 2)]


@pytest.mark.slow
def test_iceberg_keeps_no_partitions_by_a_column_that_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lake").mkdir()
    world = IcebergWorld(f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'lake').as_uri()}")
    monkeypatch.setenv("HEADRACE_CONN_LAKE", world.uri)
    orders, of_rows = Orders(tmp_path), rows(sinks=[world.sink])
    hourly = hr.FixedWindows("1h")
    counted_pipeline = hr.Pipeline(
        "orders", ORDERS, key="id", what={"n": hr.count()}, where=hourly, sinks=[world.sink], executor="local"
    )
    orders.run(of_rows, order("a"))
    orders.handle(of_rows).deliver()
    for pipeline, begin in ((counted_pipeline, "event_time"), (of_rows, "window_start")):
        orders.handle(pipeline).backfill(promote=True)
        with pytest.raises(SinkRefusedError, match=rf"is partitioned by {begin}.*\. Drop the table"):
            orders.handle(pipeline).deliver()
        with world.catalog() as catalog:
            catalog.drop_table("reports.sales")
        orders.handle(pipeline).deliver()
        assert len(world.rows()) == orders.handle(pipeline).current().count()


@pytest.mark.slow
def test_iceberg_goes_by_the_event_time_of_rows_that_name_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake").mkdir()
    world = IcebergWorld(f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'lake').as_uri()}")
    monkeypatch.setenv("HEADRACE_CONN_LAKE", world.uri)
    windows: dict[str, Any] = {"where": hr.FixedWindows("3d"), "when": hr.on_update(), "how": hr.retracting(None)}
    outputs: dict[str, Any] = {
        "days": hr.Output(key="shop", what={"n": hr.count()}, **windows),
        "named": hr.Rows(["shop", "n", "window_start"], of="days", id=["shop", "window_start"], sinks=[world.sink]),
    }
    orders = Orders(tmp_path)
    pipeline = hr.Pipeline("orders", ORDERS, outputs=outputs, executor="local")
    for records in ([order("a", 1, 10)], [order("b", 1, 11)], [order("c", 1, 5000), order("d", 1, 12)]):
        orders.run(pipeline, *records)
        orders.handle(pipeline).deliver()
    assert sorted((row["window_start"].day, row["n"]) for row in world.rows()) == [(1, 3), (4, 1)]


def test_postgres(tmp_path: Path, warehouse: Warehouse) -> None:
    history(Orders(tmp_path), signed_rows(sinks=[warehouse.world.sink]), warehouse.world.rows)


def test_postgres_by_id(tmp_path: Path, warehouse: Warehouse) -> None:
    orders, pipeline = Orders(tmp_path), signed_rows(sinks=[warehouse.world.sink], id="id")
    orders.run(pipeline, order("a", 1, sign=1), order("b", 1, sign=1))
    orders.handle(pipeline).deliver()
    orders.run(pipeline, order("a", 1, sign=-1), order("a", 2, 5000, sign=1), order("b", 1, sign=-1))
    orders.handle(pipeline).deliver()
    assert [(row["id"], row["double"], row["event_time"].replace(tzinfo=None)) for row in warehouse.world.rows()] == [
        ("a", 4, minute(5000))
    ]


def test_final_rows_are_handed_over_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mail.py").write_text(
        "import json\nfrom pathlib import Path\n\n"
        "def send(rows):\n    sent = Path(__file__).with_name('sent')\n"
        "    with sent.open('a') as file:\n        file.writelines(f\"{row['id']} {row['_id']}\\n\" for row in rows)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    orders, pipeline = Orders(tmp_path), rows(id="id", sinks=[hr.final_rows("mail:send")])
    orders.run(pipeline, order("a"), order("b", minute=500))
    orders.handle(pipeline).deliver()
    orders.run(pipeline, order("c", minute=3))
    orders.handle(pipeline).deliver()
    sent_lines = [line.split() for line in (tmp_path / "sent").read_text().splitlines()]
    assert [name for name, _ in sent_lines] == ["a", "b", "c"]
    assert len({id_ for _, id_ in sent_lines}) == 3
