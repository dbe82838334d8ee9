"""A pipeline is taken back together with all that read it: a chain, a diamond, kills at every move."""

import random
import shutil
from copy import copy
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.read.upstream import upstreams_of
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.options import RunOptions
from headrace.runs.publishing.publish import PlannedPublish
from headrace.runs.recovery_target import ReadersCannotFollowError
from headrace_lab.actions import recover
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import MAIN, PUBLISHED
from headrace_snapshots.protocol.moves import BeginDelivery
from headrace_snapshots.testing import Fault, Operation, disturb_stores
from tests.process.chains import FINE, Chain, pipelines, rows
from tests.process.test_published import LATENESS, MANY, SEEDS, check_equal, deploy_chain, line


class KillSignal(BaseException):
    """The process ends here."""


def raise_kill(*_: Any, **__: Any) -> Any:
    raise KillSignal


def head(handle: PipelineHandle) -> str | None:
    return handle._catalog.head().refs.get(MAIN)


def consumed_snapshots(handle: PipelineHandle) -> dict[str, str | None]:
    """The snapshots of others that the head has consumed, by input."""
    catalog = handle._catalog
    manifest = catalog.manifest(catalog.head().refs[MAIN])
    return {name: snapshot.snapshot for name, snapshot in upstreams_of(manifest, catalog.store.uri).items()}


def is_one_cut(handles: list[PipelineHandle]) -> bool:
    """Whether each has consumed only what is published of the pipeline before it."""
    for upstream, reader in pairwise(handles):
        published_snapshot = upstream._catalog.head().refs[PUBLISHED]
        if not all(
            snapshot is not None and upstream._catalog.is_ancestor(snapshot, published_snapshot)
            for snapshot in consumed_snapshots(reader).values()
        ):
            return False
    return True


def grow_chain(folder: Path, seed: int, *, lateness: str | None = "0s") -> Chain:
    """A chain of which each has run five times, while input goes on so far that windows expire."""
    chain = deploy_chain(folder, "retracting", seed, lateness=lateness)
    for _ in range(5):
        chain.land()
        for handle in chain.handles:
            handle.run(files_per_epoch=100)
        chain.now += 70
    return chain


