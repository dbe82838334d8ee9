"""``headrace run``: one process run in this terminal, its progress by epoch, and its result object."""

import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headrace.entrypoints.cli_output import notice
from headrace.entrypoints.options import RunOptions
from headrace.entrypoints.results import RunError, RunResult, now, write
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store


def new_run_id() -> str:
    """A name for a run that was started by hand."""
    return f"cli-{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"


def run_recorded(pipeline: Pipeline, root: str, options: RunOptions, listener: "Watcher") -> RunResult:
    """Process the pipeline and keep the result object, of a failure too. Raises what process raises."""
    from headrace.entrypoints.process import process

    store, started_at = open_store(root), now()
    try:
        result = process(pipeline, root, options, listener=listener)
    except HeadraceError as error:
        failed = RunResult(
            options.run_id, pipeline.name, "process", "failed", started_at, now(), error=RunError.of(error)
        )
        try:
            write(store, failed)
        except HeadraceError as unwritten:
            error.add_note(f"and the result object could not be written: {unwritten}")
        raise
    write(store, result)
    return result


class Watcher:
    """A listener of a run: a bar of landed files in a terminal, else a line per epoch; both on stderr."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("starting Spark", total=None)

    def planned(self, files: int) -> None:
        """``files`` new files were found."""
        if self._bar is None or self._task is None:
            notice(f"{files:,} new files")
        else:
            self._bar.update(self._task, total=files, completed=0, description=f"{files:,} new files")

    def committed(self, manifest: Manifest) -> None:
        """An epoch became a snapshot."""
        counts, watermark = manifest.counts, manifest.progress["watermark"]
        text = f"epoch {manifest.epoch}: {counts['records']:,} records, watermark {watermark}"
        if self._bar is None or self._task is None:
            notice(f"{text}, snapshot {manifest.snapshot_id}")
        else:
            self._bar.update(self._task, advance=counts["input_files"], description=text)


@contextmanager
def watching() -> Iterator[Watcher]:
    """A watcher that fits where stderr goes."""
    if not sys.stderr.isatty():
        yield Watcher(None)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        yield Watcher(bar)
