"""The papers' scenarios on the reference interpreter: final answers, and what each scenario is about."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import FixConfigError
from headrace.model.accumulation import Timing
from headrace.model.time import to_instant
from headrace.pipeline.loading.registry import registered_files
from headrace_lab.reference import DropCause
from scripts.land_scenarios import land, parts
from tests.scenarios import answers
from tests.scenarios.runs import FOLDER, NAMES, PIPELINES, all_records, current, panes, run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("files", [1, 12, 40])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_current_is_the_independent_answer(name: str, seed: int, files: int) -> None:
    landed_parts = parts(name, files, seed)
    results = run(name, landed_parts)
    answer, found_answer = getattr(answers, name)(all_records(landed_parts)), current(results)
    if name == "latency_statistics":  # windows that the watermark has not passed may have spoken early
        found_answer = {place: found_answer[place] for place in answer if place in found_answer}
    assert len(answer) > 1
    assert found_answer == answer
    causes = {drop.cause for result in results for drop in result.drops}
    assert causes == ({DropCause.DUPLICATE} if name == "video_billing" else set())
    rejected_rows = [r.record for result in results for r in result.rejected]
    assert rejected_rows == ([{"word": None}] if name == "word_count" else [])


def test_words_are_refined_by_every_batch_that_brings_them() -> None:
    results = run("word_count", parts("word_count", 5))
    counts_by_batch = [{pane.key[0]: pane.values[0] for pane in result.panes} for result in results]
    times = [values["the"] for values in counts_by_batch[:5]]
    assert times == sorted(set(times))
    assert counts_by_batch[5] == {}


def test_bills_are_corrected_when_sessions_grow_merge_and_change_days() -> None:
    landed_parts = parts("video_billing", 12)
    results = run("video_billing", landed_parts)
    assert sum(pane.is_retraction for pane in panes(results)) > 20
    sessions: dict[tuple[Any, ...], list[int]] = {}
    for pane in panes(results):
        sessions.setdefault((pane.key, pane.window), []).append(pane.values[0])
    assert any(numbers != sorted(numbers) for numbers in sessions.values()), "a bill for fewer sessions than before"


def test_a_large_correction_goes_through_the_same_pipeline() -> None:
    live, correction = parts("video_billing", 12), parts("video_correction", 4)
    answer_before = current(run("video_billing", live))
    corrected_answer = current(run("video_billing", [*live, *correction]))
    assert len(all_records(correction)) > 0.9 * len(all_records(live))
    assert corrected_answer != answer_before
    assert answer_before.keys() <= corrected_answer.keys()
    assert corrected_answer == answers.video_billing(all_records([*live, *correction]))
    assert corrected_answer == current(run("video_billing", [*live, *correction], ends=True))


def test_statistics_come_early_on_most_of_the_input_and_then_complete() -> None:
    landed_parts = parts("latency_statistics", 40)
    results = run("latency_statistics", landed_parts)
    emitted_panes = [(epoch, pane) for epoch, result in enumerate(results) for pane in result.panes]
    early = {(p.key, p.window): (epoch, p) for epoch, p in emitted_panes if p.timing is Timing.EARLY}
    on_time = {(p.key, p.window): (epoch, p) for epoch, p in emitted_panes if p.timing is Timing.ON_TIME}
    spoken_places = [place for place in early if place in on_time]
    assert len(spoken_places) >= 15
    assert all(early[place][0] < on_time[place][0] for place in spoken_places)
    spoken_sum = sum(early[place][1].values[0] for place in spoken_places)
    final_sum = sum(on_time[place][1].values[0] for place in spoken_places)
    assert 0.9 * final_sum < spoken_sum < final_sum
    assert any(pane.timing is Timing.LATE for _, pane in emitted_panes)


def test_recommendations_wait_for_the_clock_and_for_nothing_else() -> None:
    landed_parts = parts("recommendations", 25)
    results = run("recommendations", landed_parts)
    speaks = [epoch for epoch, result in enumerate(results) if result.panes]
    assert speaks == [9, 19, 25], "at the first epoch of each ten minutes"
    assert any(pane.is_retraction for pane in panes(results))
    assert len({pane.timing for pane in results[9].panes}) > 1, "wherever the watermark is"


def test_an_alarm_comes_before_its_window_ends_and_one_that_was_none_is_withdrawn() -> None:
    landed_parts = parts("anomalies", 120)
    results = run("anomalies", landed_parts)
    emitted_panes = panes(results)
    assert {pane.key for pane in emitted_panes} == {("eclipse",), ("goal",)}
    goal = [pane.is_retraction for pane in emitted_panes if pane.key == ("goal",)]
    assert not goal[0]
    assert goal[-1]
    assert {key for key, _ in current(results)} == {"eclipse"}
    first = next(r.watermark for r in results if any(p.key == ("eclipse",) for p in r.panes))
    start = min(window for _, window in answers.anomalies(all_records(landed_parts)))
    assert first < to_instant(start + timedelta(minutes=40)), "before the watermark passed the first trending window"


def test_landing_again_changes_nothing_and_other_data_is_refused(tmp_path: Path) -> None:
    paths = land("video_billing", tmp_path.as_uri(), files=3)
    assert land("video_billing", tmp_path.as_uri(), files=3) == paths
    with pytest.raises(FixConfigError, match="another seed"):
        land("video_billing", tmp_path.as_uri(), files=3, seed=1)
    with pytest.raises(FixConfigError, match="cannot be cut"):
        land("word_count", tmp_path.as_uri(), files=10_000)


def test_a_correction_sorts_behind_what_was_live(tmp_path: Path) -> None:
    live = land("video_billing", tmp_path.as_uri(), files=2)
    assert land("video_correction", tmp_path.as_uri(), files=2)[0] > live[-1]


def test_scenarios_have_names_only_where_their_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not registered_files().pipelines.keys() & set(NAMES)
    monkeypatch.setenv("HEADRACE_PIPELINES", str(FOLDER))
    assert registered_files().pipelines.keys() >= set(NAMES)
    assert [PIPELINES[name].name for name in NAMES] == list(NAMES)
