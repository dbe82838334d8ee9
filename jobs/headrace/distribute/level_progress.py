"""Where an epoch under way is, for people who watch a run."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class LevelProgress:
    """Where ``epoch`` is: its ``level`` of all ``levels``, counted from 1, what that ``does`` in words, and how many of
    its ``tasks`` are ``done`` (0 of 0: none has begun).
    """

    epoch: int
    level: int
    levels: int
    does: str
    done: int = 0
    tasks: int = 0


FindLevel = Callable[[], LevelProgress | None]
"""Says where the epoch under way is, None between epochs; it may be called from any thread."""
