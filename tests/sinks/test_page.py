"""The page about sinks, followed by somebody who has a server."""

import os
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.docs.running import Reader
from tests.sinks.warehouse import Warehouse


@pytest.mark.slow
def test_blocks_of_the_page(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_before = Path.cwd()
    reader = Reader(tmp_path, monkeypatch)
    reader.start()
    monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", f"{warehouse.uri}?options=-csearch_path%3D{warehouse.schema}")
    try:
        for block in blocks(DOCS / "how-to" / "sinks.md"):
            reader.follow(block)
    finally:
        os.chdir(folder_before)
