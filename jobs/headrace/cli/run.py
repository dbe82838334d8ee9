"""``headrace run``: one process run in this terminal, its progress by epoch, and its result object."""

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.cli.output import notice
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline
from headrace.read.roots import MissingRootError
from headrace.runs.options import RunOptions
from headrace.runs.report import Lines, Listener
from headrace.runs.results import RunError, RunResult, now, write
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store


def new_run_id() -> str:
    """A name for a run that was started by hand."""
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def run_recorded(pipeline: Pipeline, root: str, options: RunOptions, listener: Listener) -> RunResult:
    """Process the pipeline and keep the result object, of a failure too. Raises what process raises."""
    from headrace.runs.process import process

    store, started_at = open_store(root), now()
    try:
        result = process(pipeline, root, options, listener=listener)
    except MissingRootError:
        raise  # the result object would make it
    except HeadraceError as error:
        failed = RunResult(
            options.run_id,
            pipeline.name,
            "process",
            "failed",
            started_at,
            now(),
            error=RunError.of(error),
            branch=options.branch,
        )
        try:
            write(store, failed)
        except HeadraceError as unwritten:
            error.add_note(f"and the result object could not be written: {unwritten}")
        raise
    write(store, result)
    return result


class Bar:
    """A listener of a run in a terminal: a bar of landed files, and above it a line for each thing that was told."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("looking for new files", total=None)
        self._lines = Lines(self._print)

    def noted(self, what: str) -> None:
        """What the run is doing now stands before the bar."""
        self._bar.update(self._task, description=what)

    def planned(self, files: int) -> None:
        """``files`` new files were found."""
        self._bar.update(self._task, total=files, completed=0, description=f"{files:,} new files")

    def committed(self, manifest: Manifest) -> None:
        """An epoch became a snapshot."""
        self._lines.committed(manifest)
        self._bar.update(self._task, advance=manifest.counts["input_files"], description=f"epoch {manifest.epoch}")

    def warned(self, warning: str) -> None:
        """Something that a person should know."""
        self._lines.warned(warning)

    def _print(self, line: str) -> None:
        self._bar.console.print(escape(line), soft_wrap=True)


@contextmanager
def watching() -> Iterator[Listener]:
    """A listener that fits where stderr goes."""
    if not sys.stderr.isatty():
        yield Lines(notice)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True, highlight=False)) as bar:
        yield Bar(bar)
