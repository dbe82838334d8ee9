"""What every source must do, as tests for classes that inherit them.

Whatever a source plans it can read again, to the byte; no record is in two splits, and none is in none, wherever a run
was stopped; what is lost or altered is found before anybody counts it.
"""

import json
import pickle
import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from headrace.errors import FixDataError, RetryError
from headrace.model.combiners import count
from headrace.model.expressions.expr import col
from headrace.model.triggers.composites import on_update
from headrace.model.windows import FixedWindows
from headrace.pipeline.identity.fingerprint import fingerprint
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import SOURCES
from headrace.runs.client.deployment import open as open_root
from headrace.sources.connector import (
    FetchingReader,
    Offsets,
    OpenSource,
    SourceReader,
    SourceSplit,
    SplitEnumerator,
)
from headrace.sources.formats.scan import Scanned
from headrace.sources.formats.spans import WHOLE_FILE, Span
from headrace.sources.landed.lander import Lander
from headrace.sources.landed.ranges import LandingPlace
from headrace.sources.landing import Landing, landed_first
from headrace.sources.required_columns import Required
from headrace.testing.connectors.source_world import SourceWorld
from headrace_snapshots.format.codec import Fields
from headrace_snapshots.store import ObjectStore, open_store
from headrace_snapshots.testing.faults import Fault, FaultyStore, Operation

_BEGIN = datetime(2026, 5, 1, tzinfo=UTC)
_TEXTS = ("", " ", "a", 'a"b', "a,b", "œ🜁", "null", "{}")


def records(first: int, many: int) -> list[dict[str, Any]]:
    """Records with numbers from ``first`` on."""
    numbers = range(first, first + many)
    return [
        {"number": number, "text": _TEXTS[number % len(_TEXTS)], "at": _BEGIN + timedelta(minutes=number)}
        for number in numbers
    ]


