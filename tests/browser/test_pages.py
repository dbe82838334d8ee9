"""Headrace's pages in Airflow's UI, as people of each role use them: they look, and they decide."""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

import headrace as hr
from headrace.pipeline.loading.registry import in_file
from headrace.pipeline.scheduling import LevelProgress
from headrace.runs.reporting.listener import ProgressNotes, Silent
from headrace.runs.reporting.summary import UnderWay, read_summary, write_summary
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from scripts.airflow_api import AirflowApi
from scripts.airflow_env import LocalAirflow
from tests.airflow.runs import wait_for_success, wait_until_asked
from tests.airflow.test_end_to_end import land
from tests.browser.accessibility import problems
from tests.browser.airflow_ui import AirflowUi, TriggerForm
from tests.browser.deployment import ROLES, sales_root
from tests.browser.rights import (
    NEW_SETTINGS,
    NOT_THERE,
    PLANTED_VALUES,
    Everything,
    questions,
    undeclared_routes,
    values_in,
    writes,
)

pytestmark = [pytest.mark.airflow, pytest.mark.browser]

_RUN_SECONDS = 600
_FADING_SECONDS = 5
_COOKIE = "_token"
"""By which Airflow's UI knows a user; the admin logs in as people do."""

_TAB = "plugin/headrace_dag"
_TABS = {
    "Epochs": "How late the data was",
    "History": "Who moved what, and why",
    "Quality": "expect_column_values_to_be_between",
    "Records": "Dead letters",
    "Panes": "When did each pane of a key come out",
    "Explain": "Why has a window fired or not",
    "Overview": "Event time and processing time",
    "Compare": "Which rows would a reader see change",
}


_WATERMARK = "//*[name()='path'][@data-line='watermark']"
_LOOKED_AT = {
    "": "//h2[text()='Headrace pipelines']/..//a",
    "plugin/headrace_nav": "//a[text()='trips']",
    "plugin/headrace_nav?view=lineage": "//ul//a[text()='fares']",
    f"dags/headrace_trips_process/{_TAB}": "//ol//section[@aria-label='View panes']//a",
    f"dags/headrace_fares_process/{_TAB}": "//*[@aria-label='Reads']//td//a",
    f"dags/headrace_shop_process/{_TAB}": "//ol//section[@aria-label='Output daily']//a",
    f"dags/headrace_trips_process/{_TAB}?view=panes&key=Oslo": _WATERMARK,
    f"dags/headrace_orders_process/{_TAB}?view=epochs": "//td//a",
    f"dags/headrace_clicks_process/{_TAB}?view=history": "//*[name()='g'][@role='button']",
    f"dags/headrace_orders_process/{_TAB}?view=quality": "//td",
    f"dags/headrace_visits_process/{_TAB}?view=records": "//td//*[text()='oops']",
    f"dags/headrace_visits_process/{_TAB}?view=explain": "//form//button",
    f"dags/headrace_orders_process/{_TAB}?view=compare&before=published&after=main": "//td",
}
"""Pages, and what they show once they are there."""


def logged_in(airflow: LocalAirflow, apis: dict[str, AirflowApi], driver: webdriver.Chrome, user: str) -> AirflowUi:
    """The UI for a user. If somebody else was logged in before, the next page is loaded whole."""
    token = apis[user].token()
    if (driver.get_cookie(_COOKIE) or {}).get("value") != token:
        driver.get("about:blank")
        driver.execute_cdp_cmd("Network.clearBrowserCookies", {})  # delete_all_cookies knows those of this page only
        cookie = {"url": airflow.url, "name": _COOKIE, "value": token}
        assert driver.execute_cdp_cmd("Network.setCookie", cookie)["success"]
    return AirflowUi(driver, airflow.url)


def _all(ui: AirflowUi, xpath: str, at_least: int) -> list[WebElement]:
    """All elements, as soon as there are so many."""

    def find_elements() -> list[WebElement] | None:
        elements = ui.driver.find_elements(By.XPATH, xpath)
        return elements if len(elements) >= at_least else None

    return ui.wait_for(find_elements, f"{at_least} of {xpath}")


def message(airflow: LocalAirflow, pipeline: str) -> str:
    """Of the newest entry of the pipeline's log."""
    return Catalog(open_store(airflow.root), pipeline).list_entries(limit=1)[0].message


