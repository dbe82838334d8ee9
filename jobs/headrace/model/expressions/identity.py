"""What identifies an expression: a JSON value, of which fingerprints are made. Its words never change."""

from base64 import b64encode
from datetime import date
from decimal import Decimal
from typing import Any

from headrace.model.expressions.decimals import spelled
from headrace.model.expressions.expr import Binary, Column, Expr, Function, Literal


def same(left: Expr, right: Expr) -> bool:
    """Structural equality (``==`` builds an expression instead)."""
    return to_json(left) == to_json(right)


def to_json(expr: Expr) -> list[Any]:
    """A JSON value that identifies ``expr``. Fingerprints are made of it: its words never change."""
    match expr:
        case Column(name):
            return ["column", name]
        case Literal(value, kind):
            return ["literal", constant_to_json(value), None if kind is None else kind.value]
        case Binary(op, left, right):
            return ["binary", op, to_json(left), to_json(right)]
        case Function(name, args):
            return ["function", name, *map(to_json, args)]
    raise TypeError(type(expr).__name__)


def constant_to_json(value: Any) -> Any:
    """A constant as JSON has it: days, bytes and decimals are texts."""
    match value:
        case date():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return spelled(value)
    return value
