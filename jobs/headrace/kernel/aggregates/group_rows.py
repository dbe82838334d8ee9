"""Rows of a group as a part of its contents, and those of them that leave: the newest, the first few, the distinct.

A row is a struct of what it goes by, if by anything, whether it is deleted, where that is asked, and its columns, with
its event time. It is kept with how often it is there, which is below 0 where it is withdrawn before it came. Where no
row can be withdrawn, those that can never leave any more are not kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from headrace.kernel.aggregates.ordering import changes, coded, distinct, in_order
from headrace.kernel.aggregates.sums import AccumulatorPart, Elements
from headrace.kernel.columns import Groups, Ints, as_numpy, of_ids, of_lists, to_lists, valid
from headrace.model.expressions.expr import Expr

AT: Final = "at"
ROW: Final = "row"
TIMES: Final = "times"
"""Fields of an entry."""


@dataclass(frozen=True)
class RowsPart(AccumulatorPart):
    """Distinct rows of a group in order, with how often each is there, never 0.

    ``has_by``: the first field is what rows go by, before their event time; ``has_unless``: the next one says of which
    rows nothing leaves; ``are_distinct``: event time comes after all columns, and each row leaves once; else the
    ``number`` largest leave. ``withdrawable``: rows can be withdrawn.
    """

    condenses: ClassVar[bool] = False

    number: int
    has_by: bool
    has_unless: bool
    are_distinct: bool
    withdrawable: bool

    @classmethod
    def of(
        cls,
        name: str,
        row: Expr,
        kind: pa.DataType,
        *,
        number: int,
        has_by: bool,
        has_unless: bool,
        are_distinct: bool,
        withdrawable: bool,
    ) -> "RowsPart":
        """The rows that ``row`` makes of elements, of the struct type ``kind``."""
        entry = pa.struct([(AT, pa.int64()), (ROW, kind), (TIMES, pa.int64())])
        return cls(name, pa.list_(entry), row, number, has_by, has_unless, are_distinct, withdrawable)

    @property
    def leaving_type(self) -> pa.ListType:
        """The type of ``leaving``."""
        columns = [*self.type.value_type.field(ROW).type][int(self.has_by) + int(self.has_unless) :]
        kinds = [pa.int64(), *(column.type for column in columns)]
        return pa.list_(pa.struct([*zip(_names(len(kinds)), kinds, strict=True)]))

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        assert elements.value is not None
        at, sign = elements.at, None if elements.sign is None else as_numpy(elements.sign)
        times = np.ones(len(at), np.int64) if sign is None else sign
        return self._made(at, elements.value, times, Groups(groups.offsets))

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        entries, inner = groups.flattened(parts)
        return self._made(entries.field(0), entries.field(1), as_numpy(entries.field(2)), inner)

    def leaving(self, part: pa.Array) -> pa.Array:
        """The rows that leave of each group, the largest first: lists of structs of event time and columns."""
        entries, groups = of_lists(part)
        times = as_numpy(entries.field(2))
        there = times > 0
        rows, groups, times = np.flatnonzero(there), groups.within(there), times[there]
        if self.are_distinct:
            firsts = self._firsts(entries.field(1).take(pa.array(rows)), groups)
            rows, groups = rows[firsts], groups.within(firsts)
        else:
            copies = np.minimum(times, self.number)
            before = np.append(0, np.cumsum(copies))
            rows, groups = np.repeat(rows, copies), Groups(before[groups.offsets])
            ends, groups = groups.ends(self.number, are_last=True)
            rows = rows[ends]
        columns = entries.field(1).flatten()[int(self.has_by) :]
        if self.has_unless:
            stays = ~as_numpy(columns.pop(0).take(pa.array(rows)).fill_null(False))
            rows, groups = rows[stays], groups.within(stays)
        taken = pa.array(rows)
        return to_lists(_struct([entries.field(0).take(taken), *(column.take(taken) for column in columns)]), groups)

    def _made(self, at: pa.Array, rows: pa.Array, times: Ints, groups: Groups) -> pa.Array:
        codes = self._codes(at, rows)
        order = in_order(groups.of_row, codes)
        ids, ordered = groups.of_row[order], codes[order]
        starts = np.flatnonzero(changes(ids, ordered))
        totals = np.add.reduceat(times[order], starts) if len(starts) else starts
        kept = totals != 0
        starts, totals = starts[kept], totals[kept]
        ids, places = ids[starts], order[starts]
        if not self.withdrawable:
            chosen = self._can_leave(rows.take(pa.array(places)), of_ids(ids, len(groups)))
            ids, places, totals = ids[chosen], places[chosen], totals[chosen]
        taken = pa.array(places)
        fields = [at.take(taken), rows.take(taken), pa.array(totals)]
        entries = pa.StructArray.from_arrays(fields, fields=list(self.type.value_type))
        return to_lists(entries, of_ids(ids, len(groups)), empty_is_null=True)

    def _can_leave(self, rows: pa.Array, groups: Groups) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """Which rows, in order, may leave at some time where none is ever withdrawn."""
        if self.are_distinct:
            return self._firsts(rows, groups)
        chosen = np.zeros(len(rows), np.bool_)
        chosen[groups.ends(self.number, are_last=True)[0]] = True
        return chosen

    def _firsts(self, rows: pa.Array, groups: Groups) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """The first of equal rows of each group."""
        return changes(groups.of_row, combined(rows.flatten(), len(rows)))

    def _codes(self, at: pa.Array, rows: pa.Array) -> Ints:
        columns = rows.flatten()
        if self.are_distinct:
            return combined([*columns, at], len(at))
        return combined([*columns[: int(self.has_by)], at, *columns[int(self.has_by) :]], len(at))


def combined(columns: Sequence[pa.Array], length: int) -> Ints:
    """Integers that are in the order of rows of ``columns``, and equal where these are."""
    codes = np.zeros(length, np.int64)
    for number, column in enumerate(columns):
        own = _ranked(column)
        codes = own if number == 0 else distinct(codes, own)[0]
    return codes


def _ranked(column: pa.Array) -> Ints:
    """Integers in the order of values; NULL is below all of them."""
    if not column.null_count:
        return coded(column).codes
    ranks = np.zeros(len(column), np.int64)
    ranks[valid(column)] = np.unique(coded(column.drop_null()).codes, return_inverse=True)[1] + 1
    return ranks


def _struct(columns: Sequence[pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays([*columns], names=_names(len(columns)))


def _names(number: int) -> list[str]:
    """The fields of a row that leaves: its event time, then its columns by their place."""
    return [AT, *(str(place) for place in range(number - 1))]
