"""``python -m scripts.front``: the picture of the front page, from the pipeline that stands there.

The first Python block of docs/index.md runs over four files, and what each run emits is drawn: in docs/figures, for
light and for dark. The same panes give the same bytes.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import headrace as hr

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "index.md"
FIGURES = ROOT / "docs" / "figures"
FILES = (
    (("09:10", 12), ("09:40", 8)),
    (("10:20", 5),),
    (("09:50", 4), ("12:45", 7)),
    (("09:30", 3), ("12:50", 1)),
)
"""The records of each file: event time and amount, of one shop."""

_LEFT, _TOP, _HOUR, _ROW, _FIRST, _HOURS = 56, 44, 132, 76, 9, 4
_WIDTH, _HEIGHT = _LEFT + _HOURS * _HOUR + 24, _TOP + len(FILES) * _ROW + 44
_MINUS = "\N{MINUS SIGN}"
_TIMINGS = {"EARLY": "early", "ON_TIME": "on time", "LATE": "late"}


@dataclass(frozen=True)
class Theme:
    """Colours: of text, of lines, of what is withdrawn, of the watermark, and fill and edge by timing."""

    ink: str
    grey: str
    line: str
    red: str
    watermark: str
    record: str
    panes: dict[str, tuple[str, str]]


THEMES = {
    "light": Theme(
        "#1f2933",
        "#5c6773",
        "#d5dbe1",
        "#b3261e",
        "#2f7d4f",
        "#ffffff",
        {"EARLY": ("#e8f0f9", "#7b9cc4"), "ON_TIME": ("#b5d0ee", "#2f5f98"), "LATE": ("#fbe0b8", "#c9781a")},
    ),
    "dark": Theme(
        "#e6eaee",
        "#a3adb8",
        "#3a424b",
        "#ff8a80",
        "#6fce97",
        "#131416",
        {"EARLY": ("#1d2a3a", "#5f86b3"), "ON_TIME": ("#234a75", "#8fbcf0"), "LATE": ("#523712", "#e0a04b")},
    ),
}


def pipeline() -> hr.Pipeline:
    """The pipeline that stands on the front page."""
    names: dict[str, Any] = {"__name__": "front"}
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block
    exec(compile(block[1], str(PAGE), "exec"), names)
    return next(value for value in names.values() if isinstance(value, hr.Pipeline))


def steps() -> Sequence[hr.testing.StepResults]:
    """What each file gives."""
    files = [hr.testing.rows(*({"shop": "north", "at": time, "amount": n} for time, n in file)) for file in FILES]
    return hr.testing.run(pipeline(), files).steps


def draw(theme: Theme, results: Sequence[hr.testing.StepResults]) -> str:
    """The picture: event time across, a row for each file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="14" '
        f'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" role="img">'
    )
    title = "Sums of one shop by the hour: four files, the panes that each gives, and one record that came too late"
    rows = [line for number, result in enumerate(results) for line in _row(theme, number, result)]
    return "\n".join([head, f"<title>{title}</title>", *_axis(theme), *rows, *_legend(theme), "</svg>", ""])


def _axis(theme: Theme) -> Iterator[str]:
    yield _text(_LEFT + _HOURS * _HOUR / 2, 12, "event time", theme.grey, "middle", size=12)
    for hour in range(_HOURS + 1):
        x, bottom = _LEFT + hour * _HOUR, _TOP + len(FILES) * _ROW
        yield f'<path d="M{x} {_TOP - 14}V{bottom}" stroke="{theme.line}"/>'
        yield _text(x, _TOP - 18, f"{_FIRST + hour:02}:00", theme.grey, "middle", size=13)


