"""What a run on Spark audits with Spark, since there is much of it, and what it does not: the same is found."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace import Pipeline, expect
from headrace.distribute.spark.application import DataFrame, SparkSession
from headrace.pipeline.loading.registry import registered_files
from headrace.runs.executors.on_spark import AUDIT_BYTES
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.results import RunResult
from headrace.this_process import SizeError
from headrace_lab.actions import audit
from headrace_snapshots.format.codec import BrokenObjectError, unseal_fields
from headrace_snapshots.store import open_store
from tests.process.clicks import clicks, land

KEY = ["user", "window_start", "window_end"]
EXPECTED = (
    expect("column_values_to_be_between", column="spent", min_value=1, max_value=90),
    expect("column_values_to_be_between", column="spent", min_value=0, max_value=1000, view="panes"),
    expect("column_values_to_be_in_set", column="user", value_set=["u1", "u2", "u3"]),
    expect("column_values_to_be_unique", column="window_start"),
    expect("column_values_to_match_regex", column="user", regex="^u[0-9]$"),
    expect("column_values_to_not_be_null", column="spent"),
    expect("column_pair_values_a_to_be_greater_than_b", column_A="spent", column_B="clicks", or_equal=True),
    expect("column_pair_values_a_to_be_greater_than_b", column_A="window_end", column_B="window_start", view="panes"),
    expect("compound_columns_to_be_unique", column_list=KEY),
    expect("compound_columns_to_be_unique", column_list=KEY, view="panes"),
    expect("table_row_count_to_be_between", min_value=1, max_value=3),
    expect("column_max_to_be_between", column="spent", max_value=20),
    expect("column_mean_to_be_between", column="clicks", max_value=1, view="panes"),
    expect("column_distinct_values_to_be_in_set", column="timing", value_set=["EARLY"], view="panes"),
)
"""Those that pipelines of Headrace use, so that some hold and some do not, and some more."""

PIPELINE = clicks(expectations=EXPECTED, name="audited")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Epochs that readers see, and more that change what they see."""
    land(tmp_path, 0, 2)
    process(clicks(name="audited"), tmp_path.as_uri(), RunOptions("first", executor="local", publish=True))
    land(tmp_path, 2, 4)
    process(clicks(name="audited"), tmp_path.as_uri(), RunOptions("second", executor="local"))
    return tmp_path


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The kinds of frames that are evaluated from now on."""
    from headrace.audit import gx_runner  # four seconds that the quick tests need not wait for

    frame_types: list[type] = []
    evaluate = gx_runner.evaluate_expectations

    def watch_call(view: Any, expectations: Any, frame: Any, identity: Any) -> Any:
        frame_types.append(type(frame))
        return evaluate(view, expectations, frame, identity)

    monkeypatch.setattr(gx_runner, "evaluate_expectations", watch_call)
    return frame_types


def audit_result(root: Path, spark: SparkSession, pipeline: Pipeline = PIPELINE) -> dict[str, Any]:
    """The result that an audit on Spark stores, but for when."""
    store = open_store(root.as_uri())
    for file in list(store.list("audited/audits/")):
        store.delete(file.path)
    run_result: RunResult = audit(pipeline, root.as_uri(), RunOptions("audit", executor="spark"), spark=spark)
    assert run_result.audit is not None
    document = unseal_fields(json.loads(store.read(f"{run_result.audit.path}/result.json")))
    for finding in document["expectations"]:  # Spark meets them in another order
        finding["failing"] = len(finding["failing"])
    return {name: value for name, value in document.items() if name != "finished_at"}


def test_all_that_pipelines_expect_is_among_it() -> None:
    pipelines = registered_files().pipelines.values()
    used = {expectation.name for each in pipelines for expectation in each.pipeline.expectations}
    assert used <= {expectation.name for expectation in EXPECTED}


@pytest.mark.spark
@pytest.mark.slow
def test_with_spark_and_without_the_same_is_found(
    root: Path, spark: SparkSession, frames: list[type], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = audit_result(root, spark)
    assert not any(issubclass(kind, DataFrame) for kind in frames)
    frames.clear()
    monkeypatch.setenv(AUDIT_BYTES, "0")
    large = audit_result(root, spark)
    assert len(frames) == 2
    assert all(issubclass(kind, DataFrame) for kind in frames)
    assert large == small
    assert {finding["success"] for finding in large["expectations"]} == {True, False}


@pytest.mark.spark
@pytest.mark.slow
def test_a_file_that_is_not_what_was_written_is_found_by_spark_too(
    root: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUDIT_BYTES, "0")
    file = max((root / "audited").rglob("panes-*.parquet"), key=lambda each: each.stat().st_mtime)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(BrokenObjectError, match=file.name):
        audit_result(root, spark)


@pytest.mark.slow
def test_a_bound_that_is_no_size_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(AUDIT_BYTES, "much")
    with pytest.raises(SizeError, match="HEADRACE_AUDIT_BYTES=much"):
        audit(PIPELINE, root.as_uri(), RunOptions("audit", executor="spark"))
