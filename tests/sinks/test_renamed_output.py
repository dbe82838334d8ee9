"""An output that has another name now keeps the table that it had under the one before."""

from dataclasses import replace
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import SinkTakenError
from headrace.ext.sinks import ChangeSource, FillReason
from headrace.testing.connectors.worlds import SinkDeployment, order
from tests.sinks.worlds import DeltaWorld


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkDeployment:
    made_deployment = SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)
    for name, value in made_deployment.world.environment.items():
        monkeypatch.setenv(name, value)
    return made_deployment


def with_outputs(deployment: SinkDeployment, **outputs: hr.Output) -> hr.Pipeline:
    return hr.Pipeline("sales", deployment.sales().input, outputs=outputs, executor="local")


def output_of(deployment: SinkDeployment) -> hr.Output:
    return hr.Output(
        key="user",
        what={"orders": hr.count(), "spent": hr.col("price").sum()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness="30d"),
        sinks=[deployment.world.sink],
    )


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "expired"])
def test_a_renamed_output_goes_on_with_its_table(deployment: SinkDeployment, is_there: bool) -> None:
    hourly = output_of(deployment)
    pipeline_with_hourly = with_outputs(deployment, hourly=hourly)
    deployment.land("1", order("ann", 5, 10), order("bob", 65, 20))
    deployment.handle(pipeline_with_hourly).run()
    assert deployment.deliver(pipeline_with_hourly).source is ChangeSource.ALL_ROWS
    if not is_there:
        deployment.land("1b", order("bob", 66, 0))
        deployment.handle(pipeline_with_hourly).run()
        for _ in range(2):  # what one expiry marks the next deletes
            deployment.handle(pipeline_with_hourly).expire(keep_last=1)
    hours = with_outputs(deployment, hours=replace(hourly, formerly="hourly"))
    deployment.land("2", order("ann", 6, 1))
    deployment.handle(hours).run()
    delivery = deployment.deliver(hours)
    assert (delivery.reason, delivery.written, delivery.removed) == (FillReason.OWNER, 2, 2)
    rows = sorted((row["user"], row["orders"], row["spent"]) for row in deployment.world.rows())
    assert rows == [("ann", 2, 11), ("bob", 1 if is_there else 2, 20)]
    assert deployment.deliver(hours).source is None
    other = with_outputs(deployment, hours=replace(hourly, formerly="hourly", sinks=()), hourly=hourly)
    deployment.land("3", order("ann", 7, 1))
    deployment.handle(other).run()
    with pytest.raises(SinkTakenError, match=r"rows of sales\.hours "):  # another one has the name now
        deployment.deliver(other)


def test_a_name_that_another_output_has_now_says_nothing_of_what_is_gone(deployment: SinkDeployment) -> None:
    hourly = output_of(deployment)
    deployment.land("1", order("ann", 5, 10))
    deployment.handle(with_outputs(deployment, hourly=hourly)).run()
    deployment.deliver(with_outputs(deployment, hourly=hourly))
    both = with_outputs(deployment, hours=replace(hourly, formerly="hourly"), hourly=replace(hourly, sinks=()))
    for number in (2, 3):
        deployment.land(str(number), order("ann", number, 1))
        deployment.handle(both).run()
    for _ in range(2):
        deployment.handle(both).expire(keep_last=1)
    with pytest.raises(
        SinkTakenError,
        match=r"rows of sales\.hourly under .*, not of sales\.hours under .*: if that was this output's name, let a "
        "run of the pipeline read something first; else name another table",
    ):
        deployment.deliver(both)


def test_a_backfill_from_nothing_knows_what_its_outputs_were_called(deployment: SinkDeployment) -> None:
    hourly = output_of(deployment)
    deployment.land("1", order("ann", 5, 10))
    first = deployment.handle(with_outputs(deployment, hourly=hourly)).run().snapshot
    deployment.deliver(with_outputs(deployment, hourly=hourly))
    doubled_hourly = replace(
        hourly, what={"orders": hr.count(), "spent": (2 * hr.col("price")).sum()}, formerly="hourly"
    )
    hours = with_outputs(deployment, hours=doubled_hourly)
    handle = deployment.handle(hours)
    handle.backfill(promote=True)
    delivery = deployment.deliver(hours)
    assert (delivery.before, delivery.source, delivery.written) == (first, ChangeSource.ALL_ROWS, 1)
    assert [(row["user"], row["spent"]) for row in deployment.world.rows()] == [("ann", 20)]
    assert first is not None
    assert [row["spent"] for row in handle["hours"].current(at=first).to_json()] == [10]
    assert [row["spent"] for row in handle["hours"].current().to_json()] == [20]
