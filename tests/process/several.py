"""Random pipelines with several outputs: definitions that fit one input, side by side and one below another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from headrace import Aggregation, Expr, Output, Pipeline, col, lit
from headrace.errors import PipelineError
from tests.reference.scenarios import SECOND, Scenario, epochs, scenarios

_OF_OUTPUT = ("then", "null_keys", "allow_finishing", "allow_double_counting")
_AGGREGATION = ("key", "what", "where", "when", "how", "filter", "having")
_COLUMNS: st.SearchStrategy[Mapping[str, Expr]] = st.sampled_from(
    [{}, {}, {"total": -col("total")}, {"share": col("share") * 2, "n": col("total")}]
)


def output_of(pipeline: Pipeline) -> Output:
    """The output of ``pipeline``, for a pipeline that has several."""
    parts: dict[str, Any] = {part: getattr(pipeline, part) for part in (*_AGGREGATION, *_OF_OUTPUT)}
    return Output(**parts)


def output_over(upstream: str | Sequence[str], first: Aggregation, **more: Any) -> Output:
    """The output whose ``first`` aggregation reads panes of the outputs ``upstream``."""
    parts: dict[str, Any] = {part: getattr(first, part) for part in _AGGREGATION}
    return Output(of=upstream, **parts, **more, allow_finishing=True, allow_double_counting=True)


def with_user(aggregation: Aggregation) -> Aggregation:
    """``aggregation`` by user, too, which ``SECOND`` reads."""
    return replace(aggregation, key={"user": col("user"), **aggregation.key})


@st.composite
def _outputs_below(draw: st.DrawFn, outputs: Mapping[str, Output], least: int) -> dict[str, Output]:
    """``outputs``, and from ``least`` up to two that read some of them."""
    outputs_so_far = dict(outputs)
    for number, first in enumerate(draw(st.lists(SECOND, min_size=least, max_size=2))):
        upstream = draw(st.lists(st.sampled_from([*outputs_so_far]), min_size=1, max_size=3, unique=True))
        assume(len(upstream) == 1 or first.when is not None)
        columns: dict[str, Mapping[str, Expr]] = {}
        for name in upstream:
            last = (outputs_so_far[name], *outputs_so_far[name].then)[-1]
            columns[name] = {**draw(_COLUMNS), **({} if "user" in last.key else {"user": lit("nobody")})}
        next_stages = draw(st.lists(SECOND, max_size=1))
        more = {"columns": columns, "then": next_stages, "null_keys": draw(st.booleans())}
        outputs_so_far[f"below_{number}"] = output_over(upstream, with_user(first), **more)
    return outputs_so_far


@st.composite
def several_outputs(
    draw: st.DrawFn,
    inputs: st.SearchStrategy[Scenario],
    lower_count: int = 0,
    strategy: st.SearchStrategy[Scenario] = scenarios(),  # noqa: B008 (a strategy is a value)
) -> Scenario:
    """A scenario whose pipeline has two to five outputs, of which so many at least read others. ``strategy``: scenarios
    whose pipelines give the other outputs.
    """
    scenario = draw(inputs)
    whole = scenario.pipeline
    others = draw(st.lists(strategy, min_size=1, max_size=2))
    outputs = {f"output_{n}": output_of(each) for n, each in enumerate([whole, *(each.pipeline for each in others)])}
    try:
        outputs = draw(_outputs_below(outputs, lower_count))
        pipeline = Pipeline(
            "several",
            whole.input,
            union=whole.union,
            deduplicate=whole.deduplicate,
            outputs={name: outputs[name] for name in draw(st.permutations([*outputs]))},
            executor="local",
        )
    except PipelineError:
        assume(False)
        raise
    return Scenario(pipeline, scenario.epochs)


LAST = "last"


@st.composite
def cut_chains(draw: st.DrawFn) -> tuple[Scenario, Scenario]:
    """A chain of two to four aggregations, and the same cut into outputs that read one another; the last output of both
    is ``LAST``.
    """
    chain = draw(scenarios(stages=1)).pipeline
    later_aggregations = [with_user(each) for each in draw(st.lists(SECOND, min_size=1, max_size=3))]
    cuts = [draw(st.booleans()) for _ in later_aggregations[1:]]
    pieces: list[list[Aggregation]] = [[]]
    for aggregation, is_cut in zip(later_aggregations, draw(st.permutations([True, *cuts])), strict=True):
        pieces = [*pieces, [aggregation]] if is_cut else [*pieces[:-1], [*pieces[-1], aggregation]]
    first = output_of(chain)
    outputs = [replace(first, then=pieces[0])]
    for number, (head, *next_stages) in enumerate(pieces[1:]):
        outputs.append(output_over(f"piece_{number}", head, then=next_stages, null_keys=first.null_keys))
    outputs_by_name = {f"piece_{number}": output for number, output in enumerate(outputs[:-1])} | {LAST: outputs[-1]}
    drawn_epochs = draw(epochs())
    try:
        whole, cut = (
            Pipeline("cut", chain.input, deduplicate=chain.deduplicate, outputs=each, executor="local")
            for each in ({LAST: replace(first, then=later_aggregations)}, outputs_by_name)
        )
    except PipelineError:
        assume(False)
        raise
    return Scenario(whole, drawn_epochs), Scenario(cut, drawn_epochs)
