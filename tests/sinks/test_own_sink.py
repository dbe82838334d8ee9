"""The sink that the documentation shows passes the kit, as a package of its own that an entry point makes known."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributions import write_distribution
from tests.docs.pages import DOCS, blocks

pytestmark = pytest.mark.slow


def test_the_sink_on_the_page_passes_the_kit(tmp_path: Path) -> None:
    shown_blocks = [block for block in blocks(DOCS / "how-to" / "own-sink.md") if block.directive[:1] == ("file",)]
    texts = {block.directive[1]: block.text for block in shown_blocks}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (entry_point,) = (block.text for block in blocks(DOCS / "how-to" / "own-sink.md") if block.language == "toml")
    write_distribution(f'[project]\nname = "duckdb-sink"\nversion = "1"\n{entry_point}', tmp_path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_duckdb_sink.py"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
