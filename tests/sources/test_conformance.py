"""Files, and a source of another distribution, keep what the port of sources promises (headrace.testing.connectors)."""

import json
import socket
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.describe.pipeline import pipeline_sections
from headrace.errors import PipelineError
from headrace.ext.formats import ScannedRecords
from headrace.ext.sources import SOURCES, OpenSource, SourceConnector, SourcePosition, SourceSplit
from headrace.ext.stores import ObjectStore
from headrace.installed import NotRegisteredError
from headrace.model.time import MAX_INSTANT
from headrace.pipeline.endpoints import Source
from headrace.pipeline.identity import pipeline_meaning
from headrace.read.pending_work import watched_inputs
from headrace.runs.relanding import LandingAgainError
from headrace.testing import at, end, rows, run
from headrace.testing.connectors import SourceConformance, SourceWorld
from tests.building import written_again
from tests.distributions import write_distribution

DISTRIBUTION_FOLDER = Path(__file__).parents[1] / "additions" / "outside"
COLUMNS: Mapping[str, Any] = {"number": int, "text": hr.field("said.text", str), "at": datetime}


@dataclass
class JsonWorld(SourceWorld):
    """Files of JSON lines."""

    folder: Path
    landed: int = 0

    @property
    def source(self) -> Source:
        return hr.json(self.folder.as_uri(), COLUMNS)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.land([{**row, "said": {"text": row["text"]}, "at": row["at"].isoformat()} for row in records])

    def append_unreadable(self) -> None:
        self.land([{"number": "many", "said": {"text": "x"}, "at": "2026-05-02T00:00:00Z"}])

    def land(self, lines: Sequence[Mapping[str, Any]]) -> None:
        self.landed += 1
        (self.folder / f"{self.landed:04}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    @property
    def first(self) -> Path:
        return min(self.folder.iterdir())

    def lose(self) -> None:
        self.first.unlink()

    def alter(self) -> None:
        self.first.write_text(self.first.read_text() + "{}\n")


@dataclass
class DailyWorld(SourceWorld):
    """A table in SQLite, whose days are over once there is another; dynamic types let anything in."""

    database: Path
    days: int = 0

    def __post_init__(self) -> None:
        self._run("CREATE TABLE said (day TEXT, number, text, at TEXT)")
        self._add([("9999-12-31", None, None, None)])  # the day that is not over

    @property
    def source(self) -> Source:
        from acme_headrace.daily_table import DailyTable

        return DailyTable(str(self.database), "said", {"number": int, "text": str, "at": datetime})

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.days += 1
        self._add([(self.day, row["number"], row["text"], row["at"].isoformat()) for row in records])

    def append_unreadable(self) -> None:
        self.days += 1
        self._add([(self.day, "many", "x", "2026-05-02T00:00:00Z")])

    @property
    def day(self) -> str:
        return f"2026-{self.days:05}"

    def lose(self) -> None:
        self._run("DELETE FROM said WHERE day = (SELECT min(day) FROM said)")

    def alter(self) -> None:
        self._run("DELETE FROM said WHERE rowid = (SELECT min(rowid) FROM said WHERE day < '9999')")

    def _add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        with closing(sqlite3.connect(self.database)) as database, database:
            database.executemany("INSERT INTO said VALUES (?, ?, ?, ?)", rows)

    def _run(self, sql: str) -> None:
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute(sql)


@dataclass
class OutboxWorld(SourceWorld):
    """A table in SQLite whose rows others remove."""

    database: Path

    def __post_init__(self) -> None:
        self._add("CREATE TABLE outbox (number INTEGER PRIMARY KEY AUTOINCREMENT, message)")

    @property
    def source(self) -> Source:
        from acme_headrace.outbox import Outbox

        return Outbox(str(self.database), COLUMNS)

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        for row in records:
            self._send({**row, "said": {"text": row["text"]}, "at": row["at"].isoformat()})

    def append_unreadable(self) -> None:
        self._send({"number": "many", "said": {"text": "x"}, "at": "2026-05-02T00:00:00Z"})

    def _send(self, message: Mapping[str, Any]) -> None:
        self._add("INSERT INTO outbox (message) VALUES (?)", json.dumps(message))

    def _add(self, sql: str, *values: object) -> None:
        with closing(sqlite3.connect(self.database)) as database, database:
            database.execute(sql, values)


@pytest.mark.spark
class TestFiles(SourceConformance):
    @pytest.fixture
    def world(self, tmp_path: Path) -> SourceWorld:
        folder = tmp_path / "landing"
        folder.mkdir()
        return JsonWorld(folder)


class TestDailyTable(SourceConformance):
    executors = ("local",)  # tests/additions/test_outside.py has it on Spark, whose workers see what is installed

    @pytest.fixture
    def world(self, daily: "DailyWorld") -> SourceWorld:
        return daily


class KeptWorld(OutboxWorld):
    """One that keeps its records, and cuts them as it likes."""

    @property
    def source(self) -> Source:
        kept_source: Source = written_again(type(super().source), is_durable=True, plans_alike=False)(
            str(self.database), COLUMNS
        )
        return kept_source


kept_outbox = pytest.mark.parametrize("outbox", [KeptWorld], indirect=True, ids=["kept"])
"""The outbox of the test keeps its records."""


class TestOutbox(SourceConformance):
    executors = ("local",)

    @pytest.fixture
    def world(self, outbox: OutboxWorld) -> SourceWorld:
        return outbox


class ChangedConnector(SourceConnector):
    """The daily tables, of which a test has changed what is open."""

    def __init__(self, change: Callable[[OpenSource], OpenSource]) -> None:
        self._own, self._change = SOURCES["daily_table"], change

    def open(self, source: Source, root: ObjectStore) -> OpenSource:
        return self._change(self._own.open(source, root))


def run_ahead(daily: OpenSource) -> OpenSource:
    days = written_again(type(daily.enumerator), watermarks=lambda _days, _split: {"": MAX_INSTANT})
    return replace(daily, enumerator=days(**vars(daily.enumerator)))


def small(daily: OpenSource) -> OpenSource:
    unread, read = daily.enumerator.unread, daily.reader.read

    def read_own(_: object, split: SourceSplit, *arguments: Any) -> ScannedRecords:
        (own,) = (own for own in unread(SourcePosition()) if own.path == split.path)
        return read(own, *arguments)

    days = written_again(
        type(daily.enumerator),
        unread=lambda _, position, read=None: (replace(split, size=1) for split in unread(position, read)),
    )
    rows = written_again(type(daily.reader), read=read_own)
    return OpenSource(days(**vars(daily.enumerator)), rows(**vars(daily.reader)))


def all_at_0(daily: OpenSource) -> OpenSource:
    read = daily.reader.read

    def read_at_0(_: object, *arguments: Any) -> ScannedRecords:
        scanned_records = read(*arguments)
        return replace(scanned_records, position=scanned_records.position * 0)

    return replace(daily, reader=written_again(type(daily.reader), read=read_at_0)(**vars(daily.reader)))


class Calling(DailyWorld):
    """A definition that calls somebody when it is asked for its place."""

    @property
    def source(self) -> Source:
        def place(_: Source) -> str:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", 9))
            return "x"

        calling: Source = written_again(type(super().source), place=property(place))(**vars(super().source))
        return calling


class CallingWhenImported(DailyWorld):
    """A definition whose module calls somebody when it is imported."""

    @property
    def source(self) -> Source:
        (self.database.parent / "calling_home.py").write_text(
            "import socket\nfrom contextlib import suppress\nfrom acme_headrace.daily_table import DailyTable\n"
            "with suppress(OSError):\n    socket.create_connection(('127.0.0.1', 9))\n"
            "class Table(DailyTable):\n    pass\n"
        )
        from calling_home import Table

        calling: Source = Table(**vars(super().source))
        return calling


@pytest.mark.parametrize(
    ("mistake", "case"),
    [
        (run_ahead, "test_a_watermark_is_never_ahead_of_what_is_unread"),
        (small, "test_an_epoch_takes_no_more_than_its_limits"),
        (Calling, "test_a_definition_is_built_checked_and_opened_without_a_connection"),
        (CallingWhenImported, "test_its_modules_are_imported_without_a_connection"),
        (all_at_0, "test_a_record_that_does_not_parse_is_one_with_a_reason"),
    ],
)
def test_the_kit_finds_mistakes(
    mistake: Any, case: str, daily: DailyWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = getattr(TestDailyTable(), case)
    is_world = isinstance(mistake, type)
    monkeypatch.syspath_prepend(str(tmp_path))
    world = mistake(tmp_path / "another.db") if is_world else daily
    parts = {"world": world, "monkeypatch": monkeypatch}
    connector = nullcontext() if is_world else SOURCES.replace_part("daily_table", ChangedConnector(mistake))
    with connector, pytest.raises(AssertionError):
        check(**{name: parts[name] for name in signature(check).parameters})


@pytest.fixture
def outbox(request: pytest.FixtureRequest, daily: DailyWorld, tmp_path: Path) -> OutboxWorld:
    world: OutboxWorld = getattr(request, "param", OutboxWorld)(tmp_path / "outbox.db")  # of the same distribution
    return world


@pytest.fixture
def daily(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DailyWorld:
    site = tmp_path / "site"
    write_distribution((DISTRIBUTION_FOLDER / "pyproject.toml").read_text(), site)
    for folder in (DISTRIBUTION_FOLDER, site):
        monkeypatch.syspath_prepend(str(folder))
    return DailyWorld(tmp_path / "said.db")


def counting(source: Source, **parts: Any) -> hr.Pipeline:
    what, where = {"n": hr.count()}, hr.FixedWindows("1d")
    return hr.Pipeline("counting", source.event_time("at", bound="1h"), key="text", what=what, where=where, **parts)


def test_what_is_about_files_is_refused_of_others(daily: DailyWorld, tmp_path: Path) -> None:
    pipeline = counting(daily.source, executor="local")
    handle = hr.open((tmp_path / "root").as_uri(), create=True)[pipeline]
    daily.append_unreadable()
    handle.run()
    with pytest.raises(LandingAgainError, match=r"it reads daily_table .*said\.db/said, and no files"):
        handle.replay_rejected()
    plain_source = written_again(type(daily.source), is_watched=False)(**vars(daily.source))
    with pytest.raises(PipelineError, match=r"watches files, topics and sources .* and input source reads daily"):
        counting(plain_source, schedule=hr.on_files())
    assert watched_inputs(pipeline) == {}


def test_a_source_is_part_of_what_its_pipeline_means(daily: DailyWorld) -> None:
    pipeline = counting(daily.source)
    (given_input,) = pipeline_meaning(pipeline)["inputs"]
    assert (given_input["kind"], given_input["path"]) == ("daily_table", f"{daily.database}/said")
    (text, *_) = pipeline_sections(pipeline)
    assert text.lines[0] == f"daily_table {daily.database}/said"
    (files,) = pipeline_meaning(counting(hr.json("landing", {"text": str, "at": datetime})))["inputs"]
    assert "kind" not in files


def test_a_kind_that_nobody_has_is_named(daily: DailyWorld, tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class UnknownSource(type(daily.source)):  # type: ignore[misc]
        kind = "nowhere"

    pipeline = counting(UnknownSource("x", "y", {"text": str, "at": datetime}), executor="local")
    with pytest.raises(NotRegisteredError, match=r"no kind of source 'nowhere': it is one of files, .*daily_table"):
        hr.open((tmp_path / "root").as_uri(), create=True)[pipeline].run()


def test_unit_tests_write_json_for_what_is_not_files(daily: DailyWorld) -> None:
    result = run(
        counting(daily.source), [rows({"text": "a", "at": at("10:00")}, {"text": "a", "at": at("11:00")}), end()]
    )
    assert [pane.values for pane in result.panes] == [{"n": 2}]
