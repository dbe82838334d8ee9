"""Reading without Spark: ``current`` folds to the newest pane, and only files that the manifest names are read."""

import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from headrace import Pipeline, col
from headrace import count as count_
from headrace.read.definition_plan import changed_since
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.snapshots.snapshot_refs import UnknownBranchError
from headrace.read.views.columns import View
from headrace.read.views.conditions import QueryError
from headrace.read.views.lazy_view import LazyView
from headrace_snapshots.format.codec import BrokenObjectError
from tests.cli.deployments import Deployment, hour, pane
from tests.reading import read, schema

_names = count()


@pytest.fixture(params=[pytest.param("file", marks=pytest.mark.slow), "memory"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    """A deployment in a folder whose name needs quoting, and one in a store whose files have no path."""
    if request.param == "memory":
        return Deployment(tmp_path, f"memory://reading-{next(_names)}")
    folder = tmp_path / "a [1] b%41 é"
    folder.mkdir()
    return Deployment(folder)


def files(deployment: Deployment, view: View | str, branch: str = "published") -> list[str]:
    return PipelineReader(deployment.catalog, deployment.pipeline).read(view, at=branch).files()


def current(deployment: Deployment, branch: str = "main") -> list[tuple[str, int, int]]:
    rows = read(deployment.pipeline, deployment.root, "current", branch).to_pylist()
    return [(row["user"], row["window_start"].hour, row["clicks"]) for row in rows]


def test_current_is_the_newest_pane_of_each_key_and_window(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 2), pane("bob", 1, 5), pane("ann", 0, 1)])
    deployment.commit(panes=[pane("ann", 1, 2, retraction=True), pane("ann", 1, 3, index=1)])
    assert current(deployment) == [("ann", 0, 1), ("ann", 1, 3), ("bob", 1, 5)]


def test_a_window_whose_newest_record_is_a_retraction_has_no_row(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 2), pane("ann", 2, 4)])
    deployment.commit(panes=[pane("ann", 1, 2, retraction=True, sequence=7)])
    assert current(deployment) == [("ann", 2, 4)]


def test_within_an_epoch_the_sequence_decides(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, n, index=n, sequence=n) for n in (2, 4, 0, 3, 1)])
    assert current(deployment) == [("ann", 1, 4)]


def test_panes_come_in_the_order_in_which_they_were_emitted(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("bob", 1, 5), pane("ann", 1, 2)])
    deployment.commit(panes=[pane("ann", 1, 3, index=1), pane("ann", 1, 2, retraction=True)])
    rows = read(deployment.pipeline, deployment.root, "panes", "main").to_pylist()
    assert [(r["epoch"], r["user"], r["clicks"], r["is_retraction"]) for r in rows] == [
        (0, "ann", 2, False),
        (0, "bob", 5, False),
        (1, "ann", 2, True),
        (1, "ann", 3, False),
    ]


def test_files_that_no_manifest_names_change_nothing(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 2)])
    rows_before = read(deployment.pipeline, deployment.root, "panes", "main")
    prefix = deployment.catalog.data_prefix(1, "killed")
    deployment.write(f"{prefix}/panes-0.parquet", "panes", [pane("ann", 1, 999)], 1)
    deployment.store.write(f"{prefix}/panes-1.parquet", b"half a file")
    assert read(deployment.pipeline, deployment.root, "panes", "main").equals(rows_before)
    assert len(files(deployment, "current", "main")) == 1


def test_readers_see_published_unless_they_ask_for_main(deployment: Deployment) -> None:
    first = deployment.commit(panes=[pane("ann", 1, 2)])
    assert current(deployment, "published") == []
    deployment.catalog.publish(first, None)
    deployment.commit(panes=[pane("ann", 1, 3, index=1)])
    assert current(deployment, "published") == [("ann", 1, 2)]
    assert current(deployment, "main") == [("ann", 1, 3)]


@pytest.mark.parametrize("name", list(View))
def test_a_branch_without_snapshots_gives_an_empty_table_with_the_right_columns(
    deployment: Deployment, name: View
) -> None:
    rows = read(deployment.pipeline, deployment.root, name, "published")
    assert rows.num_rows == 0
    assert rows.schema == schema(deployment.pipeline, name)
    assert files(deployment, name, "published") == []


