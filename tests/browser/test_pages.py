"""Headrace's pages in Airflow's UI, as people of each role use them: they look, and they decide."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from scripts.airflow_env import LocalAirflow
from tests.airflow.runs import wait_for_success, wait_until_asked
from tests.airflow.test_end_to_end import land
from tests.browser.accessibility import problems
from tests.browser.airflow_ui import AirflowUi
from tests.browser.deployment import ROLES, look_at

pytestmark = [pytest.mark.airflow, pytest.mark.browser]

_DAG_SECONDS = 120
_RUN_SECONDS = 600
_TAB = "plugin/headrace_dag"
_VIEWS = {
    "overview": "Event time and processing time",
    "epochs": "How late the data was",
    "history": "Who moved what, and why",
    "quality": "expect_column_values_to_be_between",
    "records": "Dead letters",
    "panes": "When did each pane of a key come out",
    "explain": "Why has a window fired or not",
    "compare&before=published&after=main": "Rows that readers see",
}


_WATERMARK = "//*[name()='path'][@data-line='watermark']"
_LOOKED_AT = {
    "": "//h2[text()='Headrace pipelines']/..//a",
    "plugin/headrace_nav": "//a[text()='trips']",
    f"dags/headrace_trips_process/{_TAB}": "//ol//section[@aria-label='View panes']//a",
    f"dags/headrace_trips_process/{_TAB}?view=panes&key=Oslo": _WATERMARK,
    f"dags/headrace_orders_process/{_TAB}?view=epochs": "//td//a",
    f"dags/headrace_clicks_process/{_TAB}?view=history": "//*[name()='g'][@role='button']",
    f"dags/headrace_orders_process/{_TAB}?view=quality": "//td",
    f"dags/headrace_visits_process/{_TAB}?view=records": "//td//*[text()='oops']",
    f"dags/headrace_visits_process/{_TAB}?view=explain": "//form//button",
    f"dags/headrace_orders_process/{_TAB}?view=compare&before=published&after=main": "//td",
}
"""Pages, and what they show once they are there."""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """An Airflow over pipelines that have run."""
    local = look_at(tmp_path_factory.mktemp("pages"))
    try:
        local.start()
        for name in ("clicks", "orders", "visits", "trips"):
            local.api.wait_for_dag(f"headrace_{name}_process", _DAG_SECONDS)
        local.api.wait_for_dag("headrace_promote", _DAG_SECONDS)
        yield local
    finally:
        local.stop()


def logged_in(airflow: LocalAirflow, driver: webdriver.Chrome, user: str) -> AirflowUi:
    """The UI for a user."""
    driver.delete_all_cookies()
    ui = AirflowUi(driver, airflow.url)
    ui.log_in(user, airflow.passwords[user])
    return ui


@pytest.fixture(scope="module")
def admin(airflow: LocalAirflow, driver: webdriver.Chrome) -> AirflowUi:
    """The UI for an admin."""
    return logged_in(airflow, driver, "admin")


def _all(ui: AirflowUi, xpath: str, at_least: int) -> list[WebElement]:
    """All elements, as soon as there are so many."""

    def found() -> list[WebElement] | None:
        elements = ui.driver.find_elements(By.XPATH, xpath)
        return elements if len(elements) >= at_least else None

    return ui.until(found, f"{at_least} of {xpath}")


def message(airflow: LocalAirflow, pipeline: str) -> str:
    """Of the newest entry of the pipeline's log."""
    return Catalog(open_store(airflow.root), pipeline).log(limit=1)[0].message


def test_the_home_page_names_what_needs_a_look(admin: AirflowUi) -> None:
    admin.go("")
    block = admin.find("//h2[text()='Headrace pipelines']/..")
    admin.until(lambda: "need a look" in block.text, "what needs a look")
    assert "orders" in block.text
    admin.click("//a[text()='all pipelines']")
    admin.find("//h1[text()='Pipelines']")