def decide(ui: AirflowUi, button: str) -> str:
    """Open a dialog and confirm it; the id of the run that it has started."""
    ui.click(f"//button[text()='{button}']")
    return confirm(ui)


def confirm(ui: AirflowUi, reason: str | None = None) -> str:
    """Give the reason that the open dialog asks for, and confirm it; the id of the run that it has started. Nothing is
    looked at then.
    """
    if reason is not None:
        ui.find("//*[@role='dialog']//input").send_keys(reason)
    ui.click("//button[text()='Confirm']")
    run = ui.find("//*[@role='status']//a").text
    ui.leave()
    return run


def submit(airflow: LocalAirflow, ui: AirflowUi, dag_id: str, fields: Mapping[str, object]) -> str:
    """Fill in the form of a DAG and trigger it; its run, which has ended well."""
    runs_before = {run["dag_run_id"] for run in airflow.api.runs(dag_id)}
    form = TriggerForm(ui, dag_id)
    form.fill(fields)
    form.submit()
    (run,) = ui.wait_for(
        lambda: {run["dag_run_id"] for run in airflow.api.runs(dag_id)} - runs_before, "the run to be there"
    )
    ui.leave()
    wait_for_success(airflow.api, dag_id, run, _RUN_SECONDS)
    return str(run)


def landed_clicks(airflow: LocalAirflow, pipeline: str) -> Counter[tuple[str, datetime]]:
    """How many clicks have landed, by user and minute."""
    store = open_store(airflow.root)
    lines = [line for info in store.list(f"landing/{pipeline}/") for line in store.read(info.path).splitlines()]
    clicks = [json.loads(line) for line in lines]
    return Counter((click["user"], datetime.fromisoformat(click["at"])) for click in clicks)


def seen_clicks(airflow: LocalAirflow, pipeline: str) -> dict[tuple[str, datetime], int]:
    """What readers see of that."""
    rows = hr.open(airflow.root)[pipeline].read("current").to_arrow().to_pylist()
    return {(row["user"], row["window_start"]): row["clicks"] for row in rows}


def state_files(manifest: Manifest) -> set[str]:
    """The files of the state of a snapshot."""
    return {file.path for layer in manifest.tables["state"] for file in layer.files}


def test_every_route_of_the_pages_says_who_may_ask_it(tmp_path: Path) -> None:
    assert undeclared_routes(tmp_path) == set()


def test_a_viewer_writes_nothing_and_sees_no_value(airflow: LocalAirflow, apis: dict[str, AirflowApi]) -> None:
    viewer, editor = apis["vic"], apis["uma"]
    run = editor.trigger("headrace_promote", {"pipeline": "clicks", "branch": "again", "approve": True})
    wait_until_asked(airflow, "headrace_promote", run, "approve")
    state_before = Everything.read_now(airflow, "headrace_promote", run)

    for question in questions():
        assert httpx.get(f"{airflow.url}/{question.path}", timeout=120).status_code == 401, question
        answer = viewer.request("GET", question.path)
        assert answer.status_code == (403 if question.is_for_editors else 200), (question, answer.text)
        assert values_in(answer.text) == set(), question
    for dag in state_before.runs:
        assert viewer.request("POST", f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None}).status_code == 403, dag
    for name, answer in writes(viewer, "headrace_promote", run, "approve"):
        assert answer.status_code == (404 if name in NOT_THERE else 403), (name, answer.text)
    assert Everything.read_now(airflow, "headrace_promote", run) == state_before

    # the same by those who may is answered, shows values and changes something
    seen_answers = [editor.request("GET", question.path) for question in questions()]
    assert {answer.status_code for answer in seen_answers} == {200}
    assert set().union(*(values_in(answer.text) for answer in seen_answers)) == {*PLANTED_VALUES}
    editor.answer("headrace_promote", run, "approve", "Reject")
    editor.wait_for_run("headrace_promote", run, _RUN_SECONDS)
    tag = editor.trigger("headrace_tag", {"pipeline": "clicks", "name": "seen"})
    wait_for_success(airflow.api, "headrace_tag", tag, _RUN_SECONDS)
    for path, body in NEW_SETTINGS.items():
        assert [apis[user].request("POST", path, body).status_code for user in ("uma", "olga")] == [403, 201]
    state_after = Everything.read_now(airflow, "headrace_promote", run)
    assert [name for name in vars(state_before) if getattr(state_before, name) == getattr(state_after, name)] == []


