"""A browser for tests: the Chromium of this machine."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from scripts import chromium

_STILL = """
document.addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = "*, *::before, *::after { animation: none !important; transition: none !important }";
  document.head.append(style);
});
"""
"""What turns is drawn sixty times a second, without a graphics card: a seventh of what a page takes of a core."""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Chromium without a window. Where there is none the test is skipped, in CI it fails."""
    found = chromium.found()
    if found is None:
        pytest.fail(chromium.MISSING) if os.environ.get("CI") == "true" else pytest.skip(chromium.MISSING)
    profile: Path = tmp_path_factory.mktemp("chromium")
    options = webdriver.ChromeOptions()
    options.binary_location = found.browser
    # CI is root in a container, which has no sandbox and little shared memory
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1400,1800"):
        options.add_argument(argument)
    for argument in ("--disable-gpu", "--force-prefers-reduced-motion"):  # drawn without a graphics card
        options.add_argument(argument)
    options.add_argument(f"--user-data-dir={profile}")
    browser = webdriver.Chrome(options=options, service=Service(found.driver))
    browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _STILL})
    try:
        yield browser
    finally:
        browser.quit()
