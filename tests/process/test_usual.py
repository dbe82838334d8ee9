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
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both

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
class UsualDeployment:
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

    def stored_audit(self, result: RunResult) -> AuditOutcome:
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
def deployment(tmp_path: Path) -> UsualDeployment:
    """An empty root."""
    return UsualDeployment(tmp_path)


def known_versions(result: RunResult) -> list[int]:
    """How many versions each check knew."""
    return [finding.versions for finding in result.usual]


def verdicts(result: RunResult) -> list[Severity | str | None]:
    return [finding.severity if finding.is_judged else "not judged" for finding in result.usual]


def test_what_is_as_usual_passes_and_is_judged_from_a_few_versions_on(deployment: UsualDeployment) -> None:
    findings = []
    for _ in range(4):
        deployment.land()
        result = deployment.run()
        findings.append((known_versions(result), verdicts(result)))
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
    assert not check(deployment.catalog).problems


def test_a_producer_that_sends_half_is_held_back_until_a_person_releases_it(deployment: UsualDeployment) -> None:
    deployment.run_hours(4)
    good = deployment.refs[MAIN]
    deployment.land(each=1)
    message = deployment.held_back()
    assert "1 of 4 figures are not as usual" in message
    assert (
        "records for each hour of event time: 41.0, usually 81.0 (the median of 3 versions); the limit is a factor of "
        "1.3" in message
    )
    assert "headrace release orders" in message
    bad = deployment.refs[MAIN]
    assert audit(ORDERS, deployment.root, deployment.options(publish=False)).audit is not None
    entry = deployment.catalog.release(bad, "ada: a strike").number

    deployment.catalog.rollback(MAIN, good, "again", replayed=True)
    deployment.land()
    replayed_result = deployment.run()  # the files that were released, in another epoch, and an hour as usual
    assert (replayed_result.usual[0].released, replayed_result.usual[0].observed, replayed_result.usual[0].success) == (
        (entry,),
        81,
        True,
    )
    assert any("readers still see what a person has released" in warning for warning in replayed_result.warnings)
    assert deployment.refs[PUBLISHED] == deployment.refs[MAIN] != bad

    deployment.land(each=1)
    deployment.held_back()  # of other files nobody has decided


def test_a_level_that_is_released_often_enough_becomes_usual(deployment: UsualDeployment) -> None:
    pipeline = orders(hr.usual_volume(within=1.5, versions=3, min_versions=2))
    deployment.run_hours(4, pipeline)
    for _ in range(2):
        deployment.land(each=4)
        deployment.held_back(pipeline)
        deployment.catalog.release(deployment.refs[MAIN], "ada: we have grown")
    deployment.land(each=4)
    result = deployment.run(pipeline)
    assert result.usual[0].usual == 161
    assert len(read_history(deployment.catalog.store, "orders", str(result.snapshot)) or ()) == 3


def test_a_column_that_becomes_null_is_named_with_the_rows_to_blame(deployment: UsualDeployment) -> None:
    deployment.run_hours(3)
    deployment.land(amount=None)
    message = deployment.held_back()
    assert "share of NULL in amount (current): 48.75%, usually 0.00% (the median of 3 versions)" in message
    assert '"s0' not in message, "a message shows no value"
    refs = deployment.refs
    outcome = read_audit(deployment.catalog.store, "orders", refs[PUBLISHED], refs[MAIN])
    assert outcome is not None
    assert outcome.usual is not None
    nulls = outcome.usual.findings[1]
    window = {"window_start": "2026-11-20T03:00:00Z", "window_end": "2026-11-20T04:00:00Z", "amount": None}
    assert nulls.failing == tuple({"shop": f"s{shop:02}", **window} for shop in range(1, 6))
    assert 's01", window_start="2026-11-20T03:00:00Z"' in "\n".join(outcome.report_lines())


