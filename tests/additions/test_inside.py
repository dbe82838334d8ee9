"""What CONTRIBUTING says of a new trigger, window function, combiner or function is enough: for each a patch of at most
three files, the oracle apart, is applied to a copy of the code and used there.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATCH_FOLDER = Path(__file__).parent / "inside"
ORACLE = "lab/headrace_lab/reference/"
PRODUCT = ("jobs/headrace", "lab/headrace_lab")
MOST_FILES = 3

STALE = """\
{patch} no longer applies:

{why}
The code that it changes has moved. Make the addition again by what CONTRIBUTING says, in at most {most} files and the
oracle: apply what still does (git apply --reject {patch}), mend the rest, and keep it:
    git diff -U2 -- jobs lab > {patch} && git checkout -- jobs lab
If it needs more files, the vocabulary has lost something: put that beside the class, where it was."""


@dataclass(frozen=True)
class Addition:
    """What ``use.py`` is told: ``sample`` makes one; ``parts`` of a pipeline, and ``stage`` of a case, have it."""

    kind: str
    sample: str
    parts: Mapping[str, str]
    stage: Mapping[str, Any] | None


TRIGGER = Addition(
    "trigger",
    "hr.AfterLargeElement(50)",
    {"when": "hr.Repeatedly(sample)"},
    {
        "trigger": {"type": "repeatedly", "trigger": {"type": "after_large_element", "size": 50}},
        "panes": [{"window": [0, 10], "values": [5, 2]}, {"window": [0, 10], "values": [5, 2, 9]}],
    },
)
WINDOWS = Addition(
    "windows",
    "hr.AlternatingWindows('3h', '7h')",
    {"where": "sample"},
    {
        "window": {"type": "alternating", "first": 3, "second": 7},
        "panes": [{"window": [0, 3], "values": [5, 2]}, {"window": [3, 10], "values": [9]}],
    },
)
COMBINER = Addition(
    "combiner",
    "hr.col('n').spread()",
    {"what": "{'x': sample}"},
    {"combine": "spread", "panes": [{"window": [0, 10], "result": 7}]},
)
FUNCTION = Addition("function", "hr.col('note').reverse()", {"what": "{'x': sample.max()}"}, None)


def patch_copy(tmp_path: Path, patch: Path) -> Path:
    """A copy of the code with a patch."""
    for folder in PRODUCT:
        shutil.copytree(ROOT / folder, tmp_path / folder)  # with bytecode, which is right for what is not patched
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    result = subprocess.run(
        ["git", "apply", str(patch)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode:
        pytest.fail(STALE.format(patch=patch, why=result.stderr, most=MOST_FILES))
    return tmp_path


def used(copy: Path, addition: Addition) -> Any:
    """What ``use.py`` says of ``addition`` in a process that imports the copy."""
    path = [*(str(copy / Path(folder).parent) for folder in PRODUCT), str(ROOT)]
    result = subprocess.run(
        [sys.executable, str(PATCH_FOLDER / "use.py"), json.dumps(asdict(addition))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["place"].startswith(str(copy))
    return document


@pytest.mark.parametrize("addition", [TRIGGER, WINDOWS, COMBINER, FUNCTION], ids=lambda addition: addition.kind)
def test_an_addition_touches_three_files_and_the_oracle(addition: Addition) -> None:
    touched_files = re.findall(r"^\+\+\+ b/(.*)$", (PATCH_FOLDER / f"{addition.kind}.patch").read_text(), re.MULTILINE)
    oracle = [file for file in touched_files if file.startswith(ORACLE)]
    assert oracle
    assert len(touched_files) - len(oracle) <= MOST_FILES, touched_files


TEXTS_BY_KIND = {
    "trigger": ("whenever an element of 50 bytes or more has arrived", '"is": "after large element", "size": 50'),
    "windows": ("windows of 3h and of 7h in turn", '"is": "alternating"'),
    "combiner": ("x = spread(n)", '"combiner": "spread"'),
    "function": ("x = max(note.reverse())", '["function", "reverse", ["column", "note"]]'),
}
"""What a description and a definition say of each."""


@pytest.mark.slow
@pytest.mark.parametrize("addition", [TRIGGER, WINDOWS, COMBINER, FUNCTION], ids=lambda addition: addition.kind)
def test_an_addition_works_everywhere(addition: Addition, tmp_path: Path) -> None:
    report = used(patch_copy(tmp_path, PATCH_FOLDER / f"{addition.kind}.patch"), addition)
    description, definition = TEXTS_BY_KIND[addition.kind]
    assert report["forgotten"] == []
    assert report["local"] == report["reference"]
    assert report["local"]
    assert re.fullmatch("[0-9a-f]{32}", report["fingerprint"])
    assert definition in json.dumps(report["definition"])
    assert any(description in line for line in report["description"]), report["description"]
    for executor, results in report["cases"].items():
        assert [each["status"] for each in results] == ["passed"], (executor, results)


def test_a_patch_that_does_not_apply_says_what_to_do(tmp_path: Path) -> None:
    stale = tmp_path / "stale.patch"
    stale.write_text((PATCH_FOLDER / "function.patch").read_text().replace("lower", "no such line"))
    with pytest.raises(pytest.fail.Exception, match="no longer applies"):
        patch_copy(tmp_path / "copy", stale)
