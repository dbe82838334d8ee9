"""What a window holds, and what the combiners make of it.

The contents are the bag of values as they came, retracted ones with multiplicity -1; a combiner always reads the whole
bag. So nothing can depend on how values were split into accumulators, and uncombine (semantics 9.7) is subtraction.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from typing import Any

from headrace.model.arguments import user_code
from headrace.model.combiners import BY_ANOTHER, Combiner, CustomCombiner, Outer
from headrace.model.expressions.data_types import DataType, Schema, ValueType
from headrace.model.expressions.expr import Aggregate
from headrace.model.expressions.typing import operand_type, output_type
from headrace.model.time import Instant
from headrace_lab.reference.billionths import divide_rounded
from headrace_lab.reference.evaluate import (
    Record,
    billionths,
    evaluate,
    fitting,
    identity_key,
    nulls_first,
    sort_key,
    whole,
)
from headrace_lab.reference.sketch_bytes import distinct_sketch, quantile_sketch

WeightedValue = tuple[Any, int]
"""A value and how often it is there; negative if it was retracted before it came."""

Extract = Callable[["Contents"], tuple[Any, ...]]
"""Makes the values of a pane of a window's contents. Pure; called once per pane (semantics 8.1)."""


@dataclass
class Contents:
    """A bag of values in arrival order."""

    entries: list[WeightedValue] = field(default_factory=list)

    def add(self, value: Any, multiplicity: int = 1) -> None:
        """One more ``value``; -1 withdraws one."""
        self.entries.append((value, multiplicity))

    def keep_last(self, number: int | None) -> None:
        """Forget all but the last ``number`` values; None keeps all."""
        if number is not None:
            del self.entries[:-number]

    @property
    def net(self) -> tuple[WeightedValue, ...]:
        """Each distinct value once, in order of first arrival, without those that were wholly withdrawn."""
        totals: dict[Any, int] = {}
        for value, multiplicity in self.entries:
            totals[value] = totals.get(value, 0) + multiplicity
        return tuple((value, total) for value, total in totals.items() if total)

    @property
    def is_empty(self) -> bool:
        """Whether as many elements were withdrawn as came (9.1). It is the number that counts, not which ones: then an
        engine need not keep the values of an invertible combiner to know."""
        return sum(multiplicity for _, multiplicity in self.entries) == 0


def read(aggregate: Aggregate, record: Record, schema: Schema, timestamp: Instant) -> Any:
    """What ``aggregate`` keeps of an element, None to leave it out; ``combine`` takes these.

    A count without an expression keeps something that is never NULL. First and last keep the timestamp too, a join what
    there is on either side. Combiners that go by another expression keep that and the value. A zero has no sign, since
    what they give has none.
    """
    if aggregate.input is None:
        return True
    value = identity_key(evaluate(aggregate.input, record, schema))
    if aggregate.combiner is not Combiner.CUSTOM:  # which is given values as they are
        value = _without_signed_zeros(value)
    if aggregate.other is not None:
        other = _without_signed_zeros(identity_key(evaluate(aggregate.other, record, schema)))
        if aggregate.combiner in BY_ANOTHER:
            return None if value is None or other is None else (other, value)
        if aggregate.combiner is Combiner.MAP_AGG:
            return None if value is None or other is None else (value, other)
        return None if value is None and other is None else (value, other)
    if value is not None and aggregate.combiner in (Combiner.FIRST, Combiner.LAST):
        return timestamp, value
    return value


def _without_signed_zeros(value: Any) -> Any:
    """``value``, or what it holds, with 0.0 for -0.0: of equal values any may be the one that is given (8.3)."""
    if isinstance(value, tuple):
        return tuple(map(_without_signed_zeros, value))
    return 0.0 if isinstance(value, float) and value == 0 else value


