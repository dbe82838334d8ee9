"""A deployment of its own for a test: a temporary root on the local disk, on which pipelines run in earnest."""

import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace.model.arguments import Arguments
from headrace.model.expressions.expr import Expr
from headrace.model.time import to_datetime
from headrace.pipeline.executors import executor_name
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import OWN, Input
from headrace.pipeline.sources import FilesSource
from headrace.testing.files import stand_in, written
from headrace.testing.results import Row
from headrace.testing.steps import Record, UnitTestError, moment


class TemporaryDeployment:
    """Land files, run pipelines, read what they found, below ``folder``; ``root`` is its URI, as commands take it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._landed = 0
        self._runs = 0

    @property
    def root(self) -> str:
        """Its URI."""
        return self.folder.resolve().as_uri()

    def land(self, pipeline: Pipeline, *records: Record | Path, of: str = OWN) -> list[Path]:
        """Land ``records`` as one file of the input named ``of`` (by default the pipeline's own), as
        ``testing.rows`` writes them; and each file that is given by its path as it is. The paths of what landed, which
        sort in the order of landing.
        """
        given = _input(pipeline, of)
        own = [record for record in records if not isinstance(record, Path)]
        paths = [self._copied(given, record) for record in records if isinstance(record, Path)]
        if own:
            source = stand_in(given.source)
            path = self._path(given, source.suffixes[0] if source.suffixes else f".{source.format}")
            path.write_bytes(written(given, own))
            paths.append(path)
        return paths

    def run(
        self,
        pipeline: Pipeline,
        *,
        executor: str = "local",
        at: str | datetime | None = None,
        signals: Sequence[str] = (),
        files_per_epoch: int | None = None,
        batch: bool = False,
        publish: bool = True,
        allow_new_aggregates: bool = False,
    ) -> Any:
        """Run ``pipeline`` over what has landed, audit it, and publish it if the audit succeeds: a RunResult
        (``headrace.runs.reporting.results``).

        ``executor`` is "local", or "spark", which needs a JVM. ``at`` is the processing time, that of the machine if
        left out; ``signals`` are written as ``headrace run --signal`` takes them. ``batch``: all input is one epoch,
        and ends. ``allow_new_aggregates``: aggregates that the last snapshot does not have start empty. Raises what
        ``headrace run`` reports.
        """
        from headrace.runs.modes import Mode
        from headrace.runs.option_values import parse_signal
        from headrace.runs.options import RunOptions
        from headrace.runs.process import process

        self._runs += 1
        now = None if at is None else to_datetime(moment(at, "run(at=...)"))
        options = RunOptions(
            f"test-{self._runs}",
            executor=executor_name(Arguments("run", UnitTestError), executor),
            signals=tuple(map(parse_signal, signals)),
            files_per_epoch=files_per_epoch,
            mode=Mode.BATCH if batch else Mode.MICRO_BATCH,
            publish=publish,
            allow_new_aggregates=allow_new_aggregates,
        )
        return process(pipeline, self.root, options, now=None if now is None else lambda: now)

    def read(
        self,
        pipeline: Pipeline,
        view: str = "current",
        *,
        at: str | None = None,
        where: str | Expr | None = None,
        columns: Sequence[str] | None = None,
    ) -> list[Row]:
        """The rows of a view (current, panes, late or rejected) as dicts, none before anything is published.

        ``at``, ``where`` and ``columns`` are those of ``headrace.open(root)["delays"].current(...)``, which reads
        more than fits into memory.
        """
        from headrace.read.pipeline_reader import PipelineReader
        from headrace.read.views.columns import View
        from headrace_snapshots.catalog import Catalog
        from headrace_snapshots.store import open_store

        reader = PipelineReader(Catalog(open_store(self.root), pipeline.name), pipeline)
        kind = Arguments("read", UnitTestError).choice("view", view, View)
        rows: list[Row] = reader.read(kind, at=at, where=where, columns=columns).to_arrow().to_pylist()
        return rows

    def _copied(self, given: Input, file: Path) -> Path:
        if not file.is_file():
            raise UnitTestError(f"land(...): there is no file {file}")
        path = self._path(given, f"-{file.name}")
        shutil.copyfile(file, path)
        return path

    def _path(self, given: Input, ending: str) -> Path:
        self._landed += 1
        folder = self.folder / given.source.place.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self._landed:06}{ending}"


def _input(pipeline: Pipeline, name: str) -> Input:
    inputs = {given.name: given for given in pipeline.inputs}
    if name not in inputs:
        raise UnitTestError(f"land(of={name!r}): pipeline {pipeline.name} has the inputs {', '.join(inputs)}")
    source = inputs[name].source
    if not isinstance(source, FilesSource) or "://" in source.path:
        raise UnitTestError(
            f"input {name} of pipeline {pipeline.name} reads {source.place}, which is not below the root "
            "of a deployment: give its source a path like landing/flights"
        )
    return inputs[name]
