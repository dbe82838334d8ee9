"""An output that has another name now keeps the table that it had under the one before."""

from dataclasses import replace
from pathlib import Path

import pytest

import headrace as hr
from headrace.read.diff.changes import ChangeSource
from headrace.sinks.open_sink import SinkTakenError
from headrace.testing.connectors.deployment import SinkDeployment, order
from tests.sinks.worlds import DeltaWorld


def test_a_renamed_output_goes_on_with_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)
    for name, value in deployment.world.environment.items():
        monkeypatch.setenv(name, value)
    sales, sink = deployment.sales(), deployment.world.sink
    hourly = hr.Output(
        key="user",
        what={"orders": hr.count(), "spent": hr.col("price").sum()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.retracting(allowed_lateness="30d"),
        sinks=[sink],
    )
    named = hr.Pipeline("sales", sales.input, outputs={"hourly": hourly}, executor="local")
    deployment.land("1", order("ann", 5, 10), order("bob", 65, 20))
    deployment.handle(named).run()
    assert deployment.deliver(named).source is ChangeSource.ALL_ROWS
    hours = replace(named, outputs={"hours": replace(hourly, formerly="hourly")})
    deployment.land("2", order("ann", 6, 1))
    deployment.handle(hours).run()
    delivery = deployment.deliver(hours)
    assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.ALL_ROWS, 2, 2)
    rows = sorted((row["user"], row["orders"], row["spent"]) for row in deployment.world.rows())
    assert rows == [("ann", 2, 11), ("bob", 1, 20)]
    assert deployment.deliver(hours).source is None
    other = {"hours": replace(hourly, formerly="hourly", sinks=()), "hourly": hourly}
    deployment.land("3", order("ann", 7, 1))
    deployment.handle(replace(named, outputs=other)).run()
    with pytest.raises(SinkTakenError, match=r"rows of sales\.hours "):  # another one has the name now
        deployment.deliver(replace(named, outputs=other))
