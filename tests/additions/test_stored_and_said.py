"""One more error and one more field of the manifest: a patch of what CONTRIBUTING names, and no more files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCH_FOLDER = Path(__file__).parent / "patches"
PACKAGES = ("jobs/headrace", "snapshots/headrace_snapshots")
ERROR = """
import json, runpy, sys
for script in ("errors", "stubs"):  # as make fmt does
    sys.argv = [script, "--write"]
    try:
        runpy.run_module(f"scripts.{script}", run_name="__main__")
    except SystemExit as end:
        assert not end.code, end
import headrace as hr
busy = hr.errors.StorageBusyError("come back later")
print(json.dumps([busy.code, busy.remedy, isinstance(busy, hr.errors.RetryError)]))
"""
FIELD = """
import json, platform, sys
from pathlib import Path
import headrace as hr

hits = hr.Pipeline("hits", hr.json("landing/hits", {"page": str}).arrival_time(), what={"hits": hr.count()},
                   where=hr.FixedWindows("1h"), executor="local")
root = Path("root").absolute()
hr.open(root.as_uri(), create=True)[hits].run()
(manifest,) = (root / "hits/manifests").iterdir()
older = hr.open(Path(sys.argv[1]).as_uri())
rows = [older[name].read(at="main").to_arrow().num_rows for name in older]
print(json.dumps([json.loads(manifest.read_text())["content"]["host"] == platform.node(), min(rows) > 0]))
"""


@pytest.fixture
def code_copy(tmp_path: Path) -> Path:
    for package in (*PACKAGES, "scripts", "lab/headrace_lab", "plugins/headrace_airflow"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    golden = tmp_path / "tests/golden"
    golden.mkdir(parents=True)
    shutil.copy(ROOT / "tests/golden/error_codes.csv", golden)
    (tmp_path / "root/landing/hits").mkdir(parents=True)
    (tmp_path / "root/landing/hits/a.jsonl").write_text('{"page": "a"}\\n')
    return tmp_path


def apply_patch(code_copy: Path, kind: str) -> int:
    """Applies the patch for ``kind``. How many files it has."""
    patch = PATCH_FOLDER / f"{kind}.patch"
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(code_copy.parent)}
    subprocess.run(["git", "apply", str(patch)], cwd=code_copy, env=environment, check=True)
    return patch.read_text().count("diff --git ")


def run_code(code_copy: Path, code: str, *arguments: str) -> object:
    """What a process that imports the copies prints last."""
    path = os.pathsep.join(str(code_copy / each) for each in ("jobs", "snapshots", "lab", "plugins", ""))
    command = [sys.executable, "-c", code, *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(command, cwd=code_copy, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.slow
def test_one_more_error_is_its_class_and_the_tree_is_drawn_again(code_copy: Path) -> None:
    assert apply_patch(code_copy, "error") == 1
    assert run_code(code_copy, ERROR) == ["retry.storage_busy", "retry", True]
    assert "StorageBusyError" in (code_copy / "jobs/headrace/errors.pyi").read_text()
    assert "retry.storage_busy" in (code_copy / "tests/golden/error_codes.csv").read_text()


@pytest.mark.slow
def test_one_more_field_of_the_manifest_is_given_by_who_writes_one_and_older_ones_are_read(code_copy: Path) -> None:
    assert apply_patch(code_copy, "manifest_field") == 3
    assert run_code(code_copy, FIELD, str(ROOT / "tests/golden/format-1/root")) == [True, True]
