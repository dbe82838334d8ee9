"""The progress of a run in a terminal: a bar of landed files with epochs, rows and rate, and lines above it."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.runs.reporting.listener import LineListener, number_of
from headrace.terminal import in_one_line, visible
from headrace_snapshots.format.manifest import Manifest


class Bar:
    """A listener of a run in a terminal. The rate is that of all rows since the first epoch began."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("looking for new files", total=None, figures="")
        self._lines = LineListener(self._print)
        self._began: float | None = None
        self._epochs = self._rows = 0

    @classmethod
    @contextmanager
    def shown(cls, console: Console | None = None) -> Iterator[Self]:
        """A bar on ``console``, by default stderr, until the block ends."""
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("files  {task.fields[figures]}", markup=False),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=console or Console(stderr=True, highlight=False)) as bar:
            yield cls(bar)

    def noted(self, what: str) -> None:
        """What the run is doing now stands before the bar."""
        self._bar.update(self._task, description=in_one_line(what))

    def planned(self, files: int) -> None:
        """``files`` new files were found."""
        self._began = self._began or monotonic()
        self._bar.update(self._task, total=files, completed=0, description=number_of(files, "new file"))

    def committed(self, manifest: Manifest) -> None:
        """An epoch became a snapshot."""
        self._lines.committed(manifest)
        self._epochs += 1
        self._rows += manifest.counts["records"]
        self._bar.update(
            self._task,
            advance=manifest.counts["input_files"],
            description=f"epoch {manifest.epoch}",
            figures=f"{number_of(self._epochs, 'epoch')}, {number_of(self._rows, 'row')}{self._rate()}",
        )

    def warned(self, warning: str) -> None:
        """Something that a person should know."""
        self._lines.warned(warning)

    def _rate(self) -> str:
        seconds = 0.0 if self._began is None else monotonic() - self._began
        return f", {self._rows / seconds:,.0f} rows/s" if seconds > 0 else ""

    def _print(self, line: str) -> None:
        self._bar.console.print(visible(line), soft_wrap=True, markup=False, emoji=False)