class SourceConformance:
    """Inherit it, and define the fixture ``world``."""

    executors: ClassVar[Sequence[str]] = ("local", "spark")
    """On which the source runs."""

    @pytest.fixture
    def world(self) -> SourceWorld:
        """A source with nothing in it."""
        raise NotImplementedError("define a fixture world that gives a SourceWorld")

    # --- planning -----------------------------------------------------------------------------------------------------

    def test_a_source_with_nothing_in_it_says_where_it_looked(self, world: SourceWorld) -> None:
        enumerator = _enumerator(world)
        assert [*enumerator.unread(Offsets())] == []
        assert enumerator.explain().strip()
        assert enumerator.newest(Offsets()) is None

    @pytest.mark.parametrize("seed", range(3))
    def test_each_record_is_in_one_split_wherever_a_run_stops(self, world: SourceWorld, seed: int) -> None:
        """A run plans, reads and commits; it may end after each of these, and the next one begins at the position."""
        choice = random.Random(seed)  # noqa: S311
        position, committed, added = Offsets(), [], 0
        for _ in range(12):
            many = choice.randrange(4)
            world.append(records(added, many)) if many else None
            added += many
            planned = [*_enumerator(world).unread(position)]
            batch = planned[: choice.randrange(1, 4)]
            read = _numbers(world, batch)
            if choice.random() < 0.6:
                committed += read
                position = _stored(_enumerator(world).after(position, batch))
        while batch := [*_enumerator(world).unread(position)][:2]:
            committed += _numbers(world, batch)
            position = _stored(_enumerator(world).after(position, batch))
        assert sorted(committed) == [*range(added)]

    def test_an_older_position_gives_the_same_splits_again(self, world: SourceWorld) -> None:
        world.append(records(0, 3))
        first = [*_enumerator(world).unread(Offsets())]
        position = _enumerator(world).after(Offsets(), first)
        world.append(records(3, 3))
        second = [*_enumerator(world).unread(position)]
        assert [split.path for split in _enumerator(world).unread(Offsets())] == [s.path for s in (*first, *second)]
        every = {split.path for split in (*first, *second)}
        assert len(every) == len(first) + len(second)
        after = _enumerator(world).after(position, second)
        assert [*_enumerator(world).unread(after)] == [*_enumerator(world).unread(after, every)] == []
        assert (after.files, after.bytes) == (len(every), sum(split.size for split in (*first, *second)))
        assert all(split.size > 0 for split in (*first, *second))

    # --- reading ------------------------------------------------------------------------------------------------------

    def test_a_split_reads_alike_each_time_and_in_pieces(self, world: SourceWorld) -> None:
        world.append(records(0, 20))
        world.append_unreadable()
        for split in [_enumerator(world).taken(one) for one in _enumerator(world).unread(Offsets())]:
            whole = _rows(_reader(world).read(split, WHOLE_FILE, Required()))
            assert _rows(_reader(world).read(split, WHOLE_FILE, Required())) == whole
            for of in (2, 3) if _reader(world).is_divisible(split) else ():
                spans = [Span(number, number + 1, of) for number in range(of)]
                pieces = [_rows(_reader(world).read(split, span, Required())) for span in spans]
                assert [row for piece in pieces for row in piece] == whole

    def test_a_record_that_does_not_parse_is_one_with_a_reason(self, world: SourceWorld) -> None:
        world.append(records(0, 2))
        world.append_unreadable()
        reader, splits = _reader(world), [*_enumerator(world).unread(Offsets())]
        rows = [row for split in splits for row in _rows(reader.read(split, WHOLE_FILE, Required()))]
        reasons = [row["unparsed"] for row in rows if row["unparsed"] is not None]
        assert len(rows) == 3
        assert len(reasons) == 1
        assert reasons[0].startswith("column ")

    def test_values_come_as_they_are(self, world: SourceWorld) -> None:
        world.append(records(0, len(_TEXTS)))
        splits = [*_enumerator(world).unread(Offsets())]
        rows = [row for split in splits for row in _rows(_reader(world).read(split, WHOLE_FILE, Required()))]
        read = [{name: row[name] for name in ("number", "text", "at")} for row in rows]
        assert sorted(read, key=lambda row: row["number"]) == records(0, len(_TEXTS))

    # --- what is not there any more -----------------------------------------------------------------------------------

    def test_what_is_lost_or_altered_is_named_and_never_read(self, world: SourceWorld) -> None:
        world.append(records(0, 2))
        world.append(records(2, 2))
        world.append(records(4, 2))
        enumerator = _enumerator(world)
        splits = [enumerator.taken(split) for split in enumerator.unread(Offsets())]
        assert [*enumerator.missing(splits)] == []
        assert [*enumerator.missing([])] == []
        _alter(world)
        altered = [*enumerator.missing(splits)]
        assert [split for split, _ in altered] == splits[: len(altered)]
        assert altered
        _lose(world, world.root)
        lost = [*enumerator.missing(splits)]
        assert lost
        assert {split for split, _ in lost} >= {split for split, _ in altered}
        for split, how in lost:
            assert how.strip()
            with pytest.raises(FixDataError):
                _reader(world).read(split, WHOLE_FILE, Required())

    # --- landed -------------------------------------------------------------------------------------------------------

    def test_landed_records_are_those_of_the_source(self, world: SourceWorld) -> None:
        """Landing is for sources that are fetched from elsewhere."""
        opened = SOURCES[world.source.kind].open(world.source, world.root)
        if not isinstance(opened.reader, FetchingReader):
            pytest.skip("it is never fetched alone")
        world.append(records(0, 5))
        world.append_unreadable()
        world.append(records(5, 5))
        direct = _records(opened)
        lander, landed = _landed_first(world)
        lander.land()
        assert _records(landed) == direct
        assert len(direct) == 11

    @pytest.mark.parametrize("kind", ["killed", "unknown"])
    def test_what_a_lander_leaves_is_completed_by_the_next(self, world: SourceWorld, kind: str) -> None:
        """A lander is stopped at each of its puts in turn, before it happens or, its answer lost, after; the next one
        begins where it was, beside what has come meanwhile.
        """
        added, stopped_at, was_stopped = 0, 0, True
        while was_stopped:
            world.append(records(added, 2))
            added += 2
            stops = _Stops(stopped_at, Fault.FAIL if kind == "killed" else Fault.LOSE_ANSWER)
            with suppress(RetryError):
                _landed_first(world, FaultyStore(world.root, stops))[0].land()
            was_stopped, stopped_at = stops.has_stopped, stopped_at + 1
        lander, landed = _landed_first(world)
        lander.land()
        assert sorted(row["number"] for row in _records(landed)) == [*range(added)]

    def test_landers_beside_each_other_land_everything_once(self, world: SourceWorld) -> None:
        lander, landed = _landed_first(world)
        for turn in range(8):
            world.append(records(3 * turn, 3))
            with ThreadPoolExecutor(3) as pool:
                landers = [pool.submit(_landed_first(world)[0].land) for _ in range(3)]
            for one in landers:
                one.result()
        assert lander.waiting() == []
        assert sorted(row["number"] for row in _records(landed)) == [*range(24)]

    # --- in a pipeline ------------------------------------------------------------------------------------------------

    def test_a_definition_pickles_and_keeps_its_fingerprint(self, world: SourceWorld) -> None:
        pipeline = _pipeline(world)
        again = pickle.loads(pickle.dumps(pipeline))  # noqa: S301
        assert again.source == pipeline.source
        assert fingerprint(again) == fingerprint(pipeline)

    def test_runs_on_each_executor_are_exactly_once_and_replays_equal(self, world: SourceWorld, tmp_path: Path) -> None:
        pipeline = _pipeline(world)
        handle = open_root((tmp_path / "root").as_uri(), create=True)[pipeline]
        added = 0
        for executor in (*self.executors, *self.executors):
            world.append(records(added, 5))
            added += 5
            handle.run(executor=executor, files_per_epoch=1)
        world.append_unreadable()
        result = handle.run(executor=self.executors[0], files_per_epoch=1)
        assert result.to_json()["counts"]["rejected"] == 1
        (dead,) = handle.read("rejected", at="main").to_json()
        assert dead["reason"].startswith("column ")
        read = {row["text"]: row["n"] for row in handle.read("current", at="main").to_json()}
        assert sum(read.values()) == added
        for executor in self.executors:
            handle.run(executor=executor, mode="replay", from_branch="main", branch=f"again_{executor}")
            difference = handle.diff("main", f"again_{executor}").output.rows.to_json()
            assert [difference[kind] for kind in ("added", "removed", "changed")] == [0, 0, 0]
        handle.backfill(promote=True, branch="backfilled")
        assert {row["text"]: row["n"] for row in handle.read("current", at="main").to_json()} == read

    def test_a_replay_of_what_is_lost_is_refused(self, world: SourceWorld, tmp_path: Path) -> None:
        pipeline = _pipeline(world)
        handle = open_root((tmp_path / "root").as_uri(), create=True)[pipeline]
        for first in (0, 5):
            world.append(records(first, 5))
            handle.run(executor="local")
        _lose(world, open_store((tmp_path / "root").as_uri()))
        with pytest.raises(Exception, match="gone or changed"):
            handle.run(executor="local", mode="replay", from_branch="main", branch="again")


