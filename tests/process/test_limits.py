"""Limits of a pipeline in its runs: what is held back, what warns, and what a producer that has stopped looks like."""

import json
import os
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.audit.limits import check_limits
from headrace.audit.store import LimitExceededError, StaleDataError, read_audit
from headrace.pipeline.quality import Severity
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.results import RunResult, from_json, to_json
from headrace_lab.actions import audit, recover
from headrace_lab.fault_plans import HoldRequest, Operation, disturb_stores
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import PublishConflictError
from headrace_snapshots.names import MAIN, PUBLISHED
from headrace_snapshots.store import open_store

START = datetime(2026, 11, 20, 12, tzinfo=UTC)
CLICKS = hr.json("landing/clicks", {"user": str, "at": datetime}).event_time("at", bound="0s")
VIEWS = hr.json("landing/views", {"user": str, "at": datetime}).event_time("at", bound="0s").named("views")


def clicks(limits: hr.Limits | None, **options: Any) -> hr.Pipeline:
    """Clicks per user and minute."""
    return hr.Pipeline(
        "clicks",
        CLICKS,
        key="user",
        what={"clicks": hr.count()},
        where=hr.FixedWindows("1m"),
        when=hr.on_update(),
        executor="local",
        limits=limits,
        **options,
    )


@dataclass
class LimitsDeployment:
    """A root whose clock stands at ``clock``; files land at that time."""

    folder: Path
    clock: datetime = START
    runs: int = 0

    @property
    def root(self) -> str:
        return self.folder.as_uri()

    @property
    def catalog(self) -> Catalog:
        return Catalog(open_store(self.root), "clicks")

    def land(
        self, name: str, good: int = 0, bad: int = 0, time: datetime | None = None, folder: str = "clicks"
    ) -> None:
        """Land a file with so many good and bad records, which happened at ``time``, by default now."""
        line = json.dumps({"user": "ada", "at": (time or self.clock).isoformat()})
        file = self.folder / "landing" / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{record}\n" for record in [line] * good + ["oops"] * bad))
        os.utime(file, (self.clock.timestamp(),) * 2)

    def options(self, *, publish: bool = True, branch: str = MAIN, **options: Any) -> RunOptions:
        self.runs += 1
        return RunOptions(f"run-{self.runs}", publish=publish, branch=branch, **options)

    def run(self, pipeline: hr.Pipeline, *, publish: bool = True) -> RunResult:
        return process(pipeline, self.root, self.options(publish=publish), now=lambda: self.clock)

    def is_published(self) -> bool:
        refs = self.catalog.head().refs
        return refs[MAIN] == refs.get(PUBLISHED)


@pytest.fixture
def deployment(tmp_path: Path) -> LimitsDeployment:
    """An empty root."""
    return LimitsDeployment(tmp_path)


def findings_by_limit(result: RunResult) -> dict[str, tuple[Severity | None, float | None]]:
    """What a run found beside each limit."""
    return {finding.name: (finding.severity, finding.observed) for finding in result.limits}


# --- records ----------------------------------------------------------------------------------------------------------

TOLERANT = clicks(hr.Limits(rejected=hr.limit(warn="10%", fail="20%")))
AGED = clicks(hr.Limits(rejected="20%", watermark_age=hr.limit(fail="2h")))


def test_a_run_whose_every_record_is_rejected_is_not_published(deployment: LimitsDeployment) -> None:
    deployment.land("1.json", good=9)
    deployment.run(TOLERANT)
    deployment.land("2.json", bad=3)
    with pytest.raises(
        LimitExceededError, match=r"dead letters: 3 of 3 records \(100.00%\); the limit is 20%"
    ) as error:
        deployment.run(TOLERANT)
    assert (error.value.code, error.value.exit_code) == ("data.limit_exceeded", 20)
    assert "headrace release clicks" in str(error.value)
    assert not deployment.is_published()


