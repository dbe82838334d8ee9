"""What readers see once main goes back: what they could see before, and nothing that no audit has passed."""

import json
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import pytest

import headrace as hr
from headrace import col
from headrace.audit.store import AuditFailedError, read_audit
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.errors import RefusedError

pytestmark = pytest.mark.slow  # whole runs

MOST = hr.expect("column_values_to_be_between", column="s", max_value=40)


def pipeline(**more: object) -> hr.Pipeline:
    """Sums by key and hour, which may be 40 at most; with a second output that anything goes for, and its reader."""
    source = hr.json("landing/s", {"k": str, "at": datetime, "v": int}, max_files=1).event_time("at", bound="30m")
    common = {"key": "k", "where": hr.FixedWindows("1h"), "when": hr.on_update(), "how": hr.retracting("1d")}
    sums = hr.Output(what={"s": col("v").sum()}, expectations=[MOST], **common)
    counts = hr.Output(what={"n": hr.count()}, **common)
    output_below = hr.Output(of="sums", what={"s": col("s").sum()}, **common)
    return hr.Pipeline(
        "p", source, outputs={"sums": sums, "counts": counts, "below": output_below}, executor="local", **more
    )


class Root:
    """A root where files land, and ``pipeline`` runs."""

    def __init__(self, folder: Path, pipeline: hr.Pipeline) -> None:
        self.folder, self.root = folder, folder.as_uri()
        self.handle = hr.open(self.root, create=True)[pipeline]
        (folder / "landing/s").mkdir(parents=True)
        self.files = 0

    def land(self, value: int, key: str = "a") -> None:
        self.files += 1
        record = {"k": key, "at": f"2025-05-01T09:{self.files:02}:00Z", "v": value}
        (self.folder / f"landing/s/{self.files:04}.json").write_text(json.dumps(record) + "\n")

    def run(self, *values: int) -> str:
        """Lands ``values``, a file each, and runs; the head of main."""
        for value in values:
            self.land(value)
        with suppress(AuditFailedError):
            self.handle.run()
        return self.refs["main"]

    @property
    def refs(self) -> dict[str, str]:
        return dict(self.handle.catalog.head().refs)

    def seen_by_output(self) -> dict[str, str]:
        return {
            ref.removeprefix("published/"): snapshot
            for ref, snapshot in self.refs.items()
            if ref.startswith("published")
        }

    def sums(self) -> list[int]:
        return [row["s"] for row in self.handle["sums"].current().to_arrow().to_pylist()]

    def is_good(self, output: str, start: str | None, end: str) -> bool:
        """Whether there is a good audit of exactly that range."""
        audit = read_audit(self.handle.catalog.store, "p", start, end, output)
        return audit is not None and audit.success


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path, pipeline())


def test_a_rollback_to_a_refused_epoch_leaves_readers_what_they_saw(root: Root) -> None:
    good, bad = root.run(10), root.run(1000)
    mended_result = root.run(-990)
    assert root.seen_by_output() == dict.fromkeys(("sums", "counts", "below"), mended_result)
    given_up = root.handle.rollback(to=bad, dry_run=True)
    assert given_up.moves == {
        "main": (mended_result, bad),
        "published/sums": (mended_result, good),
        "published/counts": (mended_result, bad),
        "published/below": (mended_result, good),
    }
    assert [line for line in given_up.told if "readers of sums go back to" in line and f"p.sums {bad}`" in line]
    entry = root.handle.rollback(to=bad)
    assert entry.moves == given_up.moves
    assert root.sums() == [10]
    (root.folder / "landing/s/0003.json").unlink()
    assert root.run(5) != bad, "1015 is audited with what lies between, and refused"
    assert root.sums() == [10]
    assert not root.is_good("sums", good, root.refs["main"])
    now = root.run(-1000)
    assert root.is_good("sums", good, now)
    assert root.sums() == [15]
    check_catalog(root.handle.catalog.store, "p")


def test_a_recovery_to_a_refused_epoch_leaves_readers_what_they_saw(root: Root) -> None:
    good, bad = root.run(10), root.run(1000)
    root.run(-990)
    (root.folder / "landing/s/0003.json").write_text(
        json.dumps({"k": "b", "at": "2025-05-01T09:03:00Z", "v": 5}) + "\n"
    )
    (root.folder / "landing/s/0004.json").write_text(
        json.dumps({"k": "a", "at": "2025-05-01T09:04:00Z", "v": 0}) + "\n"
    )
    result = root.handle.recover(bad, publish=False)
    assert any(f"readers of sums go back to {good} (epoch 0)" in line for line in result.warnings)
    assert root.sums() == [10]
    with pytest.raises(AuditFailedError, match="values are unexpected"):
        root.handle.run()
    assert root.sums() == [10]


def test_an_epoch_within_a_run_was_never_seen(root: Root) -> None:
    """Its rows are right with those of the next epoch, and only so were they audited."""
    first, last = root.run(10), root.run(1000, -990)
    snapshot_within = next(epoch.snapshot_id for epoch in root.handle.catalog.ancestry(last) if epoch.epoch == 1)
    root.handle.rollback(to=snapshot_within)
    assert root.seen_by_output() == dict.fromkeys(("sums", "counts", "below"), first)
    assert root.sums() == [10]


def test_what_nobody_could_see_is_released_first(tmp_path: Path) -> None:
    root = Root(tmp_path, pipeline())
    last = root.run(1000, -990)
    first = next(epoch.snapshot_id for epoch in root.handle.catalog.ancestry(last) if epoch.epoch == 0)
    for go_back in (root.handle.recover, lambda target: root.handle.rollback(to=target)):
        with pytest.raises(RefusedError, match=rf"`headrace release p\.sums {first}`.* with --message WHY"):
            go_back(first)
    assert root.seen_by_output() == dict.fromkeys(("sums", "counts", "below"), last)
    assert root.handle.release(first, message="ada: it was so").moves == {}
    root.handle.rollback(to=first)
    assert root.seen_by_output() == dict.fromkeys(("sums", "counts", "below"), first)
    assert root.sums() == [1000]


def test_readers_return_to_what_they_saw_over_a_promotion(root: Root) -> None:
    """The promotion is taken back, to an epoch before it that was refused."""
    good, bad = root.run(10), root.run(1000)
    root.run(-990)
    root.handle.backfill(branch="again", promote=True)
    assert root.sums() == [20]
    root.handle.rollback(to=bad)
    assert (root.seen_by_output()["sums"], root.seen_by_output()["counts"]) == (good, bad)
    assert root.sums() == [10]


def test_readers_in_other_pipelines_are_told_and_go_back_too(root: Root, tmp_path: Path) -> None:
    """A reader that had read what was published goes back to before it, not to where its upstream does."""
    reader = hr.Pipeline(
        "reader",
        hr.published("p.sums", {"k": str, "s": int}),
        key="k",
        what={"total": col("s").sum()},
        where=hr.CalendarWindows("day"),
        when=hr.on_update(),
        how=hr.retracting("2d"),
        executor="local",
    )
    of_reader = hr.open(root.root)[reader]
    good = root.run(10)
    of_reader.run()
    bad = root.run(1000)
    of_reader.run()
    root.run(-990)
    of_reader.run()
    cut = root.handle.recovery_cut(bad)
    assert [str(move.pipeline) for move in cut.moves] == ["p", "reader"]
    assert f"readers of sums go back to {good}" in cut.moves[0].in_words
    assert cut.moves[1].given_up is not None
    root.handle.recover(bad, with_readers=True, publish=False)
    (row,) = of_reader.read("current", at="main").to_arrow().to_pylist()
    assert row["total"] == 10
