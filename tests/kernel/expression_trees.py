"""Random typed trees of expressions over columns ``int0``, ``int1``, ``float0`` and so on, two of each type."""

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Decimal
from functools import cache

from hypothesis import strategies as st

from headrace.model.expressions.columns import coalesce, concat, greatest, if_else, least
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr, Literal, col, is_empty_range, lit
from headrace.model.expressions.methods import Skipped, TimeUnit, Twice

Trees = st.SearchStrategy[Expr]

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia")
PARTS = ("year", "month", "day", "weekday", "hour", "minute", "second")
REGEXES = (
    "^a",
    "[^a-z]",
    r"\W$",
    "^.{1,3}$",
    r"\d+",
    "(a|é)?-",
    r"\bb|ß",
    "^(?:[a-c]|x{2,})*?$",
    "[\U0001f600-\U0001f64f]",
)
FORMATS = ("%Y-%m-%d", "%d.%m.%Y %H:%M", "%b %d %Y%f", "%H%M%S %Y", "%y%j %I%p", "%p %I:%M %d.%m.%y")
CAPTURES = (r"(a|é)+", "(?:^|-)([^-]+?)(?:$|-)", r"([a-c]?)(\d+|b)", "(.)$", r"a(b)?", "((?:a|(b))+)")
_TEXTS = ("", "a", "ab", "é", "-", "ß", "\U0001f600", "1", "Σ")
_CONSTANTS: dict[DataType, tuple[str | int | float | bool | date | bytes | Decimal, ...]] = {
    DataType.INT: (0, 1, -1, 7, 60, 2**53 + 1, 2**62),
    DataType.FLOAT: (0.0, -0.0, 1.5, -2.5, 1e300, float("nan"), float("inf")),
    DataType.STRING: _TEXTS,
    DataType.BOOL: (True, False),
    DataType.DATE: (date(1970, 1, 1), date(2012, 2, 29), date.min, date.max),
    DataType.BYTES: (b"", b"a", b"\xff", "é".encode()),
    DataType.DECIMAL: tuple(map(Decimal, ("0", "1", "-1", "0.05", "2.675", "1e-9", "1e28"))),
}
KINDS = (*_CONSTANTS, DataType.TIMESTAMP)


@cache
def trees(kind: DataType, depth: int) -> Trees:
    """Trees of type ``kind`` (or an int where a float may be, or a NULL), at most ``depth`` operators deep."""
    leaves = _leaves(kind)
    if depth == 0:
        return leaves
    return st.one_of(leaves, _of_any_type(kind, depth - 1), *_TREES_OF_KIND[kind](depth - 1))


def _leaves(kind: DataType) -> Trees:
    columns: list[Expr] = [col(f"{kind.value}{i}") for i in (0, 1)]
    moments = [Literal(microseconds, DataType.TIMESTAMP) for microseconds in (0, -1, 1_363_000_000_250_000)]
    constants = moments if kind is DataType.TIMESTAMP else [lit(value) for value in _CONSTANTS[kind]]
    return st.sampled_from([*columns * 4, *constants, Literal(None), Literal(None, kind)])


def _of_any_type(kind: DataType, depth: int) -> Trees:
    same = trees(kind, depth)
    several = st.lists(same, min_size=1, max_size=3)
    return st.one_of(
        st.builds(if_else, trees(DataType.BOOL, depth), same, same),
        several.map(lambda values: coalesce(*values)),
        several.map(lambda values: least(*values)),
        several.map(lambda values: greatest(*values)),
    )


def _number(depth: int) -> Trees:
    return trees(DataType.INT, depth) | trees(DataType.FLOAT, depth)


def _money(depth: int) -> Trees:
    return trees(DataType.INT, depth) | trees(DataType.DECIMAL, depth)


