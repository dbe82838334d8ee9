"""The last elements of a window in order of arrival (``How.keep_last``): sliding count windows."""

from dataclasses import dataclass

from pyspark.sql import functions as f

from headrace.engine.parts import Elements, Part
from headrace.engine.types import SparkColumn
from headrace.errors import PipelineError

KEPT_PLACE, KEPT_VALUE = "place", "kept"
"""Fields of an element where the order of arrival counts."""

KEPT_AT = "_at"
"""Field of what is kept of an element: its event time."""


@dataclass(frozen=True)
class KeptPart(Part):
    """The last ``number`` elements: an array of what aggregates read."""

    number: int

    def fold(self, elements: Elements) -> SparkColumn:
        """Values are structs of an element's place in the order of arrival and of what is kept of it."""
        if elements.sign is not None:
            raise PipelineError("keep_last does not stand behind retractions")
        ordered = f.array_sort(f.collect_list(elements.value))
        return f.transform(self._last(ordered), lambda element: element[KEPT_VALUE])

    def merge(self, left: SparkColumn, right: SparkColumn) -> SparkColumn:
        return self._either(left, right, self._last(f.concat(left, right)))

    def gather(self, part: SparkColumn) -> SparkColumn:
        raise PipelineError("keep_last needs the order of arrival, which windows that merge do not have")

    def _last(self, elements: SparkColumn) -> SparkColumn:
        return f.slice(elements, f.greatest(f.size(elements) - self.number, f.lit(0)) + 1, self.number)