def test_values_that_change_are_named_with_the_rows_to_blame(deployment: UsualDeployment) -> None:
    pipeline = orders(*USUAL, hr.usual_distribution("amount", distance=0.1, severity="warn", **EARLY))
    deployment.run_hours(3, pipeline)
    deployment.land(mood="furious", amount=9)
    message = deployment.held_back(pipeline)
    assert (
        "distribution of mood (current): 0.500 from the usual (the median of 3 versions); the limit is 0.2" in message
    )
    refs = deployment.refs
    outcome = read_audit(deployment.catalog.store, "orders", refs[PUBLISHED], refs[MAIN])
    assert outcome is not None
    assert outcome.usual is not None
    *_, amount, mood, other_finding = outcome.usual.findings
    assert {row["mood"] for row in mood.failing} == {"furious"}
    assert [row["shop"] for row in mood.failing] == [f"s{shop:02}" for shop in range(5)]
    assert (amount.severity, other_finding.severity) == (Severity.FAIL, Severity.WARN)
    assert amount.failing == (), "no amount is above the highest that was usual"


def test_a_check_that_warns_holds_nothing_back(deployment: UsualDeployment) -> None:
    pipeline = orders(hr.usual_volume(within=1.5, severity="warn", min_versions=2))
    deployment.run_hours(4, pipeline)
    deployment.land(each=9)
    result = deployment.run(pipeline)
    assert result.warnings[0].startswith("records for each hour of event time: 361.0, usually 81.0")
    assert verdicts(result) == [Severity.WARN]
    assert deployment.refs[PUBLISHED] == deployment.refs[MAIN]