def _ints(depth: int) -> list[Trees]:
    whole, texts, times = trees(DataType.INT, depth), trees(DataType.STRING, depth), trees(DataType.TIMESTAMP, depth)
    parts = st.builds(lambda time, name, zone: getattr(time, name)(zone), times, *map(st.sampled_from, (PARTS, ZONES)))
    days, money = trees(DataType.DATE, depth), trees(DataType.DECIMAL, depth)
    return [
        st.builds(lambda a, b: a - b, days, days.map(lambda a: a.cast(date))),
        days.flatmap(lambda a: st.sampled_from([a.year(), a.month(), a.day(), a.weekday()])),
        money.map(lambda a: a.cast(int)),
        *[money.map(method) for method in (Expr.round, Expr.floor, Expr.ceil)],
        st.builds(Expr.round, whole, _DIGITS),
        st.builds(lambda a, b: a + b, whole, whole),
        st.builds(lambda a, b: a - b, whole, whole),
        st.builds(lambda a, b: a * b, whole, whole),
        st.builds(lambda a, b: a % b, whole, whole),
        st.builds(lambda a, n: n - a, whole, st.integers(-9, 9)),
        st.builds(lambda a, n: n % a, whole, st.integers(-9, 9)),
        whole.map(lambda a: -a),
        whole.map(Expr.abs),
        *[_number(depth).map(method) for method in (Expr.round, Expr.floor, Expr.ceil)],
        st.one_of(_number(depth), texts, trees(DataType.BOOL, depth), times).map(lambda a: a.cast(int)),
        st.builds(Expr.bit_and, whole, whole),
        st.builds(Expr.bit_or, whole, whole),
        st.builds(Expr.bit_xor, whole, whole),
        st.builds(Expr.shift_left, whole, st.integers(0, 62)),
        st.builds(Expr.shift_right, whole, st.integers(0, 62)),
        texts.map(Expr.length),
        _lists(depth).map(Expr.length),
        texts.map(Expr.crc32),
        parts,
    ]


def _floats(depth: int) -> list[Trees]:
    number, fractional = _number(depth), trees(DataType.FLOAT, depth)
    return [
        st.builds(lambda a, b: a / b, number, number),
        st.builds(lambda a, b: a + b, fractional, number),
        st.builds(lambda a, b: a - b, number, fractional),
        st.builds(lambda a, b: a * b, fractional, number),
        st.builds(lambda a, b: a % b, number, fractional),
        st.builds(lambda a, n: n / a, number, st.integers(-9, 9)),
        fractional.map(lambda a: -a),
        fractional.map(Expr.abs),
        st.builds(Expr.round, fractional, _DIGITS),
        *[number.map(method) for method in (Expr.sqrt, Expr.ln, Expr.log10, Expr.exp)],
        st.builds(Expr.power, number, number),
        st.one_of(number, *(trees(kind, depth) for kind in (DataType.STRING, DataType.BOOL, DataType.DECIMAL))).map(
            lambda a: a.cast(float)
        ),
    ]


def _lists(depth: int) -> Trees:
    parts = st.builds(Expr.split, trees(DataType.STRING, depth), st.sampled_from(("a", "-", "é", "ab")))
    return parts | st.builds(Expr.slice, parts, st.integers(-3, 3), st.none() | st.integers(0, 2))


def _strings(depth: int) -> list[Trees]:
    texts, some = trees(DataType.STRING, depth), st.sampled_from(_TEXTS)
    places = st.integers(-5, 5), st.none() | st.integers(0, 4)
    return [
        *[texts.map(method) for method in (Expr.lower, Expr.upper, Expr.strip)],
        st.builds(Expr.substring, texts, *places),
        st.builds(Expr.replace, texts, some.filter(bool), some),
        st.builds(Expr.regexp_extract, texts, st.sampled_from(CAPTURES), st.integers(0, 1)),
        st.builds(Expr.regexp_replace, texts, st.sampled_from(CAPTURES), st.sampled_from(("", "a", r"\1-", r"[\0]"))),
        st.builds(Expr.item, _lists(depth), st.integers(-3, 3)),
        texts.map(Expr.md5),
        st.builds(
            Expr.strftime,
            trees(DataType.TIMESTAMP, depth) | trees(DataType.DATE, depth),
            st.sampled_from(FORMATS),
            st.sampled_from(ZONES),
        ),
        trees(DataType.BYTES, depth).map(Expr.sha256),
        st.lists(texts, min_size=1, max_size=3).map(lambda values: concat(*values)),
        st.one_of(_number(depth), *(trees(kind, depth) for kind in _KINDS_AS_TEXT)).map(lambda a: a.cast(str)),
    ]


def _within_range(value: Expr, low: Expr, high: Expr) -> Expr:
    """A range of constants that is empty is refused, so it is turned round."""
    return value.between(high, low) if is_empty_range(low, high) else value.between(low, high)


