"""The examples of docs/semantics.md: a line is an epoch of one key, run by the reference, and what comes out of it.

``watermark 10, add 4@2 -> -8 [0, 10) ON_TIME; 12 [0, 10) LATE``: value and event time in seconds of each element; of
each pane a minus if it is a retraction, its value, its window, its timing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.model import accumulation, windows
from headrace.model.panes import Pane
from headrace.model.time import MAX_INSTANT, Instant, is_finite
from headrace.model.triggers import Signal, composites, data_driven, leaves
from headrace.reference.contents import Contents
from headrace.reference.elements import DroppedElement, Element
from headrace.reference.operator import Grouping, Operator
from tests.docs.pages import Block

SECOND = 1_000_000
NAMES = {**vars(accumulation), **vars(leaves), **vars(data_driven), **vars(composites), **vars(windows)}
_HEAD = re.compile(r"where (?P<where>.+?), when (?P<when>.+), how (?P<how>.+)")


@dataclass(frozen=True)
class Epoch:
    """A line of a transcript: what happens, and what is said to come out."""

    line: int
    happens: str
    expected: list[str]


def head(block: Block) -> dict[str, Any]:
    """What its first line says of where, when and how."""
    found = _HEAD.fullmatch(block.text.splitlines()[0])
    assert found, f"{block.place}: a transcript begins with where ..., when ..., how ..."
    return {question: eval(said, dict(NAMES)) for question, said in found.groupdict().items()}


def epochs(block: Block) -> Iterator[Epoch]:
    """Its other lines."""
    for number, line in enumerate(block.text.splitlines()[1:], start=block.line + 1):
        if line.strip():
            happens, _, expected = line.partition("->")
            yield Epoch(number, happens.strip(), [each.strip() for each in expected.split(";") if each.strip()])


def started(block: Block) -> Operator:
    """The operator that ``block`` is about."""
    return Operator(Grouping(**head(block), extract=_sum))


def step(operator: Operator, happens: str) -> list[str]:
    """One epoch of ``operator``, and what comes out of it."""
    given: dict[str, Any] = {}
    for part in happens.split(","):
        word, *rest = part.split()
        match word:
            case "add":
                given["elements"] = [_element(text) for text in rest]
            case "watermark":
                given["watermark"] = _instant(rest[0])
            case "clock":
                given["processing_time"] = _instant(rest[0])
            case "signal":
                given["signals"] = [Signal(name) for name in rest]
            case _:
                raise AssertionError(f"{part!r} is not something that can happen")
    output = operator.step(**given)
    return [_pane(pane) for pane in output.panes] + [_dropped(drop) for drop in output.drops]


def _sum(contents: Contents) -> tuple[int]:
    return (sum(value * times for value, times in contents.net),)


def _instant(text: str) -> Instant:
    return MAX_INSTANT if text == "+inf" else Instant(round(float(text) * SECOND))


def _element(text: str) -> Element:
    value, at = text.split("@")
    return Element(("key",), _instant(at), int(value))


def _seconds(instant: Instant) -> str:
    return f"{instant / SECOND:g}" if is_finite(instant) else "inf"


def _pane(pane: Pane) -> str:
    start, end = map(_seconds, pane.window)
    (value,) = pane.values
    return f"{'-' if pane.is_retraction else ''}{value} [{start}, {end}) {pane.timing}"


def _dropped(drop: DroppedElement) -> str:
    return f"dropped {drop.element.value}@{_seconds(drop.element.timestamp)}"
