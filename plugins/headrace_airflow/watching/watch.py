"""When a watcher looks for work, and when it announces what it has found.

It keeps no position: what main has read says what is new. While a run of the pipeline is queued or goes on, nothing is
looked for and nothing announced. What that run does not read is still there when it has ended. So each run has work,
files that land during a run start the next one, and a watcher that is started again misses nothing.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from headrace.read.pending_work import PendingWork

BUSY_SECONDS: Final = 5.0
"""How often a watcher asks at least whether a run has ended: Airflow alone, no store."""

AGAIN_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 3_600.0
"""What was announced and is still to be done, though no run goes on, is announced again after a minute, then after two,
four, ... an hour: the run has failed, or none was started, as of a DAG that is paused.
"""

LONGEST_PAUSE_SECONDS: Final = 300.0
"""After errors one after the other a watcher waits longer and longer, up to this."""


@dataclass(frozen=True)
class Runs:
    """How many runs of the pipeline Airflow has made, and how many of them are queued or go on."""

    made: int
    under_way: int


class LastAnnouncement:
    """What was announced last, and when something may be announced again."""

    def __init__(self) -> None:
        self._work: PendingWork | None = None
        self._runs_made = -1
        self._due = 0.0
        self._wait = AGAIN_SECONDS

    def is_to_tell(self, work: PendingWork, runs_made: int, now: float) -> bool:
        """Whether ``work`` is announced ``now``, after ``runs_made`` runs of Airflow; then it counts as announced.

        While Airflow has made no run since the last time, more files are no news: the run that it makes reads them.
        """
        is_again = work == self._work or runs_made == self._runs_made
        if is_again and now < self._due:
            return False
        self._wait = min(2 * self._wait, LONGEST_SECONDS) if is_again else AGAIN_SECONDS
        self._work, self._runs_made, self._due = work, runs_made, now + self._wait
        return True


@dataclass(frozen=True)
class Watch:
    """A watcher of one pipeline. ``find`` looks for work, ``runs`` asks Airflow; both wait, so they get a thread.
    ``report_failure`` is told of each error, and None once after the last one.
    """

    find: Callable[[], PendingWork | None]
    runs: Callable[[], Runs]
    report_failure: Callable[[Exception | None], Awaitable[None]]
    poll_seconds: float
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    now: Callable[[], float] = time.monotonic

    async def announcements(self) -> AsyncIterator[PendingWork]:
        """The work to announce, for ever. Whatever goes wrong is told, and tried again."""
        last_announcement, failures, next_look = LastAnnouncement(), 0, self.now()
        while True:
            work: PendingWork | None = None
            try:
                runs = await asyncio.to_thread(self.runs)
                if not runs.under_way and self.now() >= next_look:
                    next_look = self.now() + self.poll_seconds
                    work = await asyncio.to_thread(self.find)
                    if failures:
                        failures = 0
                        await self.report_failure(None)
            except Exception as error:  # whatever it is: if the watcher ended, nothing would start a run
                failures += 1
                await self.report_failure(error)
                await self.sleep(min(self.poll_seconds * 2**failures, max(LONGEST_PAUSE_SECONDS, self.poll_seconds)))
                continue
            if work is not None and last_announcement.is_to_tell(work, runs.made, self.now()):
                yield work
            await self.sleep(self._pause_seconds(runs, next_look))

    def _pause_seconds(self, runs: Runs, next_look: float) -> float:
        """Seconds until the next look; while a run goes on, until Airflow is asked again."""
        left = max(0.0, next_look - self.now())
        return max(left, min(BUSY_SECONDS, self.poll_seconds)) if runs.under_way else left
