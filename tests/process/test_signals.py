"""Signals that are given to a run (semantics 9.3)."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace import Default, accumulating
from headrace.model.triggers import Signal
from headrace.model.triggers.composites import OrFinally, Repeatedly
from headrace.model.triggers.elementary import AfterSignal
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.option_values import parse_signal
from headrace.runs.options import RunOptions
from tests.process.clicks import CLICKS, USERS, land
from tests.process.executors import ExecutorUnderTest, on_both


@pytest.mark.parametrize(
    ("text", "signal"), [("go", Signal("go")), ('go=["u1", 2]', Signal("go", ("u1", 2))), ("go=[]", Signal("go", ()))]
)
def test_signals_are_read(text: str, signal: Signal) -> None:
    assert parse_signal(text) == signal


@pytest.mark.parametrize("text", ["", "=[1]", "go=u1", 'go="u1"', "go={}"])
def test_what_is_no_signal_is_refused(text: str) -> None:
    with pytest.raises(RunOptionsError, match="write a name"):
        parse_signal(text)


@on_both
def test_a_run_without_input_hears_its_signals_once(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    pipeline = replace(CLICKS, when=OrFinally(Repeatedly(AfterSignal("go")), Default()), how=accumulating("0s"))
    pipeline = replace(pipeline, allow_finishing=True)
    land(tmp_path, 0, 1)
    first = executor.process(pipeline, tmp_path.as_uri(), RunOptions("first"))
    signalled_result = executor.process(
        pipeline, tmp_path.as_uri(), RunOptions("told", signals=(Signal("go", ("u1",)),))
    )
    attempt_options = RunOptions("again", signals=(Signal("go"),), request="again")
    second_result = executor.process(pipeline, tmp_path.as_uri(), attempt_options)
    attempt = executor.process(pipeline, tmp_path.as_uri(), replace(attempt_options, run_id="attempt"))
    assert [result.epochs for result in (first, signalled_result, second_result, attempt)] == [(0,), (1,), (2,), ()]
    assert 0 < signalled_result.counts["panes_early"] < second_result.counts["panes_early"]
    assert second_result.counts["panes_early"] >= USERS - 1
