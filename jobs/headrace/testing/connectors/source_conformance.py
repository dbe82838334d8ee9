"""What every source must do, and what epochs make of it, as tests for classes that inherit them.

Whatever a source plans it can read again, to the byte; no record is in two splits, and none is in none, wherever a run
was stopped; what is lost or altered is found before anybody counts it.

``SourceEpochConformance`` tests how much each epoch reads, and how far time has come.
"""

import json
import pickle
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import pytest

from headrace import check
from headrace import open as open_root
from headrace.errors import FixDataError, RetryError
from headrace.ext.formats import WHOLE_FILE, RequiredColumns, Span
from headrace.ext.sources import SOURCES, FetchingReader, Instant, OpenSource, SourcePosition, SourceSplit
from headrace.ext.stores import ObjectStore, open_store
from headrace.kernel.columns import TIMESTAMP
from headrace.kernel.expressions.evaluation import evaluate
from headrace.model.time import MIN_INSTANT
from headrace.pipeline.identity import fingerprint
from headrace.sources.landed.files import Lander
from headrace.sources.landed.ranges import LandingPlace
from headrace.sources.landing import Landing, landed_first
from headrace.testing.connectors import worlds
from headrace.types import PipelineHandle
from headrace_snapshots.format.files import FileRecord, InputFile
from headrace_snapshots.format.manifest import INPUTS
from headrace_snapshots.testing import Fault, FaultyStore, Operation

_CONNECTING: Final = ("connect", "connect_ex", "sendto", "sendmsg")

_LOADING_SCRIPT: Final = f"""
import pickle, socket, sys

tried = []

def refused(*where, **options):
    tried.append(where)
    raise OSError("nothing is connected to where a definition is loaded")

for name in {_CONNECTING}:
    setattr(socket.socket, name, refused)
socket.getaddrinfo = refused
sys.path[:] = pickle.load(sys.stdin.buffer)
pipeline = pickle.load(sys.stdin.buffer)

from headrace import check
from headrace.pipeline.identity import fingerprint
from headrace.ext.sources import SOURCES
from headrace.ext.stores import open_store

check(pipeline)
SOURCES[pipeline.source.kind].open(pipeline.source, open_store("memory://definition"))
assert not tried, tried
print(fingerprint(pipeline))
"""


