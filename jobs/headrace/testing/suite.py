"""The tests beside pipelines: found, run, and what came of each. People write them in YAML, or for pytest.

A unit test in YAML says: given these rows in these epochs, expect these panes.

::

    pipeline: ../delays.py               # left out: the file of the same name beside it, or above the folder tests
    tests:
      - name: a window fires when the watermark has passed it
        given:
          - rows:
              - {origin: JFK, at: 13:05, delay: 5}
          - watermark: 14:00
            expect:                      # of this step
              panes:
                - {origin: JFK, window: [13:00, 14:00], timing: ON_TIME, flights: 1}
        expect:                          # of all steps together
          late: []
      - name: a sum that leaves 64 bits is an error
        given:
          - rows: [{origin: JFK, at: 13:05, delay: 9223372036854775807}, {origin: JFK, at: 13:06, delay: 1}]
        expect:
          raises: leaves 64 bits         # a part of the message, or the code

Every value knows its line, so that a mistake in it can be pointed at. Scalars are those of YAML 1.2: ``13:00``, ``NO``
and ``2013-01-01`` are text.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

from headrace.errors import HeadraceError
from headrace.installed import require_extra
from headrace.model.arguments import check_keywords, did_you_mean, short_repr
from headrace.pipeline.loading.registry import resolve_output
from headrace.pipeline.pipeline import Pipeline
from headrace.testing import steps as testing_steps
from headrace.testing.pipeline_run import Executor, run, wrong_steps
from headrace.testing.results import VIEWS, Result, StepResults, view_difference

_YAML_TAG_PREFIX = "tag:yaml.org,2002:"


class _YamlLoader(yaml.SafeLoader):  # type: ignore[misc]
    """Only what YAML 1.2 says of scalars."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", list("-+.0123456789")),
):
    _YamlLoader.add_implicit_resolver(f"{_YAML_TAG_PREFIX}{_name}", re.compile(f"^(?:{_pattern})$"), _first)


Mistakes = list[testing_steps.UnitTestError]


@dataclass(frozen=True)
class DocumentNode:
    """A value of a document: a scalar, a list of nodes, or nodes by name; and the line in ``file`` where it begins,
    or its name does. ``broken``: what in it is YAML, and means nothing.

    Methods that are given a list of ``mistakes`` add theirs to it, and give what is left; without, they raise the
    first as UnitTestError.
    """

    file: Path
    line: int
    value: Any
    broken: tuple[testing_steps.UnitTestError, ...] = ()

    def error(self, why: str) -> testing_steps.UnitTestError:
        """A mistake here."""
        return testing_steps.UnitTestError(f"{self.file}:{self.line}: {why}")

    def all_broken(self) -> "Iterator[testing_steps.UnitTestError]":
        """What is broken here and below."""
        yield from self.broken
        children = self.value.values() if isinstance(self.value, dict) else self.value
        for child in children if isinstance(self.value, dict | list) else ():
            yield from child.all_broken()

    def fields(
        self, what: str, known_names: Iterable[str], mistakes: Mistakes | None = None
    ) -> dict[str, "DocumentNode"]:
        """Nodes by name, all of them ``known_names``."""
        names = list(known_names)
        if not isinstance(self.value, dict):
            _note_mistake(
                self.error(f"{what} is {self._value_text()}; write a mapping with some of {', '.join(names)}"), mistakes
            )
            return {}
        for name, child in self.value.items():
            if name not in names:
                hint = did_you_mean(name, names)
                _note_mistake(child.error(f"{what} has no {name!r}; {hint}it has {', '.join(names)}"), mistakes)
        return {name: child for name, child in self.value.items() if name in names}

    def items(self, what: str, mistakes: Mistakes | None = None) -> list["DocumentNode"]:
        """Nodes in a list."""
        if not isinstance(self.value, list):
            why = f"{what}: {self._value_text()} is not a list; write its items below each other, each after `- `"
            _note_mistake(self.error(why), mistakes)
            return []
        return list(self.value)

    def text(self, what: str) -> str:
        """A text that is not empty. Raises UnitTestError."""
        if not isinstance(self.value, str) or not self.value:
            raise self.error(f"{what} is {self._value_text()}; write a text")
        return self.value

    def plain_value(self) -> Any:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {name: child.plain_value() for name, child in self.value.items()}
        return [child.plain_value() for child in self.value] if isinstance(self.value, list) else self.value

    def _value_text(self) -> str:
        return short_repr(self.plain_value())


