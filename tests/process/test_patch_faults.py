"""Patches that are stopped in the middle, and main that goes on meanwhile: a patch is whole, or not there."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.runs.client.recording import make_change
from headrace.runs.plan import CutOver
from headrace.runs.reporting.summary import read_summary
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import FencedError, PublishConflictError
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import FaultyStore, HoldRequest, Operation
from tests.process.late_clicks import Live, hour, late_for_main

pytestmark = pytest.mark.slow  # whole runs


@pytest.fixture
def late(tmp_path: Path) -> Live:
    return late_for_main(tmp_path / "live")


class StoppedError(Exception):
    """The process ends here."""


@dataclass
class Stopping:
    """Ends at a put, before it happens or after it."""

    at: int
    happens: bool
    puts: int = 0

    def plan(self, operation: Operation) -> HoldRequest | None:
        if operation.kind not in {"put", "create"}:
            return None
        self.puts += 1
        return HoldRequest(self._stop) if self.puts == self.at + 1 + self.happens else None

    def _stop(self) -> None:
        raise StoppedError


@pytest.mark.parametrize("happens", [False, True], ids=["before", "after"])
def test_a_patch_that_is_stopped_at_any_put_is_whole_or_not_there(late: Live, tmp_path: Path, happens: bool) -> None:
    unpatched_rows, expected_rows = late.current(), late.current("fix")
    puts, commits = 0, 0
    while True:
        live = late.copy_to(tmp_path / f"{happens} {puts}")
        stopping = Stopping(puts, happens)
        catalog = Catalog(FaultyStore(open_store(live.root), stopping.plan), live.pipeline.name)
        refs_before = live.refs()
        try:
            make_change(catalog, CutOver("fix", patches=True), run_id="stopped")
            break
        except StoppedError:
            puts += 1
        refs = live.refs()
        assert live.current() == unpatched_rows or refs["published"] == refs["main"]
        assert live.current("main") == (unpatched_rows if refs["main"] == refs_before["main"] else expected_rows)
        if refs["main"] != refs["published"]:
            commits += 1
            other = live.copy_to(tmp_path / f"{happens} {puts} run")
            other.process()  # the next run publishes it as well
            assert other.current() == expected_rows
        assert live.patch().published == live.refs()["main"]
        summary = read_summary(open_store(live.root), live.pipeline.name)
        assert summary is not None
        assert summary.published == live.refs()["main"], "whoever published it"
        assert live.current() == expected_rows
        assert [m.epoch for m in live.catalog.ancestry(live.refs()["main"]) if m.is_patch] == [3]
        live.check()
    assert puts >= 5, "the claim, panes, an audit, the manifest, entries"
    assert commits


def busy_catalog(live: Live, entry: int, happens: Callable[[], object]) -> Catalog:
    """A catalog in which something ``happens`` right before an entry of its log is stored, counted from 0."""
    entries = 0

    def plan(operation: Operation) -> HoldRequest | None:
        nonlocal entries
        entries += operation.kind == "create"
        return HoldRequest(happens) if operation.kind == "create" and entries == entry + 1 else None

    return Catalog(FaultyStore(open_store(live.root), plan), live.pipeline.name)


def test_main_may_go_on_while_it_is_patched(late: Live, tmp_path: Path) -> None:
    for entry, error in ((0, PublishConflictError), (1, FencedError)):
        live = late.copy_to(tmp_path / error.code)
        live.land(("ann", 5.8, 3))
        unpatched_rows = [row for row in live.current() if hour(row) == 0]
        with pytest.raises(error):
            make_change(busy_catalog(live, entry, live.process), CutOver("fix", patches=True), run_id="patch")
        assert [row for row in live.current() if hour(row) == 0] == unpatched_rows
        live.check()
        live.backfill()
        live.patch()
        assert live.current() == live.current("fix")
    late.land(("ann", 5.8, 3))
    result = make_change(busy_catalog(late, 2, late.process), CutOver("fix", patches=True), run_id="patch")
    assert result.epochs == (3,)
    assert late.catalog.manifest(late.refs()["published"]).epoch == 4
    assert [row for row in late.current() if hour(row) == 0] == [r for r in late.current("fix") if hour(r) == 0]
    late.check()
