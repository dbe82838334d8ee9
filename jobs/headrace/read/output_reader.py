"""The results of one of several outputs of a pipeline."""

from headrace.pipeline.pipeline import Pipeline
from headrace.read.definitions import Definition, definition_of, registered_definition
from headrace.read.pipeline_reader import PipelineReader
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import UnknownOutputError
from headrace_snapshots.output_catalog import OutputCatalog


class OutputReader(PipelineReader):
    """The results of one output of a pipeline that has several."""

    def __init__(self, catalog: Catalog, output: str, definition: Pipeline | None = None) -> None:
        """``definition`` is that of the pipeline, with all its outputs."""
        super().__init__(OutputCatalog(catalog, output), definition)
        self._output = output

    @property
    def name(self) -> str:
        """The name of the pipeline and that of the output."""
        return f"{self._catalog.pipeline}.{self._output}"

    def definition(self) -> Pipeline | None:
        """The pipeline as it is written now, as the output alone has it; None if there is none that has the output."""
        whole = registered_definition(self._catalog.pipeline) if self._definition is None else self._definition
        return None if whole is None else whole.by_output.get(self._output)

    def _needed_definition(self, given: Definition | None, call: str) -> Pipeline:
        if given is None:
            given = self._catalog.pipeline if self._definition is None else self._definition
        whole = definition_of(given, call, self._catalog.pipeline)
        if self._output not in whole.by_output:
            raise UnknownOutputError(
                f"pipeline {whole.name} as it is written now has no output {self._output!r}; it has "
                f"{', '.join(whole.outputs) or 'one without a name'}"
            )
        return whole.by_output[self._output]
