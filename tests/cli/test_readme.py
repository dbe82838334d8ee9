"""The README's Python runs as it stands: the pipeline is one, and both ways of reading give its results."""

import re
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from headrace.model.time import Instant
from headrace.model.windows import Window
from headrace.pipeline import (
    AfterWatermark,
    DataType,
    Deduplicate,
    TriggerElement,
    TriggerMoment,
    col,
    custom_of,
    pairs_of,
)
from headrace.pipeline.registry import resolve
from headrace.pipeline.trigger_checks import check_own
from headrace.reference import combine
from tests.cli.deployments import Deployment, pane

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def test_the_pipeline_is_one_of_about_twenty_lines(tmp_path: Path) -> None:
    file = tmp_path / "delays.py"
    file.write_text(blocks()[0])
    assert resolve(str(file)).name == "delays"
    assert len(blocks()[0].split("flights = ")[1].splitlines()) <= 20


def test_inputs_are_joined_and_ids_counted_once() -> None:
    names: dict[str, Any] = {}
    for block in blocks()[:2]:
        exec(block, names)
    flights, delays = names["flights"], names["delays"]
    more = {**flights.schema, "wind": DataType.INT, "id": DataType.STRING}
    joined = replace(
        delays,
        source=replace(flights, schema=more),
        also=(names["weather"],),
        what={"winds": pairs_of(col("dep_delay"), col("wind"))},
        deduplicate=Deduplicate(col("id"), timedelta(days=1)),
        expectations=(),
    )
    assert [each.name for each in joined.inputs] == ["source", "weather"]


def test_the_objects_of_ones_own_are_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own")  # dataclass looks for the module of the class that it makes
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in (block for block in blocks() if "Custom" in block):
        exec(block, module.__dict__)
    spread = custom_of(module.Spread(), col("x"))
    assert combine(spread, [(4, 1), (9, 2), (2, 1)]) == 7
    jump = module.Jump(60)
    check_own(AfterWatermark(early=jump), merging=False)
    moment = TriggerMoment(Window(Instant(0), Instant(9)), Instant(0), passed_end=False)
    state = jump.create()
    found = []
    for delay in (100, None, 10, 71, 72):
        state = jump.on_element(state, TriggerElement({"dep_delay": delay}, Instant(1)), moment)
        found.append(jump.ready(state, moment))
    assert found == [False, False, False, True, True]


def test_both_ways_of_reading_give_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deployment = Deployment(tmp_path)
    deployment.commit(panes=[pane("ann", 1, 2), pane("bob", 1, 5)])
    head = deployment.commit(panes=[pane("ann", 1, 2, retraction=True), pane("ann", 1, 3, index=1)])
    deployment.catalog.publish(head, None)

    def run(code: str) -> dict[str, object]:
        names: dict[str, object] = {}
        code = code.replace("delays.py", deployment.reference).replace("file:///tmp/hr", deployment.root)
        exec(code.replace("origin", "rows.user"), names)
        return names

    frame = run(blocks()[-2])["frame"]
    assert isinstance(frame, pd.DataFrame)
    assert frame[["user", "clicks"]].to_numpy().tolist() == [["ann", 3], ["bob", 5]]
    run(blocks()[-1])
    printed = capsys.readouterr().out
    assert "│ ann" in printed
    assert "│ bob" in printed
    assert "true" not in printed.split("is_retraction")[1]


def test_two_commands_and_once_how_headrace_is_found() -> None:
    text = README.read_text()
    two = text.split("## Two commands")[1].split("```")[1]
    assert re.findall(r"\$ (make \w+)", two) == ["make demo", "make test"]
    assert text.count(".venv/bin/activate") == 1
    assert text.index(".venv/bin/activate") < text.index("$ headrace ")
