"""Pipelines of parts that tests change one by one."""

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from headrace import FileSource, Input, Pipeline
from headrace.model.event_time import EventTime
from headrace.model.time import Duration


def pipeline(*, source: FileSource, event_time: EventTime, **parts: Any) -> Pipeline:
    """A pipeline over ``source`` with ``event_time``."""
    return Pipeline(input=Input(source, event_time), **parts)


def changed(
    made: Pipeline, *, source: FileSource | None = None, event_time: EventTime | None = None, **parts: Any
) -> Pipeline:
    """``made`` with other parts."""
    own = Input(source or made.source, event_time or made.event_time)
    return replace(made, input=own, **parts)


def lengths(least: int, most: int) -> st.SearchStrategy[Duration]:
    """Lengths of time of so many granules."""
    return st.integers(least, most).map(Duration)


def written_again(kind: type[Any], **parts: Any) -> type[Any]:
    """The class of a user as another version of their code has it: of the same name, with these ``parts``."""
    again: type[Any] = dataclass(frozen=True)(type(kind.__name__, (kind,), parts))
    return again
