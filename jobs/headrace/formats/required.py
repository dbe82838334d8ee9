"""Columns that a file must have: those that something reads, unless the source takes a column that is missing for NULL,
and always those without which every record would be a dead letter.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.formats.errors import FileColumnsError, MissingColumnError
from headrace.model.expressions.expr import Binary, Expr, Function
from headrace.model.expressions.fields import SourceFields
from headrace.model.expressions.traversal import columns_of


@dataclass(frozen=True)
class RequiredColumns:
    """What a file of an input must have. ``identities``: expressions that must not be NULL for want of a column, by
    purpose ("event time"). ``columns``: those that must be there, and what reads them. ``fields`` of the source: where
    its columns are in a file, if not under their own names.
    """

    identities: Mapping[str, Expr] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    fields: SourceFields = field(default_factory=dict)

    def check(self, names: Sequence[str], filled: Collection[str], path: str, where: str) -> None:
        """Hold a file to the columns that must be there.

        :param names: the places of the columns that it has.
        :param filled: the columns of the source of which it has values.
        :param path: the name of the file, for errors.
        :param where: what says which columns it has: "header", "schema".
        :raises FileColumnsError: it lacks one.
        """
        for purpose, expr in self.identities.items():
            missing = sorted(nulling_columns(expr) - {*filled})
            if missing:
                why = f"without which every record has no {purpose}"
                raise FileColumnsError(path, f"its {where} lacks {self._lacked(missing[0], why, names)}")
        for name, reader in self.columns.items():
            if self._place(name) not in names:
                why = f"which {reader} reads"
                raise MissingColumnError(path, f"its {where} lacks {self._lacked(name, why, names)}")

    def _place(self, name: str) -> str:
        return self.fields[name].place if name in self.fields else name

    def _lacked(self, name: str, why: str, names: Sequence[str]) -> str:
        place = self._place(name)
        column = f"column {place}" if place == name else f"column {place} ({name} in the source)"
        near = "; it is there, and of type null" if place in names else _near(place, names)
        return f"{column}, {why}{near}"


def nearest(name: str, names: Collection[str]) -> str | None:
    """Which of ``names`` is most like ``name``; None if none is."""
    spelled = {candidate.casefold(): candidate for candidate in names}
    close = difflib.get_close_matches(name.casefold(), spelled, 1)
    return spelled[close[0]] if close else None


def _near(name: str, names: Collection[str]) -> str:
    near = nearest(name, names)
    return "" if near is None else f"; it has {near!r}, which is spelled much like it"


def nulling_columns(expr: Expr) -> frozenset[str]:
    """Columns whose NULL alone makes ``expr`` NULL: ``a + b`` needs both, ``coalesce(a, b)`` needs neither."""
    match expr:
        case Binary("and" | "or", _, _) | Function("is_null", _):
            return frozenset()
        case Function("coalesce" | "least" | "greatest", args) | Function("if", (_, *args)):
            return frozenset.intersection(*(nulling_columns(arg) for arg in args))
        case Function(_, args):
            return frozenset().union(*(nulling_columns(arg) for arg in args))
        case Binary(_, left, right):
            return nulling_columns(left) | nulling_columns(right)
    return columns_of(expr)
