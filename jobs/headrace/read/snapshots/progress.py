"""How far a pipeline had come after an epoch: what a snapshot says, which panes it names, where each output is.

``has_panes`` tells which panes a snapshot names: those of epochs that an expiry let go are left out of what is
committed after it. From ``common_epoch`` on two snapshots name panes of their own.

``LastStage`` is what a manifest says of the last aggregation of its definition. It tells which windows have expired,
and whether they can change what others are.

``output_positions`` tells where each output is: what its readers see, how far that is behind main, and why it stands
still. ``has_had`` knows outputs that main has not any more, or not yet: of branches, tags and older snapshots.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import msgspec

from headrace.ext.sources import FILES, SourcePosition, SourceSplit
from headrace.model.accumulation import Accumulation
from headrace.model.event_time import Split
from headrace.model.time import GLOBAL_WINDOW_END, MAX_INSTANT, Duration, Instant
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace.read.snapshots.read_names import NamesSeen, ReadNames, left_out
from headrace.read.views.columns import View, ViewColumns
from headrace.sources import progress as sources_progress
from headrace.sources.landing import ByInput, Landing
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format import files as stored
from headrace_snapshots.format.codec import JSON, BrokenObjectError, Fields, MalformedError
from headrace_snapshots.format.manifest import INPUTS, ROWS, UNNAMED, EpochFields, Manifest
from headrace_snapshots.format.output_view import come_to, goes_on, outputs_of
from headrace_snapshots.names import MAIN, published_of


def has_panes(catalog: Catalog, manifest: Manifest, since_epoch: int) -> bool:
    """Whether a snapshot surely names all panes of the epochs after ``since_epoch``. An expiry leaves out panes from
    before the oldest snapshot of main that it keeps, but may keep other snapshots below it.
    """
    log = manifest.logs.get(UNNAMED.panes)
    first = None if log is None else log.first_epoch
    if first is not None and first <= since_epoch + 1:
        return True
    horizon = catalog.known_head().horizon
    for link in catalog.lineage(manifest.snapshot_id):
        if link.epoch <= since_epoch + 1:
            return True
        if horizon is not None and link.snapshot_id in horizon.grafts:
            return False
    return True


def common_epoch(catalog: Catalog, one: Manifest, other: Manifest, columns: Collection[str]) -> int:
    """The last epoch whose panes the lines of two snapshots have in common, and show with the same values in
    ``columns``; -1: none. They do not if rows were computed again meanwhile, columns have got the names of others, or
    were gone and have come again.
    """
    link = catalog.common_ancestor(one.snapshot_id, other.snapshot_id)
    if link is None or link.manifest is None or not all(goes_on(link.manifest, side, "") for side in (one, other)):
        return -1
    epoch = come_to(link.manifest, "")
    calls = [ViewColumns.from_json(side.schema).names_in_epoch(View.PANES, epoch) for side in (one, other)]
    is_alike = all(calls[0].get(name, name) == calls[1].get(name, name) for name in columns)
    return epoch if is_alike else -1


class ListingPosition(msgspec.Struct, frozen=True):
    """Where the listing of an input starts, and how many files after that were read; ``kind`` is that of its source."""

    path: str
    recent: int
    kind: str = FILES

    @classmethod
    def of_input(cls, inputs: Fields, name: str) -> "ListingPosition":
        """Reads the stored offsets of input ``name``. Raises MalformedError."""
        fields = inputs.fields(name)
        recent = fields.fields("offsets").integer("recent")
        position = SourcePosition.from_json(fields)
        return cls(position.mark, recent, position.kind)


@dataclass(frozen=True)
class InputRead:
    """What was read of an input since the beginning: files and their bytes; and its ``watermark``, as ISO 8601."""

    files: int
    bytes: int
    watermark: str

    @classmethod
    def of_input(cls, inputs: Fields, name: str) -> "InputRead":
        """Reads the stored progress of input ``name``. Raises MalformedError."""
        fields = inputs.fields(name)
        offsets = fields.fields("offsets")
        return cls(offsets.integer("files"), offsets.integer("bytes"), fields.text("watermark"))


@dataclass(frozen=True, kw_only=True)
class StoredProgress(sources_progress.EpochClocks):
    """What a manifest says by itself, without the names of files: clocks, and the mark of each input.

    ``signals`` are those that the epoch heard; ``signals_of`` is the request whose signals were the last that any epoch
    has heard, None if no request had any.
    """

    marks: Mapping[str, ListingPosition]
    signals: tuple[Signal, ...]
    signals_of: str | None

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "StoredProgress":
        """Reads the progress of ``manifest``. Raises BrokenObjectError."""
        with _progress_fields(manifest) as fields:
            return cls(
                marks=fields.mapping("inputs", ListingPosition.of_input),
                signals=fields.items("signals", signal_from_json),
                signals_of=fields.optional_text("signals_of"),
                **sources_progress.clocks_from_json(fields),
            )


def inputs_read(manifest: Manifest) -> Mapping[str, InputRead]:
    """What a manifest says of each of its inputs. Raises BrokenObjectError."""
    with _progress_fields(manifest) as fields:
        return fields.mapping("inputs", InputRead.of_input)


def splits_read(manifest: Manifest) -> Mapping[str, Mapping[str, Split]]:
    """The splits of each input, by name. Raises BrokenObjectError."""
    with _progress_fields(manifest) as fields:
        return fields.mapping("inputs", _splits_of_input)


def watermarks_of(manifest: Manifest) -> sources_progress.WatermarkHold:
    """The watermarks that the epoch of ``manifest`` left. Raises BrokenObjectError."""
    with _progress_fields(manifest) as fields:
        return sources_progress.WatermarkHold.from_json(fields)


def continuing_to_json(progress: sources_progress.PipelineProgress, *, signals_of: str | None) -> dict[str, JSON]:
    """A manifest's progress; with ``epoch_to_json`` the inverse of ``StoredProgress`` and ``progress_of``."""
    return {**progress.to_json(), "signals_of": signals_of}