class SourceDefinitionConformance:
    """A definition is parsed by Airflow, again and again, where nothing of the source may be reached."""

    def test_a_definition_pickles_and_keeps_its_fingerprint(self, world: worlds.SourceWorld) -> None:
        pipeline = worlds.pipeline_of(world)
        pickled_pipeline = pickle.loads(pickle.dumps(pipeline))  # noqa: S301
        assert pickled_pipeline.source == pipeline.source
        assert fingerprint(pickled_pipeline) == fingerprint(pipeline)

    def test_a_definition_is_built_checked_and_opened_without_a_connection(
        self, world: worlds.SourceWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Python's sockets are refused; what other threads of the process do is none of its business."""
        own, attempts = threading.get_ident(), list[Any]()

        def refusing(name: str, original: Any) -> Any:
            def refuse_call(*where: Any, **options: Any) -> Any:
                if threading.get_ident() != own:
                    return original(*where, **options)
                attempts.append((name, where))
                raise OSError("nothing is connected to where a definition is built")

            return refuse_call

        with monkeypatch.context() as patch_context:
            for name in _CONNECTING:
                patch_context.setattr(socket.socket, name, refusing(name, getattr(socket.socket, name)))
            patch_context.setattr(socket, "getaddrinfo", refusing("getaddrinfo", socket.getaddrinfo))
            pipeline = worlds.pipeline_of(world)
            check(pipeline)
            fingerprint(pipeline)
            SOURCES[world.source.kind].open(world.source, world.root)
        assert attempts == []

    def test_its_modules_are_imported_without_a_connection(self, world: worlds.SourceWorld) -> None:
        """In a process of its own, which has imported nothing yet."""
        pipeline = worlds.pipeline_of(world)
        process = subprocess.run(
            [sys.executable, "-c", _LOADING_SCRIPT],
            input=pickle.dumps(sys.path) + pickle.dumps(pipeline),
            capture_output=True,
            check=False,
        )
        assert process.stdout.decode().split() == [fingerprint(pipeline)], process.stderr.decode()


_SIZE_FACTOR = 10
"""A split has no more bytes of records than so many times what it says."""


class SourceEpochConformance:
    """Limits of epochs hold, and no watermark passes a record that has not been read."""

    def test_an_epoch_takes_no_more_than_its_limits(self, world: worlds.SourceWorld) -> None:
        """A split that is larger, or counts again, is an epoch of its own. The size of a split is about that of its
        records: by it epochs are cut, so that one fits into memory.
        """
        for first in range(0, 9, 3):
            world.append(worlds.records(first, 3))
        landing = worlds.landing_of(world)
        unread = landing.new_files({})
        ((name, splits),) = unread.items()
        for split in splits:
            assert (
                sum(len(row["raw"]) for row in worlds.read_whole(worlds.reader_of(world), [split]))
                <= _SIZE_FACTOR * split.size
            )
        most = max(split.size for split in splits)
        for max_files, max_bytes in ((1, None), (2, None), (None, most), (2, 2 * most), (None, 1)):
            waiting, splits_taken = unread, list[SourceSplit]()
            while waiting:
                epoch, waiting = landing.next_epoch(waiting, max_files, max_bytes)
                batch = epoch[name]
                assert 1 <= len(batch) <= (max_files or world.source.max_files)
                assert len(batch) == 1 or sum(split.size for split in batch) <= (max_bytes or world.source.max_bytes)
                splits_taken += batch
            assert [split.path for split in splits_taken] == [split.path for split in splits]

    def test_a_watermark_is_never_ahead_of_what_is_unread(self, world: worlds.SourceWorld) -> None:
        """What the source says of a split, it says each time, and no later record of that part is before it."""
        position, known_marks, number_added = SourcePosition(), dict[str, Instant](), 0
        for many in (3, 1, 2):
            world.append(worlds.records(number_added, many))
            number_added += many
            splits = [*worlds.enumerator_of(world).unread(position)]
            for split in splits:
                for part, event_time in _event_times(world, split):
                    assert known_marks.get(part, MIN_INSTANT) <= event_time, (
                        f"a record of part {part!r} in {split.path}"
                    )
                watermarks = worlds.enumerator_of(world).watermarks(split)
                assert watermarks == worlds.enumerator_of(world).watermarks(split)
                known_marks |= {part: max(mark, known_marks.get(part, mark)) for part, mark in watermarks.items()}
            position = worlds.stored(worlds.enumerator_of(world).after(position, splits))


def _event_times(world: worlds.SourceWorld, split: SourceSplit) -> Sequence[tuple[str, Instant]]:
    """The event time of each record of a split, with the part of the input that it is of."""
    scanned_records = worlds.reader_of(world).read(split, WHOLE_FILE, RequiredColumns())
    columns: Mapping[str, Any] = scanned_records.columns
    event_time = world.input.event_time
    assert event_time.expr is not None, "the input of a world has an event time"
    times = evaluate(event_time.expr, columns).cast(TIMESTAMP).cast(pa.int64()).to_pylist()
    parts = [""] * len(times) if event_time.split is None else evaluate(event_time.split, columns).to_pylist()
    return [*zip(parts, map(Instant, times), strict=True)]


class SourceConformance(SourceDefinitionConformance, SourceEpochConformance):
    """Inherit it, and define the fixture ``world``."""

    executors: ClassVar[Sequence[str]] = ("local", "spark")
    """On which the source runs."""

    @pytest.fixture
    def world(self) -> worlds.SourceWorld:
        """A source with nothing in it."""
        raise NotImplementedError("define a fixture world that gives a SourceWorld")

    # --- planning -----------------------------------------------------------------------------------------------------

    def test_a_source_with_nothing_in_it_says_where_it_looked(self, world: worlds.SourceWorld) -> None:
        enumerator = worlds.enumerator_of(world)
        assert [*enumerator.unread(SourcePosition())] == []
        assert enumerator.explain().strip()
        assert enumerator.newest(SourcePosition()) is None

    @pytest.mark.parametrize("seed", range(3))
    def test_each_record_is_in_one_split_wherever_a_run_stops(self, world: worlds.SourceWorld, seed: int) -> None:
        """A run plans, reads and commits; it may end after each of these, and the next one begins at the position."""
        choice = random.Random(seed)  # noqa: S311
        position, numbers_committed, number_added = SourcePosition(), [], 0
        for _ in range(12):
            many = choice.randrange(4)
            world.append(worlds.records(number_added, many)) if many else None
            number_added += many
            planned_splits = [*worlds.enumerator_of(world).unread(position)]
            batch = planned_splits[: choice.randrange(1, 4)]
            read = _record_numbers(world, batch)
            if choice.random() < 0.6:
                numbers_committed += read
                position = worlds.stored(worlds.enumerator_of(world).after(position, batch))
        while batch := [*worlds.enumerator_of(world).unread(position)][:2]:
            numbers_committed += _record_numbers(world, batch)
            position = worlds.stored(worlds.enumerator_of(world).after(position, batch))
        assert sorted(numbers_committed) == [*range(number_added)]

    def test_an_older_position_gives_the_same_splits_again(self, world: worlds.SourceWorld) -> None:
        if not SOURCES[world.source.kind].repeats:
            pytest.skip("its connector says that an older position gives other splits (repeats)")
        world.append(worlds.records(0, 3))
        first = [*worlds.enumerator_of(world).unread(SourcePosition())]
        position = worlds.enumerator_of(world).after(SourcePosition(), first)
        world.append(worlds.records(3, 3))
        second = [*worlds.enumerator_of(world).unread(position)]
        assert [split.path for split in worlds.enumerator_of(world).unread(SourcePosition())] == [
            s.path for s in (*first, *second)
        ]
        every = {split.path for split in (*first, *second)}
        assert len(every) == len(first) + len(second)
        position_after = worlds.enumerator_of(world).after(position, second)
        assert (
            [*worlds.enumerator_of(world).unread(position_after)]
            == [*worlds.enumerator_of(world).unread(position_after, every)]
            == []
        )
        assert (position_after.files, position_after.bytes) == (
            len(every),
            sum(split.size for split in (*first, *second)),
        )
        assert all(split.size > 0 for split in (*first, *second))

    # --- reading ------------------------------------------------------------------------------------------------------

    def test_a_split_reads_alike_each_time_and_in_pieces(self, world: worlds.SourceWorld) -> None:
        world.append(worlds.records(0, 20))
        if world.has_unreadable:
            world.append_unreadable()
        for split in [
            worlds.enumerator_of(world).taken(one) for one in worlds.enumerator_of(world).unread(SourcePosition())
        ]:
            whole = worlds.read_whole(worlds.reader_of(world), [split])
            assert worlds.read_whole(worlds.reader_of(world), [split]) == whole
            for number_of_pieces in (2, 3) if worlds.reader_of(world).is_divisible(split) else ():
                spans = [Span(number, number + 1, number_of_pieces) for number in range(number_of_pieces)]
                pieces = [
                    worlds.rows_of(worlds.reader_of(world).read(split, span, RequiredColumns())) for span in spans
                ]
                assert [row for piece in pieces for row in piece] == whole

    def test_a_record_that_does_not_parse_is_one_with_a_reason(self, world: worlds.SourceWorld) -> None:
        if not world.has_unreadable:
            pytest.skip("each of its records parses")
        world.append(worlds.records(0, 2))
        world.append_unreadable()
        reader, splits = worlds.reader_of(world), [*worlds.enumerator_of(world).unread(SourcePosition())]
        places = [(split.path, row["position"]) for split in splits for row in worlds.read_whole(reader, [split])]
        rows = worlds.read_whole(reader, splits)
        (unread,) = [row for row in rows if row["unparsed"] is not None]
        assert len({*places}) == len(rows) == 3
        assert unread["unparsed"].startswith("column ")
        assert unread["raw"]

    def test_values_come_as_they_are(self, world: worlds.SourceWorld) -> None:
        world.append(worlds.records(0, len(worlds.TEXTS)))
        splits = [*worlds.enumerator_of(world).unread(SourcePosition())]
        rows = worlds.read_whole(worlds.reader_of(world), splits)
        read = [{name: row[name] for name in ("number", "text", "at")} for row in rows]
        assert sorted(read, key=lambda row: row["number"]) == worlds.records(0, len(worlds.TEXTS))

    # --- what is not there any more -----------------------------------------------------------------------------------

    def test_what_is_lost_or_altered_is_named_and_never_read(self, world: worlds.SourceWorld) -> None:
        world.append(worlds.records(0, 2))
        world.append(worlds.records(2, 2))
        world.append(worlds.records(4, 2))
        enumerator = worlds.enumerator_of(world)
        splits = [enumerator.taken(split) for split in enumerator.unread(SourcePosition())]
        assert [*enumerator.missing(splits)] == []
        assert [*enumerator.missing([])] == []
        _alter_source(world)
        altered_splits = _missing_splits(world, splits)
        assert [split for split, _ in altered_splits] == splits[: len(altered_splits)]
        assert altered_splits
        _lose_source_data(world, world.root)
        lost_splits = _missing_splits(world, splits)
        assert lost_splits
        assert {split for split, _ in lost_splits} >= {split for split, _ in altered_splits}
        for split, how in lost_splits:
            assert how.strip()
            with pytest.raises(FixDataError):
                worlds.reader_of(world).read(split, WHOLE_FILE, RequiredColumns())

    # --- landed -------------------------------------------------------------------------------------------------------

    def test_landed_records_are_those_of_the_source(self, world: worlds.SourceWorld) -> None:
        """Landing is for sources that are fetched from elsewhere."""
        open_source = SOURCES[world.source.kind].open(world.source, world.root)
        if not isinstance(open_source.reader, FetchingReader):
            pytest.skip("it is never fetched alone")
        world.append(worlds.records(0, 5))
        world.append_unreadable()
        world.append(worlds.records(5, 5))
        direct = _read_records(open_source)
        lander, landed_source = _landed_first(world)
        lander.land()
        assert _read_records(landed_source) == direct
        assert len(direct) == 11

    @pytest.mark.parametrize("kind", ["killed", "unknown"])
    def test_what_a_lander_leaves_is_completed_by_the_next(self, world: worlds.SourceWorld, kind: str) -> None:
        """A lander is stopped at each of its puts in turn, before it happens or, its answer lost, after; the next one
        begins where it was, beside what has come meanwhile.
        """
        _landed_first(world)
        number_added, stopped_at, was_stopped = 0, 0, True
        while was_stopped:
            world.append(worlds.records(number_added, 2))
            number_added += 2
            stops = _Stops(stopped_at, Fault.FAIL if kind == "killed" else Fault.LOSE_ANSWER)
            with suppress(RetryError):
                _landed_first(world, FaultyStore(world.root, stops))[0].land()
            was_stopped, stopped_at = stops.has_stopped, stopped_at + 1
        lander, landed_source = _landed_first(world)
        lander.land()
        assert sorted(row["number"] for row in _read_records(landed_source)) == [*range(number_added)]

    def test_landers_beside_each_other_land_everything_once(self, world: worlds.SourceWorld) -> None:
        lander, landed_source = _landed_first(world)
        for turn in range(8):
            world.append(worlds.records(3 * turn, 3))
            with ThreadPoolExecutor(3) as pool:
                landers = [pool.submit(_landed_first(world)[0].land) for _ in range(3)]
            for one in landers:
                one.result()
        assert lander.waiting_splits() == []
        assert sorted(row["number"] for row in _read_records(landed_source)) == [*range(24)]

    # --- in a pipeline ------------------------------------------------------------------------------------------------

    def test_runs_on_each_executor_are_exactly_once_and_replays_equal(
        self, world: worlds.SourceWorld, tmp_path: Path
    ) -> None:
        handle = open_root((tmp_path / "root").as_uri(), create=True)[worlds.pipeline_of(world)]
        store, number_added = open_store((tmp_path / "root").as_uri()), 0
        for executor in (*self.executors, *self.executors):
            world.append(worlds.records(number_added, 5))
            number_added += 5
            handle.run(executor=executor, files_per_epoch=1)
        if world.has_unreadable:
            world.append_unreadable()
            result = handle.run(executor=self.executors[0], files_per_epoch=1)
            assert result.to_json()["counts"]["rejected"] == 1
            _check_dead_letter(world, handle, store)
        assert {len(epoch.files) for epoch in _epoch_inputs(handle)} == {1}
        read = {row["text"]: row["n"] for row in handle.read("current", at="main").to_json()}
        assert sum(read.values()) == number_added
        for executor in self.executors:
            handle.run(executor=executor, mode="replay", from_branch="main", branch=f"again_{executor}")
            difference = handle.diff("main", f"again_{executor}").output.rows.to_json()
            assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]
        handle.backfill(promote=True, branch="backfilled")
        assert {row["text"]: row["n"] for row in handle.read("current", at="main").to_json()} == read

    def test_a_replay_of_what_is_lost_is_refused(self, world: worlds.SourceWorld, tmp_path: Path) -> None:
        pipeline = worlds.pipeline_of(world)
        handle = open_root((tmp_path / "root").as_uri(), create=True)[pipeline]
        for first in (0, 5):
            world.append(worlds.records(first, 5))
            handle.run(executor="local")
        _lose_source_data(world, open_store((tmp_path / "root").as_uri()))
        with pytest.raises(Exception, match="gone or changed"):
            handle.run(executor="local", mode="replay", from_branch="main", branch="again")


