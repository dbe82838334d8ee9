"""Where the epochs of a pipeline are computed, which changes no result; and how far one under way is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.entry_points import EntryPointGroup

if TYPE_CHECKING:
    from headrace.model.arguments import Arguments


SPARK: Final = "spark"
LOCAL: Final = "local"
AUTO: Final = "auto"
"""No executor: a run takes ``local`` if what there is to do fits, else ``spark``."""

EXECUTORS: Final[EntryPointGroup[Any]] = EntryPointGroup("headrace.executors", "executor")
"""Their names; ``headrace.ext.executors`` has them with their type."""


@dataclass(frozen=True)
class ExecutorDecision:
    """The executor that a run takes, never AUTO, and why in a line."""

    name: str
    reason: str


def executor_name(given: "Arguments", value: object) -> str:
    """The argument ``executor``: the name of one, or AUTO. Raises the error of ``given``."""
    return given.registered("executor", value, EXECUTORS, also=(AUTO,))


@dataclass(frozen=True)
class LevelProgress:
    """Where ``epoch`` is: its ``level`` of all ``levels``, counted from 1, what that ``does`` in words, and how many of
    its ``tasks`` are ``done`` (0 of 0: none has begun).
    """

    epoch: int
    level: int
    levels: int
    does: str
    done: int = 0
    tasks: int = 0


FindLevel = Callable[[], LevelProgress | None]
"""Says where the epoch under way is, None between epochs; it may be called from any thread."""
