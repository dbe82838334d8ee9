"""Files of all inputs of an epoch, or a share of it, as judged records in arrival order (semantics 12.9 to 12.11)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import HeadraceError
from headrace.ext.sources import SourceSplit
from headrace.formats.file_format import (
    WHOLE_FILE,
    DividedFileError,
    ScannedFiles,
    ScannedRecords,
    Span,
    UnreadableFileError,
)
from headrace.kernel.columns import Ints, arrow_type, valid_mask
from headrace.kernel.delta import Columns
from headrace.kernel.stage import CompiledStage
from headrace.model.time import Instant
from headrace.pipeline.endpoints import BatchFunction, Input, OnUnreadable, SparkFunction
from headrace.pipeline.pipeline import Pipeline
from headrace.program import columns as c
from headrace.sources.changelogs import as_changes, convert_files_to_changes
from headrace.sources.landing import ByInput, Landing
from headrace.sources.progress import later_of
from headrace.sources.validation import (
    NONE_PARKED,
    JudgedRecords,
    ParkedChains,
    judge_records,
    newest_handed_on,
    required_by,
)

if TYPE_CHECKING:
    from headrace.kernel.joins.sides import CompiledJoins

MOST_OF_A_FILE = 2**30
"""How many bytes one piece of a file has at most."""

_SMALL_FILE_BYTES, _TOGETHER_BYTES = 2**18, 2**23
"""How many bytes a file has at most that is read together with others, and how many these have together."""


@dataclass(frozen=True)
class Piece:
    """A file of an input, or the part of it that ``span`` says."""

    input: str
    file: SourceSplit
    span: Span = WHOLE_FILE


Lacks = Mapping[str, Mapping[str, Mapping[str, str | None]]]
"""By input and file, columns that no record of the file (or piece) has, each with the name most like it there."""


class Records(ABC):
    """``judged`` records, and where they are from."""

    judged: JudgedRecords

    @property
    def columns(self) -> Columns:
        """What ``sources.validation`` gives of them for all chains together."""
        return self.judged.common

    @property
    def chains(self) -> tuple[Columns, ...]:
        """What it gives of them for each chain."""
        return self.judged.chains

    @property
    def errors(self) -> Mapping[int, HeadraceError]:
        """Why some chains, by number, cannot take them."""
        return self.judged.errors

    @property
    def is_rejected(self) -> NDArray[np.bool_]:
        """Which records are dead letters."""
        is_rejected: NDArray[np.bool_] = valid_mask(self.columns[c.REJECT])
        return is_rejected

    @property
    @abstractmethod
    def lacks(self) -> Lacks:
        """Columns that something reads and that no record of a file has."""

    @abstractmethod
    def of_input(self, name: str) -> NDArray[np.bool_]:
        """Which records are of the input ``name``."""

    @abstractmethod
    def by_file(self, rows: Ints) -> Iterator[tuple[str, str, slice]]:
        """Input and path of each file, or piece, that some records are from, and which of ``rows``, which ascend."""

    @abstractmethod
    def origins(self, rows: Ints) -> dict[str, pa.Array]:
        """Where some records are from, and their bytes: ``input``, ``file``, ``position``, ``raw``; rows ascend."""


@dataclass(frozen=True)
class ReadFiles:
    """The records of one file of an input, or of a piece of it, or of several small ones, one file behind the other.
    ``lengths`` and ``lacks`` are those of each. One that is ``unreadable`` has none, and is one dead letter.
    """

    input: str
    paths: tuple[str, ...]
    lengths: Ints
    records: ScannedRecords | None = None
    lacks: tuple[Mapping[str, str | None] | None, ...] = (None,)
    unreadable: str | None = None
    is_whole: bool = True

    @classmethod
    def from_file(cls, input_name: str, path: str, records: ScannedRecords, *, is_whole: bool) -> "ReadFiles":
        """One file, or a piece of it."""
        return cls(input_name, (path,), np.array([len(records)]), records, (records.lacks,), is_whole=is_whole)

    @classmethod
    def from_unreadable(cls, input_name: str, path: str, reason: str) -> "ReadFiles":
        """One file that cannot be read."""
        return cls(input_name, (path,), np.ones(1, np.int64), unreadable=reason)

    def __len__(self) -> int:
        return int(self.lengths.sum())

    def path_of(self, row: int) -> str:
        """The file that a record is of."""
        return self.paths[int(np.searchsorted(np.cumsum(self.lengths), row, "right"))]


@dataclass(frozen=True)
class FileRecords(Records):
    """The judged records of some files, or pieces, in their order of arrival: inputs as they are declared, files by
    name. A file that cannot be read at all is one rejected record without text.
    """

    blocks: tuple[ReadFiles, ...]
    judged: JudgedRecords

    @property
    def lacks(self) -> Lacks:
        by_input: dict[str, dict[str, Mapping[str, str | None]]] = {}
        for block in self.blocks:
            for path, lacks in zip(block.paths, block.lacks, strict=True):
                if lacks or (lacks is not None and not block.is_whole):  # another piece may lack what this one has
                    by_input.setdefault(block.input, {})[path] = lacks
        return by_input

    @cached_property
    def starts(self) -> Ints:
        """The number of the first record of each file."""
        lengths = np.concatenate([block.lengths for block in self.blocks])
        starts: Ints = np.cumsum(lengths) - lengths
        return starts

    @cached_property
    def paths(self) -> list[str]:
        return [path for block in self.blocks for path in block.paths]

    @property
    def positions(self) -> Ints:
        """The position of each record in its file."""
        positions = [np.zeros(1, np.int64) if b.records is None else b.records.position for b in self.blocks]
        return np.concatenate(positions)

    def file_of(self, rows: Ints) -> Ints:
        """The number of the file that each of ``rows`` is from."""
        numbers: Ints = np.searchsorted(self.starts, rows, "right") - 1
        return numbers

    def origins(self, rows: Ints) -> dict[str, pa.Array]:
        raw, position, has_position = [], np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        first = 0
        for block in self.blocks:
            chosen_rows = slice(*np.searchsorted(rows, (first, first + len(block))).tolist())
            places = rows[chosen_rows] - first
            first += len(block)
            if not len(places):
                continue
            if block.records is None:
                raw.append(pa.nulls(len(places), pa.binary()))
                continue
            raw.append(block.records.raw(places))
            position[chosen_rows], has_position[chosen_rows] = block.records.position[places], True
        names = pa.array([block.input for block in self.blocks for _ in block.paths], pa.string())
        file = pa.array(self.file_of(rows))
        return {
            "input": names.take(file),
            "file": pa.array(self.paths, pa.string()).take(file),
            "position": pa.array(position, mask=~has_position),
            "raw": pa.concat_arrays(raw) if raw else pa.nulls(0, pa.binary()),
        }

    def of_input(self, name: str) -> NDArray[np.bool_]:
        return np.repeat([block.input == name for block in self.blocks], [len(block) for block in self.blocks])

    def by_file(self, rows: Ints) -> Iterator[tuple[str, str, slice]]:
        begins = np.searchsorted(rows, self.starts).tolist()
        files = ((block.input, path) for block in self.blocks for path in block.paths)
        for (name, path), begin, end in zip(files, begins, [*begins[1:], len(rows)], strict=True):
            if begin < end:
                yield name, path, slice(begin, end)


def in_arrival_order(pipeline: Pipeline, files: ByInput) -> list[Piece]:
    """Inputs as they are declared, the files of each by name."""
    return [
        Piece(input_.name, file)
        for input_ in pipeline.inputs
        for file in sorted(files.get(input_.name, ()), key=lambda file: file.path)
    ]


class ReadShare(msgspec.Struct, frozen=True):
    """The judged ``records`` of some files, if any; the newest event time of those that a user's code gets."""

    records: FileRecords | None
    handed_on: Instant | None = None


