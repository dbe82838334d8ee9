"""A browser for tests, the Chromium of this machine, and an Airflow to look at: one of each for all files here, since
an Airflow takes most of a minute of a core before anything is asked of it.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from scripts import chromium
from scripts.airflow_api import AirflowApi
from scripts.airflow_env import LocalAirflow
from tests.browser.airflow_ui import AirflowUi
from tests.browser.deployment import ASKING_PIPELINE, ROLES, fill_in

_DAG_SECONDS = 300
_NO_ANIMATION = """
document.addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = "*, *::before, *::after { animation: none !important; transition: none !important }";
  document.head.append(style);
});
"""
"""What turns is drawn sixty times a second, without a graphics card: a seventh of what a page takes of a core."""


@pytest.fixture(scope="package")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Chromium without a window. Where there is none the test is skipped, in CI it fails."""
    binary = chromium.find_chromium()
    if binary is None:
        pytest.fail(chromium.MISSING) if os.environ.get("CI") == "true" else pytest.skip(chromium.MISSING)
    profile: Path = tmp_path_factory.mktemp("chromium")
    options = webdriver.ChromeOptions()
    options.binary_location = binary.browser
    # CI is root in a container, which has no sandbox and little shared memory
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,1800"):
        options.add_argument(argument)
    for argument in ("--disable-gpu", "--force-prefers-reduced-motion"):  # drawn without a graphics card
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={profile}")
    browser = webdriver.Chrome(options=options, service=Service(binary.driver))
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _NO_ANIMATION})
    try:
        yield browser
    finally:
        browser.quit()


@pytest.fixture(scope="package")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    """An Airflow as ``make up`` starts it, over pipelines that have run, one that has not, and files that are wrong."""
    local = fill_in(tmp_path_factory.mktemp("pages"))
    try:
        local.start()
        for name in ("clicks", "orders", "visits", "trips", "shop", "fines", "sales.clicks", ASKING_PIPELINE):
            local.api.wait_for_dag(f"headrace_{name}_process", _DAG_SECONDS)
        local.api.wait_for_dag("headrace_promote", _DAG_SECONDS)
        yield local
    finally:
        local.stop()


@pytest.fixture(scope="package")
def apis(airflow: LocalAirflow) -> Iterator[dict[str, AirflowApi]]:
    """The REST API as each user."""
    with ExitStack() as stack:
        yield {user: stack.enter_context(closing(airflow.api_as(user))) for user in ROLES}


@pytest.fixture(scope="package")
def admin(airflow: LocalAirflow, driver: webdriver.Chrome) -> AirflowUi:
    """The UI for an admin, who has logged in."""
    own_ui = AirflowUi(driver, airflow.url)
    own_ui.log_in("admin", airflow.passwords["admin"])
    return own_ui
