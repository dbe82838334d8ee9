"""Airflow's UI as people use it: they look for labels and buttons, wait until these are there, type and click."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TypeVar

from selenium.common.exceptions import (
    ElementClickInterceptedException,
    ElementNotInteractableException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

T = TypeVar("T")

_SECONDS = 180
_DIALOG = "//*[@role='dialog'][@aria-modal='true'][.//h2]"
_CHANGES = (StaleElementReferenceException, ElementClickInterceptedException, ElementNotInteractableException)
"""What the page does while it is still being drawn."""

_FOLLOW = """
history.pushState(null, "", arguments[0]);
window.dispatchEvent(new PopStateEvent("popstate"));
"""
_CHOOSE = """
localStorage.setItem("theme", arguments[0]);
window.dispatchEvent(new StorageEvent("storage", { key: "theme", newValue: arguments[0] }));
"""


class AirflowUi:
    """The UI at ``url`` in a browser of its own."""

    def __init__(self, driver: WebDriver, url: str) -> None:
        self.driver = driver
        self._url = url

    def log_in(self, user: str, password: str) -> None:
        """Log in, and see the home page."""
        self.driver.get(self._url)
        self.find("//input[@name='username']").send_keys(user)
        self.find("//input[@name='password']").send_keys(password)
        self.click("//button[@type='submit']")
        self.find("//*[text()='Home']")

    def go(self, path: str) -> None:
        """Open a page: from another one of the UI as its links do, without loading all of it again."""
        if self._is_open():
            self.leave()  # so that nothing of the page before is found
            self._follow(path)
        else:
            self.driver.get(f"{self._url}/{path}")

    def choose(self, theme: str) -> None:
        """Show the open page in a theme, as when another tab of the browser has chosen it."""
        self.driver.execute_script(_CHOOSE, theme)
        theme_script = f"return document.documentElement.classList.contains({theme!r})"
        self.wait_for(lambda: self.driver.execute_script(theme_script), f"the theme {theme}")

    def leave(self) -> None:
        """Look at nothing: a page with a run that is not over is drawn all the time, without a graphics card."""
        if not self._is_open():
            self.driver.get(self._url)
        self._follow("nothing")
        self.find("//*[contains(text(), 'Page Not Found')]")

    def _is_open(self) -> bool:
        return self.driver.current_url.startswith(self._url)

    def _follow(self, path: str) -> None:
        self.driver.execute_script(_FOLLOW, f"{self._url}/{path}")

    def find(self, xpath: str) -> WebElement:
        """The element, as soon as it is shown."""
        return self.wait_for(lambda: self._find_shown(xpath), xpath)

    def _find_shown(self, xpath: str) -> WebElement | None:
        return next((one for one in self.driver.find_elements(By.XPATH, xpath) if one.is_displayed()), None)

    def click(self, xpath: str) -> None:
        """Click what is there and enabled."""

        def click_once() -> bool:
            element = self.find(xpath)
            if not element.is_enabled():
                return False
            element.click()
            return True

        self.wait_for(click_once, f"{xpath} to be clicked")

    def opens(self, button: str, target: str) -> None:
        """Click ``button`` until ``target`` is there: a page that is drawn meanwhile loses clicks."""

        def is_open() -> bool:
            if not self._find_shown(target):
                self.find(button).click()
            return self._find_shown(target) is not None

        self.wait_for(is_open, f"{target}, which {button} opens")

    @contextmanager
    def other_tab(self) -> Iterator[None]:
        """Look at the tab that was opened beside this one; it is closed at the end."""
        own = self.driver.current_window_handle
        others = self.wait_for(lambda: [one for one in self.driver.window_handles if one != own], "another tab")
        self.driver.switch_to.window(others[-1])
        try:
            yield
        finally:
            self.driver.close()
            self.driver.switch_to.window(own)

    def wait_for(self, find: Callable[[], T | None], what: str) -> T:
        """What ``find`` gives as soon as that is something."""
        waiting = WebDriverWait(self.driver, _SECONDS, ignored_exceptions=_CHANGES)
        found_element = waiting.until(lambda _: find(), f"not seen: {what}")
        assert found_element
        return found_element

    def text(self) -> str:
        """All that the page shows."""
        return self.driver.find_element(By.TAG_NAME, "body").text


class TriggerForm:
    """The form with which a run of a DAG is triggered."""

    def __init__(self, ui: AirflowUi, dag_id: str) -> None:
        self._ui = ui
        ui.go(f"dags/{dag_id}/runs")
        ui.click("//button[@data-testid='trigger-dag-button']")
        ui.find(f"{_DIALOG}//h2[contains(., 'Trigger Dag')][contains(., '{dag_id}')]")
        ui.find(f"{_DIALOG}//*[text()='Run Parameters']")

    def fill(self, values: Mapping[str, object]) -> None:
        """Give fields, by label, a value: text, a number, a switch, a moment (UTC), lines, the start of an option."""
        for label, value in values.items():
            field = f"{_DIALOG}//*[@data-scope='field'][.//label[normalize-space(text())='{label}']]"
            if isinstance(value, bool):
                self._switch(field, value)
            elif isinstance(value, datetime):
                self._moment(field, value)
            elif isinstance(value, list):
                self._ui.find(f"{field}//textarea").send_keys("\n".join(value))
            elif self._has(f"{field}//input[@role='combobox']"):
                self._option(field, str(value))
            else:
                self._write_into(f"{field}//input", str(value))

    def required_labels(self) -> list[str]:
        """Labels of the fields that the form says must be filled."""
        return [
            one.find_element(By.XPATH, ".//label").text.rstrip(" *\n")
            for one in self._ui.driver.find_elements(By.XPATH, f"{_DIALOG}//*[@data-scope='field'][@data-part='root']")
            if "This field is required" in one.text
        ]

    def is_ready(self) -> bool:
        """Whether the form can be submitted."""
        return self._ui.find(f"{_DIALOG}//button[normalize-space()='Trigger']").is_enabled()

    def submit(self) -> None:
        """Trigger the run, and see that the form is gone."""
        self._ui.click(f"{_DIALOG}//button[normalize-space()='Trigger']")
        self._ui.wait_for(lambda: not self._has(_DIALOG), "the form to be gone")

    def read_refusal(self) -> str:
        """Trigger the run, and see why not."""
        self._ui.click(f"{_DIALOG}//button[normalize-space()='Trigger']")

        def read_text() -> str | None:
            text = self._ui.find(_DIALOG).text
            return text if "Bad Request" in text else None

        return self._ui.wait_for(read_text, "why the run is refused")

    def _has(self, xpath: str) -> bool:
        return bool(self._ui.driver.find_elements(By.XPATH, xpath))

    def _switch(self, field: str, is_on: bool) -> None:
        control = f"{field}//label[@data-scope='switch']"
        if (self._ui.find(control).get_attribute("data-state") == "checked") is not is_on:
            self._ui.click(control)

    def _option(self, field: str, text: str) -> None:
        self._ui.click(f"{field}//div[starts-with(@id, 'element_')]/div[not(self::span)]")
        self._ui.click(f"//*[@role='option'][starts-with(normalize-space(), '{text}')]")

    def _moment(self, field: str, moment: datetime) -> None:
        self._ui.click(f"{field}//*[@data-testid='datetime-input']")
        self._write_into("//input[@placeholder='YYYY/MM/DD']", f"{moment:%Y/%m/%d}")
        self._write_into("//input[@placeholder='HH:mm']", f"{moment:%H:%M}")
        self._ui.click(f"{_DIALOG}//h2")

    def _write_into(self, xpath: str, text: str) -> None:
        """Write into a field that the page may draw again meanwhile."""

        def write_text() -> bool:
            self._write(self._ui.find(xpath), text)
            return True

        self._ui.wait_for(write_text, f"{xpath} to be written into")

    @staticmethod
    def _write(element: WebElement, text: str) -> None:
        element.send_keys(Keys.CONTROL, "a")
        element.send_keys(text, Keys.TAB)
