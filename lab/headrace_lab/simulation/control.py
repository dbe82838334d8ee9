"""What tasks and the coordinator tell each other: messages that may be lost, and are sent again.

A sender repeats a message until it is confirmed, up to ``Settings.tries`` times. So a message comes once; twice if a
confirmation was lost; not at all if every try was lost. A message that has to be sent again holds up those behind it,
as on a connection. Otherwise the order for the next snapshot would overtake it, and many starting tasks would hardly
ever all begin the same one.
"""

from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

from headrace_lab.simulation.settings import Settings
from headrace_lab.simulation.timeline import Timeline


class Control:
    """The connections of a run's coordinators and tasks: a ``line`` to each task, and one from it."""

    def __init__(self, settings: Settings, timeline: Timeline, random: Random) -> None:
        self._settings, self._timeline, self._random = settings, timeline, random
        self._held_up_until: dict[object, int] = defaultdict(int)
        self.resent = 0

    def delay(self) -> int:
        """How long a message takes."""
        return 1 + int(self._random.random() * self._settings.delay)

    def send(self, line: object, function: Callable[..., None], *arguments: Any, is_sure: bool = False) -> None:
        """Call ``function`` when the message comes on ``line``; it comes if it ``is_sure``."""
        wait, has_come = 0, False
        for number in range(self._settings.tries):
            self.resent += number > 0
            if is_sure or not self._is_lost():
                delay = max(wait + self.delay(), self._held_up_until[line] - self._timeline.now)
                self._timeline.call_after(delay, function, *arguments, control=True)
                if wait and not has_come:
                    self._held_up_until[line] = self._timeline.now + delay
                has_come = True
                if is_sure or not self._settings.lost_messages or not self._is_lost():  # the confirmation
                    return
            wait += self._patience

    @property
    def _patience(self) -> int:
        """After how long a message is sent again: there and back takes no longer."""
        return 2 * (1 + self._settings.delay)

    def _is_lost(self) -> bool:
        return self._random.random() < self._settings.lost_messages