def test_late_and_rejected_rows_are_read_from_their_logs(deployment: Deployment) -> None:
    late = {
        "user": "ann",
        "event_time": hour(1),
        "window_start": hour(1),
        "window_end": hour(2),
        "input": "source",
        "file": "f",
        "raw": "{}",
    }
    deployment.commit(late=[{**late, "reason": "window expired"}])
    deployment.commit(
        rejected=[
            {"input": "source", "file": "f", "position": n, "reason": "key is null: user", "raw": "{}"} for n in (2, 1)
        ]
    )
    assert read(deployment.pipeline, deployment.root, "late", "main")["event_time"].to_pylist() == [hour(1)]
    assert read(deployment.pipeline, deployment.root, "rejected", "main")["position"].to_pylist() == [1, 2]


@pytest.mark.slow
def test_a_log_longer_than_a_manifest_holds_is_read_whole(deployment: Deployment) -> None:
    for number in range(70):
        deployment.commit(panes=[pane("ann", number % 20, number, index=number)])
    rows = read(deployment.pipeline, deployment.root, "panes", "main")
    assert rows["clicks"].to_pylist() == list(range(70))
    assert len(current(deployment)) == 20


def test_unknown_branches_and_views_are_clear_errors(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 2)])
    with pytest.raises(UnknownBranchError, match=r"no branch, tag or snapshot 'mian'; its branches and tags are main,"):
        read(deployment.pipeline, deployment.root, "current", "mian")
    with pytest.raises(QueryError, match="there are current, panes, late, rejected"):
        PipelineReader(deployment.catalog).read("states", at="main")


@pytest.mark.parametrize("damage", ["cut", "changed", "deleted"])
def test_a_damaged_file_is_named(deployment: Deployment, damage: str) -> None:
    deployment.commit(panes=[pane("ann", 1, 2)])
    path = next(info.path for info in deployment.store.list("clicks/data/"))
    data = deployment.store.read(path)
    if damage == "deleted":
        deployment.store.delete(path)
    else:
        deployment.store.write(path, data[:-9] if damage == "cut" else data.replace(b"ann", b"Ann"))
    with pytest.raises(BrokenObjectError, match=r"panes-0\.parquet"):
        read(deployment.pipeline, deployment.root, "panes", "main")


def test_a_damaged_file_is_named_with_the_ways_out(deployment: Deployment) -> None:
    first = deployment.commit(panes=[pane("ann", 0, 1)])
    second = deployment.commit(panes=[pane("ann", 1, 2)])
    third = deployment.commit(panes=[pane("ann", 2, 3)])
    deployment.catalog.publish(first, None)
    deployment.catalog.publish(second, first)
    deployment.catalog.tag("kept", third)
    path = f"{deployment.catalog.data_prefix(1, second)}/panes-0.parquet"
    deployment.store.write(path, deployment.store.read(path).replace(b"ann", b"Ann"))
    text_back = f"`headrace rollback clicks --to {first}` goes back to before that"
    for branch in ("main", "published"):
        with pytest.raises(BrokenObjectError, match=path) as error:
            read(deployment.pipeline, deployment.root, "current", branch)
        assert f"Epoch 1 wrote it: {text_back}, and readers with it" in str(error.value)
        assert "run `headrace backfill clicks` (or the backfill DAG)" in str(error.value)
    with pytest.raises(BrokenObjectError, match=path) as error:
        read(deployment.pipeline, deployment.root, "current", "tags/kept")
    assert "rollback" not in str(error.value)  # a tag stays where it is
    deployment.catalog.rollback("main", first, "as the message says")
    assert current(deployment, "published") == current(deployment) == [("ann", 0, 1)]


def test_a_damaged_file_of_the_first_epoch_leaves_the_beginning(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 0, 1)])
    (path,) = [info.path for info in deployment.store.list("clicks/data/")]
    deployment.store.delete(path)
    with pytest.raises(
        BrokenObjectError, match="`headrace rollback clicks --to beginning` goes back to before that, and the"
    ):
        read(deployment.pipeline, deployment.root, "current", "main")


