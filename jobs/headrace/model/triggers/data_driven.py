"""Triggers without children that look into elements (semantics 9.4, 9.6, 12.7)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments
from headrace.model.combiners import Aggregate, Combiner, render_aggregate
from headrace.model.expressions.coercion import expression
from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Expr, render
from headrace.model.expressions.typing import readable_types
from headrace.model.suggestions import keywords
from headrace.model.triggers.leaves import ElementTrigger
from headrace.model.triggers.patterns import (
    MAX_PREDICATES,
    PatternTable,
    compile_pattern,
    is_nullable,
    letters_of,
    parse_pattern,
)
from headrace.model.triggers.reads import TriggerPredicate, inputs, predicates
from headrace.model.triggers.words import TriggerProgress, condition, missing
from headrace.model.vocabulary import REQUIRED, word


@word("after punctuation", predicate=REQUIRED)
@keywords
@dataclass(frozen=True, eq=False)
class AfterPunctuation(ElementTrigger):
    """Fires once an element has arrived for which ``predicate`` is TRUE (semantics 9.4).

    Elements after it in its bundle join the pane.

    >>> early = hr.AfterPunctuation(hr.col("kind") == "end of day")
    >>> hr.AfterWatermark(early=early).may_finish
    True
    """

    predicate: Expr

    def __post_init__(self) -> None:
        expression(Arguments("AfterPunctuation"), "predicate", self.predicate)


@condition.register(AfterPunctuation)
def _(trigger: AfterPunctuation) -> str:
    return f"an element has arrived for which {render(trigger.predicate)}"


@missing.register(AfterPunctuation)
def _(trigger: AfterPunctuation, progress: TriggerProgress) -> str:
    return f"an element for which {render(trigger.predicate)}"


@inputs.register(AfterPunctuation)
def _(trigger: AfterPunctuation) -> list[Expr]:
    return [trigger.predicate]


@predicates.register(AfterPunctuation)
def _(trigger: AfterPunctuation, schema: Schema) -> list[TriggerPredicate]:
    return [TriggerPredicate("AfterPunctuation", trigger.predicate, schema)]


@word("data driven", what=REQUIRED, ready_if=REQUIRED)
@keywords
@dataclass(frozen=True, eq=False)
class DataDriven(ElementTrigger):
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

    ALLOWED = frozenset({Combiner.COUNT, Combiner.SUM, Combiner.MIN, Combiner.MAX, Combiner.MEAN})

    def __post_init__(self) -> None:
        given = Arguments("DataDriven")
        given.mapping("what", self.what, Aggregate, '{"name": aggregate}, such as {"total": col("amount").sum()}')
        expression(given, "ready_if", self.ready_if)
        for name, aggregate in self.what.items():
            if aggregate.combiner not in self.ALLOWED:
                raise PipelineError(
                    f"DataDriven cannot look at {aggregate.combiner} ({name!r}); use {', '.join(sorted(self.ALLOWED))}"
                )


@condition.register(DataDriven)
def _(trigger: DataDriven) -> str:
    names = ", ".join(f"{name} = {render_aggregate(aggregate)}" for name, aggregate in trigger.what.items())
    return f"{render(trigger.ready_if)} ({names})"


@missing.register(DataDriven)
def _(trigger: DataDriven, progress: TriggerProgress) -> str:
    seen = ", ".join(f"{name} = {value}" for name, value in progress.totals.items())
    return f"{render(trigger.ready_if)} (so far {seen})"


@inputs.register(DataDriven)
def _(trigger: DataDriven) -> list[Expr]:
    return [expr for aggregate in trigger.what.values() for expr in aggregate.inputs]


@predicates.register(DataDriven)
def _(trigger: DataDriven, schema: Schema) -> list[TriggerPredicate]:
    return [TriggerPredicate("DataDriven", trigger.ready_if, readable_types(trigger.what, schema))]


@word("after pattern", pattern=REQUIRED, predicates=REQUIRED)
@keywords
@dataclass(frozen=True, eq=False)
class AfterPattern(ElementTrigger):
    """Fires once a run of elements in their order of arrival matches ``pattern`` (semantics 9.6)::

        AfterPattern("ab*c", {"a": col("v") > 9, "b": col("v") > 5, "c": col("v") <= 5})

    The letters of the regular expression (``model.triggers.patterns``) name ``predicates``; an element may satisfy
    several. A match may begin at any element since the last reset. When windows merge the search restarts: progress is
    lost, data is not.

    >>> hr.AfterPattern("ab", {"a": hr.col("v") > 9, "b": hr.col("v") < 1}).pattern
    'ab'
    """

    pattern: str
    predicates: Mapping[str, Expr]

    def __post_init__(self) -> None:
        given = Arguments("AfterPattern")
        given.text("pattern", self.pattern, "ab*c")
        given.mapping("predicates", self.predicates, Expr, '{"a": condition}, such as {"a": col("v") > 9}')
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


@condition.register(AfterPattern)
def _(trigger: AfterPattern) -> str:
    letters = ", ".join(f"{letter}: {render(predicate)}" for letter, predicate in trigger.predicates.items())
    return f"elements in their order of arrival match {trigger.pattern!r} ({letters})"


@missing.register(AfterPattern)
def _(trigger: AfterPattern, progress: TriggerProgress) -> str:
    begun = "a match has begun" if progress.state["at"] else "no match has begun"
    return f"elements in their order of arrival that match {trigger.pattern!r} ({begun})"


@inputs.register(AfterPattern)
def _(trigger: AfterPattern) -> list[Expr]:
    return [*trigger.predicates.values()]


@predicates.register(AfterPattern)
def _(trigger: AfterPattern, schema: Schema) -> list[TriggerPredicate]:
    named = trigger.predicates.items()
    return [TriggerPredicate(f"AfterPattern, {name!r},", predicate, schema) for name, predicate in named]