def combine(  # noqa: PLR0911, PLR0912 (one line for each combiner)
    aggregate: Aggregate, values: Sequence[WeightedValue], kind: DataType | None = None
) -> Any:
    """``aggregate`` over what it kept, of that ``kind``; without any, its identity (0, an empty list, or None).

    The combiners that order values leave out what was retracted before it came; approximate ones are exact here.
    Raises IntegerOverflowError when an integer sum leaves 64 bits, PipelineError when a user's own combiner fails.
    """
    known_pairs = [(value, times) for value, times in values if value is not None]
    if aggregate.combiner is Combiner.PAIRS:
        return _pairs(known_pairs, aggregate.outer)
    if aggregate.combiner is Combiner.CUSTOM:
        return _custom(aggregate.custom, known_pairs)
    ascending = _ascending(known_pairs)
    if aggregate.combiner in (Combiner.SUM, Combiner.MEAN, Combiner.VARIANCE):
        known_pairs = _merge_not_finite(known_pairs)
    match aggregate.combiner:
        case Combiner.COUNT:
            return sum(times for _, times in known_pairs)
        case Combiner.SUM:
            if _are_decimal(known_pairs):
                return fitting(_total(known_pairs), "a sum", "")
            total = sum(value * times for value, times in known_pairs)
            return total if isinstance(total, float) else whole(total, "a sum")
        case Combiner.MEAN:
            return _mean(known_pairs)
        case Combiner.VARIANCE:
            return _variance(known_pairs)
        case Combiner.MIN:
            return ascending[0] if ascending else None
        case Combiner.MAX:
            return ascending[-1] if ascending else None
        case Combiner.FIRST | Combiner.MIN_BY:
            return ascending[0][1] if ascending else None
        case Combiner.LAST | Combiner.MAX_BY:
            return ascending[-1][1] if ascending else None
        case Combiner.LIST_AGG:
            return tuple(value for _, value in ascending[: aggregate.k])
        case Combiner.MAP_AGG:
            runs = [[*run] for _, run in groupby(ascending, lambda pair: sort_key(pair[0]))]
            return tuple(run[-1] for run in runs)
        case Combiner.BOOL_AND:
            return all(ascending) if ascending else None
        case Combiner.BOOL_OR:
            return any(ascending) if ascending else None
        case Combiner.MODE:
            return _most_frequent(ascending)
        case Combiner.QUANTILES:
            return tuple(_nearest_rank(ascending, q) for q in aggregate.qs or () if ascending)
        case Combiner.COLLECT:
            return tuple(ascending)
        case Combiner.TOP:
            return tuple(ascending[::-1][: aggregate.k])
        case Combiner.DISTINCT | Combiner.APPROX_DISTINCT:
            return len({nulls_first(value) for value in ascending})
        case Combiner.DISTINCT_SKETCH:
            return distinct_sketch(ascending, kind) if ascending and kind else None
        case Combiner.QUANTILE_SKETCH:
            return quantile_sketch(ascending, kind) if ascending and kind else None
        case Combiner.QUANTILE:
            return _nearest_rank(ascending, aggregate.q or 0.0)
    raise AssertionError(aggregate.combiner)


def _ascending(values: Sequence[WeightedValue]) -> list[Any]:
    """The values in order, each as often as it is there."""
    return [value for value, times in _net(sorted(values, key=_by_value)) for _ in range(times)]


def _net(ordered_values: Sequence[WeightedValue]) -> Sequence[WeightedValue]:
    """Each distinct value once, if some were withdrawn: they may have come with other values beside them."""
    if all(times >= 0 for _, times in ordered_values):
        return ordered_values
    groups = [[*group] for _, group in groupby(ordered_values, _by_value)]
    return [(group[0][0], sum(times for _, times in group)) for group in groups]


def _merge_not_finite(values: Sequence[WeightedValue]) -> list[WeightedValue]:
    """Infinities and NaN once each, if they are left: one may be taken back beside other values of its record."""
    others = [entry for entry in values if not _is_finite(entry)]
    left = [entry for entry in _net(sorted(others, key=_by_value)) if entry[1]]
    return [*filter(_is_finite, values), *left]


def _is_finite(entry: WeightedValue) -> bool:
    return not isinstance(entry[0], float) or math.isfinite(entry[0])


