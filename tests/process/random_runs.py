"""Random pipelines over landed files, in runs that continue from each other's snapshots: the reference gives the same
panes and accounts for the epochs that were recorded, and so does a replay.
"""

import base64
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import note
from hypothesis import strategies as st

from headrace import FileSource, Pipeline
from headrace.model.changelog import SIGN, SignedBy
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant, render, to_datetime, to_instant
from headrace.model.windows import Window
from headrace.pipeline.endpoints import OWN
from headrace.read.snapshots.epoch_history import RecordedEpoch, recorded_epochs
from headrace.read.views.arrow_types import schema_of
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace_lab.reference import DropCause, DroppedElement, Epoch, EpochResult, run_outputs
from headrace_lab.reference.elements import Pane
from headrace_lab.reference.evaluate import Record
from headrace_lab.reference.pipeline import NO_FUNCTIONS, Functions
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import INPUT_WATERMARK, Manifest
from headrace_snapshots.format.output_view import seen_by
from headrace_snapshots.store import open_store
from tests.panes import same
from tests.reading import read
from tests.reference.scenarios import Scenario


@dataclass(frozen=True)
class Schedule:
    """After which bundles a run is started; in batch mode after the last one only."""

    runs: Sequence[bool]
    mode: Mode


SCHEDULES = st.builds(
    Schedule,
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.sampled_from([Mode.MICRO_BATCH, Mode.BATCH]),
)


RecordFunction = Callable[[Record], Sequence[Record]]
"""The records that a pipeline reads for one that landed."""


def itself(record: Record) -> Sequence[Record]:
    """That record."""
    return [record]


def check(
    scenario: Scenario,
    schedule: Schedule,
    executors: Sequence[str],
    spark: Any = None,
    *,
    make_records: RecordFunction = itself,
    functions: Functions = NO_FUNCTIONS,
) -> None:
    """Runs over landed files give what the reference gives for the epochs that they recorded, and so does a replay.
    ``executors`` take turns. ``make``: what sources make of a record; ``functions``: what others make of panes.
    """
    pipeline = scenario.pipeline
    note(f"{pipeline!r}")
    with TemporaryDirectory() as folder:
        root = Path(folder)
        landed_result = run(scenario, root, schedule, executors, spark)
        catalog = Catalog(open_store(root.as_uri()), pipeline.name)
        head = catalog.head().refs.get("main")
        if head is None:  # nothing landed, nothing was due
            return
        recorded_epochs = recorded_of(catalog, head, landed_result, make_records)
        note(f"{recorded_epochs!r}")
        expected = run_outputs(pipeline, recorded_epochs, functions)
        manifests = list(catalog.ancestry(head))[::-1]
        outputs = [_Output(own_pipeline, root, output) for output, own_pipeline in pipeline.by_output.items()]
        for each in outputs:
            found_rows = each.panes("main", len(recorded_epochs))
            for number, (result, manifest) in enumerate(zip(expected[each.name], manifests, strict=True)):
                assert_same(found_rows[number], by_window(shown_pane(pane) for pane in result.panes))
                _check_accounts(seen_by(manifest, each.name), result, each.alone)
            each.check_side_outputs(expected[each.name])
        if schedule.mode is Mode.MICRO_BATCH:
            replay_options = RunOptions("replay", mode=Mode.REPLAY, branch="again", executor=executors[0])
            process(pipeline, root.as_uri(), replay_options, spark=spark)
            for each in outputs:
                first_rows = each.panes("main", len(recorded_epochs))
                for second_panes, first_panes in zip(
                    each.panes("again", len(recorded_epochs)), first_rows, strict=True
                ):
                    assert_same(second_panes, first_panes)


