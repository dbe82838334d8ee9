"""The pictures of Headrace's pages in the documentation: ``make screenshots``. A real Airflow, a real browser, a
deployment made for it; look at them before you commit them.
"""

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from scripts import chromium
from scripts.airflow_env import REPOSITORY, LocalAirflow
from tests.browser.airflow_ui import AirflowUi
from tests.browser.deployment import look_at

FOLDER = REPOSITORY / "docs" / "figures" / "pages"
ALL = REPOSITORY / ".headrace" / "screenshots"
_TAB = "plugin/headrace_dag"
_WATERMARK_PATH = "//*[name()='path'][@data-line='watermark']"


@dataclass(frozen=True)
class Picture:
    """A picture: the page, what must be there before it is taken, and what is clicked before that. It also has the
    section that it shows, if that is not the first. ``themes``: those that the documentation shows.
    """

    name: str
    path: str
    shown: str
    themes: tuple[str, ...] = ()
    click: str | None = None
    at: str | None = None


_ORDERS, _CLICKS, _TRIPS = (f"dags/headrace_{name}_process/{_TAB}" for name in ("orders", "clicks", "trips"))
PICTURES = (
    Picture("home", "", "//h2[text()='Headrace pipelines']/..//a[text()='orders']", ("light",)),
    Picture("pipelines", "plugin/headrace_nav", "//a[text()='orders']", ("light", "dark")),
    Picture("lineage", "plugin/headrace_nav?view=lineage", "//ul//a[text()='fares']", ("light",)),
    Picture("pipeline", _CLICKS, "//*[text()='What it computes']", ("dark",)),
    Picture("graph", _TRIPS, "//section[@aria-label='Duplicates']", ("light",), at="Graph"),
    Picture("epochs", f"{_TRIPS}?view=epochs", "//td//a"),
    Picture("panes", f"{_TRIPS}?view=panes&key=Oslo", _WATERMARK_PATH, ("light",)),
    Picture("history", f"{_CLICKS}?view=history", "//*[contains(text(), 'Who moved')]", ("light",)),
    Picture("snapshot", f"{_TRIPS}?view=history", "//td[text()='current']", click="//*[name()='g'][@role='button']"),
    Picture("quality", f"{_ORDERS}?view=quality", "//*[contains(text(), 'Rows that fail')]", ("light",)),
    Picture("records", f"dags/headrace_visits_process/{_TAB}?view=records", "//td//*[text()='oops']"),
    Picture("explain", f"{_CLICKS}?view=explain", "//form//button"),
    Picture("compare", f"{_ORDERS}?view=compare&before=published&after=main", "//td"),
    Picture(
        "release", _ORDERS, "//*[contains(text(), 'Rows that readers see')]", ("light",), "//button[text()='Release…']"
    ),
    Picture("recover", _CLICKS, "//*[@data-readers]", ("light",), "//button[text()='Recover…']"),
    Picture("promote", _CLICKS, "//*[@data-readers]", click="//button[text()='Promote…']"),
)


def main(names: Sequence[str]) -> None:
    """Take all pictures, or those of these names, in both themes; pictures that the documentation shows go there,
    too.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    ALL.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _airflow(Path(folder)) as airflow, _browser() as driver:
        ui = AirflowUi(driver, airflow.url)
        ui.log_in("admin", airflow.passwords["admin"])
        for picture, theme in product(PICTURES, ("light", "dark")):
            if names and picture.name not in names:
                continue
            _take(ui, picture, theme)
            if theme in picture.themes:
                shutil.copy(ALL / f"{picture.name}-{theme}.png", FOLDER)
    print(f"look at them: {ALL}")


def _take(ui: AirflowUi, picture: Picture, theme: str) -> None:
    ui.go(picture.path)
    ui.choose(theme)
    if picture.click:
        ui.click(picture.click)
    ui.find(picture.shown)
    if picture.at:
        section = ui.find(f"//section[@aria-label='{picture.at}']")
        ui.driver.execute_script("arguments[0].scrollIntoView()", section)
    ui.driver.save_screenshot(str(ALL / f"{picture.name}-{theme}.png"))


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
    installation = chromium.find_chromium()
    if installation is None:
        raise SystemExit(chromium.MISSING)
    options = webdriver.ChromeOptions()
    options.binary_location = installation.browser
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1300,1000"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(installation.driver))
    try:
        yield driver
    finally:
        driver.quit()


if __name__ == "__main__":
    main(sys.argv[1:])
