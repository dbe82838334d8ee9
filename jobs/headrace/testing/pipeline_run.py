"""A pipeline over the steps of a test, in memory."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

from headrace.entry_points import EntryPointGroup
from headrace.model.accumulation import PANE_COLUMNS
from headrace.model.arguments import Arguments, keywords, shown
from headrace.model.time import MIN_INSTANT, Instant, render
from headrace.model.watermarks import Ingestion
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import Input
from headrace.testing.executors.interface import LATE_COLUMNS, REJECTED_COLUMNS, Computes, GivenEpoch, StepOutput
from headrace.testing.files import RecordsFile, landed
from headrace.testing.results import PaneRow, Panes, Result, StepResults, current_of, in_order
from headrace.testing.steps import Step, UnitTestError, watermark_time
from headrace_snapshots.format.table_names import UNNAMED

Executor = Literal["local", "reference"]
EXECUTORS: tuple[Executor, ...] = ("local", "reference")
INTERPRETERS: Final[EntryPointGroup[type[Computes]]] = EntryPointGroup(
    "headrace.test_executors", "executor of unit tests"
)
"""Executors of tests that the package headrace-lab brings: classes that are called with a pipeline, and the name of an
output.
"""

WITHOUT_INTERPRETER: Final = (
    "the executor 'reference' of tests comes with the package headrace-lab since 0.3, which is not installed (pip "
    "install ./lab in a clone of the repository): the kernel computes these tests, which gives the same. 0.5 refuses "
    "that"
)

_START = Instant(0)


@keywords
def run(
    pipeline: Pipeline, steps: Sequence[Step], *, executor: Executor = "local", output: str | None = None
) -> Result:
    """What ``pipeline`` gives over ``steps``, each of which is one epoch: ``rows(...)``, ``watermark(...)``,
    ``processing_time(...)``, ``signal(...)``, ``end()``, or several ``together(...)``.

    Nothing is read or written outside of this process's memory. ``executor`` "local" is the kernel that runs compute
    with, "reference" the short interpreter that defines what is right; both give the same. Without the package
    headrace-lab, which brings that, the kernel computes instead, and a DeprecationWarning says so. ``output`` is that
    of a pipeline with several, which is tested as if the pipeline had it alone, with those that it reads.

    Until a step sets the processing time, the clock stands at the newest event time or watermark so far, as if records
    arrived when they happened; at first at 1970-01-01 UTC. After the last step the input has not ended, unless
    that is ``end()``.

    Raises UnitTestError for a step that makes no sense, and what a run over such records would raise.
    """
    given = Arguments("run", UnitTestError)
    given.instance("pipeline", pipeline, Pipeline, "the pipeline to test")
    given.several("steps", steps, Step, "rows(...), watermark(...) or another step")
    alone = tested(pipeline, output)
    columns = _columns(alone)
    if not alone.upstream:
        pipeline, output = alone, None
    computes, clock = _executor(pipeline, checked_executor(executor), output or UNNAMED.output), _Clock(pipeline)
    panes: list[PaneRow] = []
    done: list[StepResults] = []
    for number, step in enumerate(steps):
        try:
            epoch = _epoch(pipeline, number, step, clock)
        except UnitTestError as error:
            error.step = number
            raise
        computed = computes.compute(epoch)
        panes += in_order(computed.panes)
        done.append(_outcome(computed, panes, epoch.processing_time, columns))
    last = done[-1] if done else None
    return Result(
        panes=Panes(panes),
        current=Panes(()) if last is None else last.current,
        late=[row for outcome in done for row in outcome.late],
        rejected=[row for outcome in done for row in outcome.rejected],
        watermark=watermark_time(MIN_INSTANT) if last is None else last.watermark,
        processing_time=None if last is None else last.processing_time,
        ahead=sum(outcome.ahead for outcome in done),
        columns=columns,
        steps=tuple(done),
    )


def tested(pipeline: Pipeline, output: str | None) -> Pipeline:
    """``pipeline`` with the ``output`` alone that is to be tested. Raises UnitTestError."""
    if output is None and pipeline.upstream:
        raise UnitTestError(
            f"an output of pipeline {pipeline.name} that reads others is tested with them: give the whole pipeline, "
            'and output="..."'
        )
    if output is None and not pipeline.has_names:
        return pipeline
    if output not in pipeline.outputs:
        there = ", ".join(pipeline.outputs) or "one without a name: leave out output="
        raise UnitTestError(f"output={shown(output)}: pipeline {pipeline.name} has the outputs {there}")
    return pipeline.by_output[str(output)]


def wrong_steps(pipeline: Pipeline, steps: Sequence[Step]) -> Iterator[UnitTestError]:
    """What makes no sense in ``steps``, of each the first mistake; nothing is computed."""
    clock = _Clock(pipeline)
    for number, step in enumerate(steps):
        try:
            _epoch(pipeline, number, step, clock)
        except UnitTestError as error:
            error.step = number
            yield error


def _outcome(
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


def _columns(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    own = (*pipeline.key_types, *pipeline.value_types)
    panes = (*own, "window", *(name for name in PANE_COLUMNS if name not in _UNSEEN))
    late = (*pipeline.record_key_types, "window", *LATE_COLUMNS)
    return {"panes": panes, "current": panes, "late": late, "rejected": REJECTED_COLUMNS}


_UNSEEN = {"nonspeculative_index", "epoch", "sequence"}


def checked_executor(name: object) -> Executor:
    """``name``, if it is one of an executor of tests. Raises UnitTestError."""
    for executor in EXECUTORS:
        if isinstance(name, str) and name == executor:
            return executor
    raise UnitTestError(f"executor={shown(name)}: write one of {', '.join(EXECUTORS)}")


def has_interpreter() -> bool:
    """Whether the executor "reference" is the interpreter, and not the kernel in its place."""
    return "reference" in INTERPRETERS


def _executor(pipeline: Pipeline, name: Executor, output: str) -> Computes:
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
    from headrace.testing.executors.on_local import LocalTestExecutor

    return LocalTestExecutor(pipeline, output)


class _Clock:
    """Processing time: what steps say; until one says it, the newest event time or watermark so far."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._now: Instant | None = None
        self._is_set = False

    def at(self, number: int, step: Step, files: dict[str, RecordsFile], watermarks: dict[str, Instant]) -> Instant:
        """When the epoch of ``step`` runs."""
        now = step.processing_time
        if now is None and not self._is_set:
            times = [self._now, *watermarks.values(), *(file.newest for file in files.values())]
            now = Instant(max((at for at in times if at is not None), default=_START))
        elif now is not None:
            if self._is_set and self._now is not None and now < self._now:
                raise UnitTestError(
                    f"step {number} sets the processing time to {render(now)}, and it is {render(self._now)} already: "
                    "a clock does not go back"
                )
            if self._now is not None and now < self._now:
                raise UnitTestError(
                    f"step {number} sets the processing time to {render(now)}, and steps before it brought records or "
                    f"a watermark of {render(self._now)}, which the clock follows until it is set: set it before them"
                )
            self._is_set = True
        self._now = self._now if now is None else now
        assert self._now is not None
        return self._now


