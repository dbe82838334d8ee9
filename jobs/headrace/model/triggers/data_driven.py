"""Triggers that look into elements, and patterns over elements (semantics 9.4, 9.6, 12.7).

A pattern is a regular expression whose letters name predicates. A letter stands for one element that satisfies its
predicate; an element may satisfy several, or none. ``.`` is any element, ``[ab]`` one that satisfies a or b, ``[^ab]``
one that satisfies neither; ``|``, ``*``, ``+``, ``?``, ``{3}``, ``{2,4}``, ``{2,}`` and parentheses are as usual. A
match may begin at any element.

``compile_pattern`` makes the table of a deterministic automaton. A code per element (bit i: it satisfies the i-th
predicate) moves one state number. So an engine can fold over an array of codes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.errors import PipelineError
from headrace.model.arguments import REQUIRED, Arguments, check_keywords, register_word
from headrace.model.combiners import Combiner
from headrace.model.expressions.columns import require_expression
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Aggregate, Expr, render, render_aggregate
from headrace.model.expressions.typing import readable_types
from headrace.model.triggers import elementary
from headrace.model.triggers.elementary import predicates

MAX_PREDICATES = 8
MAX_STATES = 1000
_MAX_REPEATS = 100


@dataclass(frozen=True)
class Empty:
    """No element at all."""


@dataclass(frozen=True)
class Symbol:
    """One element that satisfies one of ``letters``, or none of them if ``negated``."""

    letters: frozenset[str]
    negated: bool = False

    def matches(self, satisfied_letters: frozenset[str]) -> bool:
        """Whether it stands for an element that satisfies just the ``satisfied_letters``."""
        return self.letters.isdisjoint(satisfied_letters) is self.negated


@dataclass(frozen=True)
class Then:
    """``first``, and ``second`` right after it."""

    first: "EventRegex"
    second: "EventRegex"


@dataclass(frozen=True)
class Either:
    """``left`` or ``right``."""

    left: "EventRegex"
    right: "EventRegex"


@dataclass(frozen=True)
class Star:
    """``inner`` any number of times, also none."""

    inner: "EventRegex"


EventRegex = Empty | Symbol | Then | Either | Star


def is_nullable(regex: EventRegex) -> bool:
    """Whether no element at all matches."""
    match regex:
        case Then(first, second):
            return is_nullable(first) and is_nullable(second)
        case Either(left, right):
            return is_nullable(left) or is_nullable(right)
        case Symbol():
            return False
    return True


def parse_pattern(pattern: str) -> EventRegex:
    """The expression that ``pattern`` writes. Raises PipelineError, with the place, if it is none."""
    parser = _PatternParser(pattern)
    regex = parser.parse_choice()
    if parser.rest:
        raise parser.pattern_error(f"unexpected {parser.take_character()!r}")
    return regex


def letters_of(regex: EventRegex) -> frozenset[str]:
    match regex:
        case Symbol(letters):
            return letters
        case Then(a, b) | Either(a, b):
            return letters_of(a) | letters_of(b)
        case Star(inner):
            return letters_of(inner)
    return frozenset()


class _PatternParser:
    """Recursive descent; ``rest`` is what is still to be read."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.rest = pattern

    def pattern_error(self, why: str) -> PipelineError:
        position = len(self._pattern) - len(self.rest)
        return PipelineError(f"pattern {self._pattern!r}, character {position}: {why}")

    def take_character(self) -> str:
        character, self.rest = self.rest[:1], self.rest[1:]
        return character

    def _skip_if_next(self, expected: str) -> bool:
        if not self.rest.startswith(expected):
            return False
        self.rest = self.rest[len(expected) :]
        return True

    def parse_choice(self) -> EventRegex:
        regex = self._parse_sequence()
        while self._skip_if_next("|"):
            regex = Either(regex, self._parse_sequence())
        return regex

    def _parse_sequence(self) -> EventRegex:
        regex: EventRegex = Empty()
        while self.rest and self.rest[0] not in "|)":
            regex = _make_sequence(regex, self._parse_repeated())
        return regex

    def _parse_repeated(self) -> EventRegex:
        regex = self._parse_atom()
        while self.rest and self.rest[0] in "*+?{":
            regex = self._apply_quantifier(regex, self.take_character())
        return regex

    def _apply_quantifier(self, regex: EventRegex, quantifier: str) -> EventRegex:
        match quantifier:
            case "*":
                return Star(regex)
            case "+":
                return _make_sequence(regex, Star(regex))
            case "?":
                return Either(Empty(), regex)
        bounds, closing_brace, rest = self.rest.partition("}")
        low, comma, high = bounds.partition(",")
        if not closing_brace or not low.isdecimal() or (high and not high.isdecimal()):
            raise self.pattern_error("write {3}, {2,} or {2,4}")
        self.rest = rest
        return self._repeat_times(regex, int(low), int(high) if high else None if comma else int(low))

    def _repeat_times(self, regex: EventRegex, low: int, high: int | None) -> EventRegex:
        if max(low, high or 0) > _MAX_REPEATS or (high is not None and high < low):
            raise self.pattern_error(f"cannot repeat {low} to {high} times; at most {_MAX_REPEATS}")
        result: EventRegex = Star(regex) if high is None else Empty()
        for _ in range(low, high or low):
            result = Either(Empty(), _make_sequence(regex, result))
        for _ in range(low):
            result = _make_sequence(regex, result)
        return result

    def _parse_atom(self) -> EventRegex:
        character = self.take_character()
        if character == "(":
            regex = self.parse_choice()
            if not self._skip_if_next(")"):
                raise self.pattern_error("a ) is missing")
            return regex
        if character == "[":
            is_negated = self._skip_if_next("^")
            letters, closing_bracket, self.rest = self.rest.partition("]")
            if not closing_bracket or not letters.isalpha():
                raise self.pattern_error("write [ab] or [^ab]")
            return Symbol(frozenset(letters), is_negated)
        if character == ".":
            return Symbol(frozenset(), negated=True)
        if not character.isalpha():
            raise self.pattern_error(f"unexpected {character!r}" if character else "a letter is missing")
        return Symbol(frozenset(character))


