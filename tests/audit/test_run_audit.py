"""Audits by the real Great Expectations, over tables in this process and over Spark DataFrames."""

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from headrace import (
    AfterWatermark,
    DataType,
    Expectation,
    FileSource,
    FixedWindows,
    Input,
    Pipeline,
    accumulating,
    col,
    expect,
)
from headrace.audit.arrow_frames import ArrowFrame
from headrace.audit.range import Frame
from headrace.audit.run import AuditSubject, run_audit
from headrace.audit.store import AuditOutcome, failure_message, read_audit
from headrace.errors import PipelineError
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import to_duration
from headrace.pipeline.quality import ExpectationView
from headrace_snapshots.store import ObjectStore
from headrace_snapshots.store.local import MemoryStore
from tests.process.executors import ExecutorUnderTest, on_both, on_spark

SCHEMA = pa.schema({"origin": pa.string(), "delay": pa.float64()})
ROWS = [("EWR", 12.0), ("JFK", None), ("LGA", -3.5)]


def pipeline(*expectations: Expectation) -> Pipeline:
    return Pipeline(
        name="delays",
        input=Input(
            FileSource(
                "landing/x",
                "json",
                {"at": DataType.TIMESTAMP, "origin": DataType.STRING, "delay": DataType.FLOAT},
            ),
            EventTime(col("at"), BoundedOutOfOrderness(to_duration(timedelta(hours=1)))),
        ),
        key={"origin": col("origin")},
        where=FixedWindows(timedelta(hours=1)),
        when=AfterWatermark(),
        how=accumulating(),
        what={"delay": col("delay").mean()},
        expectations=expectations,
    )


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def frame(executor: ExecutorUnderTest, rows: Sequence[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> Any:
    """``rows`` as audits on that executor see them."""
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)
    return ArrowFrame(table) if executor.spark is None else executor.spark.createDataFrame(table)


@pytest.fixture
def current(executor: ExecutorUnderTest) -> Any:
    return frame(executor, ROWS)


@pytest.fixture
def panes(executor: ExecutorUnderTest) -> Any:
    return frame(executor, [*ROWS, ("EWR", 4.0)])


def audit(store: ObjectStore, panes: Frame, current: Frame, *expectations: Expectation) -> AuditOutcome:
    return run_audit(
        store=store,
        pipeline=pipeline().name,
        from_snapshot=None,
        to_snapshot="s1",
        subject=AuditSubject(
            pipeline(*expectations).expectations,
            lambda view, release: {ExpectationView.PANES: panes, ExpectationView.CURRENT: current}[view],
            identity=["origin"],
        ),
    )


@on_both
def test_what_holds_passes_on_both_views_and_is_kept(store: MemoryStore, panes: Frame, current: Frame) -> None:
    outcome = audit(
        store,
        panes,
        current,
        expect("column_values_to_be_between", column="delay", min_value=-60, max_value=60),
        expect("table_row_count_to_be_between", view="panes", min_value=1),
        expect("column_values_to_be_in_set", column="origin", value_set=["EWR", "JFK", "LGA"]),
    )
    assert outcome.success
    assert outcome.rows == {"panes": 4, "current": 3}
    assert [(f.view, f.name, f.observed, f.unexpected_count) for f in outcome.findings] == [
        ("current", "expect_column_values_to_be_between", None, 0),
        ("panes", "expect_table_row_count_to_be_between", 4, None),
        ("current", "expect_column_values_to_be_in_set", None, 0),
    ]
    assert read_audit(store, "delays", None, "s1") == outcome
    names = [info.path for info in store.list("delays/audits/")]
    assert names == [
        "delays/audits/none--s1/docs/current.html",
        "delays/audits/none--s1/docs/panes.html",
        "delays/audits/none--s1/result.json",
    ]


@on_both
def test_what_fails_is_named_with_what_was_observed_and_the_rows_to_blame(
    store: MemoryStore, panes: Frame, current: Frame
) -> None:
    outcome = audit(
        store,
        panes,
        current,
        expect("column_values_to_not_be_null", column="delay"),
        expect("column_values_to_be_in_set", column="origin", value_set=["EWR"]),
        expect("column_distinct_values_to_equal_set", column="origin", value_set=["EWR"]),
        expect("column_mean_to_be_between", column="delay", max_value=0),
        expect("column_values_to_be_between", column="delay", min_value=-60),
    )
    assert not outcome.success
    assert [(f.success, f.unexpected_count, f.element_count, f.observed) for f in outcome.findings] == [
        (False, 1, 3, None),
        (False, 2, 3, None),
        (False, 2, None, None),
        (False, None, None, 4.25),
        (True, 0, 3, None),
    ]
    assert "expect_column_mean_to_be_between(column='delay', max_value=0) on current: observed 4.25" in failure_message(
        outcome
    )
    for info in store.list("delays/audits/"):
        text = store.read(info.path).decode()
        assert "EWR" in text  # what the pipeline itself says is shown
        if info.path.endswith(".html"):
            assert "LGA" not in text, f"{info.path} shows a value of a row"
    null, others, distinct, *aggregates = ([*finding.failing] for finding in outcome.findings)
    assert null == [{"origin": "JFK", "delay": None}]
    assert others == [{"origin": "JFK"}, {"origin": "LGA"}]
    assert sorted(distinct, key=str) == others
    assert aggregates == [[], []]
    assert read_audit(store, "delays", None, "s1") == outcome


@on_both
@pytest.mark.parametrize(("kind", "value"), [(pa.int64(), 3), (pa.float64(), 2.5)], ids=str)
def test_what_was_observed_is_a_plain_value(
    store: MemoryStore, executor: ExecutorUnderTest, panes: Frame, kind: pa.DataType, value: Any
) -> None:
    current = frame(executor, [(value,), (None,)], pa.schema({"delay": kind}))
    outcome = audit(store, panes, current, expect("column_max_to_be_between", column="delay", max_value=type(value)()))
    (finding,) = outcome.failed
    assert (type(finding.observed), finding.observed) == (type(value), value)
    assert failure_message(outcome).count(f"observed {value!r}") == 1


@on_both
def test_a_frame_without_rows_is_judged_too(store: MemoryStore, executor: ExecutorUnderTest, panes: Frame) -> None:
    outcome = audit(
        store,
        panes,
        frame(executor, []),
        expect("column_values_to_be_between", column="delay", min_value=0),
        expect("column_values_to_not_be_null", column="delay"),
        expect("table_row_count_to_be_between", min_value=1),
    )
    assert [(f.success, f.unexpected_count, f.observed) for f in outcome.findings] == [
        (True, 0, None),
        (True, 0, None),
        (False, None, 0),
    ]
    assert outcome.rows == {"current": 0}


@pytest.mark.parametrize(
    ("expectation", "reason"),
    [
        (expect("column_values_to_not_be_outliers", column="delay", mostly=3), "mostly ensure this value is less than"),
        (expect("column_values_to_not_be_null", column="dealy"), "no column 'dealy'; it has origin, delay"),
        (expect("compound_columns_to_be_unique", column_list=["origin", "dest"]), "no column 'dest'"),
    ],
    ids=lambda value: value.name if isinstance(value, Expectation) else "",
)
def test_a_mistake_in_an_expectation_says_what_to_change_and_keeps_no_result(
    store: MemoryStore, panes: Frame, current: Frame, expectation: Expectation, reason: str
) -> None:
    with pytest.raises(PipelineError, match=reason):
        audit(store, panes, current, expectation)
    assert read_audit(store, "delays", None, "s1") is None


@on_both
def test_an_expectation_that_does_not_suit_its_column_is_no_failed_audit(
    store: MemoryStore, panes: Frame, current: Frame
) -> None:
    from headrace.audit.gx_library import ExpectationNotEvaluatedError

    with pytest.raises(ExpectationNotEvaluatedError, match=r"expect_column_mean_to_be_between.*cannot be evaluated"):
        audit(store, panes, current, expect("column_mean_to_be_between", column="origin", min_value=0))
    assert read_audit(store, "delays", None, "s1") is None


def test_the_result_is_written_last(panes: Frame, current: Frame) -> None:
    class WatchedStore(MemoryStore):
        written: list[str] = []

        def write(self, path: str, data: bytes) -> object:
            self.written.append(path)
            return super().write(path, data)

    watched_source = WatchedStore()
    audit(watched_source, panes, current, expect("table_row_count_to_be_between", min_value=1))
    assert watched_source.written == ["delays/audits/none--s1/docs/current.html", "delays/audits/none--s1/result.json"]
    assert json.loads(watched_source.read(watched_source.written[-1]))["success"] is True


@on_spark
def test_the_session_is_left_as_it_was(
    executor: ExecutorUnderTest, store: MemoryStore, panes: Any, current: Any
) -> None:
    spark = executor.spark
    settings_before = dict(spark.conf.getAll)
    audit(store, panes, current, expect("table_row_count_to_be_between", min_value=1))
    assert dict(spark.conf.getAll) == settings_before
    assert not current.is_cached
    assert current.count() == len(ROWS)


def test_great_expectations_says_nothing_in_the_log_and_draws_no_progress_bar(
    store: MemoryStore,
    panes: Frame,
    current: Frame,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with caplog.at_level(logging.INFO):
        outcome = audit(
            store, panes, current, expect("column_distinct_values_to_equal_set", column="origin", value_set=["EWR"])
        )
    assert not outcome.success
    assert [record.message for record in caplog.records if record.name.startswith("great_expectations")] == []
    assert "Calculating Metrics" not in "".join(capfd.readouterr())


@pytest.mark.slow
def test_a_pipeline_without_expectations_passes_without_great_expectations() -> None:
    program = """
import sys
from headrace.audit.arrow_frames import ArrowFrame
from headrace.audit.range import Frame
from headrace.audit.run import AuditSubject, run_audit
from headrace_snapshots.store.local import MemoryStore
outcome = run_audit(
    store=MemoryStore(), pipeline="p", from_snapshot="s1", to_snapshot="s2", subject=AuditSubject((), None)
)
print(outcome.success, outcome.findings, "great_expectations" in sys.modules)
"""
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "True () False"


@pytest.mark.slow
def test_what_few_expectations_need_is_imported_by_those_that_need_it() -> None:
    program = """
import sys
import pyarrow as pa
from headrace.audit.arrow_frames import ArrowFrame
from headrace.audit.gx_library import leave_out_spark
from headrace.audit.gx_runner import evaluate_expectations
from headrace import (expect)
from headrace.pipeline.quality import ExpectationView
leave_out_spark()
frame = ArrowFrame(pa.table({"origin": ["EWR", "JFK", "JFK", "EWR"]}))
plain = expect("table_row_count_to_be_between", min_value=1)
evenly = {"values": ["EWR", "JFK"], "weights": [0.5, 0.5]}
alike = expect(
    "column_kl_divergence_to_be_less_than", column="origin", partition_object=evenly, threshold=0.01
)
for expectation in (plain, alike):
    (finding,) = evaluate_expectations(ExpectationView.CURRENT, [expectation], frame).findings
    print(finding.success, "scipy.stats" in sys.modules, "altair" in sys.modules)
print([name for name in ("pyspark", "sqlalchemy") if name in sys.modules])
"""
    lines = subprocess.check_output([sys.executable, "-c", program], text=True).splitlines()
    assert lines == ["True False False", "True True True", "[]"]  # altair draws what was found of it
