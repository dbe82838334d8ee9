"""What cases call windows, triggers and combiners: the words of the model (``model.arguments``) with underscores.

The parts of a word are the fields of its object. A word with a part that JSON cannot say, such as an expression, is not
one of cases. Three triggers are spelled otherwise: cases are older than words.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from headrace.errors import FixConfigError
from headrace.model.arguments import REQUIRED, WORDS, Weekday, kinds_by_word
from headrace.model.combiners import TRAITS, Combiner
from headrace.model.expressions.data_types import ColumnType, DataType, ListType, MapType, StructType
from headrace.model.expressions.expr import Binary, Expr, Function, col, lit
from headrace.model.time import Duration
from headrace.model.triggers import Trigger
from headrace.model.triggers.data_driven import AfterPunctuation
from headrace.model.triggers.elementary import AfterBytes, AfterProcessingTime
from headrace.model.windows import CalendarUnit, WindowFn
from headrace_lab.conformance.cases import Json
from headrace_lab.conformance.fields import (
    CaseFormatError,
    an_object,
    field,
    flag,
    integer,
    list_of,
    member_of,
    number,
    one_of,
    text,
)

_T = TypeVar("_T")
_Read = Callable[[Any], Any]


class UnsupportedCaseError(FixConfigError, code="config.conformance_unsupported"):
    """A case that needs something that the schema leaves optional."""


def read_trigger(raw: Any) -> Trigger:
    """The trigger tree that ``raw`` describes."""
    return _by_type(TRIGGERS, raw, "trigger")


def read_windows(raw: Any) -> WindowFn:
    """The window function that ``raw`` describes."""
    return _by_type(WINDOWS, raw, "window function")


def read_combiner(name: Any) -> Combiner:
    """The combiner called ``name``."""
    if name not in COMBINERS:
        raise UnsupportedCaseError(f"there is no combiner {name!r}; there are collect, {', '.join(sorted(COMBINERS))}")
    return Combiner(name)


def read_columns(raw: Any) -> dict[str, Combiner | Expr]:
    """Columns of results beside the result. Each is a combiner of the values of elements, or an operator and two
    operands. An operand is a number, the name of a column, or again an operator with two.
    """
    return {name: read_combiner(entry) if isinstance(entry, str) else _expr(entry) for name, entry in raw.items()}


def read_having(raw: Any) -> Expr:
    """A comparison of a column of results with a number: ``{"result": "<", "value": 10}``."""
    names = [name for name in an_object(raw) if name != "value"]
    if len(names) != 1:
        raise CaseFormatError(f"{raw!r} is no comparison of one column with a value")
    operator = field(raw, names[0], one_of(*sorted(Binary.COMPARISON)))
    return Binary(operator, col(names[0]), lit(field(raw, "value", number)))


def _expr(raw: Any) -> Expr:
    if isinstance(raw, str):
        return col(raw)
    if not isinstance(raw, list):
        return lit(raw if isinstance(raw, int) else number(raw))
    operator, left, right = raw if len(raw) == 3 else (None, None, None)
    return Binary(one_of(*sorted(Binary.ARITHMETIC))(operator), _expr(left), _expr(right))


def read_row_columns(raw: Any) -> dict[str, Expr]:
    """Columns of rows beside the value: expressions over the key and the value of an element."""
    return {name: read_expression(entry) for name, entry in an_object(raw).items()}


def read_expression(raw: Any) -> Expr:
    """``"value"`` is a column, ``{"text": "a"}`` a text, a number or a bool itself. ``["item", "value", 0]`` is a
    function, or an operator, by its word, and its operands.
    """
    match raw:
        case str():
            return col(raw)
        case bool() | int() | float():
            return lit(raw)
        case {"text": str(constant)}:
            return lit(constant)
        case [str(word), *operands]:
            parts = [*map(read_expression, operands)]
            is_operator = word in Binary.ARITHMETIC | Binary.COMPARISON | Binary.BOOLEAN and len(parts) == 2
            return Binary(word, *parts) if is_operator else Function(word, tuple(parts))
    raise CaseFormatError(f"{raw!r} is no expression")


def read_value_type(raw: Any) -> ColumnType:
    """``"int"``, ``{"struct": {"city": "string"}}``, ``{"map": "int"}`` or ``{"list": "int"}``."""
    match raw:
        case str():
            return member_of(DataType)(raw)
        case {"struct": dict(fields)}:
            return StructType(tuple((name, read_value_type(own)) for name, own in fields.items()))
        case {"map": own}:
            return MapType(read_value_type(own))
        case {"list": own}:
            return ListType(read_value_type(own))
    raise CaseFormatError(f"{raw!r} is no type")


def ticks(raw: Any) -> Duration:
    """A length of time, in ticks."""
    return Duration(integer(raw))


def _by_type(readers: Mapping[str, Callable[[Json], _T]], raw: Any, kind: str) -> _T:
    name = field(an_object(raw), "type", text)
    if name not in readers:
        raise UnsupportedCaseError(f"there is no {kind} of type {name!r}; there are {', '.join(readers)}")
    return readers[name](raw)


# --- from words to readers --------------------------------------------------------------------------------------------

_VALUES: Mapping[Any, _Read] = {
    Duration: ticks,
    int: integer,
    float: number,
    bool: flag,
    str: text,
    CalendarUnit: member_of(CalendarUnit),
    Weekday: member_of(Weekday),
    Trigger: read_trigger,
    WindowFn: read_windows,
    tuple[Trigger, ...]: list_of(read_trigger, "trigger"),
}
"""How a part of each type is read."""


def _value(hint: Any) -> _Read | None:
    """How a part of type ``hint`` is read; None if JSON cannot say it."""
    if get_origin(hint) in (Union, type(int | None)):
        hint, *_ = (argument for argument in get_args(hint) if argument is not type(None))
    return _VALUES.get(hint)


def _parts(kind: type) -> dict[str, _Read] | None:
    """The parts of ``kind`` that cases can say; None if that is not enough."""
    hints = get_type_hints(kind)
    readers = {name: read for name in WORDS[kind].parts if (read := _value(hints[name])) is not None}
    missing = WORDS[kind].parts.keys() - readers.keys()
    return None if any(WORDS[kind].parts[name] is REQUIRED for name in missing) else readers


def _reader(kind: type[_T], parts: Mapping[str, _Read]) -> Callable[[Json], _T]:
    """Reads a ``kind``: a part that is not there has the value that its word says."""

    def read(raw: Json) -> _T:
        left_out = WORDS[kind].parts
        given_by_name = {
            name: field(raw, name, parts[name]) for name in parts if left_out[name] is REQUIRED or _has(raw, name)
        }
        for name in parts.keys() - given_by_name.keys():
            given_by_name[name] = None if left_out[name] is None else parts[name](left_out[name])
        several = given_by_name.pop("triggers", ())
        return kind(*several, **given_by_name)

    return read


def _has(raw: Json, name: str) -> bool:
    return raw.get(name) is not None


def _processing_time(raw: Json) -> Trigger:
    align = field(raw, "align", an_object, None)
    period = () if align is None else (field(align, "period", ticks), field(align, "offset", ticks, Duration(0)))
    return AfterProcessingTime(field(raw, "delay", ticks, Duration(0)), *period)


_OWN_SPELLINGS: Mapping[str, Callable[[Json], Trigger]] = {
    "after_processing_time": _processing_time,
    "after_bytes": lambda raw: AfterBytes(field(raw, "bytes", integer)),
    "after_punctuation": lambda raw: AfterPunctuation(col(field(raw, "attribute", text))),
}
"""Triggers whose fields cases do not call as the model does, and these fields."""

_SPELLED_FIELDS = {"delay", "align", "bytes", "attribute"}


def _list_kinds(kind: type[_T]) -> Iterator[tuple[str, type[_T], dict[str, _Read]]]:
    """The classes of ``kind`` that cases can say: by which word, and with which parts."""
    for name, subclass in kinds_by_word(kind).items():
        if (parts := _parts(subclass)) is not None:
            yield name.replace(" ", "_"), subclass, parts


def _fields(kinds: Iterable[tuple[str, type, Mapping[str, _Read]]]) -> frozenset[str]:
    return frozenset({"type"}).union(*(parts for name, _, parts in kinds if name not in _OWN_SPELLINGS))


WINDOWS: Mapping[str, Callable[[Json], WindowFn]] = {
    name: _reader(kind, parts) for name, kind, parts in _list_kinds(WindowFn)
}
TRIGGERS: Mapping[str, Callable[[Json], Trigger]] = {
    **{name: _reader(kind, parts) for name, kind, parts in _list_kinds(Trigger)},
    **_OWN_SPELLINGS,
}
COMBINERS = frozenset(kind.value for kind, its in TRAITS.items() if not its.options and not its.timed) - {"collect"}
"""Combiners of single values, whenever they came. Cases that collect name no combiner."""

WINDOW_FIELDS = _fields(_list_kinds(WindowFn)) | {"transformed_output_time"}
TRIGGER_FIELDS = _fields(_list_kinds(Trigger)) | _SPELLED_FIELDS