def _make_sequence(first: EventRegex, second: EventRegex) -> EventRegex:
    if isinstance(first, Empty):
        return second
    return first if isinstance(second, Empty) else Then(first, second)


# --- the automaton ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PatternTable:
    """``transitions[state][code]`` is the next state; it starts in state 0. ``accepting`` is kept once reached.

    Bit i of a code says whether the element satisfies the predicate of ``letters[i]``.
    """

    letters: tuple[str, ...]
    transitions: tuple[tuple[int, ...], ...]
    accepting: int


def compile_pattern(pattern: str, letters: Sequence[str]) -> PatternTable:
    """The automaton of ``pattern``: its states are sets of places that the last element may have matched.

    Raises PipelineError if the pattern is none or needs more than ``MAX_STATES`` states.
    """
    places = _Places(parse_pattern(pattern))
    codes = [frozenset(a for i, a in enumerate(letters) if code >> i & 1) for code in range(1 << len(letters))]
    numbers: dict[frozenset[int] | None, int] = {frozenset(): 0}  # None: a match has ended
    rows: list[list[int]] = []
    pending: list[frozenset[int] | None] = [frozenset()]
    for state in pending:  # grows while it is walked
        row = []
        for true_letters in codes:
            following = None if state is None else places.next_places(state, true_letters)
            if following not in numbers:
                numbers[following] = len(numbers)
                pending.append(following)
            row.append(numbers[following])
        rows.append(row)
        if len(numbers) > MAX_STATES:
            raise PipelineError(f"pattern {pattern!r} needs more than {MAX_STATES} states; repeat less")
    if None not in numbers:
        raise PipelineError(f"pattern {pattern!r} matches nothing")
    return PatternTable(tuple(letters), tuple(map(tuple, rows)), numbers[None])