def read_document(file: Path) -> DocumentNode:
    """The document in ``file``. Raises UnitTestError, naming the line, if it is not one YAML document."""
    try:
        text = file.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=_YamlLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise testing_steps.UnitTestError(f"{file} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        raise testing_steps.UnitTestError(
            f"{file}{line}: not YAML: {getattr(error, 'problem', None) or error}"
        ) from error
    if root is None:
        return DocumentNode(file, 1, None)
    return _parse_node(file, root)


def _note_mistake(mistake: testing_steps.UnitTestError, mistakes: Mistakes | None) -> None:
    if mistakes is None:
        raise mistake
    mistakes.append(mistake)


def _parse_node(file: Path, node: yaml.Node) -> DocumentNode:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return DocumentNode(file, line, [_parse_node(file, child) for child in node.value])
    if isinstance(node, yaml.MappingNode):
        mistakes: Mistakes = []
        return DocumentNode(file, line, dict(_named_nodes(file, node, mistakes)), tuple(mistakes))
    return DocumentNode(file, line, _scalar_value(node))


def _named_nodes(file: Path, mapping: yaml.MappingNode, mistakes: Mistakes) -> Iterator[tuple[str, DocumentNode]]:
    names_read: set[str] = set()
    for key, value in mapping.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            mistakes.append(testing_steps.UnitTestError(f"{file}:{line}: a name is a text, not a list or a mapping"))
        elif key.value in names_read:
            mistakes.append(testing_steps.UnitTestError(f"{file}:{line}: {key.value!r} stands here twice"))
        else:
            names_read.add(key.value)
            node = _parse_node(file, value)
            yield key.value, DocumentNode(file, line, node.value, node.broken)


def _scalar_value(scalar: yaml.Node) -> Any:
    text: str = scalar.value
    match scalar.tag.removeprefix(_YAML_TAG_PREFIX):
        case "null":
            return None
        case "bool":
            return text.lower() == "true"
        case "int":
            return int(text)
        case "float":
            return float(text.replace(".inf", "inf").replace(".nan", "nan"))
    return text


@check_keywords
def load(reference: str, *, beside: str | Path | None = None) -> Pipeline:
    """The pipeline that ``reference`` names: ``path/to/file.py[:name]``, or a registered name; one of several outputs
    is ``path/to/shop.py:shop.hourly``.

    A path is relative to the folder of the file ``beside``: ``load("../delays.py", beside=__file__)``.
    Raises UnknownPipelineError, and PipelineFileError for a file that cannot be imported.
    """
    path, colon, name = reference.partition(":")
    if path.endswith(".py") and beside is not None:
        path = os.path.normpath(Path(beside).parent / path)
    return resolve_output(f"{path}{colon}{name}")


_STEP_FIELDS = ("rows", "watermark", "processing_time", "signal", "end")
_EXPECT = (*VIEWS, "watermark")
_RAISES_FIELD = "raises"


@dataclass(frozen=True)
class Check:
    """What is expected of the step of that number, or of all of them (None): ``what`` is a view, or the watermark."""

    step: int | None
    what: str
    expected: DocumentNode

    def difference(self, result: Result) -> str | None:
        """How ``result`` differs from it. Raises UnitTestError for what cannot be meant."""
        step_results: StepResults = result if self.step is None else result.steps[self.step]
        try:
            actual = (
                self._watermark_difference(step_results)
                if self.what == "watermark"
                else self._rows_difference(step_results, result)
            )
        except testing_steps.UnitTestError as error:
            raise self.expected.error(str(error)) from None
        where = "" if self.step is None else f"after step {self.step + 1}, "
        return None if actual is None else f"{self.expected.file}:{self.expected.line}: {where}{actual}"

    def _watermark_difference(self, step_results: StepResults) -> str | None:
        expected = testing_steps.expected_watermark(self.expected.plain_value())
        if expected == step_results.watermark:
            return None
        return (
            f"watermark: {testing_steps.text_of(expected)} expected, "
            f"{testing_steps.text_of(step_results.watermark)} found"
        )

    def _rows_difference(self, step_results: StepResults, result: Result) -> str | None:
        expected = [node.plain_value() for node in self.expected.items(self.what)]
        return view_difference(step_results, self.what, expected)