def check_cut(whole: Scenario, cut: Scenario, schedule: Schedule, output: str) -> None:
    """A chain of aggregations gives in an ``output`` what it gives when it is ``cut`` into several outputs, and
    accounts for the same.
    """
    note(f"{cut.pipeline!r}")
    epochs: list[list[Windows]] = []
    dropped_counts: list[list[Counter[str]]] = []
    for scenario in (whole, cut):
        with TemporaryDirectory() as folder:
            root = Path(folder)
            run(scenario, root, schedule, ["local"], None)
            catalog = Catalog(open_store(root.as_uri()), scenario.pipeline.name)
            head = catalog.head().refs.get("main")
            line = [] if head is None else [*catalog.ancestry(head)]
            own_pipeline = scenario.pipeline.by_output[output]
            epochs.append(panes(own_pipeline, root, "main", len(line), output) if line else [])
            dropped_counts.append([Counter({name: manifest.counts[name] for name in DROP_COUNTS}) for manifest in line])
    assert len(epochs[0]) == len(epochs[1])
    for one, other in zip(*epochs, strict=True):
        assert_same(one, other)
    assert dropped_counts[0] == dropped_counts[1]


DROP_COUNTS = (
    "rejected",
    "late_dropped",
    "late_panes_dropped",
    "rejected_panes",
    "closed_dropped",
    "retractions_dropped",
    "state_rows",
)


def recorded_of(
    catalog: Catalog, head: str, files: Mapping[str, Sequence[Record]], make_records: RecordFunction = itself
) -> list[Epoch]:
    """The epochs up to ``head`` as the reference reads them."""
    read_records = {
        path: [row for record in records for row in make_records(record)] for path, records in files.items()
    }
    return [_epoch(epoch, read_records) for epoch in recorded_epochs(catalog, head)]


def _epoch(recorded_epoch: RecordedEpoch, records_by_path: Mapping[str, Sequence[Record]]) -> Epoch:
    """A recorded epoch as the reference reads it."""
    records = {
        name: [row for file in files for row in records_by_path[file.path]]
        for name, files in recorded_epoch.files.items()
    }
    own = records.pop(OWN, [])
    return Epoch(recorded_epoch.processing_time, own, recorded_epoch.is_last, recorded_epoch.signals, union=records)


def _check_accounts(manifest: Manifest, result: EpochResult, pipeline: Pipeline) -> None:
    """What a manifest says of the records of its epoch."""
    counts, progress = manifest.counts, manifest.progress
    causes = Counter(drop.cause for drop in result.drops)
    late_records = sum(drop.is_late and _is_record(pipeline, drop) for drop in result.drops)
    late_panes = sum(drop.cause is DropCause.LATE and not _is_record(pipeline, drop) for drop in result.drops)
    retractions = [drop for drop in result.drops if drop.cause is DropCause.RETRACTION]
    assert progress.get(INPUT_WATERMARK, progress["watermark"]) == render(result.watermark)
    assert counts["duplicates"] == causes[DropCause.DUPLICATE]
    assert counts["late_dropped"] + counts["late_panes_dropped"] == late_records + late_panes
    assert counts["closed_dropped"] == causes[DropCause.CLOSED]
    assert counts["retractions_dropped"] == sum(
        not (drop.is_late and _is_record(pipeline, drop)) for drop in retractions
    )
    assert counts["rejected"] == sum(not rejection.is_pane for rejection in result.rejected)
    assert counts["rejected_panes"] == sum(rejection.is_pane for rejection in result.rejected)
    assert sum(each["records"] for each in progress["ahead"]) == len(result.ahead)


