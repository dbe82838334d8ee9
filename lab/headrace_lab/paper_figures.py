"""Pictures in the manner of the Dataflow paper's figures 5 to 14: event time across, processing time up.

A circle is an element, the dashed line the watermark. A rectangle is a pane, as wide as its window. It reaches from the
pane before it (or the first element) up to the moment that emitted it, with its value below that edge.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Patch, PathPatch, Rectangle
from matplotlib.path import Path

from headrace.model.accumulation import Timing
from headrace.model.time import UNITS, Instant, is_finite, to_datetime
from headrace.model.windows import Window
from headrace_lab.reference.elements import Pane

_INK, _GREY, _RED, _WATERMARK = "#1f2933", "#8a94a0", "#c0292b", "#2f7d4f"
_FILLS = {Timing.EARLY: "#dfe9f5", Timing.ON_TIME: "#a9c6e6", Timing.LATE: "#f8d9ae"}
_EDGES = {Timing.EARLY: "#7b9cc4", Timing.ON_TIME: "#2f5f98", Timing.LATE: "#c9781a"}
_TIMINGS = {Timing.EARLY: "early pane", Timing.ON_TIME: "on-time pane", Timing.LATE: "late pane"}
_MINUS = "\N{MINUS SIGN}"

# in seconds of the axes, which have one scale, so that a circle is one
_RADIUS, _BELOW_EDGE, _LABEL_HEIGHT, _LATE_WIDTH = 7.5, 10.5, 17.0, 22.0
_LABEL_WIDTHS = {1: 12.0, 2: 20.0, 3: 27.0}
_INCHES_PER_SECOND = 0.0155
_LEFT, _RIGHT, _BOTTOM, _TOP = 0.85, 0.3, 1.0, 0.75  # margins in inches
_LAYOUT_FONT = "DejaVu Sans"  # matplotlib brings it, so the layout is the same on every machine

Stroke = Sequence[tuple[Instant, Instant]]
"""A stretch of the watermark, as (processing time, watermark); -inf and +inf are the sides of the picture."""


@dataclass(frozen=True)
class Point:
    """One element of the input."""

    value: int
    event_time: Instant
    arrival: Instant


@dataclass(frozen=True)
class EmittedPane:
    """A pane, or the retraction of one, and the processing time at which it was emitted."""

    at: Instant
    pane: Pane


@dataclass(frozen=True)
class Picture:
    """What one picture shows. ``emissions`` are in the order in which they were emitted."""

    title: str
    subtitle: str
    points: Sequence[Point]
    watermark: Sequence[Stroke]
    emissions: Sequence[EmittedPane]
    event_times: Window
    processing_times: Window
    shows_ideal: bool = False


@dataclass(frozen=True)
class Box:
    """The rectangle of a pane: its window across, ``since`` to ``until`` up."""

    window: Window
    since: Instant
    until: Instant
    timing: Timing


def boxes(points: Sequence[Point], emissions: Sequence[EmittedPane]) -> list[Box]:
    """The rectangles of all panes that are not retractions.

    One begins at the last pane of its window, or of a window that was merged into it, or else at the first element.
    """
    boxes: list[Box] = []
    for emission in emissions:
        window = emission.pane.window
        if emission.pane.is_retraction:
            continue
        earlier_ends = [box.until for box in boxes if window.start <= box.window.start and box.window.end <= window.end]
        arrivals = [p.arrival for p in points if window.start <= p.event_time < window.end]
        start = max(earlier_ends) if earlier_ends else min(arrivals, default=emission.at)
        boxes.append(Box(window, start, emission.at, emission.pane.timing))
    return boxes


def svg(picture: Picture) -> str:
    """``picture`` as an SVG document; the same picture always gives the same text.

    What shows a value is a text in a group with an id: ``element-N``, ``pane-N``, ``retraction-N`` (and ``late-N``).
    """
    horizontal, vertical = _Scale(picture.event_times), _Scale(picture.processing_times)
    width, height = horizontal.seconds * _INCHES_PER_SECOND, vertical.seconds * _INCHES_PER_SECOND
    size = width + _LEFT + _RIGHT, height + _BOTTOM + _TOP
    document = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.family": _LAYOUT_FONT}):
        figure = Figure(figsize=size, facecolor="white")
        axes = figure.add_axes((_LEFT / size[0], _BOTTOM / size[1], width / size[0], height / size[1]))
        _Canvas(axes, horizontal, vertical).paint(picture)
        metadata = {"Title": picture.title, "Date": None, "Creator": None}
        figure.savefig(document, format="svg", metadata=metadata)
    return document.getvalue().replace(f"'{_LAYOUT_FONT}'", "Helvetica, Arial, sans-serif")


@dataclass(frozen=True)
class _Scale:
    """Seconds from the start of an axis."""

    span: Window

    @property
    def seconds(self) -> float:
        return self(self.span.end)

    def __call__(self, moment: Instant) -> float:
        """An instant beyond the axis is where the axis ends."""
        nearest_moment = min(max(moment, self.span.start), self.span.end)
        return (nearest_moment - self.span.start) / UNITS["seconds"]

    def ticks(self) -> tuple[list[float], list[str]]:
        """Whole minutes."""
        minutes = range(-(-self.span.start // UNITS["minutes"]), self.span.end // UNITS["minutes"] + 1)
        moments = [Instant(minute * UNITS["minutes"]) for minute in minutes]
        return [self(moment) for moment in moments], [f"{to_datetime(moment):%H:%M}" for moment in moments]


@dataclass(frozen=True)
class _Spot:
    """A place that is taken: a centre and a size."""

    x: float
    y: float
    width: float
    height: float

    def touches(self, other: "_Spot") -> bool:
        wide, high = (self.width + other.width) / 2, (self.height + other.height) / 2
        return abs(self.x - other.x) < wide and abs(self.y - other.y) < high


@dataclass(frozen=True)
class _Canvas:
    """Axes in seconds, and how things look on them."""

    axes: Axes
    across: _Scale
    up: _Scale

    def paint(self, picture: Picture) -> None:
        self._frame(picture)
        for box in boxes(picture.points, picture.emissions):
            self._box(box)
        for stroke in picture.watermark:
            self._stroke(stroke)
        if picture.shows_ideal:
            self._ideal(picture)
        for number, point in enumerate(picture.points):
            self._point(number, point)
        self._labels(picture)
        self._legend(picture)

    def _frame(self, picture: Picture) -> None:
        axes = self.axes
        axes.set_xlim(0, self.across.seconds)
        axes.set_ylim(0, self.up.seconds)
        axes.set_xticks(*self.across.ticks())
        axes.set_yticks(*self.up.ticks())
        axes.grid(color="#e6e9ed", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, pad=7, labelsize=10, labelcolor=_INK)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(_GREY)
        axes.set_xlabel("event time", color=_INK, fontsize=11, labelpad=6)
        axes.set_ylabel("processing time", color=_INK, fontsize=11, labelpad=8)
        heading: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "color": _INK}
        axes.annotate(picture.title, (0, 1), (0, 31), fontsize=14, fontweight="bold", **heading)
        axes.annotate(picture.subtitle, (0, 1), (0, 13), fontsize=10, **{**heading, "color": "#5b6672"})

    def _box(self, box: Box) -> None:
        (left, right), (low, high) = self._sides(box.window), (self.up(box.since), self.up(box.until))
        fill, edge = _FILLS[box.timing], _EDGES[box.timing]
        shape = (left, low), right - left, high - low
        self.axes.add_patch(Rectangle(*shape, facecolor=fill, edgecolor=edge, alpha=0.75, linewidth=0.8, zorder=2))
        self.axes.plot([left, right], [high - 1.2] * 2, color=edge, linewidth=2.6, solid_capstyle="butt", zorder=3)

    def _path(self, stroke: Stroke) -> Path:
        places = [(self.across(mark), self.up(moment)) for moment, mark in stroke]
        return _smooth(places) if all(is_finite(mark) for _, mark in stroke) else Path(places)

    def _stroke(self, stroke: Stroke) -> None:
        style = {"edgecolor": _WATERMARK, "linewidth": 2.0, "linestyle": (0, (5, 2.5)), "facecolor": "none"}
        self.axes.add_patch(PathPatch(self._path(stroke), zorder=4, clip_on=False, **style))

    def _ideal(self, picture: Picture) -> None:
        """Where event time and processing time are one."""
        start = max(picture.event_times.start, picture.processing_times.start)
        end = min(picture.event_times.end, picture.processing_times.end)
        ends = [Instant(start), Instant(end)]
        places = [self.across(moment) for moment in ends], [self.up(moment) for moment in ends]
        self.axes.plot(*places, color=_GREY, linewidth=1.6, linestyle=(0, (1, 2)), zorder=4)

    def _point(self, number: int, point: Point) -> None:
        x, y = self.across(point.event_time), self.up(point.arrival)
        self.axes.add_patch(Circle((x, y), _RADIUS, facecolor="white", edgecolor=_INK, linewidth=1.1, zorder=6))
        self._text(f"element-{number}", x, y, str(point.value), fontsize=9.5, color=_INK, zorder=7)

    def _labels(self, picture: Picture) -> None:
        all_boxes = boxes(picture.points, picture.emissions)
        busy_spots = self._find_taken_spots(picture)
        for number, emission in enumerate(picture.emissions):
            pane = emission.pane
            value = "".join(str(value) for value in pane.values)
            text = f"{_MINUS}{value}" if pane.is_retraction else value
            is_late = pane.timing is Timing.LATE and not pane.is_retraction
            width = _LABEL_WIDTHS.get(len(text), 9.0 * len(text))
            spot = self._free(emission, width + is_late * _LATE_WIDTH, self._floor(emission, all_boxes), busy_spots)
            busy_spots.append(spot)
            color, kind = (_RED, "retraction") if pane.is_retraction else (_INK, "pane")
            style = {"fontsize": 13.5, "fontweight": "bold", "color": color, "zorder": 8}
            self._text(f"{kind}-{number}", spot.x - is_late * _LATE_WIDTH / 2, spot.y, text, **style)
            if is_late:
                style = {"fontsize": 10, "fontstyle": "italic", "color": _EDGES[Timing.LATE], "zorder": 8}
                self._text(f"late-{number}", spot.x + width / 2 + 1, spot.y, "late", **style)
            if pane.is_retraction:
                self._withdrawn(emission)

    def _find_taken_spots(self, picture: Picture) -> list[_Spot]:
        """Where elements and the watermark are."""
        size = 2 * _RADIUS + 2
        elements = [_Spot(self.across(p.event_time), self.up(p.arrival), size, size) for p in picture.points]
        marks = [_Spot(x, y, 3, 3) for stroke in picture.watermark for x, y in _points_along(self._path(stroke))]
        return elements + marks

    def _floor(self, emission: EmittedPane, all_boxes: Sequence[Box]) -> float:
        """The lower edge of the rectangle that a pane, or the one that withdraws it, has."""
        window = emission.pane.window
        enclosing_boxes = [b for b in all_boxes if b.window.start <= window.start and window.end <= b.window.end]
        return self.up(next((box.since for box in enclosing_boxes if box.until == emission.at), emission.at))

    def _free(self, emission: EmittedPane, width: float, floor: float, busy_spots: Sequence[_Spot]) -> _Spot:
        """A place below the edge that emitted a pane, as near to its middle as what is taken lets it."""
        left, right = self._sides(emission.pane.window)
        middle, high = (left + right) / 2, self.up(emission.at) - _BELOW_EDGE
        aside = range(int(max(0.0, right - left - width) // 4) + 1)
        steps_down = range(int(max(0.0, high - _LABEL_HEIGHT / 2 - floor) // 2) + 1)
        shifts = sorted(((sign * 2 * x, 2 * y) for x in aside for y in steps_down for sign in (1, -1)), key=_distance)
        spots = [_Spot(middle + x, high - y, width, _LABEL_HEIGHT) for x, y in shifts]
        return next((spot for spot in spots if not any(map(spot.touches, busy_spots))), spots[0])

    def _withdrawn(self, emission: EmittedPane) -> None:
        left, right = self._sides(emission.pane.window)
        height = self.up(emission.at) - 3.4
        self.axes.plot([left + 1, right - 1], [height] * 2, color=_RED, linewidth=2.2, zorder=5, solid_capstyle="butt")

    def _sides(self, window: Window) -> tuple[float, float]:
        return self.across(window.start), self.across(window.end)

    def _text(self, name: str, x: float, y: float, text: str, **style: Any) -> None:
        self.axes.text(x, y, text, ha="center", va="center_baseline", gid=name, **style)

    def _legend(self, picture: Picture) -> None:
        panes = [emission.pane for emission in picture.emissions]
        circle: dict[str, Any] = {"marker": "o", "markersize": 9, "markerfacecolor": "white", "markeredgecolor": _INK}
        entries: list[tuple[Artist, str]] = [(Line2D([], [], linestyle="none", **circle), "element")]
        entries.append((Line2D([], [], color=_WATERMARK, linewidth=2, linestyle=(0, (4, 2))), "watermark"))
        if picture.shows_ideal:
            entries.append((Line2D([], [], color=_GREY, linewidth=1.6, linestyle=(0, (1, 2))), "ideal watermark"))
        for timing, what in _TIMINGS.items():
            if any(pane.timing is timing and not pane.is_retraction for pane in panes):
                entries.append((Patch(facecolor=_FILLS[timing], edgecolor=_EDGES[timing]), what))
        if any(pane.is_retraction for pane in panes):
            entries.append((Line2D([], [], color=_RED, linewidth=2.2), "retraction"))
        handles, labels = [artist for artist, _ in entries], [what for _, what in entries]
        style: dict[str, Any] = {
            "frameon": False,
            "fontsize": 10,
            "labelcolor": _INK,
            "handlelength": 2.0,
            "columnspacing": 1.8,
        }
        place: dict[str, Any] = {
            "loc": "upper center",
            "bbox_to_anchor": (0.5, -0.115),
            "ncols": len(entries),
            "borderpad": 0,
        }
        self.axes.legend(handles, labels, **style, **place)


def _smooth(places: Sequence[tuple[float, float]]) -> Path:
    """A curve through ``places`` that never turns back: x is a monotone cubic function of y (Fritsch and Butland)."""
    slopes = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(places)]
    inner = [_harmonic(slope, next_slope) for slope, next_slope in pairwise(slopes)]
    tangents = [slopes[0], *inner, slopes[-1]]
    vertices, codes = [places[0]], [Path.MOVETO]
    for ((x0, y0), (x1, y1)), (m0, m1) in zip(pairwise(places), pairwise(tangents), strict=True):
        third = (y1 - y0) / 3
        vertices += [(x0 + m0 * third, y0 + third), (x1 - m1 * third, y1 - third), (x1, y1)]
        codes += [Path.CURVE4] * 3
    return Path(vertices, codes)


def _harmonic(slope: float, next_slope: float) -> float:
    return 0.0 if slope * next_slope <= 0 else 2 * slope * next_slope / (slope + next_slope)


def _points_along(path: Path) -> list[tuple[float, float]]:
    """Places on ``path``, close to each other."""
    points: list[tuple[float, float]] = []
    segments: Iterator[Any] = path.iter_bezier()  # its stubs miss that these are pairs
    for segment, _ in segments:
        (x0, y0), (x1, y1) = segment(0), segment(1)
        steps = int((abs(x1 - x0) + abs(y1 - y0)) / 2) + 1
        points += [tuple(segment(step / steps)) for step in range(steps + 1)]
    return points


def _distance(shift: tuple[int, int]) -> int:
    """How far a label is moved; it is found sooner beside its place than below it."""
    return abs(shift[0]) + 3 * shift[1]