def test_what_a_run_holds_back_is_no_error_of_it_where_somebody_else_says_so(deployment: LimitsDeployment) -> None:
    def ran() -> RunResult:
        options = deployment.options(defer_verdict=True)
        return process(AGED, deployment.root, options, now=lambda: deployment.clock)

    deployment.land("1.json", good=9, bad=9)
    result = ran()
    assert result.audit is not None
    assert (result.audit.success, result.published) == (False, None)
    deployment.land("2.json", good=82)
    assert ran().published is not None
    assert deployment.is_published()
    deployment.clock += timedelta(hours=3)
    stale = ran()
    assert [finding.severity for finding in stale.limits if finding.is_age] == [Severity.FAIL]
    assert (stale.status, stale.epochs, deployment.is_published()) == ("succeeded", (), True)


def test_what_somebody_published_meanwhile_stands(deployment: LimitsDeployment) -> None:
    catalog = deployment.catalog

    def release_main() -> None:
        refs = catalog.head().refs
        if refs[MAIN] != refs.get(PUBLISHED):
            catalog.release(refs[MAIN], "ada: she is quicker")

    def release_while_audited(operation: Operation) -> HoldRequest | None:
        is_audit = operation.kind == "put" and "/audits/" in operation.path
        return HoldRequest(release_main) if is_audit else None

    deployment.land("1.json", good=1)
    with disturb_stores(release_while_audited):
        result = process(TOLERANT, deployment.root, deployment.options(defer_verdict=True))
    assert (result.published, deployment.is_published()) == (result.snapshot, True)
    deployment.land("2.json", good=1)
    with disturb_stores(release_while_audited), pytest.raises(PublishConflictError):
        process(TOLERANT, deployment.root, deployment.options())


def test_a_share_is_of_all_that_readers_have_not_seen(deployment: LimitsDeployment) -> None:
    deployment.land("1.json", good=4, bad=4)
    assert findings_by_limit(deployment.run(TOLERANT, publish=False)) == {"rejected": (Severity.FAIL, 0.5)}
    deployment.land("2.json", good=17)
    result = deployment.run(TOLERANT)
    assert findings_by_limit(result) == {"rejected": (Severity.WARN, 0.16)}
    assert result.warnings == ("dead letters: 4 of 25 records (16.00%); the limit is 10%",)
    assert deployment.is_published()


def test_what_a_run_found_is_in_its_result_and_its_audit(deployment: LimitsDeployment) -> None:
    deployment.land("1.json", good=19, bad=1)
    result = deployment.run(TOLERANT)
    assert findings_by_limit(result) == {"rejected": (None, 0.05)}
    assert from_json(to_json(result)) == result
    assert result.snapshot is not None
    stored_audit = read_audit(deployment.catalog.store, "clicks", None, result.snapshot)
    assert stored_audit is not None
    assert stored_audit.limits == result.limits


def test_late_drops_have_a_limit_of_their_own_instead_of_the_general_warning(deployment: LimitsDeployment) -> None:
    pipeline = clicks(hr.Limits(late="40%"), how=hr.retracting("0s"))
    deployment.land("1.json", good=6)
    deployment.run(pipeline)
    deployment.land("2.json", good=3)
    deployment.land("3.json", good=1, time=START - timedelta(hours=2))
    result = deployment.run(pipeline)
    assert (result.counts["late_dropped"], result.warnings) == (1, ())
    deployment.land("4.json", good=1, time=START - timedelta(hours=2))
    with pytest.raises(LimitExceededError, match="late drops: 1 of 1 records"):
        deployment.run(pipeline)


def test_a_run_of_which_most_records_are_dead_letters_warns(deployment: LimitsDeployment) -> None:
    pipeline = clicks(None)
    deployment.land("1.json", good=2, bad=2)
    assert deployment.run(pipeline).warnings == ()
    deployment.land("2.json", good=2, bad=3)
    result = deployment.run(pipeline)
    assert [warning.partition(",")[0] for warning in result.warnings] == ["3 of 5 records are dead letters"]
    assert from_json(to_json(result)).warnings == result.warnings  # what a page shows of it
    limited_pipeline = clicks(hr.Limits(rejected=hr.limit(warn="90%")))
    deployment.land("3.json", good=1, bad=3)
    assert deployment.run(limited_pipeline).warnings == ()


