"""Deployments that older versions wrote (``tests/golden``), for tests that go on from them."""

import shutil
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.runs.client.handle import PipelineHandle

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def copy_root(name: str, folder: Path) -> Path:
    """A copy of a root, to go on from."""
    shutil.copytree(GOLDEN / name / "root", folder / "root")
    return folder / "root"


def values(handle: PipelineHandle, pipeline: hr.Pipeline, ref: str = "published") -> list[dict[str, Any]]:
    """Key, window and values of the rows that stand."""
    columns = [*pipeline.key_types, "window_start", *pipeline.value_types]
    return sorted(handle.current(columns=columns, at=ref).to_arrow().to_pylist(), key=str)
