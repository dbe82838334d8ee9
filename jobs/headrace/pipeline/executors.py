"""Where the epochs of a pipeline are computed: a matter of means, which changes no result."""

from dataclasses import dataclass
from enum import StrEnum


class Executor(StrEnum):
    """Where epochs are computed: as Spark jobs; in the run's own process, without a JVM; or wherever what there is to
    do fits.
    """

    SPARK = "spark"
    LOCAL = "local"
    AUTO = "auto"


@dataclass(frozen=True)
class ExecutorDecision:
    """The executor that a run takes, never AUTO, and why in a line."""

    name: Executor
    reason: str
