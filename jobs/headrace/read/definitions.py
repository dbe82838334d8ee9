"""The definition of a pipeline that has results: given, by its file, or registered under its name."""

from os import PathLike, fspath

from headrace.model.arguments import Arguments
from headrace.pipeline.loading.registry import UnknownPipelineError, resolve
from headrace.pipeline.pipeline import Pipeline

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
