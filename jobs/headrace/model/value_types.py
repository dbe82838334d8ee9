"""Types of the values of panes: those of columns, and lists, which no expression reads."""

from dataclasses import dataclass

from headrace.model.expr import DataType


@dataclass(frozen=True)
class ListType:
    """The type of a pane value that is a list; no expression reads it."""

    item: DataType


@dataclass(frozen=True)
class PairsType:
    """The type of a pane value that is a list of pairs, both parts of which may be NULL; no expression reads it."""

    left: DataType
    right: DataType


ValueType = DataType | ListType | PairsType
