"""Every block of code that the documentation shows runs, and prints what stands there."""

import os
import re
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, blocks, pages
from tests.docs.running import Reader

_IN_AIRFLOW = {DOCS / "fifteen-minutes.md"}
"""Followed in tests/airflow/test_scheduled_backfill.py, beside a real Airflow."""
_WITH_POSTGRES = {DOCS / "how-to" / "sinks.md"}
"""Followed in tests/sinks/test_page.py, beside a server."""

_FENCE = re.compile(r"^ *(```|~~~) *(python|console)\b", re.MULTILINE)
"""Quicker than to parse all pages, which each process that collects tests would do."""
PAGES = [page for page in pages() if page not in _IN_AIRFLOW | _WITH_POSTGRES and _FENCE.search(page.read_text())]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder_before = Path.cwd()
    reader = Reader(tmp_path, monkeypatch)
    reader.start()
    try:
        for block in blocks(page):
            reader.follow(block)
    finally:
        os.chdir(folder_before)