def _pairs(values: Sequence[WeightedValue], outer: Outer | None) -> tuple[Any, ...]:
    """Every value of the left with every one of the right."""
    lefts = _ascending([(left, times) for (left, _), times in values if left is not None])
    rights = _ascending([(right, times) for (_, right), times in values if right is not None])
    if not rights and outer in (Outer.LEFT, Outer.BOTH):
        rights = [None]
    elif not lefts and outer in (Outer.RIGHT, Outer.BOTH):
        lefts = [None]
    return tuple((left, right) for left in lefts for right in rights)


def _custom(combiner: CustomCombiner | None, values: Sequence[WeightedValue]) -> Any:
    """A user's own combiner over the values one after another, and without those that were withdrawn."""
    assert combiner is not None
    with user_code(combiner, "combine values"):
        accumulator = combiner.create()
        for value, times in values if combiner.invertible else _net(sorted(values, key=_by_value)):
            for _ in range(times):
                accumulator = combiner.add(accumulator, value)
            for _ in range(-times if combiner.invertible else 0):
                accumulator = combiner.remove(accumulator, value)
        result = combiner.extract(accumulator)
    return tuple(result) if isinstance(result, list) else result


def _by_value(entry: WeightedValue) -> Any:
    """A sort key; what first and last keep is ordered by timestamp, then value."""
    return nulls_first(entry[0])


def _are_decimal(values: Sequence[WeightedValue]) -> bool:
    return bool(values) and isinstance(values[0][0], Decimal)


def _total(values: Sequence[WeightedValue]) -> int:
    """The sum of decimals, in billionths."""
    return sum(billionths(value) * times for value, times in values)


def _mean(values: Sequence[WeightedValue]) -> float | Decimal | None:
    number = sum(times for _, times in values)
    if _are_decimal(values):
        return fitting(divide_rounded(_total(values), number), "a mean", "") if number else None
    return float(sum(value * times for value, times in values) / number) + 0.0 if number else None


def _variance(values: Sequence[WeightedValue]) -> Any:
    number = sum(times for _, times in values)
    if not number:
        return None
    if not all(math.isfinite(value) for value, _ in values):
        return math.nan
    mean = sum((Fraction(value) * times for value, times in values), Fraction()) / number
    exact = sum(((Fraction(value) - mean) ** 2 * times for value, times in values), Fraction()) / number
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _nearest_rank(ascending: Sequence[Any], q: float) -> Any:
    """The smallest value with a part ``q`` of all values at or below it; ``q`` is the decimal as it is written."""
    rank = math.ceil(Fraction(repr(float(q))) * len(ascending))
    return ascending[max(rank, 1) - 1] if ascending else None


def _most_frequent(ascending: Sequence[Any]) -> Any:
    """The value that stands most often; the smallest of several, which stands first."""
    runs = [[*group] for _, group in groupby(ascending, nulls_first)]
    return max(runs, key=len)[0] if runs else None


def collect(contents: Contents) -> tuple[Any, ...]:
    """One pane value: the values themselves, as a tuple in arrival order (what a grouping without a combiner emits)."""
    return (tuple(value for value, times in contents.net for _ in range(times)),)


def _value_type(aggregate: Aggregate, schema: Schema) -> DataType | None:
    """The type of the values that ``aggregate`` takes; None of one that takes none, or others."""
    kind = None if aggregate.input is None else operand_type(aggregate, schema)
    return kind if isinstance(kind, DataType) else None


def extract_with(aggregates: Sequence[Aggregate], schema: Schema) -> Extract:
    """The pane values of ``aggregates`` over columns of ``schema``, in order; the values of the window are tuples of
    what each one ``read``.
    """
    kinds = [output_type(aggregate, schema) for aggregate in aggregates]
    inputs = [_value_type(aggregate, schema) for aggregate in aggregates]

    def convert_value(value: Any, kind: ValueType) -> Any:
        # a sum of nothing is a zero of its type
        if value is None or kind not in (DataType.FLOAT, DataType.DECIMAL):
            return value
        return float(value) if kind is DataType.FLOAT else Decimal(value)

    def extract(contents: Contents) -> tuple[Any, ...]:
        bag = contents.net
        return tuple(
            convert_value(combine(aggregate, [(value[i], times) for value, times in bag], read), kind)
            for i, (aggregate, kind, read) in enumerate(zip(aggregates, kinds, inputs, strict=True))
        )

    return extract
