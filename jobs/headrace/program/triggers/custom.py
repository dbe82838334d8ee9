"""Triggers that users write (semantics 9.3): their states are columns, their methods calls."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Column, Expr, Function, Literal, lit
from headrace.model.expressions.functions import coalesce
from headrace.model.triggers.custom import CustomTrigger, state_types
from headrace.program import columns as c
from headrace.program.lets import FALSE, Call, Program, any_of, choose, is_literal
from headrace.program.triggers.compilation import TriggerPlace, compile_trigger
from headrace.program.triggers.node import Bundle, ColumnMerge, Field, Measure, Moment, Node, Sources, State

AT, RECORD = "at", "record"
"""Fields of an element in a list of elements."""

FINISHED, DEADLINE = "finished", "deadline"


def state_field(i: int) -> str:
    """What the ``i``-th field of a state is called among columns: users' names may have any characters."""
    return f"s{i}"


class CustomNode(Node):
    """A user's own trigger: a column for each field of its state, whether it has finished, and its deadline."""

    def __init__(self, path: str, trigger: CustomTrigger) -> None:
        super().__init__(path)
        self._trigger = trigger
        self._elements, self._sources = f"{path}_elements", f"{path}_sources"
        empty, types = trigger.create(), state_types(trigger)
        initial = [_literal(empty[name], kind) for name, kind in types.items()]
        kinds = [*types.values(), DataType.BOOL, DataType.INT]
        names = [*map(state_field, range(len(initial))), FINISHED, DEADLINE]
        values = [*initial, FALSE, _literal(trigger.deadline(empty), DataType.INT)]
        # of several windows on_merge makes one; the folds are for a window that is merged with nothing
        self._fields = {
            name: Field(f"{path}_{name}", _stored(kind), value, ColumnMerge.MIN, is_deadline=name == DEADLINE)
            for name, kind, value in zip(names, kinds, values, strict=True)
        }
        self.own = tuple(self._fields.values())
        self.own_signals = tuple(sorted({*trigger.signals}))
        self.own_measures = (Measure(self._elements, None, None, ColumnMerge.LIST),)
        if trigger.merges:
            progress = {name: field.name for name, field in self._fields.items() if name != DEADLINE}
            self.own_sources = (Sources(self._sources, progress),)

    def finished(self, state: State) -> Expr:
        return state[self._fields[FINISHED].name]

    def progress(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The state by the names that users gave it, and the deadline."""
        own = super().progress(row)
        names = state_types(self._trigger)
        return {"state": {name: own[state_field(i)] for i, name in enumerate(names)}, DEADLINE: own[DEADLINE]}

    def clear(self, program: Program, state: State, when: Expr) -> State:
        if type(self._trigger).clear is CustomTrigger.clear:
            return self._restarted(state, when)
        moment = Moment(FALSE, Literal(0))  # which clear does not look at
        return self._changed(program, "clear", state, when, moment)

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        elements = Column(self._elements)
        state = self._changed(program, "on_element", state, bundle.arrived, moment, elements)
        has_come = [bundle.heard.get(name, FALSE) for name in self.own_signals]
        return self._changed(program, "on_signals", state, any_of(*has_come), moment, *has_come)

    def ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return program.let("ready", coalesce(self._call("ready", state, Literal(True), moment), False))

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        trigger, done = self._trigger, self._fields[FINISHED].name
        if type(trigger).on_fire is CustomTrigger.on_fire:
            return {**self._restarted(state, when), done: choose(when, trigger.may_finish, state[done])}
        return self._changed(program, "on_fire", state, when, moment)

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        merged, sources = Column(c.MERGED), Column(self._sources)
        return self._changed(program, "on_merge", state, merged, moment, sources)

    def _restarted(self, state: State, when: Expr) -> State:
        """The fresh state, which needs no call, where ``when`` holds; what has finished stays so."""
        progress = [field for name, field in self._fields.items() if name != FINISHED]
        return {**state, **{field.name: choose(when, field.initial, state[field.name]) for field in progress}}

    def _changed(
        self,
        program: Program,
        method: str,
        state: State,
        when: Expr,
        moment: Moment,
        *argument: Expr,
    ) -> State:
        """The state after a call where ``when`` holds."""
        if is_literal(when, False):
            return state
        when = program.let("when", when)
        given = program.let("own", self._call(method, state, when, moment, *argument))
        changed = {
            field.name: choose(when, Function("field", (given, Literal(name))), state[field.name])
            for name, field in self._fields.items()
        }
        return {**state, **{name: program.let("own", value) for name, value in changed.items()}}

    def _call(self, method: str, state: State, when: Expr, moment: Moment, *argument: Expr) -> Expr:
        window = (Column(c.WINDOW_START), Column(c.WINDOW_END), moment.now, moment.passed_end)
        values = [state[field.name] for name, field in self._fields.items() if name not in (FINISHED, DEADLINE)]
        return Call(method, (when, *window, self.finished(state), *values, *argument), self._trigger)


@compile_trigger.register
def _(trigger: CustomTrigger, at: TriggerPlace) -> Node:
    return CustomNode(at.path, trigger)


def _stored(kind: DataType) -> DataType:
    return DataType.INT if kind is DataType.TIMESTAMP else kind


def _literal(value: object, kind: DataType) -> Literal:
    if value is None:
        return Literal(None, _stored(kind))
    if isinstance(value, float) or kind is DataType.FLOAT:
        return Literal(float(value))  # type: ignore[arg-type]
    return lit(Decimal(value) if kind is DataType.DECIMAL else value)  # type: ignore[arg-type]
