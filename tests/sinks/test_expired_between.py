"""Epochs between what a target holds and what is published have expired: the target becomes what is published all the
same.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr
from headrace.ext.sinks import ChangeSource, FillReason
from headrace.testing.connectors.worlds import SinkDeployment, order
from headrace_lab.sizes import set_sizes
from tests.sinks.worlds import DeltaWorld

EPOCHS = 12


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SinkDeployment]:
    made_deployment = SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)
    for name, value in made_deployment.world.environment.items():
        monkeypatch.setenv(name, value)
    with set_sizes(log_radix=4):  # panes of epochs that have expired are left out by leaves
        yield made_deployment


def run_and_expire(deployment: SinkDeployment, handle: hr.types.PipelineHandle, first: int) -> None:
    """Epochs, each with an hour of its own, of which the last one is kept."""
    for number in range(first, first + EPOCHS):
        deployment.land(f"{number:03}", order("ann", 60 * number))
    handle.run(files_per_epoch=1)
    for _ in range(2):  # what one expiry marks the next deletes
        handle.expire(keep_last=1)


@pytest.mark.parametrize("is_tagged", [True, False], ids=["tagged", "remembered"])
def test_a_target_at_a_snapshot_whose_next_ones_have_expired(deployment: SinkDeployment, is_tagged: bool) -> None:
    sales = deployment.sales()
    deployment.land("000", order("ann", 0))
    delivering = deployment.handle(sales)  # one process, which remembers what it has read
    delivering.run()
    delivering.deliver()
    if is_tagged:
        delivering.tag("first")
    for first in (1, 1 + EPOCHS):  # what is committed after an expiry leaves panes out
        run_and_expire(deployment, deployment.handle(sales), first)
    (delivery,) = delivering.deliver()
    assert delivery.source is (ChangeSource.DIFFERENCE if is_tagged else ChangeSource.ALL_ROWS)
    assert delivery.reason is (None if is_tagged else FillReason.EXPIRED)
    assert ("(all rows, since what it held has expired): " in delivery.describe()) is not is_tagged
    assert deployment.held(sales) == deployment.published(sales)
    assert len(deployment.held(sales)) == 1 + 2 * EPOCHS
