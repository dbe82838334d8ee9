"""Cases of rows (semantics 15), of ``kind`` "rows": their panes are the rows that leave, in no order.

A pane has its column ``value`` as ``result``, its event time as ``timestamp``, and as ``window`` that of its group.

``take`` says what leaves of each key and window: ``{"type": "newest", "order": "value", "deleted": "gone"}``, where
``deleted`` is an attribute and both may be left out, ``{"type": "top", "number": 2, "by": "value"}``, or
``{"type": "distinct"}``. With ``{"type": "every"}`` each element leaves by itself once the watermark has passed it: the
case has no windows and no trigger. Without it each leaves with its epoch, and the case has no accumulation either. The
window of such a row is its own instant. ``only`` is an attribute without which an element gives no
row, and ``filter`` an expression (``words``). With ``deduplicate``, in ticks, one element of each ``id`` counts, and
ids are remembered for so long; with ``are_ids`` one of each value.

``value_type`` (``words``) is the type of values, which may be nested: a struct or a map is an object then, a list an
array. ``columns`` are further columns, expressions over ``key`` and ``value``: ``{"first": ["item", "value", 0]}``.

``join`` (semantics 16) says what elements meet of those with ``"side": "right"``, by key, which may be null. It is one
of ``{"type": "as_of", "max_age": 5, "order": "order", "deleted": "gone"}``, ``{"type": "within", "between": [0, 5]}``,
``{"type": "same_window", "window": {...}}``, ``{"type": "next_event", "within": 5, "order": "order"}``, ``{"type":
"lookup", "order": "order", "deleted": "gone"}``. Right elements of the last have no ``ts`` that counts. Each may have
``outer`` and ``lateness``. Behind it panes have the column ``met``, the value of the right element. ``order`` is an
integer of right elements; in ``deleted`` an attribute.

Elements are records of a source: they are judged, and duplicates told, as those of runs are.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace import json as source
from headrace.errors import PipelineError
from headrace.model.accumulation import EVENT_TIME, WINDOW_END, WINDOW_START, Timing
from headrace.model.event_time import Deduplicate
from headrace.model.expressions.data_types import ColumnType, ListType, MapType, StructType, ValueType
from headrace.model.expressions.expr import col
from headrace.model.expressions.typing import columns_of
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Duration, Instant, render
from headrace.model.windows import Window
from headrace.pipeline.endpoints import OWN, Input
from headrace.pipeline.joins import Join, as_of, lookup, next_event, same_window, within
from headrace.pipeline.output import Rows
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.rows import Every, Take, distinct, newest, top
from headrace_lab.conformance.cases import (
    MET_COLUMN,
    BundleStep,
    Case,
    CaseElement,
    CaseRows,
    Expect,
    ExpectAssigned,
    ExpectCombined,
    ExpectMerged,
    Json,
)
from headrace_lab.conformance.fields import CaseFormatError, an_object, field, flag, integer, list_of, one_of, text
from headrace_lab.conformance.words import read_expression, read_value_type, read_windows, ticks
from headrace_lab.reference.elements import Pane

KEY, VALUE = "key", "value"
_ID, _SIGN, _EVENT_TIME, _ORDER, _SIDE = (
    "id of the element",
    "sign of the element",
    "at",
    "order",
    "side of the element",
)
RIGHT = "right"
_BOUND = "30000d"
"""So far behind event times that they move no watermark: cases do."""

ROWS_FIELDS = frozenset({"take", "only", "deduplicate", "join", "value_type", "filter", "are_ids"})
JOIN_FIELDS = frozenset(
    {"type", "max_age", "between", "window", "within", "order", "deleted", "outer", "lateness", "outputs"}
)
TAKE_FIELDS = frozenset({"type", "order", "deleted", "number", "by"})


def read_rows(raw: Json) -> CaseRows:
    """What leaves as rows in a case."""
    horizon = field(raw, "deduplicate", integer, None)
    return CaseRows(
        field(raw, "take", _take, None),
        field(raw, "only", text, None),
        None if horizon is None else Duration(horizon),
        field(raw, "join", an_object, None),
        field(raw, "value_type", read_value_type, None),
        field(raw, "filter", read_expression, None),
        field(raw, "are_ids", flag, False),
    )


def _join(raw: Json, right: Input | str) -> Join:
    """The join that ``raw`` describes, with ``right`` elements, or those of an output."""
    deleted_column = field(raw, "deleted", text, None)
    order = field(raw, "order", one_of(_ORDER), None)
    options: dict[str, Any] = {
        "columns": {MET_COLUMN: VALUE},
        "outer": field(raw, "outer", flag, False),
        "lateness": field(raw, "lateness", ticks, Duration(0)),
    }
    match field(raw, "type", one_of("as_of", "within", "same_window", "next_event", "lookup")):
        case "within":
            begin, end = field(raw, "between", list_of(ticks, "length"))
            return within(right, KEY, between=(begin, end), **options)
        case "same_window":
            return same_window(right, KEY, window=field(raw, "window", read_windows), **options)
        case "next_event":
            return next_event(right, KEY, within=field(raw, "within", ticks), order=order, **options)
    age = field(raw, "max_age", ticks, None)
    is_deleted = None if deleted_column is None else col(deleted_column)
    if _looks_up(raw):
        if not isinstance(right, Input):
            raise CaseFormatError("outputs are not looked up: leave outputs out")
        return lookup(right, KEY, order=order, deleted=is_deleted, **options)
    return as_of(right, KEY, max_age=age, order=order, deleted=is_deleted, **options)


def _looks_up(raw: Json) -> bool:
    return bool(raw["type"] == "lookup")


def _joins_outputs(rows: CaseRows) -> bool:
    """Whether each side of the join is an output of its own, with the elements of that side."""
    return rows.join is not None and field(rows.join, "outputs", flag, False)


def _take(raw: Any) -> Take:
    kind = field(an_object(raw), "type", one_of("newest", "top", "distinct", "every"))
    if kind in ("distinct", "every"):
        return distinct() if kind == "distinct" else Every()
    if kind == "top":
        return top(field(raw, "number", integer), by=field(raw, "by", one_of(VALUE)))
    deleted_column = field(raw, "deleted", text, None)
    return newest(
        field(raw, "order", one_of(VALUE), None), deleted=None if deleted_column is None else col(deleted_column)
    )


def check_rows(case: Case) -> None:
    """Raise CaseFormatError unless rows can be what ``case`` says, and can answer what it asks."""
    rows_pipeline(case)
    for step in case.steps:
        if isinstance(step, ExpectAssigned | ExpectMerged | ExpectCombined):
            raise CaseFormatError("a case of rows has no steps assign, merge and combine")
        if isinstance(step, Expect) and (step.ordered or step.ordered_per_window):
            raise CaseFormatError("rows leave in no order: leave ordered out")


def rows_pipeline(case: Case) -> Pipeline:
    """The pipeline of a case of rows. Raises CaseFormatError if there can be none."""
    (stage,) = case.stages
    case_rows = stage.rows or CaseRows()
    elements = [element for step in case.steps if isinstance(step, BundleStep) for element in step.elements]
    attributes = {*_attributes(case_rows), *stage.schema}.union(*(element.attributes for element in elements))
    is_text = any(isinstance(element.value, str) for element in elements)
    columns: dict[str, Any] = {
        KEY: str,
        VALUE: case_rows.value_type or (str if is_text else int),
        _ID: str,
        _SIGN: int,
        _EVENT_TIME: datetime,
        _ORDER: int,
        _SIDE: str,
    }
    columns |= dict.fromkeys(sorted(attributes), bool)

    are_outputs = _joins_outputs(case_rows)

    def side_input(name: str) -> Input:
        """Elements of a side; with a changelog if some withdraw others."""
        is_signed = any(element.is_retraction for element in elements if are_outputs or element.input == name)
        made_source = source(f"elements/{name}", columns, changelog=col(_SIGN) if is_signed else None)
        return made_source.event_time(_EVENT_TIME, bound=_BOUND)

    parts: dict[str, Any] = {} if case_rows.take is None else {"when": stage.when, "how": stage.how}
    if is_of_groups := case_rows.take not in (None, Every()):
        parts |= {"key": KEY, "where": stage.where, "take": case_rows.take}
    try:
        right: Input | str = RIGHT if are_outputs else side_input(RIGHT).named(RIGHT)
        if isinstance(right, Input) and case_rows.join is not None and _looks_up(case_rows.join):
            right = right.source.arrival_time().named(RIGHT)
        joins = [] if case_rows.join is None else [_join(case_rows.join, right)]
        of_rows: dict[str, Any] = {
            "rows": {
                **{name: col(name) for name in (KEY, VALUE)},
                **stage.computed_columns,
                **{name: col(name) for join in joins for name in join.columns},
            },
            "filter": case_rows.condition if case_rows.only is None else col(case_rows.only),
            **parts,
        }
        if are_outputs:
            names = [name for name in columns if name not in (_SIGN, _EVENT_TIME, _SIDE)]
            sides = {side: Rows(names, filter=col(_SIDE) == side) for side in (OWN, RIGHT)}
            return Pipeline(
                "conformance", side_input(OWN), outputs={**sides, "joined": Rows(of=OWN, join=joins, **of_rows)}
            )
        return Pipeline(
            "conformance",
            side_input(OWN),
            join=joins,
            deduplicate=None
            if case_rows.horizon is None
            else Deduplicate(VALUE if case_rows.are_ids else _ID, case_rows.horizon),
            allow_finishing=is_of_groups,
            **of_rows,
        )
    except PipelineError as error:
        raise CaseFormatError(str(error)) from error


def _attributes(rows: CaseRows) -> set[str]:
    deletion_condition = None if rows.take is None else rows.take.unless
    column_names = {rows.only, None if rows.join is None else rows.join.get("deleted")} - {None}
    return {str(name) for name in column_names}.union(
        () if deletion_condition is None else columns_of(deletion_condition)
    )


def row_record(element: CaseElement) -> dict[str, Any]:
    """An element as the record that its source has."""
    sign = -1 if element.is_retraction else 1
    of_all = {KEY: element.key, VALUE: element.value, _ID: element.id, _SIGN: sign, _EVENT_TIME: element.timestamp}
    return {**element.attributes, **of_all, _ORDER: element.order, _SIDE: element.input}


def by_input(records: Iterable[Mapping[str, Any]], pipeline: Pipeline) -> dict[str, list[Mapping[str, Any]]]:
    """``row_record``s by the input of ``pipeline`` that they are of."""
    sides: dict[str, list[Mapping[str, Any]]] = {}
    names = {one.name for one in pipeline.inputs}
    for record in records:
        sides.setdefault(record[_SIDE] if record[_SIDE] in names else OWN, []).append(record)
    return sides


def last_output(pipeline: Pipeline) -> Pipeline:
    """The output whose panes a case expects, alone."""
    return [*pipeline.by_output.values()][-1]


def as_json(records: Iterable[Mapping[str, Any]]) -> bytes:
    """A file of ``records`` as its producer writes it."""
    return "".join(
        f"{json.dumps({**record, _EVENT_TIME: render(record[_EVENT_TIME])})}\n" for record in records
    ).encode()


def rows_of_panes(panes: Iterable[Pane], pipeline: Pipeline) -> tuple[Pane, ...]:
    """Rows of the reference as cases expect them."""
    return tuple(_row(dict(zip(pipeline.value_types, pane.values, strict=True)), pane, pipeline) for pane in panes)


def stored_rows(files: Iterable[pa.Table], pipeline: Pipeline) -> tuple[Pane, ...]:
    """Rows as they were stored, likewise."""
    rows = [row for file in files for row in _with_instants(file).to_pylist()]
    return tuple(_row(row, _pane(row), pipeline) for row in rows)


def _with_instants(rows: pa.Table) -> pa.Table:
    times = [place for place, column in enumerate(rows.schema) if pa.types.is_timestamp(column.type)]
    for place in times:
        rows = rows.set_column(place, rows.schema.names[place], rows.column(place).cast(pa.int64()))
    return rows


def _pane(row: Mapping[str, Any]) -> Pane:
    moment = Instant(row[EVENT_TIME])
    return Pane(
        key=(),
        window=Window(moment, Instant(moment + 1)),
        values=(),
        timestamp=moment,
        timing=Timing(row["timing"]),
        index=0,
        nonspeculative_index=0,
        is_first=True,
        is_last=True,
        is_retraction=row["is_retraction"],
    )


def _row(values: Mapping[str, Any], pane: Pane, pipeline: Pipeline) -> Pane:
    window = pane.window
    if pipeline.key:
        start, end = values.get(WINDOW_START), values.get(WINDOW_END)
        window = Window(
            MIN_INSTANT if start is None else Instant(start), GLOBAL_WINDOW_END if end is None else Instant(end)
        )
    kinds = {name: kind for name, kind in pipeline.value_types.items() if name not in _NO_VALUES}
    own_values = tuple(plain_value(values[name], kind) for name, kind in kinds.items())
    return replace(pane, key=(values[KEY],), values=own_values, window=window)


_NO_VALUES = frozenset({KEY, WINDOW_START, WINDOW_END, EVENT_TIME})
"""Columns of rows that are not values of a pane."""


def plain_value(value: Any, kind: ValueType) -> Any:
    """A ``value`` of the reference, or of Arrow, as cases write it: structs and maps are objects, lists arrays."""
    if value is None:
        return None
    match kind:
        case StructType(fields):
            parts = value.values() if isinstance(value, Mapping) else value
            return {name: plain_value(part, own) for part, (name, own) in zip(parts, fields, strict=True)}
        case MapType(own):
            return {key: plain_value(item, own) for key, item in value}
        case ListType(item):
            return [plain_value(one, item) for one in value]
    return value


def read_value(value: Any, kind: ColumnType) -> Any:
    """A ``value`` as cases write it as the reference has it: all fields of a struct, a map as pairs in order."""
    if value is None:
        return None
    match kind:
        case StructType(fields):
            return {name: read_value(value.get(name), own) for name, own in fields}
        case MapType(own):
            return [(key, read_value(value[key], own)) for key in sorted(value)]
        case ListType(item):
            return [read_value(one, item) for one in value]
    return value
