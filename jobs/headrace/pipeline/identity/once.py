"""What is worked out once of a pipeline: it never changes, and runs ask again at each step."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from headrace.pipeline.pipeline import Pipeline

Found = TypeVar("Found")


def once(function: Callable[[Pipeline], Found]) -> Callable[[Pipeline], Found]:
    """``function``, which is asked once of each pipeline. What it found lives in the pipeline, and no longer."""
    name = f"_{function.__name__}"

    @wraps(function)
    def kept(pipeline: Pipeline) -> Found:
        if name not in pipeline.__dict__:
            pipeline.__dict__[name] = function(pipeline)
        found: Found = pipeline.__dict__[name]
        return found

    return kept