def test_rows_are_filtered_ordered_and_limited(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", n, n) for n in range(6)])
    view = PipelineReader(deployment.catalog).read(at="main", where="clicks > 1")
    first, number = view.first(2, order="clicks desc")
    assert ([row["clicks"] for row in first], number) == ([5, 4], 4)
    assert [row for batch in view.batches(limit=3) for row in batch["clicks"].to_pylist()] == [2, 3, 4]


@pytest.mark.parametrize(
    "where",
    ["clikcs > 1", "clicks >", "1; drop table rows", "true) union (select 1", "exists (from read_text('/etc/hosts'))"],
)
def test_a_condition_that_does_not_fit_is_a_clear_error(deployment: Deployment, where: str) -> None:
    deployment.commit(panes=[pane("ann", 1, 2)])
    with pytest.raises(QueryError, match="the columns are user, clicks, amount, window_start"):
        PipelineReader(deployment.catalog).read(at="main", where=where)


def test_an_order_or_a_value_that_does_not_fit_is_a_clear_error(deployment: Deployment) -> None:
    deployment.commit(panes=[pane("ann", 1, 2)])
    view = PipelineReader(deployment.catalog).read(at="main", where="user::int > 1")
    for method in (view.to_arrow, view.count):
        with pytest.raises(QueryError, match="the columns are user, clicks"):
            method()
    with pytest.raises(QueryError, match="clikcs"):
        view.first(1, order="clikcs desc")


WORDS = """
from datetime import datetime

import headrace as hr
from headrace import col

named = dict.fromkeys(("at", "end", "order", "case", "not"), int)
clicks = hr.Pipeline(
    "clicks",
    hr.json("landing/clicks", named | {"time": datetime}).event_time("time", bound="10m"),
    key={"at": col("at"), "end": col("end"), "order": col("order")},
    what={"case": hr.count(), "not": col("not").sum()},
    where=hr.FixedWindows("1h"),
)
"""


@pytest.fixture
def words(tmp_path: Path) -> LazyView:
    """A view whose columns are called as words of SQL are."""
    return _words(tmp_path)


def _words(tmp_path: Path, where: str | None = None) -> LazyView:
    deployment = Deployment(tmp_path, f"memory://words-{next(_names)}", file_text=WORDS)
    rows = [pane("", n, 1) | {"at": n, "end": -n, "order": n % 2, "case": n, "not": 0} for n in range(4)]
    deployment.commit(panes=[{name: value for name, value in row.items() if name != "user"} for row in rows])
    return PipelineReader(deployment.catalog).current(at="main", where=where)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("at > 1", [2, 3]),
        ("AT > 1", [2, 3]),
        ('"at" > 1 -- at > 2', [2, 3]),
        ("end < -1 and at<3", [2]),
        ("\"window_start\" at time zone 'UTC' > '2026-03-01 01:30:00' and at != 3", [2]),
        ("case when at > 1 then order else 7 end = 0", [2]),
        ("case > 2 or not at > 0", [0, 3]),
        ("not > -1 and order = 1", [1, 3]),
        ("'é' > '' and end = -1 /* at */", [1]),
    ],
)
def test_columns_may_be_called_as_words_of_sql_are(tmp_path: Path, where: str, expected: list[int]) -> None:
    assert _words(tmp_path, where).to_arrow()["at"].to_pylist() == expected


@pytest.mark.parametrize("order", ["at desc", "order, end", "case when at = 3 then 0 else 1 end, end"])
def test_an_order_may_name_columns_that_are_words_of_sql(words: LazyView, order: str) -> None:
    quoted_order = re.sub(r"\b(at|order)\b|(?<=, )end\b", r'"\g<0>"', order)
    assert words.first(9, order=order) == words.first(9, order=quoted_order)
    (batch,) = words.batches(order=order)
    assert batch["at"].to_pylist() == [row["at"] for row in words.first(9, order=quoted_order)[0]]


@pytest.mark.parametrize(
    "order",
    [
        "at limit 0 --",
        "at limit 1",
        "at; drop table view",
        "at) --",
        "at, ",
        "1 union select 2",
        "at\0",
        "at\udc80",
        "--",
    ],
)
def test_an_order_that_is_more_than_one_is_refused(words: LazyView, order: str) -> None:
    for read_it in (lambda: words.first(3, order=order), lambda: [*words.batches(order=order)]):
        with pytest.raises(QueryError, match="order="):
            read_it()


