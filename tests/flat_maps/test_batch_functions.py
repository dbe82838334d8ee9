"""Batch functions of a user between a source and a pipeline, run by run."""

import json
import sys
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import PipelineError, RetryError
from headrace.model.time import to_instant
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.loading.code_digests import code_of
from headrace.read.snapshots.progress import StoredProgress
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace.sources.flat_maps import BatchFunctionError
from headrace.testing import rows as given_rows
from headrace.testing import run
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.flat_maps import functions
from tests.process.executors import ExecutorUnderTest, SparkStandIn, on_both, on_spark
from tests.reading import read

MODULE = "tests.flat_maps.functions"
SCHEMA = {"text": str, "n": int, "at": datetime}
WORDS: dict[str, Any] = {"word": str, "n": int, "at": datetime}


def batch_function(name: str, returns: Any = SCHEMA, *, deterministic: bool = True) -> hr.BatchFunction:
    return hr.BatchFunction(f"{MODULE}:{name}", returns, deterministic=deterministic)


def source(name: str, returns: Any = SCHEMA, **more: Any) -> hr.FileSource:
    deterministic = more.pop("deterministic", True)
    return hr.json("landing", SCHEMA, transform=batch_function(name, returns, deterministic=deterministic), **more)


def rows(name: str, returns: Any = SCHEMA, **more: Any) -> hr.Pipeline:
    """A row of each that a function gives."""
    given_input = source(name, returns, **more.pop("reading", {})).event_time("at", bound="0s")
    return hr.Pipeline("made", given_input, rows=[*returns], executor="local", **more)


def counted_words(**more: Any) -> hr.Pipeline:
    """How often words come, by minute."""
    parts: dict[str, Any] = {
        "key": "word",
        "what": {"n": hr.count()},
        "where": hr.FixedWindows("1m"),
        "when": hr.on_update(),
        "how": hr.retracting(),
        **more,
    }
    return hr.Pipeline("made", source("words", WORDS).event_time("at", bound="0s"), **parts)


PANES: dict[str, Any] = {"word": str, "n": int}


def aggregation_of_panes(name: str, returns: Any = PANES, **more: Any) -> hr.Aggregation:
    """What a function makes of panes, counted."""
    function = batch_function(name, returns, deterministic=more.pop("deterministic", True))
    parts: dict[str, Any] = {"key": "n", "what": {"words": col("word").collect()}, "where": hr.GlobalWindows()}
    parts |= {"when": hr.on_update(), "how": hr.retracting(), **more}
    return hr.Aggregation(**parts, transform=function)


def record_line(text: str | None, minute: int = 0, **more: Any) -> str:
    return json.dumps({"text": text, "n": 1, "at": f"2026-05-01T00:{minute:02}:00Z", **more})


def land(root: Path, name: str, *lines: str) -> None:
    (root / "landing").mkdir(exist_ok=True)
    (root / f"landing/{name}.json").write_text("".join(f"{line}\n" for line in lines))


def current(pipeline: hr.Pipeline, root: Path, *columns: str) -> Counter[tuple[Any, ...]]:
    table = read(pipeline, root.as_uri(), "current", "main")
    return Counter(tuple(row[name] for name in columns) for row in table.to_pylist())


