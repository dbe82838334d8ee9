"""The pipeline that a test is of."""

import os
from pathlib import Path

from headrace.model.suggestions import keywords
from headrace.pipeline.loading.registry import resolve_output
from headrace.pipeline.pipeline import Pipeline


@keywords
def load(reference: str, *, beside: str | Path | None = None) -> Pipeline:
    """The pipeline that ``reference`` names: ``path/to/file.py[:name]``, or a registered name; of several outputs one,
    ``path/to/shop.py:shop.hourly``.

    A path is relative to the folder of the file ``beside``: ``load("../delays.py", beside=__file__)``.
    Raises UnknownPipelineError, and PipelineFileError for a file that cannot be imported.
    """
    path, colon, name = reference.partition(":")
    if path.endswith(".py") and beside is not None:
        path = os.path.normpath(Path(beside).parent / path)
    return resolve_output(f"{path}{colon}{name}")