class _Places:
    """The symbols of an expression, numbered: where a match may begin and end, and what may follow what (Glushkov)."""

    def __init__(self, regex: EventRegex) -> None:
        self._symbols: list[Symbol] = []
        self._follow: list[set[int]] = []
        self._first, self._last = self._number_places(regex)

    def _number_places(self, regex: EventRegex) -> tuple[set[int], set[int]]:
        """First and last places of ``regex``, whose symbols it numbers."""
        match regex:
            case Symbol():
                self._symbols.append(regex)
                self._follow.append(set())
                return {len(self._symbols) - 1}, {len(self._symbols) - 1}
            case Then(a, b):
                (first, end), (begin, last) = self._number_places(a), self._number_places(b)
                self._connect_places(end, begin)
                return first | (begin if is_nullable(a) else set()), last | (end if is_nullable(b) else set())
            case Either(a, b):
                (first, end), (begin, last) = self._number_places(a), self._number_places(b)
                return first | begin, end | last
            case Star(inner):
                first, last = self._number_places(inner)
                self._connect_places(last, first)
                return first, last
        return set(), set()

    def _connect_places(self, ends: set[int], begins: set[int]) -> None:
        for place in ends:
            self._follow[place] |= begins

    def next_places(self, state: frozenset[int], satisfied_letters: frozenset[str]) -> frozenset[int] | None:
        """The places that an element may match; None if a match ends there."""
        following_places = self._first.union(*(self._follow[place] for place in state))
        reached_places = frozenset(
            place for place in following_places if self._symbols[place].matches(satisfied_letters)
        )
        return None if reached_places & self._last else reached_places


@register_word("after punctuation", predicate=REQUIRED)
@check_keywords
@dataclass(frozen=True, eq=False)
class AfterPunctuation(elementary.ElementTrigger):
    """Fires once an element has arrived for which ``predicate`` is TRUE (semantics 9.4).

    Elements after it in its bundle join the pane.

    >>> early = hr.AfterPunctuation(hr.col("kind") == "end of day")
    >>> hr.AfterWatermark(early=early).may_finish
    True
    """

    predicate: Expr

    def __post_init__(self) -> None:
        require_expression(Arguments("AfterPunctuation"), "predicate", self.predicate)


@elementary.condition.register(AfterPunctuation)
def _(trigger: AfterPunctuation) -> str:
    return f"an element has arrived for which {render(trigger.predicate)}"


@elementary.missing.register(AfterPunctuation)
def _(trigger: AfterPunctuation, progress: elementary.TriggerProgress) -> str:
    return f"an element for which {render(trigger.predicate)}"


@elementary.inputs.register(AfterPunctuation)
def _(trigger: AfterPunctuation) -> list[Expr]:
    return [trigger.predicate]


@predicates.register(AfterPunctuation)
def _(trigger: AfterPunctuation, schema: Schema) -> list[elementary.TriggerPredicate]:
    return [elementary.TriggerPredicate("AfterPunctuation", trigger.predicate, schema)]


@register_word("data driven", what=REQUIRED, ready_if=REQUIRED)
@check_keywords
@dataclass(frozen=True, eq=False)
class DataDriven(elementary.ElementTrigger):
    """Fires once ``ready_if`` is TRUE of aggregates over the elements since its own last reset, which need not be the
    last pane (semantics 12.7)::

        DataDriven({"total": col("amount").sum(), "n": count()}, (col("total") > 100) & (col("n") >= 3))

    It is asked at the end of a bundle, so what was TRUE only within one does not count. A retraction counts as what it
    is for a trigger, one more element. The aggregates may be count, sum, min, max and mean.

    >>> hr.DataDriven({"n": hr.count()}, hr.col("n") >= 3).may_finish
    True
    """

    what: Mapping[str, Aggregate]
    ready_if: Expr

    ALLOWED_COMBINERS = frozenset({Combiner.COUNT, Combiner.SUM, Combiner.MIN, Combiner.MAX, Combiner.MEAN})

    def __post_init__(self) -> None:
        arguments = Arguments("DataDriven")
        arguments.mapping("what", self.what, Aggregate, '{"name": aggregate}, such as {"total": col("amount").sum()}')
        require_expression(arguments, "ready_if", self.ready_if)
        for name, aggregate in self.what.items():
            if aggregate.combiner not in self.ALLOWED_COMBINERS:
                raise PipelineError(
                    f"DataDriven cannot look at {aggregate.combiner} ({name!r}); "
                    f"use {', '.join(sorted(self.ALLOWED_COMBINERS))}"
                )