@dataclass(frozen=True)
class UnitTest:
    """One test: its steps, each with its place in the file, and what is expected. That is ``checks`` of the result, or
    an error that ``raises`` a part of. ``mistakes``: what of it makes no sense as it is written; such a test cannot be
    run.
    """

    name: str
    place: DocumentNode
    pipeline: Pipeline
    given: tuple[tuple[DocumentNode, testing_steps.Step], ...]
    checks: tuple[Check, ...]
    raises: DocumentNode | None = None
    mistakes: tuple[testing_steps.UnitTestError, ...] = ()

    def find_failures(self, executor: Executor = "local") -> list[str]:
        """What is not as expected. Raises UnitTestError for what cannot be meant, a line for each mistake; and what a
        run over such records raises, unless that is expected.
        """
        if self.mistakes:
            raise testing_steps.all_of(self.mistakes)
        steps = [step for _, step in self.given]
        try:
            result = run(self.pipeline, steps, executor=executor)
        except testing_steps.UnitTestError as error:
            wrong = [mistake for mistake in wrong_steps(self.pipeline, steps) if mistake.step is not None] or [error]
            raise testing_steps.all_of(
                [self._mistake_place(mistake).error(str(mistake)) for mistake in wrong]
            ) from None
        except HeadraceError as error:
            if self.raises is None:
                raise
            return self._error_differences(f"{error} ({error.code})")
        if self.raises is not None:
            return self._error_differences(None)
        return self._result_differences(result)

    def _result_differences(self, result: Result) -> list[str]:
        differences: list[str] = []
        mistakes: Mistakes = []
        for check in self.checks:
            try:
                difference = check.difference(result)
            except testing_steps.UnitTestError as error:
                mistakes.append(error)
            else:
                differences += [] if difference is None else [difference]
        if mistakes:
            raise testing_steps.all_of(mistakes)
        return differences

    def _mistake_place(self, error: testing_steps.UnitTestError) -> DocumentNode:
        return self.place if error.step is None else self.given[error.step][0]

    def _error_differences(self, error_raised: str | None) -> list[str]:
        """How ``error_raised``, which the run raised, differs from what it must raise."""
        assert self.raises is not None
        expected_text = self.raises.text(_RAISES_FIELD)
        if error_raised is not None and expected_text in error_raised:
            return []
        actual = "nothing was raised" if error_raised is None else f"this was raised: {error_raised}"
        return [f"{self.raises.file}:{self.raises.line}: an error with {expected_text!r} expected, {actual}"]


def read_tests(file: Path) -> list[UnitTest]:
    """The tests in ``file``, those with mistakes too; mistakes outside of them are a test of the file's name. Raises
    UnitTestError, naming the line and what to write, if there is none, and PipelineFileError.
    """
    document = read_document(file)
    mistakes = [*document.broken]
    fields = document.fields("a file of tests", ("pipeline", "tests"), mistakes)
    if "tests" not in fields:
        raise testing_steps.all_of(
            mistakes or [document.error("there are no tests here; write `tests:` and below it `- name: ...`")]
        )
    pipeline = _load_pipeline(document, fields)
    tests = [
        _parse_test(fields_of_test, pipeline, number)
        for number, fields_of_test in enumerate(fields["tests"].items("tests"), 1)
    ]
    of_the_file = [UnitTest(file.name, document, pipeline, (), (), mistakes=tuple(mistakes))] if mistakes else []
    return [*of_the_file, *_named_once(tests)]


def _named_once(tests: Sequence[UnitTest]) -> Iterator[UnitTest]:
    names: set[str] = set()
    for test in tests:
        mistake = test.place.error(f"another test has the name {test.name!r}")
        yield replace(test, mistakes=(*test.mistakes, mistake)) if test.name in names else test
        names.add(test.name)


def _load_pipeline(document: DocumentNode, fields: Mapping[str, DocumentNode]) -> Pipeline:
    file = document.file
    pipeline_node = fields.get("pipeline")
    try:
        if pipeline_node is not None:
            return load(pipeline_node.text("pipeline"), beside=file)
        name = f"{file.name.removesuffix(file.suffix).removesuffix('.test')}.py"
        for path in (name, f"../{name}"):
            if (file.parent / path).is_file():
                return load(path, beside=file)
    except testing_steps.UnitTestError:
        raise
    except HeadraceError as error:
        error.add_note(f"{file}:{1 if pipeline_node is None else pipeline_node.line} names that pipeline")
        raise
    raise document.error(f"there is no {name} beside it or in the folder above; write `pipeline: path/to/file.py`")


