"""The page "A record's way" is true: a run calls the functions that it names, in the order in which it names them."""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import headrace as hr
from scripts.front import pipeline
from tests.docs.pages import DOCS, ROOT

_ROW = re.compile(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", re.MULTILINE)
Function = tuple[str, str]


def page_functions() -> list[Function]:
    """The functions of the page, each with its file."""
    return _ROW.findall((DOCS / "records-way.md").read_text(encoding="utf-8"))


@contextmanager
def trace_calls(functions: set[Function]) -> Iterator[list[Function]]:
    """Calls of ``functions`` in all threads that begin in the block."""
    calls: list[Function] = []
    files = {str(ROOT / top / file): file for file, _ in functions for top in ("jobs", "snapshots")}

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and (file := files.get(frame.f_code.co_filename)):
            function = file, frame.f_code.co_qualname
            if function in functions:
                calls.append(function)

    profile_before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(profile_before)
        threading.setprofile(None)  # type: ignore[arg-type]


def land(folder: Path, name: str, *records: tuple[str, int]) -> None:
    lines = [f"north,{amount},2026-03-01T{time}:00Z\n" for time, amount in records]
    (folder / name).write_text("shop,amount,at\n" + "".join(lines), encoding="utf-8")


def test_a_run_goes_the_way_of_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "landing" / "sales"
    folder.mkdir(parents=True)
    sales = hr.open(tmp_path.as_uri())[pipeline()]
    land(folder, "1.csv", ("09:10", 12), ("09:40", 8), ("10:20", 5))
    sales.run(executor="local")
    land(folder, "2.csv", ("09:50", 4))
    with trace_calls({*page_functions()}) as calls:
        sales.run(executor="local")
        rows = sales.current().to_arrow().to_pylist()
    assert sorted(row["amount"] for row in rows) == [5, 24]
    assert len(page_functions()) > 30
    left = iter(calls)
    missing = next((one for one in page_functions() if one not in left), None)  # each after the one before
    assert missing is None, f"{missing} is not called after those above it; calls were {list(dict.fromkeys(calls))}"
