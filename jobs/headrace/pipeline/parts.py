"""The parts of a pipeline and what follows from them: its inputs, its stages, the columns of its panes.

``Pipeline`` makes the parts of what users write, and checks that they fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

from headrace.errors import PipelineError
from headrace.model.accumulation import with_upstream_lateness
from headrace.model.event_time import Deduplicate, EventTime
from headrace.model.expressions.data_types import ColumnType, DataType, NestedType, Schema, ValueType
from headrace.model.expressions.expr import Column, Expr, Literal
from headrace.model.expressions.typing import kind_of, type_of
from headrace.model.time import Duration
from headrace.pipeline import output as pipeline_output
from headrace.pipeline.deployment import AirflowOptions, Backfill, Retention, Schedule
from headrace.pipeline.endpoints import Input, Sink, Source
from headrace.pipeline.joins import Join, joined_schema, lateness_of, payload_of
from headrace.pipeline.loops import Loop, element_schema
from headrace.pipeline.quality import Expectation, Limits, UsualCheck
from headrace.pipeline.rows import BUCKET, Take
from headrace.pipeline.stages import Aggregation, GroupingFields, Stage, read_by

P = TypeVar("P", bound="PipelineParts[Any]")
"""The class of pipelines, which inherits their parts."""


class SeveralOutputsError(PipelineError, code="config.several_outputs"):
    """A pipeline with several outputs was taken for one with one."""


@dataclass(frozen=True)
class Upstream(Generic[P]):
    """The panes of an ``output``, which the ``pipeline`` has alone. ``columns``: what the output below reads of them
    under other names than theirs, or beside their own columns. ``side``: 0 of what it is of, ``n`` of the right side of
    its ``n``-th join.
    """

    output: str
    pipeline: P
    columns: Mapping[str, Expr]
    side: int = 0

    @property
    def stage(self) -> Stage:
        """The stage that gives the panes."""
        return self.pipeline.stages[-1]

    @property
    def lateness(self) -> Duration | None:
        """How far behind the output watermark panes may come; rows of records have no known lateness, and give 0s."""
        if not self.stage.is_stateless:
            return self.stage.aggregation.how.allowed_lateness
        return self.pipeline.latenesses[-1] if self.pipeline.join else Duration(0)

    def expressions(self, schema: Schema) -> dict[str, Expr]:
        """Every column of ``schema`` over the columns of the panes: one that they lack is NULL. Raises PipelineError if
        one has another type.
        """
        return {name: self._expression(name, kind) for name, kind in schema.items()}

    def _expression(self, name: str, kind: ColumnType) -> Expr:
        panes = self.stage.pane_schema
        if isinstance(kind, NestedType):  # which all have
            return self.columns.get(name, Column(name))
        expr = self.columns.get(name, Column(name) if name in panes else Literal(None, kind))
        if (own := type_of(expr, panes)) is not kind:
            raise PipelineError(
                f"output {self.output} gives {name!r} as {own}, and the first of the outputs that are united as "
                f"{kind}: cast it in columns={{{self.output!r}: ...}}"
            )
        return expr

    def type_of(self, name: str) -> ColumnType | None:
        """The type of the column ``name`` as it gives it; None if it lacks one, or that is always NULL."""
        panes = self.stage.pane_schema
        return kind_of(self.columns[name], panes) if name in self.columns else panes.get(name)


@dataclass(frozen=True)
class UnitedPanes:
    """The panes of some outputs as those of one: in the columns of the first, and those that ``columns=`` names."""

    upstream: tuple[Upstream[Any], ...]

    @cached_property
    def schema(self) -> Schema:
        """The columns; nested columns count only if all outputs have them. Raises PipelineError if two outputs give one
        of them in different types.
        """
        schema = dict(self.upstream[0].stage.pane_schema)
        for number, upstream_output in enumerate(self.upstream):
            for name in upstream_output.columns:
                kind = upstream_output.type_of(name)
                if kind is None:
                    raise PipelineError(
                        f"columns of output {upstream_output.output}: {name!r} is always NULL; leave it out"
                    )
                if number == 0 or name not in schema:
                    schema[name] = kind
        for name in [name for name, kind in schema.items() if isinstance(kind, NestedType)]:
            if any(upstream_output.type_of(name) != schema[name] for upstream_output in self.upstream):
                del schema[name]
        for upstream_output in self.upstream:
            upstream_output.expressions(schema)
        return schema

    def stage(self, aggregation: Aggregation, *, null_keys: bool) -> Stage:
        """``aggregation`` of these panes, as the stage that it is: below one output it is what it is in ``then``; below
        several its allowed lateness is at least the longest of theirs (5.2), and rows can be withdrawn if one of them
        withdraws panes. ``null_keys`` are its own.
        """
        schema = read_by(aggregation, self.schema)
        if aggregation.rows and not aggregation.takes_rows:
            return Stage(aggregation, schema, any(upstream_output.stage.withdraws for upstream_output in self.upstream))
        if len(self.upstream) == 1:
            following_stage = self.upstream[0].stage.followed_by(aggregation)
            return replace(following_stage, schema=schema, null_keys=null_keys)
        how = aggregation.how
        for upstream_output in self.upstream:
            how = with_upstream_lateness(upstream_output.stage.aggregation.how, how)
        withdrawable = any(upstream_output.stage.withdraws for upstream_output in self.upstream)
        return Stage(aggregation.with_trigger(aggregation.when, how), schema, withdrawable, null_keys=null_keys)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class _NamedInput:
    """What a pipeline is called, and what it reads."""

    name: str
    input: Input


@dataclass(frozen=True, init=False)
class PipelineParts(GroupingFields, _NamedInput, Generic[P]):  # the fields of the last base come first
    """A pipeline as what is above it knows it: the class ``P``, which says what each field is."""

    loop: Loop | None
    first: Aggregation = field(init=False, repr=False, compare=False)
    _edges: Aggregation | None = field(init=False, repr=False, compare=False)
    deduplicate: Deduplicate | None
    union: tuple[Input, ...]
    join: tuple[Join, ...]
    outputs: Mapping[str, pipeline_output.AnyOutput]
    rows: Mapping[str, Expr]
    take: Take | None
    id: tuple[str, ...]
    then: tuple[Aggregation, ...]
    expectations: tuple[Expectation, ...]
    limits: Limits | None
    usual: tuple[UsualCheck, ...]
    sinks: tuple[Sink, ...]
    description: str
    schedule: Schedule | None
    backfill: Backfill | None
    retention: Retention | None
    airflow: AirflowOptions | None
    executor: str
    null_keys: bool
    allow_finishing: bool
    allow_double_counting: bool
    _upstream: tuple[Upstream[P], ...] = field(repr=False)

    @property
    def upstream(self) -> tuple[Upstream[P], ...]:
        """The outputs whose panes its only output reads, those that it joins last; none: it reads records."""
        return self._upstream

    @property
    def united_panes(self) -> UnitedPanes | None:
        """What its only output is of, without what it joins; None: it reads records."""
        outputs = tuple(output for output in self.upstream if not output.side)
        return UnitedPanes(outputs) if outputs else None

    @property
    def has_names(self) -> bool:
        """Whether its outputs have names; the only one of others has none."""
        return bool(self.outputs)

    @property
    def source(self) -> Source:
        return self.input.source

    @property
    def event_time(self) -> EventTime:
        """Event time and watermark of its own input."""
        return self.input.event_time

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """Its aggregations as they run, first to last. Raises SeveralOutputsError if it has outputs with names: each
        of ``by_output`` has its own.
        """
        if self.outputs:
            raise SeveralOutputsError(
                f"pipeline {self.name} has the outputs {', '.join(self.outputs)}: name one of them, such as "
                f"{self.name}.{next(iter(self.outputs))}"
            )
        united_panes = None if self.join else self.united_panes
        schema = self.joined_schema if self.loop is None else element_schema(self.loop, self.key, self.schema)
        first = Stage(self.first, schema, self.withdraws_elements, null_keys=self.null_keys)
        if self.join and not first.is_stateless:
            how = with_upstream_lateness(replace(self.first.how, allowed_lateness=self.latenesses[-1]), self.first.how)
            first = replace(first, aggregation=self.first.with_trigger(self.when, how))
        stages = [
            (first if united_panes is None else united_panes.stage(self.first, null_keys=self.null_keys)).appending_once
        ]
        for aggregation in self.then:
            stages.append(stages[-1].followed_by(aggregation))
        return tuple(stages)

    @property
    def of_edges(self) -> tuple[Aggregation, ...]:
        """The grouping of records as edges, where it has a loop."""
        return () if self._edges is None else (self._edges,)

    @cached_property
    def edges(self) -> Stage | None:
        """Records as the edges of its loop, grouped by their ends and what the loop's step reads of them; None without
        a loop. What becomes of records is decided here; its first aggregation is of what the loop makes of them.
        """
        if self.loop is None or self._edges is None:
            return None
        return Stage(self._edges, self.schema, terms=self.loop.compiled_step.terms)

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """All inputs in the order in which their records arrive, its own first, under the name ``OWN``; joined inputs
        come last, each once.
        """
        joined_inputs = {join.name: join.right for join in self.joins_of_inputs}
        return (self.input, *self.union, *joined_inputs.values())

    @property
    def joins_of_inputs(self) -> tuple[Join, ...]:
        """The joins of all its outputs whose right sides are inputs."""
        joins = (*self.join, *(join for output in self.outputs.values() for join in output.join))
        return tuple(join for join in joins if not join.is_of_output)

    @property
    def left_inputs(self) -> tuple[Input, ...]:
        """The inputs whose records take the form of its own."""
        return (self.input, *self.union)

    def is_left(self, input_: Input) -> bool:
        """Whether an input of its is one of ``left_inputs``. Names tell: comparing expressions has no truth."""
        return input_.name in {left.name for left in self.left_inputs}

    @cached_property
    def joined_schema(self) -> Schema:
        """Columns of what comes to its first aggregation of records: their own, and what is joined to them."""
        return joined_schema(self.join, self.left_schema if self.join else self.schema)

    @cached_property
    def left_schema(self) -> Schema:
        """The columns that left rows bring along to its first join."""
        if self.united_panes is None:
            return payload_of(self.left_inputs, self.schema)
        return {name: kind for name, kind in self.united_panes.schema.items() if isinstance(kind, DataType)}

    @property
    def has_signed_left(self) -> bool:
        """Whether rows on the left of its first join can be withdrawn."""
        if self.united_panes is None:
            return any(one.source.changelog is not None for one in self.left_inputs)
        return any(output.stage.withdraws for output in self.united_panes.upstream)

    @cached_property
    def latenesses(self) -> tuple[Duration | None, ...]:
        """For how long behind the watermark each of its joins takes late rows."""
        own = Duration(0) if self.first.rows and self.take is None else self.first.how.allowed_lateness
        limits = [output.lateness for output in self.upstream]
        finite = [limit for limit in limits if limit is not None]
        return lateness_of(self.join, own, max(finite, default=Duration(0)) if limits == finite else None)

    @property
    def withdraws_records(self) -> bool:
        """Whether records of some input can withdraw others (semantics 14)."""
        return any(input_.source.changelog is not None for input_ in self.inputs)

    @property
    def withdraws_elements(self) -> bool:
        """Whether what comes to its first aggregation can be withdrawn: since records can, or by a join."""
        if self.upstream and self.join:
            return any(output.stage.withdraws for output in self.upstream) or any(join.withdraws for join in self.join)
        return self.withdraws_records or any(join.withdraws for join in self.join)

    @property
    def key_types(self) -> Mapping[str, DataType]:
        """Key columns of its panes (those of the last stage) and their types, in order."""
        return _user_columns(self.stages[-1].key_types)

    @property
    def record_key_types(self) -> Mapping[str, DataType]:
        """Columns of the key that records have, or panes of outputs that it reads, and their types, in order."""
        if self.join:  # which late rows have not come to
            return {}
        if self.edges is None:
            return _user_columns(self.stages[0].key_types)
        return {name: kind for name, kind in self.edges.key_types.items() if name in self.key}

    @property
    def value_types(self) -> Mapping[str, ValueType]:
        """Aggregate columns of its panes and their types, in order."""
        return self.stages[-1].value_types

    @property
    def schema(self) -> Schema:
        """Columns of a record, as event time, key and aggregates read them."""
        return self.source.columns


def _user_columns(key: Mapping[str, DataType]) -> Mapping[str, DataType]:
    """The columns of a ``key`` that users know."""
    return {name: kind for name, kind in key.items() if name != BUCKET}
