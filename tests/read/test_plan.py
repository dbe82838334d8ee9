"""Plans: what a run would do with a pipeline that has changed since a snapshot, and which parts of it have."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline, col
from headrace.errors import PipelineError
from headrace.pipeline.identity import fingerprint, part_digests, recorded_definition
from headrace.read.definition_plan import Action, Plan, describe_changes, plan_definition_change
from headrace.runs.restore import ChangedPipelineError
from headrace.testing.deployment import TemporaryDeployment
from headrace_snapshots.format.manifest import Manifest
from tests.manifests import new_manifest
from tests.own_combiners import Longest
from tests.pipeline.test_fingerprints import PIPELINES

SCHEMA = {"user": str, "at": hr.DataType.TIMESTAMP, "amount": int}
SOURCE = hr.json("landing/clicks", SCHEMA)
WIDER = hr.json("landing/clicks", {**SCHEMA, "page": str})
LOWER_STAGE = hr.Aggregation(key=None, what={"users": hr.count()}, where=hr.FixedWindows("2h"))
AGGREGATES = {"clicks": hr.count(), "amount": col("amount").sum()}
RATES = {**AGGREGATES, "mean": col("amount") / col("clicks")}
USERS = hr.Aggregation(key=None, what={"users": hr.count()}, where=hr.FixedWindows("4h"))


def clicks(source: hr.Input | None = None, **parts: Any) -> Pipeline:
    given_parts: dict[str, Any] = {
        "key": "user",
        "what": {"clicks": hr.count(), "amount": col("amount").sum()},
        "where": hr.FixedWindows("1h"),
        "how": hr.retracting("1h"),
        **parts,
    }
    return Pipeline("clicks", source or SOURCE.event_time("at", bound="10m"), **given_parts)


def made_by(pipeline: Pipeline, **more: Any) -> Manifest:
    return new_manifest(
        snapshot_id="s",
        pipeline=pipeline.name,
        fingerprint=fingerprint(pipeline),
        branch="main",
        epoch=3,
        parent=None,
        generation=1,
        created_at="2026-01-01T00:00:00Z",
        progress={},
        definition=recorded_definition(pipeline),
        **more,
    )


def actions(plan: Plan) -> list[str]:
    return [stage.action.value for stage in plan.stages]


@pytest.mark.slow
def test_parts_differ_wherever_fingerprints_do() -> None:
    every = [output for build in PIPELINES.values() for output in build().by_output.values()]
    for one, other in combinations(every, 2):
        same = part_digests(recorded_definition(one)) == part_digests(recorded_definition(other))
        assert same is (fingerprint(one) == fingerprint(other)), (one.name, other.name)


CHANGES: list[tuple[Pipeline, Pipeline, list[str], list[str]]] = [
    (
        clicks(),
        clicks(when=hr.AfterWatermark(late=hr.AfterCount(1))),
        ["when (trigger) has changed (aggregation 1)"],
        ["replay"],
    ),
    (clicks(), clicks(where=hr.FixedWindows("2h")), ["where (windows) has changed (aggregation 1)"], ["replay"]),
    (clicks(), clicks(key=["user", "at"]), ["key has changed (aggregation 1)"], ["replay"]),
    (
        clicks(),
        clicks(
            hr.json("landing/clicks", {**SOURCE.schema, "amount": hr.field("sum", int)}).event_time("at", bound="10m")
        ),
        ["column 'amount' of input 'source' is read in another way"],
        ["replay"],
    ),
    (clicks(), clicks(filter=col("amount") > 1), ["filter is new (aggregation 1)"], ["replay"]),
    (
        clicks(),
        clicks(how=hr.retracting("2h")),
        ["how (accumulation, lateness, behaviour) has changed (aggregation 1)"],
        ["replay"],
    ),
    (
        clicks(),
        clicks(SOURCE.event_time("at", bound="20m")),
        ["event time, watermark or splits of input 'source' has changed"],
        ["replay"],
    ),
    (clicks(), clicks(deduplicate=hr.Deduplicate("amount", "1h")), ["deduplication is new"], ["replay"]),
    (
        clicks(then=[LOWER_STAGE]),
        clicks(then=[USERS]),
        ["where (windows) has changed (aggregation 2)"],
        ["keep", "replay"],
    ),
    (
        clicks(),
        clicks(what={"clicks": hr.count(), "amount": col("amount").max()}),
        ["aggregate 'amount' has changed (aggregation 1)"],
        ["replay"],
    ),
    (
        clicks(then=[LOWER_STAGE]),
        clicks(
            then=[hr.Aggregation(key=None, what={"users": hr.count(), "n": hr.count()}, where=hr.FixedWindows("2h"))]
        ),
        ["aggregate 'n' is new, and what it has never seen may be withdrawn (aggregation 2)"],
        ["keep", "replay"],
    ),
    (
        clicks(how=hr.accumulating(keep_last=3)),
        clicks(how=hr.accumulating(keep_last=3), what={"clicks": hr.count()}),
        ["aggregate 'amount' is gone (aggregation 1)"],
        ["replay"],
    ),
    (  # two columns cannot go on as one
        clicks(),
        clicks(what={"n": hr.count()}, renamed={"clicks": "n", "amount": "n"}, key={"who": col("user")}),
        [
            "key has changed (aggregation 1)",
            "aggregate 'clicks' is gone (aggregation 1)",
            "aggregate 'amount' is gone (aggregation 1)",
            "aggregate 'n' is new (aggregation 1)",
        ],
        ["replay"],
    ),
    (
        clicks(hr.json("landing/clicks", {**SCHEMA, "amount": float}).event_time("at", bound="10m")),
        clicks(),
        ["column 'amount' of input 'source' was of type float, and is of type int"],
        ["replay"],
    ),
    (  # a trigger that counts bytes looks at all columns
        clicks(when=hr.Repeatedly(hr.AfterBytes(100))),
        clicks(WIDER.event_time("at", bound="10m"), when=hr.Repeatedly(hr.AfterBytes(100))),
        ["column 'page' of input 'source' is new"],
        ["replay"],
    ),
    (
        clicks(what=RATES),
        clicks(what={**RATES, "mean": col("amount") - col("clicks")}),
        ["column 'mean' has changed, and rows that stand have what it was (aggregation 1)"],
        ["replay"],
    ),
    (
        clicks(what=RATES),
        clicks(what={**AGGREGATES, "mean": col("amount").max()}),
        ["aggregate 'mean' was a column of results (aggregation 1)"],
        ["replay"],
    ),
    (
        clicks(what={**AGGREGATES, "mean": col("amount").max()}),
        clicks(what=RATES),
        ["column 'mean' was an aggregate, and rows that stand have what it was (aggregation 1)"],
        ["replay"],
    ),
    (
        clicks(),
        clicks(having=col("clicks") > 1),
        ["having is new, and rows stand, or are withheld, by what it was (aggregation 1)"],
        ["replay"],
    ),
    (
        clicks(having=col("clicks") > 1, then=[LOWER_STAGE]),
        clicks(having=col("clicks") > 2, then=[LOWER_STAGE]),
        ["having has changed, and rows stand, or are withheld, by what it was (aggregation 1)"],
        ["replay", "replay"],
    ),
    (
        clicks(having=col("clicks") > 1),
        clicks(),
        ["having is gone, and rows stand, or are withheld, by what it was (aggregation 1)"],
        ["replay"],
    ),
    (clicks(), clicks(then=[LOWER_STAGE]), ["the aggregation is new (aggregation 2)"], ["keep", "replay"]),
    (clicks(then=[LOWER_STAGE]), clicks(), ["the aggregation is gone (aggregation 2)"], ["keep"]),
]


@pytest.mark.parametrize(("old", "now", "expected", "stages"), CHANGES, ids=lambda value: str(value)[:60])
def test_what_has_changed_and_which_state_is_made_anew(
    old: Pipeline, now: Pipeline, expected: list[str], stages: list[str]
) -> None:
    plan = plan_definition_change(now, made_by(old))
    assert plan.action is Action.REPLAY
    assert describe_changes(plan.changes).split("; ") == expected
    assert actions(plan) == stages
    assert "headrace run refuses" in str(plan)
    assert "`headrace backfill clicks --promote`" in plan.run


MIGRATIONS: list[tuple[Pipeline, Pipeline, list[str], list[str]]] = [
    (
        clicks(),
        clicks(what={"n": hr.count(), "amount": col("amount").sum()}, renamed={"clicks": "n", "number": "n"}),
        ["aggregate 'n' was 'clicks' (aggregation 1)"],
        ["migrate"],
    ),
    (
        clicks(),
        clicks(key={"who": col("user")}, what={"amount": col("amount").sum()}, renamed={"user": "who"}),
        ["key 'who' was 'user' (aggregation 1)", "aggregate 'clicks' is gone (aggregation 1)"],
        ["migrate"],
    ),
    (
        clicks(),
        clicks(what={"amount": col("amount").sum(), "clicks": hr.count()}),
        ["the order of the aggregates has changed (aggregation 1)"],
        ["migrate"],
    ),
    (
        clicks(then=[LOWER_STAGE]),
        clicks(then=[LOWER_STAGE], what={"clicks": hr.count()}),
        ["aggregate 'amount' is gone (aggregation 1)"],
        ["migrate", "keep"],
    ),
    (
        clicks(),
        clicks(WIDER.event_time("at", bound="10m")),
        ["column 'page' of input 'source' is new"],
        ["keep"],
    ),
    (  # columns of results and having read what has been renamed
        clicks(what=RATES, having=col("mean") > col("clicks"), then=[LOWER_STAGE]),
        clicks(
            what={"n": hr.count(), "amount": col("amount").sum(), "each": col("amount") / col("n")},
            having=col("each") > col("n"),
            renamed={"clicks": "n", "mean": "each"},
            then=[LOWER_STAGE],
        ),
        ["aggregate 'n' was 'clicks' (aggregation 1)", "column 'each' was 'mean' (aggregation 1)"],
        ["migrate", "keep"],
    ),
    (
        clicks(what={**RATES, "late": col("clicks") > 3}),
        clicks(what={**AGGREGATES, "late": col("clicks") > 3, "mean": col("amount") / col("clicks")}),
        ["the order of the columns of results has changed (aggregation 1)"],
        ["migrate"],
    ),
    (clicks(what=RATES), clicks(), ["column 'mean' is gone (aggregation 1)"], ["migrate"]),
]


@pytest.mark.parametrize(("old", "now", "expected", "stages"), MIGRATIONS, ids=lambda value: str(value)[:60])
def test_what_leaves_state_right_is_migrated(
    old: Pipeline, now: Pipeline, expected: list[str], stages: list[str]
) -> None:
    plan = plan_definition_change(now, made_by(old))
    assert plan.action is (Action.MIGRATE if "migrate" in stages else Action.KEEP)
    assert describe_changes(plan.changes).split("; ") == expected
    assert actions(plan) == stages
    assert plan.run.startswith("headrace run continues from this snapshot")


def test_an_aggregate_that_is_new_is_for_people_to_decide() -> None:
    plan = plan_definition_change(clicks(what={"clicks": hr.count(), "most": col("amount").max()}), made_by(clicks()))
    assert (plan.action, actions(plan)) == (Action.MIGRATE, ["migrate"])
    assert plan.starting_empty == ["aggregate 'most' of aggregation 1"] == plan.to_json()["starting_empty"]
    assert "headrace run refuses" in plan.run
    assert "`headrace run clicks --allow-new-aggregates`" in plan.run
    assert "`headrace backfill clicks --promote`" in plan.run


def test_a_column_of_results_that_is_new_is_too() -> None:
    plan = plan_definition_change(clicks(what=RATES), made_by(clicks()))
    assert (plan.action, plan.starting_empty) == (Action.MIGRATE, ["column 'mean' of aggregation 1"])
    assert "NULL in older panes, as new columns of results are" in plan.run


@pytest.mark.parametrize(
    ("renames", "wrong"),
    [({"clicks": "amount"}, "there is a column 'clicks'"), ({"old": "new"}, "there is no column 'new'")],
)
def test_a_name_that_is_declared_is_one_of_now_for_one_of_then(renames: dict[str, str], wrong: str) -> None:
    with pytest.raises(PipelineError, match=wrong):
        clicks(renamed=renames)


def test_what_does_not_count_keeps_state() -> None:
    now = clicks(description="another", schedule="@hourly", executor="local")
    plan = plan_definition_change(now, made_by(clicks()))
    assert (plan.action, actions(plan), list(plan.changes)) == (Action.KEEP, ["keep"], [])
    assert plan.run == "headrace run continues from this snapshot"


def test_own_code_that_has_changed_is_named_and_keeps_state() -> None:
    of_own = clicks(what={"longest": col("user").combine(Longest())})
    plan = plan_definition_change(of_own, made_by(of_own, code={}))
    assert plan.action is Action.KEEP
    assert [name.endswith(":Longest") for name in plan.code] == [True]
    assert "--strict refuses" in str(plan)


def test_a_snapshot_from_before_definitions_were_recorded_says_so() -> None:
    old = made_by(clicks()).replace(definition={})
    assert "definition" not in str(old.to_bytes()), "older versions wrote none"
    assert plan_definition_change(clicks(), old).action is Action.KEEP
    plan = plan_definition_change(clicks(key="at"), old)
    assert (plan.action, actions(plan)) == (Action.REPLAY, ["replay"])
    assert "is too old to say which part of it" in str(plan)


def test_without_a_snapshot_a_run_begins() -> None:
    plan = plan_definition_change(clicks(), None)
    assert (plan.action, actions(plan)) == (Action.BEGIN, ["begin"])
    assert "there is no snapshot yet" in str(plan)


def test_a_run_does_what_the_plan_says(tmp_path: Path) -> None:
    deployment = TemporaryDeployment(tmp_path)
    pipeline_before = clicks()
    deployment.land(pipeline_before, {"user": "ann", "at": "2026-03-01T10:05:00Z", "amount": 1})
    deployment.run(pipeline_before)
    reader = hr.open(deployment.root)["clicks"]
    kept_pipeline = clicks(description="another")
    assert reader.plan(kept_pipeline).action is Action.KEEP
    deployment.land(pipeline_before, {"user": "ann", "at": "2026-03-01T10:06:00Z", "amount": 1})
    assert deployment.run(kept_pipeline).epochs == (1,)
    other = clicks(where=hr.FixedWindows("2h"))
    assert reader.plan(other).action is Action.REPLAY
    with pytest.raises(ChangedPipelineError, match=r"epoch 1\): where \(windows\) has changed \(aggregation 1\)\. Its"):
        deployment.run(other)
    assert reader.plan(pipeline_before).action is Action.KEEP


HOURLY = hr.Output(key="user", what=AGGREGATES, where=hr.FixedWindows("1h"), how=hr.retracting("1h"))
PER_DAY = hr.Output(of="hourly", what={"all": col("amount").sum()}, where=hr.FixedWindows("1d"))


def daily_over(hourly: hr.Output, daily: hr.Output = PER_DAY, name: str = "hourly") -> Pipeline:
    outputs = {name: hourly, "daily": replace(daily, of=(name, *daily.of[1:]))}
    return Pipeline("clicks", SOURCE.event_time("at", bound="10m"), outputs=outputs).by_output["daily"]


UPSTREAM_CHANGES: dict[str, tuple[Pipeline, str, str]] = {
    "its output has another name": (daily_over(HOURLY, name="per_hour"), "keep", ""),
    "one more column": (
        daily_over(replace(HOURLY, what={**AGGREGATES, "most": col("amount").max()})),
        "keep",
        "output 'hourly' has changed: aggregate 'most' is new (aggregation 1)",
    ),
    "one that it does not read is gone": (
        daily_over(replace(HOURLY, what={"amount": col("amount").sum()})),
        "keep",
        "output 'hourly' has changed: aggregate 'clicks' is gone (aggregation 1)",
    ),
    "the column that it reads has another name": (
        daily_over(
            replace(HOURLY, what={"clicks": hr.count(), "sum": col("amount").sum()}, renamed={"amount": "sum"}),
            replace(PER_DAY, what={"all": col("sum").sum()}),
        ),
        "keep",
        "output 'hourly' has changed: aggregate 'sum' was 'amount' (aggregation 1)",
    ),
    "other windows above": (
        daily_over(replace(HOURLY, where=hr.FixedWindows("2h"))),
        "replay",
        "output 'hourly' has changed: where (windows) has changed (aggregation 1)",
    ),
    "other columns": (
        daily_over(HOURLY, replace(PER_DAY, columns={"hourly": {"amount": -col("amount")}})),
        "replay",
        "columns of output 'hourly' has changed",
    ),
    "records in place of panes": (
        clicks(key=None, what={"all": col("amount").sum()}, where=hr.FixedWindows("1d")),
        "replay",
        "of (the outputs that it reads) has changed",
    ),
}


@pytest.mark.parametrize("change", UPSTREAM_CHANGES)
def test_an_output_that_reads_another_keeps_its_state_while_the_panes_mean_the_same(change: str) -> None:
    pipeline, action, why = UPSTREAM_CHANGES[change]
    plan = plan_definition_change(pipeline, made_by(daily_over(HOURLY)))
    assert plan.action.value == action
    assert why in describe_changes(plan.changes)


def test_what_looks_at_whole_panes_is_computed_again_if_they_get_a_column() -> None:
    whole = replace(PER_DAY, when=hr.Repeatedly(hr.AfterBytes(100)))
    wider = daily_over(replace(HOURLY, what={**AGGREGATES, "most": col("amount").max()}), whole)
    assert plan_definition_change(wider, made_by(daily_over(HOURLY, whole))).action is Action.REPLAY
