"""Roots, and the definitions of pipelines that have results.

Roots: what has run under one; and those that are not there, since a typing mistake makes none.

The definition of a pipeline that has results: given, by its file, or registered under its name.
"""

from collections.abc import Iterator
from os import PathLike, fspath

from headrace.errors import FixConfigError
from headrace.model.arguments import Arguments
from headrace.pipeline.loading.registry import UnknownPipelineError, resolve
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.input_diagnostics import around, children, exists
from headrace_snapshots.log import has_log
from headrace_snapshots.store import ObjectStore


class MissingRootError(FixConfigError, code="config.missing_root"):
    """There is no such root, and nothing to make it for."""


def check_root(store: ObjectStore) -> None:
    """Raise MissingRootError, with what there is instead, unless the root of ``store`` exists."""
    if not exists(store):
        raise MissingRootError(
            f"the root {store.uri} does not exist: {around(store)}. A run that finds input makes it, and so does "
            "`headrace run --create`"
        )


def has_run(store: ObjectStore, name: str) -> bool:
    """Whether a pipeline of that name has run under the root of ``store``."""
    return name.isidentifier() and has_log(store, name)


def pipelines_under(store: ObjectStore) -> Iterator[str]:
    """The names of the pipelines that have run under the root of ``store``."""
    folders = (name.removesuffix("/") for name in children(store, "") if name.endswith("/"))
    return (name for name in folders if has_run(store, name))


Definition = Pipeline | str | PathLike[str]
"""A pipeline, a registered name, or ``path/to/file.py[:name]``."""

_WRITE = "give a Pipeline, a registered name, or path/to/file.py[:name]"


def definition_of(given: Definition, call: str, name: str | None = None) -> Pipeline:
    """The pipeline that argument ``pipeline`` of ``call`` gives; it must be called ``name`` unless that is None.

    Raises UnknownPipelineError, and PipelineFileError for a file that is named.
    """
    if isinstance(given, Pipeline):
        pipeline = given
    elif isinstance(given, str | PathLike) and isinstance(path := fspath(given), str):
        pipeline = resolve(path)
    else:
        raise Arguments(call).wrong("pipeline", given, _WRITE)
    if name is not None and pipeline.name != name:
        raise UnknownPipelineError(
            f"{call}(...): the given pipeline is {pipeline.name!r}, and these are the results of {name!r}: take the "
            f"results of {pipeline.name!r}, hr.open(root)[{pipeline.name!r}]"
        )
    return pipeline


def registered_definition(name: str) -> Pipeline | None:
    """The registered pipeline of that name; None if there is none."""
    try:
        return resolve(name)
    except UnknownPipelineError:
        return None
