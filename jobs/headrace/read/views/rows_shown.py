"""A few rows of a view, to be looked at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from headrace.model.suggestions import Suggesting


@dataclass(frozen=True, repr=False)
class RowsShown(Suggesting, Sequence[Mapping[str, Any]]):
    """The first rows of a view: a sequence of mappings by column. Times are in UTC, and do not say so.

    ``number`` is how many rows the view has, None where only reading all of them would tell; ``view`` names the view
    and its snapshot.
    """

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    number: int | None
    view: str

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return "\n".join([f"<{self._told()}>", *map(str, self.rows)])

    def _repr_html_(self) -> str:
        from headrace.read.html import html_table  # of notebooks

        return html_table(self.columns, self.rows, self._told())

    def _told(self) -> str:
        shown, number = len(self.rows), self.number
        if shown == number:
            return f"{self.view}: {'its only row' if shown == 1 else f'all {shown:,} rows'}"
        return f"{self.view}: the first {shown:,}{' rows' if number is None else f' of {number:,} rows'}"
