"""One key that has half of all rows costs memory in proportion to the input, whatever needs its rows one by one."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.kernel.one_hot_key import CASES, HOUR, START

ROWS, EPOCHS = 500_000, 2
TIMES = 14
"""How many times the bytes of its input, as Arrow columns, a run may need at most; 6 to 10 were measured."""


def table(epoch: int) -> pa.Table:
    """Every second row is of the user ``hot``, of whom only the first row has a right side."""
    number = np.arange(ROWS, dtype=np.int64)
    own = np.where(number % 2 == 0, 0, 1 + number % 1000)
    users = np.where(own == 0, "hot", np.char.add("user ", own.astype(str)))
    right = (number == 0) | ((own > 0) & (number % 4 == 1))
    return pa.table(
        {
            "user": users,
            "at": pa.array(START + (number * HOUR // ROWS)).cast(pa.timestamp("us", "UTC")),
            "v": pa.array(number + epoch * ROWS, mask=right & (number > 0)),
            "w": pa.array(number, mask=~right | (epoch > 0) & (own == 0)),
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_memory_of_a_key_with_half_of_all_rows(tmp_path: Path, case: str) -> None:
    (tmp_path / "landing").mkdir()
    tables = [table(epoch) for epoch in range(EPOCHS)]
    for epoch, content in enumerate(tables):
        pq.write_table(content, tmp_path / "landing" / f"{epoch}.parquet")
    program = [sys.executable, "-m", "tests.kernel.one_hot_key", case, tmp_path.as_uri()]
    done = subprocess.run(program, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    values = pa.concat_tables(tables).filter(pa.compute.field("user") == "hot")["v"]
    assert (told["elements"], told["sum"]) == (len(values), pa.compute.sum(values).as_py())
    allowed = TIMES * sum(content.nbytes for content in tables)
    assert told["after"] - told["before"] <= allowed
