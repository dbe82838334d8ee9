"""CPU seconds of each file of tests, with those of the processes that it starts: what a CI of two cores is short of.

Most tests that take long only wait. What outlives its parent, as parts of a killed Airflow do, is not counted.
"""

import os
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

_TICKS = os.sysconf("SC_CLK_TCK")
_MOST_FILES = 100
_FEW_FILES = 20
_PROPERTY = "cpu_seconds"
_START_KEY = pytest.StashKey[float]()
_is_last = pytest.StashKey[bool]()


def _descendants(pid: int) -> Iterator[int]:
    """The processes below this one (Linux; elsewhere none)."""
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            for child in map(int, thread.read_text().split()):
                yield child
                yield from _descendants(child)


def _cpu_seconds() -> float:
    """CPU seconds of this process, of those that it has waited for, and of those that live."""
    seconds = sum(os.times()[:4])
    for pid in _descendants(os.getpid()):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
            seconds += sum(map(int, fields[11:15])) / _TICKS  # its own, and of those that it has waited for
    return seconds


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Look at the clock when a file begins, and note where it ends."""
    item.stash[_is_last] = nextitem is None or _file(nextitem.nodeid) != _file(item.nodeid)
    if item.session.stash.get(_START_KEY, None) is None:
        item.session.stash[_START_KEY] = _cpu_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The last report of a file, after its fixtures have ended, says what it took."""
    report = yield
    if call.when == "teardown" and item.stash[_is_last]:
        now = _cpu_seconds()
        report.user_properties.append((_PROPERTY, now - item.session.stash[_START_KEY]))
        item.session.stash[_START_KEY] = now
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the files that took most, where many ran."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == _PROPERTY:
                    seconds[_file(report.nodeid)] += value
    if len(seconds) > _FEW_FILES:
        terminalreporter.section(f"CPU by file: {sum(seconds.values()):.0f} s, the most in")
        for file, value in seconds.most_common(_MOST_FILES):
            terminalreporter.write_line(f"{value:6.1f}s {file}")
