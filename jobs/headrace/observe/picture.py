"""The lateness picture: event time against processing time, epoch by epoch, with the watermark."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headrace.errors import FixConfigError
from headrace.model.time import UNITS, Instant, is_finite, to_datetime
from headrace.read.snapshots.epoch_history import EpochFigures

_BLUE, _RED, _ORANGE, _GREY = "#4878a8", "#c03a2b", "#e08a1e", "#7f7f7f"
_DRAWN_COUNTS = (
    ("panes_late", "late panes", _ORANGE),
    ("late_dropped", "dropped as late", _RED),
    ("rejected", "dead letters", _GREY),
)
MAX_LABELS = 12
_SUFFIXES = (".png", ".svg", ".pdf")


def draw_epochs(epochs: Sequence[EpochFigures], title: str, file: Path) -> None:
    """Draw ``epochs`` (oldest first) into ``file``, a PNG, SVG or PDF by its suffix.

    Left: each epoch is one line of processing time, upwards; its bar spans the event times that it accepted, the red
    line is the watermark, which an epoch moves at its end. What lies left of where it stood came after it.
    Right: how much was late.
    Raises FixConfigError for a suffix that cannot be drawn, or a file that cannot be written.
    """
    if file.suffix.lower() not in _SUFFIXES:
        raise FixConfigError(f"{file} cannot be drawn: name a .png, .svg or .pdf file")
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    figure.suptitle(title)
    with rc_context({"date.converter": "concise"}):
        times, counts = figure.subplots(1, 2, width_ratios=[4, 1], sharey=True)
        _draw_times(times, epochs)
        _draw_counts(counts, epochs)
        try:
            figure.savefig(file, dpi=150)
        except OSError as error:
            raise FixConfigError(f"{file} cannot be written ({error.strerror}): name another place") from error


def _draw_times(axes: Axes, epochs: Sequence[EpochFigures]) -> None:
    spans = [(e.epoch, _to_days(e.min_event_time), _to_days(e.max_event_time)) for e in epochs]
    known_spans = [(epoch, low, high) for epoch, low, high in spans if low is not None and high is not None]
    axes.barh(
        [epoch for epoch, _, _ in known_spans],
        [high - low for _, low, high in known_spans],
        left=[low for _, low, _ in known_spans],
        height=0.8,
        color=_BLUE,
        alpha=0.65,
        label="event times accepted",
    )
    marks = [(e.epoch, _to_days(e.watermark)) for e in epochs]
    axes.step(
        [mark for _, mark in marks if mark is not None],
        [epoch for epoch, mark in marks if mark is not None],
        where="pre",
        color=_RED,
        marker=".",
        label="watermark",
    )
    axes.xaxis_date()
    axes.set_xlabel("event time (UTC)")
    axes.set_ylabel("processing time (UTC), one line per epoch")
    labelled_epochs = epochs[:: -(-len(epochs) // MAX_LABELS)] if epochs else []
    axes.set_yticks([e.epoch for e in labelled_epochs], [_epoch_label(e) for e in labelled_epochs])
    axes.legend(loc="upper left")


def _draw_counts(axes: Axes, epochs: Sequence[EpochFigures]) -> None:
    left = [0] * len(epochs)
    for name, what, color in _DRAWN_COUNTS:
        widths = [e.counts.get(name, 0) for e in epochs]
        label = f"{what}: {sum(widths):,}"
        axes.barh([e.epoch for e in epochs], widths, left=left, height=0.8, color=color, label=label)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_xlabel("per epoch")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small")


def _epoch_label(epoch: EpochFigures) -> str:
    moment = to_datetime(epoch.processing_time)
    return f"{epoch.epoch}" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}  epoch {epoch.epoch}"


def _to_days(moment: Instant | None) -> float | None:
    """Days since 1970, as matplotlib counts dates; None for no instant and for an infinite one."""
    return moment / UNITS["days"] if moment is not None and is_finite(moment) else None
