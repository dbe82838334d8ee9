"""Runs a file of conformance cases on an executor and says what passed.

A case passes if everything that it expects came, and nothing else; one with ``expect_failure`` passes by failing with
that message. Cases of a dialect (``broken_on: normative``) are skipped and do not count; anything else that is skipped
does.
"""

import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import shorten
from typing import Any, Final

from rich.console import Console
from rich.progress import Progress

from headrace.errors import FixConfigError
from headrace.installed import require_extra
from headrace.this_process import Size, escape_invisible
from headrace_lab.conformance.cases import Case, ExpectState
from headrace_lab.conformance.fields import CaseFormatError
from headrace_lab.conformance.on_reference import ReferenceExecutor
from headrace_lab.conformance.replay import CaseExecutor, CaseReplay, check
from headrace_lab.conformance.schema import is_dialect, read_case
from headrace_lab.conformance.words import UnsupportedCaseError

SCHEMA_VERSION = 1
SECONDS_BETWEEN_LINES: Final = Size(10.0)
"""How often a run that nobody watches in a terminal says how far it is."""

Watch = Callable[[Iterable[CaseReplay], int], Iterable[CaseReplay]]


def _spark() -> CaseExecutor:
    require_extra("spark", "the executor spark")
    from headrace_lab.conformance.on_spark import SparkExecutor  # Spark is there only for those who want it

    return SparkExecutor()


def _local() -> CaseExecutor:
    from headrace_lab.conformance.on_local import LocalExecutor

    return LocalExecutor()


EXECUTORS: dict[str, Callable[[], CaseExecutor]] = {"reference": ReferenceExecutor, "local": _local, "spark": _spark}
"""How to make an executor, by the name that ``--executor`` gives it."""


