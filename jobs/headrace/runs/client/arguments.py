"""The arguments of methods that run something, as they are written, made options of a run."""

from collections.abc import Callable, Sequence
from datetime import date
from enum import StrEnum
from typing import Any

from headrace.model.arguments import Arguments
from headrace.model.triggers import Signal
from headrace.pipeline.executors import executor_name
from headrace.runs.modes import Mode
from headrace.runs.options import parse_signal
from headrace.runs.reporting.listener import LineListener, Listener, Watched, watched
from headrace_snapshots.refs import MAIN

_LIMITS = ("max_epochs", "files_per_epoch", "bytes_per_epoch")
_TEXTS = {"branch": "trial", "from_branch": MAIN, "clock_step": "5m", "snapshot": "3f0c9a7be2d14c55"}
_TIMES = {"clock": "2026-01-01T00:00:00Z", "start": "2026-01-05", "end": "2026-01-07"}
_CHOICES: dict[str, type[StrEnum]] = {"mode": Mode}


def checked(call: str, **given: Any) -> dict[str, Any]:
    """What was ``given`` to ``call``, each of the kind that its name says; None stays None.

    Raises PipelineError for one that is not.
    """
    arguments = Arguments(call)
    return {name: None if value is None else _checked(arguments, name, value) for name, value in given.items()}


def told_to(listener: Listener | Callable[[str], None] | None) -> Watched:
    """A listener as a run calls it; of a function, one that gives it each thing as a line."""
    if listener is None or isinstance(listener, Listener):
        return watched(listener)
    if not callable(listener):
        raise Arguments("run").wrong("listener", listener, "give a function that takes a line, such as print")
    return watched(LineListener(listener))


def _checked(arguments: Arguments, name: str, value: Any) -> Any:
    if name in _LIMITS:
        return arguments.whole(name, value, least=1)
    if name in _TEXTS:
        return arguments.text(name, value, _TEXTS[name])
    if name in _TIMES:
        text = value.isoformat() if isinstance(value, date) else value
        return arguments.text(name, text, _TIMES[name])
    if name == "executor":
        return executor_name(arguments, value)
    if name in _CHOICES:
        return arguments.choice(name, value, _CHOICES[name])
    return _signals(arguments, value) if name == "signals" else arguments.flag(name, value)


def _signals(arguments: Arguments, given: Sequence[str | Signal]) -> tuple[Signal, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise arguments.wrong("signals", given, 'write a list, such as ["go"]')
    return tuple(_signal(arguments, signal) for signal in given)


def _signal(arguments: Arguments, given: str | Signal) -> Signal:
    if isinstance(given, Signal):
        return given
    return parse_signal(arguments.text("signals", given, 'go or go=["u1"]'))
