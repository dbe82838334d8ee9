"""Reading conformance cases from their neutral JSON schema (version 1), and ``elide_unchanged``, a bool of a case or of
one of its stages, for which the schema has no name (semantics 9.1).

Raises CaseFormatError for what is not of the schema, UnsupportedCaseError for what the schema leaves optional.
"""

from collections.abc import Callable, Iterable
from typing import Any

from headrace.entrypoints.conformance_cases import (
    DEFAULT_KEY,
    AdvanceProcessingTime,
    AdvanceWatermark,
    Between,
    Case,
    CaseElement,
    Expect,
    ExpectAssigned,
    ExpectCombined,
    ExpectDropped,
    ExpectMerged,
    ExpectOutputWatermark,
    ExpectState,
    Input,
    Json,
    Stage,
    Step,
)
from headrace.errors import FixConfigError
from headrace.model.accumulation import Accumulation, Firing, How, TimestampCombiner
from headrace.model.combiners import Combiner
from headrace.model.expr import col
from headrace.model.time import GLOBAL_WINDOW_END, MAX_INSTANT, MIN_INSTANT, Instant
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterBytes,
    AfterCount,
    AfterEach,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterPunctuation,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from headrace.model.windows import (
    FixedWindows,
    GlobalWindows,
    Sessions,
    ShiftedOutputTime,
    SlidingWindows,
    Window,
    WindowFn,
)

PANE_ATTRIBUTES = frozenset(
    {
        "window",
        "key",
        "values",
        "result",
        "timestamp",
        "timing",
        "timing_in",
        "index",
        "nonspeculative_index",
        "is_first",
        "is_last",
        "retraction",
    }
)


class CaseFormatError(FixConfigError):
    """A case, or a file of cases, that does not follow the schema."""

    code = "config.conformance_case"


class UnsupportedCaseError(FixConfigError):
    """A case that needs something that the schema leaves optional."""

    code = "config.conformance_unsupported"


