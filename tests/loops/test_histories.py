"""Random histories of loops: runs that are cut short and killed, rollbacks, lost files, other names, other rounds,
outputs that are computed again and adopted, backfills that replace main or patch it. All along outputs are what all
edges that they took come to.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.loops.graphs import Edge, cuts
from tests.loops.histories import History, LoopOutput
from tests.loops.pipelines import LOOPS
from tests.reference.strategies import examples

ROUNDS = st.sampled_from([1, 1, 2, 3, None])
FILES = st.sampled_from([None, 1, 2, 5])
OUTPUTS = st.builds(
    LoopOutput,
    kind=st.sampled_from([*LOOPS]),
    width=st.sampled_from([None, 10, 20]),
    lateness=st.sampled_from([0, 5, 15]),
    rounds=ROUNDS,
)


@st.composite
def landings(draw: st.DrawFn, begin: int) -> list[Edge]:
    """Edges of the times from ``begin`` on, of which some are late and some dead letters."""
    edges = [edge for edges in draw(cuts(times=30, weights=6)).epochs for edge in edges]
    some = [Edge("v00", "v01", 1, 0), *edges[:20]]
    return [Edge(e.a, e.b, draw(st.sampled_from([*[e.weight] * 9, -1])), begin + e.at) for e in some]


def _step(draw: st.DrawFn, history: History) -> Callable[[], object]:
    """What happens next."""
    return draw(
        st.sampled_from(
            [
                history.run,
                lambda: history.run(1),
                lambda: history.run(draw(st.integers(1, 3))),
                lambda: history.kill(draw(st.integers(0, 25))),
                lambda: history.roll_back(draw(st.integers(0, 4)), draw(FILES), recovers=draw(st.booleans())),
                lambda: history.turn(draw(ROUNDS)),
                history.rename,
                lambda: history.change(draw(st.integers(0, 6)), draw(st.integers(1, 3))),
                lambda: history.begin_anew(draw(FILES), promote=draw(st.booleans())),
                lambda: history.damage(draw(st.sampled_from(["edges", "in_flight"]))),
                lambda: history.check("main") if history.line else None,
            ]
        )
    )


@pytest.mark.slow
@given(st.data())
@settings(examples(4), phases=[Phase.generate], suppress_health_check=list(HealthCheck))  # none shrinks: it takes long
def test_whatever_happens_outputs_are_what_their_edges_come_to(data: st.DataObject) -> None:
    draw = data.draw
    with TemporaryDirectory() as folder:
        outputs = {f"o{n}": each for n, each in enumerate(draw(st.lists(OUTPUTS, min_size=1, max_size=2)))}
        history = History(Path(folder), outputs, draw(st.sampled_from(["0s", "10s"])), draw(st.booleans()))
        for number in range(draw(st.integers(2, 6))):
            history.land(draw(landings(number * draw(st.sampled_from([0, 8, 25])))))
            for _ in range(draw(st.integers(0, 2))):
                _step(draw, history)()
        history.settle()
        history.publishes = True
        history.land(draw(landings(300)))
        history.settle()
        history.patch(draw(FILES))
        history.run()
        history.check_files()