def read_records(
    pipeline: Pipeline,
    stages: "Sequence[CompiledStage | CompiledJoins]",
    landing: Landing,
    pieces: Sequence[Piece],
    processing_time: Instant,
    *,
    parked_chains: ParkedChains = NONE_PARKED,
) -> ReadShare:
    """The records of ``pieces``, judged for the first ``stages`` of chains, but for the ``parked_chains``. An input
    that goes through a user's own Spark code gives only records that do not parse. Raises UnreadableFileError where a
    source says FAIL, and what ``flat_mapped`` raises.
    """
    inputs = {input_.name: input_ for input_ in pipeline.inputs}
    read: list[ReadFiles] = []
    parts: list[JudgedRecords] = []
    handed_on: Instant | None = None
    for group in group_small_files(pieces, inputs):
        input_ = inputs[group[0].input]
        for block in read_group(pipeline, landing, input_, group):
            if input_.source.is_flat_mapped and block.records is not None:
                handed_on = later_of(handed_on, newest_handed_on(input_, block.records, processing_time))
                block = _made_of(block, block.records, input_, landing)  # noqa: PLW2901
            read.append(block)  # if it is empty, too: whoever says where a record is from says the number of its piece
            if len(block) or any(lacks is not None for lacks in block.lacks):
                parts.append(
                    _judge_block(pipeline, stages, input_, block, processing_time, parked_chains=parked_chains)
                )
    if not parts:
        return ReadShare(None, handed_on)
    return ReadShare(FileRecords(tuple(read), _join_judged(parts)), handed_on)


