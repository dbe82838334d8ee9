"""Reading by the root alone: pipelines by name, snapshots by name or time, rows in every form."""

import random
import tempfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import GenericAlias
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.errors import FixConfigError, HeadraceError, IntegerOverflowError
from headrace.read.deployment import UnknownResultsError
from headrace.read.pipeline_reader import MissingRootError, PipelineReader
from headrace.read.snapshots.snapshot_refs import AtError, NoSnapshotError, UnknownBranchError
from headrace.read.views.conditions import QueryError
from headrace.read.views.lazy_view import LazyView
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.testing import Operation, disturb_stores
from tests.cli.deployments import Deployment, Row, hour, pane

LATE = {"user": "ann", "event_time": hour(1), "reason": "r", "input": "source", "file": "f", "raw": "{}"}
REJECTED_ROW = {"input": "source", "file": "f", "position": 1, "reason": "r", "raw": "{}"}


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """A deployment in a folder whose name DuckDB would take for a pattern."""
    folder = tmp_path / "a [1] *?%41 'é'"
    folder.mkdir()
    return Deployment(folder)


def results(deployment: Deployment) -> PipelineReader:
    return hr.open(deployment.root)["clicks"]


def clicks(view: LazyView) -> list[tuple[str, int]]:
    return [(row["user"], row["clicks"]) for row in view.to_arrow().to_pylist()]


