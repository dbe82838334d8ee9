"""Reading conformance cases from their neutral JSON schema (version 1), and six things that the schema has no name for.

* ``elide_unchanged`` (semantics 9.1) is a bool of a case or of one of its stages.
* ``having`` (semantics 9.10) stands there, too: a comparison of a pane's result with a number,
  ``{"result": "<", "value": 10}``.
* ``columns`` are further columns of results (8.4), of which ``having``, ``between`` and panes speak by name:
  ``{"flights": "count", "rate": ["/", "result", "flights"]}``; panes have them as ``{"columns": {"rate": 0.5}}``.
* The ``elements`` of the step ``batch`` are all input: one epoch after which the watermark is +inf (12.1).
* ``loop`` is a loop (``loops``). A case of ``kind`` "rows" gives rows (``rows``).
* A case of ``kind`` "outputs" has ``outputs``, each as one stage, with a ``name`` (semantics 12.18). An output reads
  the elements, or those whose attribute ``only`` is true. Or it reads the panes of outputs before it, ``of`` these
  names, the results of those in ``minus`` negated. Its panes are those of the last output; ``stage1``, ``stage2``
  and so on of a step ``output_watermark`` are its outputs.

Raises CaseFormatError for what is not of the schema, UnsupportedCaseError for what the schema leaves optional.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from headrace.model.accumulation import (
    Accumulation,
    Firing,
    How,
    TimestampCombiner,
    Timing,
    discarding,
    with_upstream_lateness,
)
from headrace.model.combiners import TRAITS
from headrace.model.expressions.typing import columns_of
from headrace.model.time import GLOBAL_WINDOW_END, MAX_INSTANT, MIN_INSTANT, Duration, Instant, is_finite
from headrace.model.triggers.elementary import Default
from headrace.model.windows import ShiftedOutputTime, Window
from headrace.pipeline.endpoints import OWN
from headrace.pipeline.rows import INSTANT, Every
from headrace_lab.conformance.cases import (
    DEFAULT_KEY,
    MOST_STAGES,
    RESULT,
    AdvanceProcessingTime,
    AdvanceWatermark,
    BundleStep,
    Case,
    CaseElement,
    CaseOutput,
    CaseStage,
    Expect,
    ExpectAssigned,
    ExpectCombined,
    ExpectDropped,
    ExpectMerged,
    ExpectOutputWatermark,
    ExpectState,
    Json,
    StageLink,
    Step,
)
from headrace_lab.conformance.fields import (
    CaseFormatError,
    an_object,
    anything,
    field,
    flag,
    integer,
    list_of,
    locate_errors,
    member_of,
    number,
    one_of,
    text,
    text_or_integer,
)
from headrace_lab.conformance.loops import loop_pipeline, read_edge, read_loop
from headrace_lab.conformance.rows import RIGHT, check_rows, read_rows
from headrace_lab.conformance.unknown import unknown_fields
from headrace_lab.conformance.words import (
    read_columns,
    read_combiner,
    read_having,
    read_row_columns,
    read_trigger,
    read_windows,
)

PANE_ATTRIBUTES = frozenset(
    {
        "window",
        "key",
        "values",
        "result",
        "columns",
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


def read_case(raw: Json) -> Case:
    """The case that ``raw`` describes. Raises CaseFormatError or UnsupportedCaseError, which say where."""
    with locate_errors(f"case {raw.get('name', '?')}"):
        return _case(raw)


def is_dialect(raw: Json) -> bool:
    """Whether the case records what the normative semantics rejects (``broken_on: normative``)."""
    return "normative" in (raw.get("broken_on") or ())


_T = TypeVar("_T")
_NOTHING: Json = {}


def _case(raw: Json) -> Case:
    kind = field(raw, "kind", one_of("grouping", "pipeline", "outputs", "rows"), "grouping")
    is_pipeline = kind == "pipeline"
    initial = field(raw, "initial", an_object, _NOTHING)
    failure = field(raw, "expect_failure", an_object, None)
    outputs: tuple[CaseOutput, ...] = ()
    if kind == "outputs":
        stages, outputs = field(raw, "outputs", _outputs)
    elif kind == "rows":
        stages = (_rows(raw),)
    else:
        stages = field(raw, "stages", _read_chain) if is_pipeline else (_stage(raw),)
    has_loop = any(stage.loop is not None for stage in stages)
    if has_loop and kind != "grouping":
        raise CaseFormatError(f"a case with a loop has one stage, and is not of kind {kind!r}")
    is_rows, is_nested = kind == "rows", raw.get("value_type") is not None
    read_step = partial(
        _step, _edge if has_loop else partial(_element, has_id=is_rows, is_nested=is_rows and is_nested)
    )
    steps = field(raw, "steps", list_of(read_step, "step"))
    for stage in [stages[place] for place, output in enumerate(outputs) if not output.of] or stages[:1]:
        _check_values(stage, steps)
    _check_batch(steps)
    case = Case(
        name=str(field(raw, "name", text_or_integer)),
        stages=stages,
        between=field(raw, "between", partial(_read_link, stages[0].names)) if is_pipeline else None,
        steps=steps,
        initial_watermark=field(initial, "watermark", _instant, MIN_INSTANT),
        initial_processing_time=field(initial, "processing_time", _instant, Instant(0)),
        strict=field(raw, "collect", one_of("strict", "at_end"), "strict") != "at_end",
        expect_failure=None if failure is None else field(failure, "message", text),
        unknown_fields=tuple(unknown_fields(raw)),
        outputs=outputs,
    )
    if kind == "rows":
        check_rows(case)
    return case


def _read_chain(raw: Any) -> tuple[CaseStage, ...]:
    objects = list_of(an_object, "stage")(raw)
    if len(objects) != 2:
        raise CaseFormatError(f"a pipeline has two stages, not {len(objects)}")
    first, second = objects
    second = {**second, "trigger": _for_panes(second.get("trigger"))}
    upper, lower = list_of(_stage, "stage")([first, second])
    return upper, replace(lower, how=with_upstream_lateness(upper.how, lower.how))


def _outputs(raw: Any) -> tuple[tuple[CaseStage, ...], tuple[CaseOutput, ...]]:
    stages: list[CaseStage] = []
    outputs: list[CaseOutput] = []
    for own in list_of(an_object, "output")(raw):
        name = field(own, "name", text)
        with locate_errors(f"output {name}"):
            known_names = [output.name for output in outputs]
            if name in known_names:
                raise CaseFormatError("another output has that name")
            names = list_of(one_of(*known_names), "name")
            upstream_names, minus = field(own, "of", names, ()), field(own, "minus", names, ())
            if not {*minus} <= {*upstream_names}:
                raise CaseFormatError(f"minus names {', '.join({*minus} - {*upstream_names})}, of which it is not")
            stage = _stage({**own, "trigger": _for_panes(own.get("trigger"))} if upstream_names else own)
            if stage.combine is None:
                raise CaseFormatError("outputs give numbers: it needs a combiner that gives one")
            filter_column = field(own, "only", text, None)
            if upstream_names and filter_column is not None:
                raise CaseFormatError("panes have no attributes: only is of outputs that read elements")
        stages.append(stage)
        outputs.append(
            CaseOutput(
                name,
                tuple(map(known_names.index, upstream_names)),
                frozenset(map(known_names.index, minus)),
                filter_column,
            )
        )
    if not outputs:
        raise CaseFormatError("there is no output")
    return tuple(stages), tuple(outputs)


def _for_panes(raw: Any) -> Any:
    """The trigger ``raw`` of a second stage. Panes carry no attributes and no ``bytes``, so none of them is a
    punctuation and all together have no size.
    """
    if isinstance(raw, list):
        return [_for_panes(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    if raw.get("type") in ("after_punctuation", "after_bytes"):
        return {"type": "never"}
    return {name: _for_panes(value) for name, value in raw.items()}


def _read_link(names: Sequence[str], raw: Any) -> StageLink:
    key = field(an_object(raw), "key", one_of("constant", "value"))
    value = field(raw, "value", one_of("sum", "one", *names))
    return StageLink(key == "value", value == "one", value if value in names else RESULT)


# --- times ------------------------------------------------------------------------------------------------------------


def _instant(raw: Any) -> Instant:
    if raw == "+inf":
        return MAX_INSTANT
    if raw == "-inf":
        return MIN_INSTANT
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise CaseFormatError(f"{raw!r} is not an instant; instants are integer ticks, +inf or -inf")
    return Instant(min(max(raw, MIN_INSTANT), MAX_INSTANT))


def _timestamp(raw: Any) -> Instant:
    instant = _instant(raw)
    if isinstance(raw, int) and not is_finite(instant):
        raise CaseFormatError(f"{raw!r} is not a timestamp of an element; those lie between -2^61 and 2^61 - 1000")
    return instant


def _lateness(raw: Any) -> Duration | None:
    return None if raw == "inf" else Duration(_instant(raw))


def read_window(raw: Any) -> Window:
    """The window that ``[start, end]`` means; ``["-inf", "+inf"]`` is the global one."""
    if not isinstance(raw, list) or len(raw) != 2:
        raise CaseFormatError(f"{raw!r} is not a window; a window is [start, end]")
    start, end = raw
    return Window(_instant(start), GLOBAL_WINDOW_END if end == "+inf" else _instant(end))


_WINDOWS = list_of(read_window, "window")


def _check_values(stage: CaseStage, steps: Iterable[Step]) -> None:
    """Whether the combiner of ``stage`` can take every value of the input."""
    if stage.combine is None or not TRAITS[stage.combine].numeric:
        return
    for place, step in enumerate(steps, start=1):
        for element in step.elements if isinstance(step, BundleStep) else ():
            if isinstance(element.value, bool) or not isinstance(element.value, int | float):
                raise CaseFormatError(f"step {place} (input): {stage.combine} takes numbers, not {element.value!r}")


def _check_batch(steps: Iterable[Step]) -> None:
    """Whether a batch, if there is one, comes before all other input."""
    inputs = [step for step in steps if isinstance(step, BundleStep)]
    if any(step.is_batch for step in inputs[1:]):
        raise CaseFormatError("a batch is all input there is: it is the first input of a case, or there is none")


# --- windows, triggers, what happens to the panes ---------------------------------------------------------------------


def _read_how(raw: Json, stamp: TimestampCombiner) -> How:
    return How(
        field(raw, "accumulation", member_of(Accumulation)),
        field(raw, "allowed_lateness", _lateness, Duration(0)),
        field(raw, "on_time_behavior", member_of(Firing), Firing.ALWAYS),
        field(raw, "closing_behavior", member_of(Firing), Firing.IF_NON_EMPTY),
        stamp,
        elide_unchanged=field(raw, "elide_unchanged", flag, False),
    )


def _stage(raw: Any) -> CaseStage:
    where = field(an_object(raw), "window", read_windows)
    stamp = field(raw, "timestamp_combiner", one_of(*TimestampCombiner, _EARLIEST_TRANSFORMED), "END_OF_WINDOW")
    if stamp == _EARLIEST_TRANSFORMED:
        shift = field(raw["window"], "transformed_output_time", an_object, _NOTHING)
        where = ShiftedOutputTime(where, Duration(field(shift, "shift", integer, 0)))
        stamp = "EARLIEST"
    how = _read_how(raw, TimestampCombiner(stamp))
    combine = field(raw, "combine", lambda name: None if name == "collect" else read_combiner(name), None)
    condition, columns = field(raw, "having", read_having, None), field(raw, "columns", read_columns, {})
    if (condition is not None or columns) and combine is None:
        raise CaseFormatError("having and columns read a result that is a number: they need a combiner that gives one")
    loop = field(raw, "loop", read_loop, None)
    stage = CaseStage(where, field(raw, "trigger", read_trigger), how, combine, condition, loop, columns)
    reads = [*stage.computed_columns.values(), *([] if condition is None else [condition])]
    if unknown := {*chain(*map(columns_of, reads))} - {*stage.names}:
        raise CaseFormatError(f"there is no column {min(unknown)!r} of results; there are {', '.join(stage.names)}")
    if stage.loop is not None:
        if raw.get("combine") is not None:
            raise CaseFormatError("the results of a loop are its values: leave combine out")
        loop_pipeline(stage)
    return stage


def _rows(raw: Json) -> CaseStage:
    """What leaves as rows: of elements by themselves, each in the window of its instant, or of groups."""
    rows, columns = read_rows(raw), field(raw, "columns", read_row_columns, {})
    if rows.take is None or rows.take == Every():
        how = discarding() if rows.take is None else _read_how(raw, TimestampCombiner.END_OF_WINDOW)
        return CaseStage(INSTANT, Default(), how, None, columns=columns, rows=rows)
    return replace(_stage({**raw, "combine": None, "columns": None}), columns=columns, rows=rows)


_EARLIEST_TRANSFORMED = "EARLIEST_TRANSFORMED"


# --- steps ------------------------------------------------------------------------------------------------------------

_ELEMENT_FIELDS = frozenset({"key", "value", "ts", "retraction", "bytes"})
_ROW_FIELDS = _ELEMENT_FIELDS | {"id", "side", "order"}


def _value(raw: Any) -> Any:
    if isinstance(raw, list | dict):
        raise CaseFormatError(f"the value of an element is a string, a number or a bool, not {raw!r}")
    return raw


def _element(raw: Any, *, has_id: bool = False, is_nested: bool = False) -> CaseElement:
    field_names = _ROW_FIELDS if has_id else _ELEMENT_FIELDS
    has_no_key = has_id and an_object(raw).get("key", DEFAULT_KEY) is None
    key = str(field(raw, "key", _key)) if "key" in an_object(raw) else DEFAULT_KEY
    return CaseElement(
        key=None if has_no_key else key,
        value=field(raw, "value", anything if is_nested else _value),
        timestamp=field(raw, "ts", _timestamp),
        is_retraction=field(raw, "retraction", flag, False),
        size=field(raw, "bytes", integer, 0),
        attributes={name: bool(value) for name, value in raw.items() if name not in field_names},
        id=field(raw, "id", text, None) if has_id else None,
        input=field(raw, "side", one_of(RIGHT), OWN) if has_id else OWN,
        order=field(raw, "order", integer, None) if has_id else None,
    )


def _edge(raw: Any) -> CaseElement:
    return read_edge(raw, field(an_object(raw), "ts", _timestamp))


def _key(raw: Any) -> Any:
    if isinstance(raw, list | dict):
        raise CaseFormatError(f"a key is a string, a number or a bool, not {raw!r}")
    return raw


def _pane(raw: Any) -> Json:
    field(an_object(raw), "window", read_window)
    unknown = set(raw) - PANE_ATTRIBUTES
    if unknown:
        raise CaseFormatError(f"a pane has no attributes {', '.join(sorted(unknown))}")
    if "timing" in raw:
        field(raw, "timing", _TIMING)
    field(raw, "timing_in", list_of(_TIMING, "timing"), ())
    field(raw, "values", list_of(anything, "value"), ())
    return an_object(raw)


_TIMING = one_of(*Timing)


def _expect(raw: Json) -> Step:
    return Expect(
        field(raw, "panes", list_of(_pane, "pane")),
        field(raw, "ordered", flag, False),
        field(raw, "ordered_per_window", flag, False),
    )


def _watermark(raw: Json) -> Step:
    percentiles = field(raw, "percentiles", an_object, _NOTHING)
    return AdvanceWatermark(
        field(raw, "to", _instant), {number(q): field(percentiles, q, _instant) for q in percentiles}
    )


def _read_drops(raw: Json) -> Step:
    counts = {cause: field(raw, cause, integer) for cause in raw if cause not in ("op", "notes")}
    unknown = [cause for cause in counts if cause not in _CAUSES]
    if unknown:
        raise CaseFormatError(f"{unknown[0]!r} is not a cause of a drop; causes are {', '.join(_CAUSES)}")
    return ExpectDropped({_CAUSES[cause]: count for cause, count in counts.items()})


_CAUSES = {"late": "late", "closed": "closed", "retraction": "retraction", "dropped_retraction": "retraction"}
"""Drops by the names that cases give them: a retraction that is dropped has two (semantics 9.1)."""


def _output_watermark(raw: Json) -> Step:
    names = {"equals": 0} | {f"stage{number + 1}": number for number in range(MOST_STAGES)}
    return ExpectOutputWatermark({stage: field(raw, name, _instant) for name, stage in names.items() if name in raw})


def _read_combination(raw: Json) -> Step:
    values = list_of(_value, "value")
    return ExpectCombined(
        field(raw, "fn", read_combiner),
        field(raw, "groups", list_of(values, "group")),
        field(raw, "uncombine", values, ()),
        field(raw, "equals", anything),
    )


def _assign(raw: Json) -> Step:
    return ExpectAssigned(field(raw, "ts", _timestamp), frozenset(field(raw, "windows", _WINDOWS)))


def _merge(raw: Json) -> Step:
    timestamps = field(raw, "timestamps", list_of(_timestamp, "timestamp"))
    return ExpectMerged(timestamps, frozenset(field(raw, "windows", _WINDOWS)))


_INPUTS = {"input": False, "batch": True}
_STEPS: Mapping[str, Callable[[Json], Step]] = {
    "watermark": _watermark,
    "processing_time": lambda raw: AdvanceProcessingTime(field(raw, "to", _instant)),
    "expect": _expect,
    "dropped": _read_drops,
    "output_watermark": _output_watermark,
    "state": lambda _: ExpectState(),
    "assign": _assign,
    "merge": _merge,
    "combine": _read_combination,
}


def _step(read_element: Callable[[Any], CaseElement], raw: Any) -> Step:
    op = field(an_object(raw), "op", text)
    if op in _INPUTS:
        return BundleStep(field(raw, "elements", list_of(read_element, "element")), is_batch=_INPUTS[op])
    if op not in _STEPS:
        raise CaseFormatError(f"there is no step {op!r}; steps are {', '.join([*_INPUTS, *_STEPS])}")
    return _STEPS[op](raw)
