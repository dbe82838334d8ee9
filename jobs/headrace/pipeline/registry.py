"""Finding pipelines: those that ship, those of ``HEADRACE_PIPELINES``, and one named by a path.

Importing a pipeline file runs it, nothing else: no Spark, no storage.
"""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

from headrace.errors import FixConfigError
from headrace.pipeline.graph import Pipeline

SHIPPED = Path(__file__).resolve().parents[2] / "pipelines"
VARIABLE = "HEADRACE_PIPELINES"


class UnknownPipelineError(FixConfigError):
    """No pipeline of that name, or a file without one."""

    code = "config.unknown_pipeline"


def pipeline_folders() -> list[Path]:
    """Folders that are searched: those in ``HEADRACE_PIPELINES`` (separated like PATH), then the shipped ones."""
    named = [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    return [*named, *([SHIPPED] if SHIPPED.is_dir() else [])]


def registered() -> dict[str, Pipeline]:
    """Every pipeline of every folder by name. Raises UnknownPipelineError for two of one name or a missing folder."""
    found: dict[str, tuple[Pipeline, Path]] = {}
    for folder in pipeline_folders():
        if not folder.is_dir():
            raise UnknownPipelineError(f"{VARIABLE} names {folder}, which is no folder")
        for file in sorted(folder.glob("*.py")):
            if file.name.startswith("_"):
                continue
            for pipeline in pipelines_in(file):
                if pipeline.name in found and found[pipeline.name][1] != file:
                    raise UnknownPipelineError(
                        f"pipeline {pipeline.name} is defined in {found[pipeline.name][1]} and in {file}; rename one"
                    )
                found[pipeline.name] = (pipeline, file)
    return {name: pipeline for name, (pipeline, _) in sorted(found.items())}


def resolve(reference: str) -> Pipeline:
    """The pipeline that ``reference`` names: a registered name, or ``path/to/file.py[:name]``."""
    path, _, name = reference.partition(":")
    if path.endswith(".py"):
        return _from_file(Path(path), name)
    pipelines = registered()
    if reference not in pipelines:
        raise UnknownPipelineError(
            f"there is no pipeline {reference!r}; registered: {', '.join(pipelines) or 'none'}; "
            f"or give a file (path/to/file.py[:name]), or set {VARIABLE} to its folder"
        )
    return pipelines[reference]


def _from_file(file: Path, name: str) -> Pipeline:
    if not file.is_file():
        raise UnknownPipelineError(f"there is no file {file}")
    pipelines = [p for p in pipelines_in(file) if not name or p.name == name]
    if len(pipelines) != 1:
        names = ", ".join(p.name for p in pipelines_in(file)) or "none"
        raise UnknownPipelineError(f"{file} holds these pipelines: {names}; name one as {file}:NAME")
    return pipelines[0]


def pipelines_in(file: Path) -> list[Pipeline]:
    """The pipelines that ``file`` defines at its top level, in order of definition."""
    module = _load(file)
    unique = {id(value): value for value in vars(module).values() if isinstance(value, Pipeline)}
    return list(unique.values())


def _load(file: Path) -> ModuleType:
    digest = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:12]
    spec = importlib.util.spec_from_file_location(f"_headrace_pipeline_{digest}_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise UnknownPipelineError(f"{file} cannot be imported")
    folder = str(file.parent.resolve())
    if folder not in sys.path:
        sys.path.append(folder)  # modules beside a pipeline are importable, as beside a DAG
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
