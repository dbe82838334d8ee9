"""Fingerprints: whether the state that a snapshot holds still belongs to the pipeline as it is written now."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from headrace.model.custom_combiners import CustomCombiner
from headrace.model.custom_triggers import CustomTrigger
from headrace.model.expr import Expr, to_json
from headrace.pipeline.graph import Aggregation, Pipeline


def fingerprint(pipeline: Pipeline) -> str:
    """Hex digest of all that decides what the state means: inputs, event time, splits, duplicates, and of each
    aggregation its key, filter, where, when, how and what.

    Sources' batch sizes, expectations, schedules, executors and descriptions may change freely. An optional part that
    is not used does not count, so new ones may be added to the model.
    """
    parts = [
        pipeline.source.path,
        sorted((name, kind.value) for name, kind in pipeline.source.schema.items()),
        pipeline.event_time,
        [_aggregation(stage.aggregation) for stage in pipeline.stages],
        *[[other.name, other.source.path, other.event_time, other.columns] for other in pipeline.also],
        *[each.source.transform for each in pipeline.inputs if each.source.transform is not None],
        *([] if pipeline.deduplicate is None else [pipeline.deduplicate]),
    ]
    return hashlib.sha256(json.dumps(_plain(parts), sort_keys=True).encode()).hexdigest()[:32]


def _aggregation(aggregation: Aggregation) -> list[Any]:
    a = aggregation
    parts = [list(a.key.items()), a.filter, a.where, a.when, a.how, list(a.what.items())]
    return parts if a.transform is None else [*parts, a.transform]


def _declared(value: Any) -> list[Any]:
    """What a user's own object says about its state, which need not be a field of it."""
    match value:
        case CustomCombiner():
            return [_plain(value.accumulator_types), _plain(value.result_type)]
        case CustomTrigger():
            return [_plain(value.state_types), *([sorted({*value.signals})] if value.signals else [])]
    return []


def _plain(value: Any) -> Any:
    if isinstance(value, Expr):
        return to_json(value)
    if is_dataclass(value) and not isinstance(value, type):
        meant = [field for field in fields(value) if not field.metadata.get("is_place")]
        values = {field.name: getattr(value, field.name) for field in meant}
        used = {name: _plain(part) for name, part in values.items() if part is not None}
        return [type(value).__name__, used, *_declared(value)]
    if isinstance(value, Mapping):
        return [[name, _plain(part)] for name, part in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
