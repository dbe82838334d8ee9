"""A dry run: what a run would do, as far as that can be told without doing it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.damage import ways_out
from headrace.runs.epochs import RunContext
from headrace.runs.options import RunOptions
from headrace.runs.plan import NAMED, ComputeEpochs, LandRecords, RunStage, looked_ahead, plan_run
from headrace.runs.reporting.listener import watched
from headrace.sources.landing import ByInput
from headrace_snapshots.store import open_store

_LISTED = 20
"""Splits of an input that are listed; JSON has all."""


@dataclass(frozen=True)
class DryRun:
    """The ``stages`` that a run of ``pipeline`` would perform, and what it would warn of. They are all there are, but
    where only records that have landed can tell more: then the last one says so.
    """

    pipeline: str
    stages: tuple[RunStage, ...]
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """For people: a sentence for each stage, below it what it reads where that is more than the sentence names."""
        for stage in self.stages:
            yield str(stage)
            for name, splits in reads_of(stage).items():
                yield from _listed(name, [split.path for split in splits])

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {
            "pipeline": self.pipeline,
            "stages": [_as_json(stage) for stage in self.stages],
            "warnings": [*self.warnings],
        }


def dry_run(pipeline: Pipeline, root: str, options: RunOptions, *, now: Callable[[], datetime] | None = None) -> DryRun:
    """What ``process`` would do with ``pipeline``. Nothing moves, starts or lands, and nothing is written. Raises what
    stands against the run, as far as that can be seen.
    """
    context = RunContext.of(pipeline, options, open_store(root), watched(None), now or _wall_clock)
    with context.landing.connected(), ways_out(context.catalog, options.branch):
        stages = looked_ahead(context, plan_run(context))
    return DryRun(pipeline.name, stages, tuple(context.warnings))


def reads_of(stage: RunStage) -> ByInput:
    """What ``stage`` lands or reads, by input."""
    match stage:
        case LandRecords():
            return stage.waiting or {}
        case ComputeEpochs():
            return {name: splits for name, splits in stage.reads.items() if splits}
    return {}


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def _as_json(stage: RunStage) -> dict[str, Any]:
    reads = {name: [split.path for split in splits] for name, splits in reads_of(stage).items()}
    return {"stage": stage.word, "does": str(stage), **({"reads": reads} if reads else {})}


def _listed(name: str, paths: list[str]) -> Iterator[str]:
    if len(paths) <= NAMED:
        return
    for path in paths[:_LISTED]:
        yield f"  {name}: {path}"
    if len(paths) > _LISTED:
        yield f"  {name}: and {len(paths) - _LISTED:,} more"
