"""Windows of columns: those that the reference gives row by row, and what it makes of the windows of a key."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import PipelineError
from headrace.kernel.windows import assign_windows, count_windows, merged_windows, output_times
from headrace.model.accumulation import TimestampCombiner
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import col
from headrace.model.time import GLOBAL_WINDOW_END, Instant, to_instant
from headrace.model.windows import (
    GLOBAL_WINDOW,
    CalendarWindows,
    CustomWindows,
    FixedWindows,
    GlobalWindows,
    MergeGroup,
    Sessions,
    ShiftedOutputTime,
    SlidingWindows,
    Window,
    WindowFn,
)
from headrace.testing import end, rows, run
from headrace.testing.pipeline_run import EXECUTORS, Executor
from headrace_lab.reference import windows as reference
from tests.building import lengths
from tests.reference.strategies import examples

HOUR = 3_600_000_000


@dataclass(frozen=True)
class Validity(CustomWindows):
    """A window from each element to ``size`` behind it, cut where the next one begins; its number of times."""

    size: int
    times: int = 1

    @property
    def merges(self) -> bool:
        return True

    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Collection[Window]:
        shifts = [i * record.get("step", 1) for i in range(self.times)]
        return [Window(Instant(timestamp + shift), Instant(timestamp + shift + self.size)) for shift in shifts]

    def merge(self, windows: Collection[Window]) -> list[MergeGroup]:
        ordered_windows = sorted(windows)
        cut = [
            (one, Window(one.start, min(one.end, other.start)))
            for one, other in pairwise(ordered_windows)
            if one.start < other.start
        ]
        return [MergeGroup(frozenset([one]), result) for one, result in cut if result not in windows]

    def output_time(self, timestamp: Instant, window: Window) -> Instant:
        return Instant(min(timestamp + 3, window.end))


@dataclass(frozen=True)
class BrokenWindows(CustomWindows):
    """A mistake in each method."""

    @property
    def merges(self) -> bool:
        return True

    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Collection[Window]:
        raise ZeroDivisionError("oh")

    def merge(self, windows: Collection[Window]) -> list[MergeGroup]:
        return [MergeGroup(frozenset(windows), GLOBAL_WINDOW), MergeGroup(frozenset(windows), GLOBAL_WINDOW)]


ZONES = ["UTC", "Europe/Berlin", "America/Havana", "America/Sao_Paulo", "America/St_Johns", "America/Toronto"]
PLAIN_WINDOWS: st.SearchStrategy[WindowFn] = st.one_of(
    st.builds(FixedWindows, lengths(1, 20), lengths(-5, 25)),
    st.builds(FixedWindows, lengths(1, 20), lengths(-5, 25), st.just(col("k") * 3)),
    st.builds(SlidingWindows, lengths(1, 20), lengths(1, 30), lengths(-5, 15)),
    st.builds(Sessions, lengths(1, 20)),
    st.just(GlobalWindows()),
    st.builds(Validity, st.integers(1, 5), st.integers(0, 3)),
)
ANY = PLAIN_WINDOWS | st.builds(ShiftedOutputTime, PLAIN_WINDOWS, lengths(0, 9))


def in_python(where: WindowFn, times: list[Any], keys: list[Any], records: list[Any]) -> list[tuple[Any, ...]]:
    assignments = []
    for row, (time, key) in enumerate(zip(times, keys, strict=True)):
        phase = reference.phase_of(where, {"k": key}, {"k": DataType.INT})
        windows = [] if time is None else reference.assign(where, time, records[row], phase)
        for i, window in enumerate(windows):
            assignments.append((row, *window, i == 0, reference.output_time(where, time, window)))
    return assignments


def on_columns(where: WindowFn, times: list[Any], keys: list[Any], records: list[Any]) -> list[tuple[Any, ...]]:
    column = pa.array(times, pa.int64())
    structs = pa.array(records, pa.struct([("step", pa.int64())]))
    windows = assign_windows(where, column, {"k": pa.array(keys, pa.int64())}, {"k": DataType.INT}, structs)
    stamp = column.fill_null(0).to_numpy()[windows.row] if windows.stamp is None else windows.stamp
    columns = (windows.row, windows.start, windows.end, windows.is_first, stamp)
    return list(zip(*(values.tolist() for values in columns), strict=True))


MOMENTS = st.none() | st.integers(-50, 100) | st.integers(-(2**61) + 100, 2**61 - 2000)


@examples(200)
@given(ANY, st.lists(st.tuples(MOMENTS, st.none() | st.integers(-(2**40), 2**40), st.integers(1, 5)), max_size=8))
def test_windows_are_those_of_the_reference(where: WindowFn, rows: list[tuple[Any, ...]]) -> None:
    times, keys = [row[0] for row in rows], [row[1] for row in rows]
    records = [{"step": row[2]} for row in rows]
    assert on_columns(where, times, keys, records) == in_python(where, times, keys, records)


@examples(100)
@given(ANY, st.lists(MOMENTS.filter(lambda moment: moment is not None), max_size=8))
def test_windows_are_counted_as_they_are_assigned(where: WindowFn, times: list[Any]) -> None:
    instants = np.array(times, np.int64)
    if isinstance(where, Validity) or (isinstance(where, ShiftedOutputTime) and isinstance(where.inner, Validity)):
        with pytest.raises(PipelineError, match="of its own"):
            count_windows(where, instants)
        return
    assert count_windows(where, instants).tolist() == [len(reference.assign(where, moment)) for moment in times]


@examples(100)
@given(
    st.builds(CalendarWindows, st.sampled_from(["day", "week", "month"]), st.sampled_from(ZONES), st.integers(1, 5)),
    st.lists(st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2040, 1, 1)), max_size=6),
)
def test_calendar_windows_are_those_of_the_reference(where: WindowFn, moments: list[datetime | None]) -> None:
    times = [None if moment is None else to_instant(moment.replace(tzinfo=UTC)) for moment in moments]
    nothing = [{} for _ in times]
    assert on_columns(where, times, times, nothing) == in_python(where, times, times, nothing)


@pytest.mark.parametrize("unit", ["day", "week", "month"])
@pytest.mark.parametrize(
    ("zone", "change"),
    [
        ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
        ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),  # midnight is skipped
        ("America/Havana", datetime(2025, 11, 2, 5, tzinfo=UTC)),  # midnight comes twice
        ("America/St_Johns", datetime(2006, 10, 29, 2, 31, tzinfo=UTC)),  # back over midnight
        ("America/Toronto", datetime(1919, 3, 31, 4, 30, tzinfo=UTC)),  # forward over midnight from before it
    ],
)
def test_windows_at_changes_of_clocks(unit: str, zone: str, change: datetime) -> None:
    moment = to_instant(change)
    times: list[Any] = [
        moment + shift for h in range(-26, 27) for shift in (h * HOUR - 1, h * HOUR, h * HOUR + HOUR // 2)
    ]
    nothing = [{} for _ in times]
    where = CalendarWindows(unit, zone)
    assert on_columns(where, times, times, nothing) == in_python(where, times, times, nothing)


def test_days_at_both_ends_of_the_calendar() -> None:
    where = CalendarWindows("day")
    times = [to_instant(datetime(1, 1, 1, 5, tzinfo=UTC)), to_instant(datetime(9999, 12, 30, 23, tzinfo=UTC))]
    assert on_columns(where, times, times, [{}, {}]) == in_python(where, times, times, [{}, {}])
    assert assign_windows(where, pa.array([2**61 - 2000]), {}, {}).end.tolist() == [GLOBAL_WINDOW_END]
    with pytest.raises(ValueError, match="before the year 1"):
        assign_windows(where, pa.array([-(2**61) + 2000]), {}, {})


def test_chosen_windows_and_stamps() -> None:
    windows = assign_windows(ShiftedOutputTime(SlidingWindows("4us", "2us"), "10us"), pa.array([5, None, 7]), {}, {})
    assert windows.row.tolist() == [0, 0, 2, 2]
    last = windows.where(~windows.is_first)
    assert [x.tolist() for x in (last.row, last.start, last.end, last.stamp)] == [[0, 2], [4, 6], [8, 10], [15, 17]]
    for where, expected in (
        (Validity(4), [8, 9]),
        (ShiftedOutputTime(Validity(4), "2us"), [10, 11]),
        (Sessions("4us"), [5, 7]),
    ):
        stamps = output_times(where, np.array([5, 7]), np.array([0, 0]), np.array([9, 9]))
        assert stamps.tolist() == expected


def merged_in_python(where: WindowFn, rows: list[tuple[int, Window, bool]]) -> list[Window]:
    became: dict[tuple[int, Window], Window] = {}
    for key in {key for key, _, is_new in rows if is_new}:
        for sources, result in reference.merge(where, {window for k, window, _ in rows if k == key}):
            became |= {(key, source): result for source in sources}
    return [became.get((key, window), window) for key, window, _ in rows]


def merged_on_columns(where: WindowFn, rows: list[tuple[int, Window, bool]]) -> list[Window]:
    key, start = np.array([row[0] for row in rows], np.int64), np.array([row[1].start for row in rows], np.int64)
    end, is_new = np.array([row[1].end for row in rows], np.int64), np.array([row[2] for row in rows], np.bool_)
    columns = merged_windows(where, key, start, end, is_new)
    return [Window(Instant(a), Instant(b)) for a, b in zip(*(x.tolist() for x in columns), strict=True)]


WINDOWS = st.builds(
    lambda start, size: Window(Instant(start), Instant(start + size)), st.integers(0, 40), st.integers(1, 9)
)
MERGING: st.SearchStrategy[WindowFn] = st.one_of(
    st.builds(Sessions, st.just("5us"), st.booleans()),
    st.builds(Validity, st.just(5)),
    st.builds(ShiftedOutputTime, st.just(Sessions("5us")), st.just("1us")),
    st.just(FixedWindows("5us")),
)


@examples(300)
@given(MERGING, st.lists(st.tuples(st.integers(0, 3), WINDOWS, st.booleans()), max_size=25))
def test_windows_become_what_the_reference_makes_of_them(where: WindowFn, rows: list[tuple[int, Window, bool]]) -> None:
    assert merged_on_columns(where, rows) == merged_in_python(where, rows)


def test_one_long_session_in_many_small_windows() -> None:
    whole = [(0, Window(Instant(0), Instant(10_000)), True)]
    rows = whole + [(0, Window(Instant(i), Instant(i + 1)), False) for i in range(1, 3000)]
    assert set(merged_on_columns(Sessions("5us"), rows)) == {Window(Instant(0), Instant(10_000))}


def test_mistakes_of_a_users_windows_name_them() -> None:
    with pytest.raises(PipelineError, match=r"BrokenWindows\(\) could not assign windows to an element.*oh"):
        assign_windows(BrokenWindows(), pa.array([5]), {}, {}, pa.array([{"a": 1}]))
    rows = [(0, Window(Instant(3), Instant(4)), True), (0, Window(Instant(7), Instant(8)), True)]
    with pytest.raises(PipelineError, match="merged a window twice"):
        merged_on_columns(BrokenWindows(), rows)
    with pytest.raises(PipelineError, match="is not a window function"):
        assign_windows(WindowFn(), pa.array([5]), {}, {})


@dataclass(frozen=True)
class OddWindows(CustomWindows):
    """They give whatever they are told to give."""

    assigned: Any
    merged: Any = None
    output: Any = 5

    @property
    def merges(self) -> bool:
        return self.merged is not None

    def assign(self, timestamp: Instant, record: Mapping[str, Any]) -> Collection[Window]:
        return [self.assigned]

    def merge(self, windows: Collection[Window]) -> list[MergeGroup]:
        return [MergeGroup(frozenset(windows), self.merged)]

    def output_time(self, timestamp: Instant, window: Window) -> Instant:
        given_time: Instant = self.output
        return given_time


MINUTE = Window(Instant(0), Instant(60_000_000))


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("where", "message"),
    [
        (OddWindows(Window(Instant(9), Instant(8))), r"gave Window\(start=9, end=8\): a window is"),
        (OddWindows(Window(0.5, 8)), r"gave Window\(start=0.5, end=8\)"),  # type: ignore[arg-type]
        (OddWindows(Window("0", "8")), r"gave Window\(start='0', end='8'\)"),  # type: ignore[arg-type]
        (OddWindows(Window(Instant(0), Instant(2**63 - 1))), r"gave Window\(start=0, end=9223372036854775807\)"),
        (OddWindows((0, 8)), r"gave \(0, 8\): a window is hr.Window\(start, end\)"),
        (OddWindows(MINUTE, merged=Window(Instant(9), Instant(8))), r"gave Window\(start=9, end=8\)"),
        (OddWindows(MINUTE, output=None), "gave the output time None: an output time is"),
        (OddWindows(MINUTE, output=0.5), "gave the output time 0.5"),
    ],
)
def test_what_is_no_interval_in_time_stops_the_run(where: OddWindows, message: str, executor: Executor) -> None:
    source = hr.json("landing", {"at": datetime}).event_time("at", bound="0s")
    how = hr.discarding("0s", timestamp=TimestampCombiner.EARLIEST)
    pipeline = hr.Pipeline("odd", source, key=None, what={"n": hr.count()}, where=where, how=how)
    with pytest.raises(PipelineError, match=message):
        run(pipeline, [rows({"at": "1970-01-01T00:00:00Z"}), end()], executor=executor)


def test_an_empty_window_holds_what_it_is_given() -> None:
    window = Window(Instant(7), Instant(7))
    assert on_columns(OddWindows(window), [5], [0], [{"step": 1}]) == [(0, 7, 7, True, 5)]
