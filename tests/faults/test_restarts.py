"""Runs over a real MinIO that is killed in the middle of them and started again on the same folder, or stands still."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.errors import StoreUnavailableError, UnknownOutcomeError
from headrace_lab.sizes import set_sizes
from scripts.minio_server import client, find_or_build, start, start_again, stop
from tests.faults.points import Effect, Moment, Point, in_the_middle, watch
from tests.faults.scenarios import PIPELINES
from tests.faults.test_storage import check, land_files, undisturbed_results
from tests.faults.works import drain
from tests.minio_bucket import BUCKET

pytestmark = [pytest.mark.s3, pytest.mark.slow]
NAME = "two_stages"
STILL_SECONDS = 0.5
"""Seconds that it stands still."""


class Minio:
    """A server that ends and begins again."""

    def __init__(self, data: Path) -> None:
        find_or_build()
        self.data = data
        self.server = start(data)
        self.starts = 1
        client(self.server).make_bucket(BUCKET)
        self._coming = threading.Thread()
        self._coming.start()

    def kill(self) -> None:
        """Once it is there again."""
        self.wait()
        os.kill(self.server.pid, signal.SIGKILL)
        stop(self.server)

    def restart(self) -> None:
        """Kill it, and let it come back in the background."""
        self.kill()
        self.come_back()

    def come_back(self) -> None:
        """In the background."""
        self._coming = threading.Thread(target=self._start_again)
        self._coming.start()

    def stand_still(self) -> None:
        """For a while."""
        self.wait()
        os.kill(self.server.pid, signal.SIGSTOP)
        self._coming = threading.Timer(STILL_SECONDS, os.kill, (self.server.pid, signal.SIGCONT))
        self._coming.start()

    def wait(self) -> None:
        """Until it is there again."""
        self._coming.join()

    def _start_again(self) -> None:
        self.server = start_again(self.server, self.data)
        self.starts += 1


@pytest.fixture
def minio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Minio]:
    server = Minio(tmp_path / "minio" / "data")
    for name, value in server.server.environment().items():
        monkeypatch.setenv(name, value)
    yield server
    server.wait()
    stop(server.server)


def run_with_faults(root: str, faults: dict[Point, Callable[[], None]]) -> None:
    """A run that each of ``faults`` hits at its point."""

    def act_at_point(point: Point) -> None:
        fault = faults.pop(point, None)
        if fault is not None and point.moment is Moment.MIDDLE:
            in_the_middle(patch, fault)
        elif fault is not None:
            fault()

    with pytest.MonkeyPatch.context() as patch:
        watch(patch, act_at_point)
        drain(PIPELINES[NAME], root)


@set_sizes(s3_attempts=100)
def test_a_run_goes_on_once_the_store_is_back(minio: Minio, tmp_path: Path) -> None:
    """However long that takes here: as many attempts as it needs."""
    root, expected = land_files(tmp_path / "landed"), undisturbed_results(NAME, tmp_path / "local")
    faults: dict[Point, Callable[[], None]] = {
        Point(Effect("init entry", 0), Moment.MIDDLE): minio.restart,
        Point(Effect("late data", 1), Moment.BEFORE): minio.stand_still,
        Point(Effect("manifests", 1), Moment.BEFORE): minio.restart,
        Point(Effect("state data", 2), Moment.MIDDLE): minio.restart,
        Point(Effect("commit entry", 3), Moment.MIDDLE): minio.restart,
    }
    run_with_faults(root, faults)
    assert not faults
    assert minio.starts == 5
    check(NAME, root, expected)


@set_sizes(s3_attempts=3)
def test_a_run_whose_store_stays_away_ends_and_the_next_goes_on(minio: Minio, tmp_path: Path) -> None:
    root, expected = land_files(tmp_path / "landed"), undisturbed_results(NAME, tmp_path / "local")
    with pytest.raises((StoreUnavailableError, UnknownOutcomeError), match="s3://"):
        run_with_faults(root, {Point(Effect("commit entry", 1), Moment.MIDDLE): minio.kill})
    minio.come_back()
    minio.wait()
    drain(PIPELINES[NAME], root)
    check(NAME, root, expected)