@on_both
def test_a_flat_map_keeps_the_places_of_its_records(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, "1", record_line("to be or"), "{torn", record_line(None), record_line("not to be", 1))
    land(tmp_path, "2", record_line("again no time", at=None), record_line("be late", 9))
    land(tmp_path, "3", record_line("be late"))
    pipeline = counted_words()
    result = executor.process(pipeline, tmp_path.as_uri(), RunOptions("run", files_per_epoch=1))
    assert result.counts["records"] == 3 + 1 + 3 + 3 + 2 + 2
    expected = {"to": 2, "be": 3, "or": 1, "not": 1, "late": 1}
    found_counts: Counter[str] = Counter()
    for (word, n), number in current(pipeline, tmp_path, "word", "n").items():
        found_counts[word] += n * number
    assert found_counts == expected
    late = read(pipeline, tmp_path.as_uri(), "late", "main").to_pylist()
    assert [(row["word"], row["raw"]) for row in late] == [
        ("be", record_line("be late")),
        ("late", record_line("be late")),
    ]
    dead = read(pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert [(Path(row["file"]).stem, row["position"], row["reason"]) for row in dead] == [
        ("1", 1, "not a JSON object"),
        *[("2", 0, "event time is null")] * 3,
    ]
    assert [row["raw"] for row in dead] == ["{torn", *[record_line("again no time", at=None)] * 3]


@on_both
def test_duplicates_are_told_of_what_was_made(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, "1", record_line("a b a"), record_line("b c"))
    pipeline = counted_words(deduplicate=hr.Deduplicate("word", "1h"))
    result = executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    assert current(pipeline, tmp_path, "word", "n") == Counter({(word, 1): 1 for word in "abc"})
    assert result.counts["duplicates"] == 2


@SparkStandIn.stand_in()  # which has three parts of the ids
def test_what_was_made_of_a_record_stays_in_its_order(tmp_path: Path) -> None:
    land(tmp_path, "1", record_line(" ".join(f"word{number}" for number in range(60))))
    kept_pipeline = counted_words(
        key=None,
        what={"words": col("word").collect()},
        deduplicate=hr.Deduplicate("word", "1h"),
        how=hr.accumulating(keep_last=20),
    )
    process(kept_pipeline, tmp_path.as_uri(), RunOptions("run", executor="spark"))
    (row,) = read(kept_pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    assert sorted(row["words"]) == [f"word{number}" for number in range(40, 60)]


@on_both
def test_panes_go_through_a_function_and_are_withdrawn_from_what_it_gave(
    executor: ExecutorUnderTest, tmp_path: Path
) -> None:
    pipeline = counted_words(then=[aggregation_of_panes("bare")])

    def words_by_number() -> dict[int, list[str]]:
        rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
        return {row["n"]: sorted(row["words"]) for row in rows}

    land(tmp_path, "1", record_line("be to be or to be to and and"))
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("first"))
    assert words_by_number() == {0: ["and", "or"], 1: ["and"]}, "a word that came three times gives nothing"
    land(tmp_path, "2", record_line("to and"))
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("second"))
    assert words_by_number() == {0: ["or", "to"]}


def test_what_was_made_of_a_pane_stays_in_its_order(tmp_path: Path) -> None:
    letters = {"letters": col("letter").collect()}
    last = aggregation_of_panes(
        "spell_letters", {"letter": str}, key=None, what=letters, how=hr.accumulating(keep_last=4)
    )
    pipeline = counted_words(how=hr.discarding(), then=[last])
    land(tmp_path, "1", record_line("zebra"))
    ExecutorUnderTest("local").process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    (row,) = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    assert sorted(row["letters"]) == ["a", "b", "e", "r"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fails", r"failed: KeyError: 1 \(panes 0 to 0 that aggregation 1 emits in epoch 0\)"),
        ("more", "gave column more, which it does not declare"),
        ("number_calls", "declared deterministic"),
        ("nowhere", "nowhere"),
    ],
)
def test_a_function_between_aggregations_is_held_to_what_it_says(tmp_path: Path, name: str, why: str) -> None:
    land(tmp_path, "1", record_line("a"))
    pipeline = counted_words(
        then=[aggregation_of_panes(name, {**PANES, "window_start": datetime, "window_end": datetime})]
    )
    with pytest.raises(BatchFunctionError, match=why):
        ExecutorUnderTest("local").process(pipeline, tmp_path.as_uri(), RunOptions("run"))


