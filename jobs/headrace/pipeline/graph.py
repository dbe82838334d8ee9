"""The pipeline itself: a frozen value whose fields read in the order of the model's questions.

source, event time, key, *where* (window), *when* (trigger), *how* (accumulation, lateness), *what* (aggregates),
expectations.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, How, behind
from headrace.model.combiners import Aggregate, readable_types
from headrace.model.expr import DataType, Expr, Schema
from headrace.model.panes import WINDOW_END, WINDOW_START
from headrace.model.triggers import Trigger
from headrace.model.typing import type_of
from headrace.model.value_types import ValueType
from headrace.model.windows import WindowFn
from headrace.pipeline.executors import Executor
from headrace.pipeline.expectations import Expectation
from headrace.pipeline.inputs import OWN, Deduplicate, EventTime, Input
from headrace.pipeline.schedules import check_schedule
from headrace.pipeline.sources import FileSource, SparkFunction
from headrace.pipeline.trigger_checks import nodes
from headrace.pipeline.validation import check

NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True)
class Aggregation:
    """One grouping: its key, *where*, *when*, *how* and *what*, over rows that pass ``filter``.

    Behind another one it reads the key, aggregates, ``window_start`` and ``window_end`` of that one's panes; their
    event time is the panes' own timestamp (semantics 7). A pane whose key is NULL there goes to the dead letters, which
    ``max_rejected`` of a source does not count. ``when`` None, behind another one, continues that one's trigger (4.7).
    ``transform`` makes other rows of the panes, before anything else reads them.
    """

    key: Mapping[str, Expr]
    where: WindowFn
    when: Trigger | None
    how: How
    what: Mapping[str, Aggregate]
    filter: Expr | None = None
    transform: SparkFunction | None = None


@dataclass(frozen=True)
class Stage:
    """An aggregation as it runs: its trigger and lateness settled, and the types of the rows that reach it.

    ``withdrawable``: these rows can be withdrawn again.
    """

    aggregation: Aggregation
    schema: Schema
    withdrawable: bool = False

    @property
    def when(self) -> Trigger:
        """Its trigger, never None."""
        if self.aggregation.when is None:
            raise PipelineError("when= is missing: the first aggregation of a pipeline has no trigger to continue")
        return self.aggregation.when

    def followed_by(self, aggregation: Aggregation) -> "Stage":
        """The stage behind this one. It continues the trigger if it has none (4.7), and its allowed lateness is at
        least that of this one (5.2)."""
        above = self.aggregation.how
        settled = replace(
            aggregation, when=aggregation.when or self.when.continuation, how=behind(above, aggregation.how)
        )
        schema = self.pane_schema if aggregation.transform is None else aggregation.transform.returns
        return Stage(settled, schema, above.accumulation is Accumulation.RETRACTING)

    @cached_property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns and their types, in order."""
        return {name: type_of(expr, self.schema) or DataType.STRING for name, expr in self.aggregation.key.items()}

    @cached_property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregate columns and their types, in order."""
        return {name: aggregate.output_type(self.schema) for name, aggregate in self.aggregation.what.items()}

    @cached_property
    def pane_schema(self) -> Schema:
        """Columns of its panes that a stage behind it can read."""
        values = readable_types(self.aggregation.what, self.schema)
        window = {WINDOW_START: DataType.TIMESTAMP, WINDOW_END: DataType.TIMESTAMP}
        return {**self.key_types, **values, **window}


@dataclass(frozen=True)
class Pipeline:
    """One aggregation from a source to panes, or several in a chain (``then``).

    ``key`` maps key column names to expressions; a record whose event time or any key is NULL goes to the dead letter.
    ``filter`` is applied after that check; what it removes still moves the watermark. ``allow_finishing`` accepts a
    trigger that can finish and so drop data (semantics 4.8), ``allow_double_counting`` accumulating panes that feed
    another aggregation, where a pane and its refinements all count (7.6).
    ``schedule`` is a cron expression or one of Airflow's presets; None: runs are started by hand.
    ``executor`` is where epochs are computed unless a run is asked for another; AUTO: without Spark while there is
    little to do.
    ``also`` are further inputs, united with ``source`` (12.9); ``deduplicate`` is applied to all of them together,
    behind the filter (12.10).
    Raises PipelineError, saying what to change, when the parts do not fit.
    """

    name: str
    source: FileSource
    event_time: EventTime
    key: Mapping[str, Expr]
    where: WindowFn
    when: Trigger
    how: How
    what: Mapping[str, Aggregate]
    filter: Expr | None = None
    expectations: tuple[Expectation, ...] = ()
    description: str = ""
    schedule: str | None = None
    allow_finishing: bool = False
    then: tuple[Aggregation, ...] = ()
    allow_double_counting: bool = False
    also: tuple[Input, ...] = ()
    deduplicate: Deduplicate | None = None
    executor: Executor = Executor.SPARK

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise PipelineError(
                f"pipeline name {self.name!r}: use lower case letters, digits and _, starting with a letter"
            )
        try:
            check_schedule(self.schedule)
        except PipelineError as error:
            raise PipelineError(f"pipeline {self.name}: {error}") from None
        if not isinstance(self.executor, Executor):
            known = ", ".join(f"Executor.{one.name}" for one in Executor)
            raise PipelineError(f"pipeline {self.name}: executor={self.executor!r}; write one of {known}")
        check(self)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Its aggregations as they run, first to last."""
        first = Aggregation(self.key, self.where, self.when, self.how, self.what, self.filter)
        stages = [Stage(first, self.schema)]
        for aggregation in self.then:
            stages.append(stages[-1].followed_by(aggregation))
        return tuple(stages)

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """All inputs in the order in which their records arrive, its own first, under the name ``OWN``."""
        return (Input(OWN, self.source, self.event_time), *self.also)

    @property
    def spark_functions(self) -> tuple[SparkFunction, ...]:
        """The Spark code of a user's own that it names, at its inputs and between its stages."""
        named = [each.source.transform for each in self.inputs]
        named += [stage.aggregation.transform for stage in self.stages]
        return tuple(function for function in named if function is not None)

    @property
    def signals(self) -> list[str]:
        """The names of the signals that its triggers wait for."""
        found = [node for stage in self.stages for node in nodes(stage.when)]
        return sorted({name for node in found for name in node.signals})

    @property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns of its panes (those of the last stage) and their types, in order."""
        return self.stages[-1].key_types

    @property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregate columns of its panes and their types, in order."""
        return self.stages[-1].value_types

    @property
    def schema(self) -> Schema:
        """Columns of a record, as event time, key and aggregates read them."""
        return self.source.columns
