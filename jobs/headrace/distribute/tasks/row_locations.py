"""Judged records away from their files: those that travel to the tasks that tell duplicates, and those that a user's
own Spark code made. They say where they are from; their text stays in its file, which is read again for the few of them
that are dropped.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.distribute.records import FileRecords, HoldsJudged, Lacks, read_one
from headrace.distribute.tasks.task_environment import EpochTask
from headrace.errors import HeadraceError
from headrace.kernel.elements import Columns
from headrace.kernel.grouping import Ints
from headrace.program import columns as c
from headrace.sources.changelogs import rows_at
from headrace.sources.validation import JudgedRecords

SHARE, FILE, POSITION = "_share", "_file_number", "_position"
"""Where a record is from: the share of the input, the number of its file there, its position in the file."""

PLACE = (SHARE, FILE, POSITION)
"""The order of arrival."""

_LEFT = (c.SPLIT, c.MARK, c.REJECT, c.ADMITTED)


def places(records: FileRecords, share: int) -> dict[str, pa.Array]:
    """Where the ``records`` of share number ``share`` are from."""
    rows = np.arange(len(records.columns[c.EVENT_TIME]))
    positions = [
        np.zeros(len(file), np.int64) if file.records is None else file.records.position for file in records.files
    ]
    return {
        SHARE: pa.array(np.full(len(rows), share, np.int64)),
        FILE: pa.array(records.file_of(rows)),
        POSITION: pa.array(np.concatenate(positions)),
    }


_OF_CHAIN = "_of_{}_"
"""What the names of columns that only one of several chains has begin with while they travel."""


def travelling(
    judged: JudgedRecords, places: Columns, rows: NDArray[np.bool_], *, without: Set[int] = frozenset()
) -> pa.RecordBatch:
    """The ``rows`` of judged records with their places, as one batch to be sent. All of them take part. They are sent
    ``without`` what is of some chains.
    """
    columns = {name: values for name, values in judged.common.items() if name not in _LEFT}
    chains = [(n, chain) for n, chain in enumerate(judged.chains) if n not in without]
    for number, chain in chains if len(judged.chains) > 1 else ():
        own = {name: values for name, values in chain.items() if name not in (c.SPLIT, c.MARK, *columns)}
        columns |= {f"{_OF_CHAIN.format(number)}{name}": values for name, values in own.items()}
    return pa.RecordBatch.from_pydict({**columns, **places}).filter(pa.array(rows))


@dataclass(frozen=True)
class ShippedRecords(HoldsJudged):
    """Records of some shares of an epoch, in their order of arrival, with where they are from (``place``)."""

    task: EpochTask
    judged: JudgedRecords
    place: Columns

    @classmethod
    def arrived(
        cls, task: EpochTask, batches: Sequence[pa.RecordBatch], errors: Mapping[int, HeadraceError]
    ) -> "ShippedRecords":
        """Makes records of the batches that ``travelling`` made, in order of arrival. Of chains with ``errors``, by
        number, only some batches have columns.
        """
        begin = tuple(map(_OF_CHAIN.format, errors))
        rows = in_arrival_order(pa.concat_batches([_without(batch, begin) for batch in batches]))
        columns = {name: rows.column(name) for name in rows.schema.names}
        place = {name: columns.pop(name) for name in PLACE}
        begins = tuple(map(_OF_CHAIN.format, range(len(task.work.readers))))
        chains = [
            {name.removeprefix(b): column for name, column in columns.items() if name.startswith(b)} for b in begins
        ]
        common = {name: values for name, values in columns.items() if not name.startswith(begins)}
        common[c.REJECT] = pa.nulls(rows.num_rows, pa.string())
        common[c.ADMITTED] = pa.repeat(pa.scalar(True), rows.num_rows)
        by_chain = tuple({**common, **chain_columns} for chain_columns in chains)
        return cls(task, JudgedRecords(common, by_chain, errors), place)

    def having(self, columns: Columns) -> "ShippedRecords":
        """These with further columns."""
        judged = self.judged
        chains = tuple({**chain, **columns} for chain in judged.chains)
        return replace(self, judged=replace(judged, common={**judged.common, **columns}, chains=chains))

    def failing(self, errors: Mapping[int, HeadraceError]) -> "ShippedRecords":
        """These, which some more chains, by number, cannot take."""
        return replace(self, judged=self.judged.failing(errors))

    @property
    def lacks(self) -> Lacks:
        """Who read their files has said it."""
        return {}

    def of_input(self, name: str) -> NDArray[np.bool_]:
        """Which records are of the input ``name``."""
        names = [[piece.input for piece in share] for share in self.task.plan.shares]
        share, file = (self.place[name].to_numpy() for name in (SHARE, FILE))
        pieces, piece_of = np.unique((share << 32) | file, return_inverse=True)
        is_of_input = [names[piece >> 32][piece & 0xFFFFFFFF] == name for piece in pieces.tolist()]
        return np.array(is_of_input, np.bool_)[piece_of]

    def by_file(self, rows: Ints) -> Iterator[tuple[str, str, slice]]:
        """Input and path of each file, or piece, that some records are from, and which of ``rows``, which ascend."""
        share, file = (self.place[name].to_numpy()[rows] for name in (SHARE, FILE))
        begins = np.flatnonzero(np.diff((share << 32) | file, prepend=-1)).tolist()
        for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True):
            piece = self.task.plan.shares[share[begin]][file[begin]]
            yield piece.input, piece.file.path, slice(begin, end)

    def of(self, rows: Ints) -> dict[str, pa.Array]:
        """Where some records are from, and their bytes: ``input``, ``file``, ``position``, ``raw``; rows ascend."""
        work = self.task.work
        share, file, position = (self.place[name].to_numpy()[rows] for name in PLACE)
        inputs = {input_.name: input_ for input_ in work.pipeline.inputs}
        names, paths, raw = [], [], []
        for at, number in sorted(set(zip(share.tolist(), file.tolist(), strict=True))):
            piece = self.task.plan.shares[at][number]
            is_of_piece = (share == at) & (file == number)
            read = read_one(work.pipeline, work.landing, inputs[piece.input], piece).records
            assert read is not None
            positions = position[is_of_piece]
            signs = None if c.SIGN not in self.columns else self.columns[c.SIGN].to_numpy()[rows][is_of_piece]
            raw.append(read.raw(rows_at(read, positions, signs)))
            names.append(pa.repeat(pa.scalar(piece.input), len(positions)))
            paths.append(pa.repeat(pa.scalar(piece.file.path), len(positions)))
        return {
            "input": _all(names, pa.string()),
            "file": _all(paths, pa.string()),
            "position": pa.array(position),
            "raw": _all(raw, pa.binary()),
        }


def _without(rows: pa.RecordBatch, begin: tuple[str, ...]) -> pa.RecordBatch:
    """``rows`` without the columns whose names begin so."""
    return rows.select([name for name in rows.schema.names if not name.startswith(begin)])


def in_arrival_order(rows: pa.RecordBatch) -> pa.RecordBatch:
    """``rows`` by their places."""
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in PLACE]))


def _all(arrays: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays([pa.nulls(0, kind), *arrays])