class CaseStatus(StrEnum):
    """How a case ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class CaseResult:
    """How one case ended; ``reason`` is the difference, why it was skipped, or what of it was not compared.

    ``required`` cases must pass.
    """

    name: str
    status: CaseStatus
    reason: str = ""
    required: bool = True


def show_progress(replays: Iterable[CaseReplay], total: int) -> Iterator[CaseReplay]:
    """``replays`` as they finish; stderr says how many of ``total``: a bar in a terminal (unless results appear there
    too), else a line now and then.
    """
    if sys.stderr.isatty():
        bar = Progress(console=Console(stderr=True), transient=True, redirect_stdout=False, disable=sys.stdout.isatty())
        with bar:
            yield from bar.track(replays, total, description="cases")
        return
    last_line_at = time.monotonic()
    for number, replay in enumerate(replays, start=1):
        yield replay
        if time.monotonic() - last_line_at >= SECONDS_BETWEEN_LINES.value:
            print(f"{number} of {total} cases", file=sys.stderr)
            last_line_at = time.monotonic()


def run_file(path: Path, executor: CaseExecutor, pattern: str | None = None) -> list[CaseResult]:
    """Run the cases of ``path`` whose names match the glob ``pattern`` (None: all); the results in the order of the
    file.

    Raises CaseFormatError if the file is not a file of cases, or none matches.
    """
    return [*results_of(path, executor, pattern)]


def results_of(
    path: Path, executor: CaseExecutor, pattern: str | None = None, watch: Watch = lambda replays, _: replays
) -> Iterator[CaseResult]:
    """Results of ``run_file``, each as soon as it is known. ``watch`` sees replays as they finish.

    Raises CaseFormatError if the file is not a file of cases, or none matches.
    """
    named_by_number = {number: (_name(number, raw), raw) for number, raw in enumerate(_load(path), start=1)}
    expected = [
        number for number, (name, _) in named_by_number.items() if pattern is None or fnmatchcase(name, pattern)
    ]
    if not expected:
        names = shorten(", ".join(name for name, _ in named_by_number.values()), 200, placeholder=" ...")
        raise CaseFormatError(f"{path} has no case whose name matches {pattern!r}; its names are {names}")
    first: dict[str, int] = {}
    for number, (name, _) in named_by_number.items():
        first.setdefault(name, number)
    read = [_read(*named_by_number[number], number, first[named_by_number[number][0]]) for number in expected]
    cases = [case for case in read if isinstance(case, Case)]
    replays = iter(watch(executor.replay(cases), len(cases)))
    for case in read:
        yield case if isinstance(case, CaseResult) else _judge(case, next(replays))
    deque(replays, maxlen=0)  # so that the executor ends what it began


def _load(path: Path) -> list[Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise CaseFormatError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CaseFormatError(f"{path} is not JSON in UTF-8: {error}") from error
    if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
        raise CaseFormatError(f'{path} is not a file of cases; it needs "schema_version": {SCHEMA_VERSION} and "cases"')
    cases = document.get("cases")
    if not isinstance(cases, list) or not cases:
        raise CaseFormatError(f'{path}: "cases" must be a list of at least one case')
    return cases


def _name(number: int, raw: Any) -> str:
    """The name of the case in place ``number`` of the file, or that place if it has none."""
    return str(raw["name"]) if isinstance(raw, dict) and "name" in raw else f"case number {number}"


def _read(name: str, raw: Any, number: int, first: int) -> Case | CaseResult:
    """The case, or its result if it cannot be run at all. ``first`` is the place of the first case of that name."""
    if not isinstance(raw, dict):
        return CaseResult(name, CaseStatus.FAILED, f"a case is an object, not {raw!r}")
    if first != number:
        return CaseResult(name, CaseStatus.FAILED, f"case number {number} has the name of number {first}; rename one")
    try:
        if is_dialect(raw):
            return CaseResult(name, CaseStatus.SKIPPED, "broken_on: normative", required=False)
        return read_case(raw)
    except UnsupportedCaseError as error:
        return CaseResult(name, CaseStatus.SKIPPED, str(error))
    except Exception as error:  # of whatever kind: the other cases run on
        problem = str(error) if isinstance(error, FixConfigError) else f"{type(error).__name__}: {error}"
        return CaseResult(name, CaseStatus.FAILED, problem)


def _judge(case: Case, replay: CaseReplay) -> CaseResult:
    if replay.unsupported:
        return CaseResult(case.name, CaseStatus.SKIPPED, replay.unsupported)
    problem = replay.error or _difference(case, replay)
    if case.expect_failure is not None:
        return _judge_expected_failure(case, case.expect_failure, problem)
    unknown = ", ".join(case.unknown_fields)
    notes = [f"the schema has no field {unknown}: not read"] if unknown else []
    if problem:
        return CaseResult(case.name, CaseStatus.FAILED, "\n".join([*notes, problem]))
    if any(isinstance(step, ExpectState) for step in case.steps):
        notes.append("state steps are not compared")
    return CaseResult(case.name, CaseStatus.PASSED, "\n".join(notes))


def _difference(case: Case, replay: CaseReplay) -> str | None:
    try:
        return check(case, replay.outcomes)
    except Exception as error:  # what a case expects may be such that nothing can be compared with it
        return f"{type(error).__name__}: {error}"


def _judge_expected_failure(case: Case, message: str, problem: str | None) -> CaseResult:
    if problem is None:
        return CaseResult(case.name, CaseStatus.FAILED, f"passed, but should fail with: {message}")
    if message.lower() not in problem.lower():
        return CaseResult(case.name, CaseStatus.FAILED, f"failed, but not with: {message}\n{problem}")
    return CaseResult(case.name, CaseStatus.PASSED)


def all_required_passed(results: list[CaseResult]) -> bool:
    """Whether every case passed, those of a dialect left out."""
    return all(result.status is CaseStatus.PASSED for result in results if result.required)


def summary(results: list[CaseResult]) -> str:
    """``N passed, N failed, N skipped``."""
    counts = [sum(result.status is status for result in results) for status in CaseStatus]
    return ", ".join(f"{count} {status}" for count, status in zip(counts, CaseStatus, strict=True))


def render_text(result: CaseResult) -> str:
    """A line with its name, the reason below it."""
    reason = [f"        {line}" for line in result.reason.splitlines()]
    return escape_invisible("\n".join([f"{result.status.upper():7} {result.name}", *reason]))


def render_json(results: list[CaseResult]) -> str:
    """One object: ``cases``, the three counts, and the ``summary`` line."""
    counts = {status.value: sum(result.status is status for result in results) for status in CaseStatus}
    document = {"cases": [asdict(result) for result in results], **counts, "summary": summary(results)}
    return json.dumps(document, indent=2)


def conformance(file: Path, executor: str = "reference", pattern: str | None = None, output: str = "text") -> int:
    """Run ``file`` on ``executor``, print the results as ``output`` ("text" or "json"); the exit code of the command.

    0 if and only if every case that is not of a dialect passed. Raises FixConfigError for an unknown executor or file.
    """
    if executor not in EXECUTORS:
        raise FixConfigError(f"there is no executor {executor!r}; use one of {', '.join(EXECUTORS)}")
    results: list[CaseResult] = []
    for result in results_of(file, EXECUTORS[executor](), pattern, show_progress):
        results.append(result)
        if output == "text":  # a run that is cut off has said what it knows
            print(render_text(result), flush=True)
    print(summary(results) if output == "text" else render_json(results))
    return 0 if all_required_passed(results) else 1
