"""What open windows wait for: each node of their trigger, whether it is ready, and what would make it so.

Whether a node is ready is asked of the program that epochs run; this module only has the words.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch
from typing import Any

import pyarrow as pa

from headrace.describe.triggers import condition as condition_of
from headrace.distribute.clocks import StageClocks
from headrace.kernel.expressions.evaluation import evaluate
from headrace.kernel.stage import CompiledStage
from headrace.model.custom_triggers import CustomTrigger, state_types
from headrace.model.expressions.expr import Expr, coalesce, col
from headrace.model.expressions.expr import render as render_expr
from headrace.model.time import GLOBAL_WINDOW_END, Instant, render
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterBytes,
    AfterCount,
    AfterEach,
    AfterPattern,
    AfterPercentileWatermark,
    AfterProcessingTime,
    AfterPunctuation,
    AfterSignal,
    AfterSynchronizedProcessingTime,
    AfterWatermark,
    Always,
    DataDriven,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from headrace.program import columns as c
from headrace.program.lets import Program
from headrace.program.triggers import Moment, Node, columns
from headrace.program.triggers.custom import state_field
from headrace.program.triggers.leaves import DataNode

ASKED = "another element: the trigger is ready, and the next epoch that brings one gives a pane"

_WORDS: Mapping[type[Trigger], str] = {
    AfterWatermark: "around the end of the window",
    Repeatedly: "again and again",
    AfterAny: "any of these",
    AfterAll: "all of these at the same moment",
    AfterEach: "each of these in turn",
    OrFinally: "the first of these, until the other ends it",
}
"""A trigger that has parts, where these are told one by one."""


@dataclass(frozen=True)
class TriggerCondition:
    """A node of a trigger. ``is_met``: it is ready, or has fired for good; ``waits_for``: what would make it ready,
    None if it is met or nobody asks it now; ``part``: what it is of the node above it, if that has parts of its own.
    """

    condition: str
    is_met: bool
    waits_for: str | None
    parts: tuple["TriggerCondition", ...] = ()
    part: str = ""

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            **({"part": self.part} if self.part else {}),
            "condition": self.condition,
            "is_met": self.is_met,
            "waits_for": self.waits_for,
            "parts": [part.to_json() for part in self.parts],
        }


@dataclass(frozen=True)
class WindowFacts:
    """What is known of one window: its row of state, the clocks, which nodes are ``ready`` and have ``finished``, what
    data-driven ones have seen (``totals``). ``held``: who holds the watermark back, in words.
    """

    row: Mapping[str, Any]
    clocks: StageClocks
    ready: Mapping[str, bool]
    finished: Mapping[str, bool]
    totals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    held: str = ""

    @property
    def end(self) -> Instant:
        """The end of the window."""
        return Instant(self.row[c.WINDOW_END])

    @property
    def passed_end(self) -> bool:
        """Whether the watermark has passed it."""
        return self.clocks.watermark > self.end - 1

    def passing(self, watermark: str, stands: Instant) -> str:
        """What is missing until ``watermark``, which ``stands`` there, has passed the window."""
        at = f"it stands at {render(stands)}{self.held}"
        if self.end >= GLOBAL_WINDOW_END:
            return f"{watermark} to come to the end of the input ({at})"
        return f"{watermark} to pass {render(self.end)} ({at})"


@dataclass(frozen=True)
class Questions:
    """A program, and its results: of each node by its path whether it is ready, has finished, has seen what."""

    program: Program
    ready: Mapping[str, Expr]
    finished: Mapping[str, Expr]
    totals: Mapping[str, Mapping[str, Expr]]


@dataclass(frozen=True)
class Readiness:
    """The trigger of ``stage``, to be asked of rows of its state."""

    stage: CompiledStage

    @cached_property
    def _questions(self) -> Questions:
        program, root = Program(), self.stage.trigger
        end = col(c.WINDOW_END) - 1
        percentiles = {q: col(f"{c.PERCENTILE_AFTER}{i}") > end for i, q in enumerate(sorted(root.percentiles))}
        moment = Moment(col(c.WATERMARK_AFTER) > end, col(c.PROCESSING_TIME), percentiles)
        state, nodes = columns(root), [*_nodes(root)]
        return Questions(
            program,
            {node.path: node.ready(program, state, moment) for node in nodes},
            {node.path: node.finished(state) for node in nodes},
            {node.path: node.results for node in nodes if isinstance(node, DataNode)},
        )

    @property
    def _decisive(self) -> list[str]:
        """The columns that all answers depend on."""
        return [c.WINDOW_START, c.WINDOW_END, *(each.name for each in self.stage.trigger.fields)]

    def words(self, rows: pa.RecordBatch, clocks: StageClocks) -> list[str]:
        """What each of ``rows``, which are state of open windows, waits for; worked out once for all that are alike."""
        alike = list(zip(*(rows.column(name).to_pylist() for name in self._decisive), strict=True))
        first: dict[tuple[Any, ...], int] = {}
        for number, each in enumerate(alike):
            first.setdefault(each, number)
        found = self.facts(rows.select([*self._decisive, c.NEW]).take(pa.array([*first.values()], pa.int64())), clocks)
        said = dict(zip(first, (waits_for(self.condition(facts)) for facts in found), strict=True))
        return [said[each] for each in alike]

    def facts(self, rows: pa.RecordBatch, clocks: StageClocks, held: str = "") -> Iterator[WindowFacts]:
        """What is known of each of ``rows``, which are state of open windows, under ``clocks``."""
        asked = self._questions
        known: dict[str, Any] = {name: rows.column(name) for name in rows.schema.names}
        times = {c.WATERMARK_AFTER: clocks.watermark, c.PROCESSING_TIME: clocks.processing_time}
        for i, q in enumerate(sorted(self.stage.trigger.percentiles)):
            times[f"{c.PERCENTILE_AFTER}{i}"] = _percentile(clocks, q)
        known |= {name: pa.scalar(int(at), pa.int64()) for name, at in times.items()}
        for name, expr in asked.program.lets.items():
            known[name] = evaluate(expr, known)

        def answered(questions: Mapping[str, Expr]) -> list[dict[str, Any]]:
            """The answers for each row, by the names of the questions."""
            answers = [_listed(evaluate(expr, known), rows.num_rows) for expr in questions.values()]
            return [dict(zip(questions, of_row, strict=True)) for of_row in zip(*answers, strict=True)]

        ready, finished = answered(_settled(asked.ready)), answered(_settled(asked.finished))
        totals = {path: answered(results) for path, results in asked.totals.items()}
        for number, row in enumerate(rows.select([*self._decisive, c.NEW]).to_pylist()):
            seen = {path: each[number] for path, each in totals.items()}
            yield WindowFacts(row, clocks, ready[number], finished[number], seen, held)

    def condition(self, facts: WindowFacts) -> TriggerCondition:
        """The whole trigger of a window."""
        return condition(self.stage.stage.when, self.stage.trigger, facts)


def waits_for(found: TriggerCondition) -> str:
    """What a whole trigger waits for."""
    return found.waits_for or ASKED


@singledispatch
def condition(trigger: Trigger, node: Node, facts: WindowFacts) -> TriggerCondition:
    """``trigger``, compiled to ``node``, in a window of which ``facts`` are known."""
    is_met = facts.ready[node.path] or facts.finished[node.path]
    return TriggerCondition(condition_of(trigger), is_met, None if is_met else missing(trigger, node, facts))


@singledispatch
def missing(trigger: Trigger, node: Node, facts: WindowFacts) -> str:
    """What a trigger without children that is not ready waits for."""
    return condition_of(trigger)


@missing.register
def _(trigger: Never, node: Node, facts: WindowFacts) -> str:
    return "nothing: what the window holds is emitted when it expires"


@missing.register
def _(trigger: Always, node: Node, facts: WindowFacts) -> str:
    return ASKED


@missing.register(Default)
@missing.register(AfterWatermark)
def _(trigger: Default | AfterWatermark, node: Node, facts: WindowFacts) -> str:
    return facts.passing("the watermark", facts.clocks.watermark)


@missing.register
def _(trigger: AfterPercentileWatermark, node: Node, facts: WindowFacts) -> str:
    watermark = f"the watermark of the fastest {trigger.percentile:g} % of the input"
    return facts.passing(watermark, _percentile(facts.clocks, trigger.percentile))


@missing.register
def _(trigger: AfterCount, node: Node, facts: WindowFacts) -> str:
    total = facts.row[f"{node.path}_total"]
    more = trigger.count - total
    return f"{more:,} more element{'s' if more > 1 else ''} ({total:,} of {trigger.count:,} so far)"


@missing.register
def _(trigger: AfterBytes, node: Node, facts: WindowFacts) -> str:
    total = facts.row[f"{node.path}_total"]
    return f"elements of {trigger.size - total:,} more bytes ({total:,} of {trigger.size:,} so far)"


@missing.register
def _(trigger: AfterPunctuation, node: Node, facts: WindowFacts) -> str:
    return f"an element for which {render_expr(trigger.predicate)}"


@missing.register
def _(trigger: DataDriven, node: Node, facts: WindowFacts) -> str:
    seen = ", ".join(f"{name} = {value}" for name, value in facts.totals[node.path].items())
    return f"{render_expr(trigger.ready_if)} (so far {seen})"


@missing.register
def _(trigger: AfterPattern, node: Node, facts: WindowFacts) -> str:
    begun = "a match has begun" if facts.row[f"{node.path}_at"] else "no match has begun"
    return f"elements in their order of arrival that match {trigger.pattern!r} ({begun})"


@missing.register
def _(trigger: AfterSignal, node: Node, facts: WindowFacts) -> str:
    return f"the signal {trigger.name!r} (headrace run --signal {trigger.name})"


@missing.register
def _(trigger: AfterProcessingTime, node: Node, facts: WindowFacts) -> str:
    deadline = facts.row[f"{node.path}_deadline"]
    if deadline is None:
        return f"an element (none has arrived since the last firing), and then that {condition_of(trigger)}"
    ran = f"the newest epoch ran at {render(facts.clocks.processing_time)}, and the first run from then on looks again"
    return f"processing time {render(Instant(deadline))} ({ran})"


@missing.register
def _(trigger: AfterSynchronizedProcessingTime, node: Node, facts: WindowFacts) -> str:
    return "an element"


@missing.register
def _(trigger: CustomTrigger, node: Node, facts: WindowFacts) -> str:
    names = state_types(trigger)
    state = {name: facts.row[f"{node.path}_{state_field(i)}"] for i, name in enumerate(names)}
    deadline = facts.row[f"{node.path}_deadline"]
    due = "" if deadline is None else f", and it is asked at {render(Instant(deadline))}"
    return f"{trigger!r}, a trigger of your own, to be ready; its state is {state}{due}"


@condition.register
def _(trigger: AfterWatermark, node: Node, facts: WindowFacts) -> TriggerCondition:
    if not trigger.children:
        is_met = facts.ready[node.path] or facts.finished[node.path]
        return TriggerCondition(condition_of(trigger), is_met, None if is_met else missing(trigger, node, facts))
    has_passed = bool(facts.row[f"{node.path}_late_phase"])
    end = None if has_passed or facts.passed_end else missing(trigger, node, facts)
    on_time = TriggerCondition("the watermark passes the end of the window", facts.passed_end, end, part="on time")
    nodes = iter(node.children)
    parts = [on_time]
    if trigger.early is not None:
        early = condition(trigger.early, next(nodes), facts)
        parts.insert(0, _of(early, "early", is_asked=not has_passed))
    if trigger.late is not None:
        parts.append(_of(condition(trigger.late, next(nodes), facts), "late", is_asked=has_passed))
    waiting = [f"{part.part}: {part.waits_for}" for part in parts if part.waits_for]
    is_met = facts.ready[node.path] or facts.finished[node.path]
    return TriggerCondition(_WORDS[AfterWatermark], is_met, "; or ".join(waiting) or None, tuple(parts))


@condition.register
def _(trigger: Repeatedly, node: Node, facts: WindowFacts) -> TriggerCondition:
    part = condition(trigger.trigger, node.children[0], facts)
    return TriggerCondition(_WORDS[Repeatedly], facts.ready[node.path], part.waits_for, (part,))


@condition.register
def _(trigger: AfterAny, node: Node, facts: WindowFacts) -> TriggerCondition:
    return _of_several(trigger, node, facts, trigger.triggers, ", or ")


@condition.register
def _(trigger: AfterAll, node: Node, facts: WindowFacts) -> TriggerCondition:
    return _of_several(trigger, node, facts, trigger.triggers, ", and at the same moment ")


@condition.register
def _(trigger: OrFinally, node: Node, facts: WindowFacts) -> TriggerCondition:
    main, until = (condition(part, each, facts) for part, each in zip(trigger.children, node.children, strict=True))
    until = _of(until, "for the last time", is_asked=True)
    waiting = [part.waits_for for part in (main, until) if part.waits_for]
    return _whole(trigger, node, facts, ", or ".join(waiting), (main, until))


@condition.register
def _(trigger: AfterEach, node: Node, facts: WindowFacts) -> TriggerCondition:
    parts: list[TriggerCondition] = []
    is_asked = True
    for number, (part, each) in enumerate(zip(trigger.triggers, node.children, strict=True), start=1):
        parts.append(_of(condition(part, each, facts), f"number {number}", is_asked=is_asked))
        is_asked = is_asked and facts.finished[each.path]
    return _whole(trigger, node, facts, next((p.waits_for for p in parts if p.waits_for), None), tuple(parts))


def _of_several(
    trigger: Trigger, node: Node, facts: WindowFacts, triggers: Iterable[Trigger], joint: str
) -> TriggerCondition:
    parts = tuple(condition(part, each, facts) for part, each in zip(triggers, node.children, strict=True))
    waiting = joint.join(part.waits_for for part in parts if part.waits_for)
    return _whole(trigger, node, facts, waiting, parts)


def _whole(
    trigger: Trigger, node: Node, facts: WindowFacts, waiting: str | None, parts: tuple[TriggerCondition, ...]
) -> TriggerCondition:
    is_met = facts.ready[node.path] or facts.finished[node.path]
    return TriggerCondition(_WORDS[type(trigger)], is_met, None if is_met else waiting or None, parts)


def _of(found: TriggerCondition, part: str, *, is_asked: bool) -> TriggerCondition:
    """``found`` as a part of the node above it; what nobody asks now waits for nothing."""
    return replace(found if is_asked else _silent(found), part=part)


def _silent(found: TriggerCondition) -> TriggerCondition:
    """``found``, and its parts, without what they wait for."""
    return replace(found, waits_for=None, parts=tuple(map(_silent, found.parts)))


def _settled(questions: Mapping[str, Expr]) -> dict[str, Expr]:
    """``questions`` whose answer is not NULL, but no."""
    return {name: coalesce(expr, False) for name, expr in questions.items()}


def _nodes(root: Node) -> Iterator[Node]:
    yield root
    for child in root.children:
        yield from _nodes(child)


def _percentile(clocks: StageClocks, q: float) -> Instant:
    """The watermark of the fastest ``q`` %, which is never below the watermark."""
    return Instant(max(clocks.percentiles.get(q, clocks.watermark), clocks.watermark))


def _listed(found: Any, length: int) -> list[Any]:
    return [found.as_py()] * length if isinstance(found, pa.Scalar) else list(found.to_pylist())