def _parse_test(node: DocumentNode, pipeline: Pipeline, number: int) -> UnitTest:
    mistakes = [*node.all_broken()]
    fields = node.fields("a test", ("name", "description", "given", "expect"), mistakes)
    missing = [field_name for field_name in ("name", "given") if field_name not in fields]
    if missing and not mistakes:
        what = "a test without `{}:`; it has a name, what is given, and what to expect"
        mistakes += [node.error(what.format(field_name)) for field_name in missing]
    steps, checks = [], []
    for number_of_step, child in enumerate(fields["given"].items("given", mistakes) if "given" in fields else ()):
        step, expect = _parse_step(child, mistakes)
        steps.append((child, step))
        checks += list(_step_checks(expect, number_of_step, mistakes))
    expected = fields["expect"].fields("expect", (*_EXPECT, _RAISES_FIELD), mistakes) if "expect" in fields else {}
    raises = expected.get(_RAISES_FIELD)
    checks += [Check(None, what, child) for what, child in expected.items() if what != _RAISES_FIELD]
    with _collect_mistake(mistakes):
        _check_expected(node, checks, raises, is_whole=not mistakes)
    name = f"test {number}"
    with _collect_mistake(mistakes):
        name = fields["name"].text("name") if "name" in fields else name
    return UnitTest(name, node, pipeline, tuple(steps), tuple(checks), raises, tuple(mistakes))


@contextmanager
def _collect_mistake(mistakes: Mistakes) -> Iterator[None]:
    """Add the mistake that ends the block to ``mistakes``."""
    try:
        yield
    except testing_steps.UnitTestError as error:
        mistakes.append(error)


def _check_expected(
    node: DocumentNode, checks: Sequence[Check], raises: DocumentNode | None, *, is_whole: bool
) -> None:
    """Raises UnitTestError. ``is_whole``: nothing that may have been an expectation was left out."""
    if raises is not None:
        raises.text(_RAISES_FIELD)
        if checks:
            raise checks[0].expected.error(f"a run that {_RAISES_FIELD} gives no results: expect the one or the other")
    elif not checks and is_whole:
        known_words = ", ".join((*_EXPECT, _RAISES_FIELD))
        raise node.error(f"a test that expects nothing; write `expect:` and below it some of {known_words}")


def _step_checks(expect: DocumentNode | None, step: int, mistakes: Mistakes) -> Iterator[Check]:
    if expect is not None:
        for what, node in expect.fields("expect", _EXPECT, mistakes).items():
            yield Check(step, what, node)


def _parse_step(node: DocumentNode, mistakes: Mistakes) -> tuple[testing_steps.Step, DocumentNode | None]:
    mistakes_before = len(mistakes)
    fields = node.fields("a step", (*_STEP_FIELDS, "expect"), mistakes)
    if not {*fields} & {*_STEP_FIELDS} and len(mistakes) == mistakes_before:
        mistakes.append(node.error(f"a step without {', '.join(_STEP_FIELDS)}: nothing happens in it"))
    parts: list[testing_steps.Step] = []
    for name, child in fields.items():
        if name != "expect":
            try:
                parts += _STEP_READERS[name](child)
            except testing_steps.UnitTestError as error:
                mistakes.append(error if str(error).startswith(f"{node.file}:") else child.error(str(error)))
    with _collect_mistake(mistakes):
        return testing_steps.together(*parts), fields.get("expect")
    return testing_steps.Step(), fields.get("expect")


def _rows_step(node: DocumentNode) -> Iterator[testing_steps.Step]:
    if isinstance(node.value, dict):
        for name, child in node.value.items():
            yield testing_steps.rows(*(record.plain_value() for record in child.items(f"rows of {name}")), of=name)
    else:
        yield testing_steps.rows(*(record.plain_value() for record in node.items("rows")))


def _watermark_step(node: DocumentNode) -> Iterator[testing_steps.Step]:
    if isinstance(node.value, dict):
        for name, child in node.value.items():
            yield testing_steps.watermark(child.plain_value(), of=name)
    else:
        yield testing_steps.watermark(node.plain_value())


def _processing_time(node: DocumentNode) -> Iterator[testing_steps.Step]:
    yield testing_steps.processing_time(node.plain_value())


def _signal_step(node: DocumentNode) -> Iterator[testing_steps.Step]:
    if isinstance(node.value, dict):
        fields = node.fields("a signal", ("name", "key"))
        key: Any = fields["key"].plain_value() if "key" in fields else None
        if "name" not in fields:
            raise node.error("a signal without `name:`")
        yield testing_steps.signal(fields["name"].text("name"), key=key)
    else:
        yield testing_steps.signal(node.text("signal"))


