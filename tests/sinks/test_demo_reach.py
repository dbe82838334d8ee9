"""``make demo-reach``: tables of three systems follow two pipelines over Kafka forth and back, as four readers find."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.kafka import jars
from scripts.postgres_server import binaries
from tests.needed import lacks


@pytest.mark.slow
@pytest.mark.connectors
def test_everything_follows() -> None:
    if binaries() is None or not jars().is_dir():
        lacks("no PostgreSQL, or no jars of Kafka (python -m scripts.kafka path)")
    command = [sys.executable, "-m", "scripts.demo_reach"]
    result = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert result.stdout.count(" orders  ") == 12
