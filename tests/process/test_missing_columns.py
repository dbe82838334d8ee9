"""A declared column that files lack: a run stops (of JSON it warns), unless the source says that it may be missing."""

import json
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace import Pipeline, col
from headrace.formats.file_format import FileColumnsError, MissingColumnError
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.results import RunResult
from headrace.sources.validation import required_by
from headrace_lab.actions import backfill
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.own_windows import Validity
from tests.reading import read

TIME = "2026-01-01T00:00:00Z"
SCHEMA = {"user": str, "at": datetime, "amount": int, "kind": str, "note": str}
FORMATS = {"csv": hr.csv, "parquet": hr.parquet, "json": hr.json}


def content(kind: str, *columns: str) -> bytes:
    """A file of two records with those columns."""
    values: dict[str, Any] = {"user": "u", "at": TIME, "amount": 5, "kind": "x", "note": "n"}
    record = {name: values.get(name.lower(), 1) for name in columns}
    if kind == "json":
        return f"{json.dumps(record)}\n".encode() * 2
    if kind == "csv":
        return "\n".join([",".join(columns), *[",".join(map(str, record.values()))] * 2]).encode()
    file = BytesIO()
    moments = {"at": [datetime(2026, 1, 1, tzinfo=UTC)] * 2}
    pq.write_table(pa.table({name: moments.get(name, [value] * 2) for name, value in record.items()}), file)
    return file.getvalue()


def sales(kind: str, *, missing: str = "fail", **more: Any) -> Pipeline:
    source = FORMATS[kind]("landing", SCHEMA, missing=missing, **more.pop("reading", {}))
    timed_input = source.event_time("at", bound="0s", **more.pop("times", {}))
    parts: dict[str, Any] = {
        "key": "user",
        "what": {"n": hr.count(), "total": col("amount").sum()},
        "where": hr.FixedWindows("1h"),
        "executor": "local" if source.transform is None else "spark",
    }
    return Pipeline("sales", timed_input, **{**parts, **more})


def land(root: Path, name: str, data: bytes) -> None:
    (root / "landing").mkdir(exist_ok=True)
    (root / "landing" / name).write_bytes(data)


def run(pipeline: Pipeline, root: Path, mode: Mode = Mode.BATCH) -> RunResult:
    return process(pipeline, root.as_uri(), RunOptions("run", mode=mode))


def committed_rows(pipeline: Pipeline, root: Path) -> list[dict[str, Any]]:
    return read(pipeline, root.as_uri(), "current", "main").to_pylist()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_the_pipeline_reads_and_a_header_lacks_stops_the_run_before_the_commit(
    tmp_path: Path, kind: str
) -> None:
    land(tmp_path, f"1.{kind}", content(kind, "user", "at", "Amout", "kind"))
    with pytest.raises(MissingColumnError) as error:
        run(sales(kind), tmp_path)
    assert error.value.code == "data.missing_column"
    message = str(error.value)
    for part in (f"landing/1.{kind}", "lacks column amount, which aggregate total reads", "'Amout'", 'missing="null"'):
        assert part in message
    assert Catalog(open_store(tmp_path.as_uri()), "sales").head().refs.get("main") is None
    run(sales(kind, missing="null"), tmp_path)
    (row,) = committed_rows(sales(kind, missing="null"), tmp_path)
    assert (row["n"], row["total"]) == (2, 0)


READERS: dict[str, dict[str, Any]] = {
    "the filter": {"filter": col("kind") == "x"},
    "key kind": {"key": {"user": col("user"), "kind": hr.coalesce(col("kind"), "none")}},
    "the id of Deduplicate": {"deduplicate": hr.Deduplicate("kind", "1d")},
    "AfterPunctuation": {"when": hr.Repeatedly(hr.AfterPunctuation(col("kind") == "x"))},
    "AfterPattern": {"when": hr.Repeatedly(hr.AfterPattern("a", {"a": col("kind") == "x"}))},
    "DataDriven": {"when": hr.Repeatedly(hr.DataDriven({"n": col("kind").count()}, col("n") > 1))},
    "aggregate pairs": {"what": {"pairs": col("amount").pairs(col("kind"))}},
    "the split": {"times": {"split": "kind"}},
    "Validity": {"where": Validity(1)},
    "Spark function m:f": {"reading": {"transform": hr.SparkFunction("m:f", SCHEMA, deterministic=True)}},
}


@pytest.mark.parametrize("reader", READERS)
def test_whatever_reads_it_is_named(reader: str) -> None:
    pipeline = sales("csv", **READERS[reader])
    required_columns, names = required_by(pipeline, pipeline.input), ["user", "at", "amount", "note"]
    with pytest.raises(MissingColumnError, match=f"lacks column kind, which {reader} reads"):
        required_columns.check(names, names, "a.csv", "header")


