"""The scenarios' pipelines, and their ``current`` after a run on the reference, in the form of the answers."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headrace import DataType, Pipeline
from headrace.model.time import to_datetime, to_instant
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace_lab.reference import Epoch, EpochResult, fold_current, run_pipeline
from headrace_lab.reference.elements import Pane
from tests.scenarios.answers import Answer

FOLDER = Path(__file__).resolve().parents[2] / "jobs/pipelines/scenarios"
NAMES = ("word_count", "video_billing", "latency_statistics", "recommendations", "anomalies")
PIPELINES = {name: resolve_pipeline(str(FOLDER / f"{name}.py")) for name in NAMES}
CLOCK = datetime(2026, 3, 9, 12, 1, tzinfo=UTC)
"""Processing time of the first epoch."""


def run(name: str, parts: Iterable[Sequence[Mapping[str, Any]]], ends: bool = False) -> list[EpochResult]:
    """Each part as an epoch, a minute apart, and one without input an hour later for what is due then; or, if the input
    ``ends``, all of it in one epoch."""
    pipeline = PIPELINES[name]
    batches = [[_type_record(pipeline, record) for record in part] for part in parts]
    if ends:
        return run_pipeline(pipeline, [Epoch(to_instant(CLOCK), [r for batch in batches for r in batch], is_last=True)])
    epochs = [Epoch(to_instant(CLOCK + timedelta(minutes=n)), batch) for n, batch in enumerate(batches)]
    return run_pipeline(pipeline, [*epochs, Epoch(to_instant(CLOCK + timedelta(hours=1, minutes=len(epochs))))])


def _type_record(pipeline: Pipeline, record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: to_instant(moment if isinstance(moment := record[name], datetime) else datetime.fromisoformat(moment))
        if kind is DataType.TIMESTAMP
        else record[name]
        for name, kind in pipeline.schema.items()
    }


def panes(results: Iterable[EpochResult]) -> list[Pane]:
    return [pane for result in results for pane in result.panes]


def current(results: Iterable[EpochResult]) -> Answer:
    """``current`` after ``results``."""
    folded_panes = fold_current(panes(results))
    return {(*key, to_datetime(window.start)): _values(pane.values) for (key, window), pane in folded_panes.items()}


def _values(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(list(value) if isinstance(value, tuple) else value for value in values)


def rows(pipeline: Pipeline, records: Iterable[Mapping[str, Any]]) -> Answer:
    """Rows of ``current`` as they are read from storage."""
    place = (*pipeline.key_types, "window_start")
    return {tuple(row[n] for n in place): tuple(row[n] for n in pipeline.value_types) for row in records}


def all_records(parts: Iterable[Sequence[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """All records, in order of arrival."""
    return [record for part in parts for record in part]
