"""The zip of Headrace that tasks on other machines get."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.distribute.spark.application import write_packages

pytestmark = pytest.mark.spark

PROGRAM = """
import builtins
compiled, build = [], builtins.compile
def counted(source, filename, *rest, **named):
    if "headrace" in str(filename):
        compiled.append(filename)
    return build(source, filename, *rest, **named)
builtins.compile = counted
import headrace.distribute.spark.engine
import headrace.kernel.delta as module
from headrace_snapshots import names
print(".zip" in module.__file__, ".zip" in names.__file__, compiled)
"""


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland"])
def test_what_other_machines_import_is_compiled_already(tmp_path: Path, zone: str) -> None:
    archive = tmp_path / "packages.zip"
    write_packages(archive)
    environment = {**os.environ, "PYTHONPATH": str(archive), "TZ": zone}
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert result.stdout == "True True []\n"
