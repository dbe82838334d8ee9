"""A user's own trigger (semantics 4.1, 9.3)."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, check_fields, check_frozen, user_code
from headrace.model.expressions.data_types import DataType, DeclaredColumns, data_type
from headrace.model.time import Instant, render
from headrace.model.triggers.elementary import ElementTrigger, TriggerProgress, condition, missing
from headrace.model.windows import Window

State = Mapping[str, Any]
"""A value for each field of ``CustomTrigger.state_types``."""


@dataclass(frozen=True)
class TriggerElement:
    """An element: the columns that reach the aggregation (timestamps are Instants), and its event time.

    >>> hr.TriggerElement({"v": 3}, timestamp=0).record["v"]
    3
    """

    record: Mapping[str, Any]
    timestamp: Instant


@dataclass(frozen=True)
class TriggerMoment:
    """What there is to look at besides elements; ``passed_end``: the watermark has passed the end of ``window``.

    >>> hr.TriggerMoment(hr.Window(0, 60), processing_time=61, passed_end=True).window.end
    60
    """

    window: Window
    processing_time: Instant
    passed_end: bool


class Progress(NamedTuple):
    """The state of a trigger in a window, and whether it has finished.

    >>> hr.Progress({"sum": 0}).finished
    False
    """

    state: State
    finished: bool = False


class CustomTrigger(ElementTrigger, ABC):
    """A user's own trigger: subclass it as a frozen dataclass. It stands anywhere in a tree of triggers.

    Its methods are pure functions of their arguments and the fields; they return a new state, of plain values (int,
    float, str, bool, date, Instants for timestamps) or None. It is told of every element of a window in order of
    arrival, retractions too. It is asked once after a bundle, when the watermark passes the end of the window, and when
    a ``deadline`` is due. It is asked after the signals of an epoch if one of its ``signals`` is among them, and at no
    other time (4.1).

    >>> @dataclass(frozen=True)
    ... class AfterSum(hr.CustomTrigger):
    ...     most: int
    ...     state_types = {"sum": int}
    ...     def create(self):
    ...         return {"sum": 0}
    ...     def on_element(self, state, element, moment):
    ...         return {"sum": state["sum"] + element.record["v"]}
    ...     def ready(self, state, moment):
    ...         return state["sum"] > self.most
    >>> hr.Repeatedly(AfterSum(100))
    Repeatedly(trigger=AfterSum(most=100))
    """

    @property
    @abstractmethod
    def state_types(self) -> DeclaredColumns:
        """Names and types of the fields of its state."""

    @abstractmethod
    def create(self) -> State:
        """The state in a fresh window, and after each reset."""

    @abstractmethod
    def on_element(self, state: State, element: TriggerElement, moment: TriggerMoment) -> State:
        """The state after ``element`` came; ``state`` is that before it, and ``moment`` the window and its clocks."""

    @abstractmethod
    def ready(self, state: State, moment: TriggerMoment) -> bool:
        """Whether it fires if asked now, with ``state`` at ``moment``. More elements must not make it unready."""

    def on_fire(self, state: State, moment: TriggerMoment) -> Progress:
        """What becomes of ``state`` when the window fires at ``moment`` and it is ready. Unless overridden it starts
        again, finished if it ``may_finish``.
        """
        del state, moment
        return Progress(self.create(), self.may_finish)

    def clear(self, state: State) -> State:
        """What becomes of ``state`` when another trigger fired instead: progress is forgotten, what has finished stays
        so.
        """
        del state
        return self.create()

    def deadline(self, state: State) -> Instant | None:
        """The processing time at which it wants to be asked with ``state``, in microseconds since 1970 UTC; None for no
        time.
        """
        del state
        return None

    def on_signal(self, state: State, name: str, moment: TriggerMoment) -> State:
        """The state after the signal ``name`` came, one of ``signals``, to ``state`` at ``moment``. In an epoch it is
        told of each name once, in the order of names, after the elements and the deadlines.
        """
        raise NotImplementedError

    def on_merge(self, sources: Sequence[Progress], moment: TriggerMoment) -> Progress:
        """What ``sources``, its progress in merged open windows, ordered by window, becomes in the merged one.
        ``moment`` is that of the merged window. Leave it out if that has no meaning; then it cannot stand over windows
        that merge.
        """
        raise NotImplementedError

    @property
    def merges(self) -> bool:
        """Whether it has an ``on_merge``."""
        return type(self).on_merge is not CustomTrigger.on_merge

    @property
    def takes_signals(self) -> bool:
        """Whether it has an ``on_signal``."""
        return type(self).on_signal is not CustomTrigger.on_signal


@condition.register(CustomTrigger)
def _(trigger: CustomTrigger) -> str:
    return f"{trigger!r}, a trigger of your own, is ready"


@missing.register(CustomTrigger)
def _(trigger: CustomTrigger, progress: TriggerProgress) -> str:
    state, deadline = progress.state["state"], progress.state["deadline"]
    due = "" if deadline is None else f", and it is asked at {render(Instant(deadline))}"
    return f"{trigger!r}, a trigger of your own, to be ready; its state is {state}{due}"


def check_trigger(trigger: CustomTrigger, merging: bool) -> None:
    """Raise PipelineError if executors cannot run ``trigger``; ``merging``: over windows that merge."""
    check_frozen(trigger)
    types = state_types(trigger)
    _check_signals(trigger)
    with user_code(trigger, "create a state"):
        state = checked_state(trigger, trigger.create())
        trigger.deadline(state)
    for name, kind in types.items():
        value = state[name]
        if value is not None and not _fits_type(value, kind):
            raise PipelineError(f"{trigger!r} creates {value!r} as {name!r}, which is declared as {kind}")
    if merging and not trigger.merges:
        raise PipelineError(f"{trigger!r} has no on_merge, and the windows merge; add it, or use other windows")


def state_types(trigger: CustomTrigger) -> dict[str, DataType]:
    """The types that it declares for its state. Raises PipelineError."""
    arguments = Arguments(type(trigger).__name__)
    types = trigger.state_types
    return {name: data_type(arguments, f"state_types[{name!r}]", kind) for name, kind in types.items()}


def _check_signals(trigger: CustomTrigger) -> None:
    names = trigger.signals
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise PipelineError(f"{trigger!r} declares {names!r} as its signals; use a tuple of their names")
    if names and not trigger.takes_signals:
        raise PipelineError(f"{trigger!r} declares signals and has no on_signal, which is called for them")
    if trigger.takes_signals and not names:
        raise PipelineError(f"{trigger!r} has an on_signal and declares no signals= for it")


def _fits_type(value: object, kind: DataType) -> bool:
    if kind is DataType.BOOL or isinstance(value, bool):
        return kind is DataType.BOOL and isinstance(value, bool)
    if kind is DataType.STRING:
        return isinstance(value, str)
    if kind is DataType.BYTES:
        return isinstance(value, bytes)
    if kind is DataType.DECIMAL:
        return isinstance(value, int | Decimal)
    if kind is DataType.DATE:
        return isinstance(value, date) and not isinstance(value, datetime)
    return isinstance(value, int) or (kind is DataType.FLOAT and isinstance(value, float))


def checked_state(trigger: CustomTrigger, state: State) -> State:
    """``state``, if it has the declared fields."""
    check_fields(trigger, "a state", state, trigger.state_types)
    return state


def checked_progress(trigger: CustomTrigger, progress: Progress) -> Progress:
    """``progress``, if its state has the declared fields and it has finished only if that may be."""
    state, has_finished = progress
    if has_finished and not trigger.may_finish:
        raise PipelineError(f"{trigger!r} finished, but its may_finish says that it never does")
    return Progress(checked_state(trigger, state), has_finished)
