"""A deployment of its own for a test, and records of it as files of their source.

``RecordsFile`` has records of a test as a file of their source, and what is read of it again. ``TemporaryDeployment``
is a temporary root on the local disk, on which pipelines run in earnest.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr
from headrace.formats.file_format import ScannedRecords, read_file
from headrace.kernel.columns import TIMESTAMP, own_arrow_type
from headrace.kernel.expressions.evaluation import column_apart
from headrace.model.arguments import Arguments, short_repr
from headrace.model.changelog import IS_TOMBSTONE, SIGN, TOMBSTONE_AT, Upserts
from headrace.model.expressions.columns import out_of_objects
from headrace.model.expressions.data_types import ColumnType, DataType, ListType, MapType, Schema, StructType
from headrace.model.expressions.expr import Expr
from headrace.model.time import EARLIEST, LATEST, Instant, to_datetime
from headrace.pipeline.endpoints import OWN, BatchFunction, Input, Source
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.scheduling import executor_name
from headrace.pipeline.sources import FilesSource
from headrace.sources.changelogs import as_changes
from headrace.sources.flat_maps import batch_call, explode_records, flat_mapped
from headrace.sources.validation import required_by
from headrace.testing.results import Row
from headrace.testing.steps import Record, UnitTestError, instant_of_value, with_base_day


@dataclass(frozen=True)
class ReadRecord:
    """A record as it was read: its columns (Instants for timestamps), or why it does not parse; its line."""

    position: int
    values: Mapping[str, Any]
    unparsed: str | None
    raw: str | None


@dataclass(frozen=True)
class RecordsFile:
    """A file of one input: its content, the records in it, and the newest event time of these, if one has any."""

    input: Input
    content: bytes
    records: tuple[ReadRecord, ...]
    newest: Instant | None


def stand_in(source: Source) -> FilesSource:
    """The files that stand for ``source`` in a unit test: itself as it is read, or JSON lines with its columns."""
    read = source.as_read
    if isinstance(read, FilesSource):
        return read
    deletes = {TOMBSTONE_AT: DataType.TIMESTAMP} if _has_deletions(source) else {}
    return hr.json("landing", {**read.schema, **deletes})


def _has_deletions(source: Source) -> bool:
    """Whether a message without a value deletes a row."""
    return source.versions is not None and source.has_keyed_messages


def encode_records(input_: Input, records: Sequence[Record], first: int = 0) -> bytes:
    """``records`` in the format of the source of ``input_``, the ``first`` with this offset in its topic. Raises
    UnitTestError for a column that it does not have, and for values that its format has no way to write.
    """
    source, files = input_.source, stand_in(input_.source)
    is_nested = source.changelog is not None or not isinstance(source.versions, Upserts | None)
    values: list[dict[str, Any] | str] = []
    for number, record in enumerate(records, 1):
        if isinstance(record, str):
            values.append(record)
            continue
        columns = out_of_objects(record, source.as_read.fields) if is_nested else record
        place = f"record {number} of input {input_.name}"
        if _has_deletions(source):
            columns = _of_message(columns, source, first + number - 1, place)
        values.append(_producer_record(columns, files.types, place))
    try:
        content: bytes = files.file_format.written(values, files.fields)
    except ValueError as error:
        raise UnitTestError(f"input {input_.name}, {error}") from error
    return content


def _of_message(record: Mapping[str, Any], source: Source, offset: int, what: str) -> dict[str, Any]:
    """A ``record`` of a topic, which says by ``is_tombstone`` that it has no value; its offset, if it says none."""
    columns = {**({"kafka_offset": offset} if "kafka_offset" in source.metadata else {}), **record}
    if columns.pop(IS_TOMBSTONE, False):
        columns[TOMBSTONE_AT] = columns.pop("kafka_timestamp", None)
        if columns[TOMBSTONE_AT] is None:
            raise UnitTestError(f"{what} has no value, so its event time is that of the message: write kafka_timestamp")
        if "kafka_timestamp" in source.metadata:
            columns["kafka_timestamp"] = columns[TOMBSTONE_AT]
    return columns


def land_records(pipeline: Pipeline, input_: Input, records: Sequence[Record], step: int) -> RecordsFile:
    """``records`` of a ``step`` as a file of the input ``input_``, read again, and what its source makes of them."""
    name, content = f"step {step}", encode_records(input_, records, step * 2**32)
    read = read_file(content, stand_in(input_.source), required_by(pipeline, input_), name)
    result = as_changes(input_.source, read)
    if isinstance(function := input_.source.transform, BatchFunction):
        result = flat_mapped(input_.source, result, batch_call(function), partial(_position_range, result)).records
    if input_.source.explode is not None:
        result = explode_records(input_.source.exploded, result, partial(_position_range, result)).records
    columns = {name: _python_values(result.columns[name], kind) for name, kind in input_.source.columns.items()}
    if SIGN in result.columns:
        columns[SIGN] = result.columns[SIGN].to_pylist()
    if TOMBSTONE_AT in result.columns:
        columns[TOMBSTONE_AT] = _python_values(result.columns[TOMBSTONE_AT], DataType.TIMESTAMP)
    parse_errors = result.unparsed.to_pylist()
    raw = [_line_text(line) for line in result.raw(np.arange(len(result))).to_pylist()]
    return RecordsFile(
        input_,
        content,
        tuple(
            ReadRecord(position, {name: columns[name][row] for name in columns}, parse_errors[row], raw[row])
            for row, position in enumerate(result.position.tolist())
        ),
        _newest_event_time(input_, result),
    )


def _position_range(records: ScannedRecords, first: int, last: int) -> str:
    return f"records {records.position[first]} to {records.position[last]}"


def _newest_event_time(input_: Input, records: ScannedRecords) -> Instant | None:
    """The newest event time of ``records`` that can be meant; an overflow is a dead letter."""
    expr = input_.event_time.expr
    if expr is None:
        return None
    times, _ = column_apart(expr, records.columns, input_.source.columns, len(records))
    event_times = times.cast(TIMESTAMP).cast(pa.int64()).filter(records.unparsed.is_null())
    newest: int | None = pc.max(
        event_times.filter(pc.and_(pc.less_equal(int(EARLIEST), event_times), pc.less_equal(event_times, int(LATEST))))
    ).as_py()
    return None if newest is None else Instant(newest)


def _line_text(line: bytes | str | None) -> str | None:
    return line.decode(errors="replace") if isinstance(line, bytes) else line


def _python_values(values: pa.Array, kind: ColumnType) -> list[Any]:
    return list(values.cast(own_arrow_type(kind)).to_pylist())


def _producer_record(record: Mapping[str, Any], schema: Schema, what: str) -> dict[str, Any]:
    unknown = [name for name in record if name not in schema]
    if unknown:
        raise UnitTestError(f"{what} has a column {unknown[0]!r}; its source has {', '.join(schema)}")
    return {name: _producer_value(value, schema[name], f"{what}, column {name}") for name, value in record.items()}


def _producer_value(value: Any, kind: ColumnType, what: str) -> Any:
    """``value`` as a producer holds it: times with their day and zone."""
    if isinstance(value, dict) and isinstance(kind, StructType | MapType):
        kinds = dict.fromkeys(value, kind.value) if isinstance(kind, MapType) else dict(kind.fields)
        return {
            name: _producer_value(one, kinds[name], f"{what}.{name}") if name in kinds else one
            for name, one in value.items()
        }
    if isinstance(kind, ListType):
        return [_producer_value(item, kind.item, what) for item in value] if isinstance(value, list) else value
    if kind is DataType.TIMESTAMP and isinstance(value, str):
        return with_base_day(value)
    if isinstance(value, datetime) and value.tzinfo is None:
        raise UnitTestError(f"{what} is {short_repr(value)}, which has no time zone; say which one it is in")
    return value


class TemporaryDeployment:
    """Land files, run pipelines, read what they found, below ``folder``; ``root`` is its URI, as commands take it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._landed_count = 0
        self._runs = 0

    @property
    def root(self) -> str:
        """Its URI."""
        return self.folder.resolve().as_uri()

    def land(self, pipeline: Pipeline, *records: Record | Path, of: str = OWN) -> list[Path]:
        """Land ``records`` as one file of the input named ``of`` (by default the pipeline's own), as
        ``encode_records`` writes them; and each file that is given by its path as it is. The paths of what landed,
        which sort in the order of landing.
        """
        input_ = _landing_input(pipeline, of)
        own = [record for record in records if not isinstance(record, Path)]
        paths = [self._copy_to_landing(input_, record) for record in records if isinstance(record, Path)]
        if own:
            source = stand_in(input_.source)
            path = self._next_landing_path(input_, source.suffixes[0] if source.suffixes else f".{source.format}")
            path.write_bytes(encode_records(input_, own))
            paths.append(path)
        return paths

    def run(
        self,
        pipeline: Pipeline,
        *,
        executor: str = "local",
        at: str | datetime | None = None,
        signals: Sequence[str] = (),
        files_per_epoch: int | None = None,
        batch: bool = False,
        publish: bool = True,
        allow_new_aggregates: bool = False,
    ) -> Any:
        """Run ``pipeline`` over what has landed, audit it, and publish it if the audit succeeds: a RunResult
        (``headrace.runs.reporting.results``).

        ``executor`` is "local", or "spark", which needs a JVM. ``at`` is the processing time, that of the machine if
        left out; ``signals`` are written as ``headrace run --signal`` takes them. An epoch reads at most
        ``files_per_epoch`` files, by default as the pipeline says. ``batch``: all input is one epoch, and ends.
        ``allow_new_aggregates``: aggregates that the last snapshot does not have start empty. Raises what
        ``headrace run`` reports.
        """
        from headrace.runs.option_values import parse_signal
        from headrace.runs.options import Mode, RunOptions
        from headrace.runs.process import process

        self._runs += 1
        now = None if at is None else to_datetime(instant_of_value(at, "run(at=...)"))
        options = RunOptions(
            f"test-{self._runs}",
            executor=executor_name(Arguments("run", UnitTestError), executor),
            signals=tuple(map(parse_signal, signals)),
            files_per_epoch=files_per_epoch,
            mode=Mode.BATCH if batch else Mode.MICRO_BATCH,
            publish=publish,
            allow_new_aggregates=allow_new_aggregates,
        )
        return process(pipeline, self.root, options, now=None if now is None else lambda: now)

    def read(
        self,
        pipeline: Pipeline,
        view: str = "current",
        *,
        at: str | None = None,
        where: str | Expr | None = None,
        columns: Sequence[str] | None = None,
    ) -> list[Row]:
        """The rows of a ``view`` of ``pipeline`` (current, panes, late or rejected) as dicts, none before anything is
        published.

        ``at``, ``where`` and ``columns`` are those of ``headrace.open(root)["delays"].current(...)``, which reads
        more than fits into memory.
        """
        from headrace.read.pipeline_reader import PipelineReader
        from headrace.read.views.columns import View
        from headrace_snapshots.catalog import Catalog
        from headrace_snapshots.store import open_store

        reader = PipelineReader(Catalog(open_store(self.root), pipeline.name), pipeline)
        kind = Arguments("read", UnitTestError).choice("view", view, View)
        rows: list[Row] = reader.read(kind, at=at, where=where, columns=columns).to_arrow().to_pylist()
        return rows

    def _copy_to_landing(self, input_: Input, file: Path) -> Path:
        if not file.is_file():
            raise UnitTestError(f"land(...): there is no file {file}")
        path = self._next_landing_path(input_, f"-{file.name}")
        shutil.copyfile(file, path)
        return path

    def _next_landing_path(self, input_: Input, ending: str) -> Path:
        self._landed_count += 1
        folder = self.folder / input_.source.place.strip("/")
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{self._landed_count:06}{ending}"


def _landing_input(pipeline: Pipeline, name: str) -> Input:
    inputs = {input_.name: input_ for input_ in pipeline.inputs}
    if name not in inputs:
        raise UnitTestError(f"land(of={name!r}): pipeline {pipeline.name} has the inputs {', '.join(inputs)}")
    source = inputs[name].source
    if not isinstance(source, FilesSource) or "://" in source.path:
        raise UnitTestError(
            f"input {name} of pipeline {pipeline.name} reads {source.place}, which is not below the root "
            "of a deployment: give its source a path like landing/flights"
        )
    return inputs[name]
