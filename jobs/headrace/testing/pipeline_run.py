"""A pipeline over the steps of a test, in memory, and what computes its epochs.

``Computes`` is what a test asks of whatever computes its epochs. ``LocalTestExecutor`` computes them on the kernel, in
this process: it is the executor ``local`` itself, over a store in memory.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

import pyarrow as pa

from headrace.distribute.epoch import Attempt
from headrace.distribute.local import LocalEngine
from headrace.ext.sources import SOURCES, OpenSource, SourceSplit
from headrace.ext.stores import ObjectStore
from headrace.installed import EntryPointGroup
from headrace.model.accumulation import EVENT_TIME, PANE_COLUMNS, ROW_COLUMNS, WINDOW_END, WINDOW_START, Timing
from headrace.model.arguments import Arguments, check_keywords, short_repr
from headrace.model.event_time import Ingestion
from headrace.model.expressions.data_types import PairsType, ValueType
from headrace.model.time import MIN_INSTANT, Instant, render
from headrace.model.triggers import Signal
from headrace.pipeline import identity
from headrace.pipeline.endpoints import Input, Source
from headrace.pipeline.pipeline import Pipeline
from headrace.read.views.arrow_types import python_rows
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import read_tables
from headrace.sources.landing import Landing
from headrace.state.file_cache import RowsInMemory
from headrace.testing.deployment import RecordsFile, land_records, stand_in
from headrace.testing.results import OutputRow, PaneRow, Panes, Result, Row, StepResults, TimeSpan, current_of, in_order
from headrace.testing.steps import Step, UnitTestError, watermark_time
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import REJECTED, UNNAMED, OutputTables
from headrace_snapshots.store.local import MemoryStore


@dataclass(frozen=True)
class GivenEpoch:
    """One epoch, its times settled: ``watermarks`` by input are passed in it, whatever its records say."""

    number: int
    processing_time: Instant
    files: Mapping[str, RecordsFile]
    watermarks: Mapping[str, Instant]
    signals: tuple[Signal, ...]
    is_last: bool


@dataclass(frozen=True)
class StepOutput:
    """What an epoch gave: ``panes`` in order of emission within their window."""

    panes: list[PaneRow]
    late: list[Row]
    rejected: list[Row]
    watermark: Instant
    ahead: int


class Computes(Protocol):
    """An ``output`` of a pipeline between two epochs."""

    def __init__(self, pipeline: Pipeline, output: str) -> None: ...

    def compute(self, epoch: GivenEpoch) -> StepOutput:
        """The next epoch."""


LATE_COLUMNS = ("event_time", "window_start", "window_end", "reason", "input", "raw")
"""What a late row says beside its key. The reference knows neither ``input`` nor ``raw``."""

REJECTED_COLUMNS = ("input", "position", "reason", "raw")
"""What a dead letter says; a pane that a later aggregation cannot take has no position, and from the
reference no ``raw``."""


Executor = Literal["local", "reference"]
EXECUTORS: tuple[Executor, ...] = ("local", "reference")
INTERPRETERS: Final[EntryPointGroup[type[Computes]]] = EntryPointGroup(
    "headrace.test_executors", "executor of unit tests"
)
"""Executors of tests in the package headrace-lab: classes that are called with a pipeline, and an output's name."""

WITHOUT_INTERPRETER: Final = (
    "the executor 'reference' of tests comes with the package headrace-lab since 0.3, which is not installed (pip "
    "install ./lab in a clone of the repository). The kernel computes these tests, which gives the same. 0.5 refuses "
    "that"
)

_START_INSTANT = Instant(0)