class VersionsConformance:
    """What a source must do whose ``versions=`` say that its records are versions of rows. Inherit it beside
    ``SourceConformance``, and define the fixture ``world``.
    """

    @pytest.fixture
    def world(self) -> worlds.VersionsWorld:
        """A source with nothing in it."""
        raise NotImplementedError("define a fixture world that gives a VersionsWorld")

    def test_its_versions_are_of_the_row_of_a_number(self, world: worlds.VersionsWorld) -> None:
        versions = world.source.versions
        assert versions is not None, "the source of a world of versions has versions="
        assert versions.key == ("number",), f"it has versions of the row of {', '.join(versions.key)}"

    def test_the_version_that_was_said_last_counts_however_runs_cut(
        self, world: worlds.VersionsWorld, tmp_path: Path
    ) -> None:
        """Versions of one moment, too, where the source says which came first; so it is in a replay and in a batch."""
        pipeline = worlds.newest_of(world)
        handle = open_root((tmp_path / "root").as_uri(), create=True)[pipeline]
        history = _History(world)
        for _ in history.steps():
            handle.run(files_per_epoch=1)
            stands = _texts(handle, "main")
            assert stands == history.newest, f"of rows {stands} stand, and {history.newest} were said last"
        handle.run(mode="replay", from_branch="main", branch="again")
        handle.run(mode="batch", branch="at_once")
        for branch in ("again", "at_once"):
            stands = _texts(handle, branch)
            assert stands == history.newest, f"{branch}: of rows {stands} stand, and {history.newest} were said last"

    def test_a_row_is_joined_with_the_version_that_held(self, world: worlds.VersionsWorld, tmp_path: Path) -> None:
        """Versions come after what is joined with them, and before it; a row that is gone has nothing that holds."""
        landing = tmp_path / "asked"
        landing.mkdir()
        handle = open_root((tmp_path / "root").as_uri(), create=True)[worlds.asked_of(world, landing)]
        history = _History(world)
        for number, _ in enumerate(history.steps()):
            questions = [(row, history.now + timedelta(minutes=minutes)) for row in range(3) for minutes in (0, 1, 25)]
            history.asked_questions.update(questions)
            lines = (json.dumps({"number": row, "asked": moment.isoformat()}) for row, moment in questions)
            (landing / f"{number:02}.json").write_text("".join(f"{line}\n" for line in lines))
            handle.run()
            texts_held = {
                (row["number"], row["asked"]): row["text"] or "a version without a text"
                if row["met"] is not None
                else None
                for row in _rows(handle, "main")
            }
            wrong = {place: text for place, text in texts_held.items() if text != history.text_at(*place)}
            assert texts_held.keys() == history.asked_questions
            assert not wrong, f"rows met {wrong}, and { ({place: history.text_at(*place) for place in wrong}) } held"


