"""The pictures of Headrace's pages in the documentation: ``make screenshots``. A real Airflow, a real browser, a
deployment made for it; look at them before you commit them.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from scripts import chromium
from scripts.airflow_env import REPOSITORY, LocalAirflow
from tests.browser.airflow_ui import AirflowUi
from tests.browser.deployment import look_at

FOLDER = REPOSITORY / "docs" / "figures" / "pages"
_TAB = "plugin/headrace_dag"
_DRAWN = "//*[name()='path'][@data-line='watermark']"


@dataclass(frozen=True)
class Picture:
    """A picture: the page, what must be there before it is taken, what is clicked before that, and the section that it
    shows, if that is not the first.
    """

    name: str
    path: str
    shown: str
    theme: str = "light"
    click: str | None = None
    at: str | None = None


PICTURES = (
    Picture("home-light", "", "//h2[text()='Headrace pipelines']/..//a[text()='orders']"),
    Picture("pipelines-light", "plugin/headrace_nav", "//a[text()='orders']"),
    Picture("pipelines-dark", "plugin/headrace_nav", "//a[text()='orders']", theme="dark"),
    Picture("pipeline-dark", f"dags/headrace_clicks_process/{_TAB}", "//*[text()='What it computes']", theme="dark"),
    Picture("graph-light", f"dags/headrace_trips_process/{_TAB}", "//section[@aria-label='Duplicates']", at="Graph"),
    Picture("panes-light", f"dags/headrace_trips_process/{_TAB}?view=panes&key=Oslo", _DRAWN),
    Picture("panes-dark", f"dags/headrace_trips_process/{_TAB}?view=panes&key=Oslo", _DRAWN, theme="dark"),
    Picture("history-light", f"dags/headrace_clicks_process/{_TAB}?view=history", "//*[contains(text(), 'Who moved')]"),
    Picture(
        "quality-light", f"dags/headrace_orders_process/{_TAB}?view=quality", "//*[contains(text(), 'Rows that fail')]"
    ),
    Picture(
        "release-light",
        f"dags/headrace_orders_process/{_TAB}",
        "//*[contains(text(), 'Rows that readers see')]",
        click="//button[text()='Release…']",
    ),
)


def main() -> None:
    """Take all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _airflow(Path(folder)) as airflow, _browser() as driver:
        ui = AirflowUi(driver, airflow.url)
        ui.log_in("admin", airflow.passwords["admin"])
        for picture in PICTURES:
            driver.execute_script("localStorage.setItem('theme', arguments[0])", picture.theme)
            ui.go(picture.path)
            if picture.click:
                ui.click(picture.click)
            ui.find(picture.shown)
            if picture.at:
                section = ui.find(f"//section[@aria-label='{picture.at}']")
                driver.execute_script("arguments[0].scrollIntoView()", section)
            driver.save_screenshot(str(FOLDER / f"{picture.name}.png"))


@contextmanager
def _airflow(folder: Path) -> Iterator[LocalAirflow]:
    airflow = look_at(folder)
    try:
        airflow.start()
        for name in ("clicks", "orders", "visits", "trips"):
            airflow.api.wait_for_dag(f"headrace_{name}_process", 120)
        yield airflow
    finally:
        airflow.stop()


@contextmanager
def _browser() -> Iterator[webdriver.Chrome]:
    found = chromium.found()
    if found is None:
        raise SystemExit(chromium.MISSING)
    options = webdriver.ChromeOptions()
    options.binary_location = found.browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,1000"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(found.driver))
    try:
        yield driver
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
