"""Downloading pinned jars, from a real HTTP server on loopback that plays the Maven repository."""

import functools
import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.engine.jvm import Jar
from scripts.spark_jars import JarDownloadError, download

CONTENT = {"one": b"first jar", "two": b"second jar"}
JARS = [Jar("org.example", name, "1.0", hashlib.sha256(data).hexdigest()) for name, data in CONTENT.items()]


class Quiet(http.server.SimpleHTTPRequestHandler):
    requested: list[str] = []

    def do_GET(self) -> None:
        self.requested.append(self.path)
        super().do_GET()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """The folder that the repository serves."""
    for jar in JARS:
        file = tmp_path / "mirror" / jar.url_path
        file.parent.mkdir(parents=True)
        file.write_bytes(CONTENT[jar.artifact])
    return tmp_path / "mirror"


@pytest.fixture
def repository(mirror: Path) -> Iterator[str]:
    Quiet.requested = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(mirror))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_every_jar_is_brought_once(tmp_path: Path, repository: str) -> None:
    folder = tmp_path / "jars"
    download(JARS, folder, repository)
    download(JARS, folder, repository)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        "one-1.0.jar": b"first jar",
        "two-1.0.jar": b"second jar",
    }
    assert sorted(Quiet.requested) == ["/org/example/one/1.0/one-1.0.jar", "/org/example/two/1.0/two-1.0.jar"]


def test_a_damaged_jar_is_brought_again(tmp_path: Path, repository: str) -> None:
    download(JARS, tmp_path / "jars", repository)
    (tmp_path / "jars" / "one-1.0.jar").write_bytes(b"first")
    download(JARS, tmp_path / "jars", repository)
    assert (tmp_path / "jars" / "one-1.0.jar").read_bytes() == b"first jar"


def test_what_was_not_pinned_is_refused_and_not_kept(tmp_path: Path, mirror: Path, repository: str) -> None:
    (mirror / JARS[0].url_path).write_bytes(b"something else")
    with pytest.raises(JarDownloadError, match="not the file that was pinned"):
        download(JARS, tmp_path / "jars", repository)
    assert not (tmp_path / "jars" / "one-1.0.jar").exists()


def test_a_missing_jar_is_named_with_its_address_and_the_way_out(tmp_path: Path, mirror: Path, repository: str) -> None:
    (mirror / JARS[1].url_path).unlink()
    with pytest.raises(JarDownloadError, match="HEADRACE_MAVEN") as raised:
        download(JARS, tmp_path / "jars", repository)
    assert f"{repository}/{JARS[1].url_path}" in str(raised.value)
