"""Why windows fired or not, for pages.

That needs the definition of a pipeline, which is code of users: a process of its own imports it, never the API server.
It gets no settings of Airflow, whose secrets are among them, and no values on its command line.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headrace.errors import FixConfigError, HeadraceError, RetryError
from headrace.pipeline.loading.registry import PipelineFolders, registered
from headrace.read.json_values import as_json
from headrace.runs.reporting.results import RunError
from headrace_airflow.roots.root import Root
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store

_SECONDS: Final = 60


class NoExplanationError(RetryError):
    """The process that explains did not end in time, or ended without an answer."""

    code = "retry.no_explanation"


class UnexplainedError(FixConfigError):
    """What that process found wrong with what was asked."""

    code = "config.unexplained"


def explanation(
    root: Root, pipeline: str, key: str, window: str, variables: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Why windows of a key have fired or not, in ``lines`` and as values. ``key`` is JSON, or plain text; ``window`` a
    time, empty for all windows. Raises NoExplanationError, UnexplainedError.
    """
    where = {"uri": root.uri, "folders": [str(folder) for folder in root.folders.folders]}
    asked = json.dumps({**where, "pipeline": pipeline, "key": key, "window": window})
    environment = {name: value for name, value in variables.items() if not name.startswith("AIRFLOW")}
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(
            command, input=asked, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NoExplanationError(f"pipeline {pipeline} is not explained after {_SECONDS} s: ask again") from error
    answer = _answer(done.stdout)
    if answer is None:
        last = done.stderr.strip().rpartition("\n")[2]
        raise NoExplanationError(f"what explains pipeline {pipeline} ended with exit code {done.returncode}: {last}")
    if "error" in answer:
        raise UnexplainedError(answer["error"]["message"])
    return answer


def _answer(output: str) -> dict[str, Any] | None:
    """What the process printed on its last line: the files of users may print before that."""
    try:
        answer: dict[str, Any] = json.loads(output.strip().rpartition("\n")[2])
    except ValueError:
        return None
    return answer


def _explain(asked: dict[str, Any]) -> dict[str, Any]:
    from headrace.read.pipeline_reader import PipelineReader

    definition = registered(asked["pipeline"], PipelineFolders(tuple(map(Path, asked["folders"])))).pipeline
    reader = PipelineReader(Catalog(open_store(asked["uri"]), definition.name))
    explanation = reader.explain(written_key(asked["key"]), window=asked["window"] or None, pipeline=definition)
    return {"lines": [*explanation.lines()], **explanation.to_json()}


def written_key(text: str) -> Any:
    """A key as people type it: JSON where it is that, else the text itself."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


if __name__ == "__main__":
    try:
        result = _explain(json.load(sys.stdin))
    except HeadraceError as error:
        result = {"error": vars(RunError.of(error))}
    sys.stdout.write(f"\n{json.dumps(result, default=as_json)}\n")
