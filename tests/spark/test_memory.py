"""On Spark too a key that has half of all rows costs its worker memory in proportion to the input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.hot_key import CASES, land

ROWS = 300_000
TIMES = 8
"""How many times the bytes of its input, as Arrow columns, a worker may need at most; 3 to 5 were measured."""


@pytest.mark.spark
@pytest.mark.slow
def test_memory_of_workers_where_a_key_has_half_of_all_rows(tmp_path: Path) -> None:
    land(tmp_path / "small", 1000)
    size, values = land(tmp_path / "large", ROWS)
    roots = [(tmp_path / name).as_uri() for name in ("small", "large")]
    program = [sys.executable, "-m", "tests.spark.hot_keys", *roots]
    result = subprocess.run(program, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    document = json.loads(result.stdout)
    assert document.keys() == CASES.keys()
    for case, measure in document.items():
        assert measure["values"] == values, case
        assert measure["bytes"] <= TIMES * size, (case, measure["bytes"] / size)
