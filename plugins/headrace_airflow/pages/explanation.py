"""Why windows fired or not, for pages.

That needs the definition of a pipeline, which is code of users: a process of its own imports it, never the API server
(``forking``). It gets no settings of Airflow, whose secrets are among them, and no values on its command line.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import FixConfigError, HeadraceError
from headrace.pipeline.loading.registry import PipelineFolders, registered
from headrace.read.shown_values import as_json
from headrace.runs.reporting.results import RunError
from headrace_airflow.pages.forking.client import ForkServer
from headrace_airflow.pages.wording import told
from headrace_airflow.settings import local_memory
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store

if TYPE_CHECKING:  # with Airflow, which a process that explains does without
    from headrace_airflow.pages.opened_roots import OpenedRoot

PRELOADED: Final = (
    *("pyarrow.compute", "pyarrow.parquet", "headrace_snapshots.store.s3_root"),
    *("headrace.read.explain.investigation", "headrace.read.pipeline_reader", "headrace.distribute.views"),
    *("headrace.pipeline.pipeline", "headrace.connectors.files.definition", "headrace.pipeline.deployment"),
)
"""What an explanation imports, but for the pipeline's own modules."""

_SECONDS: Final = 60.0
_EPOCHS: Final = 25
"""Of so many newest epochs panes and late records are looked at, where no window is named."""

_NOT_THEIRS: Final = ("AIRFLOW", "AWS_", "HEADRACE_S3_")
"""Beginnings of variables that a process has only if the root says so."""


class UnexplainedError(FixConfigError, code="config.unexplained"):
    """What that process found wrong with what was asked."""


def explainer(variables: Mapping[str, str] = os.environ) -> ForkServer:
    """Who explains. Raises SizeError."""
    environment = {name: value for name, value in variables.items() if not name.startswith(_NOT_THEIRS)}
    return ForkServer(__name__, environment, seconds=_SECONDS, memory=local_memory())


def explanation(forks: ForkServer, opened: "OpenedRoot", of: tuple[str, str], key: str, window: str) -> dict[str, Any]:
    """Why windows of a key have fired or not, in ``lines`` and as values. ``of``: a pipeline and one of its outputs, ""
    for the one without a name. ``key`` is JSON, or plain text; ``window`` a time, empty for all windows. Raises
    NoAnswerError, UnexplainedError.
    """
    (pipeline, output), root, variables = of, opened.root, opened.environment
    asked = {
        "uri": root.uri,
        "folders": [str(folder) for folder in root.folders.folders],
        "environment": {name: value for name, value in variables.items() if not name.startswith("AIRFLOW")},
        **{"pipeline": pipeline, "output": output, "key": key, "window": window},
    }
    explained = forks.ask(asked)
    if "error" in explained:
        raise UnexplainedError(explained["error"]["message"])
    return explained


def answer(question: str) -> str:
    """In a fork: what ``explanation`` gives, or what is wrong."""
    asked = json.loads(question)
    os.environ.clear()
    os.environ.update(asked["environment"])
    try:
        explained = _explained(asked)
    except HeadraceError as error:
        explained = {"error": vars(RunError.of(error))}
    return json.dumps(explained, default=as_json)


def _explained(asked: Mapping[str, Any]) -> dict[str, Any]:
    from headrace.read.pipeline_reader import PipelineReader

    definition = registered(asked["pipeline"], PipelineFolders(tuple(map(Path, asked["folders"])))).pipeline
    whole = PipelineReader(Catalog(open_store(asked["uri"]), definition.name))
    reader = whole[asked["output"]] if asked["output"] else whole
    key, window = written_key(asked["key"]), asked["window"] or None
    epochs = None if window else _EPOCHS
    explanation = reader.explain(key, window=window, pipeline=definition, epochs=epochs)
    return {"lines": [*map(told, explanation.lines())], **explanation.to_json()}


def written_key(text: str) -> Any:
    """A key as people type it: JSON where it is that, else the text itself."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text
