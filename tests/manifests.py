"""Manifests for tests: what a test says nothing about is empty."""

from collections.abc import Mapping
from typing import Any, Final

from headrace_snapshots.format.manifest import Manifest

_EMPTY: Final[Mapping[str, Any]] = {
    name: {} for name in ("schema", "tables", "logs", "counts", "timings", "requests", "code")
}


def new_manifest(**fields: Any) -> Manifest:
    """A manifest with these fields."""
    return Manifest(**{**_EMPTY, **fields})
