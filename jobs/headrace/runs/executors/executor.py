"""What is to be known of an executor before a run takes it. Imports no executor, nor what computes epochs.

An executor of another distribution is an entry point of ``headrace.executors``: an ``Executor``, by its name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.runs.context import RunContext
    from headrace.runs.executors.interface import ExecutorSide


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class Executor:
    """One way to compute epochs. ``about`` says it to people, in a few words; ``side`` gives a run what it has of it;
    its second argument is a Spark session to use instead of one of the run's own, None if there is none.

    ``check_installed`` raises NotInstalledError unless all that it needs is there. ``is_submitted``: Airflow starts it
    with spark-submit, and not in a process of the task's own.
    """

    about: str
    side: "Callable[[RunContext, Any], ExecutorSide]"
    check_installed: Callable[[], None] = _nothing
    is_submitted: bool = False
