"""What is kept of an audit, and what publish and people read from it. No Great Expectations, no Spark."""

import json
import subprocess
import sys
from dataclasses import replace
from datetime import datetime

import pytest

from headrace import expect, usual_nulls
from headrace.audit.limits import AgeMeasurement, LimitFinding, age_finding
from headrace.audit.store import (
    AuditDamagedError,
    AuditFailedError,
    AuditFormatError,
    AuditOutcome,
    ColumnMeasure,
    Finding,
    LimitExceededError,
    UnusualDataError,
    UsualFinding,
    UsualOutcome,
    VersionMeasure,
    ViewMeasure,
    audit_error,
    failure_message,
    is_publishable,
    read_audit,
    with_limits,
    write_audit,
)
from headrace.errors import PipelineError
from headrace.model.time import Duration, Instant
from headrace.pipeline.quality import ExpectationView, Limit, Severity
from headrace_snapshots.names import audit_folder
from headrace_snapshots.store.local import MemoryStore

HOUR = Duration(3_600_000_000)
POSITIVE = Finding(
    "expect_column_values_to_be_between",
    {"column": "flights", "min_value": 0},
    ExpectationView.CURRENT,
    True,
    None,
    0,
    7,
)
MEAN = Finding(
    "expect_column_mean_to_be_between", {"column": "delay", "max_value": 60}, ExpectationView.PANES, False, 61.5
)
NULLS = Finding("expect_column_values_to_not_be_null", {"column": "delay"}, ExpectationView.CURRENT, False, None, 2, 7)


def outcome(*findings: Finding, start: str | None = "s1", end: str = "s2") -> AuditOutcome:
    success = all(finding.success for finding in findings)
    return AuditOutcome("flights", start, end, success, findings, "2026-11-21T00:00:00Z", {ExpectationView.CURRENT: 7})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.mark.parametrize("start", [None, "s1"])
def test_an_audit_is_read_back_as_it_was(store: MemoryStore, start: str | None) -> None:
    kept_outcome = outcome(POSITIVE, MEAN, NULLS, start=start)
    write_audit(store, kept_outcome)
    assert read_audit(store, "flights", start, "s2") == kept_outcome


def test_the_stored_document_is_the_one_that_the_architecture_promises(store: MemoryStore) -> None:
    write_audit(store, outcome(MEAN, start=None))
    document = json.loads(store.read("flights/audits/none--s2/result.json"))
    assert len(document.pop("sha256")) == 64
    assert document == {
        "format": 1,
        "from": None,
        "to": "s2",
        "success": False,
        "expectations": [
            {
                "name": "expect_column_mean_to_be_between",
                "arguments": {"column": "delay", "max_value": 60},
                "view": "panes",
                "success": False,
                "observed": 61.5,
                "unexpected_count": None,
                "element_count": None,
                "failing": [],
                "released": [],
            }
        ],
        "rows": {"current": 7},
        "finished_at": "2026-11-21T00:00:00Z",
    }


def test_only_the_audit_of_exactly_the_range_counts(store: MemoryStore) -> None:
    write_audit(store, outcome(POSITIVE))
    assert read_audit(store, "flights", None, "s2") is None
    assert read_audit(store, "flights", "s1", "s3") is None
    assert read_audit(store, "delays", "s1", "s2") is None


def test_an_audit_copied_to_another_range_is_not_believed(store: MemoryStore) -> None:
    write_audit(store, outcome(POSITIVE))
    content = store.read(f"{audit_folder('flights', 's1', 's2')}/result.json")
    store.write(f"{audit_folder('flights', 's1', 's9')}/result.json", content)
    with pytest.raises(AuditDamagedError, match="another range"):
        read_audit(store, "flights", "s1", "s9")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "from": "s1", "to": "s2"}'])
def test_a_damaged_audit_is_named_not_believed(store: MemoryStore, data: bytes) -> None:
    store.write(f"{audit_folder('flights', 's1', 's2')}/result.json", data)
    with pytest.raises(AuditDamagedError, match=r"flights/audits/s1--s2/result\.json"):
        read_audit(store, "flights", "s1", "s2")


