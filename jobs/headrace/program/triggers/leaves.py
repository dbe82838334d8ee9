"""Triggers without children as nodes, those that users write among them.

``CustomNode`` is a trigger of a user's own (semantics 9.3): its states are columns, its methods calls.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from headrace.model.combiners import Combiner
from headrace.model.expressions.columns import coalesce, greatest, least
from headrace.model.expressions.data_types import DataType, Scalar, Schema
from headrace.model.expressions.expr import Aggregate, Column, Expr, Function, Literal, lit
from headrace.model.expressions.typing import input_type, readable_types
from headrace.model.triggers import elementary
from headrace.model.triggers.custom import CustomTrigger, state_types
from headrace.model.triggers.data_driven import AfterPattern, AfterPunctuation, DataDriven
from headrace.program import columns as c
from headrace.program.columns import (
    FALSE,
    TRUE,
    Call,
    Program,
    all_of,
    any_of,
    choose,
    is_literal,
    settle_casts,
    substitute_columns,
)
from headrace.program.triggers.node import (
    Bundle,
    ColumnMerge,
    Field,
    Measure,
    Moment,
    Node,
    Sources,
    State,
    TriggerPlace,
    compile_trigger,
)

NO_DEADLINE = Literal(None, DataType.INT)

_ZEROS: dict[DataType, Scalar] = {DataType.INT: 0, DataType.FLOAT: 0.0, DataType.DECIMAL: Decimal(0)}


class _Memoryless(Node):
    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return state


class DefaultNode(_Memoryless):
    """Ready whenever the watermark is past the end; never finishes."""

    ready_past_end = True

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return moment.passed_end


@compile_trigger.register
def _(trigger: elementary.Default, place: TriggerPlace) -> Node:
    return DefaultNode(place.path)


class ConstantNode(_Memoryless):
    """Always or Never: ready whenever it is asked, or not at all."""

    def __init__(self, path: str, *, is_ready: bool) -> None:
        super().__init__(path)
        self._is_ready = is_ready

    @property
    def ready_past_end(self) -> bool:
        return self._is_ready

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return TRUE if self._is_ready else FALSE


@compile_trigger.register
def _(trigger: elementary.Never, place: TriggerPlace) -> Node:
    return ConstantNode(place.path, is_ready=False)


@compile_trigger.register
def _(trigger: elementary.Always, place: TriggerPlace) -> Node:
    return ConstantNode(place.path, is_ready=True)


class WatermarkNode(Node):
    """AfterWatermark without early or late: fires once when the watermark passes the end."""

    ready_past_end = True

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._done_column = f"{path}_done"
        self.own = (Field(self._done_column, DataType.BOOL, FALSE, ColumnMerge.ALL),)

    def is_finished(self, state: State) -> Expr:
        return state[self._done_column]

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return moment.passed_end

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return {**state, self._done_column: any_of(state[self._done_column], when)}

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        return {
            **state,
            self._done_column: program.let(
                "done", all_of(state[self._done_column], self.is_ready(program, state, moment))
            ),
        }


class PercentileNode(WatermarkNode):
    """AfterPercentileWatermark: as above, on the watermark of the fastest q % (semantics 9.2)."""

    ready_past_end = True

    def __init__(self, path: str, percentile: float) -> None:
        super().__init__(path)
        self._percentile = percentile
        self.own_percentiles = (percentile,)

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return moment.percentiles[self._percentile]


@compile_trigger.register
def _(trigger: elementary.AfterPercentileWatermark, place: TriggerPlace) -> Node:
    return PercentileNode(place.path, trigger.percentile)


class GatheringNode(Node):
    """A leaf that makes progress with elements and forgets it when it fires, which it does once; merged, it is finished
    if it was in any window. ``progress`` are its state columns besides that.
    """

    def __init__(self, path: str, *progress: Field) -> None:
        super().__init__(path)
        self._done_column = f"{path}_done"
        self._progress = progress
        self.own = (*progress, Field(self._done_column, DataType.BOOL, FALSE, ColumnMerge.ANY))

    def is_finished(self, state: State) -> Expr:
        return state[self._done_column]

    def clear(self, program: Program, state: State, when: Expr) -> State:
        return {**state, **{f.name: choose(when, f.initial, state[f.name]) for f in self._progress}}

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return {**self.clear(program, state, when), self._done_column: any_of(state[self._done_column], when)}

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        return self.clear(program, state, state[self._done_column])


class ThresholdNode(GatheringNode):
    """AfterCount, AfterBytes, AfterPunctuation: ready once what elements add up to since the last reset is enough.

    ``weight`` is what each element adds, None for one (retractions count as elements).
    """

    def __init__(self, path: str, threshold: int, weight: Expr | None = None) -> None:
        self._total_column, self._added_column = f"{path}_total", f"{path}_added"
        super().__init__(path, Field(self._total_column, DataType.INT, Literal(0), ColumnMerge.SUM))
        self._threshold = Literal(threshold)
        self._weighs = weight is not None
        if weight is not None:
            self.own_measures = (Measure(self._added_column, DataType.INT, weight, ColumnMerge.SUM),)

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        amount = coalesce(Column(self._added_column), 0) if self._weighs else bundle.count
        return {
            **state,
            self._total_column: choose(
                bundle.has_arrived, state[self._total_column] + amount, state[self._total_column]
            ),
        }

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return state[self._total_column] >= self._threshold


@compile_trigger.register
def _(trigger: elementary.AfterCount, place: TriggerPlace) -> Node:
    return ThresholdNode(place.path, trigger.count)


@compile_trigger.register
def _(trigger: elementary.AfterBytes, place: TriggerPlace) -> Node:
    return ThresholdNode(place.path, trigger.size, Column(c.SIZE))


@compile_trigger.register
def _(trigger: AfterPunctuation, place: TriggerPlace) -> Node:
    is_one = coalesce(trigger.predicate, False)
    return ThresholdNode(place.path, 1, Function("if", (is_one, Literal(1), Literal(0))))


class DataNode(GatheringNode):
    """DataDriven: ready once a predicate holds of aggregates over the elements since the last reset (semantics 12.7).

    Its progress are the totals that the aggregates are made of. A retraction is one more element.
    """

    def __init__(self, path: str, trigger: DataDriven, schema: Schema) -> None:
        self._totals: list[tuple[Field, Expr | None]] = []
        self.results = {  # what the predicate is about, over the totals
            name: self._result_from_totals(f"{path}_{i}", aggregate, schema)
            for i, (name, aggregate) in enumerate(trigger.what.items())
        }
        super().__init__(path, *[total for total, _ in self._totals])
        self.own_measures = tuple(
            Measure(_added_name(total), total.type, weight, total.fold)
            for total, weight in self._totals
            if weight is not None
        )
        self._ready_if = settle_casts(trigger.ready_if, readable_types(trigger.what, schema))

    def _result_from_totals(self, path: str, aggregate: Aggregate, schema: Schema) -> Expr:
        """``aggregate`` over the totals that it needs, which are noted."""
        value = aggregate.input
        if value is None:
            return self._note_total(f"{path}_count", DataType.INT, None, ColumnMerge.SUM)
        is_known = Function("if", (value.is_null(), Literal(0), Literal(1)))
        kind = input_type(aggregate, schema)
        match aggregate.combiner:
            case Combiner.COUNT:
                return self._note_total(f"{path}_count", DataType.INT, is_known, ColumnMerge.SUM)
            case Combiner.SUM:
                return self._note_total(f"{path}_sum", kind, value, ColumnMerge.SUM)
            case Combiner.MEAN:
                total = self._note_total(f"{path}_sum", kind, value, ColumnMerge.SUM)
                return total / self._note_total(f"{path}_count", DataType.INT, is_known, ColumnMerge.SUM)
            case Combiner.MIN:
                return self._note_total(f"{path}_min", kind, value, ColumnMerge.MIN)
            case Combiner.MAX:
                return self._note_total(f"{path}_max", kind, value, ColumnMerge.MAX)
        raise AssertionError(aggregate.combiner)

    def _note_total(self, name: str, kind: DataType, weight: Expr | None, fold: ColumnMerge) -> Column:
        zero = Literal(_ZEROS[kind], kind) if fold is ColumnMerge.SUM else Literal(None, kind)
        self._totals.append((Field(name, kind, zero, fold), weight))
        return Column(name)

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        result = dict(state)
        for total, weight in self._totals:
            old = state[total.name]
            amount = bundle.count if weight is None else Column(_added_name(total))
            match total.fold:
                case ColumnMerge.MIN:
                    new_total: Expr = least(old, amount)
                case ColumnMerge.MAX:
                    new_total = greatest(old, amount)
                case _:
                    new_total = old + coalesce(amount, total.initial)
            result[total.name] = choose(bundle.has_arrived, new_total, old)
        return result

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        values = {
            name: program.let("value", substitute_columns(result, state)) for name, result in self.results.items()
        }
        return program.let("ready", coalesce(substitute_columns(self._ready_if, values), False))


@compile_trigger.register
def _(trigger: DataDriven, place: TriggerPlace) -> Node:
    return DataNode(place.path, trigger, place.schema)


def _added_name(total: Field) -> str:
    return f"{total.name}_added"


class PatternNode(GatheringNode):
    """AfterPattern: the state of an automaton that walks over the elements; merged, it starts again (semantics 9.6)."""

    def __init__(self, path: str, trigger: AfterPattern) -> None:
        self._place_column, self._codes_column = f"{path}_at", f"{path}_codes"
        super().__init__(path, Field(self._place_column, DataType.INT, Literal(0), ColumnMerge.MIN))
        self._table = trigger.table
        code: Expr = Literal(0)
        for bit, letter in enumerate(self._table.letters):
            is_true = coalesce(trigger.predicates[letter], False)
            code = code + Function("if", (is_true, Literal(1 << bit), Literal(0)))
        self.own_measures = (Measure(self._codes_column, DataType.INT, code, ColumnMerge.LIST),)

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        old = state[self._place_column]
        moves = Literal(",".join(str(next_place) for row in self._table.transitions for next_place in row))
        next_state = Function(
            "walk", (old, Column(self._codes_column), moves, Literal(len(self._table.transitions[0])))
        )
        return {**state, self._place_column: choose(bundle.has_arrived, next_state, old)}

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return state[self._place_column] == self._table.accepting

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        return self.clear(program, state, TRUE)


@compile_trigger.register
def _(trigger: AfterPattern, place: TriggerPlace) -> Node:
    return PatternNode(place.path, trigger)


class SignalNode(GatheringNode):
    """AfterSignal: ready once the signal came since the last reset."""

    def __init__(self, path: str, name: str) -> None:
        self._came_column = f"{path}_came"
        super().__init__(path, Field(self._came_column, DataType.BOOL, FALSE, ColumnMerge.ANY))
        self._name = name
        self.own_signals = (name,)

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        return {**state, self._came_column: any_of(state[self._came_column], bundle.signals.get(self._name, FALSE))}

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return state[self._came_column]


@compile_trigger.register
def _(trigger: elementary.AfterSignal, place: TriggerPlace) -> Node:
    return SignalNode(place.path, trigger.name)


class ProcessingTimeNode(Node):
    """AfterProcessingTime: a deadline set by the first element since the last reset; merged, the earliest wins."""

    def __init__(self, path: str, trigger: elementary.AfterProcessingTime) -> None:
        super().__init__(path)
        self.trigger = trigger
        self._deadline = f"{path}_deadline"
        self._done_column = f"{path}_done"
        self.own = (
            Field(self._deadline, DataType.INT, NO_DEADLINE, ColumnMerge.MIN, is_deadline=True),
            Field(self._done_column, DataType.BOOL, FALSE, ColumnMerge.ALL),
        )

    def is_finished(self, state: State) -> Expr:
        return state[self._done_column]

    def clear(self, program: Program, state: State, when: Expr) -> State:
        return {**state, self._deadline: choose(when, NO_DEADLINE, state[self._deadline])}

    def _deadline_from(self, now: Expr) -> Expr:
        due = now + self.trigger.delay
        if self.trigger.align is None:
            return due
        return due + ((Literal(self.trigger.align_offset) - due) % self.trigger.align)

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        old = state[self._deadline]
        starts = all_of(bundle.has_arrived, old.is_null())
        return {**state, self._deadline: choose(starts, self._deadline_from(moment.now), old)}

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        deadline = state[self._deadline]
        return all_of(deadline.is_not_null(), moment.now >= deadline)

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        return {**self.clear(program, state, when), self._done_column: any_of(state[self._done_column], when)}


@compile_trigger.register
def _(trigger: elementary.AfterProcessingTime, place: TriggerPlace) -> Node:
    return ProcessingTimeNode(place.path, trigger)


@compile_trigger.register
def _(trigger: elementary.AfterSynchronizedProcessingTime, place: TriggerPlace) -> Node:
    # what was in flight upstream of a bundle has arrived when the bundle has
    return ProcessingTimeNode(place.path, elementary.AfterProcessingTime())


TIME_FIELD, RECORD = "at", "record"
"""Fields of an element in a list of elements."""

HAS_FINISHED, DEADLINE = "finished", "deadline"


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
        initial = [_make_literal(empty[name], kind) for name, kind in types.items()]
        kinds = [*types.values(), DataType.BOOL, DataType.INT]
        names = [*map(state_field, range(len(initial))), HAS_FINISHED, DEADLINE]
        values = [*initial, FALSE, _make_literal(trigger.deadline(empty), DataType.INT)]
        # of several windows on_merge makes one; the folds are for a window that is merged with nothing
        self._fields = {
            name: Field(f"{path}_{name}", _stored_type(kind), value, ColumnMerge.MIN, is_deadline=name == DEADLINE)
            for name, kind, value in zip(names, kinds, values, strict=True)
        }
        self.own = tuple(self._fields.values())
        self.own_signals = tuple(sorted({*trigger.signals}))
        self.own_measures = (Measure(self._elements, None, None, ColumnMerge.LIST),)
        if trigger.merges:
            progress = {name: field.name for name, field in self._fields.items() if name != DEADLINE}
            self.own_sources = (Sources(self._sources, progress),)

    def is_finished(self, state: State) -> Expr:
        return state[self._fields[HAS_FINISHED].name]

    def state_values(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The state by the names that users gave it, and the deadline."""
        own = super().state_values(row)
        names = state_types(self._trigger)
        return {"state": {name: own[state_field(i)] for i, name in enumerate(names)}, DEADLINE: own[DEADLINE]}

    def clear(self, program: Program, state: State, when: Expr) -> State:
        if type(self._trigger).clear is CustomTrigger.clear:
            return self._restarted_state(state, when)
        moment = Moment(FALSE, Literal(0))  # which clear does not look at
        return self._state_after_call(program, "clear", state, when, moment)

    def on_element(self, program: Program, state: State, bundle: Bundle, moment: Moment) -> State:
        elements = Column(self._elements)
        state = self._state_after_call(program, "on_element", state, bundle.has_arrived, moment, elements)
        has_come = [bundle.signals.get(name, FALSE) for name in self.own_signals]
        return self._state_after_call(program, "on_signals", state, any_of(*has_come), moment, *has_come)

    def is_ready(self, program: Program, state: State, moment: Moment) -> Expr:
        return program.let("ready", coalesce(self._make_call("ready", state, Literal(True), moment), False))

    def on_fire(self, program: Program, state: State, when: Expr, moment: Moment) -> State:
        trigger, finished_field = self._trigger, self._fields[HAS_FINISHED].name
        if type(trigger).on_fire is CustomTrigger.on_fire:
            return {
                **self._restarted_state(state, when),
                finished_field: choose(when, trigger.may_finish, state[finished_field]),
            }
        return self._state_after_call(program, "on_fire", state, when, moment)

    def after_merge(self, program: Program, state: State, moment: Moment) -> State:
        is_merged, sources = Column(c.WAS_MERGED), Column(self._sources)
        return self._state_after_call(program, "on_merge", state, is_merged, moment, sources)

    def _restarted_state(self, state: State, when: Expr) -> State:
        """The fresh state, which needs no call, where ``when`` holds; what has finished stays so."""
        progress = [field for name, field in self._fields.items() if name != HAS_FINISHED]
        return {**state, **{field.name: choose(when, field.initial, state[field.name]) for field in progress}}

    def _state_after_call(
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
        result = program.let("own", self._make_call(method, state, when, moment, *argument))
        new_values = {
            field.name: choose(when, Function("field", (result, Literal(name))), state[field.name])
            for name, field in self._fields.items()
        }
        return {**state, **{name: program.let("own", value) for name, value in new_values.items()}}

    def _make_call(self, method: str, state: State, when: Expr, moment: Moment, *argument: Expr) -> Expr:
        window = (Column(c.WINDOW_START), Column(c.WINDOW_END), moment.now, moment.passed_end)
        values = [state[field.name] for name, field in self._fields.items() if name not in (HAS_FINISHED, DEADLINE)]
        return Call(method, (when, *window, self.is_finished(state), *values, *argument), self._trigger)


@compile_trigger.register
def _(trigger: CustomTrigger, place: TriggerPlace) -> Node:
    return CustomNode(place.path, trigger)


def _stored_type(kind: DataType) -> DataType:
    return DataType.INT if kind is DataType.TIMESTAMP else kind


def _make_literal(value: object, kind: DataType) -> Literal:
    if value is None:
        return Literal(None, _stored_type(kind))
    if isinstance(value, float) or kind is DataType.FLOAT:
        return Literal(float(value))  # type: ignore[arg-type]
    return lit(Decimal(value) if kind is DataType.DECIMAL else value)  # type: ignore[arg-type]