def test_the_list_of_pipelines_has_those_first_that_need_a_person(admin: AirflowUi) -> None:
    admin.go("plugin/headrace_nav")
    admin.find("//a[text()='orders']")
    links = [one.text for one in admin.driver.find_elements(By.XPATH, "//table//a")]
    assert links[0] == "orders"
    assert links.index("clicks") < links.index("visits")
    admin.find("//input[@placeholder='name or state']").send_keys("visi")
    admin.until(lambda: len(admin.driver.find_elements(By.XPATH, "//table//a")) == 1, "one pipeline")
    admin.click("//a[text()='visits']")
    admin.find("//*[text()='Event time and processing time']")


@pytest.mark.parametrize("view", _VIEWS)
def test_a_pipeline_has_a_page_for_each_question(admin: AirflowUi, view: str) -> None:
    admin.go(f"dags/headrace_orders_process/{_TAB}?view={view}")
    admin.find(f"//*[contains(text(), '{_VIEWS[view]}')]")
    assert "This cannot be shown" not in admin.text()


def test_a_pipeline_is_told_in_words(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_clicks_process/{_TAB}")
    assert "clicks = count()" in admin.find("//*[text()='What it computes']/following::pre").text


def test_the_graph_of_a_pipeline_has_figures_and_words(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_visits_process/{_TAB}")
    graph = admin.find("//ol[@aria-label='Steps of the pipeline, from inputs to views']")
    admin.until(lambda: "all 6 dead letters" in graph.text, "what was rejected")
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


def test_panes_of_a_key_are_drawn_and_listed(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_trips_process/{_TAB}?view=panes")
    choice = admin.find("//select")
    choice.send_keys("Oslo")
    panes = _all(admin, "//*[name()='g'][@data-pane]", at_least=9)
    timings = [one.get_attribute("data-pane") for one in panes]
    assert {timing: timings.count(timing) for timing in timings} == {"EARLY": 6, "ON_TIME": 2, "LATE": 1}
    admin.find(_WATERMARK)
    retracted = "//*[name()='text'][@data-value='retraction'][starts-with(., '\u22123')]"
    assert len(admin.driver.find_elements(By.XPATH, retracted)) == 3
    admin.click("//button[text()='fares']")
    admin.find("//*[name()='text'][@data-value='pane'][starts-with(., '44')]/*[text()='late']")
    admin.click("//summary[text()='The same as a table']")
    rows = admin.find("//*[@role='region'][@aria-label='Panes of Oslo']").text
    assert "2026-11-20 08:00:00Z to 2026-11-20 08:30:00Z" in rows
    assert (rows.count("retraction"), rows.count("late")) == (6, 1)


def test_a_key_without_panes_says_so(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_trips_process/{_TAB}?view=panes&key=Bern")
    admin.find("//*[contains(text(), 'have emitted no pane of this key')]")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_reached_by_keyboard_named_and_readable(admin: AirflowUi, theme: str) -> None:
    admin.driver.execute_script("localStorage.setItem('theme', arguments[0])", theme)  # type: ignore[no-untyped-call]
    wrong = {}
    for path, shown in _LOOKED_AT.items():
        admin.go(path)
        admin.find(shown)
        wrong[path] = problems(admin.driver)
    assert {path: found for path, found in wrong.items() if found} == {}


def test_a_window_is_explained(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_clicks_process/{_TAB}?view=explain")
    admin.find("//label[starts-with(text(), 'Key')]/following::input[1]").send_keys("ada")
    admin.click("//form//button[text()='Explain']")
    assert "the watermark stands at" in admin.find("//pre[contains(., 'aggregation 1: user = ada')]").text


def test_a_snapshot_shows_its_tables_and_its_costs(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_clicks_process/{_TAB}?view=history")
    admin.click("//*[name()='g'][contains(@aria-label, 'main, published')]")
    admin.find("//h3[starts-with(text(), 'Snapshot ')]")
    admin.find("//td[text()='current']")


def test_another_dag_has_no_page_and_says_so(admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_release/{_TAB}")
    admin.find("//*[contains(text(), 'headrace_release is no DAG of a Headrace pipeline')]")


def test_a_release_shows_the_rows_first_and_is_recorded(airflow: LocalAirflow, admin: AirflowUi) -> None:
    admin.go(f"dags/headrace_orders_process/{_TAB}")
    admin.click("//button[text()='Release…']")
    admin.find("//*[contains(text(), 'Rows that readers see: 14 added')]")
    confirm = admin.find("//button[text()='Confirm']")
    assert not confirm.is_enabled()
    admin.find("//*[@role='dialog']//input").send_keys("seen with finance")
    admin.click("//button[text()='Confirm']")
    run = admin.find("//*[@role='status']//a").text
    wait_for_success(airflow.api, "headrace_release", run, _RUN_SECONDS)
    assert message(airflow, "orders") == f"seen with finance (admin, in Airflow: headrace_release/{run})"


def test_a_promotion_waits_for_a_person_who_has_seen_the_rows(airflow: LocalAirflow, admin: AirflowUi) -> None:
    conf = {"pipeline": "clicks", "branch": "again", "patch": False, "approve": True, "reason": "late files"}
    run = airflow.api.trigger("headrace_promote", conf)
    admin.go(f"dags/headrace_promote/runs/{quote(run)}/tasks/rehearse")
    wait_until_asked(airflow, "headrace_promote", run, "approve")
    admin.go(f"dags/headrace_promote/runs/{quote(run)}/tasks/approve/required_actions")
    admin.find("//*[contains(text(), 'Readers would see')]")
    admin.click("//button[normalize-space()='Approve']")
    wait_for_success(airflow.api, "headrace_promote", run, _RUN_SECONDS)
    by = f"(admin, in Airflow: headrace_promote/{run})"
    assert message(airflow, "clicks") == f"promoted again: late files {by}, approved by admin"


def test_a_run_from_the_page_has_a_page_of_its_own(airflow: LocalAirflow, admin: AirflowUi) -> None:
    land(open_store(airflow.root), "visits", "page.jsonl", range(30, 32))
    admin.go(f"dags/headrace_visits_process/{_TAB}")
    admin.click("//button[text()='Process now']")
    admin.click("//button[text()='Confirm']")
    run = admin.find("//*[@role='status']//a").text
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


@pytest.mark.parametrize("user", [name for name in ROLES if name != "admin"])
def test_roles_see_what_they_may(airflow: LocalAirflow, driver: webdriver.Chrome, user: str) -> None:
    ui = logged_in(airflow, driver, user)
    driver.get_log("browser")  # type: ignore[no-untyped-call]  # of the pages before
    ui.go(f"dags/headrace_visits_process/{_TAB}?view=records")
    may_see = ROLES[user] != "viewer"
    ui.find("//td//*[text()='oops']" if may_see else "//*[text()='Not shown to you']")
    ui.go(f"dags/headrace_visits_process/{_TAB}")
    ui.find("//*[text()='Event time and processing time']")
    assert bool(driver.find_elements(By.XPATH, "//button[text()='Process now']")) is may_see
    severe = [entry["message"] for entry in driver.get_log("browser") if "headrace" in entry["message"]]  # type: ignore[no-untyped-call]
    assert [entry for entry in severe if "403" not in entry] == []


def test_a_page_follows_the_theme(airflow: LocalAirflow, driver: webdriver.Chrome, tmp_path: Path) -> None:
    ui = logged_in(airflow, driver, "admin")
    ui.go("plugin/headrace_nav")
    colours = set()
    for theme in ("light", "dark"):
        driver.execute_script("localStorage.setItem('theme', arguments[0])", theme)  # type: ignore[no-untyped-call]
        driver.refresh()
        heading = ui.find("//h1[text()='Pipelines']")
        colours.add(heading.value_of_css_property("color"))
    assert len(colours) == 2
