"""Aggregates of the kernel: combiners of ``headrace.model.combiners`` over groups of rows."""

from headrace.kernel.aggregates.accumulators import Accumulator, compile_aggregates
from headrace.kernel.aggregates.bags import KEPT_AT, BagPart, KeptPart, unpack_parts
from headrace.kernel.aggregates.group_rows import ComputedRowsPart, GroupFailedError, RowsPart
from headrace.kernel.aggregates.sums import AccumulatorPart, CountPart, Elements

__all__ = [
    "KEPT_AT",
    "Accumulator",
    "AccumulatorPart",
    "BagPart",
    "ComputedRowsPart",
    "CountPart",
    "Elements",
    "GroupFailedError",
    "KeptPart",
    "RowsPart",
    "compile_aggregates",
    "unpack_parts",
]