@on_both
def test_both_executors_find_the_same(
    deployment: UsualDeployment, executor: ExecutorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = orders(
        *USUAL, *(replace(one, view=ExpectationView.PANES) for one in USUAL[1:]), executor=executor.executor
    )
    monkeypatch.setenv(AUDIT_BYTES, "0B")
    for hour in range(3):
        deployment.land(**({"mood": "odd", "amount": None} if hour == 2 else {}))
        judging_executor = executor if hour == 2 else LOCAL
        result = judging_executor.process(pipeline, deployment.root, deployment.options(publish=hour < 2))
    outcome = deployment.stored_audit(result)
    assert outcome.usual is not None
    assert [(one.severity, len(one.failing)) for one in outcome.usual.findings] == [
        (None, 0), (Severity.FAIL, 5), (None, 0), (Severity.FAIL, 5), (Severity.FAIL, 5), (None, 0), (Severity.FAIL, 5),
    ]  # fmt: skip
    rows = outcome.usual.measure.views["current"]
    assert (rows.rows, rows.columns["amount"].missing) == (80, 39), "the hour before is on time now"
    assert rows.columns["mood"].frequent == (("odd", 40), ("good", 30), ("bad", 10))


# --- which versions are history ---------------------------------------------------------------------------------------


def test_two_audits_of_a_range_agree_whatever_has_happened_between(deployment: UsualDeployment) -> None:
    deployment.run_hours(4)
    deployment.catalog.fork("again", None)
    branch = {"branch": "again", "publish": False, "full_sweep": True}
    first = deployment.stored_audit(deployment.run(**branch))
    assert first.usual is not None
    assert first.from_snapshot is None
    assert first.usual.against == deployment.refs[PUBLISHED], "what begins with nothing goes by what readers see"
    deployment.run_hours(2)
    path = f"{first.path}/result.json"
    stricter = orders(*USUAL, hr.usual_nulls("mood", points=1, **EARLY))  # so that it is audited again
    second_result = audit(stricter, deployment.root, deployment.options(branch="again", publish=False))
    second = deployment.stored_audit(second_result)
    assert second.usual is not None
    assert second.usual.findings[:4] == first.usual.findings
    assert second.usual.against == first.usual.against
    assert json.loads(deployment.catalog.store.read(path))["usual"]["against"] == first.usual.against


def test_a_branch_goes_by_the_history_of_its_fork_and_becomes_history_when_it_is_promoted(
    deployment: UsualDeployment,
) -> None:
    deployment.run_hours(3)
    forked_snapshot = deployment.refs[MAIN]
    deployment.run_hours(2)
    deployment.catalog.fork("again", forked_snapshot)
    result = deployment.run(branch="again", publish=False, full_sweep=True)
    outcome = deployment.stored_audit(result)
    assert outcome.usual is not None
    assert outcome.usual.against == forked_snapshot
    assert known_versions(result) == [2, 3, 3, 3]
    hr.open(deployment.root)["orders"].promote("again")
    deployment.land()
    assert known_versions(deployment.run()) == [3, 4, 4, 4], "the two hours are one version now"


def test_a_rollback_forgets_and_history_goes_on_within_a_version(deployment: UsualDeployment) -> None:
    deployment.run_hours(3)
    snapshot_before = deployment.refs[MAIN]
    for _ in range(2):
        deployment.land()
    deployment.run()  # one version of two epochs
    snapshot_within = deployment.catalog.manifest(deployment.refs[MAIN]).parent
    assert snapshot_within is not None
    deployment.catalog.rollback(MAIN, snapshot_within, "the newest hour was wrong")
    result = deployment.run()
    outcome = deployment.stored_audit(result)
    assert outcome.usual is not None
    assert (outcome.from_snapshot, outcome.usual.against) == (snapshot_before, snapshot_before), (
        "readers went back to what they had seen"
    )
    assert known_versions(result) == [2, 3, 3, 3]


def test_history_goes_on_past_a_release_that_nobody_measured_and_a_pause(deployment: UsualDeployment) -> None:
    deployment.run_hours(3)
    deployment.run_hours(2, orders())
    deployment.land()
    assert known_versions(deployment.run()) == [2, 3, 3, 3]


def test_damaged_figures_are_passed_over_with_a_warning_and_found_by_a_check(deployment: UsualDeployment) -> None:
    deployment.run_hours(3)
    newest = history_path("orders", deployment.refs[MAIN])
    deployment.catalog.store.write(newest, b"{}")
    (problem,) = check(deployment.catalog).problems
    assert problem.path == newest
    deployment.land()
    result = deployment.run()
    assert known_versions(result) == [1, 2, 2, 2]
    assert newest in result.warnings[0]


def test_expiry_keeps_figures_as_long_as_their_snapshots(deployment: UsualDeployment) -> None:
    deployment.run_hours(4)
    later_moment = datetime.now(UTC) + timedelta(days=9)
    for turn in range(2):
        expire_snapshots(deployment.catalog, keep_rule(1), now=lambda turn=turn: later_moment + timedelta(days=turn))
    left = [info.path for info in deployment.catalog.store.list("orders/audits/") if info.path.endswith("history.json")]
    assert left == [history_path("orders", deployment.refs[MAIN])]
    deployment.land()
    assert known_versions(deployment.run()) == [3, 4, 4, 4]
    assert not check(deployment.catalog).problems


def test_input_that_has_ended_or_stands_still_has_no_rate(deployment: UsualDeployment) -> None:
    deployment.run_hours(4)
    deployment.hours -= 1
    (deployment.folder / "landing" / "orders" / "003.json").rename(
        deployment.folder / "landing" / "orders" / "009.json"
    )
    (deployment.folder / "landing" / "orders" / "009.json").write_text(
        json.dumps({"shop": "s01", "at": START.isoformat(), "amount": 1, "mood": "bad"}) + "\n"
    )
    result = deployment.run()
    assert verdicts(result)[0] == "not judged"
    assert result.usual[0].said == (
        "records for each hour of event time: 1 records, and no span of event time that they are of"
    )


# --- what it costs ----------------------------------------------------------------------------------------------------


def test_checks_cost_a_read_and_a_put_and_nothing_where_there_are_none(deployment: UsualDeployment) -> None:
    moments_made: list[tuple[str, str]] = []

    def count(operation: Operation) -> None:
        moments_made.append((operation.kind, operation.path))

    def audits_of_an_hour(pipeline: hr.Pipeline) -> list[tuple[str, str]]:
        deployment.land()
        deployment.run(pipeline, publish=False)
        moments_made.clear()
        path = f"orders/audits/{deployment.refs[PUBLISHED]}--{deployment.refs[MAIN]}/result.json"
        deployment.catalog.store.delete(path)
        with disturb_stores(count):
            result = audit(pipeline, deployment.root, deployment.options())
        assert result.audit is not None
        return [(kind, path) for kind, path in moments_made if "/audits/" in path]

    deployment.run_hours(2)
    assert fingerprint(ORDERS) == fingerprint(orders())
    plain, begin = audits_of_an_hour(orders()), deployment.refs[PUBLISHED]
    assert [path for _, path in plain if path.endswith("history.json")] == []
    checked_audits = audits_of_an_hour(ORDERS)
    end = deployment.refs[MAIN]
    history = [
        (name, path) for name, path in checked_audits if (name, path) not in plain and path.endswith("history.json")
    ]
    assert history == [("get", history_path("orders", begin)), ("put", history_path("orders", end))]
    assert len(checked_audits) == len(plain) + 2


def test_of_several_outputs_each_has_a_history_of_its_own(deployment: UsualDeployment) -> None:
    own_pipeline = orders()
    shared_parts = {part: getattr(own_pipeline, part) for part in ("key", "what", "where", "when", "how")}
    checks = [hr.usual_volume(within=1.3, min_versions=2), hr.usual_nulls("amount", points=5, **EARLY)]
    both = {"strict": hr.Output(**shared_parts, usual=checks), "lax": hr.Output(**shared_parts)}
    pipeline = hr.Pipeline("orders", own_pipeline.input, outputs=both, executor="local")
    deployment.run_hours(3, pipeline)
    good = deployment.refs[MAIN]
    assert len(read_history(deployment.catalog.store, "orders", good, "strict") or ()) == 3
    assert read_history(deployment.catalog.store, "orders", good) is None
    deployment.land(amount=None)
    with pytest.raises(UnusualDataError, match="share of NULL in amount") as error:
        deployment.run(pipeline)
    assert "orders.strict" in str(error.value)
    assert (deployment.refs["published/strict"], deployment.refs["published/lax"]) == (good, deployment.refs[MAIN])
    assert not check(deployment.catalog).problems
    deployment.catalog.release(deployment.refs[MAIN], "ada: a strike", ["strict"])
    deployment.land()
    result = deployment.run(pipeline)
    assert known_versions(result) == [3, 4], "the released version counts, too"
    assert deployment.refs["published/strict"] == deployment.refs[MAIN]


def test_an_output_that_is_computed_again_is_not_judged_by_its_volume(deployment: UsualDeployment) -> None:
    own_pipeline = orders()
    shared_parts = {part: getattr(own_pipeline, part) for part in ("key", "what", "where", "when", "how")}
    outputs = {
        "strict": hr.Output(**shared_parts, usual=[hr.usual_volume(within=1.3, min_versions=2)]),
        "lax": hr.Output(**shared_parts),
    }
    pipeline = hr.Pipeline("orders", own_pipeline.input, outputs=outputs, executor="local")
    deployment.run_hours(4, pipeline)
    shown_snapshot = deployment.refs["published/strict"]
    outputs["strict"] = replace(outputs["strict"], filter=hr.col("amount") >= 0)
    changed_pipeline = replace(pipeline, outputs=outputs)
    result = hr.open(deployment.root)[changed_pipeline].backfill(output="strict", promote=True)
    assert shown_snapshot != deployment.refs["published/strict"] == result.snapshot
    deployment.run_hours(1, changed_pipeline)
    assert deployment.refs["published/strict"] == deployment.refs[MAIN]


def test_a_renamed_output_keeps_its_history(deployment: UsualDeployment) -> None:
    own_pipeline = orders(hr.usual_volume(within=1.3, min_versions=2))
    parts = ("key", "what", "where", "when", "how", "usual")
    first = hr.Output(**{part: getattr(own_pipeline, part) for part in parts})
    deployment.run_hours(3, hr.Pipeline("orders", own_pipeline.input, outputs={"sales": first}, executor="local"))
    renamed_pipeline = {"orders": replace(first, formerly="sales"), "sales": replace(first, usual=())}
    pipeline = hr.Pipeline("orders", own_pipeline.input, outputs=renamed_pipeline, executor="local")
    shown_snapshot = published_of(deployment.refs)["sales"]
    deployment.land(each=20)
    with pytest.raises(UnusualDataError, match="orders"):
        deployment.run(pipeline)
    assert published_of(deployment.refs) == {"orders": shown_snapshot, "sales": deployment.refs[MAIN]}