@elementary.condition.register(DataDriven)
def _(trigger: DataDriven) -> str:
    names = ", ".join(f"{name} = {render_aggregate(aggregate)}" for name, aggregate in trigger.what.items())
    return f"{render(trigger.ready_if)} ({names})"


@elementary.missing.register(DataDriven)
def _(trigger: DataDriven, progress: elementary.TriggerProgress) -> str:
    totals_text = ", ".join(f"{name} = {value}" for name, value in progress.totals.items())
    return f"{render(trigger.ready_if)} (so far {totals_text})"


@elementary.inputs.register(DataDriven)
def _(trigger: DataDriven) -> list[Expr]:
    return [expr for aggregate in trigger.what.values() for expr in aggregate.inputs]


@predicates.register(DataDriven)
def _(trigger: DataDriven, schema: Schema) -> list[elementary.TriggerPredicate]:
    return [elementary.TriggerPredicate("DataDriven", trigger.ready_if, readable_types(trigger.what, schema))]


@register_word("after pattern", pattern=REQUIRED, predicates=REQUIRED)
@check_keywords
@dataclass(frozen=True, eq=False)
class AfterPattern(elementary.ElementTrigger):
    """Fires once a run of elements in their order of arrival matches ``pattern`` (semantics 9.6)::

        AfterPattern("ab*c", {"a": col("v") > 9, "b": col("v") > 5, "c": col("v") <= 5})

    The letters of the regular expression ``pattern`` name ``predicates``; an element may satisfy
    several. A match may begin at any element since the last reset. When windows merge the search restarts: progress is
    lost, data is not.

    >>> hr.AfterPattern("ab", {"a": hr.col("v") > 9, "b": hr.col("v") < 1}).pattern
    'ab'
    """

    pattern: str
    predicates: Mapping[str, Expr]

    def __post_init__(self) -> None:
        arguments = Arguments("AfterPattern")
        arguments.text("pattern", self.pattern, "ab*c")
        arguments.mapping("predicates", self.predicates, Expr, '{"a": condition}, such as {"a": col("v") > 9}')
        regex = parse_pattern(self.pattern)
        for name in self.predicates:
            if len(name) != 1 or not name.isalpha():
                raise PipelineError(f"AfterPattern names its predicates by single letters, not {name!r}")
        different = letters_of(regex) ^ self.predicates.keys()
        if different:
            names = ", ".join(sorted(different))
            raise PipelineError(f"pattern {self.pattern!r} and its predicates do not name the same letters: {names}")
        if len(self.predicates) > MAX_PREDICATES:
            raise PipelineError(f"AfterPattern takes at most {MAX_PREDICATES} predicates, not {len(self.predicates)}")
        if is_nullable(regex):
            raise PipelineError(f"pattern {self.pattern!r} matches before any element came; demand at least one")
        _ = self.table

    @cached_property
    def table(self) -> PatternTable:
        """Its automaton over codes of elements, bit i for the i-th of ``predicates``."""
        return compile_pattern(self.pattern, list(self.predicates))


@elementary.condition.register(AfterPattern)
def _(trigger: AfterPattern) -> str:
    letters = ", ".join(f"{letter}: {render(predicate)}" for letter, predicate in trigger.predicates.items())
    return f"elements in their order of arrival match {trigger.pattern!r} ({letters})"


@elementary.missing.register(AfterPattern)
def _(trigger: AfterPattern, progress: elementary.TriggerProgress) -> str:
    match_state = "a match has begun" if progress.state["at"] else "no match has begun"
    return f"elements in their order of arrival that match {trigger.pattern!r} ({match_state})"


@elementary.inputs.register(AfterPattern)
def _(trigger: AfterPattern) -> list[Expr]:
    return [*trigger.predicates.values()]


@predicates.register(AfterPattern)
def _(trigger: AfterPattern, schema: Schema) -> list[elementary.TriggerPredicate]:
    named_predicates = trigger.predicates.items()
    return [
        elementary.TriggerPredicate(f"AfterPattern, {name!r},", predicate, schema)
        for name, predicate in named_predicates
    ]
