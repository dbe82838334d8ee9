"""What a transition table is: rows of (state, event, condition) and (next state, actions), read from the top."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from headrace.errors import GiveUpError

Context = TypeVar("Context")
Effect = TypeVar("Effect")


class ProtocolError(GiveUpError, code="give_up.protocol"):
    """The driver of a role told it something that cannot happen: a mistake in the driver."""


@dataclass(frozen=True)
class Row(Generic[Context, Effect]):
    """In one of ``states``, on ``event``, ``when`` (None: always): go to ``then`` (None: stay) and do what ``do`` says.

    Conditions and actions are called by the names of their functions wherever the table is shown.
    """

    states: tuple[StrEnum, ...]
    event: StrEnum
    when: Callable[[Context], bool] | None
    then: StrEnum | None
    do: tuple[Callable[[Context], Sequence[Effect]], ...] = ()


class Table(Generic[Context, Effect]):
    """Rows by state and event. The first whose condition holds decides."""

    def __init__(self, rows: Sequence[Row[Context, Effect]]) -> None:
        self.rows = tuple(rows)
        self._found: Mapping[tuple[StrEnum, StrEnum], list[Row[Context, Effect]]] = {
            (state, event): [row for row in rows if state in row.states and row.event == event]
            for state in {state for row in rows for state in row.states}
            for event in {row.event for row in rows}
        }

    def step(self, state: StrEnum, event: StrEnum, context: Context) -> tuple[StrEnum, list[Effect]]:
        """The next state, and the effects in order. Raises ProtocolError where no row fits."""
        for row in self._found.get((state, event), ()):
            if row.when is None or row.when(context):
                effects: list[Effect] = []
                for action in row.do:
                    effects += action(context)
                return row.then or state, effects
        raise ProtocolError(f"nothing is said about {event.value!r} in state {state.value!r}")