class _History:
    """Versions and deletions of rows, told to a ``world`` step by step, and what stands."""

    def __init__(self, world: worlds.VersionsWorld) -> None:
        self.world, self.now = world, datetime(2026, 5, 1, tzinfo=UTC)
        self.newest: dict[int, str] = {}
        self.asked_questions = set[tuple[int, datetime]]()
        self._texts_by_number: dict[int, list[tuple[datetime, str | None]]] = {}

    def steps(self) -> Iterator[None]:
        """Each adds versions. Where the source says nothing of their order, no two of a row are of one moment."""
        self._append((0, "a"), (1, "a"), (2, "a"))
        yield
        tied = self.world.source.versions is not None and self.world.source.versions.order is not None
        if tied:
            self._append((1, "z"), (1, "b"))
        self._append((1, "c" if tied else "b"))
        yield
        self._advance_clock()
        self._delete(2)
        yield
        self._advance_clock()
        self._append((2, "d"), (0, "b"))
        yield
        self._advance_clock()
        self._delete(0, 1)
        self._advance_clock()
        self._append((1, "e"))
        yield

    def text_at(self, number: int, moment: datetime) -> str | None:
        """The text that a row had at a moment; None: it was not there."""
        texts = [text for valid_from, text in self._texts_by_number.get(number, ()) if valid_from <= moment]
        return texts[-1] if texts else None

    def _advance_clock(self) -> None:
        self.now += timedelta(minutes=10)

    def _append(self, *texts: tuple[int, str]) -> None:
        if self.world.source.versions is None or self.world.source.versions.order is None:
            self._advance_clock()
        self.world.append([{"number": number, "text": text, "at": self.now} for number, text in texts])
        for number, text in texts:
            self.newest[number] = text
            self._texts_by_number.setdefault(number, []).append((self.now, text))

    def _delete(self, *numbers: int) -> None:
        self.world.delete([{"number": number, "at": self.now} for number in numbers])
        for number in numbers:
            del self.newest[number]
            self._texts_by_number[number].append((self.now, None))


