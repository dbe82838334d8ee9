"""Which pipelines read which, how far each has come, and what depends on a snapshot: in one root and in three."""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from headrace.read.lineage.cut import PlacedPipeline
from headrace.read.lineage.lineage import Dependent, Lineage, find_dependents, read_lineage
from headrace_snapshots.names import MAIN
from headrace_snapshots.store import open_store
from tests.process.chains import Chain, pipelines


def chain_in(folder: Path, *, roots: int) -> Chain:
    folders = [folder / f"root{number % roots}" for number in range(3)]
    for one in folders:
        one.mkdir(exist_ok=True)
    uris = {} if roots == 1 else {"first": folders[0].as_uri(), "second": folders[1].as_uri()}
    return Chain(folders, pipelines("retracting", None, **uris), random.Random(7))


def lineage_of(chain: Chain, names: Iterable[str] = ("third",)) -> Lineage:
    return read_lineage(open_store(chain.folders[2].as_uri()), names)


def head(chain: Chain, number: int) -> str | None:
    return chain.handles[number]._catalog.head().refs.get(MAIN)


@pytest.mark.parametrize("roots", [1, 3])
def test_a_chain_is_shown_with_its_lag(tmp_path: Path, roots: int) -> None:
    chain = chain_in(tmp_path, roots=roots)
    assert lineage_of(chain).rows()[0]["snapshot"] is None
    chain.run_all()
    chain.drain()
    lineage_before = lineage_of(chain)
    assert [name.name for name in lineage_before.heads] == ["third", "second", "first"]
    assert [one.snapshot for one in lineage_before.heads.values()] == [head(chain, number) for number in (2, 1, 0)]
    assert [one.lag for one in lineage_before.readings] == ["up to date", "up to date"]
    reads_second, _, reads_none, *_ = repr(lineage_before).splitlines()
    epoch = lineage_before.rows()[0]["epoch"]
    assert reads_second == f"third (epoch {epoch}) reads {lineage_before.readings[0].upstream}: up to date"
    assert reads_none.endswith(" reads no other pipeline")
    assert [one.upstream.root for one in lineage_before.readings] == (
        ["", ""] if roots == 1 else [chain.folders[1].resolve().as_uri(), chain.folders[0].resolve().as_uri()]
    )
    chain.now += 300
    chain.land()
    chain.handles[0].run(files_per_epoch=100)
    assert [one.lag for one in lineage_of(chain).readings] == ["up to date", "1 epoch behind"]
    chain.handles[1].run()
    assert lineage_of(chain).readings[1].lag == "up to date"
    assert lineage_of(chain).readings[0].lag.endswith("behind")
    chain.handles[0].rollback(to=str(lineage_before.readings[1].consumed))
    lineage_after = lineage_of(chain)
    assert lineage_after.readings[1].lag == "the upstream has moved: the next run takes it back"
    assert lineage_after.to_json()["readings"][1]["is_in_line"] is False
    rows = lineage_after.rows()
    assert [row["reads"] is None for row in rows] == [False, False, True]


def test_readers_in_a_root_that_was_moved_stay_readers(tmp_path: Path) -> None:
    """Their positions say where it was then: as after a backup came back under another name."""
    chain = chain_in(tmp_path, roots=1)
    chain.run_all()
    chain.drain()
    moved_folder = chain.folders[0].rename(tmp_path / "moved")
    chain.folders = [moved_folder] * 3
    assert [one.lag for one in lineage_of(chain).readings] == ["up to date", "up to date"]
    old_heads = [head(chain, number) for number in range(3)]
    first, second, _ = chain.handles
    for reader, upstream in (("second", first), ("third", second)):
        assert len(upstream.drop_reader(reader)) == 1
    chain.now += 300
    chain.run_all()
    chain.drain()
    lineage_after = lineage_of(chain)
    assert [(one.upstream.root, one.lag) for one in lineage_after.readings] == [("", "up to date")] * 2
    dependents = find_dependents(
        open_store(moved_folder.as_uri()), ["third"], first._catalog, str(head(chain, 0))
    ).readers
    assert [one.reader.name for one in dependents] == ["second", "third"]
    first.recover(str(old_heads[0]), with_readers=True, publish=False)
    assert [head(chain, number) for number in (1, 2)] == old_heads[1:]
    for upstream in (first, second):
        upstream.expire(keep_last=100)
    readers = [path.name for path in (moved_folder / "first" / "readers").iterdir()]
    assert len(readers) == 1, "the one under the root that there is now"


def test_a_moved_reader_holds_again_what_it_needs_once_it_expires(tmp_path: Path) -> None:
    """What it held under the old name of the root has been dropped, and it has nothing to read meanwhile. An expiry
    before the move has noted what it had read.
    """
    chain = chain_in(tmp_path, roots=1)
    chain.run_all()
    chain.drain()
    chain.handles[1].expire(keep_last=1)
    moved_root = chain.folders[0].rename(tmp_path / "moved")
    chain.folders = [moved_root] * 3
    first, second, _ = chain.handles
    assert len(first.drop_reader("second")) == 1
    assert second.run().epochs == ()
    second.expire(keep_last=100)
    for _ in range(3):
        chain.now += 300
        chain.land()
        first.run()
        first.expire(keep_last=1)
    assert second.run().epochs != ()
    assert first.drop_reader("second") == ["second.source"]


def test_what_was_consumed_and_has_expired_is_shown_as_that(tmp_path: Path) -> None:
    chain = chain_in(tmp_path, roots=1)
    chain.run_all()
    first = chain.handles[0]
    consumed_snapshot = lineage_of(chain).readings[1].consumed
    first.drop_reader("second")
    for _ in range(3):
        chain.now += 20
        chain.land()
        first.run()
    [first.expire(keep_last=1) for _ in range(2)]  # marked, then swept
    second_reading = lineage_of(chain).readings[1]
    assert (second_reading.reader.name, second_reading.consumed, second_reading.is_in_line) == (
        "second",
        consumed_snapshot,
        None,
    )
    assert "restore.upstream_expired" in second_reading.lag


def test_what_depends_on_a_snapshot_is_named_with_the_first_that_does(tmp_path: Path) -> None:
    chain = chain_in(tmp_path, roots=1)
    store = open_store(chain.folders[2].as_uri())
    chain.run_all()
    chain.drain()
    old = {number: head(chain, number) for number in range(3)}
    chain.now += 300
    chain.land()
    chain.handles[0].run(files_per_epoch=100)
    new = head(chain, 0)
    assert new is not None
    first = chain.handles[0]._catalog
    assert find_dependents(store, ["third", "second", "first"], first, new).readers == ()
    chain.handles[1].run()
    chain.handles[2].run()
    named_readers = find_dependents(store, ["third"], first, new).readers
    assert [one.reader for one in named_readers] == [PlacedPipeline("", "second"), PlacedPipeline("", "third")]
    assert all(isinstance(one, Dependent) and one.since not in old.values() for one in named_readers)
    line = [link.snapshot_id for link in chain.handles[1]._catalog.lineage(str(head(chain, 1)))]
    assert line[line.index(named_readers[0].since) + 1] == old[1], "the one before it is the newest that does not"
