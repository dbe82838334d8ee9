"""The way from files of all inputs into the first aggregation, in this process: records read, judged, duplicates told
apart (semantics 12.9 to 12.11).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.distribute.local.operator import NOTHING, Operator
from headrace.kernel.delta import AggregatedBundle, aggregate
from headrace.kernel.groups import Ints, valid
from headrace.kernel.types import ARROW_TYPES
from headrace.model.time import MIN_INSTANT, Instant
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.inputs import Input
from headrace.pipeline.sources import OnUnreadable
from headrace.program import columns as c
from headrace.sources.budgets import SHOWN, check_budgets
from headrace.sources.clock import SourceClock
from headrace.sources.errors import UnreadableFileError
from headrace.sources.facts import Facts, split_facts
from headrace.sources.judging import judged
from headrace.sources.landing import ByInput, Landing
from headrace.sources.planning import InputFile
from headrace.sources.progress import Ahead
from headrace.sources.reading import read_file
from headrace.sources.required import required_by
from headrace.sources.scanned import Scanned
from headrace.state.ids import RememberedIds


@dataclass(frozen=True)
class ReadFile:
    """The records of one file; ``unreadable`` says why there are none."""

    input: str
    path: str
    records: Scanned | None = None
    unreadable: str | None = None

    def __len__(self) -> int:
        return 1 if self.records is None else len(self.records)


@dataclass(frozen=True)
class Records:
    """The judged records of an epoch in their order of arrival: inputs as they are declared, files by name. A file that
    cannot be read at all is one rejected record without text.
    """

    files: tuple[ReadFile, ...]
    columns: Mapping[str, pa.Array]

    @property
    def starts(self) -> Ints:
        """The number of the first record of each file."""
        return np.cumsum([0, *(len(file) for file in self.files)][: len(self.files)]).astype(np.int64)

    @property
    def is_rejected(self) -> NDArray[np.bool_]:
        """Which records are dead letters."""
        found: NDArray[np.bool_] = valid(self.columns[c.REJECT])
        return found

    def of(self, rows: Ints) -> dict[str, pa.Array]:
        """Where some records are from, and their bytes: ``input``, ``file``, ``position``, ``raw``; rows ascend."""
        file = np.searchsorted(self.starts, rows, "right") - 1
        raw, position, known = [], np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        for number in np.unique(file):
            here, found = file == number, self.files[number]
            own = rows[here] - self.starts[number]
            if found.records is None:
                raw.append(pa.nulls(len(own), pa.binary()))
                continue
            raw.append(found.records.raw(own))
            position[here], known[here] = found.records.position[own], True
        names = pa.array([found.input for found in self.files], pa.string())
        paths = pa.array([found.path for found in self.files], pa.string())
        return {
            "input": names.take(pa.array(file)),
            "file": paths.take(pa.array(file)),
            "position": pa.array(position, mask=~known),
            "raw": pa.concat_arrays(raw) if raw else pa.nulls(0, pa.binary()),
        }


@dataclass(frozen=True)
class Taken:
    """The files of an epoch as a bundle of the first aggregation, and what they say of splits, by input. ``ahead``: of
    inputs with records that were too far ahead of processing time to say anything.
    """

    bundle: AggregatedBundle = NOTHING
    records: Records | None = None
    facts: Mapping[str, Facts] = field(default_factory=dict)
    ahead: tuple[Ahead, ...] = ()


def take(
    pipeline: Pipeline,
    operator: Operator,
    landing: Landing,
    files: ByInput,
    *,
    ids: RememberedIds | None,
    clocks: Mapping[str, SourceClock],
    epoch: int,
    processing_time: Instant,
) -> Taken:
    """The records of ``files``. Raises UnreadableFileError where a source says FAIL, DeadLetterBudgetError."""
    read: list[ReadFile] = []
    parts: list[dict[str, pa.Array]] = []
    for given in pipeline.inputs:
        for file in sorted(files.get(given.name, ()), key=lambda file: file.path):
            found = _read(pipeline, landing, given, file)
            if len(found):
                read.append(found)
                parts.append(_judged(pipeline, operator, given, found, processing_time))
    if not read:
        return Taken()
    columns = {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
    if ids is not None:
        columns[c.SEEN] = ids.seen(columns)
    records = Records(tuple(read), columns)
    _check_budgets(pipeline, epoch, records)
    compiled = operator.compiled
    behind = operator.output_watermark if compiled.stamps_elements else MIN_INSTANT
    bundle = aggregate(compiled, columns, operator.watermark, behind)
    wanted = compiled.trigger.percentiles
    facts: dict[str, Facts] = {}
    ahead: list[Ahead] = []
    for given in pipeline.inputs:
        own = _own_rows(records, given.name)
        if len(own):
            facts[given.name] = split_facts(clocks[given.name], columns, own, processing_time, wanted)
            ahead += _ahead(given.name, records, facts[given.name])
    return Taken(bundle, records, facts, tuple(ahead))


def _read(pipeline: Pipeline, landing: Landing, given: Input, file: InputFile) -> ReadFile:
    data = landing.places[given.name].store.read(file.path)
    try:
        return ReadFile(given.name, file.path, read_file(data, given.source, required_by(pipeline, given), file.path))
    except UnreadableFileError as error:
        if given.source.on_unreadable is OnUnreadable.FAIL:
            raise
        return ReadFile(given.name, file.path, unreadable=error.reason)


def _judged(
    pipeline: Pipeline, operator: Operator, given: Input, file: ReadFile, processing_time: Instant
) -> dict[str, pa.Array]:
    if file.records is not None:
        return judged(pipeline, operator.compiled, given, file.records, processing_time)
    nothing = Scanned(
        columns={name: pa.nulls(1, ARROW_TYPES[kind]) for name, kind in given.source.columns.items()},
        unparsed=pa.array([f"file: {file.unreadable}"]),
        position=np.zeros(1, np.int64),
        raw=lambda _: pa.nulls(1, pa.binary()),
    )
    return judged(pipeline, operator.compiled, given, nothing, processing_time)


def _ahead(name: str, records: Records, facts: Facts) -> list[Ahead]:
    """Names the first of the records that are ahead, if there are any."""
    if facts.first_ahead is None:
        return []
    row = np.array([facts.first_ahead])
    found = {field: values[0].as_py() for field, values in records.of(row).items()}
    at = Instant(records.columns[c.MARK][facts.first_ahead].as_py())
    return [Ahead(name, facts.ahead, found["file"], found["position"], at)]


def _check_budgets(pipeline: Pipeline, epoch: int, records: Records) -> None:
    if all(given.source.max_rejected is None for given in pipeline.inputs) or not records.is_rejected.any():
        return
    dead = np.flatnonzero(records.is_rejected)
    names = np.repeat([file.input for file in records.files], [len(file) for file in records.files])[dead]
    rejected = {given.name: int((names == given.name).sum()) for given in pipeline.inputs}
    sample = {given.name: _shown(records, dead[names == given.name][:SHOWN]) for given in pipeline.inputs}
    check_budgets(pipeline, epoch, rejected, sample)


def _shown(records: Records, rows: Ints) -> list[str]:
    found = records.of(rows)
    reasons = records.columns[c.REJECT].take(pa.array(rows)).to_pylist()
    places = zip(found["file"].to_pylist(), found["position"].to_pylist(), reasons, strict=True)
    return [f"{file} record {position}: {reason}" for file, position, reason in places]


def _own_rows(records: Records, name: str) -> Ints:
    """The numbers of the records of one input that were accepted by its source."""
    sizes = [len(file) for file in records.files]
    own = np.repeat([file.input == name for file in records.files], sizes)
    return np.flatnonzero(own & ~records.is_rejected)
