"""What a pipeline and its DAGs are called, when they run, and where epochs are computed, which changes no result.

Names are folders, DAGs and parts of an asset's address. A DAG has a cron expression of five fields, or one of Airflow's
presets, checked without Airflow. An executor says how far the epoch under way is. Front doors import this for their
help: it needs nothing of the model.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.installed import EntryPointGroup

if TYPE_CHECKING:
    from headrace.model.arguments import Arguments


PIPELINE_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")


PRESETS: Final = ("@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
DAG_FAMILIES: Final[EntryPointGroup[Any]] = EntryPointGroup("headrace.dag_families", "DAG family")
"""The DAGs that each pipeline has, by name; its schedule is that of the first. Only Airflow imports them."""

MAINTAIN: Final = "maintain"
"""What the DAG is called that looks after all pipelines; the DAGs for schedules of retentions begin with it."""

_DAG_PREFIX: Final = "headrace_"
_RETENTION_PREFIX: Final = f"{MAINTAIN}-"  # no name of a pipeline has a dash
_DOT: Final = "."
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
_DAYS_OF_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIELD_PART = re.compile(
    r"(?:(?P<all>\*)|(?P<first>[0-9]+|[a-z]{3})(?:-(?P<last>[0-9]+|[a-z]{3}))?)(?:/(?P<step>[0-9]+))?"
)


@dataclass(frozen=True)
class _Field:
    """One field of a cron expression; ``names`` stand for numbers from ``low`` on."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    def parse_values(self, text: str) -> set[int]:
        """The numbers that ``text`` means. Raises ValueError with what is wrong."""
        numbers: set[int] = set()
        for part in text.lower().split(","):
            part_match = _FIELD_PART.fullmatch(part)
            if part_match is None:
                raise ValueError(f"{part!r} is not a {self.name}")
            first = self.low if part_match["all"] else self._parse_number(part_match["first"])
            is_open = part_match["all"] or (part_match["step"] and not part_match["last"])
            last = self.high if is_open else self._parse_number(part_match["last"] or part_match["first"])
            step = int(part_match["step"] or 1)
            if step == 0 or (first > last and part_match["step"]):
                raise ValueError(f"{part!r} is not a {self.name}")
            if first > last:  # as in fri-mon
                numbers.update(range(first, self.high + 1), range(self.low, last + 1))
            else:
                numbers.update(range(first, last + 1, step))
        return numbers

    def _parse_number(self, text: str) -> int:
        number = self.low + self.names.index(text) if text in self.names else int(text) if text.isdigit() else -1
        if not self.low <= number <= self.high:
            raise ValueError(f"{self.name} {text} is not between {self.low} and {self.high}")
        return number


_CRON_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, tuple(_MONTHS)),
    _Field("weekday", 0, 7, tuple(_WEEKDAYS)),
)


class DagOwner(NamedTuple):
    """What a DAG belongs to: the ``root`` is empty for the one without a name."""

    root: str
    pipeline: str
    family: str


def dag_id(pipeline: str, family: str, root: str = "") -> str:
    """What Airflow calls a DAG of ``pipeline`` under a root of that name. No name has a dot in it."""
    return f"{_DAG_PREFIX}{root}{_DOT if root else ''}{pipeline}_{family}"


def split_id(dag_id: str) -> tuple[str, str] | None:
    """The name of the root to which a DAG of Headrace's belongs, and what it is called there; None for any other."""
    if not dag_id.startswith(_DAG_PREFIX):
        return None
    root, dot, name = dag_id.removeprefix(_DAG_PREFIX).rpartition(_DOT)
    return None if dot and not root else (root, name)


def owner_of(dag_id: str) -> DagOwner | None:
    """Root, pipeline and family of the DAG that ``dag_id`` gave this id; None for any other."""
    if (split := split_id(dag_id)) is None:
        return None
    root, name = split
    own = [family for family in DAG_FAMILIES.built_in if name.endswith(f"_{family}")]
    for family in own or sorted(DAG_FAMILIES.names(), key=len, reverse=True):
        if (pipeline := name.removesuffix(f"_{family}")) not in {"", name}:
            return DagOwner(root, pipeline, family)
    return None


def retention_dag_name(schedule: object) -> str:
    """What the DAG is called, without the prefix, that applies all retentions with this schedule."""
    text = str(schedule)
    words = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_")
    return _RETENTION_PREFIX + (words if text in PRESETS else f"{words}-{sha256(text.encode()).hexdigest()[:6]}")


def is_retention(name: str) -> bool:
    return name.startswith(_RETENTION_PREFIX)


def retention_dag_id(schedule: object, root: str = "") -> str:
    """The id of that DAG under a root of that name."""
    return f"{_DAG_PREFIX}{root}{_DOT if root else ''}{retention_dag_name(schedule)}"


def check_schedule(schedule: object) -> str | None:
    """``schedule`` if it is None, a preset or a cron expression. Raises ValueError, saying what to write instead."""
    if schedule is None:
        return None
    try:
        if not isinstance(schedule, str):
            raise ValueError("it is not text")
        if schedule not in PRESETS:
            check_cron(schedule)
    except ValueError as error:
        raise ValueError(
            f"{error}; write a cron expression (minute, hour, day of the month, month, weekday) "
            f"such as '*/15 * * * *', one of {', '.join(PRESETS)}, or None"
        ) from None
    return schedule


def check_cron(expression: str) -> None:
    """Raise ValueError unless ``expression`` has the five fields of a cron expression."""
    texts = expression.split()
    if len(texts) != len(_CRON_FIELDS):
        raise ValueError(f"it has {len(texts)} fields and not {len(_CRON_FIELDS)}")
    _, _, days, months, _ = (field.parse_values(text) for field, text in zip(_CRON_FIELDS, texts, strict=True))
    if "*" in texts[4].split(",") and min(days) > max(_DAYS_OF_MONTHS[month - 1] for month in months):
        raise ValueError("there is no such day")


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


def executor_name(arguments: "Arguments", value: object) -> str:
    """The argument ``executor``: the name of one, or AUTO. Raises the error of ``arguments``."""
    return arguments.registered_name("executor", value, EXECUTORS, also=(AUTO,))


@dataclass(frozen=True)
class LevelProgress:
    """Where ``epoch`` is: its ``level`` out of ``levels``, counted from 1, and what that ``does`` in words. ``done`` of
    its ``tasks`` have ended (0 of 0: none has begun).
    """

    epoch: int
    level: int
    levels: int
    does: str
    done: int = 0
    tasks: int = 0


FindLevel = Callable[[], LevelProgress | None]
"""Says where the epoch under way is, None between epochs; it may be called from any thread."""