@on_both
def test_what_another_pipeline_gives_goes_through_a_function(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline_above, uri = counted_words(), tmp_path.as_uri()
    given_source = hr.published("made", {"word": str, "n": int}, transform=batch_function("bare", PANES))
    reader = hr.Pipeline("reader", given_source, rows=["word", "n"])
    for name, text in (("1", "be to be or to be to"), ("2", "to and and")):
        land(tmp_path, name, record_line(text))
        executor.process(pipeline_above, uri, RunOptions(name, publish=True))
        executor.process(reader, uri, RunOptions(name))
    found_rows = current(reader, tmp_path, "word", "n")
    assert found_rows == Counter([("or", 0), ("to", 0), ("and", 0), ("and", 1)])


def test_lists_of_another_pipeline_are_exploded(tmp_path: Path) -> None:
    uri, local = tmp_path.as_uri(), ExecutorUnderTest("local")
    pipeline_above = counted_words(key="n", what={"words": col("word").collect()})
    given_source = hr.published("made", {"n": int, "words": list[str]}, explode="words")
    reader = hr.Pipeline("reader", given_source, rows=["n", "words"])
    for name, text in (("1", "be to"), ("2", "or")):
        land(tmp_path, name, record_line(text))
        local.process(pipeline_above, uri, RunOptions(name, publish=True))
        local.process(reader, uri, RunOptions(name))
    assert current(reader, tmp_path, "n", "words") == Counter([(1, "be"), (1, "to"), (1, "or")])


def test_a_replay_and_a_batch_give_the_same(tmp_path: Path) -> None:
    executor = ExecutorUnderTest("local")
    for number in range(5):
        land(
            tmp_path,
            str(number),
            record_line(f"a{number} b", number),
            record_line("c"),
            record_line("d e f", 2 * number),
        )
    pipeline = rows("words", WORDS)
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run", files_per_epoch=2))
    first_rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    for branch, mode in (("again", Mode.REPLAY), ("batch", Mode.BATCH)):
        executor.process(pipeline, tmp_path.as_uri(), RunOptions(branch, mode=mode, branch=branch))
        table = read(pipeline, tmp_path.as_uri(), "current", branch).to_pylist()
        places = ("word", "event_time")
        assert sorted(tuple(row[name] for name in places) for row in table) == sorted(
            tuple(row[name] for name in places) for row in first_rows
        )


def test_small_files_are_given_together_and_each_keeps_its_own(tmp_path: Path) -> None:
    for number in range(50):
        land(tmp_path, f"{number:02}", *[record_line(f"x{number}")] * (number % 3), "torn")
    functions.calls.clear()
    pipeline = rows("same")
    ExecutorUnderTest("local").process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    assert current(pipeline, tmp_path, "text") == Counter({(f"x{n}",): n % 3 for n in range(50) if n % 3})
    dead = read(pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert [(Path(row["file"]).stem, row["position"]) for row in dead] == [(f"{n:02}", n % 3) for n in range(50)]
    asked_for = [number for number in functions.calls if number]
    assert len(asked_for) <= 3 * 4, "some tasks, each of them once, and again for a sample in two parts"
    assert sum(asked_for) <= 2 * 49


def test_many_records_come_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "1")
    land(tmp_path, "1", *[record_line(str(number)) for number in range(70_000)])
    functions.calls.clear()
    ExecutorUnderTest("local").process(rows("same"), tmp_path.as_uri(), RunOptions("run"))
    assert functions.calls == [65_536, 128, 128, 70_000 - 65_536]


def test_signs_are_of_what_was_made(tmp_path: Path) -> None:
    changes = source("words", WORDS, changelog=col("n")).event_time("at", bound="0s")
    signed_pipeline = hr.Pipeline("made", changes, rows=["word"], executor="local")
    land(tmp_path, "1", record_line("a b"), record_line("a"))
    land(tmp_path, "2", record_line("a b", n=-1), record_line("c", n=0))
    ExecutorUnderTest("local").process(signed_pipeline, tmp_path.as_uri(), RunOptions("run", files_per_epoch=1))
    assert current(signed_pipeline, tmp_path, "word") == Counter({("a",): 1})
    (dead,) = read(signed_pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert (dead["position"], dead["raw"]) == (1, record_line("c", n=0))


def test_lists_come_out(tmp_path: Path) -> None:
    source = hr.json(
        "landing",
        {"tags": list[str], "at": datetime},
        transform=batch_function("same", {"tags": list[str], "at": datetime}),
    )
    pipeline = hr.Pipeline("made", source.event_time("at", bound="0s"), rows=["tags"], executor="local")
    land(tmp_path, "1", record_line(None, tags=["a", None]), record_line(None, tags=None))
    ExecutorUnderTest("local").process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    assert [row["tags"] for row in read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()] == [
        ["a", None],
        None,
    ]


def test_what_is_not_a_number_is_the_same_when_it_is_asked_again(tmp_path: Path) -> None:
    land(tmp_path, "1", record_line("a"))
    pipeline = rows("not_numbers", {**SCHEMA, "share": float})
    assert ExecutorUnderTest("local").process(pipeline, tmp_path.as_uri(), RunOptions("run")).counts["panes"] == 1


WRONG = {
    "without_row": "gave no column _row: each row says by it which one of the batch it was made of",
    "invent_rows": "gave _row 7, and the batch has _row 0 to 2",
    "of_nothing": "gave _row NULL, and the batch has _row 0 to 2",
    "narrow": "declares column n as int, which is int64 in Arrow, and gave int32: cast it",
    "more": "gave column more, which it does not declare: leave it out, or add it to returns=",
    "less": "declares column n, and did not give it",
    "double_column": "gave column n twice",
    "torn_text": "gave a batch that is none: .*UTF8",
    "table": "gave Table, and must give a pyarrow.RecordBatch",
    "fails": "failed: KeyError: 3",
    "number_calls": r"gave \[.*'n': 0.*\] at first, and \[.*'n': 3.*\] when it was asked again",
    "first_ones": "gave .*'text': 'a'.* at first, and no row when it was asked again",
    "add_random": "It is declared deterministic, so it may keep nothing between two calls",
    "shares": "gave .*'n': 3.* at first, and .*'n': 2.*and look at each row alone",
    "number_rows": "gave .*'n': 2.* at first, and .*'n': 0.*",
}


@on_both
@pytest.mark.parametrize("name", ["fails", "more", "number_calls"])
def test_what_is_wrong_stops_the_run(executor: ExecutorUnderTest, tmp_path: Path, name: str) -> None:
    land(tmp_path, "1", "{torn", record_line("a"), record_line("b"), record_line("c"))
    with pytest.raises(BatchFunctionError, match=f"batch function {MODULE}:{name} .*landing/1.json, position"):
        executor.process(rows(name), tmp_path.as_uri(), RunOptions("run"))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, name: str) -> None:
    functions.forget_calls()
    land(tmp_path, "1", "{torn", record_line("a"), record_line("b"), record_line("c"))
    with pytest.raises(BatchFunctionError, match=WRONG[name]) as error:
        ExecutorUnderTest("local").process(rows(name), tmp_path.as_uri(), RunOptions("run"))
    assert error.value.code == "config.batch_function"
    assert "(file landing/1.json, positions " in str(error.value)


@on_spark
def test_one_that_cannot_travel_is_said_so(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(tmp_path, "1", record_line("a"))
    with pytest.raises(BatchFunctionError, match=r"functions:pass_with_lock cannot travel to Spark's workers .*lock"):
        executor.process(rows("pass_with_lock"), tmp_path.as_uri(), RunOptions("run"))
    assert (
        ExecutorUnderTest("local").process(rows("pass_with_lock"), tmp_path.as_uri(), RunOptions("run")).counts["panes"]
        == 1
    )


def test_records_of_several_files_are_named_by_both_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "1")
    land(tmp_path, "1", "{torn", record_line("a"))
    land(tmp_path, "2", record_line("b"), record_line("c"))
    places = r"\(file landing/1.json, position 1, to file landing/2.json, position 1"
    with pytest.raises(BatchFunctionError, match=places):
        ExecutorUnderTest("local").process(rows("fails"), tmp_path.as_uri(), RunOptions("run"))


def test_one_that_is_not_deterministic_may_give_anything(tmp_path: Path) -> None:
    land(tmp_path, "1", record_line("a"), record_line("b"))
    pipeline = rows("add_random", reading={"deterministic": False})
    assert ExecutorUnderTest("local").process(pipeline, tmp_path.as_uri(), RunOptions("run")).counts["panes"] == 2


def test_an_error_of_headrace_is_its_own(tmp_path: Path) -> None:
    land(tmp_path, "1", record_line("a"))
    with pytest.raises(RetryError, match="the prices do not answer"):
        ExecutorUnderTest("local").process(rows("asks_again"), tmp_path.as_uri(), RunOptions("run"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere:f", "module nowhere cannot be imported"),
        (f"{MODULE}:nothing", "has no function nothing"),
        ("tests.flat_maps.broken:f", "its module fails as it is imported: ZeroDivisionError"),
    ],
)
def test_a_function_that_cannot_be_had(tmp_path: Path, name: str, why: str) -> None:
    land(tmp_path, "1", record_line("a"))
    lacking = hr.json("landing", SCHEMA, transform=hr.BatchFunction(name, SCHEMA, deterministic=True))
    pipeline = hr.Pipeline("made", lacking.event_time("at", bound="0s"), rows=["n"], executor="local")
    with pytest.raises(BatchFunctionError, match=why):
        ExecutorUnderTest("local").process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    sys.modules.pop("tests.flat_maps.broken", None)


@pytest.mark.parametrize(
    ("build_source", "why"),
    [
        (lambda: hr.BatchFunction("words", SCHEMA, deterministic=True), "names no batch function"),
        (lambda: hr.BatchFunction("a:b", {"_row": int}, deterministic=True), "names that start with _"),
        (lambda: hr.BatchFunction("a:b", {"a": object}, deterministic=True), "write one of str, int"),
        (lambda: hr.BatchFunction("a:b", {}, deterministic=True), "name the columns and their types"),
        (lambda: hr.json("landing", SCHEMA, transform=functions.words), r'write BatchFunction\("module:function"'),
        (lambda: rows("words", SCHEMA, reading={"changelog": hr.delta_change_type()}), "makes others of them"),
        (
            lambda: rows("words", WORDS, reading={"changelog": col("n"), "deterministic": False}),
            "nobody could find again what it made of a record",
        ),
        (
            lambda: counted_words(then=[aggregation_of_panes("bare", deterministic=False)]),
            "withdraws panes, and tests.flat_maps.functions:bare downstream of it is declared not deterministic",
        ),
        (
            lambda: hr.published("made", {"n": int}, transform=batch_function("bare", {"pane_time": datetime})),
            "what is made of a pane has its 'pane_time': leave it out",
        ),
        (
            lambda: hr.published("made", {"n": int}, transform=hr.SparkFunction("a:b", {"n": int}, deterministic=True)),  # type: ignore[arg-type]
            r'write BatchFunction\("module:function"',
        ),
        (lambda: hr.published("made", {"n": int}, explode="n"), "it is int, and only a list of values has items"),
    ],
)
def test_what_is_refused(build_source: Any, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        build_source()


def test_its_code_is_known_and_it_means_something(tmp_path: Path) -> None:
    assert [*code_of(counted_words())] == [f"{MODULE}:words"]
    one, other = rows("words", WORDS), rows("repeat_rows", WORDS)
    assert fingerprint(one) != fingerprint(other)
    moved_source = replace(one.source, transform=replace(batch_function("words", WORDS), package="elsewhere"))
    assert fingerprint(replace(one, input=moved_source.event_time("at", bound="0s"))) == fingerprint(one)


def test_dead_letters_that_were_made_land_nowhere_by_themselves(tmp_path: Path) -> None:
    land(tmp_path, "1", record_line("a"), record_line("b c", at=None), "torn")
    pipeline = rows("words", WORDS)
    ExecutorUnderTest("local").process(pipeline, tmp_path.as_uri(), RunOptions("run", publish=True))
    handle = hr.open(tmp_path.as_uri())[pipeline]
    landed_landing = handle.replay_rejected(to="landing")
    assert (landed_landing.records, [*landed_landing.left.values()]) == (0, [3])
    assert next(iter(landed_landing.left)).startswith("of a source that makes others of its records")
    assert handle.replay_rejected().records == 2, "beside the root, each record once"


@pytest.mark.parametrize("executor", ["local", "reference"])
def test_unit_tests_of_pipelines_call_it(executor: Any) -> None:
    record = {"text": "a b a", "n": 1, "at": datetime(2026, 5, 1, tzinfo=UTC)}
    result = run(counted_words(), [given_rows(record, {**record, "at": None})], executor=executor)
    assert sorted((pane.key["word"], pane.values["n"]) for pane in result.panes) == [("a", 2), ("b", 1)]
    assert [(row["position"], row["reason"]) for row in result.rejected] == [(1, "event time is null")] * 3


def test_the_newest_of_what_it_drops_is_known(tmp_path: Path) -> None:
    land(tmp_path, "1", record_line("a"), record_line(" ", 50))
    pipeline = rows("words", WORDS)
    ExecutorUnderTest("local").process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    catalog = Catalog(open_store(tmp_path.as_uri()), "made")
    progress = StoredProgress.from_manifest(catalog.manifest(catalog.head().refs["main"]))
    assert progress.newest_read == to_instant(datetime(2026, 5, 1, 0, 50, tzinfo=UTC))
