"""What a publish and a cut-over say became visible: everything of the range, not its newest epoch alone. No Spark."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace.engine.progress import Progress
from headrace.entrypoints.audit_store import AuditOutcome, write_audit
from headrace.entrypoints.backfill import ClockAheadError, cut_over
from headrace.entrypoints.publish import AuditMissingError, publish_audited
from headrace.model.time import MIN_INSTANT, Instant, instant, render
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store


class Audited:
    """A pipeline whose epoch n wrote n+1 panes, and audits of it as they are asked for."""

    def __init__(self, root: str) -> None:
        self.store = open_store(root)
        self.catalog = Catalog(self.store, "p")

    def commit(self, epochs: int, branch: str = "main", clock: Instant = MIN_INSTANT) -> str:
        claim = self.catalog.claim(branch, "test")
        head = claim.snapshot_id
        for _ in range(epochs):
            epoch = 0 if head is None else self.catalog.manifest(head).epoch + 1
            manifest = Manifest(
                snapshot_id=self.catalog.new_snapshot_id(),
                pipeline="p",
                fingerprint="f",
                branch=branch,
                epoch=epoch,
                parent=head,
                generation=claim.generation,
                created_at="2026-01-01T00:00:00Z",
                progress=Progress(processing_time=clock).to_json(),
                counts={"panes": epoch + 1, **({"late_dropped": 1} if epoch == 0 else {})},
            )
            self.catalog.commit(claim, manifest)
            head = manifest.snapshot_id
        assert head is not None
        return head

    def audit(self, after: str | None, until: str) -> None:
        write_audit(self.store, AuditOutcome("p", after, until, True, (), "2026-01-01T00:00:00Z"))


@pytest.fixture
def root(tmp_path: Path) -> str:
    return tmp_path.as_uri()


def test_a_publish_counts_every_epoch_of_the_range(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(2)
    audited.audit(None, first)
    result = publish_audited("p", root)
    assert (result.epochs, result.rows) == ((0, 1), {"panes": 1 + 2, "late_dropped": 1})
    second = audited.commit(3)
    with pytest.raises(AuditMissingError):
        publish_audited("p", root)
    audited.audit(first, second)
    result = publish_audited("p", root)
    assert (result.epochs, result.epoch, result.rows["panes"]) == ((2, 3, 4), 4, 3 + 4 + 5)


def test_who_comes_after_the_entry_hears_of_the_same_rows(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(1)
    audited.audit(None, first)
    publish_audited("p", root)
    second = audited.commit(2)
    audited.audit(first, second)
    told = publish_audited("p", root)
    audited.catalog.claim("main", "a run that found nothing")
    again = publish_audited("p", root)
    assert again.epochs == ()
    assert again.rows == told.rows == {"panes": 2 + 3}
    audited.catalog.rollback("main", first, "back")
    assert publish_audited("p", root).rows == {}


def test_a_cut_over_counts_the_whole_branch(root: str) -> None:
    audited = Audited(root)
    first = audited.commit(2)
    audited.audit(None, first)
    publish_audited("p", root)
    replayed = audited.commit(4, "replay")
    audited.audit(None, replayed)
    result = cut_over("p", root, "replay")
    assert (result.epochs, result.rows["panes"]) == ((0, 1, 2, 3), 1 + 2 + 3 + 4)
    assert publish_audited("p", root).rows == result.rows


def test_a_replay_whose_clock_is_ahead_does_not_become_main(root: str) -> None:
    audited = Audited(root)
    ahead = instant(datetime.now(UTC) + timedelta(hours=1))
    audited.audit(None, audited.commit(1, "replay", ahead))
    with pytest.raises(ClockAheadError, match=re.escape(render(ahead))):
        cut_over("p", root, "replay")
