"""The power goes at any moment of a run on local files: what was committed is there, and the next run goes on."""

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import headrace as hr
from headrace import open as open_root
from headrace.errors import DamagedLogError
from headrace_lab.catalog_checks import check_catalog
from tests.faults.disk import Disk, Recording, Survives, Tree, recording, write_tree
from tests.process.clicks import CLICKS, FILES, land, truth
from tests.reading import read

pytestmark = pytest.mark.slow
MOST_TREES = 6
"""Runs that go on after a cut; all cuts are looked at."""


def mark_epochs(calls: Recording) -> Callable[[str], None]:
    """A listener that marks each epoch which the run says is committed."""

    def mark(line: str) -> None:
        if (committed_match := re.match(r"epoch (\d+): ", line)) is not None:
            calls.mark(committed_match[1])

    return mark


def run(root: Path, listener: Callable[[str], None] | None = None) -> None:
    hr.open(root.as_uri())[CLICKS].run(executor="local", listener=listener)


@pytest.fixture(scope="module")
def recording_of_run(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """A run of all files, then two expiries: the second deletes what the first has marked."""
    root = tmp_path_factory.mktemp("recorded")
    land(root)
    with recording(root) as calls:
        run(root, mark_epochs(calls))
        for _ in range(2):
            open_root(root.as_uri())[CLICKS.name].expire(keep_last=1)
    return calls


def nothing(path: str) -> bool:
    """Only what was flushed is there."""
    return False


def names(path: str) -> bool:
    """All names are there, and of files what was flushed."""
    return True


def some(seed: int) -> Survives:
    """Of what was not flushed, some."""

    def survives(path: str) -> bool:
        return random.Random(f"{seed} {path}").random() < 0.5

    return survives


def cuts(calls: Recording) -> Iterator[tuple[int, Tree]]:
    """Each disk that a cut can leave, once, and the newest epoch that the process was told is committed (or -1)."""
    disk, told_epoch, seen_states = Disk(calls.tree_before), -1, set()
    for number, call in enumerate(calls.calls):
        told_epoch = int(call.path) if call.what == "mark" else told_epoch
        disk.do(call)
        for survives in (nothing, names, some(number)):
            tree = disk.after_cut(survives)
            known_state = told_epoch, frozenset(tree.items())
            if known_state not in seen_states:
                seen_states.add(known_state)
                yield told_epoch, tree


def surviving_epoch(root: Path) -> int:
    """The newest epoch of main, whose results are right; -1 without one."""
    catalog = hr.open(root.as_uri())[CLICKS].catalog
    main = catalog.head().refs.get("main")
    check_catalog(catalog.store, CLICKS.name)
    epoch = -1 if main is None else catalog.manifest(main).epoch
    assert current(root) == truth(epoch + 1)
    return epoch


def current(root: Path) -> dict[tuple[str, object], tuple[int, int]]:
    rows = read(CLICKS, root.as_uri(), "current", "main").to_pylist()
    return {(row["user"], row["window_start"]): (row["clicks"], row["spent"]) for row in rows}


def test_whenever_the_power_goes_what_was_committed_is_there(recording_of_run: Recording, tmp_path: Path) -> None:
    found_epochs = set()
    for number, (told_epoch, tree) in enumerate(cuts(recording_of_run)):
        root = tmp_path / str(number)
        write_tree(tree, root)
        epoch = surviving_epoch(root)
        assert epoch >= told_epoch
        found_epochs.add(epoch)
    assert found_epochs == set(range(-1, FILES))


def test_whenever_the_power_goes_the_next_run_ends_as_without(recording_of_run: Recording, tmp_path: Path) -> None:
    every = list(cuts(recording_of_run))
    for number, (_, tree) in enumerate(random.Random(1).sample(every, MOST_TREES)):
        root = tmp_path / str(number)
        write_tree(tree, root)
        run(root)
        assert surviving_epoch(root) == FILES - 1
        assert open_root(root.as_uri())[CLICKS.name].fsck(deep=True).damage == ()


@pytest.mark.parametrize("left_out", ["files", "folders"])
def test_these_tests_find_a_flush_that_is_left_out(recording_of_run: Recording, tmp_path: Path, left_out: str) -> None:
    disk = Disk(recording_of_run.tree_before)
    for call in recording_of_run.calls:
        if call.what != "flushed" or (call.content is None) != (left_out == "folders"):
            disk.do(call)
        elif left_out == "files":
            disk.do(replace(call, content=b""))
    write_tree(disk.after_cut(nothing), tmp_path)
    if left_out == "folders":
        assert surviving_epoch(tmp_path) == -1
    else:
        with pytest.raises(DamagedLogError):
            surviving_epoch(tmp_path)