def test_the_home_page_names_what_needs_a_look(admin: AirflowUi) -> None:
    admin.go("")
    block = admin.find("//h2[text()='Headrace pipelines']/..")
    admin.wait_for(lambda: "need a look" in block.text, "what needs a look")
    assert "orders" in block.text
    admin.click("//a[text()='all pipelines']")
    admin.find("//h1[text()='Pipelines']")


def test_the_list_of_pipelines_has_those_first_that_need_a_person(admin: AirflowUi) -> None:
    admin.go("plugin/headrace_nav")
    admin.find("//a[text()='orders']")
    links = [one.text for one in admin.driver.find_elements(By.XPATH, "//table//a")]
    assert links[:2] == ["shop", "orders"]
    row = admin.find("//tr[.//a[text()='shop']]").text
    assert "output visits" in row
    assert "visits is parked since epoch 1" in row
    assert links.index("clicks") < links.index("visits")
    admin.find("//input[@placeholder='name or state']").send_keys("visi")
    admin.wait_for(lambda: len(admin.driver.find_elements(By.XPATH, "//table//a")) == 1, "one pipeline")
    admin.click("//a[text()='visits']")
    admin.find("//*[text()='Event time and processing time']")


def test_a_pipeline_has_a_tab_for_each_question(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_orders_process/{_TAB}")
    for tab, shown_text in _TABS.items():
        admin.click(f"//button[@role='tab'][text()='{tab}']")
        admin.find(f"//*[contains(text(), '{shown_text}')]")
        assert "This cannot be shown" not in admin.text(), tab
    admin.click("//form//button[text()='Compare']")
    admin.find("//*[contains(text(), 'Rows that readers see')]")
    assert "This cannot be shown" not in admin.text()


def test_a_pipeline_is_told_in_words(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_clicks_process/{_TAB}")
    assert "clicks = count()" in admin.find("//*[text()='What it computes']/following::pre").text


def test_pages_of_pipelines_that_read_each_other_are_linked(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_trips_process/{_TAB}")
    admin.find("//*[text()='It reads no other pipeline.']")
    assert "up to date" in admin.find("//*[@role='region'][@aria-label='Is read by']//tr[.//a[text()='fares']]").text
    admin.click("//*[@role='region'][@aria-label='Is read by']//a[text()='fares']")
    reads = admin.find("//*[@role='region'][@aria-label='Reads']//tr[.//a[text()='trips']]").text
    assert "epoch 4" in reads
    assert "up to date" in reads
    admin.go("plugin/headrace_nav")
    admin.click("//a[text()='Which reads which']")
    drawn_pipelines = _all(admin, "//ul[@aria-label='Pipelines, each after those that it reads']/li", at_least=2)
    assert [box.text.splitlines() for box in drawn_pipelines] == [
        ["trips", "epoch 4"],
        ["fares", "epoch 0 · up to date"],
    ]
    upstream, reader = (box.rect for box in drawn_pipelines)
    assert upstream["y"] + upstream["height"] < reader["y"]
    assert len(admin.driver.find_elements(By.XPATH, "//*[name()='svg'][@aria-hidden='true']/*[name()='path'][@d]")) >= 1
    row = admin.find("//table[@aria-label='Pipelines and what they read']//tr[td[1]//a[text()='fares']]").text
    assert "trips" in row
    assert "up to date" in row
    assert "sales.clicks" in admin.find("//table[@aria-label='Pipelines and what they read']").text
    admin.click("//ul//a[text()='fares']")
    admin.find("//*[@role='region'][@aria-label='Reads']//a[text()='trips']")


def test_the_graph_of_a_pipeline_has_figures_and_words(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_visits_process/{_TAB}")
    graph = admin.find("//ol[@aria-label='Steps of the pipeline, from inputs to views']")
    admin.wait_for(lambda: "all 6 dead letters" in graph.text, "what was rejected")
    for step in ("Input source", "Aggregation", "View current", "View panes"):
        admin.find(f"//ol//section[@aria-label='{step}']")
    assert "clicks per user: fixed windows of 1m" in graph.text
    admin.click("//ol//section[@aria-label='Aggregation']//summary")
    admin.find("//ol//pre[contains(., 'retracting: a pane holds everything so far')]")
    admin.click("//ol//a[text()='rows of panes']")
    admin.find("//button[text()='Panes'][@aria-pressed='true']")


def test_a_graph_has_unions_duplicates_and_chains(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_trips_process/{_TAB}")
    steps = [one.get_attribute("aria-label") for one in _all(admin, "//ol//section", at_least=9)]
    assert steps == [
        "Input source", "Input bikes", "Union of 2 inputs", "filter (fare > 0)", "Duplicates", "Aggregation 1",
        "Aggregation 2", "View current", "View panes",
    ]  # fmt: skip
    duplicates = admin.find("//ol//section[@aria-label='Duplicates']").text
    assert "remembers" in duplicates
    assert "duplicates" in duplicates


def test_outputs_have_a_line_a_place_in_the_graph_and_rows_of_their_own(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_shop_process/{_TAB}")
    steps = [one.get_attribute("aria-label") for one in _all(admin, "//ol//section", at_least=4)]
    assert steps == ["Input source", "Output hourly", "Output visits", "Output daily"]
    assert "reads panes of hourly" in admin.find("//ol//section[@aria-label='Output daily']").text
    lines = [one.text for one in _all(admin, "//table[@aria-label='Outputs']//tbody/tr", at_least=3)]
    shown_cells = [tuple(line.split()[:2]) for line in lines]
    assert shown_cells == [("published", "daily"), ("published", "hourly"), ("parked", "visits")]
    admin.click("//ol//section[@aria-label='Output visits']//a[text()='rows of current']")
    admin.find("//button[text()='visits'][@aria-pressed='true']")
    admin.find("//*[text()='4 of 4 rows of main']")
    admin.click("//button[text()='hourly']")
    admin.find("//*[text()='8 of 8 rows of main']")
    admin.go(f"dags/headrace_shop_process/{_TAB}?view=panes&output=visits&key=ada")
    admin.find(_WATERMARK)


def test_panes_of_a_key_are_drawn_and_listed(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_trips_process/{_TAB}?view=panes")
    choice = admin.find("//select")
    choice.send_keys("Oslo")
    panes = _all(admin, "//*[name()='g'][@data-pane]", at_least=9)
    timings = [one.get_attribute("data-pane") for one in panes]
    assert {timing: timings.count(timing) for timing in timings} == {"EARLY": 6, "ON_TIME": 2, "LATE": 1}
    admin.find(_WATERMARK)
    retracted_mark = "//*[name()='text'][@data-value='retraction'][starts-with(., '\u22123')]"
    assert len(admin.driver.find_elements(By.XPATH, retracted_mark)) == 3
    admin.click("//button[text()='fares']")
    admin.find("//*[name()='text'][@data-value='pane'][starts-with(., '44')]/*[text()='late']")
    admin.click("//summary[text()='The same as a table']")
    rows = admin.find("//*[@role='region'][@aria-label='Panes of Oslo']").text
    assert "2026-11-20 08:00:00Z to 2026-11-20 08:30:00Z" in rows
    assert (rows.count("retraction"), rows.count("late")) == (6, 1)


def test_the_only_key_is_shown_unasked_and_does_not_call_back_who_leaves(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_clicks_process/{_TAB}")
    admin.click("//button[@role='tab'][text()='Panes']")
    admin.find(_WATERMARK)
    admin.driver.back()
    admin.find("//*[text()='Event time and processing time']")
    admin.click("//button[@role='tab'][text()='Panes']")
    admin.click("//button[@role='tab'][text()='Explain']")
    admin.find("//*[contains(text(), 'Why has a window fired or not')]")


def test_rows_have_no_key_and_differ_as_a_whole(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_fines_process/{_TAB}?view=panes")
    admin.find("//*[contains(text(), 'Rows have no key')]")
    admin.go(f"dags/headrace_fines_process/{_TAB}?view=explain")
    admin.find("//*[contains(text(), 'gives rows as they are')]")  # nobody is asked for a key
    admin.go(f"dags/headrace_fines_process/{_TAB}?view=compare&before=published&after=higher")
    rows = admin.find("//*[@role='region'][@aria-label='Rows that change']").text
    assert [rows.count(name) for name in ("Row", "Key", "Window", "Before", "added", "removed", "fine = 50")] == [
        1, 0, 0, 0, 1, 1, 1
    ]  # fmt: skip
    admin.go(f"dags/headrace_fines_process/{_TAB}")
    admin.click("//button[text()='Promote…']")
    admin.find("//*[@role='dialog']//*[contains(text(), 'only rows change that are over')]")


def test_a_key_without_panes_says_so(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_trips_process/{_TAB}?view=panes&key=Bern")
    admin.find("//*[contains(text(), 'have emitted no pane of this key')]")


def test_pages_are_reached_by_keyboard_named_and_readable_in_both_themes(admin: AirflowUi) -> None:
    wrong = {}
    for path, shown_text in _LOOKED_AT.items():
        admin.go(path)
        admin.find(shown_text)
        for theme in ("light", "dark"):
            admin.choose(theme)
            wrong[path, theme] = _lasting_problems(admin)
    assert {place: problems for place, problems in wrong.items() if problems} == {}


def _lasting_problems(ui: AirflowUi) -> list[str]:
    """What is wrong with the page, and stays so: colours fade into others."""
    patient = Retrying(
        stop=stop_after_delay(_FADING_SECONDS),
        wait=wait_fixed(0.2),
        retry=retry_if_result(bool),
        retry_error_callback=lambda state: problems(ui.driver),
    )
    return patient(lambda: problems(ui.driver))


def test_a_page_follows_the_theme(admin: AirflowUi) -> None:
    def colour() -> str:
        return admin.find("//h1[text()='Pipelines']").value_of_css_property("color")

    admin.go("plugin/headrace_nav")
    colours = []
    for theme in ("light", "dark"):
        admin.choose(theme)
        colours.append(colour())
    admin.driver.refresh()
    assert colours[0] != colours[1] == colour()


def test_a_window_is_explained(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_clicks_process/{_TAB}?view=explain")
    admin.find("//label[starts-with(text(), 'Key')]/following::input[1]").send_keys("ada")
    admin.click("//form//button[text()='Explain']")
    assert "the watermark stands at" in admin.find("//pre[contains(., 'aggregation 1: user = ada')]").text


def test_what_a_window_lacks_is_looked_for_in_a_tab(admin: AirflowUi) -> None:
    """The command line prints a command there."""
    admin.go(f"dags/headrace_visits_process/{_TAB}?view=explain")
    admin.find("//label[starts-with(text(), 'Key')]/following::input[1]").send_keys("nobody")
    admin.click("//form//button[text()='Explain']")
    explanation = admin.find("//pre[contains(., 'no element with this key')]").text
    assert "6 records of all keys could not be used (the tab Records)" in explanation


def test_a_snapshot_shows_its_tables_and_its_costs(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_clicks_process/{_TAB}?view=history")
    admin.click("//*[name()='g'][contains(@aria-label, 'main, published')]")
    admin.find("//h3[starts-with(text(), 'Snapshot ')]")
    admin.find("//td[text()='current']")


def test_another_dag_has_no_page_and_says_so(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_release/{_TAB}")
    admin.find("//*[contains(text(), 'headrace_release is no DAG of a Headrace pipeline')]")


def test_a_promotion_waits_for_a_person_who_has_seen_the_rows(airflow: LocalAirflow, admin: AirflowUi) -> None:
    conf = {"pipeline": "clicks", "branch": "again", "patch": False, "approve": True, "reason": "late files"}
    run = airflow.api.trigger("headrace_promote", conf)
    wait_until_asked(airflow, "headrace_promote", run, "approve")
    admin.go(f"dags/headrace_promote/runs/{quote(run)}/tasks/approve/required_actions")
    admin.find("//*[contains(text(), 'Readers would see')]")
    admin.click("//button[normalize-space()='Approve']")
    admin.wait_for(
        lambda: airflow.api.task_state("headrace_promote", run, "approve") != "awaiting_input", "that it is approved"
    )
    admin.leave()
    wait_for_success(airflow.api, "headrace_promote", run, _RUN_SECONDS)
    author = f"(admin, in Airflow: headrace_promote/{run})"
    assert message(airflow, "clicks") == f"promoted again: late files {author}, approved by admin"


def test_a_run_from_the_page_has_a_page_of_its_own(airflow: LocalAirflow, admin: AirflowUi) -> None:
    land(open_store(airflow.root), "visits", "page.jsonl", range(30, 32))
    admin.go(f"dags/headrace_visits_process/{_TAB}")
    run = decide(admin, "Process now")
    wait_for_success(airflow.api, "headrace_visits_process", run, _RUN_SECONDS)
    admin.go(f"dags/headrace_visits_process/runs/{quote(run)}/plugin/headrace_dag_run")
    section = admin.find("//section[@aria-label='process: succeeded']")
    snapshot = next(link.text for link in section.find_elements(By.XPATH, ".//a[contains(@href, 'snapshot=')]"))
    admin.click(f"//section[@aria-label='process: succeeded']//a[text()='{snapshot}']")
    admin.find(f"//section[@aria-label='Snapshot {snapshot}']//td[text()='current']")
    admin.go(f"dags/headrace_visits_process/{_TAB}?view=epochs")
    admin.find(f"//td//a[text()='{snapshot}']")
    admin.click(f"//td//a[text()='{run}']")
    admin.find("//section[@aria-label='process: succeeded']")
    admin.go(f"dags/headrace_visits_process/runs/{quote(run)}/tasks/process/plugin/headrace_task_instance")
    admin.find("//section[@aria-label='process: succeeded']")
    assert not admin.driver.find_elements(By.XPATH, "//section[@aria-label='publish: succeeded']")


def test_a_run_under_way_says_where_its_epoch_is(airflow: LocalAirflow, admin: AirflowUi) -> None:
    store = open_store(airflow.root)
    summary_before = read_summary(store, "visits")
    assert summary_before is not None
    assert summary_before.run is not None
    begun_run = UnderWay(
        summary_before.run.run_id, "process", "main", summary_before.run.finished_at, summary_before.run.finished_at
    )
    notes = ProgressNotes(Silent(), store, "visits", begun_run)
    with notes.following(lambda: LevelProgress(12, 3, 4, "stage 1 of 2 of output by_shop", 5, 8)):
        notes.planned(7)
    where = "epoch 12: stage 1 of 2 of output by_shop, 5 of 8 tasks (level 3 of 4)"
    try:
        admin.go(f"dags/headrace_visits_process/{_TAB}")
        section = admin.find("//section[@aria-label='A run is under way']")
        assert where in section.text
        section.find_element(By.XPATH, ".//a").click()
        admin.find(f"//section[@aria-label='Under way']//*[text()='{where}']")
    finally:
        write_summary(store, summary_before)


def test_a_root_with_a_name_has_pages_and_its_events_lead_to_them(airflow: LocalAirflow, admin: AirflowUi) -> None:
    root = sales_root(airflow.root)
    land(open_store(root), "clicks", "page.jsonl", range(5, 9))
    admin.go("plugin/headrace_nav")
    admin.click("//table//a[text()='sales.clicks']")
    run = decide(admin, "Process now")
    wait_for_success(airflow.api, "headrace_sales.clicks_process", run, _RUN_SECONDS)
    published_snapshot = Catalog(open_store(root), "clicks").head().refs["published"]
    admin.go("assets")
    admin.click("//a[normalize-space()='headrace_sales.clicks']")
    admin.click("//*[contains(@class, 'monaco-editor')]//*[contains(@class, 'codicon-folding-collapsed')]")
    link = admin.find("//*[contains(@class, 'detected-link')]")
    ActionChains(admin.driver).key_down(Keys.CONTROL).click(link).key_up(Keys.CONTROL).perform()
    with admin.other_tab():
        admin.find(f"//section[@aria-label='Snapshot {published_snapshot}']//td[text()='current']")
        assert "/dags/headrace_sales.clicks_process/" in admin.driver.current_url


def test_an_audit_that_fails_leads_to_its_data_docs(airflow: LocalAirflow, admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_orders_process/{_TAB}")
    admin.click("//button[@role='tab'][text()='Quality']")
    admin.click("//a[text()='current'][contains(@href, '/docs/current')]")
    with admin.other_tab():
        admin.wait_for(lambda: "Expectation" in admin.text(), "what the docs say")


def test_forms_of_decisions_take_one_output(airflow: LocalAirflow, admin: AirflowUi) -> None:
    (registered_pipeline,) = in_file(Path(airflow.environment()["HEADRACE_PIPELINES"]) / "shop.py")
    shop, store = hr.open(airflow.root)[registered_pipeline.pipeline], open_store(airflow.root)
    store.write("landing/shop/late.jsonl", b'{"user": "ada", "at": "2026-11-19T00:00:00Z"}\n')
    shop.run()
    shop.backfill(output="hourly", branch="mended")
    replay = {"Pipeline": "shop", "Records": "late", "Output": "hourly", "To": "landing/again", "Reason": "look again"}
    submit(airflow, admin, "headrace_replay", replay)
    assert [info.path.rpartition("/")[0] for info in store.list("landing/again")] == ["landing/again"]
    promote = {"Pipeline": "shop", "Branch": "mended", "Output": "hourly", "Ask before": False, "Reason": "a test"}
    run = submit(airflow, admin, "headrace_promote", promote)
    author = f"a test (admin, in Airflow: headrace_promote/{run})"
    catalog = Catalog(store, "shop")
    messages = [entry.message for entry in catalog.entries()]
    assert any("hourly" in message and author in message for message in messages), messages
    assert "mended" not in catalog.head().refs


def run_that_an_audit_fails(ui: AirflowUi) -> str:
    """The id of a run from the open page of the pipeline, whose audit fails: the dialog and tabs of the run say why."""
    ui.click("//button[text()='Process now']")
    ui.click("//button[text()='Confirm']")
    run = ui.find("//*[@data-outcome='failed']//a").text
    ui.find("//*[@data-outcome='failed']//*[starts-with(text(), 'data.audit_failed: pipeline orders: 1 of 1 ')]")
    for place in ("plugin/headrace_dag_run", "tasks/audit/plugin/headrace_task_instance"):
        ui.go(f"dags/headrace_orders_process/runs/{quote(run)}/{place}")
        failed_badge = "//section[@aria-label='audit: failed']"
        ui.find(f"{failed_badge}//*[starts-with(text(), 'data.audit_failed: ')]")
        ui.find(f"{failed_badge}//section[starts-with(@aria-label, 'Rows that fail ')]//td[.='ada']")
        for button in ("button[text()='Release…']", "a[text()='Quality']", "button[text()='Backfill…']"):
            ui.find(f"{failed_badge}//{button}")
    return run


def test_a_release_is_kept_by_a_recovery(
    airflow: LocalAirflow, apis: dict[str, AirflowApi], driver: webdriver.Chrome
) -> None:
    ui, catalog = logged_in(airflow, apis, driver, "olga"), Catalog(open_store(airflow.root), "orders")
    page = f"dags/headrace_orders_process/{_TAB}"
    ui.go(page)
    ui.find("//span[text()='audit failed']")
    assert seen_clicks(airflow, "orders") != landed_clicks(airflow, "orders")
    held_run = run_that_an_audit_fails(ui)
    assert airflow.api.wait_for_run("headrace_orders_process", held_run, _RUN_SECONDS).tasks["audit"] == "failed"

    ui.go(f"{page}?view=quality")
    ui.find(
        "//section[starts-with(@aria-label, 'Failed: up to ')]//section[starts-with(@aria-label, 'Rows that fail ')]"
    )
    ui.click("//section[starts-with(@aria-label, 'Failed: up to ')]//button[text()='Release…']")
    ui.find("//*[contains(text(), 'Rows that readers see: 14 added')]")
    refs_before = catalog.head().refs
    readers_text = ui.find("//*[@data-readers='']").text
    assert (
        readers_text
        == f"Readers see {refs_before['published']} (epoch 0) before, {refs_before['main']} (epoch 2) after."
    )
    assert not ui.find("//button[text()='Confirm']").is_enabled()
    ui.find("//*[@role='dialog']//input").send_keys("seen with finance")
    ui.click("//button[text()='Confirm']")
    run = ui.find("//*[@data-outcome='success']//a").text
    ui.find(f"//*[@data-outcome]//*[starts-with(text(), 'readers see {refs_before['main']} now, released by entry ')]")
    ui.leave()
    decision = f"seen with finance (olga, in Airflow: headrace_release/{run})"
    assert message(airflow, "orders") == decision
    released_entry = catalog.head().entry
    assert seen_clicks(airflow, "orders") == landed_clicks(airflow, "orders")
    (event,) = airflow.api.asset_events("headrace_release", run)
    assert event["page"].endswith(f"/{page}?view=history&snapshot={event['snapshot']}")

    head, target, *_ = catalog.ancestry(catalog.head().refs["main"])
    for path in state_files(head) - state_files(target):
        catalog.store.delete(path)
    land(catalog.store, "orders", "page.jsonl", range(40, 44))
    ui.go(page)
    failed_run = decide(ui, "Process now")
    assert airflow.api.wait_for_run("headrace_orders_process", failed_run, _RUN_SECONDS).state == "failed"
    waiting = f"broken__{head.snapshot_id}"
    wait_until_asked(airflow, "headrace_orders_recover", waiting, "approve")
    ui.go(page)
    ui.find("//*[starts-with(text(), 'restore.below_published: ')]")

    ui.click("//button[text()='Recover…']")
    choice = Select(ui.find("//*[@role='dialog']//select"))
    assert choice.first_selected_option.get_attribute("value") == target.snapshot_id
    assert [option.text.rpartition(": ")[2] for option in choice.options] == [
        "it lacks files", "readers go back, too", "readers go back, too",
    ]  # fmt: skip
    ui.find(f"//*[text()='main moves from {head.snapshot_id} to {target.snapshot_id}']")
    ui.find("//*[contains(text(), '1 epoch with ')][contains(text(), 'will be given up and computed again')]")
    ui.find("//*[starts-with(text(), 'readers lose 2 epochs with ')]")  # none saw epoch 1 alone
    choice.select_by_index(0)
    ui.find("//*[starts-with(text(), 'It would be refused: ')][contains(text(), 'is missing')]")
    choice.select_by_index(1)
    assert not ui.find("//button[text()='Confirm']").is_enabled(), "no reason is given"
    recovery = confirm(ui, "a file is gone")
    wait_for_success(airflow.api, "headrace_orders_recover", recovery, _RUN_SECONDS)

    refs = catalog.head().refs
    assert refs["published"] == refs["main"] != head.snapshot_id
    assert seen_clicks(airflow, "orders") == landed_clicks(airflow, "orders")
    ui.go(f"{page}?view=history")
    log = ui.find("//*[@role='region'][@aria-label='Log of the catalog']").text
    assert decision in log
    assert f"a file is gone (olga, in Airflow: headrace_orders_recover/{recovery})" in log
    ui.go(f"{page}?view=quality")
    ui.find(f"//td[text()='entry {released_entry}']")
    ui.go(page)
    ui.find("//span[text()='published']")

    ui.leave()
    airflow.api.approve("headrace_orders_recover", waiting, "approve")
    ended_run = airflow.api.wait_for_run("headrace_orders_recover", waiting, _RUN_SECONDS)
    assert ended_run.tasks["recover"] == "failed"
    assert "config.rehearsal_outdated" in "\n".join(airflow.api.log(ended_run.dag_id, ended_run.run_id, "recover"))
    assert catalog.head().refs == refs


@pytest.mark.parametrize("user", [name for name in ROLES if name != "admin"])
def test_roles_see_what_they_may(
    airflow: LocalAirflow, apis: dict[str, AirflowApi], driver: webdriver.Chrome, user: str
) -> None:
    ui = logged_in(airflow, apis, driver, user)
    driver.get_log("browser")  # type: ignore[no-untyped-call]  # of the pages before
    ui.go(f"dags/headrace_visits_process/{_TAB}?view=records")
    may_see = ROLES[user] != "viewer"
    ui.find("//td//*[text()='oops']" if may_see else "//*[text()='Not shown to you']")
    ui.go(f"dags/headrace_visits_process/{_TAB}")
    ui.find("//*[text()='Event time and processing time']")
    assert bool(driver.find_elements(By.XPATH, "//button[text()='Process now']")) is may_see
    severe = [entry["message"] for entry in driver.get_log("browser") if "headrace" in entry["message"]]  # type: ignore[no-untyped-call]
    assert [entry for entry in severe if "403" not in entry] == []
