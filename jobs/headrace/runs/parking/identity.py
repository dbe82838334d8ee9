"""What a snapshot says of the definitions of outputs: of one that is parked, that of the state which it stands at."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from headrace.pipeline.identity.fingerprint import definition, fingerprint, fingerprint_of
from headrace.pipeline.pipeline import Pipeline
from headrace_snapshots.format.manifest import OUTPUTS, Manifest
from headrace_snapshots.format.output_view import outputs_of


@dataclass(frozen=True)
class SnapshotIdentity:
    """The ``fingerprint`` and ``definition`` of a snapshot, and the fingerprint of each output. ``standing``: the
    schemas of outputs that stay as they were.
    """

    fingerprint: str
    definition: Mapping[str, Any]
    fingerprints: Mapping[str, str]
    standing: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, pipeline: Pipeline, base: Manifest | None, standing: Collection[str]) -> Self:
        """The identity of snapshots of ``pipeline`` after ``base``, at which outputs are ``standing``."""
        fingerprints = {output: fingerprint(alone) for output, alone in pipeline.by_output.items()}
        own = definition(pipeline)
        standing = [] if base is None else [name for name in standing if name in outputs_of(base)]
        if base is None or not standing:
            return cls(fingerprint(pipeline), own, fingerprints)
        before = {name: base.definition[OUTPUTS][name] for name in standing}
        mixed = {**own, OUTPUTS: {**own[OUTPUTS], **before}}
        print_ = fingerprint(pipeline) if mixed == own else fingerprint_of(mixed)
        return cls(print_, mixed, fingerprints, {name: base.schema[OUTPUTS][name] for name in standing})
