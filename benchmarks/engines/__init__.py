"""Other engines, a module each, with an environment of its own: none of them can be installed beside Headrace.

Flink wants a pyarrow below 17 and Pathway a pandas that Spark does not take; so each module says in its head what it
needs (inline script metadata), and uv makes an environment of that in its cache. Polars is among what tests need.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.workloads import Side

_MODULES: Final[Mapping[Side, str]] = {
    Side.POLARS: "polars",
    Side.FLINK: "flink",
    Side.FLINK_BATCH: "flink",
    Side.PATHWAY: "pathway",
    Side.BYTEWAX: "bytewax",
}

_FLINK_JARS: Final = (
    "org.apache.flink:flink-sql-parquet:2.3.0",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
)


def module_of(side: Side) -> str | None:
    """The module that measures an engine; None for a side that is none."""
    return f"benchmarks.engines.{_MODULES[side]}" if side in _MODULES else None


def interpreter(side: Side) -> str:
    """The Python that runs a side: that of its module's own environment, which uv makes where it is not there yet."""
    if side not in _MODULES:
        return sys.executable
    script = Path(__file__).with_name(f"{_MODULES[side]}.py")
    if not requirements(script):
        return sys.executable
    uv = shutil.which("uv") or ".headrace/uv/bin/uv"
    subprocess.run([uv, "sync", "--quiet", "--script", str(script)], check=True)
    asked = [uv, "python", "find", "--script", str(script)]
    return subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def requirements(script: Path) -> list[str]:
    """What a module needs beside Python, as its head says."""
    stated = re.search(r"^# dependencies = \[(.*)\]$", script.read_text(encoding="utf-8"), re.MULTILINE)
    return re.findall(r'"([^"]+)"', stated[1]) if stated else []


def settings(side: Side) -> dict[str, str]:
    """Variables for the process of a side; Maven gets the jars that Flink's wheels lack."""
    if side not in (Side.FLINK, Side.FLINK_BATCH):
        return {}
    from headrace.distribute.spark.jvm import cache_folder
    from scripts.maven import fetch_jars

    return {"HEADRACE_FLINK_JARS": str(fetch_jars(cache_folder() / "flink-jars-2.3.0", _FLINK_JARS))}
