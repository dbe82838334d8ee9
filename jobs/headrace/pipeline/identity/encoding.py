"""The parts of a pipeline as JSON, in words that never change. Fingerprints are made of it.

The words stand in one table, so neither the names in the code nor its defaults count: a class may be renamed, and a
default may change. A part that may be left out has its value for that in the table; a new optional field with the value
that means "as before" changes nothing for pipelines that do not use it. Objects of a user's own go by the name of their
class, their fields, and what they declare of their state.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any

from headrace.model.accumulation import Firing, How, TimestampCombiner
from headrace.model.combiners import Aggregate, Outer
from headrace.model.custom_combiners import CustomCombiner, accumulator_types, result_type
from headrace.model.custom_triggers import CustomTrigger, state_types
from headrace.model.expressions.expr import Expr, constant_to_json, to_json
from headrace.model.expressions.value_types import ListType
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterBytes,
    AfterCount,
    AfterEach,
    AfterPattern,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterPunctuation,
    AfterSignal,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    DataDriven,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from headrace.model.watermarks import BoundedOutOfOrderness, Ingestion, Monotonic, Punctuated
from headrace.model.windows import (
    CalendarWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    ShiftedOutputTime,
    SlidingWindows,
)
from headrace.pipeline.deduplicate import Deduplicate
from headrace.pipeline.event_time import EventTime
from headrace.pipeline.sources import SparkFunction

_ALWAYS: Any = object()
"""In the place of a value: the part is never left out."""


@dataclass(frozen=True)
class _Word:
    """What a class is called, and its parts, each with the values that count as left out."""

    name: str
    parts: Mapping[str, Any]


def _word(word: str, /, **parts: Any) -> _Word:
    return _Word(word, parts)


_DAY = 86_400_000_000

_WORDS: Mapping[type, _Word] = {
    FixedWindows: _word("fixed", size=_ALWAYS, offset=0, phase=None),
    SlidingWindows: _word("sliding", size=_ALWAYS, period=_ALWAYS, offset=0),
    Sessions: _word("sessions", gap=_ALWAYS, touching_merges=False),
    CalendarWindows: _word("calendar", unit=_ALWAYS, zone=_ALWAYS, count=1),
    GlobalWindows: _word("global"),
    ShiftedOutputTime: _word("shifted output time", inner=_ALWAYS, shift=_ALWAYS),
    Default: _word("default"),
    AfterWatermark: _word("after watermark", early=None, late=None),
    AfterCount: _word("after count", count=_ALWAYS),
    AfterBytes: _word("after bytes", size=_ALWAYS),
    AfterProcessingTime: _word("after processing time", delay=0, align=None, align_offset=0),
    AfterSynchronizedProcessingTime: _word("after synchronized processing time"),
    AfterPunctuation: _word("after punctuation", predicate=_ALWAYS),
    AfterPattern: _word("after pattern", pattern=_ALWAYS, predicates=_ALWAYS),
    AfterPercentileWatermark: _word("after percentile watermark", percentile=_ALWAYS),
    AfterSignal: _word("after signal", name=_ALWAYS),
    DataDriven: _word("data driven", what=_ALWAYS, ready_if=_ALWAYS),
    Always: _word("always"),
    Never: _word("never"),
    Repeatedly: _word("repeatedly", trigger=_ALWAYS),
    OrFinally: _word("or finally", main=_ALWAYS, until=_ALWAYS),
    AfterAny: _word("after any", triggers=_ALWAYS),
    AfterAll: _word("after all", triggers=_ALWAYS),
    AfterEach: _word("after each", triggers=_ALWAYS),
    How: _word(
        "how",
        accumulation=_ALWAYS,
        allowed_lateness=0,
        on_time=Firing.ALWAYS,
        closing=Firing.IF_NON_EMPTY,
        timestamp=TimestampCombiner.END_OF_WINDOW,
        keep_last=None,
        elide_unchanged=False,
    ),
    Aggregate: _word(
        "aggregate", combiner=_ALWAYS, input=None, k=None, q=None, other=None, outer=(None, Outer.NONE), custom=None
    ),
    EventTime: _word("event time", expr=None, watermark=_ALWAYS, split=None, max_ahead=_DAY),
    BoundedOutOfOrderness: _word("bounded out of orderness", bound=_ALWAYS, idle_timeout=None),
    Monotonic: _word("monotonic", idle_timeout=None),
    Punctuated: _word("punctuated", asserted=_ALWAYS, idle_timeout=None),
    Ingestion: _word("arrival"),
    Deduplicate: _word("deduplicate", id=_ALWAYS, horizon=_ALWAYS),
    SparkFunction: _word("spark function", name=_ALWAYS, returns=_ALWAYS, deterministic=_ALWAYS),
    ListType: _word("list", item=_ALWAYS),
}

TRIGGERS: tuple[type[Trigger], ...] = tuple(kind for kind in _WORDS if issubclass(kind, Trigger))
"""All that Headrace has."""


def encoded(value: Any) -> Any:
    """``value``, a part of a pipeline, as JSON."""
    if isinstance(value, Expr):
        return to_json(value)
    if isinstance(value, Mapping):
        return [[name, encoded(part)] for name, part in value.items()]
    if isinstance(value, list | tuple):
        return [encoded(part) for part in value]
    if type(value) in _WORDS:
        return _known(value, _WORDS[type(value)])
    return _own(value) if is_dataclass(value) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and float(value).is_integer():
        return int(value)  # 95 and 95.0 mean the same
    return constant_to_json(value)


def _known(value: Any, word: _Word) -> dict[str, Any]:
    parts = {name: (getattr(value, name), left_out) for name, left_out in word.parts.items()}
    return {"is": word.name, **{name: encoded(part) for name, (part, out) in parts.items() if not _is_out(part, out)}}


def _is_out(part: Any, left_out: Any) -> bool:
    if isinstance(part, Expr):  # its == builds an expression
        return False
    return part in left_out if isinstance(left_out, tuple) else bool(part == left_out)


def _own(value: Any) -> dict[str, Any]:
    """An object of a user's own class. What it says of its state need not be a field of it."""
    named = {field.name: encoded(getattr(value, field.name)) for field in fields(value)}
    match value:
        case CustomCombiner():
            declared = {"accumulator": encoded(accumulator_types(value)), "result": encoded(result_type(value))}
        case CustomTrigger():
            declared = {"state": encoded(state_types(value)), "signals": sorted({*value.signals})}
        case _:
            declared = {}
    return {"own": type(value).__name__, "fields": named, **declared}
