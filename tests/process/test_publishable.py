"""Which outputs may be published and how far: the pure function, over all small graphs."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runs.publishing.publish import OutputVersions, held_back, publishable_epochs


def versions(published_epoch: int, *passed_epochs: int, upstream: tuple[str, ...] = ()) -> OutputVersions:
    return OutputVersions(published_epoch, frozenset(passed_epochs), upstream)


def test_an_output_of_records_goes_as_far_as_its_audit() -> None:
    assert publishable_epochs({"a": versions(3, 7), "b": versions(5)}) == {"a": 7, "b": 5}


def test_an_output_is_never_ahead_of_what_it_is_computed_of() -> None:
    outputs = {"daily": versions(3, 7, upstream=("hourly",)), "hourly": versions(3)}
    assert publishable_epochs(outputs) == {"daily": 3, "hourly": 3}
    assert held_back(outputs, 7) == {"daily": ("hourly",)}


def test_an_output_follows_up_to_an_earlier_audit() -> None:
    outputs = {"hourly": versions(5), "daily": versions(3, 5, 7, upstream=("hourly",))}
    assert publishable_epochs(outputs) == {"hourly": 5, "daily": 5}


def test_a_chain_waits_for_its_first() -> None:
    outputs = {"c": versions(-1, 2, upstream=("b",)), "b": versions(-1, 2, upstream=("a",)), "a": versions(-1)}
    assert publishable_epochs(outputs) == {"a": -1, "b": -1, "c": -1}
    assert held_back(outputs, 2) == {"b": ("a",), "c": ("b",)}


GRAPHS = st.integers(1, 4).flatmap(
    lambda number: st.tuples(
        *(
            st.tuples(
                st.integers(-1, 3),
                st.frozensets(st.integers(0, 6)),
                st.frozensets(st.sampled_from([f"o{number_below}" for number_below in range(n)] or ["o0"]))
                if n
                else st.just(frozenset()),
            )
            for n in range(number)
        )
    )
)


@given(GRAPHS)
def test_all_that_may_move_moves_and_nothing_else(
    graph: tuple[tuple[int, frozenset[int], frozenset[str]], ...],
) -> None:
    outputs: dict[str, OutputVersions] = {}
    for number, (published_epoch, passed_epochs, read_outputs) in enumerate(graph):
        bound = min((outputs[name].published_epoch for name in read_outputs), default=published_epoch)
        start = min(published_epoch, bound)  # as it always is: never beyond what it is computed of
        outputs[f"o{number}"] = OutputVersions(
            start, frozenset(e for e in passed_epochs if e > start), tuple(sorted(read_outputs))
        )
    reached_epochs = publishable_epochs(outputs)
    for name, own in outputs.items():
        assert reached_epochs[name] == own.published_epoch or reached_epochs[name] in own.passed_epochs
        assert all(reached_epochs[name] <= reached_epochs[output_above] for output_above in own.upstream_names)
    choices = product(*([own.published_epoch, *own.passed_epochs] for own in outputs.values()))
    allowed_choices = [
        epochs
        for chosen_epochs in choices
        if all(
            epochs[name] <= epochs[output_above]
            for epochs in [dict(zip(outputs, chosen_epochs, strict=True))]
            for name in outputs
            for output_above in outputs[name].upstream_names
        )
        for epochs in [dict(zip(outputs, chosen_epochs, strict=True))]
    ]
    assert all(epochs[name] <= reached_epochs[name] for epochs in allowed_choices for name in outputs), (
        "nothing more would do"
    )


@pytest.mark.parametrize("requested_names", [{"a"}, {"b"}])
def test_one_that_is_not_asked_for_stays(requested_names: set[str]) -> None:
    outputs = {name: versions(1, *((4,) if name in requested_names else ())) for name in ("a", "b")}
    assert publishable_epochs(outputs) == {name: 4 if name in requested_names else 1 for name in outputs}
