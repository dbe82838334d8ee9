"""Fingerprints: whether the state that a snapshot holds still belongs to the pipeline as it is written now."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from headrace.pipeline.aggregation import Aggregation
from headrace.pipeline.identity.encoding import encoded
from headrace.pipeline.identity.once import once
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.source import Input, Source
from headrace.pipeline.sources import FileSource

FORMAT = 1
"""Of what fingerprints are made; ``tests/pipeline/golden`` holds some of each format."""

FORMAT_OF_SEVERAL = 2
"""The same where outputs have names."""


@once
def fingerprint(pipeline: Pipeline) -> str:
    """Hex digest of all that decides what the state means. What the outputs are called whose panes one reads does
    not.
    """
    return fingerprint_of(meaning(pipeline))


def fingerprint_of(meant: Mapping[str, Any]) -> str:
    """The fingerprint of what ``meaning`` gives."""
    return _digest(_without_names(meant))[:32]


def meaning(pipeline: Pipeline) -> dict[str, Any]:
    """What a fingerprint is made of, as JSON: inputs, event time, splits, duplicates, and of each aggregation its key,
    filter, where, when, how, what, columns of results and having, and the loop and its rounds.

    Batch sizes, expectations, limits, checks against history, schedules, backfills, retention, executors, options of
    Airflow and descriptions may change freely. What is not used does not count. Where outputs have names, stages are
    those of each: with the inputs they mean what those of a pipeline mean that has this output alone.
    """
    read = {"inputs": [_input(given) for given in pipeline.inputs], **_used(deduplicate=pipeline.deduplicate)}
    if pipeline.has_names:
        outputs = {output: _computed(alone) for output, alone in pipeline.by_output.items()}
        return {"format": FORMAT_OF_SEVERAL, **read, "outputs": outputs}
    return {"format": FORMAT, **read, **_computed(pipeline)}


def definition(pipeline: Pipeline) -> dict[str, Any]:
    """``meaning`` as a manifest records it: floats that are not finite are texts."""
    meant: dict[str, Any] = json.loads(json.dumps(meaning(pipeline)), parse_constant=str)
    return meant


def parts(stored: Mapping[str, Any]) -> dict[str, str]:
    """Digests of the parts of a ``definition``, by their names: they say which part of a pipeline has changed where its
    fingerprint has.
    """
    named: dict[str, Any] = {"format": stored["format"], "inputs": [given["name"] for given in stored["inputs"]]}
    for given in stored["inputs"]:
        named |= {f"inputs/{given['name']}/{part}": value for part, value in given.items() if part != "name"}
    if "deduplicate" in stored:
        named["deduplicate"] = stored["deduplicate"]
    for number, stage in enumerate(stored["stages"], start=1):
        named |= {f"stages/{number}/{part}": value for part, value in stage.items()}
        named |= {f"stages/{number}/what/{name}": value for name, value in stage["what"]}
        named[f"stages/{number}/what"] = [name for name, _ in stage["what"]]
        if "results" in stage:
            named |= {f"stages/{number}/results/{name}": value for name, value in stage["results"]}
            named[f"stages/{number}/results"] = [name for name, _ in stage["results"]]
    return {name: _digest(value)[:16] for name, value in named.items()}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _used(**parts: Any) -> dict[str, Any]:
    return {name: encoded(part) for name, part in parts.items() if part is not None}


def _input(given: Input) -> dict[str, Any]:
    source = given.source
    return _used(
        name=given.name,
        kind=None if isinstance(source, FileSource) else source.kind,
        path=source.place,
        schema=dict(sorted(source.schema.items())),
        dialect=_options(source),
        transform=source.transform,
        changelog=source.changelog,
        event_time=given.event_time,
        columns=given.columns or None,
    )


def _options(source: Source) -> dict[str, Any] | None:
    """How its files are written, if it is not as the format says."""
    dialect = source.dialect if isinstance(source, FileSource) else None
    return None if dialect is None else dict(sorted(dialect.options.items()))


def _computed(pipeline: Pipeline) -> dict[str, Any]:
    """Its stages, and what they read unless it is records: panes of outputs, with what gives them."""
    of = [
        {"output": above.output, **_used(columns=above.columns or None), **_computed(above.pipeline)}
        for above in pipeline.upstream
    ]
    return {**({"of": of} if of else {}), "stages": _stages(pipeline)}


def _without_names(meant: Any) -> Any:
    match meant:
        case {"of": of, **others}:
            nameless = [{part: value for part, value in above.items() if part != "output"} for above in of]
            return {"of": _without_names(nameless), **_without_names(others)}
        case {"outputs": outputs, **others}:
            return {**others, "outputs": {name: _without_names(output) for name, output in outputs.items()}}
        case list():
            return [_without_names(part) for part in meant]
    return meant


def _stages(pipeline: Pipeline) -> list[dict[str, Any]]:
    stages = [_stage(stage.aggregation) for stage in pipeline.stages]
    if pipeline.loop is not None:
        edges = _used(key=pipeline.key, filter=pipeline.filter, values=pipeline.loop)
        stages[0] |= {"loop": edges, "rounds": pipeline.loop.rounds}
    return stages


def _stage(aggregation: Aggregation) -> dict[str, Any]:
    return _used(
        key=aggregation.key,
        filter=aggregation.filter,
        what=aggregation.aggregates,
        results=aggregation.results or None,
        having=aggregation.having,
        where=aggregation.where,
        when=aggregation.when,
        how=aggregation.how,
        transform=aggregation.transform,
    )
