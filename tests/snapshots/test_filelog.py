"""File logs: everything appended is listed, little is in the manifest, and old epochs cost nothing to skip."""

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import (
    NODES_AHEAD,
    RADIX,
    DataFile,
    FileLog,
    FileRecord,
    IndexNode,
    InputFile,
    append,
    cut_before_epoch,
    iterate_records,
)
from headrace_snapshots.store.local import MemoryStore
from tests.snapshots.strategies import records


class Nodes:
    """Stored nodes, and which were read."""

    def __init__(self) -> None:
        self.content_by_id: dict[str, bytes] = {}
        self.reads: list[str] = []
        self.rounds = 0

    def append(self, log: FileLog, record: FileRecord) -> FileLog:
        log, nodes = append(log, record)
        self.content_by_id.update({node.id: node.to_bytes() for node in nodes})
        return log

    def cut(self, log: FileLog, floor: int) -> FileLog:
        log, nodes = cut_before_epoch(log, floor, self.read, "a writer")
        self.content_by_id.update({node.id: node.to_bytes() for node in nodes})
        return log

    def read(self, node_id: str) -> IndexNode:
        self.reads.append(node_id)
        return IndexNode.from_bytes(self.content_by_id[node_id], node_id)

    def read_all(self, ids: Sequence[str]) -> list[IndexNode]:
        self.rounds += 1
        return [self.read(node_id) for node_id in ids]


def one_file(epoch: int) -> FileRecord:
    return FileRecord(epoch, (DataFile(f"e/{epoch}", epoch, 10, "0" * 64),))


@given(records(), st.integers(-1, 60))
def test_what_was_appended_is_listed(records: list[FileRecord], epoch: int) -> None:
    nodes, log = Nodes(), FileLog.empty()
    for record in records:
        log = nodes.append(log, record)
        assert sum(max(1, len(r.files)) for r in log.tail) < RADIX.value
        assert all(len(level.refs) < RADIX.value for level in log.levels)
    assert list(iterate_records(log, nodes.read_all)) == records
    assert list(iterate_records(log, nodes.read_all, epoch)) == [r for r in records if r.epoch > epoch]
    assert log.files == sum(len(r.files) for r in records)
    assert log.rows == sum(f.rows for r in records for f in r.files if isinstance(f, DataFile))


def test_old_logs_stay_valid_while_new_ones_grow() -> None:
    nodes, logs = Nodes(), [FileLog.empty()]
    for epoch in range(300):
        logs.append(nodes.append(logs[-1], one_file(epoch)))
    for length in (0, 1, RADIX.value - 1, RADIX.value, RADIX.value + 1, 200, 300):
        assert [r.epoch for r in iterate_records(logs[length], nodes.read_all)] == list(range(length))
    fork = nodes.append(logs[100], one_file(999))
    assert [r.epoch for r in iterate_records(fork, nodes.read_all)] == [*range(100), 999]


def test_ten_thousand_records_are_a_few_references_and_a_short_walk() -> None:
    nodes, log = Nodes(), FileLog.empty()
    for epoch in range(10_000):
        log = nodes.append(log, one_file(epoch))
    assert len(log.levels) == 2
    assert len(log.tail) + sum(len(level.refs) for level in log.levels) <= (RADIX.value - 1) * 3
    assert len(nodes.content_by_id) <= math.ceil(10_000 / (RADIX.value - 1))
    nodes.reads.clear()
    assert [r.epoch for r in iterate_records(log, nodes.read_all, since_epoch=9_900)] == list(range(9_901, 10_000))
    assert len(nodes.reads) <= math.ceil(100 / RADIX.value) + 2
    nodes.rounds = 0
    assert sum(1 for _ in iterate_records(log, nodes.read_all)) == 10_000
    assert nodes.rounds <= len(nodes.content_by_id) / NODES_AHEAD + 10


def test_a_log_that_an_older_version_wrote_with_more_records_a_level_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, log = Nodes(), FileLog.empty()
    with set_sizes(log_radix=64):
        for epoch in range(64 * 40 + 50):
            log = nodes.append(log, one_file(epoch))
        assert (len(log.levels[0].refs), len(log.tail)) == (40, 50)
        monkeypatch.undo()
        for epoch in range(64 * 40 + 50, 4_000):
            log = nodes.append(log, one_file(epoch))
        assert all(len(level.refs) < RADIX.value for level in log.levels)
        assert [record.epoch for record in iterate_records(log, nodes.read_all)] == list(range(4_000))


def test_a_record_with_many_files_does_not_fill_the_manifest() -> None:
    nodes, log = Nodes(), FileLog.empty()
    many = tuple(InputFile(f"landing/{n}", n, "etag", "source") for n in range(500))
    for epoch in range(10):
        log = nodes.append(log, FileRecord(epoch, many))
    assert (log.tail, len(log.levels[0].refs)) == ((), 10)
    assert [f for r in iterate_records(log, nodes.read_all, 8) for f in r.files] == list(many)


def test_epochs_do_not_go_back() -> None:
    nodes = Nodes()
    log = nodes.append(FileLog.empty(), one_file(5))
    with pytest.raises(ValueError, match="epoch 4 cannot follow one of epoch 5"):
        append(log, one_file(4))
    for epoch in range(6, 70):
        log = nodes.append(log, one_file(epoch))
    full = FileLog((), log.levels)
    with pytest.raises(ValueError, match="cannot follow"):
        append(full, one_file(5))


def test_a_node_that_is_another_is_noticed() -> None:
    one, two = IndexNode((one_file(1),), ()), IndexNode((one_file(2),), ())
    store = MemoryStore()
    Catalog(store, "p").write_nodes([one])
    (stored_text,) = store.list("")
    path = stored_text.path.replace(one.id, two.id)
    store.write(path, store.read(stored_text.path))
    with pytest.raises(BrokenObjectError, match=rf"{path} is another node \({one.id}\)"):
        Catalog(store, "p").read_node(two.id)


@given(records(), st.integers(0, 60), st.integers(0, 60))
def test_what_is_cut_is_gone_and_the_rest_is_listed(records: list[FileRecord], floor: int, second_floor: int) -> None:
    nodes, log = Nodes(), FileLog.empty()
    for record in records:
        log = nodes.append(log, record)
    for epoch in (floor, second_floor):
        log = nodes.cut(log, epoch)
        left = list(iterate_records(log, nodes.read_all))
        assert left == records[len(records) - len(left) :]
        assert {r.epoch for r in left} >= {r.epoch for r in records if r.epoch >= max(floor, epoch)}
    assert log.files == sum(len(r.files) for r in left)
    assert nodes.cut(log, second_floor) == log


def test_a_long_log_is_cut_to_a_leaf_and_goes_on() -> None:
    nodes, log = Nodes(), FileLog.empty()
    for epoch in range(10_000):
        log = nodes.append(log, one_file(epoch))
        if epoch % 100 == 99:
            log = nodes.cut(log, epoch - 50)
            left = [r.epoch for r in iterate_records(log, nodes.read_all)]
            assert left == [*range(left[0], epoch + 1)]
            assert epoch - 50 - 64 <= left[0] <= epoch - 50 or not left[0]
    nodes.reads.clear()
    assert nodes.cut(log, 5) == log
    assert len(nodes.reads) <= len(log.levels)


def test_nodes_of_two_writers_are_never_the_same() -> None:
    record = FileRecord(0, (one_file(0).files * 64))
    (one,), (other,) = (append(FileLog.empty(), record, writer)[1] for writer in ("one", "other"))
    assert one.id != other.id
    assert IndexNode.from_bytes(one.to_bytes(), "x") == one
