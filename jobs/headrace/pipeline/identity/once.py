"""What is worked out once of a pipeline: it never changes, and runs ask again at each step."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from headrace.pipeline.pipeline import Pipeline

Answer = TypeVar("Answer")


def once(function: Callable[[Pipeline], Answer]) -> Callable[[Pipeline], Answer]:
    """``function``, which is asked once of each pipeline. Its answer lives in the pipeline, and no longer."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def kept(pipeline: Pipeline) -> Answer:
        if name not in pipeline.__dict__:
            pipeline.__dict__[name] = function(pipeline)
        answer: Answer = pipeline.__dict__[name]
        return answer

    return kept