def _row(theme: Theme, number: int, result: hr.testing.StepResults) -> Iterator[str]:
    top = _TOP + number * _ROW
    yield f'<path d="M0 {top + _ROW}H{_WIDTH}" stroke="{theme.line}"/>'
    yield _text(0, top + 43, f"file {number + 1}", theme.ink)
    late = {row["event_time"].strftime("%H:%M") for row in result.late}
    withdrawn = {pane.window.start: pane["amount"] for pane in result.panes if pane.is_retraction}
    yield _draw_dashed_line(theme, _x_of(result.watermark), top + 1, top + _ROW - 1)
    for pane in result.panes:
        if not pane.is_retraction:
            yield from _pane(theme, top + 32, pane, withdrawn.get(pane.window.start))
    for time, amount in FILES[number]:
        yield from _record(theme, _x_of(hr.testing.at(time)), top + 16, amount, is_late=time in late)


def _pane(theme: Theme, top: int, pane: hr.testing.PaneRow, withdrawn: int | None) -> Iterator[str]:
    x, (fill, edge) = _x_of(pane.window.start) + 3, theme.panes[pane.timing]
    yield f'<rect x="{x}" y="{top}" width="{_HOUR - 6}" height="36" rx="4" fill="{fill}" stroke="{edge}"/>'
    yield _text(x + _HOUR - 14, top + 24, str(pane["amount"]), theme.ink, "end", size=17, weight=700)
    yield _text(x + 8, top + 15, _TIMINGS[pane.timing], theme.ink, size=12)
    if withdrawn is not None:
        yield _text(x + 8, top + 30, f"{_MINUS}{withdrawn}", theme.red, size=12)


def _record(theme: Theme, x: float, y: int, amount: int, *, is_late: bool) -> Iterator[str]:
    colour = theme.red if is_late else theme.ink
    yield f'<circle cx="{x}" cy="{y}" r="11" fill="{theme.record}" stroke="{colour}" stroke-width="1.5"/>'
    yield _text(x, y + 4, str(amount), colour, "middle", size=12)
    if is_late:
        yield _text(_LEFT + 6, y + 33, "too late: kept", theme.red, size=12)
        yield _text(_LEFT + 6, y + 48, "in the view late", theme.red, size=12)


def _legend(theme: Theme) -> Iterator[str]:
    y = _HEIGHT - 14
    yield f'<circle cx="11" cy="{y - 5}" r="10" fill="{theme.record}" stroke="{theme.ink}" stroke-width="1.5"/>'
    yield _text(27, y, "record", theme.grey, size=13)
    yield _draw_dashed_line(theme, 98, y - 16, y + 6)
    yield _text(108, y, "watermark", theme.grey, size=13)
    fill, edge = theme.panes["EARLY"]
    yield f'<rect x="208" y="{y - 15}" width="26" height="20" rx="3" fill="{fill}" stroke="{edge}"/>'
    yield _text(242, y, "pane, as wide as its window", theme.grey, size=13)
    yield _text(450, y, f"{_MINUS}20", theme.red, size=13)
    yield _text(480, y, "pane withdrawn", theme.grey, size=13)


def _x_of(moment: datetime | None) -> float:
    assert moment is not None
    return round(_LEFT + (moment.hour + moment.minute / 60 - _FIRST) * _HOUR, 1)


def _draw_dashed_line(theme: Theme, x: float, top: int, bottom: int) -> str:
    return f'<path d="M{x} {top}V{bottom}" stroke="{theme.watermark}" stroke-width="2" stroke-dasharray="5 4"/>'


def _text(x: float, y: float, text: str, fill: str, anchor: str = "start", *, size: int = 14, weight: int = 400) -> str:
    style = f'fill="{fill}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}"'
    return f'<text x="{x}" y="{y}" {style}>{escape(text)}</text>'


def pictures() -> dict[str, str]:
    """Each picture, by the name of its file."""
    results = steps()
    return {f"front_{name}.svg": draw(theme, results) for name, theme in THEMES.items()}


if __name__ == "__main__":
    for file, picture in pictures().items():
        (FIGURES / file).write_text(picture, encoding="utf-8")
    sys.exit()
