"""The worked example of the Dataflow paper (VLDB 2015, section 2.4): ten values of one key, summed in nine ways.

Values, event times, arrivals and the watermark's path are those that figure 5 draws. The paper gives no date; here it
is the first day of the conference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from headrace.model.accumulation import Firing, How, accumulating, discarding, retracting
from headrace.model.combiners import Combiner
from headrace.model.time import MAX_INSTANT, MIN_INSTANT, Instant, to_instant
from headrace.model.triggers import Trigger
from headrace.model.triggers.composites import AfterEach, AfterWatermark, OrFinally, Repeatedly
from headrace.model.triggers.elementary import AfterCount, AfterProcessingTime, Always, Default
from headrace.model.windows import FixedWindows, GlobalWindows, Sessions, Window, WindowFn
from headrace_lab.conformance.cases import (
    DEFAULT_KEY,
    AdvanceProcessingTime,
    AdvanceWatermark,
    BundleStep,
    Case,
    CaseElement,
    CaseStage,
    Step,
)
from headrace_lab.paper_figures import Point, Stroke

_MINUTE = timedelta(minutes=1)


def clock(text: str) -> Instant:
    """The instant at which a clock shows ``HH:MM:SS``, with a fraction if need be."""
    return to_instant(datetime.fromisoformat(f"2015-08-31T{text}+00:00"))


EVENT_TIMES = Window(clock("12:00:00"), clock("12:09:00"))
PROCESSING_TIMES = Window(clock("12:05:00"), clock("12:10:00"))

POINTS: Sequence[Point] = tuple(
    Point(value, clock(event_time), clock(arrival))
    for value, event_time, arrival in (
        (5, "12:00:26.667", "12:05:20"),
        (7, "12:02:26.667", "12:05:40"),
        (3, "12:03:40", "12:06:13.333"),
        (4, "12:03:53.333", "12:06:26.667"),
        (3, "12:04:20", "12:06:40"),
        (8, "12:03:06.667", "12:07:06.667"),
        (3, "12:06:40", "12:07:20"),
        (9, "12:01:26.667", "12:08:20"),  # behind the watermark
        (8, "12:07:26.667", "12:08:40"),
        (1, "12:07:46.667", "12:08:59.999"),  # drawn at 12:09:00, and in the pane of that minute
    )
)

WATERMARK: Stroke = tuple(
    (clock(time), clock(mark))
    for time, mark in (
        ("12:05:00", "12:00:06.663"),
        ("12:05:20", "12:00:09.668"),
        ("12:05:40", "12:00:30.861"),
        ("12:05:49.952", "12:01:26.667"),
        ("12:05:57.781", "12:02:00"),
        ("12:05:59.926", "12:02:26.667"),
        ("12:06:00", "12:02:28.479"),
        ("12:06:13.333", "12:02:43.333"),
        ("12:06:26.667", "12:02:45.789"),
        ("12:06:40", "12:02:46.541"),
        ("12:07:00", "12:02:47.513"),
        ("12:07:06.667", "12:02:48.381"),
        ("12:07:20", "12:02:53.188"),
        ("12:07:26.824", "12:03:26.667"),
        ("12:07:28.463", "12:04:00"),
        ("12:07:35.943", "12:05:20"),
        ("12:07:38.908", "12:06:00"),
        ("12:07:39.960", "12:06:40"),
        ("12:08:00", "12:06:59.900"),
        ("12:08:20", "12:07:03.290"),
        ("12:08:40", "12:07:06.679"),
        ("12:09:00", "12:07:27.213"),
        ("12:09:19.959", "12:07:46.667"),
        ("12:09:21", "12:08:00"),
    )
)
"""Where the watermark was when something came or became due: (processing time, watermark)."""

END_OF_BATCH = clock("12:09:20")
MINUTES = tuple(clock(f"12:0{minute}:00") for minute in range(6, 10))


TITLES = {
    5: ("the input", "ten values of one key; the 9 comes after the watermark has passed it"),
    6: ("classic batch", "one global window; the watermark stays at the left until all input is read"),
    7: ("global window, AtPeriod, accumulating", "every minute, the sum of everything so far"),
    8: ("global window, AtPeriod, discarding", "every minute, the sum of what is new"),
    9: ("global window, AtCount, discarding", "after every two elements, their sum"),
    10: ("fixed windows, batch", "two minutes of event time each, all at the end of the input"),
    11: ("fixed windows, micro-batch", "a batch every minute; windows that changed are emitted again"),
    12: ("fixed windows, streaming", "when the watermark passes the window, and again for late data"),
    13: ("fixed windows, streaming, partial", "every minute until the watermark passes, and again for late data"),
    14: ("sessions, retracting", "as figure 13, with a gap of one minute; a pane withdraws those it replaces"),
}
"""Title and subtitle by the number of the figure."""


@dataclass(frozen=True)
class Course:
    """How input comes to a pipeline: the watermark as it is drawn, and everything that happens."""

    watermark: Sequence[Stroke]
    steps: Sequence[Step]


@dataclass(frozen=True)
class Example:
    """One figure; ``pipeline`` is None where the input alone is drawn."""

    number: int
    title: str
    subtitle: str
    course: Course
    pipeline: CaseStage | None = None

    @property
    def case(self) -> Case | None:
        """The pipeline and its course as an executor takes them."""
        if self.pipeline is None:
            return None
        return Case(
            name=f"figure {self.number}",
            stages=(self.pipeline,),
            between=None,
            steps=tuple(self.course.steps),
            initial_watermark=MIN_INSTANT,
            initial_processing_time=PROCESSING_TIMES.start,
            strict=False,
            expect_failure=None,
        )


def examples() -> list[Example]:
    """Figures 5 to 14."""
    batch, micro_batches, live = _batch(), _micro_batches(), _live()
    everything, two_minutes = GlobalWindows(), FixedWindows(2 * _MINUTE)
    sessions = Sessions(_MINUTE, touching_merges=True)  # the 5, the 9 and the 7 are exactly one gap apart
    at_period, at_count = Repeatedly(AfterProcessingTime(align=_MINUTE)), Repeatedly(AfterCount(2))
    # every minute until the watermark has passed the window, then for whatever is late
    partial = AfterEach(OrFinally(at_period, AfterWatermark()), Repeatedly(AfterWatermark()))
    if_new = Firing.IF_NON_EMPTY  # the paper draws no second pane when the watermark passes a window without news
    pipelines: dict[int, tuple[Course, CaseStage | None]] = {
        5: (live, None),
        6: (batch, _sum(everything, Default(), accumulating())),
        7: (live, _sum(everything, at_period, accumulating())),
        8: (live, _sum(everything, at_period, discarding())),
        9: (live, _sum(everything, at_count, discarding())),
        10: (batch, _sum(two_minutes, Default(), accumulating())),
        11: (micro_batches, _sum(two_minutes, Always(), accumulating(None))),
        12: (live, _sum(two_minutes, Default(), accumulating(None))),
        13: (live, _sum(two_minutes, partial, accumulating(None, on_time=if_new))),
        14: (live, _sum(sessions, partial, retracting(None, on_time=if_new))),
    }
    return [Example(number, *TITLES[number], *pipelines[number]) for number in TITLES]


def _sum(where: WindowFn, when: Trigger, how: How) -> CaseStage:
    return CaseStage(where, when, how, Combiner.SUM)


def _sweep(start: Instant, end: Instant) -> Stroke:
    """The watermark of a batch: at -inf while input is read, then at +inf at once."""
    return ((start, MIN_INSTANT), (end, MIN_INSTANT), (end, MAX_INSTANT))


def _input(points: Sequence[Point]) -> BundleStep:
    return BundleStep(tuple(CaseElement(DEFAULT_KEY, point.value, point.event_time) for point in points))


def _live() -> Course:
    """Every element as it arrives, with the watermark of that moment."""
    marks = dict(WATERMARK)
    steps: list[Step] = []
    for moment in sorted({*marks, *MINUTES, *(point.arrival for point in POINTS)}):
        steps.append(AdvanceProcessingTime(moment))
        if moment in marks:
            steps.append(AdvanceWatermark(marks[moment]))
        arrived_points = [point for point in POINTS if point.arrival == moment]
        if arrived_points:
            steps.append(_input(arrived_points))
    return Course([WATERMARK], steps)


def _batch() -> Course:
    """All elements at once, and the end of the input."""
    steps: list[Step] = [AdvanceProcessingTime(END_OF_BATCH), _input(POINTS), AdvanceWatermark(MAX_INSTANT)]
    return Course([_sweep(PROCESSING_TIMES.start, END_OF_BATCH)], steps)


def _micro_batches() -> Course:
    """A bundle every minute. That each batch has a watermark of its own is what firing for every bundle means."""
    strokes: list[Stroke] = []
    steps: list[Step] = []
    for start, end in pairwise((PROCESSING_TIMES.start, *MINUTES)):
        steps += [AdvanceProcessingTime(end), _input([p for p in POINTS if start < p.arrival <= end])]
        strokes.append(_sweep(start, end))
    return Course(strokes, steps)
