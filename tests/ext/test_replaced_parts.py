"""A part of Headrace's own has a fake in its place inside a block, and is back afterwards."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import FixConfigError
from headrace.ext.executors import EXECUTORS
from headrace.ext.stores import SCHEMES, StoreUnavailableError, open_store
from headrace_snapshots.testing import Fault, Operation, disturb_stores


def test_a_part_is_replaced_inside_a_block_and_back_after_an_error() -> None:
    own = EXECUTORS["local"]
    fake = replace(own, about="of a test")
    with pytest.raises(ZeroDivisionError), EXECUTORS.replace_part("local", fake):
        assert EXECUTORS["local"] is fake
        _ = 1 // 0
    assert EXECUTORS["local"] is own


def test_only_what_is_there_is_replaced() -> None:
    with pytest.raises(FixConfigError, match="there is no executor 'flink'"):
        EXECUTORS.replace_part("flink", EXECUTORS["local"]).__enter__()
    assert "flink" not in EXECUTORS


def test_stores_that_are_opened_inside_do_what_the_plan_says(tmp_path: Path) -> None:
    own, requests = SCHEMES["file"], list[tuple[str, str]]()

    def plan(operation: Operation) -> Fault | None:
        requests.append((operation.kind, operation.path))
        return Fault.FAIL if operation.kind == "get" else None

    store_before = open_store(tmp_path.as_uri())
    with disturb_stores(plan):
        store = open_store(tmp_path.as_uri())
        store.write("a", b"1")
        with pytest.raises(StoreUnavailableError, match="on purpose"):
            store.read("a")
        assert store_before.read("a") == b"1", "it was opened before"
        assert open_store("memory://other").uri == "memory://other"
    assert requests == [("put", "a"), ("get", "a")]
    assert SCHEMES["file"] is own
    assert open_store(tmp_path.as_uri()).read("a") == b"1"