def _end_step(node: DocumentNode) -> Iterator[testing_steps.Step]:
    if node.value is not True:
        raise node.error("write `end: true` where the input ends, or leave it out")
    yield testing_steps.end()


_STEP_READERS = {
    "rows": _rows_step,
    "watermark": _watermark_step,
    "processing_time": _processing_time,
    "signal": _signal_step,
    "end": _end_step,
}


_YAML = (".yaml", ".yml")
_TEST_FILE_NAMES = "NAME.test.yaml beside NAME.py, tests/NAME.yaml, or tests/test_NAME.py"
_PYTEST_RAN = (0, 1)
PLUGIN = "headrace.testing.plugin"
_MOST_CHARACTERS = 4_000


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
        return {"tests": [asdict(test) for test in self.tests], "counts": self.counts}


def run_suite(
    tests: DiscoveredTests, executor: Executor = "local", tell: Callable[[TestedItem], None] | None = None
) -> SuiteReport:
    """Run tests one after another, and ``tell`` of each when it has ended; tests in YAML run with ``executor``, tests
    in Python with pytest.

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
        raise testing_steps.UnitTestError(f"there is no {path}")
    if path.is_file():
        if path.suffix in _YAML:
            return DiscoveredTests((path,), ())
        if path.suffix == ".py":
            return DiscoveredTests((), (path,))
        raise testing_steps.UnitTestError(f"{path} is not a file of tests; they are {_TEST_FILE_NAMES}")
    files = [file for file in _files_below(path) if file.is_file()]
    unit_tests = [file for file in files if file.suffix in _YAML and file.stem.endswith(".test")]
    others = [file for file in files if file.suffix in _YAML and file.parent.name == "tests" and file not in unit_tests]
    tests = [file for file in others if _holds_tests(file)]
    python = [file for file in files if file.suffix == ".py" and _is_python_test(file)]
    tests_found = DiscoveredTests(
        tuple(sorted([*unit_tests, *tests])), tuple(python), tuple(file for file in others if file not in tests)
    )
    if not tests_found.unit_tests and not tests_found.python:
        raise testing_steps.UnitTestError(f"there are no tests in {path}; write {_TEST_FILE_NAMES}")
    return tests_found


def _files_below(folder: Path) -> Iterator[Path]:
    """Everything below, hidden folders and those of Python's own left out; sorted."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")) and name != "node_modules")
        yield from (Path(place) / name for name in sorted(files))


def _holds_tests(file: Path) -> bool:
    """Whether a YAML file in a folder ``tests`` is one of tests: it has the name of a pipeline's file, or says so."""
    if (file.parent / f"{file.stem}.py").is_file() or (file.parent.parent / f"{file.stem}.py").is_file():
        return True
    return any(line.startswith(("tests:", "pipeline:")) for line in file.read_text(errors="replace").splitlines())


def _is_python_test(file: Path) -> bool:
    return file.name.startswith("test_") or file.stem.endswith("_test")


def run_tests(tests: DiscoveredTests, executor: Executor = "local") -> Iterator[TestedItem]:
    """Run them one after another; tests in YAML run with ``executor``, tests in Python with pytest.

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
            output = (process.stdout + process.stderr).strip()[-_MOST_CHARACTERS:]
            raise testing_steps.UnitTestError(
                f"pytest did not run the tests (exit code {process.returncode}):\n{output}"
            )
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
    """A file that raises when pytest imports it: its line, and what was raised; pytest's way there is left out."""
    name = Path(file).name
    lines = re.findall(rf'(?:^|[/\\]){re.escape(name)}:(\d+):|{re.escape(name)}", line (\d+)', traceback, re.MULTILINE)
    error_lines = [line.removeprefix("E").strip() for line in traceback.splitlines() if line.startswith("E  ")]
    cause = error_lines[-1] if error_lines else traceback.strip()[-_MOST_CHARACTERS:]
    line = next((int(one or other) for one, other in reversed(lines)), None)
    return TestedItem(file, line, name, Verdict.ERROR, f"it cannot be imported, so none of its tests ran: {cause}")


_JUNIT_VERDICTS = {"failure": Verdict.FAILED, "error": Verdict.ERROR, "skipped": Verdict.SKIPPED}
