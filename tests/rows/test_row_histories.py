"""Random histories of rows: whatever becomes of snapshots, what stands is what was read (``row_histories``)."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.reference.strategies import examples
from tests.rows.row_histories import ACTIONS, History


@pytest.mark.slow
@given(st.integers(0, 2**32), st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=12))
@settings(examples(20, fewest=2), suppress_health_check=list(HealthCheck))
def test_what_stands_is_what_was_read_whatever_becomes_of_snapshots(seed: int, actions: list[str]) -> None:
    with TemporaryDirectory() as folder:
        history = History(Path(folder), seed)
        for action in ("land_orders", *actions):
            note(action)
            history.act(action)
            history.check()
        history.finish()
