"""Schedules and options of Airflow: what is taken, what is refused and how; no fingerprint knows them."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace.errors import PipelineError
from headrace.pipeline.deployment import AirflowOptions
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.scheduling import owner_of, retention_dag_id

CLICKS = hr.json("landing/clicks", {"user": str, "at": datetime}).event_time("at", bound="1m")


def pipeline(**parts: Any) -> hr.Pipeline:
    """Clicks per hour."""
    return hr.Pipeline("clicks", CLICKS, key="user", what={"n": hr.count()}, where=hr.FixedWindows("1h"), **parts)


def outputs(backfill: hr.Backfill) -> hr.Pipeline:
    """Two outputs."""
    output = hr.Output(key="user", what={"n": hr.count()}, where=hr.FixedWindows("1h"))
    return hr.Pipeline("clicks", CLICKS, outputs={"a": output, "b": output}, backfill=backfill)


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ("@hourly", "@hourly"),
        (timedelta(minutes=10), "0:10:00"),
        (hr.cron("0 6 * * *", zone="Europe/Berlin"), "0 6 * * * in Europe/Berlin"),
        (hr.on_assets(["s3://a/b"]), "s3://a/b"),
        (hr.on_assets(["s3://a/b", "x://c"], or_at="@daily"), "s3://a/b and x://c, or @daily"),
        (hr.on_assets(["s3://a/b"], or_at=hr.cron("0 6 * * *", zone="UTC")), "s3://a/b, or 0 6 * * * in UTC"),
        (hr.on_files(), "when files land (a look every 30s)"),
        (hr.on_files("5m", or_at="@hourly"), "when files land (a look every 5m), or @hourly"),
    ],
)
def test_a_schedule_is_told_as_it_is_meant(schedule: Any, text: str) -> None:
    own_pipeline = pipeline(schedule=schedule)
    assert str(own_pipeline.schedule) == text
    (checked_pipeline,) = hr.check(own_pipeline).pipelines
    assert checked_pipeline.dags["headrace_clicks_process"] == text


def test_backfills_and_retention_have_schedules_in_zones_too() -> None:
    schedule = hr.cron("0 3 * * *", zone="Europe/Berlin")
    own_pipeline = pipeline(
        backfill=hr.Backfill(schedule, last="7d"), retention=hr.Retention(schedule=timedelta(hours=6), keep_last=5)
    )
    assert own_pipeline.backfill is not None
    assert own_pipeline.backfill.schedule == schedule
    (checked_pipeline,) = hr.check(own_pipeline).pipelines
    assert checked_pipeline.dags["headrace_clicks_backfill"] == "0 3 * * * in Europe/Berlin"
    assert [each for each in checked_pipeline.dags.items() if "maintain" in each[0]] == [
        (retention_dag_id(timedelta(hours=6)), "6:00:00")
    ]


def test_a_scheduled_patch_is_of_one_output() -> None:
    backfill = outputs(hr.Backfill("@daily", last="7d", patch=True, output="b")).backfill
    assert backfill is not None
    assert backfill.output == "b"


def test_retentions_of_different_schedules_have_different_dags_and_of_equal_ones_the_same() -> None:
    schedule = hr.cron("0 4 * * *", zone="Europe/Berlin")
    ids = [
        retention_dag_id(each)
        for each in ("@daily", "0 4 * * *", "0 4 * * 1", schedule, timedelta(hours=4), "0 4 * * *")
    ]
    assert len({*ids}) == 5
    assert (ids[0], ids[1]) == ("headrace_maintain-daily", ids[5])
    assert retention_dag_id("@daily", "sales") == "headrace_sales.maintain-daily"
    assert all(owner_of(each) is None for each in ids)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pipeline(schedule=timedelta()), "give an interval of a second or more"),
        (lambda: pipeline(schedule=5), "it is not text"),
        (lambda: hr.cron("0 25 * * *", zone="UTC"), "hour 25 is not between 0 and 23"),
        (lambda: hr.cron("@daily", zone="UTC"), "it has 1 fields and not 5"),
        (lambda: hr.cron("0 6 * * *", zone="Europe/Bärlin"), "there is no such time zone"),
        (lambda: hr.on_assets("s3://a"), "write a list"),
        (lambda: hr.on_assets([]), "write a list"),
        (lambda: hr.on_assets(["a"]), "write a URI"),
        (lambda: hr.on_assets(["s3://a"], or_at="@continuous"), "give times"),
        (lambda: hr.on_assets(["s3://a"], or_at=hr.on_assets(["s3://b"])), "give times"),
        (lambda: hr.Backfill(hr.on_assets(["s3://a"]), last="7d"), "Backfill(schedule="),  # type: ignore[arg-type]
        (lambda: hr.Backfill(hr.on_files(), last="7d"), "give times"),  # type: ignore[arg-type]
        (lambda: hr.on_files("10ms"), "give an interval of a second or more"),
        (lambda: hr.on_files(or_at="@once"), "give times"),
        (lambda: hr.Backfill("0 25 * * *", last="7d"), "hour 25 is not between 0 and 23"),
        (lambda: hr.Backfill("@daily", last="7d", promote="later"), "write 'at once', 'when approved', 'never'"),
        (lambda: hr.Backfill("@daily", last="7d", promote="never", patch=True), "a patch is a way to promote"),
        (lambda: hr.Backfill("@daily", last="7d", output="daily"), "from the beginning: write patch=True"),
        (lambda: pipeline(backfill=hr.Backfill("@daily", last="7d", patch=True, output="a")), "leave it out"),
        (lambda: outputs(hr.Backfill("@daily", last="7d", patch=True)), "a patch is of one output: write output='a'"),
        (
            lambda: outputs(hr.Backfill("@daily", last="7d", patch=True, output="c")),
            "the pipeline has the outputs a, b",
        ),
        (lambda: hr.Retention(schedule=hr.on_assets(["s3://a"])), "give times"),  # type: ignore[arg-type]
        (lambda: pipeline(airflow={"owner": "x"}), "airflow"),
        (lambda: hr.airflow(retries=-1), "retries"),
        (lambda: hr.airflow(start_date=datetime(2026, 1, 1)), "give its time zone"),
        (lambda: hr.airflow(on_failure="no function"), "write module:function"),
        (lambda: hr.airflow(deadline="1h"), "together"),
        (lambda: hr.airflow(env={"A": 1}), "give text by name"),
        (lambda: hr.airflow(tags="sales"), "write a list"),
        (lambda: hr.airflow(ower="sales"), "did you mean 'owner'"),
    ],
)
def test_a_mistake_is_told_with_what_to_write(call: Any, message: str) -> None:
    with pytest.raises(PipelineError) as error:
        call()
    assert message in str(error.value)


def test_neither_schedules_nor_options_change_a_fingerprint() -> None:
    plain = fingerprint(pipeline())
    assert fingerprint(pipeline(schedule=hr.cron("0 6 * * *", zone="UTC"))) == plain
    assert fingerprint(pipeline(airflow=hr.airflow(owner="sales", env={"A": "b"}))) == plain


def test_options_of_a_pipeline_stand_over_the_defaults() -> None:
    defaults = hr.airflow(owner="data", tags=["all"], retries=1, env={"A": "1", "B": "1"}, start_date=date(2026, 1, 1))
    own = hr.airflow(owner="sales", tags=["sales", "all"], retries=0, env={"B": "2"})
    found_defaults = own.with_defaults(defaults)
    assert (found_defaults.owner, found_defaults.tags, found_defaults.retries) == ("sales", ("all", "sales"), 0)
    assert found_defaults.env == {"A": "1", "B": "2"}
    assert found_defaults.start_date == datetime(2026, 1, 1, tzinfo=UTC)
    assert AirflowOptions().with_defaults(defaults) == defaults
