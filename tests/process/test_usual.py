"""Runs against history: what is not as usual is held back, or warns; which versions are history, and what they cost."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.audit.store import AuditOutcome, UnusualDataError, read_audit, read_history
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.quality import ExpectationView, Severity
from headrace.runs.executors.on_spark import AUDIT_BYTES
from headrace.runs.maintenance import check, expire_snapshots, keep_rule
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.results import RunResult, from_json, to_json
from headrace_lab.actions import audit
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import MAIN, PUBLISHED, history_path, published_of
from headrace_snapshots.store import open_store
from headrace_snapshots.testing import Operation, disturb_stores
from tests.process.executors import LOCAL, Executed, on_both

START = datetime(2026, 11, 20, tzinfo=UTC)
SHOPS = 40
EARLY = {"min_versions": 2, "min_rows": 20}
USUAL = (
    hr.usual_volume(within=1.3, min_versions=2),
    hr.usual_nulls("amount", points=5, **EARLY),
    hr.usual_distribution("amount", distance=0.3, **EARLY),
    hr.usual_distribution("mood", distance=0.2, **EARLY),
)


def orders(*usual: Any, executor: str = "local", **options: Any) -> hr.Pipeline:
    """Orders per shop and hour."""
    return hr.Pipeline(
        "orders",
        hr.json("landing/orders", {"shop": str, "at": datetime, "amount": int, "mood": str}, max_files=1).event_time(
            "at", bound="0s"
        ),
        key="shop",
        what={"orders": hr.count(), "amount": hr.col("amount").max(), "mood": hr.col("mood").max()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting("1d"),
        executor=executor,
        usual=usual,
        **options,
    )


ORDERS = orders(*USUAL)


@dataclass
class Deployed:
    """A root to which an hour of orders lands in each file; a run reads, audits and publishes it."""

    folder: Path
    hours: int = 0
    runs: int = 0

    @property
    def root(self) -> str:
        return self.folder.as_uri()

    @property
    def catalog(self) -> Catalog:
        return Catalog(open_store(self.root), "orders")

    @property
    def refs(self) -> Mapping[str, str]:
        return self.catalog.head().refs

    def land(self, each: int = 2, **other: Any) -> None:
        """An hour in which every shop has so many orders; ``other``: what they have instead of the usual."""
        begin = START + timedelta(hours=self.hours)
        orders_of = [
            {"shop": f"s{shop:02}", "at": (begin + timedelta(minutes=5 * number)).isoformat(), "amount": shop % 10}
            | {"mood": "good" if shop % 4 else "bad"}
            | other
            for number in range(each)
            for shop in range(SHOPS)
        ]
        closing = {"shop": "s00", "at": (begin + timedelta(minutes=59)).isoformat(), "amount": 0, "mood": "bad"}
        file = self.folder / "landing" / "orders" / f"{self.hours:03}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(order) + "\n" for order in (*orders_of, closing)))
        self.hours += 1

    def options(self, *, publish: bool = True, **options: Any) -> RunOptions:
        self.runs += 1
        return RunOptions(f"run-{self.runs}", publish=publish, **options)

    def run(self, pipeline: hr.Pipeline = ORDERS, **options: Any) -> RunResult:
        return process(pipeline, self.root, self.options(**options))

    def run_hours(self, number: int, pipeline: hr.Pipeline = ORDERS) -> None:
        """So many hours, each a run that is published."""
        for _ in range(number):
            self.land()
            self.run(pipeline)

    def audited(self, result: RunResult) -> AuditOutcome:
        """The stored audit of a run."""
        assert result.audit is not None
        stored_audit = read_audit(self.catalog.store, "orders", result.audit.from_snapshot, result.audit.to_snapshot)
        assert stored_audit is not None
        return stored_audit

    def held_back(self, pipeline: hr.Pipeline = ORDERS) -> str:
        """What is said of a run that is held back."""
        with pytest.raises(UnusualDataError) as error:
            self.run(pipeline)
        assert (error.value.code, error.value.exit_code) == ("data.unusual", 20)
        assert self.refs[PUBLISHED] != self.refs[MAIN]
        return str(error.value)


@pytest.fixture
def deployed(tmp_path: Path) -> Deployed:
    """An empty root."""
    return Deployed(tmp_path)


def known(result: RunResult) -> list[int]:
    """How many versions each check knew."""
    return [finding.versions for finding in result.usual]


def verdicts(result: RunResult) -> list[Severity | str | None]:
    return [finding.severity if finding.is_judged else "not judged" for finding in result.usual]


def test_what_is_as_usual_passes_and_is_judged_from_a_few_versions_on(deployed: Deployed) -> None:
    findings = []
    for _ in range(4):
        deployed.land()
        result = deployed.run()
        findings.append((known(result), verdicts(result)))
    assert findings == [
        ([0, 0, 0, 0], ["not judged"] * 4),
        ([0, 1, 1, 1], ["not judged"] * 4),  # the first began at the beginning: it has no rate
        ([1, 2, 2, 2], ["not judged", None, None, None]),
        ([2, 3, 3, 3], [None] * 4),
    ]
    assert result.warnings == ()
    volume, nulls, amounts, _ = result.usual
    assert (volume.observed, volume.usual) == (81, 81)
    assert volume.said == "records for each hour of event time: 81.0, usually 81.0 (the median of 2 versions)"
    assert (nulls.observed, nulls.usual, amounts.observed, amounts.usual) == (0, 0, 0, None)
    assert from_json(to_json(result)) == result
    assert not check(deployed.catalog).problems


def test_a_producer_that_sends_half_is_held_back_until_a_person_releases_it(deployed: Deployed) -> None:
    deployed.run_hours(4)
    good = deployed.refs[MAIN]
    deployed.land(each=1)
    message = deployed.held_back()
    assert "1 of 4 figures are not as usual" in message
    assert (
        "records for each hour of event time: 41.0, usually 81.0 (the median of 3 versions); the limit is a factor of "
        "1.3" in message
    )
    assert "headrace release orders" in message
    bad = deployed.refs[MAIN]
    assert audit(ORDERS, deployed.root, deployed.options(publish=False)).audit is not None
    entry = deployed.catalog.release(bad, "ada: a strike").number

    deployed.catalog.rollback(MAIN, good, "again", replayed=True)
    deployed.land()
    replayed_result = deployed.run()  # the files that were released, in another epoch, and an hour as usual
    assert (replayed_result.usual[0].released, replayed_result.usual[0].observed, replayed_result.usual[0].success) == (
        (entry,),
        81,
        True,
    )
    assert any("readers still see what a person has released" in warning for warning in replayed_result.warnings)
    assert deployed.refs[PUBLISHED] == deployed.refs[MAIN] != bad

    deployed.land(each=1)
    deployed.held_back()  # of other files nobody has decided


def test_a_level_that_is_released_often_enough_becomes_usual(deployed: Deployed) -> None:
    pipeline = orders(hr.usual_volume(within=1.5, versions=3, min_versions=2))
    deployed.run_hours(4, pipeline)
    for _ in range(2):
        deployed.land(each=4)
        deployed.held_back(pipeline)
        deployed.catalog.release(deployed.refs[MAIN], "ada: we have grown")
    deployed.land(each=4)
    result = deployed.run(pipeline)
    assert result.usual[0].usual == 161
    assert len(read_history(deployed.catalog.store, "orders", str(result.snapshot)) or ()) == 3


def test_a_column_that_becomes_null_is_named_with_the_rows_to_blame(deployed: Deployed) -> None:
    deployed.run_hours(3)
    deployed.land(amount=None)
    message = deployed.held_back()
    assert "share of NULL in amount (current): 48.75%, usually 0.00% (the median of 3 versions)" in message
    assert '"s0' not in message, "a message shows no value"
    refs = deployed.refs
    outcome = read_audit(deployed.catalog.store, "orders", refs[PUBLISHED], refs[MAIN])
    assert outcome is not None
    assert outcome.usual is not None
    nulls = outcome.usual.findings[1]
    window = {"window_start": "2026-11-20T03:00:00Z", "window_end": "2026-11-20T04:00:00Z", "amount": None}
    assert nulls.failing == tuple({"shop": f"s{shop:02}", **window} for shop in range(1, 6))
    assert 's01", window_start="2026-11-20T03:00:00Z"' in "\n".join(outcome.report_lines())


def test_values_that_change_are_named_with_the_rows_to_blame(deployed: Deployed) -> None:
    pipeline = orders(*USUAL, hr.usual_distribution("amount", distance=0.1, severity="warn", **EARLY))
    deployed.run_hours(3, pipeline)
    deployed.land(mood="furious", amount=9)
    message = deployed.held_back(pipeline)
    assert (
        "distribution of mood (current): 0.500 from the usual (the median of 3 versions); the limit is 0.2" in message
    )
    refs = deployed.refs
    outcome = read_audit(deployed.catalog.store, "orders", refs[PUBLISHED], refs[MAIN])
    assert outcome is not None
    assert outcome.usual is not None
    *_, amount, mood, other_finding = outcome.usual.findings
    assert {row["mood"] for row in mood.failing} == {"furious"}
    assert [row["shop"] for row in mood.failing] == [f"s{shop:02}" for shop in range(5)]
    assert (amount.severity, other_finding.severity) == (Severity.FAIL, Severity.WARN)
    assert amount.failing == (), "no amount is above the highest that was usual"


def test_a_check_that_warns_holds_nothing_back(deployed: Deployed) -> None:
    pipeline = orders(hr.usual_volume(within=1.5, severity="warn", min_versions=2))
    deployed.run_hours(4, pipeline)
    deployed.land(each=9)
    result = deployed.run(pipeline)
    assert result.warnings[0].startswith("records for each hour of event time: 361.0, usually 81.0")
    assert verdicts(result) == [Severity.WARN]
    assert deployed.refs[PUBLISHED] == deployed.refs[MAIN]


@on_both
def test_both_executors_find_the_same(deployed: Deployed, executor: Executed, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = orders(
        *USUAL, *(replace(one, view=ExpectationView.PANES) for one in USUAL[1:]), executor=executor.executor
    )
    monkeypatch.setenv(AUDIT_BYTES, "0B")
    for hour in range(3):
        deployed.land(**({"mood": "odd", "amount": None} if hour == 2 else {}))
        judging_executor = executor if hour == 2 else LOCAL
        result = judging_executor.process(pipeline, deployed.root, deployed.options(publish=hour < 2))
    outcome = deployed.audited(result)
    assert outcome.usual is not None
    assert [(one.severity, len(one.failing)) for one in outcome.usual.findings] == [
        (None, 0), (Severity.FAIL, 5), (None, 0), (Severity.FAIL, 5), (Severity.FAIL, 5), (None, 0), (Severity.FAIL, 5),
    ]  # fmt: skip
    rows = outcome.usual.measure.views["current"]
    assert (rows.rows, rows.columns["amount"].missing) == (80, 39), "the hour before is on time now"
    assert rows.columns["mood"].frequent == (("odd", 40), ("good", 30), ("bad", 10))


# --- which versions are history ---------------------------------------------------------------------------------------


def test_two_audits_of_a_range_agree_whatever_has_happened_between(deployed: Deployed) -> None:
    deployed.run_hours(4)
    deployed.catalog.fork("again", None)
    branch = {"branch": "again", "publish": False, "full_sweep": True}
    first = deployed.audited(deployed.run(**branch))
    assert first.usual is not None
    assert first.from_snapshot is None
    assert first.usual.against == deployed.refs[PUBLISHED], "what begins with nothing goes by what readers see"
    deployed.run_hours(2)
    path = f"{first.path}/result.json"
    stricter = orders(*USUAL, hr.usual_nulls("mood", points=1, **EARLY))  # so that it is audited again
    second_result = audit(stricter, deployed.root, deployed.options(branch="again", publish=False))
    second = deployed.audited(second_result)
    assert second.usual is not None
    assert second.usual.findings[:4] == first.usual.findings
    assert second.usual.against == first.usual.against
    assert json.loads(deployed.catalog.store.read(path))["usual"]["against"] == first.usual.against


def test_a_branch_goes_by_the_history_of_its_fork_and_becomes_history_when_it_is_promoted(deployed: Deployed) -> None:
    deployed.run_hours(3)
    forked_snapshot = deployed.refs[MAIN]
    deployed.run_hours(2)
    deployed.catalog.fork("again", forked_snapshot)
    result = deployed.run(branch="again", publish=False, full_sweep=True)
    outcome = deployed.audited(result)
    assert outcome.usual is not None
    assert outcome.usual.against == forked_snapshot
    assert known(result) == [2, 3, 3, 3]
    hr.open(deployed.root)["orders"].promote("again")
    deployed.land()
    assert known(deployed.run()) == [3, 4, 4, 4], "the two hours are one version now"


def test_a_rollback_forgets_and_history_goes_on_within_a_version(deployed: Deployed) -> None:
    deployed.run_hours(3)
    snapshot_before = deployed.refs[MAIN]
    for _ in range(2):
        deployed.land()
    deployed.run()  # one version of two epochs
    snapshot_within = deployed.catalog.manifest(deployed.refs[MAIN]).parent
    assert snapshot_within is not None
    deployed.catalog.rollback(MAIN, snapshot_within, "the newest hour was wrong")
    result = deployed.run()
    outcome = deployed.audited(result)
    assert outcome.usual is not None
    assert (outcome.from_snapshot, outcome.usual.against) == (snapshot_before, snapshot_before), (
        "readers went back to what they had seen"
    )
    assert known(result) == [2, 3, 3, 3]


def test_history_goes_on_past_a_release_that_nobody_measured_and_a_pause(deployed: Deployed) -> None:
    deployed.run_hours(3)
    deployed.run_hours(2, orders())
    deployed.land()
    assert known(deployed.run()) == [2, 3, 3, 3]


def test_damaged_figures_are_passed_over_with_a_warning_and_found_by_a_check(deployed: Deployed) -> None:
    deployed.run_hours(3)
    newest = history_path("orders", deployed.refs[MAIN])
    deployed.catalog.store.write(newest, b"{}")
    (problem,) = check(deployed.catalog).problems
    assert problem.path == newest
    deployed.land()
    result = deployed.run()
    assert known(result) == [1, 2, 2, 2]
    assert newest in result.warnings[0]


def test_expiry_keeps_figures_as_long_as_their_snapshots(deployed: Deployed) -> None:
    deployed.run_hours(4)
    later_moment = datetime.now(UTC) + timedelta(days=9)
    for turn in range(2):
        expire_snapshots(deployed.catalog, keep_rule(1), now=lambda turn=turn: later_moment + timedelta(days=turn))
    left = [info.path for info in deployed.catalog.store.list("orders/audits/") if info.path.endswith("history.json")]
    assert left == [history_path("orders", deployed.refs[MAIN])]
    deployed.land()
    assert known(deployed.run()) == [3, 4, 4, 4]
    assert not check(deployed.catalog).problems


def test_input_that_has_ended_or_stands_still_has_no_rate(deployed: Deployed) -> None:
    deployed.run_hours(4)
    deployed.hours -= 1
    (deployed.folder / "landing" / "orders" / "003.json").rename(deployed.folder / "landing" / "orders" / "009.json")
    (deployed.folder / "landing" / "orders" / "009.json").write_text(
        json.dumps({"shop": "s01", "at": START.isoformat(), "amount": 1, "mood": "bad"}) + "\n"
    )
    result = deployed.run()
    assert verdicts(result)[0] == "not judged"
    assert result.usual[0].said == (
        "records for each hour of event time: 1 records, and no span of event time that they are of"
    )


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_checks_cost_a_read_and_a_put_and_nothing_where_there_are_none(deployed: Deployed) -> None:
    moments_made: list[tuple[str, str]] = []

    def count(operation: Operation) -> None:
        moments_made.append((operation.kind, operation.path))

    def audits_of_an_hour(pipeline: hr.Pipeline) -> list[tuple[str, str]]:
        deployed.land()
        deployed.run(pipeline, publish=False)
        moments_made.clear()
        path = f"orders/audits/{deployed.refs[PUBLISHED]}--{deployed.refs[MAIN]}/result.json"
        deployed.catalog.store.delete(path)
        with disturb_stores(count):
            result = audit(pipeline, deployed.root, deployed.options())
        assert result.audit is not None
        return [(kind, path) for kind, path in moments_made if "/audits/" in path]

    deployed.run_hours(2)
    assert fingerprint(ORDERS) == fingerprint(orders())
    plain, begin = audits_of_an_hour(orders()), deployed.refs[PUBLISHED]
    assert [path for _, path in plain if path.endswith("history.json")] == []
    checked_audits = audits_of_an_hour(ORDERS)
    end = deployed.refs[MAIN]
    history = [
        (name, path) for name, path in checked_audits if (name, path) not in plain and path.endswith("history.json")
    ]
    assert history == [("get", history_path("orders", begin)), ("put", history_path("orders", end))]
    assert len(checked_audits) == len(plain) + 2


def test_of_several_outputs_each_has_a_history_of_its_own(deployed: Deployed) -> None:
    own_pipeline = orders()
    shared_parts = {part: getattr(own_pipeline, part) for part in ("key", "what", "where", "when", "how")}
    checks = [hr.usual_volume(within=1.3, min_versions=2), hr.usual_nulls("amount", points=5, **EARLY)]
    both = {"strict": hr.Output(**shared_parts, usual=checks), "lax": hr.Output(**shared_parts)}
    pipeline = hr.Pipeline("orders", own_pipeline.input, outputs=both, executor="local")
    deployed.run_hours(3, pipeline)
    good = deployed.refs[MAIN]
    assert len(read_history(deployed.catalog.store, "orders", good, "strict") or ()) == 3
    assert read_history(deployed.catalog.store, "orders", good) is None
    deployed.land(amount=None)
    with pytest.raises(UnusualDataError, match="share of NULL in amount") as error:
        deployed.run(pipeline)
    assert "orders.strict" in str(error.value)
    assert (deployed.refs["published/strict"], deployed.refs["published/lax"]) == (good, deployed.refs[MAIN])
    assert not check(deployed.catalog).problems
    deployed.catalog.release(deployed.refs[MAIN], "ada: a strike", ["strict"])
    deployed.land()
    result = deployed.run(pipeline)
    assert known(result) == [3, 4], "the released version counts, too"
    assert deployed.refs["published/strict"] == deployed.refs[MAIN]


def test_an_output_that_is_computed_again_is_not_judged_by_its_volume(deployed: Deployed) -> None:
    own_pipeline = orders()
    shared_parts = {part: getattr(own_pipeline, part) for part in ("key", "what", "where", "when", "how")}
    outputs = {
        "strict": hr.Output(**shared_parts, usual=[hr.usual_volume(within=1.3, min_versions=2)]),
        "lax": hr.Output(**shared_parts),
    }
    pipeline = hr.Pipeline("orders", own_pipeline.input, outputs=outputs, executor="local")
    deployed.run_hours(4, pipeline)
    shown_snapshot = deployed.refs["published/strict"]
    outputs["strict"] = replace(outputs["strict"], filter=hr.col("amount") >= 0)
    changed_pipeline = replace(pipeline, outputs=outputs)
    result = hr.open(deployed.root)[changed_pipeline].backfill(output="strict", promote=True)
    assert shown_snapshot != deployed.refs["published/strict"] == result.snapshot
    deployed.run_hours(1, changed_pipeline)
    assert deployed.refs["published/strict"] == deployed.refs[MAIN]


def test_a_renamed_output_keeps_its_history(deployed: Deployed) -> None:
    own_pipeline = orders(hr.usual_volume(within=1.3, min_versions=2))
    parts = ("key", "what", "where", "when", "how", "usual")
    first = hr.Output(**{part: getattr(own_pipeline, part) for part in parts})
    deployed.run_hours(3, hr.Pipeline("orders", own_pipeline.input, outputs={"sales": first}, executor="local"))
    renamed_pipeline = {"orders": replace(first, formerly="sales"), "sales": replace(first, usual=())}
    pipeline = hr.Pipeline("orders", own_pipeline.input, outputs=renamed_pipeline, executor="local")
    shown_snapshot = published_of(deployed.refs)["sales"]
    deployed.land(each=20)
    with pytest.raises(UnusualDataError, match="orders"):
        deployed.run(pipeline)
    assert published_of(deployed.refs) == {"orders": shown_snapshot, "sales": deployed.refs[MAIN]}
