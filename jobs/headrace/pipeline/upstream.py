"""What an output with ``of=`` reads: panes of other outputs of its pipeline, in one form."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from headrace.errors import PipelineError
from headrace.model.accumulation import behind
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Column, Expr, Literal
from headrace.model.expressions.typing import type_of
from headrace.model.expressions.value_types import ListType
from headrace.model.suggestions import did_you_mean
from headrace.pipeline.aggregation import Aggregation, Stage

if TYPE_CHECKING:
    from headrace.pipeline.output import Output
    from headrace.pipeline.pipeline import Pipeline


@dataclass(frozen=True)
class Upstream:
    """The panes of an ``output``, which the ``pipeline`` has alone. ``columns``: what the output below reads of them
    under other names than theirs, or beside their own columns.
    """

    output: str
    pipeline: "Pipeline"
    columns: Mapping[str, Expr]

    @property
    def stage(self) -> Stage:
        """The stage that gives the panes."""
        return self.pipeline.stages[-1]

    def expressions(self, schema: Schema) -> dict[str, Expr]:
        """Every column of ``schema`` over the columns of the panes: one that they lack is NULL. Raises PipelineError if
        one has another type.
        """
        return {name: self._expression(name, kind) for name, kind in schema.items()}

    def _expression(self, name: str, kind: DataType | ListType) -> Expr:
        assert isinstance(kind, DataType)  # what reads panes sees none of their lists
        panes = self.stage.pane_schema
        expr = self.columns.get(name, Column(name) if name in panes else Literal(None, kind))
        if (own := type_of(expr, panes)) is not kind:
            raise PipelineError(
                f"output {self.output} gives {name!r} as {own}, and the first of the outputs that are united as "
                f"{kind}: cast it in columns={{{self.output!r}: ...}}"
            )
        return expr


@dataclass(frozen=True)
class UnitedPanes:
    """The panes of some outputs as those of one: in the columns of the first, and those that ``columns=`` names."""

    upstream: tuple[Upstream, ...]

    @cached_property
    def schema(self) -> Schema:
        """The columns. Raises PipelineError if two outputs give one of them in different types."""
        schema = dict(self.upstream[0].stage.pane_schema)
        for number, above in enumerate(self.upstream):
            for name, expr in above.columns.items():
                kind = type_of(expr, above.stage.pane_schema)
                if kind is None:
                    raise PipelineError(f"columns of output {above.output}: {name!r} is always NULL; leave it out")
                if number == 0 or name not in schema:
                    schema[name] = kind
        for above in self.upstream:
            above.expressions(schema)
        return schema

    def stage(self, aggregation: Aggregation) -> Stage:
        """``aggregation`` of these panes, as the stage that it is: below one output it is what it is in ``then``; below
        several its allowed lateness is at least the longest of theirs (5.2), and rows can be withdrawn if one of them
        withdraws panes.
        """
        if len(self.upstream) == 1:
            return replace(self.upstream[0].stage.followed_by(aggregation), schema=self.schema)
        how = aggregation.how
        for above in self.upstream:
            how = behind(above.stage.aggregation.how, how)
        withdrawable = any(above.stage.withdraws for above in self.upstream)
        return Stage(replace(aggregation, how=how), self.schema, withdrawable)


def upstream_first(outputs: "Mapping[str, Output]") -> list[str]:
    """The names of ``outputs``, each after those that it reads. Raises PipelineError for one that reads an output that
    is not there, or itself, in however many steps.
    """
    ordered: list[str] = []

    def place(name: str, path: Sequence[str]) -> None:
        if name in path:
            circle = " reads ".join((*path[path.index(name) :], name))
            raise PipelineError(f"output {circle}: outputs cannot read each other in a circle; leave one of= out")
        if name in ordered:
            return
        for above in outputs[name].of:
            if above not in outputs:
                raise PipelineError(
                    f"output {name} is of {above!r}, and there is no such output; {did_you_mean(above, outputs)}there "
                    f"are {', '.join(outputs)}"
                )
            place(above, (*path, name))
        ordered.append(name)

    for name in outputs:
        place(name, ())
    return ordered


def with_upstream(outputs: "Mapping[str, Output]", names: Collection[str]) -> frozenset[str]:
    """The outputs of these ``names``, and those whose panes they need."""
    needed = {*names}
    for name in reversed(upstream_first(outputs)):
        if name in needed:
            needed.update(outputs[name].of)
    return frozenset(needed)
