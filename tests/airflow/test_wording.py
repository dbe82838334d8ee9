"""Texts that name commands of the shell, as pages say them: by tabs, buttons and DAGs that are there."""

import re
from importlib.resources import files

import pytest

from headrace.runs.reporting.results import Tally, data_warnings
from headrace_airflow.markdown import text_for_page, told_of, told_of_run

SNAPSHOT = "0123456789abcdef"
COMMANDS = {
    "3 elements were dropped: too late for it (headrace read --view late)": (
        "3 elements were dropped: too late for it (the tab Records)"
    ),
    "`headrace read shop --view rejected` shows them": "the tab Records shows them",
    "`headrace log shop` lists them": "the tab History lists them",
    f"roll back; or let readers see these rows: `headrace release shop.hourly {SNAPSHOT} --message WHY`.": (
        "roll back; or let readers see these rows: Release…."
    ),
    f"`headrace rollback shop --to {SNAPSHOT}` goes back": (
        f"Roll back to here… at {SNAPSHOT} in the tab History goes back"
    ),
    f"read on from there: `headrace recover shop {SNAPSHOT}`": (
        f"read on from there: Recover from here… at {SNAPSHOT} in the tab History"
    ),
    "Run `headrace backfill shop` (or the backfill DAG), which": "Run the DAG backfill, which",
    "`headrace backfill shop.hourly --promote` computes it": "the DAG backfill of output hourly computes it",
    "Drop it (`headrace drop shop fix`), and": "Drop it (Drop… in the tab Overview), and",
    "`headrace promote shop backfill-1 --patch` takes its results": "Promote… in the tab Overview takes its results",
    "run it (headrace run)": "run it (Process now in the tab Overview)",
}
STAY = (
    "`headrace drop shop reader --reader` ends what it holds",
    "`headrace promote shop fix --give-up-delivered`",
    "`headrace rollback shop --to beginning`",
    "`headrace rollback shop --to 0123456789abcdef --branch fix` goes back",
    "`headrace run shop --allow-new-aggregates`: the new aggregates count only new data",
    "`headrace plan shop` says what has changed",
    "input read --view late",
)


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_whose_work_a_page_does_is_called_as_the_page_calls_it(text: str) -> None:
    assert text_for_page(text) == COMMANDS[text]


@pytest.mark.parametrize("text", STAY)
def test_a_command_that_no_page_does_stays_as_it_is(text: str) -> None:
    assert text_for_page(text) == text


def test_all_buttons_and_tabs_that_are_named_are_there() -> None:
    scripts = files("headrace_airflow.pages") / "static"
    decisions, tabs = (scripts.joinpath(name).read_text() for name in ("decide.js", "pipeline.js"))
    named_commands = (
        " ".join(COMMANDS.values()) + text_for_page("(headrace replay-late)") + text_for_page("(headrace plot)")
    )
    buttons = {
        "Release…",
        "Roll back to here…",
        "Recover from here…",
        "Drop…",
        "Promote…",
        "Process now",
        "Land again…",
    }
    for button in buttons:
        assert button in named_commands
        assert f'label: "{button}"' in decisions
    for tab in {*re.findall(r"the tab (\w+)", named_commands)}:
        assert f"{tab.lower()}: {tab}" in tabs


def test_warnings_of_a_run_name_no_command_on_a_page() -> None:
    tally = Tally()
    tally.counts.update(records=100, late_dropped=50, rejected=60)
    warnings = [*data_warnings(tally)]
    assert sum("(headrace " in warning for warning in warnings) == 2
    warnings_shown = told_of_run({"error": None, "warnings": warnings})["warnings"]
    assert len(warnings_shown) == 2
    assert not [warning for warning in warnings_shown if "headrace " in warning]


def test_what_a_summary_says_of_its_run_and_outputs_is_worded_too() -> None:
    run = {"error": "run it (headrace run)", "error_code": "config.x", "warnings": ["`headrace log shop`"]}
    parked_output = {"since": 3, "code": "config.x", "message": "`headrace backfill shop.hourly --promote`"}
    outputs = [{"name": "hourly", "parked": parked_output}, {"name": "daily", "parked": None}]
    text_shown = told_of({"run": run, "outputs": outputs, "state": "failed"})
    assert text_shown["run"]["error"] == "run it (Process now in the tab Overview)"
    assert text_shown["run"]["warnings"] == ["the tab History"]
    assert [one["parked"] and one["parked"]["message"] for one in text_shown["outputs"]] == [
        "the DAG backfill of output hourly",
        None,
    ]
    assert told_of({"run": None, "outputs": [], "state": "empty"})["run"] is None
    failed_text = told_of_run({"error": {"code": "c", "message": "`headrace log shop`"}, "warnings": []})
    assert failed_text["error"] == {"code": "c", "message": "the tab History"}
