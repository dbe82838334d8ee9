"""The last elements of a window in order of arrival (``How.keep_last``): sliding count windows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.kernel.aggregates.parts import AccumulatorPart, Elements
from headrace.kernel.grouping import Groups, of_lists, to_lists
from headrace.model.expressions.expr import Expr

KEPT_AT = "_at"
"""Field of what is kept of an element: its event time, if an aggregate reads it."""


@dataclass(frozen=True)
class KeptPart(AccumulatorPart):
    """The last ``number`` elements: a list of structs of what aggregates read."""

    number: int

    def fold(self, elements: Elements, groups: Groups) -> pa.Array:
        """Values are structs of what is kept of an element."""
        if elements.sign is not None:
            raise PipelineError("keep_last cannot be used downstream of retractions")
        return self._last(elements.value, groups)

    def gathered(self, parts: pa.Array, groups: Groups) -> pa.Array:
        return self._last(*groups.flattened(parts))

    def _last(self, elements: pa.Array, groups: Groups) -> pa.Array:
        sizes = np.minimum(groups.sizes, self.number)
        if (sizes == groups.sizes).all():
            return to_lists(elements, groups, empty_is_null=True)
        last = Groups(np.append(0, np.cumsum(sizes)))
        rows = np.arange(last.offsets[-1]) + np.repeat(groups.offsets[1:] - last.offsets[1:], sizes)
        return to_lists(elements.take(pa.array(rows)), last, empty_is_null=True)


def unpacked(kept: pa.Array, parts: Iterable[AccumulatorPart], field_of: Callable[[Expr], str]) -> dict[str, pa.Array]:
    """The parts that the elements of a ``KeptPart`` make, by name; ``field_of`` says where an input is kept."""
    elements, groups = of_lists(kept)
    has_times = elements.type.get_field_index(KEPT_AT) >= 0
    at = elements.field(KEPT_AT) if has_times else pa.nulls(len(elements), pa.int64())
    fields = {}
    for part in parts:
        value = None if part.input is None else elements.field(field_of(part.input))
        fields[part.name] = part.fold(Elements(value, at, None), groups)
    return fields