def test_an_input_of_which_most_is_dead_letters_is_named_however_many_others_have(deployment: LimitsDeployment) -> None:
    pipeline = clicks(None, union=[VIEWS])
    deployment.land("1.json", good=20)
    deployment.land("1.json", good=2, bad=3, folder="views")
    result = deployment.run(pipeline)
    (warning,) = result.warnings
    assert warning.startswith("input views: 3 of 5 records are dead letters")
    assert from_json(to_json(result)).warnings == result.warnings
    deployment.land("2.json", good=1, bad=4)
    deployment.land("2.json", good=9, bad=4, folder="views")
    (warning,) = deployment.run(pipeline).warnings  # the other one: not half of all
    assert warning.startswith("input source: 4 of 5 records are dead letters")
    deployment.land("3.json", good=2, bad=2, folder="views")
    assert deployment.run(pipeline).warnings == ()


def test_records_of_all_epochs_of_a_run_count_for_an_input(deployment: LimitsDeployment) -> None:
    pipeline = clicks(None, union=[VIEWS])
    deployment.land("0.json", good=1)
    deployment.land("1.json", good=1, bad=2, folder="views")
    deployment.land("2.json", good=8, folder="views")
    options = replace(deployment.options(), files_per_epoch=1)
    result = process(pipeline, deployment.root, options, now=lambda: deployment.clock)
    assert (len(result.epochs), result.warnings) == (2, ())


def test_a_limit_that_a_person_raises_counts_in_the_next_run(deployment: LimitsDeployment) -> None:
    deployment.land("1.json", good=1, bad=1)
    with pytest.raises(LimitExceededError):
        deployment.run(TOLERANT)
    assert audit(TOLERANT, deployment.root, deployment.options(publish=False)).audit is not None
    deployment.run(clicks(hr.Limits(rejected=1)))
    assert deployment.is_published()


def test_a_released_share_is_not_asked_about_again_after_a_recovery(deployment: LimitsDeployment) -> None:
    deployment.land("1.json", good=9)
    good = deployment.run(TOLERANT).snapshot
    deployment.land("2.json", bad=3)
    with pytest.raises(LimitExceededError):
        deployment.run(TOLERANT)
    entry = deployment.catalog.release(deployment.catalog.head().refs[MAIN], "ada: the test of a producer").number
    deployment.land("3.json", good=5)
    deployment.run(TOLERANT)

    recovered_result = recover(TOLERANT, deployment.root, deployment.options(snapshot=good))
    (finding,) = recovered_result.limits
    assert (finding.severity, finding.observed, finding.released) == (None, 0.0, (entry,))
    assert deployment.is_published()
    assert any("released" in warning for warning in recovered_result.warnings)

    deployment.land("4.json", good=1, bad=1)
    with pytest.raises(LimitExceededError, match="1 of 2 records"):
        deployment.run(TOLERANT)


def test_a_branch_is_held_back_from_a_promotion_and_has_no_age(deployment: LimitsDeployment) -> None:
    pipeline = clicks(hr.Limits(rejected="1%", watermark_age="1m", newest_file="1m"))
    deployment.land("1.json", good=1, bad=1)
    deployment.clock += timedelta(hours=1)
    result = process(pipeline, deployment.root, deployment.options(publish=False, branch="other"))
    assert findings_by_limit(result) == {"rejected": (Severity.FAIL, 0.5)}
    with pytest.raises(LimitExceededError):
        hr.open(deployment.root)["clicks"].promote("other")


# --- ages -------------------------------------------------------------------------------------------------------------

FRESH = clicks(hr.Limits(watermark_age="2h", newest_file=hr.limit(warn="1h", fail="3h")))


def test_a_producer_that_has_stopped_is_told_by_runs_that_find_nothing(deployment: LimitsDeployment) -> None:
    deployment.land("1.json", good=1)
    result = deployment.run(FRESH)
    assert findings_by_limit(result) == {"watermark_age": (None, 0.0), "newest_file": (None, 0.0)}
    deployment.clock += timedelta(minutes=90)
    result = deployment.run(FRESH)
    assert (result.status, result.epochs) == ("succeeded", ())
    assert findings_by_limit(result) == {"watermark_age": (None, 5400.0), "newest_file": (Severity.WARN, 5400.0)}
    age_text = "age of the newest file: 1h 30m, of input source, landed at 2026-11-20T12:00:00Z; the limit is 1h"
    assert result.warnings == (age_text,)

    deployment.clock += timedelta(hours=2)
    assert findings_by_limit(deployment.run(FRESH, publish=False))["newest_file"] == (Severity.FAIL, 12600.0)
    with pytest.raises(StaleDataError, match="age of the newest file: 3h 30m") as stale:
        deployment.run(FRESH)
    assert (stale.value.code, stale.value.exit_code) == ("data.stale", 20)


