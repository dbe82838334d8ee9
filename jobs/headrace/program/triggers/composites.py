"""Triggers made of other triggers."""

from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr
from headrace.model.triggers.composites import AfterAll, AfterAny, AfterEach, AfterWatermark, OrFinally, Repeatedly
from headrace.program.columns import FALSE, Program, all_of, any_of, choose, negate
from headrace.program.triggers.leaves import WatermarkNode
from headrace.program.triggers.node import (
    Bundle,
    ColumnMerge,
    Field,
    Moment,
    Node,
    State,
    TriggerPlace,
    compile_children,
    compile_trigger,
)


class RepeatedlyNode(Node):
    """Fires its child and starts it again when it finishes."""

    @property
    def ready_past_end(self) -> bool:
        return self.children[0].ready_past_end

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return self.children[0].is_ready(program, state, moment)

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        child = self.children[0]
        fired_state = child.on_fire(program, state, when, moment)
        restarts = program.let("restart", all_of(when, child.is_finished(fired_state)))
        return child.reset(fired_state, restarts)


@compile_trigger.register
def _(trigger: Repeatedly, place: TriggerPlace) -> Node:
    return RepeatedlyNode(place.path, (compile_trigger(trigger.trigger, place.child_place("r")),))


class EarlyLateNode(Node):
    """AfterWatermark with early and/or late: early until the end of the window, then once, then late; both repeat."""

    ready_past_end = True

    def __init__(self, path: str, early: Node | None, late: Node | None, merging: bool) -> None:
        super().__init__(path, tuple(n for n in (early, late) if n is not None))
        self.early, self.late, self.merging = early, late, merging
        self._late_phase = f"{path}_late_phase"
        self.own = (Field(self._late_phase, DataType.BOOL, FALSE, ColumnMerge.ALL),)

    def is_finished(self, state: State) -> Expr:
        return FALSE if self.late else state[self._late_phase]

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        if self.merging:  # a merge may revive either phase
            return super().on_element(program, state, bundle, moment)
        late = state[self._late_phase]
        if self.early:
            state = self.early.on_element(program, state, bundle.where(negate(late)), moment)
        if self.late:
            state = self.late.on_element(program, state, bundle.where(late), moment)
        return state

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        early = self.early.is_ready(program, state, moment) if self.early else FALSE
        late = self.late.is_ready(program, state, moment) if self.late else FALSE
        first = any_of(early, moment.passed_end)
        return program.let("ready", choose(state[self._late_phase], late, first))

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        late_phase = state[self._late_phase]
        ends = program.let("ends", all_of(when, negate(late_phase), moment.passed_end))
        result = state
        if self.early:
            speculative = program.let("speculative", all_of(when, negate(late_phase), negate(moment.passed_end)))
            result = self.early.reset(
                self.early.on_fire(program, result, speculative, moment), any_of(speculative, ends)
            )
        if self.late:
            fires_again = program.let("again", all_of(when, late_phase))
            result = self.late.reset(self.late.on_fire(program, result, fires_again, moment), any_of(fires_again, ends))
        return {**result, self._late_phase: any_of(late_phase, ends)}

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        late_phase = program.let("late_phase", all_of(state[self._late_phase], moment.passed_end))
        state = super().after_merge(program, state, moment)
        if self.early:
            state = self.early.reset(state, late_phase)
        if self.late:
            state = self.late.reset(state, negate(late_phase))
        return {**state, self._late_phase: late_phase}


@compile_trigger.register
def _(trigger: AfterWatermark, place: TriggerPlace) -> Node:
    if not trigger.children:
        return WatermarkNode(place.path)
    early = None if trigger.early is None else compile_trigger(trigger.early, place.child_place("e"))
    late = None if trigger.late is None else compile_trigger(trigger.late, place.child_place("l"))
    return EarlyLateNode(place.path, early, late, place.merging)


class _FinishingNode(Node):
    """A composite that finishes independently of its children (semantics 4.1)."""

    def __init__(self, path: str, children: tuple[Node, ...]) -> None:
        super().__init__(path, children)
        self._done_column = f"{path}_done"
        self.own = (Field(self._done_column, DataType.BOOL, FALSE, ColumnMerge.ANY),)

    def is_finished(self, state: State) -> Expr:
        return state[self._done_column]

    def _with_done(self, program: Program, state: State, is_done: Expr) -> State:
        return {**state, self._done_column: program.let("done", is_done)}

    def _done_or_ready(self, program: Program, state: State, moment: Moment) -> list[Expr]:
        return [any_of(child.is_finished(state), child.is_ready(program, state, moment)) for child in self.children]


class _FirstNode(_FinishingNode):
    """A composite that is ready and over as soon as one of its children is."""

    @property
    def ready_past_end(self) -> bool:
        return any(child.ready_past_end for child in self.children)

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        state = super().after_merge(program, state, moment)
        return self._with_done(program, state, any_of(*(child.is_finished(state) for child in self.children)))


