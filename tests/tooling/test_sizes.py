"""Sizes that tests make small: each is named once, stands where its name says, and is what it was afterwards."""

import re
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from headrace_lab.sizes import Sizes, find_size, places, set_sizes

ROOT = Path(__file__).parents[2]
_SIZE_CONSTANT = re.compile(r"^([A-Z][A-Z0-9_]*): Final = Size\(", re.MULTILINE)


def declared_places() -> list[str]:
    """The places of all sizes in the code."""
    texts: list[str] = []
    for top in (ROOT / "jobs", ROOT / "snapshots", ROOT / "lab"):
        for file in sorted(top.rglob("*.py")):
            module = ".".join(file.relative_to(top).with_suffix("").parts)
            texts += (f"{module}:{name}" for name in _SIZE_CONSTANT.findall(file.read_text(encoding="utf-8")))
    return sorted(texts)


def test_each_size_has_one_name() -> None:
    assert sorted(places().values()) == declared_places()


@pytest.mark.parametrize("name", sorted(places()))
def test_a_size_has_the_type_that_is_said(name: str) -> None:
    kind = get_type_hints(Sizes)[name]
    assert type(find_size(name).value) is getattr(kind, "__origin__", kind)


def test_a_size_is_set_inside_and_what_it_was_afterwards() -> None:
    size = find_size("slice_rows")
    value_before = size.value
    with set_sizes(slice_rows=50, kept_entries=2):
        assert (size.value, find_size("kept_entries").value) == (50, 2)
        with set_sizes(slice_rows=5):
            assert size.value == 5
        assert size.value == 50
    assert size.value == value_before
    with pytest.raises(ZeroDivisionError), set_sizes(slice_rows=50):
        _ = 1 // 0
    assert size.value == value_before


def test_a_function_may_have_sizes_and_be_called_again() -> None:
    @set_sizes(slice_rows=7)
    def rows() -> int:
        return int(find_size("slice_rows").value)

    assert (rows(), rows()) == (7, 7)
    assert find_size("slice_rows").value > 7


def test_a_name_of_no_size_is_refused_and_nothing_is_set() -> None:
    mistaken: dict[str, Any] = {"slice_rows": 50, "kept_entrys": 2}
    with pytest.raises(AttributeError, match="has no 'kept_entrys'; did you mean 'kept_entries'"):
        set_sizes(**mistaken).__enter__()
    assert find_size("slice_rows").value != 50


def _slice_rows() -> int:
    return int(find_size("slice_rows").value)


def test_threads_and_forked_processes_have_what_is_set() -> None:
    with set_sizes(slice_rows=50), ThreadPoolExecutor(1) as threads:
        assert threads.submit(_slice_rows).result() == 50
        with get_context("fork").Pool(1) as processes:
            assert processes.apply(_slice_rows) == 50
