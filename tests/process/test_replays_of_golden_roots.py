"""Epochs that an older version recorded are replayed as they were: the same rows, panes, late rows and dead letters."""

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.process.golden_clicks import CLICKS
from tests.process.golden_roots import copy_root
from tests.process.golden_shop import SHOP
from tests.process.golden_tills import TILLS

OUTPUTS = [("format-3-texts", TILLS, name) for name in TILLS.outputs] + [
    *(("format-3", SHOP, name) for name in SHOP.outputs),
    ("format-1", CLICKS, ""),
]
VIEWS = ("current", "panes", "late", "rejected")


def stored_rows(handle: hr.types.PipelineHandle, view: str, ref: str) -> list[str]:
    rows: list[dict[str, Any]] = getattr(handle, view)(at=ref).to_arrow().to_pylist()
    return sorted(str(row) for row in rows)


@pytest.mark.parametrize(("root", "pipeline", "output"), OUTPUTS, ids=lambda value: getattr(value, "name", value))
def test_a_replay_gives_what_is_recorded(root: str, pipeline: hr.Pipeline, output: str, tmp_path: Path) -> None:
    uri = copy_root(root, tmp_path).as_uri()
    hr.open(uri)[pipeline].run(mode="replay", branch="again")
    handle = hr.open(uri)[pipeline]
    of_output = handle[output] if output else handle
    for view in VIEWS:
        assert stored_rows(of_output, view, "again") == stored_rows(of_output, view, "main")
