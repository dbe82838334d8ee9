"""What a delivery leaves in the root for the pages: which snapshot a sink holds, and why the last delivery failed."""

import logging
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.runs.reporting.results import DeliveryNote, read_notes, update_note
from headrace.testing.connectors.worlds import SinkDeployment, order
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.fsck import fsck
from headrace_snapshots.names import ObjectKind, delivery_path, kind_of
from headrace_snapshots.store import LocalStore, ObjectStore, open_store
from tests.sinks.warehouse import Warehouse


@pytest.mark.slow
def test_a_note_follows_deliveries_and_names_no_connection(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = SinkDeployment(warehouse.world, tmp_path)
    sales = deployment.sales()
    store, handle = open_store(tmp_path.as_uri()), deployment.handle(sales)
    assert read_notes(store, "sales") == []
    deployment.land("1", order("ann", 5))
    first = handle.run()
    deployment.deliver(sales)
    (note,) = read_notes(store, "sales")
    assert (note.sink, note.output, note.kind) == (sales.sinks[0].name, "", "postgres")
    assert (note.snapshot, note.epoch, note.written, note.removed) == (first.snapshot, 0, 1, 0)
    deployment.deliver(sales)
    assert read_notes(store, "sales") == [note]  # nothing to do, nothing to write

    deployment.land("2", order("bob", 6))
    handle.run()
    warehouse_uri = warehouse.uri
    monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", "postgresql://user:secret-word@127.0.0.1:9/none")
    with pytest.raises(HeadraceError) as error:
        deployment.deliver(sales)
    (note_after,) = read_notes(store, "sales")
    assert (note_after.snapshot, note_after.error_code) == (first.snapshot, error.value.code)
    kept_text = store.read(delivery_path("sales", "", sales.sinks[0].name)).decode()
    assert not [word for word in ("secret-word", "127.0.0.1", "warehouse:") if word in kept_text]

    monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", warehouse_uri)
    deployment.deliver(sales)
    (mended_note,) = read_notes(store, "sales")
    assert (mended_note.epoch, mended_note.error_code, mended_note.failed_at) == (1, None, None)
    assert not fsck(Catalog(store, "sales")).problems


class _ReadOnly(LocalStore):
    def write(self, path: str, data: bytes) -> None:
        raise HeadraceError(f"{path} may not be written")


def test_a_store_that_refuses_a_note_stops_no_delivery(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import headrace as hr

    store: ObjectStore = _ReadOnly(tmp_path)
    with caplog.at_level(logging.WARNING):
        update_note(
            store,
            "sales",
            "",
            hr.postgres("hours", connection="warehouse"),
            lambda one: one.with_delivery("s", 1, 2, 3, 4),
        )
    assert "what sink hours of sales holds is not noted" in caplog.text


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"format": 2}', b"[]"])
def test_a_damaged_note_is_no_note(tmp_path: Path, damage: bytes) -> None:
    store = open_store(tmp_path.as_uri())
    store.write(delivery_path("sales", "hourly", "reports.sales"), damage)
    assert read_notes(store, "sales") == []


def test_notes_are_objects_of_the_pipeline_by_output_and_sink() -> None:
    paths = [delivery_path("p", "", "reports.sales"), delivery_path("p", "hourly", "s"), "p/deliveries/a/b/c.json"]
    assert [kind_of("p", path) for path in paths] == [ObjectKind.DELIVERIES, ObjectKind.DELIVERIES, None]
    assert paths[:2] == ["p/deliveries/reports.sales.json", "p/deliveries/hourly/s.json"]


def test_a_delivery_that_looked_before_another_changes_no_note_of_it() -> None:
    newer = DeliveryNote("", "hours", "postgres").with_delivery("b", 7, 2, 0, entry=12)
    assert newer.with_delivery("a", 5, 1, 0, entry=9) is newer
    assert newer.with_failure(HeadraceError("overtaken"), entry=9) is newer
    assert newer.with_failure(HeadraceError("down"), entry=12).error_code == "headrace"
    assert newer.with_delivery("c", 8, 1, 0, entry=13).snapshot == "c"
