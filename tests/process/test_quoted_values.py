"""Errors that quote keys of records are kept as they are, and shown without them to those who may not see values."""

import json
from datetime import datetime
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import IntegerOverflowError
from headrace.runs.reporting.results import NOT_SHOWN, from_json, message_without_values, warnings_without_values
from headrace.runs.reporting.summary import PipelineState, PipelineSummary, read_summary
from headrace_snapshots.store import open_store

SECRET = "ada-lovelace"
TILLS = hr.json("landing/tills", {"user": str, "at": datetime, "n": int}).event_time("at", bound="0s")
MINUTE_PARTS: dict[str, Any] = {"key": "user", "where": hr.FixedWindows("1m"), "when": hr.on_update()}


def ran(root: str, **parts: Any) -> tuple[PipelineSummary, dict[str, Any]]:
    """The summary and the result of a run over a sum that no integer holds."""
    store = open_store(root)
    lines = (json.dumps({"user": SECRET, "at": "2026-11-20T00:00:00Z", "n": 2**62}) for _ in range(3))
    store.write("landing/tills/0.jsonl", "".join(f"{line}\n" for line in lines).encode())
    try:
        hr.open(root, create=True)[hr.Pipeline("tills", TILLS, executor="local", **parts)].run()
    except IntegerOverflowError as error:
        assert SECRET in str(error)
    summary = read_summary(store, "tills")
    assert summary is not None
    (result,) = (from_json(store.read(info.path)) for info in store.list("tills/runs/"))
    assert SECRET in json.dumps(result.to_json())
    assert SECRET in json.dumps(summary.to_json())
    return summary.without_values, result.without_values.to_json()


def test_a_run_that_failed_of_a_record_is_told_without_it(tmp_path: Any) -> None:
    summary, result = ran((tmp_path / "root").as_uri(), what={"n": col("n").sum()}, **MINUTE_PARTS)
    assert summary.state is PipelineState.FAILED
    assert summary.run is not None
    assert (summary.run.error_code, summary.run.error) == ("data.integer_overflow", NOT_SHOWN)
    assert result["error"] == {"code": "data.integer_overflow", "remedy": "fix_data", "message": NOT_SHOWN}
    assert SECRET not in json.dumps([summary.to_json(), result])


def test_an_output_that_is_parked_of_a_record_is_told_without_it(tmp_path: Any) -> None:
    sums, counts = (hr.Output(what={"n": aggregate}, **MINUTE_PARTS) for aggregate in (col("n").sum(), hr.count()))
    summary, result = ran((tmp_path / "root").as_uri(), outputs={"sums": sums, "counts": counts})
    assert summary.state is PipelineState.PARKED
    (parked_output,) = (line.parked for line in summary.outputs if line.parked is not None)
    assert (parked_output.code, parked_output.message, parked_output.since) == ("data.integer_overflow", NOT_SHOWN, 0)
    assert result["outputs"]["sums"]["parked"]["message"] == NOT_SHOWN
    assert SECRET not in json.dumps([summary.to_json(), result])


@pytest.mark.parametrize(
    "code", ["unexpected", "data.integer_overflow", "retry.spark_job", "config.spark_function", ""]
)
def test_messages_that_may_quote_a_record_are_hidden(code: str) -> None:
    assert message_without_values(code, SECRET) == NOT_SHOWN


@pytest.mark.parametrize("code", ["restore.broken_object", "config.changed_pipeline", "data.audit_failed", "left_out"])
def test_messages_that_name_definitions_and_objects_are_shown(code: str) -> None:
    assert message_without_values(code, "why") == "why"


def test_warnings_are_counted() -> None:
    assert warnings_without_values([]) == ()
    assert warnings_without_values(["a", SECRET]) == (f"2 warnings: {NOT_SHOWN}",)
