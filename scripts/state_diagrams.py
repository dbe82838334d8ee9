"""Diagrams of states as SVG: places are given, arrows are those of a table's rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Patch

_INK, _LINE, _FILL, _EDGE = "#1f2933", "#5b6672", "#dfe9f5", "#2f5f98"
_WIDTH, _HEIGHT = 1.35, 0.5
_FONT = "DejaVu Sans"  # matplotlib brings it, so the layout is the same on every machine

Arrow = tuple[str, str]
Place = tuple[float, float]


@dataclass(frozen=True)
class Layout:
    """Where states are, in inches from the lower left; the first one is where all begins. ``bends``: how far arrows
    bend to the right of their way, 0 unless said. ``labels``: how far along the way their text is, half unless said.
    """

    title: str
    places: Mapping[str, Place]
    bends: Mapping[Arrow, float] = field(default_factory=dict)
    labels: Mapping[Arrow, float] = field(default_factory=dict)
    headroom: float = 0.0


def state_diagram(layout: Layout, arrows: Mapping[Arrow, Sequence[str]]) -> str:
    """An SVG document; ``arrows`` have a line of text for each event. The same diagram always gives the same text.

    Raises KeyError for a state without a place.
    """
    columns, rows = zip(*layout.places.values(), strict=True)
    width, height = max(columns) + _WIDTH, max(rows) + _HEIGHT + layout.headroom
    document = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.family": _FONT}):
        figure = Figure(figsize=(width, height), facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
        axes.set_axis_off()
        boxes = {state: _box(axes, state, place) for state, place in layout.places.items()}
        _beginning(axes, boxes, layout)
        for arrow, lines in arrows.items():
            start, end = (layout.places[state] for state in arrow)
            bend = layout.bends.get(arrow, 0.0)
            _arrow(axes, start, end, boxes[arrow[1]], boxes[arrow[0]], connectionstyle=f"arc3,rad={bend}")
            _label(axes, _on_way(start, end, bend, layout.labels.get(arrow, 0.5)), lines)
        figure.savefig(document, format="svg", metadata={"Title": layout.title, "Date": None, "Creator": None})
    return document.getvalue().replace(f"'{_FONT}'", "Helvetica, Arial, sans-serif")


def _box(axes: Axes, state: str, place: Place) -> FancyBboxPatch:
    corner = place[0] - _WIDTH / 2 + 0.1, place[1] - _HEIGHT / 2 + 0.1
    box = FancyBboxPatch(corner, _WIDTH - 0.2, _HEIGHT - 0.2, boxstyle="round,pad=0.1", fc=_FILL, ec=_EDGE, zorder=3)
    axes.add_patch(box)
    axes.text(*place, state, fontsize=10, color=_INK, ha="center", va="center", zorder=5)
    return box


def _beginning(axes: Axes, boxes: Mapping[str, FancyBboxPatch], layout: Layout) -> None:
    """A dot, from which an arrow leads to the first state."""
    first, (across, y) = next(iter(layout.places.items()))
    dot = across - _WIDTH / 2 - 0.4, y
    axes.add_patch(Circle(dot, 0.07, color=_INK, zorder=3))
    _arrow(axes, dot, (across, y), boxes[first])


def _arrow(
    axes: Axes, start: Place, end: Place, end_patch: Patch, start_patch: Patch | None = None, **style: Any
) -> None:
    look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 11, "color": _LINE, "zorder": 2, **style}
    axes.add_patch(FancyArrowPatch(start, end, patchA=start_patch, patchB=end_patch, **look))


def _label(axes: Axes, place: Place, lines: Sequence[str]) -> None:
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    axes.text(*place, "\n".join(lines), fontsize=7.5, color=_INK, ha="center", va="center", bbox=box, zorder=4)


def _on_way(start: Place, end: Place, bend: float, fraction: float) -> Place:
    """A place on matplotlib's arc3, a quadratic Bézier curve."""
    (x0, y0), (x2, y2) = start, end
    x1, y1 = (x0 + x2) / 2 + bend * (y2 - y0), (y0 + y2) / 2 - bend * (x2 - x0)
    first, middle, last = (1 - fraction) ** 2, 2 * fraction * (1 - fraction), fraction**2
    return first * x0 + middle * x1 + last * x2, first * y0 + middle * y1 + last * y2
