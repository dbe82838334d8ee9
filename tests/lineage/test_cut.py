"""Cuts of random deployments that go on while heads are read: Chandy and Lamport's rule, and its opposite."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from headrace.pipeline.validation import UpstreamCycleError
from headrace.read.lineage.cut import consistent_cut, upstream_last

DEPLOYMENTS = 4_000


@dataclass
class Head:
    """A snapshot by its epoch, and what it has consumed of others."""

    epoch: int
    consumed: dict[int, int] = field(default_factory=dict)


class Deployment:
    """Pipelines that commit at random, while somebody reads their heads. Pipeline n reads some of those above n."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.heads = {name: Head(0) for name in range(self.chance.randint(2, 7))}
        self.reads = {
            name: [head_above for head_above in self.heads if head_above > name and self.chance.random() < 0.5]
            for name in self.heads
        }
        self.go_on(20)

    def go_on(self, steps: int) -> None:
        """Some pipelines commit, each with what the others have published by then."""
        for _ in range(steps):
            name = self.chance.choice([*self.heads])
            consumed_epochs = {upstream: self.heads[upstream].epoch for upstream in self.reads[name]}
            self.heads[name] = Head(self.heads[name].epoch + 1, consumed_epochs)

    def read_some(self, names: Sequence[int]) -> list[Head]:
        """The heads of pipelines, read in any order."""
        heads = {name: self.read(name) for name in self.chance.sample(names, len(names))}
        return [heads[name] for name in names]

    def read(self, name: int) -> Head:
        """The head of a pipeline; others go on before anybody reads the next one."""
        head = self.heads[name]
        self.go_on(self.chance.randint(0, 6))
        return head


def is_consistent(cut: dict[int, Head]) -> bool:
    return all(epoch <= cut[upstream].epoch for head in cut.values() for upstream, epoch in head.consumed.items())


def by_rule(deployment: Deployment, names: list[int]) -> dict[int, Head]:
    return consistent_cut(names, deployment.read_some, lambda head: head.consumed)


def by_expectation(deployment: Deployment, names: list[int]) -> dict[int, Head]:
    """The same, by somebody who expects what need not be so."""
    expected = {
        name: deployment.chance.sample(names, deployment.chance.randint(0, len(names))) for name in deployment.heads
    }
    return consistent_cut(names, deployment.read_some, lambda head: head.consumed, expected)


def upstream_first(deployment: Deployment, names: list[int]) -> dict[int, Head]:
    names_in_order = upstream_last({name: [*head.consumed] for name, head in deployment.heads.items()})
    return {name: deployment.read(name) for name in reversed(names_in_order)}


def consistent(read: Callable[[Deployment, list[int]], dict[int, Head]]) -> int:
    """How many of the deployments are read consistently."""
    number = 0
    for seed in range(DEPLOYMENTS):
        deployment = Deployment(seed)
        names = deployment.chance.sample([*deployment.heads], len(deployment.heads))
        cut = read(deployment, names)
        assert cut.keys() == {*deployment.heads}
        number += is_consistent(cut)
    return number


@pytest.mark.parametrize("rule", [by_rule, by_expectation])
def test_heads_read_before_those_that_they_read_are_a_consistent_cut(
    rule: Callable[[Deployment, list[int]], dict[int, Head]],
) -> None:
    assert consistent(rule) == DEPLOYMENTS


def test_what_is_expected_rightly_is_read_once() -> None:
    edges = {"a": ["b"], "b": ["c"], "c": []}
    read: list[str] = []

    def heads(names: Sequence[str]) -> list[list[str]]:
        read.extend(names)
        return [edges[name] for name in names]

    assert consistent_cut([*"cba"], heads, lambda upstream: upstream, edges).keys() == edges.keys()
    assert read == [*"abc"]


def test_the_other_order_is_none() -> None:
    assert consistent(upstream_first) < DEPLOYMENTS * 0.8


def test_what_is_read_is_in_the_cut_though_nobody_named_it() -> None:
    deployment = Deployment(3)
    start = max(deployment.reads, key=lambda name: len(deployment.reads[name]))
    assert by_rule(deployment, [start]).keys() > {start}


@pytest.mark.parametrize(
    ("edges", "path"),
    [
        ({"a": ["b"], "b": ["a"]}, "a reads b reads a"),
        ({"x": ["a"], "a": ["b"], "b": ["c"], "c": ["a"]}, "a reads b reads c reads a"),
        ({"a": ["a"]}, "a reads a"),
    ],
)
def test_a_circle_is_named(edges: dict[str, list[str]], path: str) -> None:
    with pytest.raises(UpstreamCycleError, match=path):
        consistent_cut([*edges], lambda names: [edges[name] for name in names], lambda upstream: upstream)
