"""Aggregates of the kernel: combiners of ``headrace.model.combiners`` over groups of rows."""

from headrace.kernel.aggregates.accumulators import Accumulator, compile_aggregates
from headrace.kernel.aggregates.bags import KEPT_AT, BagPart, KeptPart, unpacked
from headrace.kernel.aggregates.group_rows import RowsPart
from headrace.kernel.aggregates.sums import AccumulatorPart, CountPart, Elements

__all__ = [
    "KEPT_AT",
    "Accumulator",
    "AccumulatorPart",
    "BagPart",
    "CountPart",
    "Elements",
    "KeptPart",
    "RowsPart",
    "compile_aggregates",
    "unpacked",
]
