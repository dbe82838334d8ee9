"""Plans as values: which modules become one, and texts that no rule finds."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

PLANS = Path(__file__).parent / "plans"


class RefusedPlanError(Exception):
    """A plan cannot be run on this checkout. The message says each reason on a line."""


@dataclass(frozen=True)
class Join:
    """``modules`` become ``target``, which may be one of them; a single one is moved.

    ``lead`` begins the docstring; those of the modules follow it. ``doc`` is all of it, in place of both. ``renames``:
    by module, names of its top level that would collide, with new ones.
    """

    target: str
    modules: tuple[str, ...]
    lead: str | None = None
    doc: str | None = None
    renames: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Fix:
    """A text of a file that is replaced after the joins."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class Plan:
    joins: tuple[Join, ...]
    fixes: tuple[Fix, ...] = ()

    @property
    def places(self) -> dict[str, str]:
        """The new name of each module."""
        return {module: join.target for join in self.joins for module in join.modules}


def read_plan(file: Path) -> Plan:
    """The plan in a TOML file: tables ``join`` and ``fix``."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    joins = tuple(Join(**{**table, "modules": tuple(table["modules"])}) for table in tables.get("join", ()))
    return Plan(joins, tuple(Fix(**table) for table in tables.get("fix", ())))


def plan_files(rooms: list[str]) -> list[Path]:
    """The files of plans of ``rooms`` in order of their numbers, of all rooms if none is named."""
    files = sorted(PLANS.glob("*.toml"), key=lambda file: (int(file.stem.partition("_")[0]), file.stem))
    return [file for file in files if not rooms or file.stem in rooms or file.stem.partition("_")[2] in rooms]