@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_a_column_that_nothing_reads_may_be_missing(tmp_path: Path, kind: str) -> None:
    land(tmp_path, f"1.{kind}", content(kind, "user", "at", "amount"))
    assert run(sales(kind), tmp_path).warnings == ()
    (row,) = committed_rows(sales(kind), tmp_path)
    assert row["total"] == 10


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_no_record_can_do_without_is_never_null(tmp_path: Path, kind: str) -> None:
    land(tmp_path, f"1.{kind}", content(kind, "at", "amount"))
    with pytest.raises(FileColumnsError, match="lacks column user, without which every record has no key user"):
        run(sales(kind, missing="null"), tmp_path)


def test_of_json_the_result_warns_as_soon_as_no_record_of_a_file_has_it(tmp_path: Path) -> None:
    land(tmp_path, "1.json", content("json", "user", "at", "amount"))
    land(tmp_path, "2.json", content("json", "user", "at", "amuont"))
    land(tmp_path, "3.json", content("json", "user", "at"))
    (warning,) = run(sales("json"), tmp_path).warnings
    for part in ("'amount'", "2 files, the first of them landing/2.json", "'amuont'", 'missing="null"'):
        assert part in warning
    assert committed_rows(sales("json"), tmp_path)[0]["total"] == 10


def test_a_column_that_some_record_has_even_as_null_is_not_missing(tmp_path: Path) -> None:
    land(
        tmp_path,
        "1.json",
        b'{"user": "u", "at": "%s", "amount": null}\n{"user": "u", "at": "%s"}\n' % ((TIME.encode(),) * 2),
    )
    land(tmp_path, "2.json", b"torn\n")
    land(tmp_path, "3.json", b"")
    assert run(sales("json"), tmp_path).warnings == ()


def test_a_file_in_pieces_lacks_what_all_of_them_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "4")
    lines = 20_000
    land(tmp_path, "1.json", content("json", "user", "at", "kind") * lines + content("json", "user", "at", "amount"))
    assert run(sales("json"), tmp_path, Mode.MICRO_BATCH).warnings == ()
    land(tmp_path, "2.json", content("json", "user", "at", "kind") * lines)
    (warning,) = run(sales("json"), tmp_path, Mode.MICRO_BATCH).warnings
    assert "any record of file landing/2.json" in warning


def test_missing_null_silences_the_warning_too(tmp_path: Path) -> None:
    land(tmp_path, "1.json", content("json", "user", "at"))
    assert run(sales("json", missing="null"), tmp_path).warnings == ()


def test_what_another_input_gives_is_not_missing_in_the_own_one(tmp_path: Path) -> None:
    refunds = hr.csv("refunds", {"who": str, "at": datetime, "sum": int}).event_time("at", bound="0s")
    columns = {"user": col("who"), "amount": col("sum")}
    pipeline = sales("csv", union=[refunds.named("refunds", columns=columns)])
    land(tmp_path, "1.csv", content("csv", "user", "at"))
    (tmp_path / "refunds").mkdir()
    (tmp_path / "refunds" / "1.csv").write_text(f"who,at,sum\nu,{TIME},7\n")
    assert run(pipeline, tmp_path).warnings == ()
    (row,) = committed_rows(pipeline, tmp_path)
    assert (row["n"], row["total"]) == (3, 7)
    (tmp_path / "refunds" / "2.csv").write_text(f"who,at,summe\nu,{TIME},7\n")
    with pytest.raises(
        MissingColumnError, match=r"refunds/2.csv .* lacks column sum, which aggregate total reads.*'summe'"
    ):
        run(pipeline, tmp_path, Mode.MICRO_BATCH)


def test_a_dead_letter_where_the_source_takes_unreadable_files_so(tmp_path: Path) -> None:
    pipeline = sales("csv", reading={"on_unreadable": "dead_letter"})
    land(tmp_path, "1.csv", content("csv", "user", "at"))
    run(pipeline, tmp_path)
    (dead,) = read(pipeline, tmp_path.as_uri(), "rejected", "main").to_pylist()
    assert dead["reason"] == "file: its header lacks column amount, which aggregate total reads"


def test_a_backfill_over_files_from_before_a_column_existed(tmp_path: Path) -> None:
    pipeline_before = Pipeline(
        "sales",
        hr.csv("landing", {"user": str, "at": datetime}).event_time("at", bound="0s"),
        key="user",
        what={"n": hr.count()},
        where=hr.FixedWindows("1h"),
        executor="local",
    )
    land(tmp_path, "1.csv", content("csv", "user", "at"))
    run(pipeline_before, tmp_path, Mode.MICRO_BATCH)
    land(tmp_path, "2.csv", content("csv", "user", "at", "amount"))
    options = RunOptions("again", branch="again")
    with pytest.raises(MissingColumnError, match=r"landing/1\.csv"):
        backfill(sales("csv"), tmp_path.as_uri(), options)
    now = sales("csv", missing="null", when=hr.AfterWatermark(early=hr.AfterCount(1)))
    backfill(now, tmp_path.as_uri(), RunOptions("once-more", branch="once_more"))
    (row,) = read(now, tmp_path.as_uri(), "current", "once_more").to_pylist()
    assert (row["n"], row["total"]) == (4, 10)