@check_keywords
def run(
    pipeline: Pipeline, steps: Sequence[Step], *, executor: Executor = "local", output: str | None = None
) -> Result:
    """What ``pipeline`` gives over ``steps``, each of which is one epoch: ``rows(...)``, ``watermark(...)``,
    ``processing_time(...)``, ``signal(...)``, ``end()``, or several ``together(...)``.

    Nothing is read or written outside of this process's memory. ``executor`` "local" is the kernel that runs compute
    with, "reference" the short interpreter that defines what is right; both give the same. Without the package
    headrace-lab, which brings that, the kernel computes instead, and a DeprecationWarning says so. ``output`` is that
    of a pipeline with several, which is tested as if the pipeline had it alone, with those that it reads.

    Until a step sets the processing time, the clock stands at the newest event time or watermark so far. So records
    seem to arrive when they happened; at first at 1970-01-01 UTC. After the last step the input has not ended, unless
    that is ``end()``.

    Raises UnitTestError for a step that makes no sense, and what a run over such records would raise.
    """
    arguments = Arguments("run", UnitTestError)
    arguments.instance("pipeline", pipeline, Pipeline, "the pipeline to test")
    arguments.tuple_of("steps", steps, Step, "rows(...), watermark(...) or another step")
    tested_pipeline = pipeline_under_test(pipeline, output)
    columns = _columns_by_view(tested_pipeline)
    if not tested_pipeline.upstream:
        pipeline, output = tested_pipeline, None
    computes, clock = _make_executor(pipeline, checked_executor(executor), output or UNNAMED.output), _Clock(pipeline)
    panes: list[PaneRow] = []
    results: list[StepResults] = []
    for number, step in enumerate(steps):
        try:
            epoch = _epoch_from_step(pipeline, number, step, clock)
        except UnitTestError as error:
            error.step = number
            raise
        step_output = computes.compute(epoch)
        panes += in_order(step_output.panes)
        results.append(_step_results(step_output, panes, epoch.processing_time, columns))
    last = results[-1] if results else None
    return Result(
        panes=Panes(panes),
        current=Panes(()) if last is None else last.current,
        late=[row for outcome in results for row in outcome.late],
        rejected=[row for outcome in results for row in outcome.rejected],
        watermark=watermark_time(MIN_INSTANT) if last is None else last.watermark,
        processing_time=None if last is None else last.processing_time,
        ahead=sum(outcome.ahead for outcome in results),
        columns=columns,
        steps=tuple(results),
    )


@check_keywords
def fingerprint(pipeline: Pipeline) -> str:
    """What tells whether the state of runs still belongs to ``pipeline``: 32 hexadecimal digits of what its results are
    made of. A run continues from a snapshot with the same fingerprint.

    It is the same in every version of Headrace, so a test may hold a definition to it. Descriptions, schedules,
    executors, expectations and limits do not count.

    Raises UnitTestError for what is no pipeline.

    >>> fingerprint(delays)
    '...'
    """
    Arguments("fingerprint", UnitTestError).instance("pipeline", pipeline, Pipeline, "a pipeline")
    return identity.fingerprint(pipeline)


def pipeline_under_test(pipeline: Pipeline, output: str | None) -> Pipeline:
    """``pipeline`` with the ``output`` alone that is to be tested. Raises UnitTestError."""
    if output is None and pipeline.upstream:
        raise UnitTestError(
            f"an output of pipeline {pipeline.name} that reads others is tested with them: give the whole pipeline, "
            'and output="..."'
        )
    if output is None and not pipeline.has_names:
        return pipeline
    if output not in pipeline.outputs:
        outputs_text = ", ".join(pipeline.outputs) or "one without a name: leave out output="
        raise UnitTestError(f"output={short_repr(output)}: pipeline {pipeline.name} has the outputs {outputs_text}")
    return pipeline.by_output[str(output)]


def wrong_steps(pipeline: Pipeline, steps: Sequence[Step]) -> Iterator[UnitTestError]:
    """What makes no sense in ``steps``, of each the first mistake; nothing is computed."""
    clock = _Clock(pipeline)
    for number, step in enumerate(steps):
        try:
            _epoch_from_step(pipeline, number, step, clock)
        except UnitTestError as error:
            error.step = number
            yield error


def _step_results(
    output: StepOutput, so_far: list[PaneRow], now: Instant, columns: Mapping[str, tuple[str, ...]]
) -> StepResults:
    return StepResults(
        panes=Panes(in_order(output.panes)),
        current=current_of(so_far),
        late=output.late,
        rejected=output.rejected,
        watermark=watermark_time(output.watermark),
        processing_time=watermark_time(now),
        ahead=output.ahead,
        columns=columns,
    )