def test_only_text_of_a_user_and_a_function_make_another_database(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database takes longer to make than a small view to read. One for such text opens files of the view alone."""
    deployment.commit(panes=[pane("ann", 1, 3)])
    reader = results(deployment)
    assert reader.rejected(at="main").to_arrow().num_rows == 0
    assert clicks(reader.current(at="main")) == [("ann", 3)]  # after which the process has those of its own
    connect_calls: list[object] = []
    connect = duckdb.connect
    monkeypatch.setattr(
        duckdb, "connect", lambda *arguments, **more: connect_calls.append(arguments) or connect(*arguments, **more)
    )
    assert reader.late(at="main", where="event_time > '2026-01-01'").to_arrow().num_rows == 0
    assert reader.snapshots(at="main").to_arrow().num_rows == 1
    assert clicks(reader.current(at="main")) == [("ann", 3)]
    assert connect_calls == []
    assert reader.late(at="main", where=col("user") == "ann").to_arrow().num_rows == 0  # an expression is a function
    assert clicks(reader.current(at="main", where="clicks > 2")) == [("ann", 3)]
    assert len([*reader.current(at="main").batches(order="clicks")]) == 1
    assert len(connect_calls) == 3
    assert clicks(reader.current(at="main")) == [("ann", 3)]
    assert len(connect_calls) == 3


def test_a_root_lists_its_pipelines(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 2)])
    deployment.store.write("landing/clicks/a.jsonl", b"{}")
    other = Catalog(deployment.store, "zebra")
    other.claim("main", "test")
    root = hr.open(deployment.root)
    assert list(root) == ["clicks", "zebra"]
    assert len(root) == 2
    assert "clicks" in root
    assert [each in root for each in ("landing", "", "a/b", 7)] == [False] * 4
    assert "clicks, zebra" in repr(root)


def test_an_unknown_pipeline_is_a_key_error_that_names_those_there_are(deployment: Deployment) -> None:
    deployment.commit(panes=[])
    with pytest.raises(
        UnknownResultsError, match=r"^no pipeline 'delays' has run under file:.*; there are clicks"
    ) as it:
        hr.open(deployment.root)["delays"]
    assert isinstance(it.value, KeyError)
    assert isinstance(it.value, HeadraceError)
    assert it.value.code == "config.unknown_pipeline"
    assert hr.open(deployment.root).get("delays") is None


def test_the_name_of_an_output_is_answered_with_how_it_is_opened(deployment: Deployment) -> None:
    deployment.commit(panes=[])
    with pytest.raises(UnknownResultsError, match=r"write hr\.open\(\.\.\.\)\['clicks'\]\['hourly'\]$"):
        hr.open(deployment.root)["clicks.hourly"]


@pytest.mark.parametrize("name", [None, 3, ("clicks", "hourly"), Path("clicks.hourly")])
def test_what_is_no_text_is_no_pipeline_either(deployment: Deployment, name: Any) -> None:
    deployment.commit(panes=[])
    with pytest.raises(UnknownResultsError, match="no pipeline"):
        hr.open(deployment.root)[name]
    assert hr.open(deployment.root).get(name) is None


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingRootError, match="does not exist"):
        hr.open((tmp_path / "nowhere").as_uri())
    with pytest.raises(FixConfigError, match="use file:///folder"):
        hr.open(str(tmp_path))


def test_a_pipeline_without_snapshots_says_so(deployment: Deployment) -> None:
    deployment.catalog.claim("main", "test")
    with pytest.raises(NoSnapshotError, match="clicks has no snapshot yet"):
        results(deployment).current()
    assert results(deployment).snapshots().to_arrow().num_rows == 0


@pytest.mark.slow
def test_each_kind_of_at(deployment: Deployment) -> None:
    first = deployment.commit(panes=[pane("ann", 1, 1)])
    deployment.catalog.publish(first, None)
    second = deployment.commit(panes=[pane("ann", 1, 2, index=1)])
    deployment.catalog.tag("good", second)
    third = deployment.commit(panes=[pane("ann", 1, 3, index=2)])
    deployment.catalog.fork("trial", second)
    delays = results(deployment)
    assert clicks(delays.current()) == [("ann", 1)]
    assert clicks(delays.current(at="published")) == [("ann", 1)]
    assert clicks(delays.current(at="main")) == [("ann", 3)]
    for second_by in (second, "good", "tags/good", "trial"):
        view = delays.current(at=second_by)
        assert clicks(view) == [("ann", 2)]
        assert view.manifest is not None
        assert view.manifest.snapshot_id == second
    assert clicks(delays.current(at=third)) == [("ann", 3)]
    assert [row["clicks"] for row in delays.panes(at=second).to_arrow().to_pylist()] == [1, 2]
    with pytest.raises(UnknownBranchError, match="no branch, tag or snapshot 'mian'"):
        delays.current(at="mian")


@pytest.mark.slow
def test_a_time_is_what_was_published_then(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    clock = iter(datetime(2026, 3, 1, 12, minute, tzinfo=UTC) for minute in range(60))
    times: list[datetime] = []

    def now() -> datetime:
        times.append(next(clock))
        return times[-1]

    deployment.catalog = Catalog(deployment.store, "clicks", now=now)
    published_snapshot, when = None, []
    for n in range(1, 8):
        snapshot = deployment.commit(panes=[pane("ann", 1, n, index=n - 1)])
        if n % 2:
            deployment.catalog.publish(snapshot, published_snapshot)
            published_snapshot = snapshot
            when.append((times[-1], n))
    delays = results(deployment)
    for time, n in when:
        assert clicks(delays.current(at=time)) == [("ann", n)]
        assert clicks(delays.current(at=time.isoformat())) == [("ann", n)]
        assert clicks(delays.current(at=time + timedelta(seconds=59))) == [("ann", n)]
    assert clicks(delays.current(at="2031-01-01T00:00:00Z")) == [("ann", 7)]
    assert clicks(delays.current(at=f"{when[1][0]:%Y-%m-%dT%H:%M}+00:00")) == [("ann", 3)]
    with pytest.raises(NoSnapshotError, match="clicks had published nothing by 2026-03-01"):
        delays.current(at=when[0][0] - timedelta(microseconds=1))


@pytest.mark.slow
@pytest.mark.parametrize("fast_entry", [4, 8, 14])
def test_an_entry_of_a_clock_that_is_ahead_hides_no_later_one(tmp_path: Path, fast_entry: int) -> None:
    """Any one of some entries was written on a machine whose clock is a year ahead."""
    deployment = Deployment(tmp_path)
    minutes = iter(range(60))

    def now() -> datetime:
        minute = next(minutes)
        return datetime(2026, 3, 1, 12, minute, tzinfo=UTC) + timedelta(days=365 if minute == fast_entry else 0)

    deployment.catalog = Catalog(deployment.store, "clicks", now=now)
    published_id: str | None = None
    for n in range(1, 8):
        snapshot = deployment.commit(panes=[pane("ann", 1, n, index=n - 1)])
        deployment.catalog.publish(snapshot, published_id)
        published_id = snapshot
    entries = [*deployment.catalog.entries()][::-1]
    for entry in entries:
        snapshot_seen = entry.refs.get("published")
        if entry.number != fast_entry and snapshot_seen is not None:
            manifest = results(deployment).current(at=entry.at).manifest
            assert manifest is not None
            assert manifest.snapshot_id == snapshot_seen


@pytest.mark.slow
def test_a_last_entry_of_a_clock_that_was_reset_is_not_what_readers_saw_before(tmp_path: Path) -> None:
    """The log's newest entry was written on a machine whose clock stands in 1970."""
    deployment = Deployment(tmp_path)
    minutes = iter(range(60))
    clock_start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    deployment.catalog = Catalog(deployment.store, "clicks", now=lambda: clock_start + timedelta(minutes=next(minutes)))
    published_id: str | None = None
    for n in range(1, 8):
        snapshot = deployment.commit(panes=[pane("ann", 1, n, index=n - 1)])
        deployment.catalog.publish(snapshot, published_id)
        published_id = snapshot
    entries = [*deployment.catalog.entries()][::-1]
    deployment.catalog = Catalog(deployment.store, "clicks", now=lambda: datetime(1970, 1, 1, tzinfo=UTC))
    snapshot = deployment.commit(panes=[pane("ann", 1, 8, index=7)])
    deployment.catalog.publish(snapshot, published_id)
    for entry in entries[:-2]:
        snapshot_seen = entry.refs.get("published")
        if snapshot_seen is None:
            continue
        manifest = results(deployment).current(at=entry.at).manifest
        assert manifest is not None
        assert manifest.snapshot_id == snapshot_seen
    with pytest.raises(NoSnapshotError, match="had published nothing by 2026-03-01"):
        results(deployment).current(at=clock_start - timedelta(minutes=1))


@pytest.mark.parametrize("ref", [datetime(2026, 3, 1), "2026-03-01T00:00:00", "2026-03-01", "2026-03-99T00:00Z", 7, ""])
def test_what_says_no_snapshot_is_an_error(deployment: Deployment, ref: Any) -> None:
    deployment.commit(panes=[])
    with pytest.raises(AtError, match="2026-11-21T10:00:00Z"):
        results(deployment).current(at=ref)


def test_a_view_stays_at_its_snapshot(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 1)])
    view = results(deployment).current(at="main")
    deployment.commit(panes=[pane("ann", 1, 2, index=1)])
    assert clicks(view) == [("ann", 1)]