class AnyNode(_FirstNode):
    """AfterAny: fires the ready ones, clears the others."""

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return program.let("ready", any_of(*self._done_or_ready(program, state, moment)))

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        result = state
        for child in self.children:
            fires = program.let("fires", all_of(when, child.is_ready(program, state, moment)))
            result = child.clear(program, child.on_fire(program, result, fires, moment), all_of(when, negate(fires)))
        return self._with_done(program, result, any_of(state[self._done_column], when))


@compile_trigger.register
def _(trigger: AfterAny, place: TriggerPlace) -> Node:
    return AnyNode(place.path, compile_children(trigger.triggers, place))


class AllNode(_FinishingNode):
    """AfterAll: fires when every child is ready or finished at the same evaluation."""

    @property
    def ready_past_end(self) -> bool:
        return all(child.ready_past_end for child in self.children)

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return program.let("ready", all_of(*self._done_or_ready(program, state, moment)))

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        result = state
        for child in self.children:
            fires = program.let("fires", all_of(when, negate(child.is_finished(state))))
            result = child.on_fire(program, result, fires, moment)
        return self._with_done(program, result, any_of(state[self._done_column], when))

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        state = super().after_merge(program, state, moment)
        return self._with_done(program, state, all_of(*(child.is_finished(state) for child in self.children)))


@compile_trigger.register
def _(trigger: AfterAll, place: TriggerPlace) -> Node:
    return AllNode(place.path, compile_children(trigger.triggers, place))


class EachNode(_FinishingNode):
    """AfterEach: its position is the first unfinished child; a merge may move it back."""

    def __init__(self, path: str, children: tuple[Node, ...], merging: bool) -> None:
        super().__init__(path, children)
        self.merging = merging

    def _current_children(self, program: Program, state: State) -> list[Expr]:
        all_before_done: Expr = all_of()
        current = []
        for child in self.children:
            is_finished = child.is_finished(state)
            current.append(program.let("current", all_of(all_before_done, negate(is_finished))))
            all_before_done = program.let("behind", all_of(all_before_done, is_finished))
        return current

    def _all_finished(self, program: Program, state: State) -> Expr:
        return all_of(*(child.is_finished(state) for child in self.children))

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        if self.merging:
            return super().on_element(program, state, bundle, moment)
        all_before_done: Expr = all_of()
        result = state
        for child in self.children:
            is_finished = child.is_finished(state)
            result = child.on_element(
                program, result, bundle.where(all_of(all_before_done, negate(is_finished))), moment
            )
            all_before_done = all_of(all_before_done, is_finished)
        return result

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        current = self._current_children(program, state)
        parts = [
            all_of(is_current, child.is_ready(program, state, moment))
            for is_current, child in zip(current, self.children, strict=True)
        ]
        return program.let("ready", any_of(*parts))

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        current = self._current_children(program, state)
        result = state
        for is_current, child in zip(current, self.children, strict=True):
            fires = program.let("fires", all_of(when, is_current))
            result = child.clear(
                program, child.on_fire(program, result, fires, moment), all_of(when, negate(is_current))
            )
        return self._with_done(
            program, result, any_of(state[self._done_column], all_of(when, self._all_finished(program, result)))
        )

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        open_before: Expr = FALSE  # whether a predecessor is unfinished after the merge: then the rest starts fresh
        for child in self.children:
            state = child.reset(child.after_merge(program, state, moment), open_before)
            open_before = program.let("open_before", any_of(open_before, negate(child.is_finished(state))))
        return self._with_done(program, state, self._all_finished(program, state))


@compile_trigger.register
def _(trigger: AfterEach, place: TriggerPlace) -> Node:
    return EachNode(place.path, compile_children(trigger.triggers, place), place.merging)


class OrFinallyNode(_FirstNode):
    """OrFinally: main until ``until`` fires, which keeps its progress while main fires."""

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return program.let("ready", any_of(*(child.is_ready(program, state, moment) for child in self.children)))

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        main, until_child = self.children
        ends = program.let("ends", all_of(when, until_child.is_ready(program, state, moment)))
        goes_on = program.let("goes_on", all_of(when, negate(ends)))
        result = until_child.on_fire(program, state, ends, moment)
        result = main.clear(program, main.on_fire(program, result, goes_on, moment), ends)
        has_ended = any_of(main.is_finished(result), until_child.is_finished(result))
        return self._with_done(program, result, any_of(state[self._done_column], all_of(when, has_ended)))


@compile_trigger.register
def _(trigger: OrFinally, place: TriggerPlace) -> Node:
    return OrFinallyNode(place.path, compile_children(trigger.children, place))