class GrownChains:
    """Chains that tests begin with: each grows once, and is put back where it was, as it names the roots it reads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._chains: dict[int, Chain] = {}

    def chain(self, seed: int) -> Chain:
        live, kept_folder = self._folder / f"{seed}", self._folder / f"{seed}-kept"
        if seed in self._chains:
            shutil.rmtree(live)
            shutil.copytree(kept_folder, live)  # with the times of files, of which local files have their ETags
        else:
            live.mkdir()
            self._chains[seed] = grow_chain(live, seed)
            shutil.copytree(live, kept_folder)
        chain = self._chains[seed]
        return replace(chain, random=copy(chain.random), done=[*chain.done])


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> GrownChains:
    return GrownChains(tmp_path_factory.mktemp("chains"))


@pytest.mark.parametrize("seed", [0, 1])
def test_a_chain_goes_back_to_one_cut_and_reads_on(seed: int, chains: GrownChains, tmp_path: Path) -> None:
    chain = chains.chain(seed)
    first, second, third = chain.handles
    old = [line(handle) for handle in chain.handles]
    cut = first.recovery_cut(old[0][2])
    assert [move.pipeline.name for move in cut.moves] == ["first", "second", "third"]
    assert [line(handle) for handle in chain.handles] == old, "nothing has moved"
    assert all("computed again" in row["what"] for row in cut.rows())
    result = first.recover(old[0][2], with_readers=True)
    assert [head(second), head(third)] == [move.to for move in cut.moves[1:]]
    assert head(second) != old[1][0], "windows of it have expired: without going back it would stop"
    assert {"second", "third"} <= {word for line_ in result.warnings for word in line_.replace("/", " ").split()}
    assert is_one_cut(chain.handles)
    second.run()
    third.run()
    check_equal(chain, tmp_path / "one", "retracting", "0s")


# a move that is done, and killed after it, is the one before which the next is not
@pytest.mark.parametrize(("moves", "is_done"), [(1, False), (2, False), (3, False), (3, True)])
def test_killed_at_a_move_the_same_call_goes_on(
    moves: int, is_done: bool, chains: GrownChains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = chains.chain(0)
    first, second, third = chain.handles
    target = line(first)[2]
    cut = first.recovery_cut(target)
    real, rollbacks_made = Catalog.rollback, [0]

    def rollback(self: Catalog, *args: Any, **options: Any) -> Any:
        rollbacks_made[0] += 1
        if rollbacks_made[0] == moves and not is_done:
            raise KillSignal
        entry = real(self, *args, **options)
        if rollbacks_made[0] == moves:
            raise KillSignal
        return entry

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "rollback", rollback)
        with pytest.raises(KillSignal):
            first.recover(target, with_readers=True)
    first.recover(target, with_readers=True)
    assert [head(second), head(third)] == [move.to for move in cut.moves[1:]]
    assert is_one_cut(chain.handles)
    second.run()
    third.run()
    check_equal(chain, tmp_path / "one", "retracting", "0s")


def test_killed_in_the_run_it_can_be_called_again(
    chains: GrownChains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = chains.chain(0)
    first, second, third = chain.handles
    target = line(first)[2]
    with monkeypatch.context() as patch:
        patch.setattr(PlannedPublish, "publish", raise_kill)
        with pytest.raises(KillSignal):
            first.recover(target, with_readers=True)
    assert head(first) != target, "it had computed again, and published nothing"
    second.run()  # somebody reads on meanwhile
    first.recover(target, with_readers=True)
    assert is_one_cut(chain.handles)
    second.run()
    third.run()
    check_equal(chain, tmp_path / "one", "retracting", "0s")


def test_another_attempt_warns_of_a_reader_that_can_no_longer_follow(
    chains: GrownChains, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = chains.chain(0)
    first, second, third = chain.handles
    options = RunOptions(run_id="one", request="why", snapshot=line(first)[2], with_readers=True)
    real = Catalog.rollback

    def rollback(self: Catalog, *args: Any, **options: Any) -> Any:
        return real(self, *args, **options) if self.pipeline == "first" else raise_kill()

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "rollback", rollback)
        with pytest.raises(KillSignal):
            recover(chain.made[0], first.root, options)
    heads_before = [head(second), head(third)]
    second._catalog.record_delivery(BeginDelivery("", "mail", str(heads_before[0])))
    result = recover(chain.made[0], first.root, replace(options, run_id="two"))
    (warning,) = [line_ for line_ in result.warnings if "second cannot follow: " in line_]
    assert "sink mail" in warning
    assert [head(second), head(third)] == heads_before, "what reads it stays, too"


def test_of_a_diamond_the_last_fits_both_sides(tmp_path: Path) -> None:
    chain = Chain([tmp_path] * 3, pipelines("retracting", "0s"), random.Random(5))
    first, second, _ = chain.handles
    both = hr.Pipeline(
        "both",
        hr.published("first", {"s": int}),
        union=[hr.published("second", {"s": int}).named("sums")],
        what={"all": col("s").sum(), "n": hr.count()},
        where=hr.FixedWindows("2h"),
        when=FINE,
        how=hr.retracting("0s"),
        executor="local",
    )
    last = hr.open(tmp_path.as_uri())[both]
    for number in range(6):
        chain.land()
        first.run(files_per_epoch=100)
        if number != 3:  # now and then one side is behind
            second.run()
        last.run()
        chain.now += 70
    target = line(first)[3]
    cut = first.recovery_cut(target)
    assert [move.pipeline.name for move in cut.moves] == ["first", "second", "both"]
    first.recover(target, with_readers=True)
    for name, upstream in (("source", first), ("sums", second)):
        consumed_snapshot, published_snapshot = consumed_snapshots(last)[name], upstream._catalog.head().refs[PUBLISHED]
        assert consumed_snapshot is not None and upstream._catalog.is_ancestor(consumed_snapshot, published_snapshot)
    newer = line_before(last, cut.moves[2].head, cut.moves[2].to)
    assert newer and not all(fits(first, second, last, snapshot, cut) for snapshot in newer), "none that is newer fits"
    second.run()
    last.run()
    rows_after = rows(last)
    last.backfill(promote=True)
    assert rows(last) == rows_after != []


def line_before(handle: PipelineHandle, newest: str | None, target: str | None) -> list[str]:
    """Snapshots that were given up: the one after the target."""
    assert newest is not None
    line_ = [link.snapshot_id for link in handle._catalog.lineage(newest)]
    return line_[: line_.index(str(target))][-1:]


def fits(first: PipelineHandle, second: PipelineHandle, last: PipelineHandle, snapshot: str, cut: Any) -> bool:
    positions = upstreams_of(last._catalog.manifest(snapshot), last._catalog.store.uri)
    sides = {"source": (first, cut.moves[0].to), "sums": (second, cut.moves[1].to)}
    return all(
        sides[name][0]._catalog.is_ancestor(str(position.snapshot), sides[name][1])
        for name, position in positions.items()
    )


def test_a_reader_with_nothing_from_before_is_named_and_nothing_moves(chains: GrownChains, tmp_path: Path) -> None:
    chain = chains.chain(1)
    first, second, third = chain.handles
    target = line(first)[2]
    second.rollback(to="beginning")
    second.run()
    third.run()
    heads_before = [head(handle) for handle in chain.handles]
    (problem,) = [move for move in first.recovery_cut(target).moves if move.problem is not None]
    assert problem.pipeline.name == "second"
    assert "headrace backfill second --promote" in problem.in_words
    with pytest.raises(ReadersCannotFollowError, match=r"second cannot follow.*Nothing has moved"):
        first.recover(target, with_readers=True)
    assert [head(handle) for handle in chain.handles] == heads_before
    first.recover(target, with_readers=True, leave=["second"])
    assert head(second) == heads_before[1]
    second.backfill(promote=True)
    third.backfill(promote=True)
    check_equal(chain, tmp_path / "one", "retracting", "0s")


def test_a_reader_that_may_not_be_written_is_said_and_others_go_back(chains: GrownChains) -> None:
    chain = chains.chain(0)
    first, second, third = chain.handles
    target, head_before, newest = line(first)[2], head(second), head(third)

    def deny(operation: Operation) -> Fault | None:
        return Fault.FAIL if operation.kind == "create" and operation.path.startswith("second/log/") else None

    with disturb_stores(deny):
        result = chain.handles[0].recover(target, with_readers=True)
    assert head(second) == head_before
    assert any("second could not go back" in warning and "on purpose" in warning for warning in result.warnings)
    assert head(third) != newest, "who reads it as well goes back to what it had of the first then"


def test_who_has_read_nothing_of_what_is_given_up_stays(chains: GrownChains) -> None:
    chain = chains.chain(1)
    first, second, third = chain.handles
    heads_before = [head(second), head(third)]
    chain.land()
    first.run()
    cut = first.recovery_cut(line(first)[1])
    assert [move.in_words.startswith("stays") for move in cut.moves] == [False, True, True]
    first.recover(line(first)[1], with_readers=True)
    assert [head(second), head(third)] == heads_before


@pytest.mark.parametrize(("kind", "seed"), [("retracting", 1), ("discarding", 2), *MANY])
def test_rows_are_those_of_one_pipeline_whoever_went_back_with_whom(kind: str, seed: int, tmp_path: Path) -> None:
    lateness = LATENESS[seed % len(LATENESS)]
    chain = deploy_chain(tmp_path, kind, seed, lateness=lateness)
    for _ in range(3):
        chain.run_all()
        chain.now += 70
    for _ in range(8 if SEEDS else 4):
        chain.recover_with_readers() if chain.random.random() < 0.5 else chain.step(heavy=bool(SEEDS))
        chain.now += chain.random.choice([0, 0, 70])
    check_equal(chain, tmp_path / "one", kind, lateness)
