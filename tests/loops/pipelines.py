"""Pipelines with loops over random graphs, and what each of them must come to, window by window."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.model.time import Instant
from headrace_lab.reference import Epoch
from tests.loops.graphs import Cut, Edge, cuts
from tests.loops.oracles import components, distances, reachable_vertices
from tests.reference.scenarios import Scenario

SECOND = 1_000_000
BEGIN = "v00"
WIDTH = 10
_SCHEMA = {"a": str, "b": str, "weight": int, "at": datetime}
_FROM_THE_BEGIN = hr.if_else(col("vertex") == BEGIN, 0, None)
Values = Mapping[Any, Any]


@dataclass(frozen=True)
class KnownLoop:
    """A loop, and the values of the vertices of some edges by a plain computation."""

    loop: Mapping[str, Any]
    answer: Callable[[Sequence[Edge]], Values]

    def with_rounds(self, rounds: int | None = 64) -> hr.Loop:
        """With so many rounds in an epoch."""
        return hr.Loop(**self.loop, rounds=rounds)


def _both(edges: Iterable[Edge]) -> list[tuple[str, str]]:
    return [ends for edge in edges for ends in ((edge.a, edge.b), (edge.b, edge.a))]


def _reachability(edges: Sequence[Edge]) -> Values:
    reached_vertices = reachable_vertices(_both(edges), [BEGIN])
    return {vertex: vertex in reached_vertices for ends in _both(edges) for vertex in ends}


def _widest(edges: Sequence[Edge]) -> Values:
    """For each vertex the greatest width for which edges that are at least as wide lead there."""
    widths: dict[str, int] = {}
    for width in sorted({0, 100, *(edge.weight for edge in edges)}):
        wide = [(edge.a, edge.b) for edge in edges if edge.weight >= width]
        widths |= dict.fromkeys(reachable_vertices(wide, [BEGIN]), width)
    if any(BEGIN in (edge.a, edge.b) for edge in edges):
        widths[BEGIN] = 100
    return widths


LOOPS: Mapping[str, KnownLoop] = {
    "components": KnownLoop(
        {"start": col("vertex"), "step": col("value"), "combine": "least", "both_ways": True},
        lambda edges: components((edge.a, edge.b) for edge in edges),
    ),
    "paths": KnownLoop(
        {"start": _FROM_THE_BEGIN, "step": col("value") + col("weight"), "combine": "least"},
        lambda edges: distances(((edge.a, edge.b, edge.weight) for edge in edges), {BEGIN: 0}),
    ),
    "reached": KnownLoop(
        {"start": col("vertex") == BEGIN, "step": col("value"), "combine": "greatest", "both_ways": True}, _reachability
    ),
    "widest": KnownLoop(
        {
            "start": hr.if_else(col("vertex") == BEGIN, 100, None),
            "step": hr.least(col("value"), col("weight")),
            "combine": "greatest",
        },
        _widest,
    ),
}

_WEIGHT = col("weight")
_AT_THE_BEGIN = col("vertex") == BEGIN
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "days": {
        "start": hr.if_else(_AT_THE_BEGIN, date(2026, 1, 1), None),
        "step": col("value").plus(days=_WEIGHT),
        "combine": "least",
    },
    "moments": {
        "start": hr.if_else(_AT_THE_BEGIN, datetime(2026, 1, 1, tzinfo=UTC), None),
        "step": col("value").plus(minutes=_WEIGHT, seconds=1),
        "combine": "least",
        "both_ways": True,
    },
    "prices": {
        "start": hr.if_else(_AT_THE_BEGIN, Decimal("0.1"), None),
        "step": col("value") + _WEIGHT.cast(hr.DataType.DECIMAL) * Decimal("0.3"),
        "combine": "least",
    },
    "texts": {
        "start": hr.if_else(col("vertex") > "v05", hr.concat(col("vertex"), "ä"), None),
        "step": hr.greatest(col("value"), col("b")),
        "combine": "least",
    },
    "detours": {
        "start": hr.if_else(_AT_THE_BEGIN, 0, None),
        "step": hr.least(col("value") + _WEIGHT * 2, hr.greatest(col("value") + 1, _WEIGHT + 5)),
        "combine": "least",
        "both_ways": True,
    },
    "descents": {
        "start": hr.if_else(col("vertex") < "v03", 100, None),
        "step": hr.greatest(col("value") - _WEIGHT, 50 - _WEIGHT),
        "combine": "greatest",
    },
}
"""Loops over values of other types, and steps of several terms."""


def links(bound: str = "0s", path: str = "links", **more: Any) -> hr.Input:
    """The edges, as they land."""
    return hr.json(path, _SCHEMA, max_files=1).event_time("at", bound=bound, **more)


def pipeline(loop: hr.Loop, **parts: Any) -> hr.Pipeline:
    """Of ``loop``, in the global window unless ``parts`` says otherwise."""
    common: dict[str, Any] = {
        "key": ["a", "b"],
        "where": hr.GlobalWindows(),
        "when": hr.Repeatedly(hr.AfterCount(1)),
        "how": hr.retracting(),
        "executor": "local",
    }
    given_input = parts.pop("input", None) or links()
    return hr.Pipeline("graph", given_input, loop=loop, **{**common, **parts})


def record(edge: Edge) -> dict[str, Any]:
    """``edge`` as the reference reads it."""
    return {"a": edge.a, "b": edge.b, "weight": edge.weight, "at": Instant(edge.at * SECOND)}


def epochs(cut: Cut) -> list[Epoch]:
    """The epochs of ``cut``, a second apart."""
    return [Epoch(Instant(number * SECOND), [*map(record, edges)]) for number, edges in enumerate(cut.epochs)]


def answers(loop: KnownLoop, edges: Iterable[Edge], width: int | None) -> dict[tuple[int | None, str], Any]:
    """What ``loop`` must come to of ``edges`` in windows of so many seconds, or the global one: by start and vertex."""
    by_window: dict[int | None, list[Edge]] = defaultdict(list)
    for edge in edges:
        by_window[None if width is None else edge.at // width * width].append(edge)
    return {
        (start, vertex): value
        for start, edges_inside in by_window.items()
        for vertex, value in loop.answer(edges_inside).items()
    }


_WHERE = st.sampled_from(
    [
        hr.GlobalWindows(),
        hr.FixedWindows("10s"),
        hr.FixedWindows("10s", offset="3s"),
        hr.CalendarWindows("day", "Europe/Oslo"),
    ]
)
_WHEN = st.sampled_from(
    [
        hr.Repeatedly(hr.AfterCount(1)),
        hr.Repeatedly(hr.AfterCount(2)),
        hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
        hr.AfterWatermark(late=hr.AfterCount(1)),
        hr.AfterWatermark(late=hr.AfterProcessingTime("2s")),
        hr.Repeatedly(hr.AfterProcessingTime("3s")),
        hr.Repeatedly(hr.AfterPunctuation(col("vertex") < "v10")),
        hr.Repeatedly(hr.AfterAny(hr.AfterSignal("go"), hr.AfterPercentileWatermark(50))),
        hr.Always(),
    ]
)
_HOW = st.sampled_from(
    [
        hr.retracting("5s"),
        hr.retracting("5s", elide_unchanged=True),
        hr.accumulating("0s"),
        hr.accumulating("15s"),
        hr.retracting(None),
    ]
)
_RESULTS = st.sampled_from([{}, {}, {"known": col("value").is_not_null(), "of": col("vertex")}])
_LATER_STAGES = st.sampled_from(
    [
        (),
        (),
        (hr.Aggregation(key="value", what={"members": hr.count()}, where=hr.GlobalWindows(), when=hr.Always()),),
    ]
)
_ROUNDS = st.sampled_from([1, 2, 3, None, None])


@st.composite
def _outputs(draw: st.DrawFn) -> dict[str, Any]:
    """What an output with a loop is made of."""
    loops = [known_loop.loop for known_loop in LOOPS.values()] + [*OTHERS.values()]
    return {
        "key": ["a", "b"],
        "loop": hr.Loop(**draw(st.sampled_from(loops)), rounds=draw(_ROUNDS)),
        "where": draw(_WHERE),
        "when": draw(_WHEN),
        "how": draw(_HOW),
        "what": draw(_RESULTS),
        "having": draw(st.sampled_from([None, None, col("vertex") != "v01"])),
        "filter": draw(st.sampled_from([None, None, col("weight") != 3])),
        "then": draw(_LATER_STAGES),
        "allow_double_counting": True,
    }


_INPUTS = st.sampled_from(["0s", "4s", "30s"]).map(links)
_OTHERS: st.SearchStrategy[tuple[hr.Input, ...]] = st.sampled_from([(), (links("9s", "others").named("others"),)])
"""A second input, in some pipelines."""
_DUPLICATES = st.none() | st.just(hr.Deduplicate(hr.concat(col("a"), col("b")), "20s"))
_DAMAGE: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [*[{}] * 12, {"a": None}, {"b": None}, {"at": None}, {"weight": None}, {"weight": -1}]
)
"""What makes an edge a dead letter, of some loops."""


@st.composite
def _bundles(draw: st.DrawFn, union: tuple[hr.Input, ...]) -> list[Epoch]:
    cut = draw(cuts(times=40))
    times = sorted(draw(st.lists(st.integers(0, 60), min_size=len(cut.epochs), max_size=len(cut.epochs))))
    epochs = []
    for time, edges in zip(times, cut.epochs, strict=True):
        records = [{**record(edge), **draw(_DAMAGE)} for edge in edges]
        own = draw(st.integers(0, len(records))) if union else len(records)
        others = {given_input.name: records[own:] for given_input in union}
        signals = draw(st.sampled_from([(), (), (hr.Signal("go"),)]))
        epochs.append(Epoch(Instant(time * SECOND), records[:own], signals=signals, union=others))
    return epochs


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """A pipeline with a loop and edges for it, some of which it cannot take, in any order."""
    parts, union = draw(_outputs()), draw(_OTHERS)
    definition = hr.Pipeline(
        "graph", draw(_INPUTS), union=union, deduplicate=draw(_DUPLICATES), executor="local", **parts
    )
    return Scenario(definition, draw(_bundles(union)))


@st.composite
def several(draw: st.DrawFn) -> Scenario:
    """The same with two loops beside each other, one aggregation without, and an output of a loop's panes."""
    requested_parts: dict[str, Any] = {"how": hr.retracting("30s"), "allow_double_counting": True}
    outputs = {
        "one": hr.Output(**draw(_outputs())),
        "plain": hr.Output(key="a", what={"n": hr.count()}, where=draw(_WHERE), when=hr.Always(), **requested_parts),
        "two": hr.Output(**draw(_outputs())),
        "below": hr.Output(
            of="one", what={"n": hr.count()}, where=hr.GlobalWindows(), when=hr.Always(), **requested_parts
        ),
    }
    union = draw(_OTHERS)
    definition = hr.Pipeline(
        "graph",
        draw(_INPUTS),
        union=union,
        deduplicate=draw(_DUPLICATES),
        filter=draw(st.sampled_from([None, col("weight") != 5])),
        outputs={name: outputs[name] for name in draw(st.permutations([*outputs]))},
        executor="local",
    )
    return Scenario(definition, draw(_bundles(union)))
