"""Progress in a manifest: what is due at the end of the global window, which no calendar has."""

from datetime import UTC, datetime

import pytest

from headrace.model.time import GLOBAL_WINDOW_END, MAX_INSTANT, NEVER, Instant, to_instant
from headrace.sources.progress import ChainClocks, PipelineProgress
from headrace_snapshots.format.codec import Fields


def read(progress: PipelineProgress) -> PipelineProgress:
    return PipelineProgress.from_json(Fields({**progress.to_json(), **progress.reading_to_json()}, "progress"), {})


@pytest.mark.parametrize("due", [Instant(GLOBAL_WINDOW_END - 1), Instant(GLOBAL_WINDOW_END - 60_000_000)])
def test_a_due_beyond_the_calendar_comes_back_as_a_lower_bound_of_it(due: Instant) -> None:
    restored_records = read(PipelineProgress(chains={"": ChainClocks(due_event=due)}))
    assert to_instant(datetime(9999, 1, 1, tzinfo=UTC)) < restored_records.chain.due_event <= due
    assert read(restored_records) == restored_records


@pytest.mark.parametrize("due", [Instant(0), Instant(1_772_000_000_000_000), NEVER])
def test_other_dues_come_back_as_they_were(due: Instant) -> None:
    progress = PipelineProgress(chains={"": ChainClocks(due_event=due, due_time=due)})
    assert read(progress) == progress


@pytest.mark.parametrize("hold", [Instant(GLOBAL_WINDOW_END - 1), Instant(GLOBAL_WINDOW_END - 60_000_000)])
def test_so_does_an_output_watermark(hold: Instant) -> None:
    restored_records = read(PipelineProgress(chains={"": ChainClocks((hold, Instant(0), MAX_INSTANT))}))
    assert to_instant(datetime(9999, 1, 1, tzinfo=UTC)) < restored_records.chain.output_watermarks[0] <= hold
    assert restored_records.chain.output_watermarks[1:] == (Instant(0), MAX_INSTANT)