def _epoch(pipeline: Pipeline, number: int, step: Step, clock: _Clock) -> GivenEpoch:
    inputs = {given.name: given for given in pipeline.inputs}
    for name in (*step.rows, *step.watermarks):
        if name is not None and name not in inputs:
            raise UnitTestError(
                f"step {number} names the input {shown(name)}; pipeline {pipeline.name} has {', '.join(inputs)}"
            )
    for signal in step.signals:
        if signal.name not in pipeline.signals:
            known = ", ".join(pipeline.signals) or "no signal"
            raise UnitTestError(
                f"step {number}: no trigger of {pipeline.name} waits for {signal.name!r}, but for {known}"
            )
    files = {
        name: landed(pipeline, inputs[name], records, f"step {number}")
        for name, records in step.rows.items()
        if records
    }
    watermarks = _watermarks(inputs, number, step)
    now = clock.at(number, step, files, watermarks)
    return GivenEpoch(number, now, files, watermarks, step.signals, step.is_last)


def _watermarks(inputs: dict[str, Input], number: int, step: Step) -> dict[str, Instant]:
    watermarks: dict[str, Instant] = {}
    for of, to in step.watermarks.items():
        for name in inputs if of is None else [of]:
            watermarks[name] = Instant(max(to, watermarks.get(name, to)))
    for name in watermarks:
        if isinstance(inputs[name].event_time.watermark, Ingestion):
            raise UnitTestError(
                f"step {number}: input {name} goes by the time of arrival, so its watermark is the clock: write "
                "processing_time(...)"
            )
    return watermarks
