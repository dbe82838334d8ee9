"""A manifest as one of several outputs sees it: as if its pipeline had that output alone, without a name.

Readers of an output need not know of the others. Where a pipeline has outputs with names, a manifest has under
``outputs`` of its schema, progress and definition what is each output's own, and the rest once for all.
"""

from collections.abc import Mapping
from typing import TypeVar

from headrace.errors import FixConfigError
from headrace_snapshots.format.codec import JSON
from headrace_snapshots.format.manifest import OUTPUTS, Manifest
from headrace_snapshots.format.table_names import OutputTables

T = TypeVar("T")


class UnknownOutputError(FixConfigError):
    """A snapshot has no output of that name, or names without which none can be read."""

    code = "config.unknown_output"


def outputs_of(manifest: Manifest) -> tuple[str, ...]:
    """The names of the outputs of a snapshot; none if it has one output without a name."""
    return tuple(manifest.schema.get(OUTPUTS, ()))


def seen_by(manifest: Manifest, output: str) -> Manifest:
    """``manifest`` as ``output`` sees it; "" sees that of a pipeline without names. Raises UnknownOutputError."""
    there = outputs_of(manifest)
    if not output and not there:
        return manifest
    where = f"snapshot {manifest.snapshot_id} (epoch {manifest.epoch}) of pipeline {manifest.pipeline}"
    if not output:
        raise UnknownOutputError(
            f"{where} has the outputs {', '.join(there)}: name one of them, such as {manifest.pipeline}.{there[0]}"
        )
    if output not in there:
        has = f"the outputs {', '.join(there)}" if there else "one output, which has no name"
        raise UnknownOutputError(f"{where} has no output {output!r}: it has {has}")
    own: dict[str, JSON] = dict(manifest.schema[OUTPUTS][output])
    names = OutputTables(output)
    return manifest.replace(
        fingerprint=own.pop("fingerprint"),
        schema={**own, "output": output},
        progress=_progress(manifest.progress, output),
        tables=_own(manifest.tables, names),
        logs=_own(manifest.logs, names),
        counts={**_shared(manifest.counts), **_own(manifest.counts, names)},
        definition=_merged(manifest.definition, output) | {"format": 1},
    )


def _progress(progress: Mapping[str, JSON], output: str) -> dict[str, JSON]:
    merged = _merged(progress, output)
    if (held_to := merged.get("held_to")) is not None:  # of main, which may have had other outputs
        merged["held_to"] = _merged({OUTPUTS: {output: {"output_watermarks": []}}, **held_to}, output)
    return merged


def _merged(value: Mapping[str, JSON], output: str) -> dict[str, JSON]:
    return {**{name: part for name, part in value.items() if name != OUTPUTS}, **value[OUTPUTS].get(output, {})}


def _shared(named: Mapping[str, T]) -> dict[str, T]:
    return {name: value for name, value in named.items() if "/" not in name}


def _own(named: Mapping[str, T], names: OutputTables) -> dict[str, T]:
    """What is shared, and what is the output's, called as if it had no name."""
    own = {plain: value for name, value in named.items() if (plain := names.plain(name)) is not None}
    return {**_shared(named), **own}
