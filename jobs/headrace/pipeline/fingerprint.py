"""Fingerprints: whether the state that a snapshot holds still belongs to the pipeline as it is written now."""

import hashlib
import json
from dataclasses import fields, is_dataclass
from typing import Any

from headrace.model.expr import Expr, to_json
from headrace.pipeline.graph import Pipeline


def fingerprint(pipeline: Pipeline) -> str:
    """Hex digest of all that decides what the state means: event time, split, key, filter, where, when, how, what.

    Sources' batch sizes, expectations, schedules and descriptions may change freely.
    """
    parts = [
        pipeline.source.path,
        sorted((name, kind.value) for name, kind in pipeline.source.schema.items()),
        pipeline.event_time,
        list(pipeline.key.items()),
        pipeline.filter,
        pipeline.where,
        pipeline.when,
        pipeline.how,
        list(pipeline.what.items()),
    ]
    return hashlib.sha256(json.dumps(_plain(parts), sort_keys=True).encode()).hexdigest()[:32]


def _plain(value: Any) -> Any:
    if isinstance(value, Expr):
        return to_json(value)
    if is_dataclass(value) and not isinstance(value, type):
        return [type(value).__name__, *[_plain(getattr(value, f.name)) for f in fields(value)]]
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value
