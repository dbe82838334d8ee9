"""One more format, store, executor and DAG family inside of the product: each is a patch of at most three files. It is
applied to a copy of the packages and used there.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).parent / "patches"
PACKAGES = ("jobs/headrace", "snapshots/headrace_snapshots", "plugins/headrace_airflow")

FORMAT = """
import headrace as hr
from headrace.testing import rows, run
source = hr.FileSource("landing/hits", "logfmt", {"page": str, "size": int})
hits = hr.Pipeline("hits", source.arrival_time(), key="page", what={"size": hr.col("size").sum()},
                   where=hr.FixedWindows("1h"), when=hr.on_update(), executor="local")
found = run(hits, [rows({"page": "a", "size": 3}, "page=a size=4", "page=b size=many")])
print([(row["page"], row["size"]) for row in found.current], [row["reason"] for row in found.rejected])
"""
STORE = """
from headrace.ext.stores import open_store
open_store("ram://here").write("x", b"1")
print(open_store("ram://here").read("x"), open_store("ram://here").uri)
"""
EXECUTOR = """
import sys
from datetime import datetime
from pathlib import Path
import headrace as hr
hits = hr.Pipeline("hits", hr.json("landing/hits", {"page": str}).arrival_time(), what={"hits": hr.count()},
                   where=hr.FixedWindows("1h"), executor="quiet")
landing = Path("root/landing/hits")
landing.mkdir(parents=True)
(landing / "a.jsonl").write_text('{"page": "a"}\\n')
found = hr.open(Path("root").absolute().as_uri(), create=True)[hits].run()
print(found.executor.name, found.epochs)
"""
FAMILY = """
from headrace_airflow.dags import asked_for
print([dag for dag in asked_for() if dag.endswith("departures_idle")])
"""
USED = {
    "format": (FORMAT, "[('a', 7)] ['column size: not an int']"),
    "store": (STORE, "b'1' ram://here"),
    "executor": (EXECUTOR, "quiet (0,)"),
    "dag_family": (FAMILY, "['headrace_flights_departures_idle']"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", USED)
def test_one_more_of_a_kind_touches_at_most_three_files_of_the_product(kind: str, tmp_path: Path) -> None:
    patch = PATCHES / f"{kind}.patch"
    touched = [line for line in patch.read_text().splitlines() if line.startswith("diff --git ")]
    assert 1 <= len(touched) <= 3
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, check=True)
    code, printed = USED[kind]
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "HEADRACE_ROOT": tmp_path.as_uri(),
        "HEADRACE_PIPELINES": str(ROOT / "jobs/pipelines"),
    }
    environment["PYTHONPATH"] = os.pathsep.join(str(tmp_path / Path(package).parent) for package in PACKAGES)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == [printed], done.stderr
