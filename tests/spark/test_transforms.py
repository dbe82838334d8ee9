"""Named Spark functions between a source and an aggregation, and between two."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from types import GenericAlias
from typing import Any

import pytest

from headrace import (
    AfterCount,
    AfterWatermark,
    Aggregation,
    DataType,
    FileSource,
    FixedWindows,
    GlobalWindows,
    Output,
    Pipeline,
    SparkFunction,
    col,
    count,
    discarding,
    field,
    retracting,
)
from headrace import json as json_source
from headrace.distribute.spark.application import SparkSession
from headrace.distribute.spark.errors import SparkFunctionError
from headrace.errors import PipelineError
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.pipeline.identity import fingerprint
from headrace.read.views.arrow_types import python_rows
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace_lab.reference import run_pipeline
from tests.building import pipeline
from tests.reading import read

STRING = DataType.STRING
MODULE = "tests.spark.spark_transforms"
WORDS = SparkFunction(f"{MODULE}:words", {"word": STRING, "at": DataType.TIMESTAMP}, deterministic=True)
EARLY_AND_LATE = AfterWatermark(early=AfterCount(1), late=AfterCount(1))
CLOCK = datetime(2026, 1, 2, tzinfo=UTC)


def build(transform: SparkFunction, **changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "transformed",
        "source": FileSource("landing", "json", {"text": STRING, "at": DataType.TIMESTAMP}, transform=transform),
        "event_time": EventTime(col("at"), BoundedOutOfOrderness("0s")),
        "key": {"word": col("word")},
        "where": FixedWindows("10000000us"),
        "when": EARLY_AND_LATE,
        "how": retracting(),
        "what": {"n": count()},
    }
    return pipeline(**{**parts, **changes})


def land(root: Path, number: int, *lines: str) -> None:
    folder = root / "landing"
    folder.mkdir(exist_ok=True)
    (folder / f"{number}.json").write_text("".join(f"{line}\n" for line in lines))


def text_line(text: str, second: int) -> str:
    return json.dumps({"text": text, "at": f"2026-01-01T00:00:{second:02}Z"})


def run(spark: SparkSession, pipeline: Pipeline, root: Path) -> None:
    options = RunOptions("run", files_per_epoch=1)
    process(pipeline, root.as_uri(), options, spark=spark, now=lambda: CLOCK)


@pytest.mark.spark
def test_a_flat_map_counts_words_and_loses_no_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, 1, text_line("to be or", 1), "{torn", text_line("not to be", 2))
    land(tmp_path, 2, text_line("be", 3), text_line("late", 30))
    land(tmp_path, 3, text_line("be late", 4))
    pipeline = build(WORDS)
    run(spark, pipeline, tmp_path)
    rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    counts = {(row["word"], row["window_start"].second): row["n"] for row in rows}
    assert counts == {("to", 0): 2, ("be", 0): 3, ("or", 0): 1, ("not", 0): 1, ("late", 30): 1}
    late = read(pipeline, tmp_path.as_uri(), "late", "main").to_pylist()
    assert [(row["word"], row["raw"]) for row in late] == [
        ("be", text_line("be late", 4)),
        ("late", text_line("be late", 4)),
    ]
    (dead,) = read(pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert (dead["raw"], dead["position"], dead["reason"]) == ("{torn", 1, "not a JSON object")


@pytest.mark.spark
def test_a_list_in_an_object_is_exploded(spark: SparkSession, tmp_path: Path) -> None:
    columns = {"tags": field("about.tags", list[str]), "at": field("_at", datetime)}
    source = FileSource("landing", "json", columns, transform=replace(WORDS, name=f"{MODULE}:tags"))
    tag_pipeline = build(source.transform, source=source, how=discarding(), when=AfterWatermark())
    time_field = {"_at": "2026-01-01T00:00:01Z"}
    lines = [{"about": {"tags": tags}, **time_field} for tags in (["a", "b"], ["a", None], [], None)]
    land(
        tmp_path, 0, *map(json.dumps, [*lines, {"about": {"tags": ["a", 1]}, **time_field}, {"about": 3, **time_field}])
    )
    land(tmp_path, 1, json.dumps({"about": {"tags": ["z"]}, "_at": "2026-01-01T01:00:00Z"}))
    run(spark, tag_pipeline, tmp_path)
    rows = read(tag_pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    assert sorted((row["word"], row["n"]) for row in rows) == [("a", 2), ("b", 1)]
    rejected_rows = read(tag_pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert sorted(row["reason"] for row in rejected_rows) == [
        "column tags (about.tags): about is not an object",
        "column tags (about.tags): not a list of string",
        "key is null: word",
    ]


ITEM: Any = {"sku": str, "marks": dict[str, int]}
NESTED_COLUMNS: dict[str, Any] = {
    "id": str,
    "address": {"city": str, "zip": int},
    "tags": dict[str, int],
    "items": GenericAlias(list, (ITEM,)),
    "at": datetime,
}
MOVED_COLUMNS: dict[str, Any] = {
    "id": str,
    "place": {"city": str, "names": list[str], "zero": float},
    "turned": dict[str, int],
    "lines": GenericAlias(list, ({"marks": dict[str, int], "sku": str},)),
    "at": datetime,
}


def moving(name: str, returns: Any) -> Pipeline:
    transform = SparkFunction(f"{MODULE}:{name}", returns, deterministic=True)
    source = json_source("landing", NESTED_COLUMNS, transform=transform).event_time("at", bound="1h")
    return Pipeline("moved", source, rows=[name for name in returns if name != "at"])


@pytest.mark.spark
def test_structs_maps_and_lists_go_in_and_out(spark: SparkSession, tmp_path: Path) -> None:
    time_field = {"at": "2026-01-01T00:00:01Z"}
    item = {"sku": "s", "marks": {"y": 2, "x": None}}
    records: list[dict[str, Any]] = [
        {
            "id": "a",
            "address": {"city": "Oslo", "zip": 1},
            "tags": {"b": 1, "a": None},
            "items": [item, None, {}],
            **time_field,
        },
        {"id": "b", "address": {}, "tags": {}, "items": [], **time_field},
        {"id": "c", **time_field},
    ]
    land(tmp_path, 0, *map(json.dumps, records))
    pipeline = moving("move_parts", MOVED_COLUMNS)
    run(spark, pipeline, tmp_path)
    result_rows = python_rows(read(pipeline, tmp_path.as_uri(), "current", "main"))
    assert sorted(([row[name] for name in ("id", "place", "turned", "lines")] for row in result_rows), key=str) == [
        [
            "a",
            {"city": "Oslo", "names": ["Oslo", None], "zero": 0.0},
            {"a": None, "b": 1},
            [{"marks": {"x": None, "y": 2}, "sku": "s"}, *[{"marks": None, "sku": None}] * 2],
        ],
        ["b", {"city": None, "names": [None, None], "zero": 0.0}, {}, []],
        ["c", {"city": None, "names": [None, None], "zero": 0.0}, None, None],
    ]
    assert "-0.0" not in str(result_rows) and [*result_rows[0]["turned"]] == sorted(result_rows[0]["turned"])


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "returns", "message"),
    [
        ("keyed_twice", {"turned": dict[str, int]}, "keyed_twice gave a map in which a key stands twice"),
        (
            "move_parts",
            {"turned": dict[str, str]},
            "declares column turned as map of string to string, which is Spark's",
        ),
        (
            "move_parts",
            {"place": {"city": str}},
            "declares column place as struct of .* gives struct<city:string,names",
        ),
    ],
)
def test_nested_columns_that_are_others_are_told(
    spark: SparkSession, tmp_path: Path, name: str, returns: Any, message: str
) -> None:
    land(tmp_path, 0, json.dumps({"id": "a", "at": "2026-01-01T00:00:01Z"}))
    with pytest.raises(SparkFunctionError, match=message):
        run(spark, moving(name, {**returns, "at": datetime}), tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize(("name", "kind"), [("day", date), ("days", list[date])])
def test_a_day_of_no_calendar_is_an_error_of_the_function(
    spark: SparkSession, tmp_path: Path, name: str, kind: Any
) -> None:
    pipeline = moving("move_days", {name: kind, "at": datetime})
    land(tmp_path, 0, json.dumps({"id": "a", "at": "2026-01-01T00:00:01Z"}))
    run(spark, pipeline, tmp_path)
    (row,) = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    assert row[name] in (date(2026, 1, 1), [date(2026, 1, 1)])
    land(tmp_path, 1, json.dumps({"id": "late", "at": "2026-01-01T00:00:01Z"}))
    message = f"move_days gave a time outside of the years 1 to 9999 in column {name}"
    with pytest.raises(SparkFunctionError, match=message):
        run(spark, pipeline, tmp_path)


@pytest.mark.spark
def test_what_comes_out_otherwise_every_time_is_kept_as_it_came_out_first(spark: SparkSession, tmp_path: Path) -> None:
    returns = {"word": STRING, "mark": STRING, "at": DataType.TIMESTAMP}
    mark_function = SparkFunction(f"{MODULE}:mark_words", returns, deterministic=False)
    land(tmp_path, 1, text_line("a b", 30), json.dumps({"text": "no time"}))
    land(tmp_path, 2, text_line("a c", 1), text_line("b", 31))
    pipeline = build(
        mark_function,
        key={"word": col("word"), "mark": col("mark")},
        event_time=EventTime(col("at"), BoundedOutOfOrderness("0s")),
    )
    run(spark, pipeline, tmp_path)
    marks = [row["mark"] for row in read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()]
    assert len(set(marks)) == len(marks) == 2
    (late,) = read(pipeline, tmp_path.as_uri(), "late", "main").to_pylist()
    (dead,) = read(pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert (late["word"], late["mark"] in marks) == ("a", False)
    assert (dead["reason"], dead["position"]) == ("event time is null", 1)


@pytest.mark.spark
def test_panes_go_through_a_function_and_are_withdrawn_from_what_it_gave(spark: SparkSession, tmp_path: Path) -> None:
    returns = {"word": STRING, "n": DataType.INT, "times": STRING}
    doubled_spark_function = SparkFunction(f"{MODULE}:double_rows", returns, deterministic=True)
    aggregation_behind = Aggregation(
        key={"times": col("times")},
        where=GlobalWindows(),
        when=EARLY_AND_LATE,
        how=retracting(),
        what={"words": col("word").collect(), "total": col("n").sum()},
        transform=doubled_spark_function,
    )
    land(tmp_path, 1, text_line("to be", 1))
    land(tmp_path, 2, text_line("be", 2))
    pipeline = build(WORDS, then=(aggregation_behind,))
    run(spark, pipeline, tmp_path)
    rows = read(pipeline, tmp_path.as_uri(), "current", "main").to_pylist()
    assert {row["times"]: (row["words"], row["total"]) for row in rows} == {
        "once": (["be", "to"], 3),
        "again": (["be", "to"], 3),
    }


@pytest.mark.spark
def test_panes_of_several_outputs_go_through_functions_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    """As they do in pipelines with a chain of aggregations alone."""
    word_count_parts: dict[str, Any] = {"key": "word", "what": {"n": count()}, "where": FixedWindows("10s")}
    word_count_parts |= {"when": EARLY_AND_LATE, "how": retracting()}
    totals: dict[str, Any] = {"key": "word", "what": {"n": col("n").sum()}, "where": FixedWindows("20s"), "when": None}
    returns = {"word": STRING, "n": DataType.INT, "times": STRING}
    aggregation_behind = Aggregation(
        key="times",
        where=GlobalWindows(),
        when=EARLY_AND_LATE,
        how=retracting(),
        what={"words": col("word").collect(), "total": col("n").sum()},
        transform=SparkFunction(f"{MODULE}:double_rows", returns, deterministic=True),
    )
    source = FileSource("landing", "json", {"word": STRING, "at": DataType.TIMESTAMP}).event_time("at", bound="0s")
    outputs = {
        # the third job, and the second
            "below": Output(of="plain", **totals, how=retracting(), then=(aggregation_behind,)),
        "words": Output(**word_count_parts, then=(aggregation_behind,)),
        "plain": Output(**word_count_parts),
        "last": Output(of=("words", "below"), key="times", what={"total": col("total").sum()}, where=GlobalWindows(),
                       when=EARLY_AND_LATE, how=retracting()),
    }  # fmt: skip
    whole = Pipeline("whole", source, outputs=outputs)
    words = Pipeline("words", source, **word_count_parts, then=(aggregation_behind,))
    pipeline_below = Pipeline(
        "below", source, **word_count_parts, then=(Aggregation(**totals, how=retracting()), aggregation_behind)
    )
    for second, word in enumerate(("a", "b", "a", None)):
        land(tmp_path, second, *[json.dumps({"word": word, "at": f"2026-01-01T00:00:{8 * second:02}Z"})] * 2)
    for each_pipeline in (whole, words, pipeline_below):
        run(spark, each_pipeline, tmp_path)

    def panes(pipeline: Pipeline, output: str = "") -> list[str]:
        return sorted(map(str, read(pipeline, tmp_path.as_uri(), "panes", "main", output).to_pylist()))

    assert len(panes(words)) > 6
    assert (panes(whole, "words"), panes(whole, "below")) == (panes(words), panes(pipeline_below))
    last = read(whole, tmp_path.as_uri(), "current", "main", "last").to_pylist()
    assert {row["times"]: row["total"] for row in last} == {"once": 12, "again": 12}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{MODULE}:forgetful", "loses column _"),
        (f"{MODULE}:mistype_words", "declares column word as string.*gives int"),
        (f"{MODULE}:failing", "nowhere"),
        (f"{MODULE}:nothing", "gives NoneType"),
        (f"{MODULE}:missing", "has no function missing"),
        ("tests.spark.no_module:words", "cannot be imported"),
    ],
)
def test_a_function_that_does_not_do_what_it_declares(
    spark: SparkSession, tmp_path: Path, name: str, message: str
) -> None:
    land(tmp_path, 1, text_line("to be", 1))
    with pytest.raises(SparkFunctionError, match=message):
        run(spark, build(replace(WORDS, name=name)), tmp_path)


def test_what_is_wrong_with_a_function_when_it_is_named() -> None:
    for name in ("words", "my module:words", "module:", ":words"):
        with pytest.raises(PipelineError, match="module:function"):
            SparkFunction(name, {"word": STRING}, deterministic=True)
    with pytest.raises(PipelineError, match="name the columns and their types"):
        SparkFunction("a:b", {}, deterministic=True)
    with pytest.raises(PipelineError, match="no column 'text'"):
        build(WORDS, key={"text": col("text")})


def test_what_cannot_be_found_again_does_not_stand_behind_retractions() -> None:
    returns = {"word": STRING, "n": DataType.INT}
    aggregation_behind = Aggregation(
        key={"word": col("word")},
        where=FixedWindows("10us"),
        when=None,
        how=retracting(),
        what={"n": count()},
        transform=SparkFunction("a:b", returns, deterministic=False),
    )
    with pytest.raises(PipelineError, match="not deterministic"):
        build(WORDS, then=(aggregation_behind,))
    build(WORDS, how=discarding(), then=(aggregation_behind,))


def test_functions_are_told_by_fingerprints_and_refused_by_the_reference() -> None:
    one, other = build(WORDS), build(replace(WORDS, name=f"{MODULE}:others"))
    assert fingerprint(one) != fingerprint(other)
    with pytest.raises(PipelineError, match="does not run"):
        run_pipeline(one, [])