def test_a_new_file_ends_it_although_the_watermark_is_old(deployment: LimitsDeployment) -> None:
    deployment.land("1.json", good=1)
    deployment.run(FRESH)
    deployment.clock += timedelta(hours=4)
    deployment.land("2.json", good=1, time=START + timedelta(minutes=1))
    result = deployment.run(FRESH)
    assert findings_by_limit(result) == {"watermark_age": (Severity.WARN, 14340.0), "newest_file": (None, 0.0)}
    assert "which is at 2026-11-20T12:01:00Z, held back by input source; the limit is 2h" in result.warnings[0]
    assert deployment.is_published()


def test_an_age_that_fails_holds_new_epochs_back_until_it_holds(deployment: LimitsDeployment) -> None:
    pipeline = clicks(hr.Limits(watermark_age=hr.limit(fail="1h")))
    deployment.land("1.json", good=1, time=START - timedelta(hours=2))
    with pytest.raises(LimitExceededError, match="age of the watermark: 2h"):
        deployment.run(pipeline)
    assert not deployment.is_published()
    deployment.land("2.json", good=1)
    deployment.run(pipeline)
    assert deployment.is_published()


def test_a_pipeline_that_never_read_anything_is_older_than_any_limit(deployment: LimitsDeployment) -> None:
    result = process(FRESH, deployment.root, deployment.options(publish=False, create=True))
    assert findings_by_limit(result) == {"watermark_age": (Severity.WARN, None), "newest_file": (Severity.FAIL, None)}
    assert "age of the watermark: there is none yet of any input; the limit is 2h" in result.warnings


def test_each_input_must_be_fresh(deployment: LimitsDeployment) -> None:
    both = clicks(hr.Limits(newest_file="1h"), union=[VIEWS])
    deployment.land("1.json", good=1)
    deployment.land("1.json", good=1, folder="views")
    deployment.run(both)
    deployment.clock += timedelta(hours=2)
    deployment.land("2.json", good=1)
    assert "of input views, landed at 2026-11-20T12:00:00Z" in deployment.run(both).warnings[0]


def test_input_that_has_ended_has_no_age(deployment: LimitsDeployment) -> None:
    deployment.land("1.json", good=1)
    pipeline = clicks(hr.Limits(watermark_age="1h"))
    process(pipeline, deployment.root, deployment.options(mode=Mode.BATCH), now=lambda: deployment.clock)
    deployment.clock += timedelta(days=1)
    assert findings_by_limit(deployment.run(pipeline)) == {"watermark_age": (None, 0.0)}


def test_where_a_store_does_not_say_when_files_landed_the_last_epoch_that_read_one_counts(
    deployment: LimitsDeployment,
) -> None:
    store = open_store("memory://limits-without-times")
    line = json.dumps({"user": "ada", "at": START.isoformat()})
    store.write("landing/clicks/1.json", f"{line}\n".encode())
    pipeline = clicks(hr.Limits(newest_file="1h"))
    process(pipeline, store.uri, RunOptions("first", publish=True), now=lambda: START)
    later_result = process(pipeline, store.uri, RunOptions("second"), now=lambda: START + timedelta(minutes=61))
    assert findings_by_limit(later_result) == {"newest_file": (Severity.WARN, 3660.0)}


def test_an_age_costs_a_listing(deployment: LimitsDeployment) -> None:
    deployment.land("1.json", good=1)
    deployment.run(FRESH)
    catalog = deployment.catalog
    requests_before = catalog.store.requests.snapshot()
    check_limits(FRESH, catalog, MAIN, {"": None}, lambda: deployment.clock)
    requests_made = catalog.store.requests.since(requests_before)
    assert (requests_made["list"], requests_made["put"], requests_made["create"]) == (2, 0, 0), (
        "the end of the log, and what has landed"
    )
