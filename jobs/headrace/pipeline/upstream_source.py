"""Sources that are other pipelines: what runs, lineage and checks know of one; and its panes."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.expressions.data_types import DataType
from headrace.pipeline.endpoints import Source

if TYPE_CHECKING:
    from headrace.pipeline.pipeline import Pipeline


PUBLISHED_KIND: Final = "published"
"""The kind of such sources."""

PANE_TIME: Final = "pane_time"
IS_RETRACTION: Final = "is_retraction"

OF_PANES: Mapping[str, DataType] = {
    WINDOW_START: DataType.TIMESTAMP,
    WINDOW_END: DataType.TIMESTAMP,
    PANE_TIME: DataType.TIMESTAMP,
    IS_RETRACTION: DataType.BOOL,
}
"""Columns that every pane has beside its key and values."""


class UpstreamSource(Source):
    """A source that is another pipeline, or one of its outputs: a run holds what it reads of it, and goes back with it.

    ``upstream`` is what users call it, ``delays.hourly``; ``root`` is the root that it lies under, None: that of the
    reader.
    """

    is_upstream: ClassVar[bool] = True

    upstream: str
    root: str | None

    @property
    @abstractmethod
    def pipeline(self) -> str:
        """The pipeline that is read."""

    @property
    @abstractmethod
    def output(self) -> str:
        """Its output that is read; "" for the only one, which has no name."""


def upstream_sources(pipeline: "Pipeline") -> dict[str, UpstreamSource]:
    """The inputs of ``pipeline`` that are other pipelines, by name."""
    return {one.name: one.source for one in pipeline.inputs if isinstance(one.source, UpstreamSource)}
