"""The service that lands dropped records again, whatever the view that they are in: epoch after epoch, each only once.

A view (late records, dead letters) says which of its rows land, and in which files. Everything else is the same: the
snapshot, the targets, the content of a file in the source's own format, one conditional put each, and the counts.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import Input
from headrace.pipeline.sources import FilesSource
from headrace.read.snapshots.damage import ways_out
from headrace.read.snapshots.read_names import dropped
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.arrow_types import python_rows, schema_of
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import tables
from headrace.runs.reprocessing.copies import Headers, LandingAgainError, Target, root_beside, suffix_of, target_of
from headrace.sources.file_planning import open_source
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.store import open_store

_TORN = (
    "that no file of records can hold (a quote that is not closed, several records on a line, a part of an array, a "
    "letter that the encoding of the source does not have): land a corrected file of them under another name"
)

Rows = Callable[[], Iterator[Mapping[str, Any]]]
"""Reads the rows of an epoch."""


class DroppedRecord(NamedTuple):
    """A record that can land: its input file, what orders it there (its event time or its position), and its bytes."""

    file: str
    order: Any
    content: bytes


def lines_by_file(records: Iterable[DroppedRecord]) -> dict[str, list[bytes]]:
    """The bytes of ``records`` by input file, in order."""
    lines: defaultdict[str, list[bytes]] = defaultdict(list)
    for record in sorted(records):
        lines[record.file].append(record.content)
    return lines


@dataclass(frozen=True)
class Copy:
    """A file that is to land: ``lines`` (the bytes of records) by the input files that they came from, which have one
    header if they have any.
    """

    target: Target
    name: str
    lines: Mapping[str, Sequence[bytes]]

    @property
    def records(self) -> int:
        """How many records it has."""
        return sum(map(len, self.lines.values()))

    def that_stand_alone(self) -> "Copy":
        """The file without lines in which those behind them would be."""
        stands_alone = self.target.format.stands_alone
        lines = {file: [line for line in file_lines if stands_alone(line)] for file, file_lines in self.lines.items()}
        return replace(self, lines=lines)

    def content(self) -> bytes | str:
        """The content of the file; or as text why there is none."""
        lines = [line for file_lines in self.lines.values() for line in file_lines]
        header = self.target.headers.of(next(iter(self.lines))) if self.target.format.has_header else None
        if isinstance(header, str):
            return header
        return self.target.format.copied(lines, self.target.source.as_read.fields, header)


class Relanding:
    """Lands the records of a ``view`` that the snapshot at ``at`` has dropped, and those before it, of ``inputs``; of
    one ``output`` of several those that it has dropped, by default below a folder of its own.

    ``counts`` and ``left`` (by the reason why they cannot land) grow with each epoch.
    Raises LandingAgainError, BrokenObjectError, and what read.snapshots.snapshot_refs.snapshot_at raises.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        root: str,
        view: View,
        inputs: Iterable[Input],
        *,
        to: str | None,
        at: At,
        output: str = "",
    ) -> None:
        self._pipeline, self._view, self._at, self._output = pipeline, view, at, output
        self._store = open_store(root)
        self._beside = None if to is not None else root_beside(Catalog(self._store, pipeline.name), root, view, output)
        self.whole = Catalog(self._store, pipeline.name)
        self.catalog = seen_catalog(self.whole, output)
        self._snapshot = snapshot_at(self.catalog, at)
        self.manifest = self._snapshot.manifest
        self.targets = {input_.name: self._target(input_, to) for input_ in inputs}
        self.counts: Counter[str] = Counter()
        self.left: Counter[str] = Counter()

    def _target(self, input_: Input, to: str | None) -> Target:
        source = input_.source
        if not isinstance(source, FilesSource):
            raise LandingAgainError(
                f"records of input {input_.name} cannot land again: it reads {source}, and no files. Correct them "
                "where they come from"
            )
        store, prefix = open_source(self._store, source.path)
        headers = Headers(source.file_format, store, self.catalog, self.manifest, input_.name)
        own = Target(self._view, source, suffix_of(source), headers, store, prefix, lands_in_source=True)
        target = target_of(own, self._store, self._beside, to)
        if self._output and target.lands_in_source:
            raise LandingAgainError(
                f"{target.uri} is read by pipeline {self._pipeline.name}, whose other outputs have taken what output "
                f"{self._output} could not: they would count it twice. Name another landing prefix (--to)"
            )
        return target

    @property
    def own(self) -> dict[str, Target]:
        """The targets that the pipeline itself reads, by input."""
        return {name: target for name, target in self.targets.items() if target.lands_in_source}

    def land(self, columns: Iterable[str], copies: Callable[[str, Rows], Iterator[Copy]]) -> dict[str, Any]:
        """Land the ``copies`` that are made of each epoch and its rows, which have ``columns``. Returns the fields that
        the result has for every view.
        """
        epochs = dropped(self.catalog, self.manifest, self._view)
        for target in self.targets.values():
            target.look()
            target.check_there(self.catalog, epochs, self._at)
        types = self._columns.types(self._view)
        schema = schema_of({name: types[name] for name in columns})
        with ways_out(self.catalog, self._snapshot.ref or ""):
            for epoch, files in epochs.items():
                for copy in copies(epoch, partial(self._rows, files, schema)):
                    self._land(copy)
        left = dict(sorted(self.left.items()))
        return {**self.counts, "left": left, "lands_in_source": bool(self.own), "beside": self._beside}

    @property
    def _columns(self) -> ViewColumns:
        """The columns of the rows; dead letters are those of all outputs."""
        if self._view is View.REJECTED:
            return ViewColumns({}, {}, {}, output=self._output or next(iter(self._pipeline.outputs), ""))
        return ViewColumns.of(self._pipeline)

    def _rows(self, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[Mapping[str, Any]]:
        for table in tables(self._store, files, schema):
            yield from python_rows(table)

    def _land(self, copy: Copy) -> None:
        if copy.name in copy.target.already_landed:
            self.counts["already_landed"] += 1
            return
        sound = copy.that_stand_alone()
        if torn := copy.records - sound.records:
            self.left[_TORN] += torn
        copy = sound
        if not copy.records:
            return
        if isinstance(content := copy.content(), str):
            self.left[content] += copy.records
        elif copy.target.create(copy.name, content):
            self.counts.update(files=1, records=copy.records)
        else:
            self.counts["already_landed"] += 1
