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


def change_pipeline(
    pipeline: Pipeline, *, source: FileSource | None = None, event_time: EventTime | None = None, **parts: Any
) -> Pipeline:
    """``pipeline`` with other parts."""
    own = Input(source or pipeline.source, event_time or pipeline.event_time)
    return replace(pipeline, input=own, **parts)


def lengths(least: int, most: int) -> st.SearchStrategy[Duration]:
    """Lengths of time of so many granules."""
    return st.integers(least, most).map(Duration)


def written_again(kind: type[Any], **parts: Any) -> type[Any]:
    """The class of a user as another version of their code has it: of the same name, with these ``parts``."""
    new_class: type[Any] = dataclass(frozen=True)(type(kind.__name__, (kind,), parts))
    return new_class
