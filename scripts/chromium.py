"""``python -m scripts.chromium``: see that there is a Chromium with its driver for the tests in a browser.

Where there is none, people are told how to get it; CI, if it is root on Debian, gets it.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_PACKAGES = ("chromium", "chromium-driver")
_INSTALL = (("apt-get", "update"), ("apt-get", "install", "--yes", "--no-install-recommends", *_PACKAGES))
MISSING = (
    "there is no Chromium with its driver (chromedriver) on PATH: on Debian `apt-get install chromium chromium-driver`"
    ", elsewhere both of one version, from https://googlechromelabs.github.io/chrome-for-testing"
)


@dataclass(frozen=True)
class Chromium:
    """Where browser and driver are."""

    browser: str
    driver: str


def find_chromium() -> Chromium | None:
    """The Chromium of this machine, if it has its driver."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which("chromedriver")
    return None if browser is None or driver is None else Chromium(browser, driver)


def main() -> int:
    """Exit code 0 when there is one."""
    if find_chromium() is None and os.environ.get("CI") == "true" and os.geteuid() == 0 and shutil.which("apt-get"):
        for command in _INSTALL:
            subprocess.run(command, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    if find_chromium() is None:
        print(f"test-browser: {MISSING}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