def _columns_by_view(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    own = (*pipeline.key_types, *pipeline.value_types)
    view_columns = ROW_COLUMNS if pipeline.rows else ("window", *PANE_COLUMNS)
    panes = (*own, *(name for name in view_columns if name not in _UNSEEN))
    late = (*pipeline.record_key_types, "window", *LATE_COLUMNS)
    return {"panes": panes, "current": panes, "late": late, "rejected": REJECTED_COLUMNS}


_UNSEEN = {"nonspeculative_index", "epoch", "sequence"}


def checked_executor(name: object) -> Executor:
    """``name``, if it is one of an executor of tests. Raises UnitTestError."""
    for executor in EXECUTORS:
        if isinstance(name, str) and name == executor:
            return executor
    raise UnitTestError(f"executor={short_repr(name)}: write one of {', '.join(EXECUTORS)}")


def has_interpreter() -> bool:
    """Whether the executor "reference" is the interpreter, and not the kernel in its place."""
    return "reference" in INTERPRETERS


def _make_executor(pipeline: Pipeline, name: Executor, output: str) -> Computes:
    if pipeline.spark_functions:
        raise UnitTestError(
            f"pipeline {pipeline.name} sends rows through {pipeline.spark_functions[0].name}, which is Spark code: "
            'test it with the fixture `deployment`, whose run(pipeline, executor="spark") starts Spark'
        )
    if name != "local":
        interpreter = INTERPRETERS.get(name)
        if interpreter is not None:
            return interpreter(pipeline, output)
        warnings.warn(WITHOUT_INTERPRETER, DeprecationWarning, stacklevel=4)  # at the caller of ``run``

    return LocalTestExecutor(pipeline, output)


class _Clock:
    """Processing time: what steps say; until one says it, the newest event time or watermark so far."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._now: Instant | None = None
        self._is_set = False

    def epoch_time(
        self, number: int, step: Step, files: dict[str, RecordsFile], watermarks: dict[str, Instant]
    ) -> Instant:
        """When the epoch of ``step`` runs."""
        now = step.processing_time
        if now is None and not self._is_set:
            times = [self._now, *watermarks.values(), *(file.newest for file in files.values())]
            now = Instant(max((time for time in times if time is not None), default=_START_INSTANT))
        elif now is not None:
            if self._is_set and self._now is not None and now < self._now:
                raise UnitTestError(
                    f"step {number} sets the processing time to {render(now)}, and it is {render(self._now)} already: "
                    "a clock does not go back"
                )
            if self._now is not None and now < self._now:
                raise UnitTestError(
                    f"step {number} sets the processing time to {render(now)}. Steps before it brought records or "
                    f"a watermark of {render(self._now)}, which the clock follows until it is set: set it before them"
                )
            self._is_set = True
        self._now = self._now if now is None else now
        assert self._now is not None
        return self._now


def _epoch_from_step(pipeline: Pipeline, number: int, step: Step, clock: _Clock) -> GivenEpoch:
    inputs = {input_.name: input_ for input_ in pipeline.inputs}
    for name in (*step.rows, *step.watermarks):
        if name is not None and name not in inputs:
            raise UnitTestError(
                f"step {number} names the input {short_repr(name)}; pipeline {pipeline.name} has {', '.join(inputs)}"
            )
    for signal in step.signals:
        if signal.name not in pipeline.signals:
            known_signals = ", ".join(pipeline.signals) or "no signal"
            raise UnitTestError(
                f"step {number}: no trigger of {pipeline.name} waits for {signal.name!r}, but for {known_signals}"
            )
    files = {
        name: land_records(pipeline, inputs[name], records, number) for name, records in step.rows.items() if records
    }
    watermarks = _step_watermarks(inputs, number, step)
    now = clock.epoch_time(number, step, files, watermarks)
    return GivenEpoch(number, now, files, watermarks, step.signals, step.is_last)


def _step_watermarks(inputs: dict[str, Input], number: int, step: Step) -> dict[str, Instant]:
    watermarks: dict[str, Instant] = {}
    for input_name, watermark in step.watermarks.items():
        for name in inputs if input_name is None else [input_name]:
            watermarks[name] = Instant(max(watermark, watermarks.get(name, watermark)))
    for name in watermarks:
        if isinstance(inputs[name].event_time.watermark, Ingestion):
            raise UnitTestError(
                f"step {number}: input {name} goes by the time of arrival, so its watermark is the clock: write "
                "processing_time(...)"
            )
    return watermarks


OUTPUT = "output"
"""The column of dead letters that says which output could not take one."""


class LocalTestExecutor:
    """An ``output`` of a pipeline on the kernel."""

    def __init__(self, pipeline: Pipeline, output: str = UNNAMED.output) -> None:
        self._store = MemoryStore()
        self._names = OutputTables(output)
        self._columns = ViewColumns.from_pipeline(pipeline.by_output[output])
        landing = _Landing(pipeline, self._store)
        self._engine = LocalEngine(pipeline, self._store, landing, _attempt_for_epoch, RowsInMemory())

    def compute(self, epoch: GivenEpoch) -> StepOutput:
        """The next epoch."""
        files = {}
        for name, file in epoch.files.items():
            path = f"landing/{name}/{epoch.number:06}.{stand_in(file.input.source).format}"
            info = self._store.write(path, file.content)
            files[name] = [SourceSplit(info.path, info.size, info.etag)]
        self._engine.pass_watermark(epoch.watermarks)
        epoch_result = self._engine.compute(files, epoch.processing_time, is_last=epoch.is_last, signals=epoch.signals)
        logs = epoch_result.written.logs
        late = [*self._columns.late_keys, *LATE_COLUMNS]
        own_watermark = epoch_result.progress.chains[self._names.output].watermark
        return StepOutput(
            panes=[self._pane_row(epoch.number, row) for row in self._view_rows(View.PANES, logs[self._names.panes])],
            late=[{name: row[name] for name in late} for row in self._view_rows(View.LATE, logs[self._names.late])],
            rejected=[{name: row[name] for name in REJECTED_COLUMNS} for row in self._rejected_rows(logs[REJECTED])],
            watermark=epoch_result.progress.watermark if own_watermark is None else own_watermark,
            ahead=sum(record.records for record in epoch_result.progress.ahead),
        )

    def _view_rows(self, view: View, files: tuple[DataFile, ...]) -> list[Row]:
        rows = [
            row
            for table in read_tables(self._store, files, self._columns.arrow_schema(view))
            for row in _python_rows(table)
        ]
        return sorted(rows, key=lambda row: row["sequence"]) if view is View.PANES else rows

    def _rejected_rows(self, files: tuple[DataFile, ...]) -> list[Row]:
        schema = self._columns.arrow_schema(View.REJECTED)
        if self._names == UNNAMED:
            return self._view_rows(View.REJECTED, files)
        schema_with_output = schema.append(pa.field(OUTPUT, pa.string()))
        rows: list[Row] = [
            row for table in read_tables(self._store, files, schema_with_output) for row in _python_rows(table)
        ]
        return [row for row in rows if row[OUTPUT] == self._names.output]

    def _pane_row(self, number: int, row: Row) -> PaneRow:
        if self._columns.are_rows:
            values = {name: _shown_value(row[name], kind) for name, kind in self._columns.values.items()}
            timing, is_retraction = Timing(row["timing"]), row["is_retraction"]
            return OutputRow.from_values(number, values, row[EVENT_TIME], timing, is_retraction=is_retraction)
        return PaneRow(
            step=number,
            key={name: row[name] for name in self._columns.keys},
            window=TimeSpan(row["window_start"], row["window_end"]),
            values={name: _shown_value(row[name], kind) for name, kind in self._columns.values.items()},
            timing=Timing(row["timing"]),
            index=row["pane_index"],
            is_retraction=row["is_retraction"],
            is_first=row["is_first"],
            is_last=row["is_last"],
            time=row["pane_time"],
        )


class _Landing(Landing):
    """Inputs in a store of the test's, wherever the pipeline's own files land."""

    def _open(self, name: str, source: Source, root: ObjectStore) -> OpenSource:
        files = replace(stand_in(source), path=f"landing/{name}")  # type: ignore[type-var]
        return SOURCES["files"].open(files, root)


def _python_rows(table: pa.Table) -> list[Row]:
    """Rows with aware times; one beyond Python's years is None in panes and windows (``testing.steps.real``)."""
    times = {WINDOW_START, WINDOW_END, "pane_time", EVENT_TIME}
    rows = python_rows(table)
    return [
        {name: None if name in times and isinstance(value, str) else value for name, value in row.items()}
        for row in rows
    ]


def _attempt_for_epoch(epoch: int) -> Attempt:
    return Attempt(f"epoch-{epoch}", f"data/{epoch:06}")


def _shown_value(value: list[dict[str, object]] | None, kind: ValueType) -> object:
    """A ``value`` of ``kind`` with pairs as tuples."""
    return [tuple(pair.values()) for pair in value] if isinstance(kind, PairsType) and value is not None else value
