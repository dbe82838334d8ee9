"""Sinks are delivered one by one: what goes wrong with one, also in a way that nobody foresaw, stays with that one."""

import json
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError, SinkFailedError
from headrace.testing.connectors.worlds import SinkDeployment, order
from headrace_lab.sink_plans import SinkCall, disturb_sinks
from tests.sinks.worlds import DeltaWorld


@pytest.mark.parametrize("method", ["held", "apply"])
def test_an_exception_of_a_client_stops_no_other_sink(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (tmp_path / "lake").as_uri())
    monkeypatch.setenv("HEADRACE_CONN_OTHER", f"{(tmp_path / 'other').as_uri()}?token=planted-secret")
    deployment = SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)
    broken_sink = hr.delta("broken", connection="other")
    sales = deployment.sales(sinks=(broken_sink, deployment.world.sink))
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()

    def fail(call: SinkCall) -> Any:
        if (call.sink, call.method) == (broken_sink, method):
            raise KeyError("planted-secret is no column")
        return call.perform()

    with disturb_sinks("delta", fail), pytest.raises(SinkFailedError) as error:
        deployment.handle(sales).deliver()
    text = str(error.value)
    assert "sink broken (delta of connection other" in text
    assert "KeyError" in text
    assert "test_deliver_all.py, line" in text
    assert "planted-secret" not in text
    assert error.value.__cause__ is None
    assert deployment.held(sales) == deployment.published(sales)
    files = (tmp_path / "sales" / "deliveries").glob("*.json")
    notes = {file.stem: json.loads(file.read_text()) for file in files}
    assert {sink: (note["error_code"], note["snapshot"] is not None) for sink, note in notes.items()} == {
        "broken": ("config.sink_failed", False),
        "reports.sales": (None, True),
    }


def test_every_sink_that_failed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = SinkDeployment(DeltaWorld(str(tmp_path / "lake")), tmp_path)
    sales = deployment.sales(sinks=(hr.delta("one", connection="gone"), hr.delta("two", connection="gone")))
    monkeypatch.delenv("HEADRACE_CONN_GONE", raising=False)
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    with pytest.raises(HeadraceError) as error:
        deployment.handle(sales).deliver()
    assert [note for note in error.value.__notes__ if "another sink failed" in note]
