"""Another pipeline as a source: the port of sources over its catalog and its files."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.ext.sources import OpenSource, SourceConnector, SourceReader, SourceSplit, SplitGoneError
from headrace.pipeline.following.published_source import PublishedSource
from headrace.pipeline.source import Source
from headrace.read.upstream.planning import StepEnumerator
from headrace.read.upstream.position import FORMAT
from headrace.read.upstream.read_pipeline import GONE, ReadPipeline
from headrace.read.upstream.step import UpstreamStep
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:  # with Arrow, which planning does without
    from headrace.formats.file_format import RequiredColumns, ScannedRecords, Span


@dataclass(frozen=True)
class StepReader(SourceReader):
    """Reads steps along ``pipeline``."""

    pipeline: ReadPipeline

    def read(self, split: SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """The panes of a step, each at its number. Raises SplitGoneError."""
        import numpy as np
        import pyarrow as pa

        from headrace.formats.fields import as_json
        from headrace.formats.file_format import ScannedRecords
        from headrace.read.upstream.elements import StepElements, with_times

        del span, required  # it is read whole, and whether it has all columns was looked at when it was planned
        source = self.pipeline.source
        try:
            panes = with_times(StepElements(self.pipeline).of(UpstreamStep.of(split)))
        except GONE as error:
            raise SplitGoneError(f"{source}, {split.path}", f"is gone ({error})", self.pipeline.begins_again) from error
        flat = {name: panes[field.place].combine_chunks() for name, field in source.fields.items()}
        rows = panes.num_rows
        return ScannedRecords(flat, pa.nulls(rows, pa.string()), np.arange(rows), lambda chosen: as_json(flat, chosen))


class PublishedConnector(SourceConnector):
    """Other pipelines."""

    format: ClassVar[int] = FORMAT
    repeats: ClassVar[bool] = False

    def open(self, source: Source, root: ObjectStore) -> OpenSource:
        """``source`` below ``root``, or where it says."""
        return self.open_for("", source, root)

    def open_for(self, pipeline: str, source: Source, root: ObjectStore) -> OpenSource:
        """The same, for the reader ``pipeline``."""
        assert isinstance(source, PublishedSource)
        read = ReadPipeline(source, root, pipeline)
        return OpenSource(StepEnumerator(read), StepReader(read))


CONNECTOR: Final = PublishedConnector()