def test_nothing_but_control_objects_is_read_until_rows_are_asked_for(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 1)])
    read: list[str] = []

    def note(operation: Operation) -> None:
        if operation.kind == "get":
            read.append(operation.path)

    with disturb_stores(note):
        view = results(deployment).current(at="main", where=col("clicks") > 0, columns=["clicks"])
        panes = results(deployment).panes(at="main")
        assert view.schema.names == ["clicks"]
        assert len(view.files()) == 1
        assert panes.count() == 1
        assert "current of clicks at" in repr(view)
        assert "folded from 1 panes" in repr(view)
        assert "1 rows" in repr(panes)
        assert read, "a manifest"
        assert not [path for path in read if path.endswith(".parquet")]
        view.to_arrow()
    assert [path for path in read if path.endswith(".parquet")]


@pytest.mark.slow
def test_every_form_gives_the_same_rows(deployment: Deployment) -> None:
    deployment.commit(panes=[pane(user, n, n) for user in ("ann", "bob") for n in range(4)])
    deployment.commit(panes=[pane("ann", 2, 2, retraction=True)])
    view = results(deployment).current(at="main", where="clicks > 0", columns=["user", "clicks", "window_start"])
    expected: list[dict[str, Any]] = [
        {"user": user, "clicks": n, "window_start": hour(n)}
        for n in range(1, 4)
        for user in ("ann", "bob")
        if (user, n) != ("ann", 2)
    ]
    assert view.to_arrow().to_pylist() == expected
    assert view.to_arrow().schema == view.schema
    assert view.count() == len(expected)
    assert [row for batch in view.batches() for row in batch.to_pylist()] == expected
    zoneless = [{**row, "window_start": row["window_start"].replace(tzinfo=None)} for row in expected]
    assert view.first(2) == (zoneless[:2], len(expected))
    assert view.first(9, order="timezone('Asia/Tokyo', window_start) desc, \"user\"")[0][-2:] == zoneless[:2]
    assert isinstance(view.to_pandas(), pd.DataFrame)
    assert view.to_pandas().to_dict("records") == expected
    pl = pytest.importorskip("polars")
    assert isinstance(view.to_polars(), pl.DataFrame)
    assert view.to_polars().to_dicts() == expected
    relation = view.to_duckdb()
    assert relation.order('window_start, "user"').to_arrow_table().cast(view.schema).to_pylist() == expected
    assert relation.aggregate("count(*)").fetchall() == [(len(expected),)]