def epoch_to_json(
    reading: sources_progress.EpochReading, *, signals: Iterable[Signal], executor: str | None
) -> dict[str, JSON]:
    """What a manifest says of its own epoch: what it read and heard, on which ``executor`` (None: on none)."""
    return {
        **reading.reading_to_json(),
        "signals": [signal_to_json(signal) for signal in signals],
        **({} if executor is None else {"executor": executor}),
    }


def epoch_without_reading(
    claim: Claim,
    snapshot_id: str,
    created_at: str,
    counts: Mapping[str, int],
    *,
    timings: Mapping[str, float] | None = None,
    requests: Mapping[str, int] | None = None,
) -> EpochFields:
    """What a manifest says of an epoch that reads and hears nothing: a patch, an adoption."""
    return EpochFields(
        snapshot_id=snapshot_id,
        branch=claim.branch,
        generation=claim.generation,
        created_at=created_at,
        progress=epoch_to_json(sources_progress.NO_READING, signals=(), executor=None),
        counts=counts,
        timings=timings or {},
        requests=requests or {},
    )


def progress_of(catalog: Catalog, manifest: Manifest) -> sources_progress.PipelineProgress:
    """How far ``manifest`` has come, with the files that its offsets remember. Raises BrokenObjectError."""
    recent = _recent_files(catalog, manifest)
    with _progress_fields(manifest) as fields:
        progress = sources_progress.PipelineProgress.from_json(fields, recent)
    return replace(progress, epoch_bytes=manifest.counts.get("input_bytes", 0))


def unread_files(
    catalog: Catalog,
    landing: Landing,
    manifest: Manifest | None,
    progress: sources_progress.PipelineProgress,
    *,
    full_sweep: bool,
    on_unknown: Callable[[Set[str]], None] = lambda paths: None,
    names_seen: NamesSeen | None = None,
) -> dict[str, list[SourceSplit]]:
    """What has landed and was not read by ``manifest`` or before, to which ``progress`` has come; ``full_sweep``: also
    where nobody looks any more. ``on_unknown`` receives the paths of landed copies of which nobody
    knows whether they are input, if there are any; ``names_seen`` what was seen of known names.
    """
    read_names = None if manifest is None else ReadNames.from_manifest(catalog, manifest, names_seen)
    files = landing.new_files(progress.offsets, read_names, full_sweep=full_sweep)
    return without_copies(catalog, manifest, files, on_unknown)


