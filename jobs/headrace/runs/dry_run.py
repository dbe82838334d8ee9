"""A dry run: what a run would do, as far as that can be told without doing it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.read.snapshots.damage import ways_out
from headrace.runs.plan import PreparedRun, looked_ahead
from headrace.runs.stages import NAMED, ComputeEpochs, LandRecords, Stage
from headrace.sources.landing import ByInput

_LISTED = 20
"""Splits of an input that are listed; JSON has all."""


@dataclass(frozen=True)
class DryRun:
    """The ``stages`` that a run of ``pipeline`` would perform, and what it would warn of. They are all there are, but
    where only records that have landed can tell more: then the last one says so.
    """

    pipeline: str
    stages: tuple[Stage, ...]
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


def look_ahead(prepared: PreparedRun) -> DryRun:
    """What a run would do. Nothing moves, starts or lands, and nothing is written. Raises what stands against it, as
    far as that can be seen.
    """
    run = prepared.context
    with run.landing.connected(), ways_out(run.catalog, run.options.branch):
        stages = looked_ahead(run, prepared.plan(run))
    return DryRun(run.pipeline.name, stages, tuple(run.warnings))


def reads_of(stage: Stage) -> ByInput:
    """What ``stage`` lands or reads, by input."""
    match stage:
        case LandRecords():
            return stage.waiting or {}
        case ComputeEpochs():
            return {name: splits for name, splits in stage.reads.items() if splits}
    return {}


def _as_json(stage: Stage) -> dict[str, Any]:
    reads = {name: [split.path for split in splits] for name, splits in reads_of(stage).items()}
    return {"stage": stage.word, "does": str(stage), **({"reads": reads} if reads else {})}


def _listed(name: str, paths: list[str]) -> Iterator[str]:
    if len(paths) <= NAMED:
        return
    for path in paths[:_LISTED]:
        yield f"  {name}: {path}"
    if len(paths) > _LISTED:
        yield f"  {name}: and {len(paths) - _LISTED:,} more"
