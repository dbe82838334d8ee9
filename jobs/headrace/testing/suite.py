"""The tests beside pipelines: found, run, and what came of each."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from headrace.errors import HeadraceError
from headrace.installed import require_extra
from headrace.testing.pipeline_run import Executor
from headrace.testing.steps import UnitTestError
from headrace.testing.yaml_tests import UnitTest, read_tests

_YAML = (".yaml", ".yml")
_TEST_FILE_NAMES = "NAME.test.yaml beside NAME.py, tests/NAME.yaml, or tests/test_NAME.py"
_PYTEST_RAN = (0, 1)
PLUGIN = "headrace.testing.plugin"
_SHOWN = 4_000


class Verdict(StrEnum):
    """What came of a test; ERROR: it could not be run."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    ERROR = "error"


@dataclass(frozen=True)
class TestedItem:
    """A test that was run, or a file of tests that could not be."""

    file: str
    line: int | None
    name: str
    verdict: Verdict
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class DiscoveredTests:
    """Files of tests, in order; ``others`` are YAML files in folders of tests that hold none."""

    unit_tests: tuple[Path, ...]
    python: tuple[Path, ...]
    others: tuple[Path, ...] = ()


@dataclass(frozen=True)
class SuiteReport:
    """The tests that were run, in order, and how many came to each verdict."""

    tests: tuple[TestedItem, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many tests, by verdict."""
        return dict(Counter(test.verdict.value for test in self.tests))

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"tests": [asdict(test) for test in self.tests], "counts": self.counts}


def run_suite(
    tests: DiscoveredTests, executor: Executor = "local", tell: Callable[[TestedItem], None] | None = None
) -> SuiteReport:
    """Run tests one after another, and ``tell`` of each when it has ended; those in YAML with ``executor``, those in
    Python with pytest.

    Raises NotInstalledError if pytest is needed and not there.
    """
    results = []
    for item in run_tests(tests, executor):
        results.append(item)
        if tell is not None:
            tell(item)
    return SuiteReport(tuple(results))


def find_tests(path: Path) -> DiscoveredTests:
    """The tests in a file, or in a folder and those below it. Raises UnitTestError if there are none."""
    if not path.exists():
        raise UnitTestError(f"there is no {path}")
    if path.is_file():
        if path.suffix in _YAML:
            return DiscoveredTests((path,), ())
        if path.suffix == ".py":
            return DiscoveredTests((), (path,))
        raise UnitTestError(f"{path} is not a file of tests; they are {_TEST_FILE_NAMES}")
    files = [file for file in _files_below(path) if file.is_file()]
    unit_tests = [file for file in files if file.suffix in _YAML and _is_named(file)]
    others = [file for file in files if file.suffix in _YAML and file.parent.name == "tests" and file not in unit_tests]
    tests = [file for file in others if _holds_tests(file)]
    python = [file for file in files if file.suffix == ".py" and _is_python_test(file)]
    tests_found = DiscoveredTests(
        tuple(sorted([*unit_tests, *tests])), tuple(python), tuple(file for file in others if file not in tests)
    )
    if not tests_found.unit_tests and not tests_found.python:
        raise UnitTestError(f"there are no tests in {path}; write {_TEST_FILE_NAMES}")
    return tests_found


def _files_below(folder: Path) -> Iterator[Path]:
    """Everything below, hidden folders and those of Python's own left out; sorted."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")) and name != "node_modules")
        yield from (Path(place) / name for name in sorted(files))


def _is_named(file: Path) -> bool:
    return file.stem.endswith(".test")


def _holds_tests(file: Path) -> bool:
    """Whether a YAML file in a folder ``tests`` is one of tests: it has the name of a pipeline's file, or says so."""
    if (file.parent / f"{file.stem}.py").is_file() or (file.parent.parent / f"{file.stem}.py").is_file():
        return True
    return any(line.startswith(("tests:", "pipeline:")) for line in file.read_text(errors="replace").splitlines())


def _is_python_test(file: Path) -> bool:
    return file.name.startswith("test_") or file.stem.endswith("_test")


def run_tests(tests: DiscoveredTests, executor: Executor = "local") -> Iterator[TestedItem]:
    """Run them one after another; those in YAML with ``executor``, those in Python with pytest.

    Raises NotInstalledError if pytest is needed and not there.
    """
    if tests.python:
        require_extra("test", f"{tests.python[0]}, a test in Python,")
    for file in tests.unit_tests:
        yield from _unit_tests(file, executor)
    if tests.python:
        yield from _with_pytest(tests.python)


def _unit_tests(file: Path, executor: Executor) -> Iterator[TestedItem]:
    try:
        tests = read_tests(file)
    except HeadraceError as error:
        yield TestedItem(str(file), None, file.name, Verdict.ERROR, _error_text(error))
        return
    for test in tests:
        yield _run_unit_test(test, executor)


def _run_unit_test(test: UnitTest, executor: Executor) -> TestedItem:
    start = time.monotonic()
    try:
        failures = test.find_failures(executor)
        verdict, message = Verdict.FAILED if failures else Verdict.PASSED, "\n".join(failures)
    except HeadraceError as error:
        verdict, message = Verdict.ERROR, _error_text(error)
    seconds = time.monotonic() - start
    return TestedItem(str(test.place.file), test.place.line, test.name, verdict, message, seconds)


def _error_text(error: HeadraceError) -> str:
    return "\n".join([f"{error} ({error.code})", *getattr(error, "__notes__", ())])


def _with_pytest(files: Sequence[Path]) -> Iterator[TestedItem]:
    """Tests in Python, in a process of pytest's own: what they import does not stay here."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "-o", "junit_family=xunit1"]
        command += ["--continue-on-collection-errors"]
        process = subprocess.run(
            [*command, *_plugin_arguments(), *map(str, files)], capture_output=True, text=True, check=False
        )
        if process.returncode not in _PYTEST_RAN or not report.is_file():
            output = (process.stdout + process.stderr).strip()[-_SHOWN:]
            raise UnitTestError(f"pytest did not run the tests (exit code {process.returncode}):\n{output}")
        cases = list(ElementTree.parse(report).iter("testcase"))  # noqa: S314 (pytest has just written it)
    for case in cases:
        yield _of_pytest(case)


def _plugin_arguments() -> list[str]:
    """Headrace's own plugin by name, where Headrace is on the path and not installed."""
    is_installed = any(entry_point.value == PLUGIN for entry_point in entry_points(group="pytest11"))
    return [] if is_installed else ["-p", PLUGIN]


def _of_pytest(case: ElementTree.Element) -> TestedItem:
    wrong = next((child for child in case if child.tag in _JUNIT_VERDICTS), None)
    if wrong is not None and wrong.get("message") == "collection failure":
        return _not_collected(case.get("file") or "", wrong.text or "")
    verdict = Verdict.PASSED if wrong is None else _JUNIT_VERDICTS[wrong.tag]
    message = "" if wrong is None else (wrong.text or wrong.get("message") or "").strip()
    line = case.get("line")
    return TestedItem(
        file=case.get("file") or case.get("classname") or "",
        line=None if line is None else int(line) + 1,
        name=case.get("name") or "",
        verdict=verdict,
        message=message,
        seconds=float(case.get("time") or 0),
    )


def _not_collected(file: str, traceback: str) -> TestedItem:
    """A file that raises when pytest imports it: the line of the file, and what was raised; of pytest's way there
    nothing.
    """
    name = Path(file).name
    lines = re.findall(rf'(?:^|[/\\]){re.escape(name)}:(\d+):|{re.escape(name)}", line (\d+)', traceback, re.MULTILINE)
    error_lines = [line.removeprefix("E").strip() for line in traceback.splitlines() if line.startswith("E  ")]
    cause = error_lines[-1] if error_lines else traceback.strip()[-_SHOWN:]
    line = next((int(one or other) for one, other in reversed(lines)), None)
    return TestedItem(file, line, name, Verdict.ERROR, f"it cannot be imported, so none of its tests ran: {cause}")


_JUNIT_VERDICTS = {"failure": Verdict.FAILED, "error": Verdict.ERROR, "skipped": Verdict.SKIPPED}
