"""The rows of local Parquet files as SQL: a query over many files, some of which call columns otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.read.views.database import identifier, literal

if TYPE_CHECKING:
    from headrace.kernel.renamed_columns import Names


@dataclass(frozen=True)
class NamedFile:
    """A file that can be read at ``path``. ``names``: what it calls columns, where that is not their name, in pairs."""

    path: Path
    names: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, path: Path, names: "Names", columns: Sequence[str]) -> "NamedFile":
        """Keeps only the renames of these ``columns``."""
        return cls(path, tuple((name, names[name]) for name in columns if name in names))


def rows_of(files: Sequence[NamedFile], types: Mapping[str, str]) -> str:
    """The rows of ``files``, of which there is one at least (SQL): where some of them have other names for columns, the
    columns of ``types`` alone.
    """
    by_names: dict[tuple[tuple[str, str | None], ...], list[Path]] = {}
    for file in files:
        by_names.setdefault(file.names, []).append(file.path)
    if [*by_names] == [()]:
        return parquet(by_names[()])
    selects = (f"select {_columns(dict(names), types)} from {parquet(paths)}" for names, paths in by_names.items())
    return f"({' union all '.join(selects)})"


def _columns(names: "Names", types: Mapping[str, str]) -> str:
    def column(name: str, kind: str) -> str:
        then = names.get(name, name)
        return f"{f'cast(null as {kind})' if then is None else identifier(then)} as {identifier(name)}"

    return ", ".join(column(name, kind) for name, kind in types.items())


_LITERALLY = str.maketrans({character: f"[{character}]" for character in "[*?"})


def parquet(files: Sequence[Path]) -> str:
    """The rows of ``files``, of which there is one at least (SQL)."""
    return f"read_parquet([{', '.join(literal(escaped(str(file))) for file in files)}])"


def is_pattern(path: Path) -> bool:
    """Whether DuckDB takes ``path`` for one that stands for many."""
    return escaped(str(path)) != str(path)


def escaped(path: str) -> str:
    """``path`` for DuckDB, which takes some characters of a path for a pattern."""
    return path.translate(_LITERALLY)