def without_copies(
    catalog: Catalog,
    manifest: Manifest | None,
    files: ByInput,
    on_unknown: Callable[[Set[str]], None] = lambda paths: None,
) -> dict[str, list[SourceSplit]]:
    """``files`` without copies of records whose original files a run that continues from ``manifest`` reads."""
    copies = left_out(catalog, manifest, (file.path for splits in files.values() for file in splits))
    if copies.unknown:
        on_unknown(copies.unknown)
    rest = {name: [file for file in splits if file.path not in copies] for name, splits in files.items()}
    return {name: splits for name, splits in rest.items() if splits}


def input_file(file: stored.InputFile) -> SourceSplit:
    """A file that a log of inputs names."""
    return SourceSplit(file.path, file.size, file.etag, file.digest, file.rules)


@contextmanager
def _progress_fields(manifest: Manifest) -> Iterator[Fields]:
    """The progress in ``manifest``, to be read. What is malformed of it becomes a BrokenObjectError."""
    try:
        yield Fields(dict(manifest.progress), "progress")
    except MalformedError as error:
        raise BrokenObjectError(
            f"snapshot {manifest.snapshot_id} of {manifest.pipeline} (epoch {manifest.epoch}) does not say how far it "
            f"has come: {error}. Continue from an older snapshot, or use the version of Headrace that wrote this one"
        ) from error


def _splits_of_input(inputs: Fields, name: str) -> Mapping[str, Split]:
    return inputs.fields(name).mapping(
        "splits", lambda splits, split: sources_progress.split_from_json(splits.fields(split))
    )


def _recent_files(catalog: Catalog, manifest: Manifest) -> Mapping[str, Sequence[SourceSplit]]:
    """The files after the mark of each input, by name. Reads the log of inputs back until it has them all."""
    marks = StoredProgress.from_manifest(manifest).marks
    missing = sum(mark.recent for mark in marks.values())
    recent: dict[str, list[SourceSplit]] = {name: [] for name in marks}
    records = catalog.newest_files(manifest.logs[INPUTS]) if missing else ()
    for record in records:
        for file in record.files:
            if not isinstance(file, stored.InputFile):
                continue
            mark = marks[file.input]
            if mark.recent > 0 and file.path > mark.path:  # what is not files remembers none
                recent[file.input].append(input_file(file))
                missing -= 1
        if not missing:
            break
    if missing:
        raise BrokenObjectError(
            f"snapshot {manifest.snapshot_id} of {catalog.pipeline} (epoch {manifest.epoch}) remembers {missing} files "
            "more than its log of inputs names: continue from an older snapshot"
        )
    return {name: sorted(files, key=lambda file: file.path) for name, files in recent.items()}


def signal_to_json(signal: Signal) -> JSON:
    """A JSON value; the inverse of ``signal_from_json``."""
    return {
        "name": signal.name,
        "key": signal.written_key,
        "window": None if signal.window is None else list(signal.window),
    }


def signal_from_json(fields: Fields) -> Signal:
    """The inverse of ``signal_to_json``. Raises MalformedError."""
    key = None if fields.json("key") is None else tuple(fields.array("key"))
    return Signal(fields.text("name"), key, None if fields.json("window") is None else _window_from_json(fields))


def _window_from_json(fields: Fields) -> Window:
    match fields.array("window"):
        case [int(start), int(end)]:
            return Window(Instant(start), Instant(end))
        case other:
            raise MalformedError(f"{fields.where}.window is {other}, not a start and an end")


OWN = "own"
"""What stands for the name of a class of the user's own in a definition."""


class MergingWindows(msgspec.Struct, frozen=True):
    """Windows that merge where they overlap; if they are ``touching``, already where one begins as another ends."""

    touching: bool


class RowOrigin(StrEnum):
    """What rows are made of: RECORDS, each of one and of nothing else; JOINED rows; PANES of an aggregation, or rows
    that are not of records themselves; GROUPS of a key in a window, or in the window of ALL_TIME; elements that were
    WAITING for the watermark.
    """

    RECORDS = "records"
    JOINED = "joined rows"
    PANES = "panes"
    GROUPS = "groups"
    ALL_TIME = "all time"
    WAITING = "waiting"