@pytest.mark.parametrize("name", ["span", "spans", "by_name", "times", "time"])
def test_pandas_gets_no_time_in_an_object_that_python_does_not_have(tmp_path: Path, name: str) -> None:
    moment = pa.timestamp("us", "UTC")
    span = pa.struct([("begin", moment), ("all", pa.list_(moment))])
    kinds = {
        "span": (span, {"begin": datetime, "all": list[datetime]}),
        "spans": (pa.list_(span), GenericAlias(list, ({"begin": datetime, "all": list[datetime]},))),
        "by_name": (pa.map_(pa.string(), moment), dict[str, datetime]),
        "times": (pa.list_(moment), list[datetime]),
        "time": (moment, datetime),
    }
    stored_type, declared_type = kinds[name]

    def with_time(instant: int) -> Any:
        own_span = {"begin": None, "all": [0, instant]}
        values = {"span": own_span, "spans": [None, own_span], "by_name": [("a", instant)], "times": [instant]}
        return values.get(name, instant)

    def frame_of(instant: int) -> pd.DataFrame:
        folder = tmp_path / str(instant)
        (folder / "landing").mkdir(parents=True)
        columns = {name: pa.array([with_time(instant), None], stored_type), "at": pa.array([0, 1], moment)}
        pq.write_table(pa.table(columns), folder / "landing/1.parquet")
        source = hr.parquet("landing", {name: declared_type, "at": datetime}).event_time("at", bound="0s")
        handle = hr.open(folder.as_uri(), create=True)[hr.Pipeline("spans", source, rows=[name], executor="local")]
        handle.run(publish=False)
        return handle.current(at="main", columns=[name]).to_pandas()

    assert len(frame_of(253_402_300_799_999_999)) == 2
    if name in ("times", "time"):  # which pandas has as numbers
        assert len(frame_of(253_402_300_800_000_000)) == 2
    else:
        with pytest.raises(QueryError, match=f"column {name} has a time outside of the years 1 to 9999"):
            frame_of(253_402_300_800_000_000)


def test_a_frame_of_pandas_has_ints_that_floats_do_not_hold(tmp_path: Path) -> None:
    schema = {"id": int, "n": int, "small": int, "items": list[int], "marks": {"a": int}, "at": datetime}
    source = hr.json("landing", schema).event_time("at", bound="0s")
    pipeline = hr.Pipeline("numbers", source, rows=["id", "n", "small", "items", "marks"], executor="local")
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/1.json").write_text(
        '{"id": 1, "n": 9007199254740993, "small": 5, "items": [9007199254740993, null], "marks": {"a": null},'
        ' "at": "2026-05-01"}\n{"id": 2, "marks": {"a": -9007199254740993}, "at": "2026-05-01"}\n'
    )
    results = hr.open(tmp_path.as_uri(), create=True)[pipeline]
    results.run()
    frame = results.current().to_pandas().set_index("id")
    assert int(frame["n"][1]) == 9007199254740993
    assert frame["n"].isna().to_list() == [False, True]
    assert list(frame["items"][1]) == [9007199254740993, None]
    assert frame["marks"].to_list() == [{"a": None}, {"a": -9007199254740993}]
    assert [str(frame[name].dtype) for name in ("n", "small", "epoch")] == ["Int64", "float64", "int64"]


