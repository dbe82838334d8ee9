"""The examples of docs/semantics.md: a line is an epoch of one key, run by the reference, and what comes out of it.

``watermark 10, add 4@2 -> -8 [0, 10) ON_TIME; 12 [0, 10) LATE``: value and event time in seconds of each element; of
each pane a minus if it is a retraction, its value, its window, its timing. ``having`` is over ``value``.

``withdraw 3@1`` withdraws an element; ``dropped -3@1`` says that this came too late.

Behind a ``loop`` elements are edges, ``add a>b:3@1``, and panes have a vertex before their value; ``in flight b 2`` is
what an epoch leaves of the vertex b.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from headrace import json
from headrace.model import accumulation, windows
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import col
from headrace.model.time import MAX_INSTANT, Instant, is_finite
from headrace.model.triggers import Signal, composites, data_driven, elementary
from headrace.pipeline.loops import Loop
from headrace.pipeline.pipeline import Pipeline
from headrace_lab.reference.contents import Contents
from headrace_lab.reference.elements import DroppedElement, Element, Pane
from headrace_lab.reference.evaluate import evaluate
from headrace_lab.reference.loop import LoopedChain, LoopRun
from headrace_lab.reference.operator import Grouping, Operator
from headrace_lab.reference.stages import Entrance
from tests.docs.pages import Block

SECOND = 1_000_000
NAMES = {**vars(accumulation), **vars(elementary), **vars(data_driven), **vars(composites), **vars(windows)}
NAMES |= {"Loop": Loop, **{name: col(name) for name in ("vertex", "value", "weight")}}
_EDGE = re.compile(r"(\w+)>(\w+)(?::(\d+))?")
_HEAD = re.compile(
    r"where (?P<where>.+?), when (?P<when>.+), how (?P<how>.+?)(?:, having (?P<having>.+?))?(?:, loop (?P<loop>.+))?"
)


@dataclass(frozen=True)
class Epoch:
    """A line of a transcript: what happens, and what is said to come out."""

    line: int
    happens: str
    expected: list[str]


def head(block: Block) -> dict[str, Any]:
    """What its first line says of where, when and how."""
    match = _HEAD.fullmatch(block.text.splitlines()[0])
    assert match, f"{block.place}: a transcript begins with where ..., when ..., how ..."
    return {question: eval(code, dict(NAMES)) for question, code in match.groupdict().items() if code is not None}


def epochs(block: Block) -> Iterator[Epoch]:
    """Its other lines."""
    for number, line in enumerate(block.text.splitlines()[1:], start=block.line + 1):
        if line.strip():
            happens, _, expected = line.partition("->")
            yield Epoch(number, happens.strip(), [each.strip() for each in expected.split(";") if each.strip()])


def start_operator(block: Block) -> Operator | LoopedChain:
    """The operator that ``block`` is about."""
    parts = head(block)
    if "loop" in parts:
        return _start_loop(parts)
    if "having" in parts:
        condition = parts["having"]
        parts["having"] = lambda pane: evaluate(condition, {"value": pane.values[0]}, {"value": DataType.INT}) is True
    return Operator(Grouping(**parts, extract=_sum))


def _start_loop(parts: Mapping[str, Any]) -> LoopedChain:
    """A pipeline over edges with a weight, but for what comes before its loop."""
    schema: Mapping[str, type] = {"a": str, "b": str, "weight": int, "at": datetime}
    edges = json("edges", schema).event_time("at", bound="0s")
    pipeline = Pipeline("loop", edges, key=["a", "b"], **parts)
    assert pipeline.loop is not None
    assert pipeline.edges is not None
    (stage,) = pipeline.stages
    return LoopedChain(LoopRun(pipeline.edges, stage, pipeline.loop), [Entrance(stage).grouping], [])


def step(operator: Operator | LoopedChain, happens: str) -> list[str]:
    """One epoch of ``operator``, and what comes out of it."""
    parts: dict[str, Any] = {}
    elements: list[Element] = []
    for part in happens.split(","):
        word, *rest = part.split() or ["nothing"]
        match word:
            case "nothing":
                pass
            case "add" | "withdraw":
                signed_elements = (replace(_element(text), is_retraction=word == "withdraw") for text in rest)
                parts["elements"] = elements = [*elements, *signed_elements]
            case "watermark":
                parts["watermark"] = _instant(rest[0])
            case "clock":
                parts["processing_time"] = _instant(rest[0])
            case "signal":
                parts["signals"] = [Signal(name) for name in rest]
            case _:
                raise AssertionError(f"{part!r} is not something that can happen")
    output = operator.step(**parts)
    left = operator.in_flight if isinstance(operator, LoopedChain) else {}
    return [
        *(_pane(pane) for pane in output.panes),
        *(_format_drop(drop) for drop in output.drops),
        *(f"in flight {vertex} {value}" for (vertex, _), value in sorted(left.items())),
    ]


def _sum(contents: Contents) -> tuple[int]:
    return (sum(value * times for value, times in contents.net),)


def _instant(text: str) -> Instant:
    return MAX_INSTANT if text == "+inf" else Instant(round(float(text) * SECOND))


def _element(text: str) -> Element:
    value, time = text.split("@")
    if edge := _EDGE.fullmatch(value):
        start, end, weight = edge.groups()
        return Element((start, end), _instant(time), value, record={"weight": int(weight or 0)})
    return Element(("key",), _instant(time), int(value))


def _seconds(instant: Instant) -> str:
    return f"{instant / SECOND:g}" if is_finite(instant) else "inf"


def _pane(pane: Pane) -> str:
    start, end = map(_seconds, pane.window)
    value = " ".join(map(str, (pane.key if pane.key != ("key",) else ()) + pane.values))
    return f"{'-' if pane.is_retraction else ''}{value} [{start}, {end}) {pane.timing}"


def _format_drop(drop: DroppedElement) -> str:
    sign = "-" if drop.element.is_retraction else ""
    return f"dropped {sign}{drop.element.value}@{_seconds(drop.element.timestamp)}"
