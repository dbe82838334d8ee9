"""The registered pipelines file by file: one broken file takes nothing away from the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import FixConfigError
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.registry import VARIABLE, pipeline_folders, pipelines_in


class BrokenPipelineFilesError(FixConfigError):
    """Pipeline files that cannot be used, each with the reason."""

    code = "config.broken_pipeline_files"


@dataclass(frozen=True)
class Registered:
    """A usable pipeline and the file that defines it. ``reference`` finds it without looking at any other file."""

    pipeline: Pipeline
    file: Path

    @property
    def reference(self) -> str:
        """As the command line and submit.py take it."""
        return f"{self.file.resolve()}:{self.pipeline.name}"


@dataclass(frozen=True)
class RegisteredFiles:
    """``pipelines`` by name, and why each of the other files is ``broken``."""

    pipelines: Mapping[str, Registered]
    broken: Mapping[Path, str]


def registered_files() -> RegisteredFiles:
    """Every pipeline that can be loaded; a file that raises, or repeats a name, is broken."""
    pipelines: dict[str, Registered] = {}
    broken: dict[Path, str] = {}
    for folder in pipeline_folders():
        if not folder.is_dir():
            broken[folder] = f"{VARIABLE} names it and it is no folder"
            continue
        for file in sorted(folder.glob("[!_]*.py")):
            try:
                found = {pipeline.name: Registered(pipeline, file) for pipeline in pipelines_in(file)}
            except Exception as error:  # a user's file may raise anything, and is reported with it
                broken[file] = f"{type(error).__name__}: {error}"
                continue
            if repeated := found.keys() & pipelines.keys():
                name = min(repeated)
                broken[file] = f"pipeline {name} is also defined in {pipelines[name].file}; rename one"
            else:
                pipelines |= found
    return RegisteredFiles(dict(sorted(pipelines.items())), broken)


def raise_broken() -> None:
    """Raise BrokenPipelineFilesError naming every broken file; nothing when there is none."""
    if broken := registered_files().broken:
        raise BrokenPipelineFilesError("\n".join(f"{file}: {reason}" for file, reason in broken.items()))