def _pipeline(world: SourceWorld) -> Pipeline:
    """Records by text and hour."""
    return Pipeline(
        "conforming",
        world.source.event_time("at", bound="1h"),
        key="text",
        what={"n": count(), "sum": col("number").sum()},
        where=FixedWindows("1d"),
        when=on_update(),
        executor="local",
    )


def _landing(world: SourceWorld) -> Landing:
    return Landing(_pipeline(world), world.root)


def _lose(world: SourceWorld, root: ObjectStore) -> None:
    if world.source.is_durable:
        world.lose()
    else:
        root.delete(_first_landed(root))


def _alter(world: SourceWorld) -> None:
    if world.source.is_durable:
        world.alter()
    else:
        first = _first_landed(world.root)
        world.root.write(first, world.root.read(first) + b"altered")


def _first_landed(root: ObjectStore) -> str:
    return next(info.path for info in root.list("conforming/landed/") if info.path.endswith(".parquet"))


def _landed_first(world: SourceWorld, store: ObjectStore | None = None) -> tuple[Lander, OpenSource]:
    """What lands the source of ``world`` in a ``store`` (None: its root), and what was landed."""
    opened = SOURCES[world.source.kind].open(world.source, world.root)
    lander, landed = landed_first(world.source, opened, LandingPlace(store or world.root, "landing", "source"))
    if lander is None:
        pytest.skip("it is never landed")
    return lander, landed


def _records(opened: OpenSource) -> list[Mapping[str, Any]]:
    """All records of a source, in order."""
    splits = opened.enumerator.unread(Offsets())
    return [row for split in splits for row in _rows(opened.reader.read(split, WHOLE_FILE, Required()))]


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


def _enumerator(world: SourceWorld) -> SplitEnumerator:
    """The enumerator of a run, which has landed what is new if the source is not durable."""
    landing = _landing(world)
    landing.land({})
    (enumerator,) = landing.enumerators.values()
    return enumerator


def _reader(world: SourceWorld) -> SourceReader:
    (reader,) = _landing(world).readers.values()
    return reader


def _stored(position: Offsets) -> Offsets:
    """``position`` as a snapshot gives it back, with the splits that it remembers."""
    written = json.loads(json.dumps(position.to_json()))
    return Offsets.from_json(Fields(written, "input"), position.recent)


def _numbers(world: SourceWorld, splits: Sequence[SourceSplit]) -> list[int]:
    return [row["number"] for split in splits for row in _rows(_reader(world).read(split, WHOLE_FILE, Required()))]


def _rows(scanned: Scanned) -> list[Mapping[str, Any]]:
    columns = {name: column.to_pylist() for name, column in scanned.columns.items()}
    raw = scanned.raw(np.arange(len(scanned))).to_pylist()
    return [
        {
            **{name: values[row] for name, values in columns.items()},
            "position": int(scanned.position[row]),
            "unparsed": scanned.unparsed[row].as_py(),
            "raw": raw[row],
        }
        for row in range(len(scanned))
    ]
