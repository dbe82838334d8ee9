"""Where the epochs of a pipeline are computed: a matter of means, which changes no result.

Executors have names: Headrace's own, and those of other distributions. Their code (``headrace.runs.executors``) is
imported when a run takes one.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.entry_points import EntryPointGroup

if TYPE_CHECKING:
    from headrace.model.arguments import Arguments
    from headrace.runs.executors.executor import Executor

SPARK: Final = "spark"
LOCAL: Final = "local"
AUTO: Final = "auto"
"""No executor: a run takes ``local`` if what there is to do fits, else ``spark``."""

EXECUTORS: "Final[EntryPointGroup[Executor]]" = EntryPointGroup(
    "headrace.executors",
    "executor",
    provides="headrace.runs.executors.executor:Executor",
    built_in={SPARK: "headrace.runs.executors.own:SPARK", LOCAL: "headrace.runs.executors.own:LOCAL"},
)


@dataclass(frozen=True)
class ExecutorDecision:
    """The executor that a run takes, never AUTO, and why in a line."""

    name: str
    reason: str


def executor_name(given: "Arguments", value: object) -> str:
    """The argument ``executor``: the name of one, or AUTO. Raises the error of ``given``."""
    return given.registered("executor", value, EXECUTORS, also=(AUTO,))