def group_small_files(pieces: Sequence[Piece], inputs: Mapping[str, Input]) -> Iterator[Sequence[Piece]]:
    """``pieces`` in order, small files of one input together; what goes through Spark code is read file by file."""
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        source = inputs[piece.input].source
        is_small = piece.span.is_whole and piece.file.size <= _SMALL_FILE_BYTES
        joins = is_small and not isinstance(source.transform, SparkFunction)
        fits = joins and size + piece.file.size <= _TOGETHER_BYTES and group and group[0].input == piece.input
        if group and not fits:
            yield group
            group, size = [], 0
        if joins:
            group.append(piece)
            size += piece.file.size
        else:
            yield [piece]
    if group:
        yield group


def read_group(pipeline: Pipeline, landing: Landing, input_: Input, group: Sequence[Piece]) -> Iterator[ReadFiles]:
    """The files of a group, at once where the source can do that. Raises what ``read_one`` raises."""
    required_columns, splits = required_by(pipeline, input_), [piece.file for piece in group]
    scanned_files = landing.readers[input_.name].read_together(splits, required_columns) if len(group) > 1 else None
    if scanned_files is None:
        yield from (read_one(pipeline, landing, input_, piece) for piece in group)
        return
    scanned_files = convert_files_to_changes(input_.source, scanned_files)
    paths = [split.path for split in splits]
    ends = np.cumsum(scanned_files.lengths)
    begin = 0
    for number in sorted(scanned_files.unreadable):
        yield from _file_block(input_, paths, scanned_files, ends, range(begin, number))
        error = scanned_files.unreadable[number]
        if input_.source.on_unreadable is OnUnreadable.FAIL:
            raise error
        yield ReadFiles.from_unreadable(input_.name, paths[number], error.reason)
        begin = number + 1
    yield from _file_block(input_, paths, scanned_files, ends, range(begin, len(paths)))


def _file_block(
    input_: Input, paths: Sequence[str], scanned_files: ScannedFiles, ends: Ints, files: range
) -> Iterator[ReadFiles]:
    """Neighbours among files that were read together, if there are any."""
    if not files:
        return
    chosen_files = slice(files.start, files.stop)
    begin, end = int(ends[files.start] - scanned_files.lengths[files.start]), int(ends[files.stop - 1])
    all_of_it = scanned_files.records
    records = ScannedRecords(
        {name: values[begin:end] for name, values in all_of_it.columns.items()},
        all_of_it.unparsed[begin:end],
        all_of_it.position[begin:end],
        lambda rows: all_of_it.raw(rows + begin),
        has_text=all_of_it.has_text,
    )
    yield ReadFiles(
        input_.name,
        tuple(paths[chosen_files]),
        scanned_files.lengths[chosen_files],
        records,
        scanned_files.lacks[chosen_files],
    )


def _join_judged(parts: Sequence[JudgedRecords]) -> JudgedRecords:
    """``parts``, one below the other: of each chain the columns that all have, shared ones joined once."""
    if len(parts) == 1:
        return parts[0]
    known_columns: dict[tuple[int, ...], pa.Array] = {}

    def join_columns(parts_of_chain: Sequence[Columns]) -> Columns:
        names = [name for name in parts_of_chain[0] if all(name in part for part in parts_of_chain)]
        columns = {name: [part[name] for part in parts_of_chain] for name in names}
        places = {name: tuple(map(id, arrays)) for name, arrays in columns.items()}
        for name, place in places.items():
            if place not in known_columns:
                known_columns[place] = pa.concat_arrays(columns[name])
        return {name: known_columns[place] for name, place in places.items()}

    chains = tuple(
        join_columns(parts_of_chain) for parts_of_chain in zip(*(part.chains for part in parts), strict=True)
    )
    common = chains[0] if len(chains) == 1 else join_columns([part.common for part in parts])
    errors = {number: error for part in reversed(parts) for number, error in part.errors.items()}
    return JudgedRecords(common, chains, errors)


