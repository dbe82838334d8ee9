"""A record for each item of a list, run by run."""

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import col
from headrace.errors import LandingAgainError, MissingColumnError, PipelineError
from headrace.testing import rows as given_rows
from headrace.testing import run
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read

SCHEMA = {"id": int, "tags": list[str], "at": datetime}
LOCAL = ExecutorUnderTest("local")


def rows(source: hr.FileSource | None = None, **more: Any) -> hr.Pipeline:
    """A row of each item."""
    given_source = source or hr.json("landing", SCHEMA, explode="tags")
    return hr.Pipeline("made", given_source.event_time("at", bound="0s"), rows=["id", "tags"], executor="local", **more)


def item_counts(**more: Any) -> hr.Pipeline:
    """How often items come, by minute."""
    source = hr.json("landing", SCHEMA, explode="tags", **more.pop("reading", {}))
    parts: dict[str, Any] = {
        "key": "tags",
        "what": {"n": hr.count(), "ids": col("id").sum()},
        "where": hr.FixedWindows("1m"),
        "when": hr.on_update(),
        "how": hr.retracting(),
        **more,
    }
    return hr.Pipeline("made", source.event_time("at", bound="0s"), **parts)


def tagged_line(id: int, tags: Any, minute: int = 0, **more: Any) -> str:  # noqa: A002
    return json.dumps({"id": id, "tags": tags, "at": f"2026-05-01T00:{minute:02}:00Z", **more})


def land(root: Path, name: str, *lines: str) -> None:
    (root / "landing").mkdir(exist_ok=True)
    (root / f"landing/{name}.json").write_text("".join(f"{line}\n" for line in lines))


