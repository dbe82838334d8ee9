"""Random pipelines with several outputs: definitions that fit one input, side by side."""

from typing import Any

from hypothesis import strategies as st

from headrace import Output, Pipeline
from tests.reference.scenarios import Scenario, scenarios

_PARTS = ("key", "what", "where", "when", "how", "filter", "then", "allow_finishing", "allow_double_counting")


def output_of(pipeline: Pipeline) -> Output:
    """The output of ``pipeline``, for a pipeline that has several."""
    parts: dict[str, Any] = {part: getattr(pipeline, part) for part in _PARTS}
    return Output(**parts)


@st.composite
def several_outputs(draw: st.DrawFn, inputs: st.SearchStrategy[Scenario]) -> Scenario:
    """A scenario whose pipeline has two or three outputs."""
    scenario = draw(inputs)
    whole = scenario.pipeline
    others = draw(st.lists(scenarios(), min_size=1, max_size=2))
    outputs = {f"output_{n}": output_of(each) for n, each in enumerate([whole, *(each.pipeline for each in others)])}
    pipeline = Pipeline(
        "several", whole.input, union=whole.union, deduplicate=whole.deduplicate, outputs=outputs, executor="local"
    )
    return Scenario(pipeline, scenario.epochs)
