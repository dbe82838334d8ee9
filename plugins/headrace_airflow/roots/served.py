"""Which roots this Airflow serves."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import FixConfigError
from headrace_airflow.roots.root import Root


class UnknownRootError(FixConfigError):
    """A DAG belongs to a root that this Airflow does not serve."""

    code = "config.unknown_root"


@dataclass(frozen=True)
class ServedRoots:
    """The roots that can be used, and what is wrong with others."""

    roots: Sequence[Root]
    problems: Sequence[str] = ()

    def named(self, name: str) -> Root:
        """The root of that name. Raises UnknownRootError."""
        for root in self.roots:
            if root.name == name:
                return root
        problems = "".join(f"\n{problem}" for problem in self.problems)
        raise UnknownRootError(f"this Airflow serves no root {name!r}{problems}")


def served_roots() -> ServedRoots:
    """The roots as they are declared now."""
    return ServedRoots([Root.of_environment()])
