"""What the commands say of sinks: deliveries at once, connections that nobody has named, what is due, links."""

import runpy
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import headrace as hr
from headrace.cli.main import app
from headrace.errors import MissingConnectionError
from headrace.ext.sinks import Sink
from headrace.testing.connectors.worlds import SinkDeployment, order
from headrace_lab.sink_plans import SinkCall, disturb_sinks
from tests.sinks.worlds import DeltaWorld

PIPELINE = """
from datetime import datetime
import headrace as hr
sales = hr.Pipeline(
    "sales",
    hr.json("landing/sales", {"user": str, "price": int, "at": datetime}).event_time("at", bound="10m"),
    key="user",
    what={"orders": hr.count()},
    where=hr.FixedWindows("1h"),
    when=hr.on_update(),
    how=hr.retracting(allowed_lateness="30d"),
    sinks=[hr.delta("one", connection="lake"), hr.delta("two", connection="lake")],
    executor="local",
)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    (tmp_path / "sales.py").write_text(PIPELINE)
    SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path).land("1", order("ann", 5), order("bob", 10))
    return tmp_path


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def arguments_on(root: Path) -> list[str]:
    return [str(root / "sales.py"), "--root", root.as_uri()]


def test_two_that_deliver_to_several_sinks_at_once_both_end_well(root: Path) -> None:
    """Each sink is looked at by both before one of them changes it."""
    assert headrace("run", *arguments_on(root)).exit_code == 0
    looked_barrier, first = threading.Barrier(2), threading.local()

    def look_together(call: SinkCall) -> Any:
        answer = call.perform()
        if call.method == "held" and call.sink.name not in vars(first):
            setattr(first, call.sink.name, True)
            looked_barrier.wait(60)
        return answer

    handles = hr.open(root.as_uri())
    ends: list[list[str]] = []

    def deliver() -> None:
        sales = runpy.run_path(str(root / "sales.py"))["sales"]
        ends.append([delivery.describe() for delivery in handles[sales].deliver()])

    threads = [threading.Thread(target=deliver) for _ in range(2)]
    with disturb_sinks("delta", look_together):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ends) == 2
    for name in ("one", "two"):
        lines = [line for end in ends for line in end if f"sink {name} " in line]
        assert sum("2 rows written" in line for line in lines) == 1, lines
        assert sum("nothing to do" in line for line in lines) == 1, lines


def test_a_run_says_that_its_sinks_are_due(root: Path) -> None:
    ended_result = headrace("run", *arguments_on(root))
    assert f"to bring 2 sinks to what readers see: headrace deliver {root / 'sales.py'}" in ended_result.output
    assert "headrace deliver" not in headrace("run", *arguments_on(root)).output, "nothing is new"
    assert headrace("deliver", *arguments_on(root)).exit_code == 0
    result_back = headrace("rollback", *arguments_on(root), "--to", "beginning", "--message", "a wrong file")
    assert "headrace deliver" in result_back.output
    assert "headrace deliver" not in headrace("run", *arguments_on(root), "--format", "json").stdout


def test_a_check_looks_whether_connections_are_known(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "topic.py").write_text(
        PIPELINE.replace('hr.json("landing/sales", ', 'hr.kafka("sales", connection="events", schema=')
    )
    known_result = headrace("check", str(root / "sales.py"))
    assert "HEADRACE_CONN" not in known_result.output
    monkeypatch.delenv("HEADRACE_CONN_LAKE")
    unknown = headrace("check", str(root / "topic.py"))
    assert unknown.exit_code == 0, "another process delivers"
    assert "set HEADRACE_CONN_EVENTS to a URI such as kafka://host:9092" in unknown.output
    assert (
        "sink one: connection 'lake' is not known here: set HEADRACE_CONN_LAKE to a URI such as s3://" in unknown.output
    )
    monkeypatch.setenv("HEADRACE_CONN_LAKE", "s3//no")
    assert "HEADRACE_CONN_LAKE is not a URI" in headrace("check", str(root / "sales.py")).output


@pytest.mark.parametrize(
    ("sink", "example"),
    [
        (hr.kafka_sink("sales", connection="gone"), "kafka://host:9092"),
        (hr.postgres("sales", connection="gone"), "postgresql://user:password@host:5432/database"),
        (hr.delta("sales", connection="gone"), "s3://key:secret@bucket/prefix"),
        (hr.iceberg("a.sales", connection="gone"), "https://client:secret@host/path"),
    ],
)
def test_a_connection_that_is_missing_is_advised_by_its_kind(tmp_path: Path, sink: Sink, example: str) -> None:
    deployment = SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)
    with pytest.raises(MissingConnectionError) as error:
        deployment.deliver(deployment.sales(sinks=(sink,)))
    assert f"set HEADRACE_CONN_GONE to a URI such as {example}" in str(error.value)


def test_a_root_behind_a_link_is_the_same_owner(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    link = tmp_path_factory.mktemp("links") / "to it"
    link.symlink_to(root)
    assert headrace("run", *arguments_on(root)).exit_code == 0
    assert headrace("deliver", *arguments_on(root)).exit_code == 0
    SinkDeployment(DeltaWorld(str(root / "lake")), root).land("2", order("ann", 6))
    link_arguments = [str(root / "sales.py"), "--root", link.as_uri()]
    assert headrace("run", *link_arguments).exit_code == 0
    delivered_result = headrace("deliver", *link_arguments)
    assert delivered_result.exit_code == 0, delivered_result.output
    assert "the panes between" in delivered_result.output
    checked_result = headrace("deliver", *link_arguments, "--check")
    assert checked_result.exit_code == 0
    assert "it holds these 2 rows" in checked_result.output
    result_again = headrace("deliver", *arguments_on(root))
    assert "nothing to do" in result_again.output