@dataclass(frozen=True)
class _Output:
    """One output of a pipeline that has run, as ``pipeline`` has it ``alone``."""

    alone: Pipeline
    root: Path
    name: str

    def panes(self, branch: str, epochs: int) -> list["Windows"]:
        """What readers see of each epoch, by (key, window) and in order."""
        return panes(self.alone, self.root, branch, epochs, self.name)

    def check_side_outputs(self, expected: Sequence[EpochResult]) -> None:
        """Late records and dead letters of each epoch: as many as the reference drops, for its reasons."""
        late, rejected_rows = (
            read(self.alone, self.root.as_uri(), view, "main", self.name).to_pylist() for view in ("late", "rejected")
        )
        for epoch, result in enumerate(expected):
            own = [drop for drop in result.drops if drop.is_late and _is_record(self.alone, drop)]
            keys = [*self.alone.record_key_types]
            times = Counter((drop.element.key[: len(keys)], drop.element.timestamp, _ends(drop.window)) for drop in own)
            assert times == Counter(
                (
                    tuple(row[name] for name in keys),
                    to_instant(row["event_time"]),
                    tuple(
                        None if row[name] is None else to_instant(row[name]) for name in ("window_start", "window_end")
                    ),
                )
                for row in late
                if row["epoch"] == epoch
            )
            reasons = Counter(
                "event time is null" if each.column == "event_time" else _reason(each.column)
                for each in result.rejected
            )
            letters = [row for row in rejected_rows if row["epoch"] == epoch]
            of_all = () if self.alone.upstream else (None,)
            own_letters = [row for row in letters if row.get("output") in (*of_all, self.name)]
            if all(row.get("output") is not None or not self.name for row in own_letters):
                assert reasons == Counter(row["reason"] for row in own_letters)
            else:  # of a record that no output can take the first says why
                assert reasons.total() == len(own_letters)


def _reason(column: str) -> str:
    if column.startswith("the step of the loop"):
        return column
    if column == SIGN:
        return SignedBy.wrong
    return "id is null" if column == "id" else f"key is null: {column}"


def _is_record(pipeline: Pipeline, drop: DroppedElement) -> bool:
    """Whether what was dropped is a record of the source, not a pane."""
    if pipeline.join and drop.window is None:  # it has come to no window
        return True
    return not pipeline.upstream and drop.element.record.keys() == pipeline.schema.keys()


def _ends(window: Window | None) -> tuple[int | None, int | None]:
    return (None, None) if window is None else (window.start, window.end)


def run(
    scenario: Scenario, root: Path, schedule: Schedule, executors: Sequence[str], spark: Any
) -> Mapping[str, Sequence[Record]]:
    """Lands the records of each epoch as a file for each input and runs now and then; records by file."""
    pipeline, epochs = scenario.pipeline, scenario.epochs
    landed_records: dict[str, Sequence[Record]] = {}
    clock = MIN_INSTANT
    for each in pipeline.inputs:
        (root / each.source.path).mkdir()
    for number, epoch in enumerate(epochs):
        clock = Instant(max(clock, epoch.processing_time))
        for each in pipeline.inputs:
            records = epoch.records if each.name == OWN else epoch.union.get(each.name, ())
            if records:
                path = f"{each.source.path}/{number:04}.{each.source.format}"
                landed_records[path] = land(root / path, each.source, records)
        is_last = number == len(epochs) - 1
        is_batch = schedule.mode is Mode.BATCH
        if is_last or (schedule.runs[number] and not is_batch):
            options = RunOptions(
                f"run-{number}",
                mode=schedule.mode,
                files_per_epoch=None if is_batch else 1,
                signals=tuple(epoch.signals),
                executor=executors[number % len(executors)],
            )
            process(pipeline, root.as_uri(), options, spark=spark, now=lambda: moment(clock))  # noqa: B023 - run at once
    return landed_records


def land(path: Path, source: FileSource, records: Sequence[Record]) -> Sequence[Record]:
    """Write ``records`` as a producer does; what the file holds of them."""
    if source.format == "parquet":
        schema = schema_of(source.types)
        rows = pa.Table.from_pylist([{n: row.get(n) for n in schema.names} for row in records], schema)
        columns = nest_row(source, {name: rows[name].combine_chunks() for name in schema.names})
        pq.write_table(pa.table({name: objects(values) for name, values in columns.items()}), path)
        return records
    finite_records = [finite(row) for row in records]
    path.write_text(
        "".join(f"{json.dumps(nest_row(source, format_row(row, source.types)))}\n" for row in finite_records)
    )
    return finite_records


