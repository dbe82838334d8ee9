"""Triggers without children."""

from headrace.engine.program import FALSE, TRUE, Program, all_of, any_of, choose
from headrace.engine.triggers.node import Bundle, Field, Fold, Measure, Moment, Node, State
from headrace.model.expr import Column, DataType, Expr, Literal, coalesce
from headrace.model.triggers import AfterProcessingTime

NO_DEADLINE = Literal(None, DataType.INT)


class _Memoryless(Node):
    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return state


class DefaultNode(_Memoryless):
    """Ready whenever the watermark is past the end; never finishes."""

    ready_past_end = True

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return moment.passed_end


class NeverNode(_Memoryless):
    """Never ready."""

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return FALSE


class AlwaysNode(_Memoryless):
    """Ready whenever it is asked."""

    ready_past_end = True

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return TRUE


class WatermarkNode(Node):
    """AfterWatermark without early or late: fires once when the watermark passes the end."""

    ready_past_end = True

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._done = f"{path}_done"
        self.own = (Field(self._done, DataType.BOOL, FALSE, Fold.ALL),)

    def finished(self, state: State) -> Expr:
        return state[self._done]

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return moment.passed_end

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return {**state, self._done: any_of(state[self._done], when)}

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        return {**state, self._done: program.let("done", all_of(state[self._done], self.ready(program, state, moment)))}


class PercentileNode(WatermarkNode):
    """AfterPercentileWatermark: as above, on the watermark of the fastest q % (semantics 9.2)."""

    ready_past_end = True

    def __init__(self, path: str, percentile: float) -> None:
        super().__init__(path)
        self._percentile = percentile
        self.own_percentiles = (percentile,)

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return moment.percentiles[self._percentile]


class ThresholdNode(Node):
    """AfterCount, AfterBytes, AfterPunctuation: ready once what elements add up to since the last reset is enough.

    ``weight`` is what each element adds, None for one (retractions count as elements).
    """

    def __init__(self, path: str, threshold: int, weight: Expr | None = None) -> None:
        super().__init__(path)
        self._threshold = Literal(threshold)
        self._total, self._done, self._added = f"{path}_total", f"{path}_done", f"{path}_added"
        self._weighs = weight is not None
        self.own = (
            Field(self._total, DataType.INT, Literal(0), Fold.SUM),
            Field(self._done, DataType.BOOL, FALSE, Fold.ANY),
        )
        if weight is not None:
            self.own_measures = (Measure(self._added, DataType.INT, weight, Fold.SUM),)

    def finished(self, state: State) -> Expr:
        return state[self._done]

    def clear(self, state: State, when: Expr) -> State:
        return {**state, self._total: choose(when, 0, state[self._total])}

    def on_element(self, state: State, bundle: Bundle, moment: Moment) -> State:
        added = coalesce(Column(self._added), 0) if self._weighs else bundle.count
        return {**state, self._total: choose(bundle.arrived, state[self._total] + added, state[self._total])}

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return state[self._total] >= self._threshold

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return {**self.clear(state, when), self._done: any_of(state[self._done], when)}

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        return self.clear(state, state[self._done])


class ProcessingTimeNode(Node):
    """AfterProcessingTime: a deadline set by the first element since the last reset; merged, the earliest wins."""

    def __init__(self, path: str, trigger: AfterProcessingTime) -> None:
        super().__init__(path)
        self.trigger = trigger
        self._deadline = f"{path}_deadline"
        self._done = f"{path}_done"
        self.own = (
            Field(self._deadline, DataType.INT, NO_DEADLINE, Fold.MIN, is_deadline=True),
            Field(self._done, DataType.BOOL, FALSE, Fold.ALL),
        )

    def finished(self, state: State) -> Expr:
        return state[self._done]

    def clear(self, state: State, when: Expr) -> State:
        return {**state, self._deadline: choose(when, NO_DEADLINE, state[self._deadline])}

    def _deadline_from(self, now: Expr) -> Expr:
        due = now + self.trigger.delay
        if self.trigger.align is None:
            return due
        return due + ((Literal(self.trigger.align_offset) - due) % self.trigger.align)

    def on_element(self, state: State, bundle: Bundle, moment: Moment) -> State:
        old = state[self._deadline]
        starts = all_of(bundle.arrived, old.is_null())
        return {**state, self._deadline: choose(starts, self._deadline_from(moment.now), old)}

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        deadline = state[self._deadline]
        return all_of(deadline.is_not_null(), moment.now >= deadline)

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return {**self.clear(state, when), self._done: any_of(state[self._done], when)}