def test_a_relation_lives_on_a_connection_of_ones_own(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 1), pane("bob", 1, 5)])
    view = results(deployment).current(at="main", where=col("user") == "bob")
    with duckdb.connect() as connection:
        connection.execute("create table names as select 'bob' as who, 'Robert' as name")
        found_duckdb = view.to_duckdb(connection)
        connection.register("found", found_duckdb.to_arrow_table())
        relation = connection.sql('select name, clicks from found join names on found."user" = who')
        assert relation.fetchall() == [("Robert", 5)]


@pytest.mark.slow
@pytest.mark.parametrize("root", ["file", "memory"])
def test_relations_leave_nothing_more_however_many_are_asked_for(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment(tmp_path, f"memory://{uuid.uuid4().hex}" if root == "memory" else None)
    deployment.commit(panes=[pane("ann", 1, 1), pane("bob", 1, 5)])
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with duckdb.connect() as connection:

        def number_of_functions() -> int:
            ((number,),) = connection.sql(
                "select count(*) from duckdb_functions() where function_name like 'headrace%'"
            ).fetchall()
            return int(number)

        def ask() -> tuple[list[Any], int, int]:
            view = results(deployment).current(at="main", where=col("user") == "bob", columns=["clicks"])
            found_duckdb = view.to_duckdb(connection)
            kept_paths = [path for path in Path(tempfile.gettempdir()).rglob("*") if path.is_file()]
            return [found_duckdb, view.to_duckdb().fetchall()], number_of_functions(), len(kept_paths)

        number_before = number_of_functions()
        answers = [ask() for _ in range(5)]
        assert [row for pair, _, _ in answers for row in pair[0].fetchall() + pair[1]] == [(5,)] * 10
        assert {functions for _, functions, _ in answers} == {number_before + 1}
        assert len({files for _, _, files in answers}) == 1
        assert len([*temporary.iterdir()]) <= 1


@pytest.mark.slow
def test_expressions_keep_rows_for_which_they_are_true_as_pipelines_do(deployment: Deployment) -> None:
    deployment.commit(panes=[pane(f"u{n}", 1, n, amount=None if n == 3 else n - 2) for n in range(6)])
    view = results(deployment).current

    def kept_numbers(where: Any) -> list[int]:
        return sorted(n for _, n in clicks(view(at="main", where=where)))

    assert kept_numbers(col("amount") > 0) == [4, 5]
    assert kept_numbers(~(col("amount") > 0)) == [0, 1, 2]
    assert kept_numbers(col("amount").is_null()) == [3]
    assert kept_numbers(col("clicks") % 2 == 1) == [1, 3, 5]
    assert kept_numbers(col("amount") % 3 == 1) == [0]
    assert kept_numbers(col("window_start") < hour(2)) == [0, 1, 2, 3, 4, 5]
    assert kept_numbers((col("amount") > 0) & (col("clicks") < 5)) == [4]
    assert kept_numbers((col("amount") < 0) | (col("user") == "u4") & (col("clicks") == 4)) == [0, 1, 4]
    assert kept_numbers(hr.lit(True)) == [0, 1, 2, 3, 4, 5]
    assert kept_numbers(hr.lit(False)) == []
    with pytest.raises(IntegerOverflowError):
        view(at="main", where=col("clicks") * (2**62) > 5).to_arrow()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (col("clikcs") > 1, "there is no column 'clikcs'"),
        (col("clicks") + 1, "gives int, not a condition"),
        (col("user") > 1, "different types"),
        ("", "is not a condition"),
        (7, "is not a condition"),
    ],
)
def test_conditions_that_do_not_fit_are_errors_before_anything_is_read(
    deployment: Deployment, where: Any, message: str
) -> None:
    deployment.commit(panes=[pane("ann", 1, 1)])
    with pytest.raises(QueryError, match=message):
        results(deployment).current(at="main", where=where)


@pytest.mark.parametrize("columns", ["user", [], ["clikcs"], ["user", "user"]])
def test_columns_that_do_not_fit_are_errors(deployment: Deployment, columns: Any) -> None:
    deployment.commit(panes=[pane("ann", 1, 1)])
    with pytest.raises(QueryError):
        results(deployment).current(at="main", columns=columns)