def nest_row(source: FileSource, row: Mapping[str, Any]) -> dict[str, Any]:
    """The values of ``row`` where the fields of ``source`` are."""
    objects_: dict[str, Any] = {}
    for name, value in row.items():
        *outer, last = source.fields[name].path
        objects_inside = objects_
        for part in outer:
            objects_inside = objects_inside.setdefault(part, {})
        objects_inside[last] = value
    return objects_


def objects(values: Any) -> Any:
    """A column of objects, of the columns in them."""
    if not isinstance(values, dict):
        return values
    return pa.StructArray.from_arrays([objects(inner) for inner in values.values()], names=[*values])


def finite(row: Record) -> dict[str, Any]:
    """A record as JSON can tell it: that knows no NaN and no infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def format_row(row: Record, schema: Schema) -> dict[str, Any]:
    """A record as a producer writes it in JSON."""
    return {
        name: value if value is None or schema[name] not in _TEXT_BY_TYPE else _TEXT_BY_TYPE[schema[name]](value)
        for name, value in row.items()
    }


def moment(instant: int) -> datetime:
    """An instant as a time in UTC."""
    calendar_time = to_datetime(Instant(instant))
    assert calendar_time is not None
    return calendar_time


_TEXT_BY_TYPE: Mapping[DataType, Callable[[Any], str]] = {
    DataType.TIMESTAMP: lambda instant: moment(instant).isoformat(),
    DataType.DATE: lambda day: day.isoformat(),
    DataType.BYTES: lambda octets: base64.b64encode(octets).decode(),
    DataType.DECIMAL: str,
}

Windows = dict[Any, list[tuple[Any, ...]]]


def panes(pipeline: Pipeline, root: Path, branch: str, epochs: int, output: str = "") -> list[Windows]:
    """What readers see of each epoch, by (key, window) and in order."""
    panes_by_epoch: list[list[tuple[Any, ...]]] = [[] for _ in range(epochs)]
    table = read(pipeline, root.as_uri(), "panes", branch, output)
    rows = _with_instants(table).to_pylist()
    for row in sorted(rows, key=lambda row: (row["epoch"], row["sequence"])):
        key = tuple(row[name] for name in pipeline.stages[-1].key_types)
        values = tuple(plain(row[name]) for name in pipeline.value_types)
        times = [row[name] for name in ("window_start", "window_end", "pane_time")]
        traits = [row[name] for name in ("timing", "pane_index", "nonspeculative_index", "is_first", "is_last")]
        panes_by_epoch[row["epoch"]].append((key, *times, *traits, row["is_retraction"], values))
    return [by_window(rows) for rows in panes_by_epoch]


def _with_instants(table: pa.Table) -> pa.Table:
    """``table`` with times as instants: windows at the end of time begin beyond the years of Python's calendar."""
    for number, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            table = table.set_column(number, column.name, table.column(number).cast(pa.int64()))
    return table


def shown_pane(pane: Pane) -> tuple[Any, ...]:
    """A pane as ``panes`` gives it: readers see NULL for times without end."""
    ends = (*pane.window, pane.timestamp)
    times = [instant if MIN_INSTANT < instant < GLOBAL_WINDOW_END - 1 else None for instant in ends]
    traits = (pane.timing.value, pane.index, pane.nonspeculative_index, pane.is_first, pane.is_last, pane.is_retraction)
    return (pane.key, *times, *traits, tuple(plain(value) for value in pane.values))


def plain(value: Any) -> Any:
    """Lists and structs as tuples, times as instants."""
    if isinstance(value, dict):
        return tuple(plain(part) for part in value.values())
    if isinstance(value, list | tuple):
        return tuple(plain(part) for part in value)
    return to_instant(value) if isinstance(value, datetime) else value


def by_window(rows: Any) -> Windows:
    """Rows by key and window, in order."""
    windows: Windows = {}
    for row in rows:
        windows.setdefault(row[:3], []).append(row)
    return windows


def assert_same(actual: Windows, expected: Windows) -> None:
    """The same rows in each window, in order."""
    assert actual.keys() == expected.keys(), (actual, expected)
    for place, rows in expected.items():
        assert same(tuple(actual[place]), tuple(rows)), (place, actual[place], rows)