@pytest.mark.parametrize(
    "where",
    ["at > 1 limit 1", "at > 1 order by at", "at > 1 group by all", "true union all from view", "true using sample 1",
     "at > 1; select 1", "at > 1) or (true", "at in (select 1", "--", "at = '\udc80'"],
)  # fmt: skip
def test_a_condition_that_is_more_than_one_is_refused(tmp_path: Path, where: str) -> None:
    with pytest.raises(QueryError, match="where="):
        _words(tmp_path, where)


def test_files_of_an_object_store_are_uris(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "memory://uris")
    deployment.commit(panes=[pane("ann", 1, 2)])
    (uri,) = files(deployment, "panes", "main")
    assert uri.startswith("memory://uris/clicks/data/00000000-")
    assert uri.endswith("/panes-0.parquet")


CHANGES: dict[str, Callable[[Pipeline], dict[str, Any]]] = {
    "an aggregate more": lambda p: {"what": {**p.what, "most": col("amount").max()}},
    "an aggregate less": lambda p: {"what": {"clicks": count_()}},
    "another type": lambda p: {"what": {**p.what, "clicks": col("amount").mean()}},
    "another meaning": lambda p: {"what": {**p.what, "amount": col("amount").max()}},
    "a key more": lambda p: {"key": {**p.key, "amount_key": col("amount")}},
    "another key": lambda p: {"key": {"who": col("user")}},
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", View)
def test_a_snapshot_is_read_as_it_was_made_and_a_change_since_is_told(
    deployment: Deployment, change: str, name: View
) -> None:
    late = {"user": "ann", "event_time": hour(1), "reason": "r", "input": "source", "file": "f", "raw": "{}"}
    rejected_row = {"input": "source", "file": "f", "position": 1, "reason": "r", "raw": "{}"}
    deployment.commit(panes=[pane("bob", 1, 5), pane("ann", 1, 2)], late=[late], rejected=[rejected_row])
    deployment.commit(panes=[pane("ann", 1, 2, retraction=True), pane("ann", 1, 3, index=1)])
    changed_pipeline = replace(deployment.pipeline, **CHANGES[change](deployment.pipeline))
    rows_before = read(deployment.pipeline, deployment.root, name, "main")
    assert rows_before.num_rows
    assert read(changed_pipeline, deployment.root, name, "main").equals(rows_before)
    assert deployment.head is not None
    assert changed_since(deployment.pipeline, deployment.head) is None
    message = changed_since(changed_pipeline, deployment.head)
    assert message is not None
    assert f"clicks has changed since snapshot {deployment.head.snapshot_id} (epoch 1)" in message


def test_an_empty_view_has_the_columns_of_its_snapshot(deployment: Deployment) -> None:
    deployment.commit(panes=[])
    changed_pipeline = replace(deployment.pipeline, what={"most": col("amount").max()})
    rows = read(changed_pipeline, deployment.root, "current", "main")
    assert (rows.num_rows, rows.schema) == (0, schema(deployment.pipeline, "current"))


AFTER_A_READ = """
import os, sys
import headrace as hr

root, name = sys.argv[1:]
rows = hr.open(root)[name].current(at="main").to_arrow()
forked = os.fork()
if not forked:
    assert hr.open(root)[name].current(at="main").to_arrow() == rows
    sys.exit()  # and lets go of all that the parent had
_, status = os.waitpid(forked, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.slow
def test_a_process_that_was_forked_after_a_read_reads_and_ends_well(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path)
    deployment.commit(panes=[pane("ann", 1, 2)])
    command = [sys.executable, "-c", AFTER_A_READ, deployment.root, deployment.pipeline.name]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_readers_in_many_threads_see_the_same(deployment: Deployment) -> None:
    deployment.commit(panes=[pane(name, hour, 1) for name in ("ann", "bob") for hour in range(20)])
    expected = current(deployment)
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(lambda _: current(deployment), range(40))] == [expected] * 40