def input_named(pipeline: Pipeline, name: str) -> Input:
    return next(input_ for input_ in pipeline.inputs if input_.name == name)


def divide_file(landing: Landing, piece: Piece, span_count: int) -> list[Piece]:
    """A file in so many pieces, or more if it is very large, where it can be read in pieces."""
    if not landing.readers[piece.input].is_divisible(piece.file):
        return [piece]
    span_count = max(span_count, 1 + piece.file.size // MOST_OF_A_FILE)
    return [replace(piece, span=Span(number, number + 1, span_count)) for number in range(span_count)]


def read_one(pipeline: Pipeline, landing: Landing, input_: Input, piece: Piece) -> ReadFiles:
    """A piece of an input. Raises VanishedFileError, UnreadableFileError where its source says FAIL, and
    DividedFileError for a piece of a file that cannot be read.
    """
    path = piece.file.path
    try:
        scanned_records = landing.readers[input_.name].read(piece.file, piece.span, required_by(pipeline, input_))
    except UnreadableFileError as error:
        if input_.source.on_unreadable is OnUnreadable.FAIL:
            raise
        if not piece.span.is_whole:  # others may be sound, and the file is one dead letter or none
            raise DividedFileError(path, error.reason) from error
        return ReadFiles.from_unreadable(input_.name, path, error.reason)
    return ReadFiles.from_file(
        input_.name, path, as_changes(input_.source, scanned_records), is_whole=piece.span.is_whole
    )


def _made_of(block: ReadFiles, records: ScannedRecords, input_: Input, landing: Landing) -> ReadFiles:
    """What becomes of ``records`` of a ``block`` on their way to a pipeline. Where they go through Spark code, only
    those that do not parse are left here.
    """
    from headrace.sources import flat_maps  # which few pipelines need

    if isinstance(input_.source.transform, SparkFunction):
        return ReadFiles.from_file(
            block.input, block.paths[0], _unparsed_records(records, input_), is_whole=block.is_whole
        )

    def places_of(first: int, last: int) -> str:
        (begin, end), positions = map(block.path_of, (first, last)), records.position[[first, last]].tolist()
        if begin == end:
            return f"file {begin}, positions {positions[0]} to {positions[1]}"
        return f"file {begin}, position {positions[0]}, to file {end}, position {positions[1]}"

    if input_.source.explode is not None:
        flat = flat_maps.explode_records(input_.source.exploded, records, places_of)
    else:
        function = input_.source.transform
        assert isinstance(function, BatchFunction)
        flat = flat_maps.flat_mapped(input_.source, records, landing.batch_call(function), places_of)
    ends = np.searchsorted(flat.rows, np.cumsum(block.lengths))
    return replace(block, records=flat.records, lengths=np.diff(ends, prepend=0))


def _unparsed_records(records: ScannedRecords, input_: Input) -> ScannedRecords:
    rows = np.flatnonzero(valid_mask(records.unparsed))
    columns = {name: pa.nulls(len(rows), arrow_type(kind)) for name, kind in input_.source.columns.items()}
    reasons = records.unparsed.take(pa.array(rows))
    return ScannedRecords(
        columns, reasons, records.position[rows], lambda rows_chosen: records.raw(rows[rows_chosen]), records.lacks
    )


def _judge_block(
    pipeline: Pipeline,
    stages: "Sequence[CompiledStage | CompiledJoins]",
    input_: Input,
    block: ReadFiles,
    processing_time: Instant,
    *,
    parked_chains: ParkedChains,
) -> JudgedRecords:
    records = block.records
    if records is None:
        records = ScannedRecords(
            columns={name: pa.nulls(1, arrow_type(kind)) for name, kind in input_.source.columns.items()},
            unparsed=pa.array([f"file: {block.unreadable}"]),
            position=np.zeros(1, np.int64),
            raw=lambda _: pa.nulls(1, pa.binary()),
        )
    return judge_records(
        pipeline, stages, input_, records, processing_time, path_of=block.path_of, parked_chains=parked_chains
    )
