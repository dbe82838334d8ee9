"""Workers are forked from a daemon that has imported what tasks need."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
import headrace.distribute.spark.daemon
loaded = set(sys.modules)
import pyarrow as pa
from headrace.distribute.tasks.levels import part_task, share_task
from headrace.sources import reading
pa.array([1])
print(sorted(set(sys.modules) - loaded))
"""


def test_the_daemon_has_what_tasks_import() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
