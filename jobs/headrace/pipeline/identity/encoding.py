"""The parts of a pipeline as JSON, in words that never change. Fingerprints are made of it.

The words stand beside the classes (``model.vocabulary``), so neither the names in the code nor its defaults count: a
class may be renamed, and a default may change. Objects of a user's own go by the name of their class, their fields, and
what they declare of their state.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

from headrace.model.custom_combiners import CustomCombiner, accumulator_types, result_type
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.identity import constant_to_json, to_json
from headrace.model.triggers.custom import CustomTrigger, state_types
from headrace.model.vocabulary import WORDS, Word


def encoded(value: Any) -> Any:
    """``value``, a part of a pipeline, as JSON."""
    if isinstance(value, Expr):
        return to_json(value)
    if isinstance(value, Mapping):
        return [[name, encoded(part)] for name, part in value.items()]
    if isinstance(value, list | tuple):
        return [encoded(part) for part in value]
    if type(value) in WORDS:
        return _known(value, WORDS[type(value)])
    return _own(value) if is_dataclass(value) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and float(value).is_integer():
        return int(value)  # 95 and 95.0 mean the same
    return constant_to_json(value)


def _known(value: Any, word: Word) -> dict[str, Any]:
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
