"""The program of ``program.firing`` run over the rows of an epoch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.kernel.expressions.evaluation import evaluate
from headrace.kernel.stage import CompiledStage
from headrace.model.expressions.expr import Expr
from headrace.program import columns as c
from headrace.program.firing import FiringClocks, FiringPlan, PaneColumns

Datum = Any
"""A column, or a scalar that stands for a column of equal values."""


@dataclass(frozen=True)
class FiringProgram:
    """The program ``outcome`` of ``stage``, with what its results need of it."""

    stage: CompiledStage
    outcome: FiringPlan

    def run(self, rows: Mapping[str, pa.Array], clocks: FiringClocks, heard: Mapping[str, Datum]) -> "Fired":
        """The program over ``rows``; ``heard`` says of each signal of the trigger which windows it is for."""
        known: dict[str, Datum] = {**rows, **_clock_values(clocks)}
        known |= {f"{c.HEARD}{i}": heard[name] for i, name in enumerate(sorted(self.stage.trigger.signals))}
        for name, expr, done in self.outcome.needed:
            known[name] = evaluate(expr, known)
            for read in done:
                del known[read]
        return Fired(self.stage, self.outcome, known, len(rows[c.WINDOW_START]))


def _clock_values(clocks: FiringClocks) -> dict[str, Datum]:
    values = {
        c.WATERMARK_BEFORE: clocks.watermark_before,
        c.WATERMARK_AFTER: clocks.watermark_after,
        c.PROCESSING_TIME: clocks.processing_time,
    }
    for i, q in enumerate(sorted(clocks.percentiles)):
        values[f"{c.PERCENTILE_BEFORE}{i}"], values[f"{c.PERCENTILE_AFTER}{i}"] = clocks.percentiles[q]
    return {name: pa.scalar(int(value), pa.int64()) for name, value in values.items()}


@dataclass(frozen=True)
class Fired:
    """What the program found, for each of ``length`` windows."""

    stage: CompiledStage
    outcome: FiringPlan
    known: Mapping[str, Datum]
    length: int

    def of(self, expr: Expr, kind: pa.DataType | None = None) -> pa.Array:
        """A result of the program as a column."""
        values = evaluate(expr, self.known)
        if isinstance(values, pa.Scalar):
            values = pa.repeat(values, self.length)
        return values if kind is None or values.type == kind else values.cast(kind)

    def flags(self, expr: Expr) -> Any:
        """A result as a numpy array of booleans; NULL is FALSE."""
        values = self.of(expr, pa.bool_())
        return (values.fill_null(False) if values.null_count else values).to_numpy(zero_copy_only=False)

    @property
    def panes(self) -> tuple[PaneColumns, ...]:
        """The possible panes, in the order of their moments."""
        return self.outcome.panes