def read_case(raw: Json) -> Case:
    """The case that ``raw`` describes. Raises CaseFormatError or UnsupportedCaseError, naming the case."""
    name = raw.get("name", "?")
    try:
        return _case(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CaseFormatError(f"case {name}: {type(error).__name__}: {error}") from error
    except FixConfigError as error:
        raise type(error)(f"case {name}: {error}") from error


def is_dialect(raw: Json) -> bool:
    """Whether the case records what the normative semantics rejects (``broken_on: normative``)."""
    return "normative" in raw.get("broken_on", ())


def _case(raw: Json) -> Case:
    is_pipeline = raw.get("kind") == "pipeline"
    initial = raw.get("initial", {})
    failure = raw.get("expect_failure")
    return Case(
        name=raw["name"],
        stages=tuple(_stage(stage) for stage in raw["stages"]) if is_pipeline else (_stage(raw),),
        between=_between(raw["between"]) if is_pipeline else None,
        steps=tuple(_step(step) for step in raw["steps"]),
        initial_watermark=_instant(initial.get("watermark", "-inf")),
        initial_processing_time=_instant(initial.get("processing_time", 0)),
        strict=raw.get("collect") != "at_end",
        expect_failure=failure["message"] if failure else None,
    )


def _between(raw: Json) -> Between:
    return Between(_one_of(raw["key"], "constant", "value") == "value", _one_of(raw["value"], "sum", "one") == "one")


def _one_of(value: str, *allowed: str) -> str:
    if value not in allowed:
        raise CaseFormatError(f"{value!r} is none of {', '.join(allowed)}")
    return value


def _instant(raw: int | str) -> Instant:
    if raw == "+inf":
        return MAX_INSTANT
    if raw == "-inf":
        return MIN_INSTANT
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise CaseFormatError(f"{raw!r} is no instant; instants are integer ticks, +inf or -inf")
    return Instant(raw)


def read_window(raw: Any) -> Window:
    """The window that ``[start, end]`` means; ``["-inf", "+inf"]`` is the global one."""
    start, end = raw
    return Window(_instant(start), GLOBAL_WINDOW_END if end == "+inf" else _instant(end))


def _windows(raw: Iterable[Any]) -> frozenset[Window]:
    return frozenset(read_window(window) for window in raw)


def _stage(raw: Json) -> Stage:
    where = _where(raw["window"])
    stamp = raw.get("timestamp_combiner", "END_OF_WINDOW")
    if stamp == "EARLIEST_TRANSFORMED":
        where = ShiftedOutputTime(where, raw["window"].get("transformed_output_time", {"shift": 0})["shift"])
        stamp = "EARLIEST"
    lateness = raw.get("allowed_lateness", 0)
    how = How(
        Accumulation(raw["accumulation"]),
        None if lateness == "inf" else _instant(lateness),
        Firing(raw.get("on_time_behavior", "FIRE_ALWAYS")),
        Firing(raw.get("closing_behavior", "FIRE_IF_NON_EMPTY")),
        TimestampCombiner(stamp),
        elide_unchanged=raw.get("elide_unchanged", False),
    )
    combine = raw.get("combine", "collect")
    return Stage(where, read_trigger(raw["trigger"]), how, None if combine == "collect" else _combiner(combine))


_COMBINERS = frozenset({"count", "sum", "min", "max", "mean"})


def _combiner(name: str) -> Combiner:
    if name not in _COMBINERS:
        raise UnsupportedCaseError(f"there is no combiner {name!r}")
    return Combiner(name)


def _where(raw: Json) -> WindowFn:
    match raw["type"]:
        case "global":
            return GlobalWindows()
        case "fixed":
            return FixedWindows(raw["size"], raw.get("offset", 0))
        case "sliding":
            return SlidingWindows(raw["size"], raw["period"], raw.get("offset", 0))
        case "sessions":
            return Sessions(raw["gap"], raw.get("touching_merges", False))
    raise UnsupportedCaseError(f"there is no window function of type {raw['type']!r}")


def read_trigger(raw: Json) -> Trigger:
    """The trigger tree that ``raw`` describes."""
    read = _TRIGGERS.get(raw["type"])
    if read is None:
        raise UnsupportedCaseError(f"there is no trigger of type {raw['type']!r}")
    return read(raw)


def _optional_trigger(raw: Json | None) -> Trigger | None:
    return None if raw is None else read_trigger(raw)


def _all_triggers(raw: Json) -> list[Trigger]:
    return [read_trigger(trigger) for trigger in raw["triggers"]]


def _processing_time(raw: Json) -> Trigger:
    align = raw.get("align") or {}
    return AfterProcessingTime(raw.get("delay", 0), align.get("period"), align.get("offset", 0))


_TRIGGERS: dict[str, Callable[[Json], Trigger]] = {
    "default": lambda _: Default(),
    "after_watermark": lambda raw: AfterWatermark(
        _optional_trigger(raw.get("early")), _optional_trigger(raw.get("late"))
    ),
    "after_processing_time": _processing_time,
    "after_synchronized_processing_time": lambda _: AfterSynchronizedProcessingTime(),
    "after_count": lambda raw: AfterCount(raw["count"]),
    "repeatedly": lambda raw: Repeatedly(read_trigger(raw["trigger"])),
    "after_any": lambda raw: AfterAny(*_all_triggers(raw)),
    "after_all": lambda raw: AfterAll(*_all_triggers(raw)),
    "after_each": lambda raw: AfterEach(*_all_triggers(raw)),
    "or_finally": lambda raw: OrFinally(read_trigger(raw["main"]), read_trigger(raw["until"])),
    "never": lambda _: Never(),
    "always": lambda _: Always(),
    "after_bytes": lambda raw: AfterBytes(raw["bytes"]),
    "after_percentile_watermark": lambda raw: AfterPercentileWatermark(float(raw["percentile"])),
    "after_punctuation": lambda raw: AfterPunctuation(col(raw["attribute"])),
}


_ELEMENT_FIELDS = frozenset({"key", "value", "ts", "retraction", "bytes"})


def _element(raw: Json) -> CaseElement:
    if isinstance(raw["value"], list | dict):
        raise CaseFormatError(f"the value of an element is a string, a number or a bool, not {raw['value']!r}")
    return CaseElement(
        key=str(raw.get("key", DEFAULT_KEY)),
        value=raw["value"],
        timestamp=_instant(raw["ts"]),
        is_retraction=raw.get("retraction", False),
        size=raw.get("bytes", 0),
        attributes={name: bool(value) for name, value in raw.items() if name not in _ELEMENT_FIELDS},
    )


def _expect(raw: Json) -> Step:
    for pane in raw["panes"]:
        read_window(pane["window"])
        unknown = set(pane) - PANE_ATTRIBUTES
        if unknown:
            raise CaseFormatError(f"a pane has no attributes {', '.join(sorted(unknown))}")
    return Expect(tuple(raw["panes"]), raw.get("ordered", False), raw.get("ordered_per_window", False))


def _watermark(raw: Json) -> Step:
    percentiles = {float(q): _instant(at) for q, at in raw.get("percentiles", {}).items()}
    return AdvanceWatermark(_instant(raw["to"]), percentiles)


def _output_watermark(raw: Json) -> Step:
    names = {"equals": 0, "stage1": 0, "stage2": 1}
    return ExpectOutputWatermark({stage: _instant(raw[name]) for name, stage in names.items() if name in raw})


def _combined(raw: Json) -> Step:
    groups = tuple(tuple(group) for group in raw["groups"])
    return ExpectCombined(_combiner(raw["fn"]), groups, tuple(raw.get("uncombine", ())), raw["equals"])


_STEPS: dict[str, Callable[[Json], Step]] = {
    "input": lambda raw: Input(tuple(_element(element) for element in raw["elements"])),
    "watermark": _watermark,
    "processing_time": lambda raw: AdvanceProcessingTime(_instant(raw["to"])),
    "expect": _expect,
    "dropped": lambda raw: ExpectDropped({cause: n for cause, n in raw.items() if cause != "op"}),
    "output_watermark": _output_watermark,
    "state": lambda _: ExpectState(),
    "assign": lambda raw: ExpectAssigned(_instant(raw["ts"]), _windows(raw["windows"])),
    "merge": lambda raw: ExpectMerged(tuple(_instant(ts) for ts in raw["timestamps"]), _windows(raw["windows"])),
    "combine": _combined,
}


def _step(raw: Json) -> Step:
    read = _STEPS.get(raw["op"])
    if read is None:
        raise CaseFormatError(f"there is no step {raw['op']!r}; steps are {', '.join(_STEPS)}")
    return read(raw)
