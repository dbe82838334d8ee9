"""Unit tests of pipelines as people write them in YAML: given these rows in these epochs, expect these panes.

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
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError
from headrace.pipeline.graph import Pipeline
from headrace.testing.comparing import VIEWS, difference
from headrace.testing.documents import Node, read
from headrace.testing.errors import UnitTestError
from headrace.testing.loading import load
from headrace.testing.results import Outcome, Result
from headrace.testing.running import Executor, run
from headrace.testing.steps import Step, end, processing_time, rows, signal, together, watermark
from headrace.testing.times import expected_watermark, text_of

_STEP = ("rows", "watermark", "processing_time", "signal", "end")
_EXPECT = (*VIEWS, "watermark")


@dataclass(frozen=True)
class Check:
    """What is expected of the step of that number, or of all of them (None): ``what`` is a view, or the watermark."""

    step: int | None
    what: str
    expected: Node

    def difference(self, result: Result) -> str | None:
        """How ``result`` differs from it. Raises UnitTestError for what cannot be meant."""
        of: Outcome = result if self.step is None else result.steps[self.step]
        try:
            found = self._watermark(of) if self.what == "watermark" else self._rows(of, result)
        except UnitTestError as error:
            raise self.expected.error(str(error)) from None
        where = "" if self.step is None else f"after step {self.step + 1}, "
        return None if found is None else f"{self.expected.file}:{self.expected.line}: {where}{found}"

    def _watermark(self, of: Outcome) -> str | None:
        expected = expected_watermark(self.expected.plain())
        if expected == of.watermark:
            return None
        return f"watermark: {text_of(expected)} expected, {text_of(of.watermark)} found"

    def _rows(self, of: Outcome, result: Result) -> str | None:
        expected = [each.plain() for each in self.expected.items(self.what)]
        return difference(of, self.what, expected)


@dataclass(frozen=True)
class UnitTest:
    """One test: its steps, each with its place in the file, and what is expected."""

    name: str
    place: Node
    pipeline: Pipeline
    given: tuple[tuple[Node, Step], ...]
    checks: tuple[Check, ...]

    def failures(self, executor: Executor = "local") -> list[str]:
        """What is not as expected. Raises UnitTestError, with its line, for what cannot be meant; and what a run over
        such records raises.
        """
        try:
            result = run(self.pipeline, [step for _, step in self.given], executor=executor)
        except UnitTestError as error:
            place = self.place if error.step is None else self.given[error.step][0]
            raise place.error(str(error)) from None
        found = (check.difference(result) for check in self.checks)
        return [text for text in found if text is not None]


def read_tests(file: Path) -> list[UnitTest]:
    """The tests in ``file``. Raises UnitTestError, naming the line and what to write, and PipelineFileError."""
    document = read(file)
    fields = document.fields("a file of tests", ("pipeline", "tests"))
    if "tests" not in fields:
        raise document.error("there are no tests here; write `tests:` and below it `- name: ...`")
    pipeline = _pipeline(document, fields)
    found = [_test(each, pipeline) for each in fields["tests"].items("tests")]
    for number, test in enumerate(found):
        if test.name in [other.name for other in found[:number]]:
            raise test.place.error(f"another test has the name {test.name!r}")
    return found


def _pipeline(document: Node, fields: Mapping[str, Node]) -> Pipeline:
    file = document.file
    named = fields.get("pipeline")
    try:
        if named is not None:
            return load(named.text("pipeline"), beside=file)
        name = f"{file.name.removesuffix(file.suffix).removesuffix('.test')}.py"
        for path in (name, f"../{name}"):
            if (file.parent / path).is_file():
                return load(path, beside=file)
    except UnitTestError:
        raise
    except HeadraceError as error:
        error.add_note(f"{file}:{1 if named is None else named.line} names that pipeline")
        raise
    raise document.error(f"there is no {name} beside it or in the folder above; write `pipeline: path/to/file.py`")


def _test(node: Node, pipeline: Pipeline) -> UnitTest:
    fields = node.fields("a test", ("name", "description", "given", "expect"))
    for needed in ("name", "given"):
        if needed not in fields:
            raise node.error(f"a test without `{needed}:`; it has a name, what is given, and what to expect")
    given, checks = [], []
    for number, each in enumerate(fields["given"].items("given")):
        step, expect = _step(each)
        given.append((each, step))
        checks += list(_checks(expect, number))
    checks += list(_checks(fields.get("expect"), None))
    if not checks:
        raise node.error(f"a test that expects nothing; write `expect:` and below it some of {', '.join(_EXPECT)}")
    return UnitTest(fields["name"].text("name"), node, pipeline, tuple(given), tuple(checks))


def _checks(expect: Node | None, step: int | None) -> Iterator[Check]:
    if expect is not None:
        for what, node in expect.fields("expect", _EXPECT).items():
            yield Check(step, what, node)


def _step(node: Node) -> tuple[Step, Node | None]:
    fields = node.fields("a step", (*_STEP, "expect"))
    if not {*fields} & {*_STEP}:
        raise node.error(f"a step without {', '.join(_STEP)}: nothing happens in it")
    parts: list[Step] = []
    for name, each in fields.items():
        if name != "expect":
            try:
                parts += _PARTS[name](each)
            except UnitTestError as error:
                known = str(error).startswith(f"{node.file}:")
                raise error if known else each.error(str(error)) from None
    return together(*parts), fields.get("expect")


def _rows(node: Node) -> Iterator[Step]:
    if isinstance(node.value, dict):
        for name, each in node.value.items():
            yield rows(*(record.plain() for record in each.items(f"rows of {name}")), of=name)
    else:
        yield rows(*(record.plain() for record in node.items("rows")))


def _watermark(node: Node) -> Iterator[Step]:
    if isinstance(node.value, dict):
        for name, each in node.value.items():
            yield watermark(each.plain(), of=name)
    else:
        yield watermark(node.plain())


def _processing_time(node: Node) -> Iterator[Step]:
    yield processing_time(node.plain())


def _signal(node: Node) -> Iterator[Step]:
    if isinstance(node.value, dict):
        fields = node.fields("a signal", ("name", "key"))
        key: Any = fields["key"].plain() if "key" in fields else None
        if "name" not in fields:
            raise node.error("a signal without `name:`")
        yield signal(fields["name"].text("name"), key=key)
    else:
        yield signal(node.text("signal"))


def _end(node: Node) -> Iterator[Step]:
    if node.value is not True:
        raise node.error("write `end: true` where the input ends, or leave it out")
    yield end()


_PARTS = {
    "rows": _rows,
    "watermark": _watermark,
    "processing_time": _processing_time,
    "signal": _signal,
    "end": _end,
}