class LastStage(msgspec.Struct, frozen=True):
    """``lateness`` None: no window ever expires. ``own`` is the class of windows that are of the user's own;
    ``is_first``: it is the only one, and reads records, or rows of these, without joins. ``made_of``: what its rows are
    made of; None: it is an aggregation. ``keys`` are columns of these. ``horizon``: for how long ids are remembered,
    None if none are.
    """

    accumulation: Accumulation
    lateness: Duration | None
    merging: MergingWindows | None
    own: str | None
    table: str
    is_first: bool
    made_of: RowOrigin | None = None
    keys: tuple[str, ...] = ()
    horizon: Duration | None = None

    @classmethod
    def from_manifest(cls, manifest: Manifest) -> "LastStage | None":
        """None for a manifest from before there were definitions in them."""
        if not manifest.definition:
            return None
        stages = manifest.definition["stages"]
        table = UNNAMED.state_table(len(stages) - 1)
        is_first = len(stages) == 1 and not manifest.definition.get("joins") and _reads_records(manifest.definition)
        made_of, retracting = _rows_of(manifest.definition), Accumulation.RETRACTING
        if made_of in (RowOrigin.RECORDS, RowOrigin.JOINED, RowOrigin.PANES):
            ids = manifest.definition.get("deduplicate")
            horizon = None if ids is None else Duration(ids["horizon"])
            lateness = _longest_lateness(manifest.definition) if made_of is RowOrigin.JOINED else Duration(0)
            return cls(retracting, lateness, None, None, table, is_first, made_of, horizon=horizon)
        where = _inner_windows(stages[-1]["where"])
        merging = MergingWindows(bool(where.get("touching_merges", False))) if where.get("is") == "sessions" else None
        return cls(
            Accumulation(stages[-1]["how"]["accumulation"]) if made_of is None else retracting,
            _last_lateness([stage["how"] for stage in stages]),
            merging,
            where.get(OWN),
            table,
            is_first,
            made_of,
            tuple(name for name, _ in stages[-1].get("key", ())),
        )

    @property
    def gives_rows(self) -> bool:
        """Whether it is no aggregation: what it gives is all that was given, less what was withdrawn."""
        return self.made_of is not None

    @property
    def is_never_late(self) -> bool:
        """Whether whatever comes is a row, however old it is."""
        return self.made_of is RowOrigin.RECORDS and self.horizon is None

    def expired_until(self, manifest: Manifest) -> Instant:
        """Windows that end no later than that have expired (semantics 5.2): no element can change them any more. Rows
        of records are over with their instant, as far as ids older than that are not remembered (12.10); joined rows
        once they stand for good (16.5).
        """
        if self.is_never_late:
            return MAX_INSTANT
        is_of_records = self.made_of is RowOrigin.RECORDS
        watermark = StoredProgress.from_manifest(manifest).watermark if is_of_records else complete_until(manifest)
        lateness = self.horizon if is_of_records else self.lateness
        assert lateness is not None
        return MAX_INSTANT if watermark >= GLOBAL_WINDOW_END else Instant(watermark - lateness)


def _rows_of(definition: Mapping[str, Any]) -> RowOrigin | None:
    """What the rows of the last stage are made of; None of an aggregation."""
    *_, last = definition["stages"]
    if ROWS not in last:
        return None
    if "take" in last:
        if last["take"] == {"is": "every"}:
            return RowOrigin.WAITING
        return RowOrigin.ALL_TIME if _inner_windows(last["where"]).get("is") == "global" else RowOrigin.GROUPS
    if definition.get("joins"):
        return RowOrigin.JOINED
    return RowOrigin.RECORDS if _reads_records(definition) else RowOrigin.PANES


def _reads_records(definition: Mapping[str, Any]) -> bool:
    """Whether all that comes to its first stage, or join, is a record each, or the row of one."""
    return all(_rows_of(one) is RowOrigin.RECORDS for one in definition.get("of", ()))


def has_discarding_panes(manifest: Manifest) -> bool:
    """Whether each pane holds what came since the last one: then rows of ``current`` are not all that was given."""
    stage = LastStage.from_manifest(manifest)
    return stage is not None and stage.accumulation is Accumulation.DISCARDING


def takes_patches(manifest: Manifest) -> bool:
    """Whether rows of a snapshot of one output can be patched by a branch that began before another patch."""
    stage = LastStage.from_manifest(manifest)
    if stage is None or stage.own is not None or stage.merging is not None or stage.lateness is None:
        return False
    is_left_open = stage.made_of in (RowOrigin.PANES, RowOrigin.ALL_TIME)
    return not is_left_open and stage.accumulation is not Accumulation.DISCARDING


