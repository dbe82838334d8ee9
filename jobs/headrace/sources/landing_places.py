"""Where input may lie, and land again: in no folder of a pipeline, which Headrace writes to, reads from and clears.

Input there would be found by the pipeline's sweeps, and what the pipeline stores would be read as input. A pipeline
knows its own folder when it is built (``pipeline.checks.validation``); the others under a root are known only there.
"""

import os
from collections.abc import Iterator
from pathlib import PurePosixPath

from headrace.errors import FixConfigError
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.landing import Landing
from headrace_snapshots.layout import kind_of
from headrace_snapshots.log import has_log
from headrace_snapshots.store import LocalStore, ObjectStore


class PlaceError(FixConfigError, code="config.place"):
    """Input lies, or would land, where Headrace stores snapshots; or the folder of a new pipeline holds other files."""


def check_places(pipeline: Pipeline, root: ObjectStore, *, is_first: bool) -> None:
    """Raise PlaceError if an input of ``pipeline`` overlaps with a pipeline's folder under ``root``. A request for each
    input; before its first run another, for what its folder holds.
    """
    for name, place in Landing(pipeline, root).files.items():
        if (problem := overlap(root, place.store, place.prefix, own=pipeline.name)) is not None:
            raise PlaceError(
                f"pipeline {pipeline.name}: {problem}. What Headrace stores would be read as records of the input "
                f"{name}: move its files elsewhere, such as landing/{pipeline.name}, and let the pipeline read there"
            )
    foreign = next(_foreign(root, pipeline.name), None) if is_first else None
    if foreign is not None:
        raise PlaceError(
            f"pipeline {pipeline.name} has not run under {root.uri} yet, and its folder there holds files that are not "
            f"of Headrace, such as {foreign}. Move them elsewhere, or give the pipeline another name"
        )


def overlap(root: ObjectStore, store: ObjectStore, prefix: str, own: str = "") -> str | None:
    """What is wrong with a prefix of input; None if it shares nothing with the folder of a pipeline under ``root``.

    ``own``: the name of a pipeline that counts as one though it may not have run.
    """
    for top, place in zip(_locations(root, ""), _locations(store, prefix), strict=False):
        if top.is_relative_to(place):
            return f"{place} holds the folders of all pipelines under {root.uri}"
        if place.is_relative_to(top):
            name = place.relative_to(top).parts[0]
            if name == own or (name.isidentifier() and has_log(root, name)):
                return f"{place} lies in the folder of pipeline {name} under {root.uri}"
    return None


def _locations(store: ObjectStore, prefix: str) -> Iterator[PurePosixPath]:
    """The place as it is written and, in a local store, as links lead to it."""
    if isinstance(store, LocalStore):
        written = store.root / prefix
        yield PurePosixPath(os.path.normpath(written))
        yield PurePosixPath(written.resolve())
    else:
        yield PurePosixPath(f"{store.uri}/{prefix}")


def _foreign(root: ObjectStore, pipeline: str) -> Iterator[str]:
    """The objects in the folder of a pipeline that Headrace has not written."""
    return (info.path for info in root.list(f"{pipeline}/") if kind_of(pipeline, info.path) is None)
