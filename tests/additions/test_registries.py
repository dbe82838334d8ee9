"""One more format, store, executor, sink and DAG family inside of the product: each is a patch of its own modules, of a
line in the table of own parts and, if it has a library, of its extra. It is applied to a copy and used there.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCH_FOLDER = Path(__file__).parent / "patches"
TABLE = "jobs/headrace/built_in.py"
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
import sys
from headrace.ext.stores import SCHEMES, open_store
assert "ram://name" in [SCHEMES[name].form for name in SCHEMES.names()]
assert "headrace_snapshots.store.ram" not in sys.modules
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
SINK = """
import os
from pathlib import Path
import headrace as hr
from headrace.connectors.folder import FolderSink, OpenFolder
here = Path().absolute()
os.environ["HEADRACE_CONN_REPORTS"] = f"file://{here}/reports"
landing = here / "root/landing/hits"
landing.mkdir(parents=True)
hits = hr.Pipeline("hits", hr.json("landing/hits", {"page": str, "n": int}).arrival_time(), key="page",
                   what={"n": hr.col("n").sum()}, where=hr.GlobalWindows(), when=hr.on_update(), how=hr.retracting(),
                   executor="local", sinks=[FolderSink("hits", connection="reports")])
handle = hr.open((here / "root").as_uri(), create=True)[hits]
for name, text in {"a": '{"page": "a", "n": 3}\\n{"page": "b", "n": 1}\\n', "b": '{"page": "a", "n": 4}\\n'}.items():
    (landing / f"{name}.jsonl").write_text(text)
    handle.run()
    (delivery,) = handle.deliver()
print(sorted(OpenFolder(here / "reports/hits").stored().select("page", "n").rows()), delivery.written)
"""
FAMILY = """
from headrace_airflow.dags import asked_for
print([dag for dag in asked_for() if dag.endswith("departures_idle")])
"""
USED = {
    "format": (FORMAT, "[('a', 7)] ['column size: not an int']"),
    "store": (STORE, "b'1' ram://here"),
    "executor": (EXECUTOR, "quiet (0,)"),
    "sink": (SINK, "[('a', 7), ('b', 1)] 1"),
    "dag_family": (FAMILY, "['headrace_flights_departures_idle']"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", USED)
def test_one_more_of_a_kind_touches_at_most_three_files_of_the_product(kind: str, tmp_path: Path) -> None:
    patch = PATCH_FOLDER / f"{kind}.patch"
    touched_files = {line.split(" b/")[1] for line in patch.read_text().splitlines() if line.startswith("diff --git ")}
    assert 1 <= len(touched_files - {"pyproject.toml"}) <= 3
    changed_files = {file for file in touched_files if (ROOT / file).exists()}
    assert TABLE in changed_files
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    git_environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    subprocess.run(["git", "apply", str(patch)], cwd=tmp_path, env=git_environment, check=True)
    code, expected_output = USED[kind]
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "HEADRACE_ROOT": tmp_path.as_uri(),
        "HEADRACE_PIPELINES": str(ROOT / "jobs/pipelines"),
    }
    environment["PYTHONPATH"] = os.pathsep.join(str(tmp_path / Path(package).parent) for package in PACKAGES)
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.stdout.splitlines()[-1:] == [expected_output], result.stderr


def test_a_sink_touches_its_folder_and_the_table() -> None:
    files = re.findall(r"^\+\+\+ b/(.*)$", (PATCH_FOLDER / "sink.patch").read_text(), re.MULTILINE)
    own = [file for file in files if file.startswith("jobs/headrace/connectors/folder/")]
    assert {*files} - {*own} == {TABLE, "pyproject.toml"}