def current(pipeline: hr.Pipeline, root: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    table = read(pipeline, root.as_uri(), "current", "main")
    return Counter(tuple(row[name] for name in columns) for row in table.to_pylist())


def minute_of(root: Path, name: str) -> int:
    """The minute of a time that the newest snapshot says in its progress."""
    progress = hr.open(root.as_uri())["made"].show("main").progress
    return datetime.fromisoformat(progress[name]).minute


@on_both
def test_each_item_is_a_record_at_the_place_of_its_own(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(
        tmp_path,
        "1",
        tagged_line(1, ["a", "b", "a"]),
        "torn",
        tagged_line(2, []),
        tagged_line(3, None),
        tagged_line(4, ["a", 1]),
    )
    land(tmp_path, "2", tagged_line(5, ["c", None]), tagged_line(6, ["a", "b"], at=None), tagged_line(7, ["z"], 30))
    land(tmp_path, "3", tagged_line(8, ["b", "c"]))
    pipeline = item_counts()
    result = executor.run(pipeline, tmp_path.as_uri(), files_per_epoch=1, publish=False)
    assert result.counts["records"] == (3 + 1 + 1) + (2 + 2 + 1) + 2
    assert current(pipeline, tmp_path, "tags", "n", "ids") == Counter(
        {("a", 2, 2): 1, ("b", 1, 1): 1, ("c", 1, 5): 1, ("z", 1, 7): 1}
    )
    late = read(pipeline, tmp_path.as_uri(), "late", "main").to_pylist()
    assert [(row["tags"], row["raw"]) for row in late] == [(tag, tagged_line(8, ["b", "c"])) for tag in "bc"]
    dead = read(pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert [(Path(row["file"]).stem, row["position"], row["reason"]) for row in dead] == [
        ("1", 1, "not a JSON object"),
        ("1", 4, "column tags: not a list of string"),
        ("2", 0, "key is null: tags"),
        ("2", 1, "event time is null"),
        ("2", 1, "event time is null"),
    ]
    assert dead[2]["raw"] == tagged_line(5, ["c", None])


def test_an_item_that_is_null_is_a_row(tmp_path: Path) -> None:
    land(tmp_path, "1", tagged_line(1, ["a", None, "a"]), tagged_line(2, []), tagged_line(3, None))
    LOCAL.run(rows(), tmp_path.as_uri(), publish=False)
    assert current(rows(), tmp_path, "id", "tags") == Counter({(1, "a"): 2, (1, None): 1})


@on_both
def test_duplicates_are_told_of_items(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, "1", tagged_line(1, ["a", "b", "a"]), tagged_line(1, ["a"]), tagged_line(2, ["a"]))
    pipeline = rows(deduplicate=hr.Deduplicate(hr.concat(col("id").cast(str), col("tags")), "1h"))
    result = executor.run(pipeline, tmp_path.as_uri(), publish=False)
    assert current(pipeline, tmp_path, "id", "tags") == Counter({(1, "a"): 1, (1, "b"): 1, (2, "a"): 1})
    assert result.counts["duplicates"] == 2


def test_what_has_no_items_moves_no_watermark_and_is_known_to_be_read(tmp_path: Path) -> None:
    land(tmp_path, "1", tagged_line(1, ["a"], 1), tagged_line(2, [], 59))
    LOCAL.run(rows(), tmp_path.as_uri(), publish=False)
    assert (minute_of(tmp_path, "watermark"), minute_of(tmp_path, "newest_event_time_read")) == (1, 59)


def test_a_replay_and_a_batch_give_the_same(tmp_path: Path) -> None:
    for number in range(5):
        land(tmp_path, str(number), *[tagged_line(one, [f"{one % 3}"] * number, number) for one in range(4)])
    pipeline = item_counts()
    LOCAL.run(pipeline, tmp_path.as_uri(), files_per_epoch=2, publish=False)
    first_rows = current(pipeline, tmp_path, "tags", "window_start", "n", "ids")
    assert first_rows
    for branch, mode in (("again", "replay"), ("batch", "batch")):
        LOCAL.run(pipeline, tmp_path.as_uri(), mode=mode, branch=branch, publish=False)
        table = read(pipeline, tmp_path.as_uri(), "current", branch)
        names = ("tags", "window_start", "n", "ids")
        assert Counter(tuple(row[name] for name in names) for row in table.to_pylist()) == first_rows


def test_a_row_that_is_changed_goes_with_all_its_items(tmp_path: Path) -> None:
    moment = "2026-05-01T00:00:00Z"
    row_before, row_after = ({"id": 1, "tags": tags, "at": moment} for tags in (["a", "b"], ["b", "c", "c"]))
    land(tmp_path, "1", json.dumps({"op": "c", "before": None, "after": row_before}))
    land(tmp_path, "2", json.dumps({"op": "u", "before": row_before, "after": row_after}))
    source = hr.json("landing", SCHEMA, explode="tags", changelog=hr.debezium_envelope())
    LOCAL.run(rows(source), tmp_path.as_uri(), files_per_epoch=1, publish=False)
    assert current(rows(source), tmp_path, "tags") == Counter({("b",): 1, ("c",): 2})
    panes = read(rows(source), tmp_path.as_uri(), "panes", "main").to_pylist()
    assert sum(row["is_retraction"] for row in panes) == 2


def test_a_sign_is_of_all_items(tmp_path: Path) -> None:
    source = hr.json("landing", {**SCHEMA, "sign": int}, explode="tags", changelog=col("sign"))
    land(
        tmp_path,
        "1",
        tagged_line(1, ["a", "b"], sign=1),
        tagged_line(1, ["b"], sign=-1),
        tagged_line(1, ["x", "y"], sign=3),
    )
    LOCAL.run(rows(source), tmp_path.as_uri(), publish=False)
    assert current(rows(source), tmp_path, "tags") == Counter({("a",): 1})
    assert [row["position"] for row in read(rows(source), tmp_path.as_uri(), "rejected", "main").to_pylist()] == [2, 2]


def test_items_of_other_formats_and_types(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    moment = datetime(2026, 5, 1, tzinfo=UTC)
    table = pa.table({"id": [1, 2], "tags": [[moment, moment], []], "at": [moment, moment]})
    pq.write_table(table, tmp_path / "landing/1.parquet")
    times = hr.parquet("landing", {"id": int, "tags": list[datetime], "at": datetime}, explode="tags")
    LOCAL.run(rows(times), tmp_path.as_uri(), publish=False)
    assert current(rows(times), tmp_path, "id", "tags") == Counter({(1, moment): 2})


def test_event_times_can_be_items(tmp_path: Path) -> None:
    source = hr.json("landing", {"id": int, "tags": list[datetime]}, explode="tags").event_time("tags", bound="0s")
    pipeline = hr.Pipeline("made", source, rows=["id"], executor="local")
    land(tmp_path, "1", tagged_line(1, ["2026-05-01T00:07:00Z", "2026-05-01T00:03:00Z"]))
    LOCAL.run(pipeline, tmp_path.as_uri(), publish=False)
    assert minute_of(tmp_path, "watermark") == 7


def test_small_files_read_together_keep_their_places(tmp_path: Path) -> None:
    for number in range(30):
        land(tmp_path, f"{number:02}", tagged_line(number, ["x"] * (number % 4)), "torn")
    LOCAL.run(rows(), tmp_path.as_uri(), publish=False)
    assert current(rows(), tmp_path, "id") == Counter({(n,): n % 4 for n in range(30) if n % 4})
    dead = read(rows(), tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert [(Path(row["file"]).stem, row["position"]) for row in dead] == [(f"{n:02}", 1) for n in range(30)]


def test_a_file_without_the_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    pq.write_table(pa.table({"id": [1], "at": [datetime(2026, 5, 1, tzinfo=UTC)]}), tmp_path / "landing/1.parquet")
    source = hr.parquet("landing", SCHEMA, explode="tags").event_time("at", bound="0s")
    pipeline = hr.Pipeline("made", source, rows=["id"], executor="local")
    with pytest.raises(MissingColumnError, match="lacks column tags, which explode reads"):
        LOCAL.run(pipeline, tmp_path.as_uri(), publish=False)


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        ({"explode": "tag"}, "the schema has no such column; did you mean 'tags'"),
        ({"explode": "id"}, "it is int, and only a list of values has items"),
        ({"explode": ["tags"]}, "explode"),
        (
            {"explode": "tags", "transform": hr.BatchFunction("a:b", {"a": int}, deterministic=True)},
            "a:b makes records of its own: let it do this, too",
        ),
    ],
)
def test_what_is_refused(reading: Any, why: str) -> None:
    for function, place_name in ((hr.json, "landing"), (hr.kafka, "topic"), (hr.spark_source, "module:function")):
        more = {"connection": "broker"} if function is hr.kafka else {}
        with pytest.raises(PipelineError, match=why):
            function(place_name, SCHEMA, **more, **reading)  # type: ignore[operator]


def test_a_filter_reads_the_item() -> None:
    with pytest.raises(PipelineError, match=r"filter: in .tags . 1.: . needs numbers, found string and int"):
        rows(filter=col("tags") + 1 > 2)
    assert rows(filter=col("tags") == "a").schema["tags"] is hr.DataType.STRING


def test_late_records_do_not_land_again(tmp_path: Path) -> None:
    land(tmp_path, "1", tagged_line(1, ["a"], 50))
    land(tmp_path, "2", tagged_line(2, ["a", "b"]))
    LOCAL.run(item_counts(), tmp_path.as_uri(), files_per_epoch=1, publish=False)
    with pytest.raises(LandingAgainError, match="has explode= between its files and its records"):
        hr.open(tmp_path.as_uri())[item_counts()].replay_late()


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_unit_tests_of_pipelines_explode(executor: Any) -> None:
    record = {"id": 1, "tags": ["a", "b", "a", None], "at": datetime(2026, 5, 1, tzinfo=UTC)}
    result = run(item_counts(), [given_rows(record, {**record, "tags": []})], executor=executor)
    assert sorted((pane.key["tags"], pane.values["n"]) for pane in result.panes) == [("a", 2), ("b", 1)]
    assert [(row["position"], row["reason"]) for row in result.rejected] == [(0, "key is null: tags")]


def test_an_output_that_catches_up_takes_items_beside_those_that_none_could(tmp_path: Path) -> None:
    source = hr.json("landing", {"id": int, "tags": list[datetime]}, explode="tags").event_time("tags", bound="0s")
    pipeline = hr.Pipeline(
        "made", source, outputs={"one": hr.Rows(["id", "tags"]), "two": hr.Rows(["id"])}, executor="local"
    )
    times = ["2026-05-01T00:01:00Z", None, "2026-05-01T00:02:00Z"]
    for number, outputs_left_out in enumerate(((), ("two",), ())):
        land(tmp_path, str(number), tagged_line(2 * number, times), tagged_line(2 * number + 1, times[:2]))
        LOCAL.run(pipeline, tmp_path.as_uri(), without=outputs_left_out)
    for output in ("one", "two"):
        table = read(pipeline, tmp_path.as_uri(), "current", "main", output)
        assert Counter(table["id"].to_pylist()) == Counter({0: 2, 1: 1, 2: 2, 3: 1, 4: 2, 5: 1})
    assert read(pipeline, tmp_path.as_uri(), "rejected", "main", "two").num_rows == 6
