"""Random histories of outputs and of who reads them; ``make fuzz EXAMPLES=1000`` makes as many fresh ones."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.process.output_histories import ACTIONS, History
from tests.reference.strategies import examples


@pytest.mark.slow
@given(st.integers(0, 2**32), st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=10))
@settings(examples(20, fewest=2), suppress_health_check=list(HealthCheck))
def test_readers_see_what_they_may_whatever_becomes_of_outputs(seed: int, actions: list[str]) -> None:
    with TemporaryDirectory() as folder:
        history = History(Path(folder), seed)
        history.good()
        for action in actions:
            note(action)
            getattr(history, action)()
            history.check()
        history.finish()
