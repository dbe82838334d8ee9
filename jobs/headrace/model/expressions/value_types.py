"""Types of the values of panes: those of columns, and lists, which no expression reads."""

from dataclasses import dataclass
from types import GenericAlias
from typing import Final

from headrace.model.arguments import Arguments
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.schemas import data_type
from headrace.model.suggestions import keywords
from headrace.model.vocabulary import REQUIRED, word


@word("list", item=REQUIRED)
@keywords
@dataclass(frozen=True)
class ListType:
    """The type of a pane value that is a list; no expression reads it.

    >>> hr.ListType(hr.DataType.INT).item.value
    'int'
    """

    item: DataType

    def __post_init__(self) -> None:
        object.__setattr__(self, "item", data_type(Arguments("ListType"), "item", self.item))


@dataclass(frozen=True)
class PairsType:
    """The type of a pane value that is a list of pairs, both parts of which may be NULL; no expression reads it."""

    left: DataType
    right: DataType


ValueType = DataType | ListType | PairsType
_LIST: Final = "list of "
_PAIRS: Final = "pairs of "
_AND: Final = " and "


def in_words(kind: ValueType) -> str:
    """The type as text: "int", "list of int"."""
    match kind:
        case ListType(item):
            return f"{_LIST}{item.value}"
        case PairsType(left, right):
            return f"{_LIST}{_PAIRS}{left.value}{_AND}{right.value}"
    return kind.value


def from_words(text: str) -> ValueType:
    """The type that ``in_words`` made a text of."""
    item, is_list = text.removeprefix(_LIST), text.startswith(_LIST)
    if not is_list:
        return DataType(text)
    if not item.startswith(_PAIRS):
        return ListType(DataType(item))
    left, _, right = item.removeprefix(_PAIRS).partition(_AND)
    return PairsType(DataType(left), DataType(right))


StoredType = type | DataType | ListType | GenericAlias
"""The type of what an object of the user's keeps: one of a column, or a list of these (``list[int]``)."""


def stored_type(given: Arguments, name: str, kind: object) -> DataType | ListType:
    """The type ``kind`` of a value or a list. Raises PipelineError."""
    if isinstance(kind, ListType):
        return kind
    if isinstance(kind, GenericAlias) and kind.__origin__ is list:
        return ListType(data_type(given, name, kind.__args__[0]))
    return data_type(given, name, kind)
