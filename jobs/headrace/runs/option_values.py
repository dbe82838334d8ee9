"""Values of a run's options as people write them: signals, ranges of event time; and the fields of
RunOptions that are made of what was given in Python, or to the process of a task.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time
from typing import Any, Final

from headrace.model.arguments import Arguments
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, Instant, to_instant
from headrace.model.triggers import Signal
from headrace.model.windows import Window
from headrace.runs.option_kinds import OptionResult, RunOption, RunOptionsError, SignalsOption
from headrace.runs.options import option_fields, options_of_method
from headrace.runs.replay_clock import parse_clock


def parse_signal(text: str) -> Signal:
    """A signal as the command line writes it: its name, and for one key only ``=`` with the key as a JSON list.

    Raises RunOptionsError.
    """
    name, equals, key_text = text.partition("=")
    try:
        key = json.loads(key_text) if equals else None
    except ValueError:
        key = ""
    if not name or not (key is None or isinstance(key, list)):
        raise RunOptionsError(f'signal {text!r}: write a name, or a name and a key like go=["u1"]')
    return Signal(name, None if key is None else tuple(key))


def parse_span(start: str | None, end: str | None) -> Window | None:
    """A range of event time as people write it: from ``start`` up to, but without, ``end``, days or times with their
    zone in ISO 8601; a day begins at midnight UTC. None on either side: there is no bound; on both: no range.

    Raises RunOptionsError.
    """
    if start is None and end is None:
        return None
    first = MIN_INSTANT if start is None else _parse_instant(start)
    last = GLOBAL_WINDOW_END if end is None else _parse_instant(end)
    if first >= last:
        raise RunOptionsError(f"the range from {start} to {end} is empty: its end must be later than its start")
    return Window(first, last)


def _parse_instant(text: str) -> Instant:
    with suppress(ValueError):
        return to_instant(datetime.combine(date.fromisoformat(text), time(), UTC))
    try:
        return to_instant(datetime.fromisoformat(text))
    except ValueError as error:
        raise RunOptionsError(
            f"{text!r} in a range: write a day like 2026-01-01, or a time with its zone like 2026-01-01T06:00:00Z"
        ) from error


_PARSERS: Final[Mapping[OptionResult, Callable[..., Any]]] = {"span": parse_span, "clock": parse_clock}


def checked_fields(method: str, method_arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of RunOptions for the ``method_arguments`` of a method of ``PipelineHandle``; without those that
    nothing was given for. None is as good as left out, and turns a flag off. Raises PipelineError, RunOptionsError.
    """
    arguments = Arguments(method)
    values = {
        option.name: _checked_value(arguments, option, method_arguments[option.name])
        for option in options_of_method(method)
    }
    return _fields_from_options(values)


def fields_of_texts(process_arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of RunOptions for what the parser of a process read, by name of option. Raises RunOptionsError."""
    options = (option for of_field in option_fields().values() for option in of_field.options)
    return _fields_from_options({option.name: _of_text(option, process_arguments[option.name]) for option in options})


def _fields_from_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of which all options are among ``values``, and have one."""
    fields = {}
    for name, of_field in option_fields().items():
        option_values = [values.get(option.name) for option in of_field.options]
        if any(value is not None for value in option_values):
            (fields[name],) = (
                option_values if of_field.result_kind is None else (_PARSERS[of_field.result_kind](*option_values),)
            )
    return fields


def _checked_value(arguments: Arguments, option: RunOption, value: Any) -> Any:
    if value is None and (option.default is None or option.kind.empty is not None):
        return None if option.default is None else option.kind.empty
    if isinstance(option.kind, SignalsOption):
        return _parse_signals(arguments, option.name, value)
    return option.kind.check_value(arguments, option.name, value)


def _parse_signals(arguments: Arguments, name: str, value: object) -> tuple[Signal, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise arguments.refusal(name, value, 'write a list, such as ["go"]')
    return tuple(
        signal if isinstance(signal, Signal) else parse_signal(arguments.text(name, signal, 'go or go=["u1"]'))
        for signal in value
    )


def _of_text(option: RunOption, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(option.kind, SignalsOption):
        return tuple(map(parse_signal, value))
    return option.kind.of_text(value)