def _bools(depth: int) -> list[Trees]:
    texts, both = trees(DataType.STRING, depth), trees(DataType.BOOL, depth)
    some = st.sampled_from([text for text in _TEXTS if text])
    compared_trees: list[Trees] = []
    for kind in KINDS:
        left = _number(depth) if kind in (DataType.INT, DataType.FLOAT) else trees(kind, depth)
        left = _money(depth) if kind is DataType.DECIMAL else left
        compared_trees += [st.builds(compare, left, left) for compare in _COMPARISONS]
        compared_trees += [
            st.builds(_within_range, left, left, left),
            left.map(Expr.is_null),
            left.map(Expr.is_not_null),
        ]
    return [
        *compared_trees,
        st.builds(lambda a, b: a & b, both, both),
        st.builds(lambda a, b: a | b, both, both),
        both.map(lambda a: ~a),
        st.builds(Expr.contains, _lists(depth), some),
        *[st.builds(method, texts, some) for method in (Expr.contains, Expr.starts_with, Expr.ends_with)],
        st.builds(Expr.matches, texts, st.sampled_from(REGEXES)),
        st.builds(Expr.is_in, texts, st.lists(st.sampled_from(_TEXTS), min_size=1, max_size=3)),
        st.builds(Expr.is_in, _number(depth), st.lists(_NUMBERS, min_size=1, max_size=3)),
        *[
            st.builds(
                Expr.is_in, trees(kind, depth), st.lists(st.sampled_from(_CONSTANTS[kind]), min_size=1, max_size=3)
            )
            for kind in (DataType.DATE, DataType.BYTES, DataType.DECIMAL)
        ],
    ]


def _timestamps(depth: int) -> list[Trees]:
    times, units = trees(DataType.TIMESTAMP, depth), st.sampled_from(list(TimeUnit))
    lengths = st.timedeltas(-timedelta(days=400), timedelta(days=400))
    return [
        st.builds(lambda time, length: time + length, times, lengths),
        st.builds(lambda time, length: time - length, times, lengths),
        st.builds(lambda time, n: time.plus(minutes=n), times, trees(DataType.INT, depth)),
        st.builds(Expr.truncate, times, units, st.sampled_from(ZONES)),
        st.builds(Expr.local_to_utc, times, *map(st.sampled_from, (ZONES, list(Twice), list(Skipped)))),
        st.one_of(*(trees(kind, depth) for kind in (DataType.INT, DataType.STRING, DataType.DATE))).map(
            lambda a: a.cast(DataType.TIMESTAMP)
        ),
        trees(DataType.STRING, depth).map(Expr.to_timestamp),
        st.builds(lambda time, text: time.strftime(text).strptime(text), times, st.sampled_from(FORMATS)),
    ]


def _dates(depth: int) -> list[Trees]:
    days, lengths = trees(DataType.DATE, depth), st.integers(-(10**5), 10**5)
    return [
        st.builds(lambda a, days: a + timedelta(days=days), days, lengths),
        st.builds(lambda a, n: a.plus(days=n), days, trees(DataType.INT, depth)),
        trees(DataType.TIMESTAMP, depth).map(Expr.date),
        trees(DataType.STRING, depth).map(lambda a: a.cast(date)),
    ]


def _bytes(depth: int) -> list[Trees]:
    return [trees(DataType.STRING, depth).map(lambda a: a.cast(bytes))]


def _decimals(depth: int) -> list[Trees]:
    either, exact = _money(depth), trees(DataType.DECIMAL, depth).map(lambda a: a.cast(Decimal))
    return [
        *[
            st.builds(compute, *sides)
            for compute in _ARITHMETIC
            for sides in ((exact, either), (either, exact), (exact, exact))
        ],
        exact.map(lambda a: -a),
        exact.map(Expr.abs),
        st.builds(Expr.round, exact, _DIGITS),
        st.one_of(_number(depth), trees(DataType.STRING, depth)).map(lambda a: a.cast(Decimal)),
    ]


_DIGITS = st.integers(0, 15)
_KINDS_AS_TEXT = (DataType.BOOL, DataType.DATE, DataType.BYTES, DataType.DECIMAL, DataType.TIMESTAMP)
_ARITHMETIC: list[Callable[[Expr, Expr], Expr]] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: a % b,
]
_NUMBERS = st.sampled_from([0, -1, 7, 2**53, -0.0, 2.5, float("nan")])
_COMPARISONS: list[Callable[[Expr, Expr], Expr]] = [
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
]
_TREES_OF_KIND: dict[DataType, Callable[[int], list[Trees]]] = {
    DataType.INT: _ints,
    DataType.FLOAT: _floats,
    DataType.STRING: _strings,
    DataType.BOOL: _bools,
    DataType.TIMESTAMP: _timestamps,
    DataType.DATE: _dates,
    DataType.BYTES: _bytes,
    DataType.DECIMAL: _decimals,
}
