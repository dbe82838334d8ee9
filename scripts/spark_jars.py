"""Downloads the jars with which Spark reads s3a:// into the cache, checked against the engine's s3a_jars.lock.

Plain HTTPS to Maven Central, or to the mirror that HEADRACE_MAVEN names; no Maven needed. A second run only checks.
"""

import hashlib
import os
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tenacity

from headrace.engine.jvm import Jar, cached_jars_folder, pinned_jars
from headrace.errors import FixConfigError

CENTRAL = "https://repo1.maven.org/maven2"
TIMEOUT_SECONDS = 60.0


class JarDownloadError(FixConfigError):
    """A jar cannot be had from here, or what came is not what was pinned."""

    code = "config.jar_download"


def ensure() -> Path:
    """The folder with every pinned jar, whole and checked. Raises JarDownloadError naming the first that failed."""
    folder = cached_jars_folder()
    download(pinned_jars(), folder, os.environ.get("HEADRACE_MAVEN") or CENTRAL)
    return folder


def download(jars: Sequence[Jar], folder: Path, repository: str) -> None:
    """Bring what is missing or damaged of ``jars`` from the Maven repository at that address.

    Raises JarDownloadError for the first that failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=4) as pool:
        for _ in pool.map(lambda jar: _ensure_one(jar, folder, repository), jars):
            pass


def _ensure_one(jar: Jar, folder: Path, repository: str) -> None:
    target = folder / jar.file_name
    if target.is_file() and _sha256(target.read_bytes()) == jar.sha256:
        return
    url = f"{repository.rstrip('/')}/{jar.url_path}"
    try:
        content = _download(url)
    except OSError as error:
        raise JarDownloadError(
            f"cannot download {url}: {error}. Check the network, or set HEADRACE_MAVEN to a mirror of Maven Central"
        ) from error
    if _sha256(content) != jar.sha256:
        raise JarDownloadError(f"{url} is not the file that was pinned: sha256 {_sha256(content)}, not {jar.sha256}")
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(content)
    Path(file.name).replace(target)  # complete or invisible


def _may_pass(error: BaseException) -> bool:
    return not (isinstance(error, urllib.error.HTTPError) and error.code < 500)


@tenacity.retry(
    retry=tenacity.retry_if_exception(_may_pass),
    stop=tenacity.stop_after_attempt(3),
    wait=tenacity.wait_exponential(0.5),
    reraise=True,
)
def _download(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read()
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise
    return content


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    try:
        print(f"Spark's jars for s3:// are in {ensure()}")
    except FixConfigError as error:
        sys.exit(f"{error.code}: {error}")
