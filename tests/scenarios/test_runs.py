"""The papers' scenarios as they run: landed files, snapshots; ``current`` is the true answer."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from headrace.testing import TemporaryDeployment
from scripts.land_scenarios import land, parts
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read
from tests.scenarios import answers
from tests.scenarios.answers import Answer
from tests.scenarios.runs import CLOCK, PIPELINES, all_records, rows

HOUR_LATER = CLOCK + timedelta(hours=1)


def run_scenario(name: str, root: Path, executor: ExecutorUnderTest, now: datetime) -> Answer:
    """What readers see after one run at ``now``, a file an epoch."""
    pipeline = PIPELINES[name]
    result = TemporaryDeployment(root).run(pipeline, executor=executor.executor, at=now, files_per_epoch=1)
    assert result.published == result.snapshot
    return rows(pipeline, read(pipeline, root.as_uri()).to_pylist())


@pytest.mark.parametrize("name", ["word_count", "latency_statistics", "anomalies"])
def test_current_is_the_independent_answer(name: str, executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land(name, tmp_path.as_uri(), files=2)
    found_answer = run_scenario(name, tmp_path, executor, CLOCK)
    answer = getattr(answers, name)(all_records(parts(name, 2)))
    if name == "latency_statistics":  # windows that the watermark has not passed may have spoken early
        found_answer = {place: found_answer[place] for place in answer if place in found_answer}
    assert found_answer == answer


def test_recommendations_are_there_when_the_clock_says_so(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    land("recommendations", tmp_path.as_uri(), files=2)
    assert run_scenario("recommendations", tmp_path, executor, CLOCK) == {}
    found_answer = run_scenario("recommendations", tmp_path, executor, HOUR_LATER)
    assert found_answer == answers.recommendations(all_records(parts("recommendations", 2)))


@on_both
def test_a_large_correction_of_a_live_pipeline_is_one_more_run(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    live, correction = parts("video_billing", 2), parts("video_correction", 1)
    land("video_billing", tmp_path.as_uri(), files=2)
    assert run_scenario("video_billing", tmp_path, executor, CLOCK) == answers.video_billing(all_records(live))
    land("video_correction", tmp_path.as_uri(), files=1)
    corrected_answer = run_scenario("video_billing", tmp_path, executor, HOUR_LATER)
    assert corrected_answer == answers.video_billing(all_records([*live, *correction]))
