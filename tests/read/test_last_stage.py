"""What manifests say of the last aggregation is what the definition itself says."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import col
from headrace.kernel.stage import CompiledStage
from headrace.model.time import END_OF_CALENDAR, GLOBAL_WINDOW_END, MAX_INSTANT, MIN_INSTANT, Instant
from headrace.pipeline.identity import fingerprint, recorded_definition
from headrace.read.snapshots.progress import LastStage, MergingWindows
from headrace.sources.progress import ChainClocks, PipelineProgress
from headrace_snapshots.format.manifest import Manifest
from tests.manifests import new_manifest
from tests.own_windows import Validity
from tests.process.clicks import CLICKS, clicks
from tests.stored_progress import progress_fields

HOUR = 3_600_000_000
LOWER_STAGE = hr.Aggregation(key="user", what={"spent": col("spent").sum()}, where=hr.FixedWindows("3h"))


def manifest(pipeline: hr.Pipeline, *watermarks: int) -> Manifest:
    """One at which the input and then the output of each aggregation has come to these."""
    first, *outputs = map(Instant, watermarks)
    progress = PipelineProgress(watermark=first, chains={"": ChainClocks(tuple(outputs))})
    return new_manifest(
        snapshot_id="s",
        pipeline=pipeline.name,
        fingerprint=fingerprint(pipeline),
        branch="main",
        epoch=0,
        parent=None,
        generation=0,
        created_at="2026-01-01T00:00:00Z",
        progress=progress_fields(progress),
        definition=recorded_definition(pipeline),
    )


def last_stage_of(pipeline: hr.Pipeline) -> LastStage:
    stage = LastStage.from_manifest(manifest(pipeline, 0, *[0] * len(pipeline.stages)))
    assert stage is not None
    return stage


def clicks_with_stage(how: hr.How | None = None, **parts: Any) -> hr.Pipeline:
    lower = LOWER_STAGE if how is None else replace(LOWER_STAGE, how=how)
    return replace(CLICKS, then=(lower,), **parts)


def how_of(pipeline: hr.Pipeline) -> hr.How:
    return CompiledStage(pipeline.stages[-1]).how


PIPELINES = [
    CLICKS,
    replace(CLICKS, how=hr.accumulating()),
    replace(CLICKS, how=hr.discarding("90m")),
    replace(CLICKS, how=hr.retracting(None)),
    clicks_with_stage(),
    clicks_with_stage(hr.retracting("3d")),
    clicks_with_stage(hr.accumulating("1h")),
    clicks_with_stage(hr.retracting(None)),
]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_lateness_and_accumulation(pipeline: hr.Pipeline) -> None:
    stage, how = last_stage_of(pipeline), how_of(pipeline)
    assert (stage.lateness, stage.accumulation) == (how.allowed_lateness, how.accumulation)
    assert stage.table == ("state" if len(pipeline.stages) == 1 else "state_1")
    assert stage.is_first == (len(pipeline.stages) == 1)


@pytest.mark.parametrize("pipeline", [each for each in PIPELINES if how_of(each).allowed_lateness is not None])
@pytest.mark.parametrize("watermark", [MIN_INSTANT, 0, 7 * HOUR, END_OF_CALENDAR, MAX_INSTANT])
def test_windows_expire_as_they_do_for_the_engine(pipeline: hr.Pipeline, watermark: int) -> None:
    compiled_stage = CompiledStage(pipeline.stages[-1])
    lateness = int(how_of(pipeline).allowed_lateness or 0)
    moment = Instant(watermark)
    moments = [watermark - lateness + less for less in (-HOUR, -1, 0, 1, HOUR)]
    ends = np.array([each for each in moments if each > MIN_INSTANT] + [int(GLOBAL_WINDOW_END)], np.int64)
    others = [MAX_INSTANT] * (len(pipeline.stages) - 1)
    where = manifest(pipeline, *others, moment, moment) if others else manifest(pipeline, moment, moment)
    expired_until = last_stage_of(pipeline).expired_until(where)
    finite = ends[ends <= GLOBAL_WINDOW_END]
    assert list(finite <= expired_until) == list(compiled_stage.expired_mask(finite, moment))


@pytest.mark.parametrize(
    ("where", "merging", "own"),
    [
        (hr.SlidingWindows("2h", "1h"), None, None),
        (hr.GlobalWindows(), None, None),
        (hr.Sessions("1h"), MergingWindows(False), None),
        (hr.Sessions("1h", touching_merges=True), MergingWindows(True), None),
        (hr.ShiftedOutputTime(hr.Sessions("1h"), "5m"), MergingWindows(False), None),
        (Validity(1_000_000), None, "Validity"),
        (hr.ShiftedOutputTime(Validity(1_000_000), "5m"), None, "Validity"),
    ],
    ids=str,
)
def test_which_windows_merge(where: Any, merging: MergingWindows | None, own: str | None) -> None:
    stage = last_stage_of(clicks(where))
    assert (stage.merging, stage.own) == (merging, own)


def test_older_manifests_do_not_say() -> None:
    assert LastStage.from_manifest(manifest(CLICKS, 0, 0).replace(definition={})) is None
