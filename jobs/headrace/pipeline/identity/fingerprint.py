"""Fingerprints: whether the state that a snapshot holds still belongs to the pipeline as it is written now."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from headrace.pipeline.aggregation import Aggregation
from headrace.pipeline.identity.encoding import encoded
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import Input

FORMAT = 1
"""Of what fingerprints are made; ``tests/pipeline/golden`` holds some of each format."""


def fingerprint(pipeline: Pipeline) -> str:
    """Hex digest of all that decides what the state means."""
    return _digest(meaning(pipeline))[:32]


def meaning(pipeline: Pipeline) -> dict[str, Any]:
    """What a fingerprint is made of, as JSON: inputs, event time, splits, duplicates, and of each aggregation its key,
    filter, where, when, how and what.

    Sources' batch sizes, expectations, schedules, backfills, retention, executors and descriptions may change freely.
    What is not used does not count.
    """
    return {
        "format": FORMAT,
        "inputs": [_input(each) for each in pipeline.inputs],
        **_used(deduplicate=pipeline.deduplicate),
        "stages": [_stage(stage.aggregation) for stage in pipeline.stages],
    }


def definition(pipeline: Pipeline) -> dict[str, Any]:
    """``meaning`` as a manifest records it: floats that are not finite are texts."""
    found: dict[str, Any] = json.loads(json.dumps(meaning(pipeline)), parse_constant=str)
    return found


def parts(said: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the parts of a ``definition``, by their names: they say which part of a pipeline has changed where its
    fingerprint has.
    """
    found: dict[str, Any] = {"format": said["format"], "inputs": [each["name"] for each in said["inputs"]]}
    for each in said["inputs"]:
        found |= {f"inputs/{each['name']}/{part}": value for part, value in each.items() if part != "name"}
    if "deduplicate" in said:
        found["deduplicate"] = said["deduplicate"]
    for number, stage in enumerate(said["stages"], start=1):
        found |= {f"stages/{number}/{part}": value for part, value in stage.items()}
        found |= {f"stages/{number}/what/{name}": value for name, value in stage["what"]}
        found[f"stages/{number}/what"] = [name for name, _ in stage["what"]]
    return {name: _digest(value)[:16] for name, value in found.items()}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _used(**parts: Any) -> dict[str, Any]:
    return {name: encoded(part) for name, part in parts.items() if part is not None}


def _input(given: Input) -> dict[str, Any]:
    source = given.source
    return _used(
        name=given.name,
        path=source.path,
        schema=dict(sorted(source.schema.items())),
        transform=source.transform,
        event_time=given.event_time,
        columns=given.columns or None,
    )


def _stage(aggregation: Aggregation) -> dict[str, Any]:
    return _used(
        key=aggregation.key,
        filter=aggregation.filter,
        what=aggregation.what,
        where=aggregation.where,
        when=aggregation.when,
        how=aggregation.how,
        transform=aggregation.transform,
    )
