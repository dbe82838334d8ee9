"""One key that has half of all rows costs memory in proportion to the input, whatever needs its rows one by one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel.hot_key import CASES, land

ROWS = 500_000
TIMES = 14
"""How many times the bytes of its input, as Arrow columns, a run may need at most; 6 to 10 were measured."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_memory_of_a_key_with_half_of_all_rows(tmp_path: Path, case: str) -> None:
    size, values = land(tmp_path, ROWS)
    program = [sys.executable, "-m", "tests.kernel.hot_key", case, tmp_path.as_uri()]
    result = subprocess.run(program, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    document = json.loads(result.stdout)
    assert document["values"] == values
    assert document["bytes"] <= TIMES * size