def _rows(handle: PipelineHandle, branch: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = handle.current(at=branch).to_arrow().to_pylist()
    return rows


def _texts(handle: PipelineHandle, branch: str) -> dict[int, str]:
    """The text of each number that stands."""
    return {row["number"]: row["text"] for row in _rows(handle, branch)}


def _check_dead_letter(world: worlds.SourceWorld, handle: PipelineHandle, store: ObjectStore) -> None:
    """The one dead letter says where its record is, and what is there."""
    (dead,) = handle.read("rejected", at="main").to_json()
    assert dead["reason"].startswith("column ")
    files = [file for epoch in _epoch_inputs(handle) for file in epoch.files if isinstance(file, InputFile)]
    (split,) = [
        SourceSplit(file.path, file.size, file.etag, file.digest) for file in files if file.path == dead["file"]
    ]
    (reader,) = Landing(worlds.pipeline_of(world), store).readers.values()
    (dead_row,) = [row for row in worlds.read_whole(reader, [split]) if row["position"] == dead["position"]]
    assert (dead_row["unparsed"], dead_row["raw"].decode(errors="replace")) == (dead["reason"], dead["raw"])


def _epoch_inputs(handle: PipelineHandle) -> list[FileRecord]:
    """What each epoch of the pipeline has read."""
    main = handle.catalog.manifest(handle.catalog.head().refs["main"])
    return [*handle.catalog.file_records(main.logs[INPUTS])]


def _lose_source_data(world: worlds.SourceWorld, root: ObjectStore) -> None:
    if world.source.is_durable:
        world.lose()
    else:
        root.delete(_first_landed(root))


def _alter_source(world: worlds.SourceWorld) -> None:
    if world.source.is_durable:
        world.alter()
    else:
        first = _first_landed(world.root)
        world.root.write(first, world.root.read(first) + b"altered")


def _first_landed(root: ObjectStore) -> str:
    return next(info.path for info in root.list("conforming/landed/") if info.path.endswith(".parquet"))


def _landed_first(world: worlds.SourceWorld, store: ObjectStore | None = None) -> tuple[Lander, OpenSource]:
    """What lands the source of ``world`` in a ``store`` (None: its root), and what was landed."""
    open_source = SOURCES[world.source.kind].open(world.source, world.root)
    lander, landed_source = landed_first(
        world.source, open_source, LandingPlace(store or world.root, "landing", "source")
    )
    if lander is None:
        pytest.skip("it is never landed")
    return lander, landed_source


def _read_records(open_source: OpenSource) -> list[Mapping[str, Any]]:
    """All records of a source, in order."""
    splits = open_source.enumerator.unread(SourcePosition())
    return worlds.read_whole(open_source.reader, splits)


@dataclass
class _Stops:
    """A plan for a store: the ``fault`` at put number ``left``, and at all after it."""

    left: int
    fault: Fault
    has_stopped: bool = False

    def __call__(self, operation: Operation) -> Fault | None:
        if operation.kind != "create" or self.has_stopped:
            return Fault.FAIL if self.has_stopped else None
        self.has_stopped = self.left == 0
        self.left -= 1
        return self.fault if self.has_stopped else None


def _record_numbers(world: worlds.SourceWorld, splits: Sequence[SourceSplit]) -> list[int]:
    return [row["number"] for row in worlds.read_whole(worlds.reader_of(world), splits)]


def _missing_splits(world: worlds.SourceWorld, splits: Sequence[SourceSplit]) -> list[tuple[SourceSplit, str]]:
    """What a run that comes later says is missing."""
    (enumerator,) = Landing(worlds.pipeline_of(world), world.root).enumerators.values()
    return [*enumerator.missing(splits)]