def is_patched(manifest: Manifest, since_epoch: int) -> bool:
    """Whether ``manifest`` has a patch of an epoch after ``since_epoch``."""
    return manifest.patch is not None and since_epoch < manifest.patch.epoch <= manifest.epoch


def complete_until(manifest: Manifest) -> Instant:
    """Windows of the last aggregation that end no later than that are complete: its watermark has passed them."""
    progress = StoredProgress.from_manifest(manifest)
    outputs = progress.chain.output_watermarks
    upstream_stage = len(outputs) - 2  # the last aggregation reads what the one above it gives
    return outputs[upstream_stage] if upstream_stage >= 0 else progress.watermark_of(progress.chain)


def _inner_windows(where: Mapping[str, Any]) -> Mapping[str, Any]:
    """The windows themselves, where only the timestamps of their panes are moved."""
    return _inner_windows(where["inner"]) if where.get("is") == "shifted output time" else where


def _last_lateness(hows: list[Mapping[str, Any]]) -> Duration | None:
    """The lateness of the last aggregation: downstream it never shrinks (5.2). Zero where none is written."""
    bounds = [how.get("allowed_lateness", 0) for how in hows]
    return None if None in bounds else Duration(max(bounds))


def _longest_lateness(definition: Mapping[str, Any]) -> Duration | None:
    """The longest lateness of a join, or of what gives its sides; the last join is as patient as any of these (16.4,
    16.8). None: one has no limit.
    """
    bounds = [*_latenesses(definition)]
    limits = [bound for bound in bounds if bound is not None]
    return Duration(max(limits)) if len(limits) == len(bounds) else None


def _latenesses(definition: Mapping[str, Any]) -> Iterator[int | None]:
    yield from (join.get("lateness", 0) for join in definition.get("joins", ()))
    yield from (stage["how"].get("allowed_lateness", 0) for stage in definition["stages"] if "how" in stage)
    for one in definition.get("of", ()):
        yield from _latenesses(one)


@dataclass(frozen=True)
class OutputPosition:
    """One output of several: the snapshot that its readers see and the epoch of that, None if they see nothing yet; and
    how many epochs of main they do not see. ``parked``: since when and why it stands still, None if it goes on.
    """

    name: str
    published: str | None
    published_epoch: int | None
    unpublished: int
    parked: sources_progress.ParkedChain | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self)


def output_positions(catalog: Catalog, refs: Mapping[str, str], main: Manifest) -> tuple[OutputPosition, ...]:
    """Where each output of ``main`` that has a name is, by the ``refs`` of the catalog."""
    names = outputs_of(main)
    published_ids, parked_chains = published_of(refs), StoredProgress.from_manifest(main).parked if names else {}
    positions = []
    for name in names:
        published_id = published_ids.get(name)
        epoch = None if published_id is None else catalog.link(published_id).epoch
        epochs_behind = main.epoch - (-1 if epoch is None else epoch)
        positions.append(OutputPosition(name, published_id, epoch, epochs_behind, parked_chains.get(name)))
    return tuple(positions)


_UNREADABLE = (BrokenObjectError, MissingSnapshotError)


def has_had(catalog: Catalog, output: str) -> bool:
    """Whether some kept snapshot has an ``output``. It may be one that a ref names, the newest of what main has given
    up, or one of main, also as before a promotion. Looks through all of them only for a name that none has.
    """
    head = catalog.head()
    for snapshot in dict.fromkeys((*head.refs.values(), *head.past.given_up)):
        with suppress(*_UNREADABLE):
            if output in outputs_of(catalog.manifest(snapshot)):
                return True
    lines = [head.refs.get(MAIN), *(promotion.main for promotion in reversed(head.past.replaced))]
    return any(line is not None and _is_on_line(catalog, line, output) for line in lines)


def _is_on_line(catalog: Catalog, newest: str, output: str) -> bool:
    """Whether a kept snapshot in the line of ``newest`` has the output."""
    with suppress(*_UNREADABLE):  # the rest has expired
        return any(output in outputs_of(manifest) for manifest in catalog.readable_manifests(newest))
    return False