@pytest.mark.slow
def test_late_rejected_and_snapshots_without_the_pipelines_file(deployment: Deployment) -> None:
    first = deployment.commit(late=[LATE], rejected=[REJECTED_ROW], panes=[])
    second = deployment.commit(panes=[])
    deployment.catalog.publish(first, None)
    deployment.catalog.tag("kept", first)
    delays = results(deployment)
    assert delays.late().to_arrow()["event_time"].to_pylist() == [hour(1)]
    assert delays.late(columns=["reason"], where=col("user") == "bob").count() == 0
    assert delays.rejected(where="position = 1", columns=["file"]).to_arrow().to_pylist() == [{"file": "f"}]
    assert delays.rejected().schema.field("raw_bytes").type == pa.binary()
    rows = delays.snapshots(at="main", columns=["snapshot", "epoch", "parent", "refs", "watermark"]).to_arrow()
    assert rows.to_pylist() == [
        {"snapshot": first, "epoch": 0, "parent": None, "refs": ["published", "kept"], "watermark": hour(0) + MINUTES},
        {"snapshot": second, "epoch": 1, "parent": first, "refs": ["main"], "watermark": hour(1) + MINUTES},
    ]
    assert delays.snapshots(at="main", where="epoch = 1").count() == 1
    assert delays.snapshots().count() == 1


MINUTES = timedelta(minutes=50)


@pytest.mark.slow
def test_a_published_branch_without_snapshots_has_the_columns_of_main(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 1)])
    for name in ("current", "panes", "late", "rejected"):
        view = getattr(results(deployment), name)()
        assert view.to_arrow().num_rows == view.count() == 0
        assert view.schema == getattr(results(deployment), name)(at="main").schema
        assert view.files() == []
        assert view.to_duckdb().fetchall() == []
        assert "no snapshot yet" in repr(view)


@pytest.mark.parametrize("damage", ["cut", "changed", "deleted"])
def test_a_damaged_file_is_named_by_every_way_of_reading(deployment: Deployment, damage: str) -> None:
    deployment.commit(panes=[pane("ann", 1, 2)])
    view = results(deployment).current(at="main")
    path = next(info.path for info in deployment.store.list("clicks/data/"))
    data = deployment.store.read(path)
    if damage == "deleted":
        deployment.store.delete(path)
    else:
        deployment.store.write(path, data[:-9] if damage == "cut" else data.replace(b"ann", b"Ann"))
    for way in (view.to_arrow, view.count, view.to_duckdb, lambda: next(view.batches())):
        with pytest.raises(BrokenObjectError, match=r"panes-0\.parquet .*headrace rollback"):
            way()


def live(rows: list[Row]) -> Iterator[tuple[Any, ...]]:
    """``current`` of ``rows`` (each with its epoch), in plain Python."""
    newest: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=lambda row: (row["epoch"], row["sequence"])):
        newest[row["user"], row["window_start"], row["window_end"]] = row
    for row in newest.values():
        if not row["is_retraction"]:
            yield row["user"], row["window_start"], row["window_end"], row["clicks"], row["epoch"]


@pytest.mark.parametrize("seed", range(3))
def test_current_is_what_panes_fold_to_with_null_keys_and_windows(deployment: Deployment, seed: int) -> None:
    chosen_generator = random.Random(seed)
    written_rows: list[Row] = []
    for epoch in range(6):
        rows = []
        for sequence in range(chosen_generator.randrange(40)):
            user: Any = chosen_generator.choice([None, "", "ann", "bob", "é", "o'x"])
            row = pane(user, chosen_generator.randrange(3), chosen_generator.randrange(9), sequence=sequence)
            row["is_retraction"] = chosen_generator.random() < 0.4
            if chosen_generator.random() < 0.2:  # the global window
                row |= {"window_start": None, "window_end": None}
            rows.append(row)
        deployment.commit(panes=rows)
        written_rows += [{**row, "epoch": epoch} for row in rows]
    view = results(deployment).current(at="main")
    found_rows = [
        (row["user"], row["window_start"], row["window_end"], row["clicks"], row["epoch"])
        for row in view.to_arrow().to_pylist()
    ]
    assert sorted(found_rows, key=repr) == sorted(live(written_rows), key=repr)
    assert view.count() == len(found_rows)
    assert len(results(deployment).panes(at="main").to_arrow()) == len(written_rows)