@pytest.mark.slow
def test_an_audit_with_any_bit_flipped_is_not_believed(store: MemoryStore) -> None:
    write_audit(store, outcome(POSITIVE, replace(MEAN, observed=float("nan"))))
    path = f"{audit_folder('flights', 's1', 's2')}/result.json"
    content = store.read(path)
    read_audit(store, "flights", "s1", "s2")
    for place in range(len(content) * 8):
        data = bytearray(content)
        data[place // 8] ^= 1 << place % 8
        store.write(path, bytes(data))
        with pytest.raises((AuditDamagedError, AuditFormatError)):
            read_audit(store, "flights", "s1", "s2")


def test_an_audit_of_a_newer_format_asks_for_an_upgrade(store: MemoryStore) -> None:
    store.write(f"{audit_folder('flights', 's1', 's2')}/result.json", b'{"format": 2}')
    with pytest.raises(AuditFormatError, match="upgrade"):
        read_audit(store, "flights", "s1", "s2")


def test_the_message_names_what_failed_with_what_was_observed_and_the_ways_out() -> None:
    message = failure_message(outcome(POSITIVE, MEAN, NULLS))
    assert "2 of 3 expectations failed on (s1, s2]" in message
    assert "expect_column_mean_to_be_between(column='delay', max_value=60) on panes: observed 61.5" in message
    assert "expect_column_values_to_not_be_null(column='delay') on current: 2 of 7 values are unexpected" in message
    assert "min_value=0" not in message  # what held is not a reason
    assert "Land a correction" in message
    assert "flights/audits/s1--s2/docs" in message
    assert max(map(len, message.splitlines()[:-1])) < 120  # a line each: what follows runs off the edge of a log


REJECTED_FINDING = LimitFinding(
    "rejected", {Severity.FAIL: "1%"}, Severity.FAIL, 0.5, "1 of 2 records (50.00%)", released=(7,)
)
STALE = age_finding("newest_file", Limit(warn=HOUR), AgeMeasurement(Instant(0), "of input own"), Instant(2 * HOUR))


def test_limits_are_kept_with_the_audit_and_decide_with_the_expectations(store: MemoryStore) -> None:
    held_limits = with_limits(store, outcome(POSITIVE), (REJECTED_FINDING, STALE))
    assert not held_limits.success
    assert held_limits.exceeded == (REJECTED_FINDING,)
    assert read_audit(store, "flights", "s1", "s2") == held_limits
    assert isinstance(audit_error(held_limits), LimitExceededError)
    assert with_limits(store, held_limits, (STALE,)).success
    assert not with_limits(store, outcome(MEAN), (STALE,)).success


def test_the_message_names_expectations_and_limits_that_fail() -> None:
    both = replace(outcome(POSITIVE, MEAN), limits=(REJECTED_FINDING, STALE))
    assert type(audit_error(both)) is AuditFailedError
    message = failure_message(both)
    assert "1 of 2 expectations failed and 1 of 2 limits are exceeded on (s1, s2]" in message
    text = "dead letters: 1 of 2 records (50.00%) (without the records that log entry 7 released); the limit is 1%"
    assert f"\n  {text}\n" in message
    assert "Data docs" not in failure_message(replace(both, findings=()))


USUAL = usual_nulls("delay", points=5)
UNUSUAL = UsualFinding(USUAL, Severity.FAIL, 0.5, 0.0, 5, "half is NULL", failing=({"origin": "EWR"},), released=(7,))


def test_what_is_not_as_usual_is_kept_and_decides_with_the_expectations(store: MemoryStore) -> None:
    rows = {ExpectationView.CURRENT: ViewMeasure(7, {"delay": ColumnMeasure(3, quantiles=(1.0, 2.5))})}
    usual_outcome = UsualOutcome("s0", VersionMeasure("s2", 12, 60, rows), (UNUSUAL,))
    held_outcome = replace(
        outcome(POSITIVE), usual=usual_outcome, success=is_publishable((POSITIVE,), (), usual_outcome)
    )
    assert not held_outcome.success
    write_audit(store, held_outcome)
    assert read_audit(store, "flights", "s1", "s2") == held_outcome
    assert isinstance(audit_error(held_outcome), UnusualDataError)
    assert type(audit_error(replace(held_outcome, findings=(MEAN,)))) is AuditFailedError
    text = "1 of 1 figures are not as usual on (s1, s2]"
    assert text in failure_message(held_outcome)
    assert "\n  half is NULL (without what log entry 7 released)\n" in failure_message(held_outcome)
    assert "EWR" not in failure_message(held_outcome)
    assert not with_limits(store, held_outcome, (STALE,)).success
    declared_expectations = [expect("column_values_to_be_between", column="flights", min_value=0)]
    assert held_outcome.covers(declared_expectations, [USUAL])
    assert not held_outcome.covers(declared_expectations)
    assert not held_outcome.covers(declared_expectations, [usual_nulls("delay", points=6)])


def test_an_audit_from_before_there_were_checks_against_history_is_read(store: MemoryStore) -> None:
    write_audit(store, outcome(POSITIVE))
    assert "usual" not in json.loads(store.read("flights/audits/s1--s2/result.json"))
    kept_audit = read_audit(store, "flights", "s1", "s2")
    assert kept_audit is not None
    assert (kept_audit.usual, kept_audit.unusual) == (None, ())


def test_an_age_goes_on_while_nothing_comes() -> None:
    assert STALE.describe() == "age of the newest file: 2h, of input own; the limit is 1h"
    assert STALE.as_of(Instant(HOUR)).severity is None
    later_finding = STALE.as_of(Instant(30 * HOUR))
    assert (later_finding.severity, later_finding.observed, later_finding.since) == (
        Severity.WARN,
        108000.0,
        STALE.since,
    )
    assert REJECTED_FINDING.as_of(Instant(30 * HOUR)) == REJECTED_FINDING


def test_an_audit_covers_the_expectations_that_it_was_made_with_and_no_others() -> None:
    made_outcome = outcome(POSITIVE, NULLS)
    expectation = expect("column_values_to_be_between", column="flights", min_value=0)
    nulls = expect("column_values_to_not_be_null", column="delay")
    assert made_outcome.covers([expectation, nulls])
    assert not made_outcome.covers([expectation])
    assert not made_outcome.covers([expectation, expect("column_values_to_not_be_null", view="panes", column="delay")])
    assert not made_outcome.covers([expect("column_values_to_be_between", column="flights", min_value=1), nulls])


def test_arguments_are_compared_as_they_are_kept(store: MemoryStore) -> None:
    expectation = expect("column_values_to_be_in_set", column="airport", value_set=("JFK", "LGA"))  # type: ignore[arg-type]
    finding = Finding(expectation.name, expectation.arguments, expectation.view, success=True)
    write_audit(store, AuditOutcome("flights", None, "s1", True, (finding,), "2026-01-01T00:00:00Z"))
    kept_audit = read_audit(store, "flights", None, "s1")
    assert kept_audit is not None
    assert kept_audit.covers([expectation])
    with pytest.raises(PipelineError, match="datetime"):
        expect("column_values_to_be_between", column="at", min_value=datetime(2026, 1, 1))  # type: ignore[arg-type]


def test_what_publish_imports_brings_neither_spark_nor_great_expectations() -> None:
    program = (
        "import sys, headrace.audit.store;"
        "print([name for name in ('pyspark', 'great_expectations') if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "[]"
