"""Finding pipelines: those that ship, those of ``HEADRACE_PIPELINES``, and one named by a path.

Importing a pipeline file runs it, nothing else: no Spark, no storage. A file that cannot be used takes nothing away
from the others.
"""

import os
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import FixConfigError, PipelineError
from headrace.pipeline.folders import forget, load
from headrace.pipeline.graph import Pipeline

SHIPPED = Path(__file__).resolve().parents[2] / "pipelines"
"""In the repository: the installed package ships none, and the images leave it out."""

VARIABLE = "HEADRACE_PIPELINES"


class UnknownPipelineError(FixConfigError):
    """No pipeline of that name, or several, or a file without one."""

    code = "config.unknown_pipeline"


class PipelineFileError(PipelineError):
    """A pipeline's file, or a module beside it, raises when it is imported. The message begins with file and line."""

    code = "config.pipeline_file"


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
    """``pipelines`` by name. ``broken``: why each of the other files cannot be used. ``repeated``: names that several
    files define, and which; the first of them counts.
    """

    pipelines: Mapping[str, Registered]
    broken: Mapping[Path, str]
    repeated: Mapping[str, tuple[Path, Path]]


def pipeline_folders() -> list[Path]:
    """Folders that are searched: those in ``HEADRACE_PIPELINES`` (separated like PATH), then the shipped ones."""
    named = [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    shipped = [SHIPPED] if SHIPPED.parent.name == "jobs" and SHIPPED.is_dir() else []
    folders = [*named, *shipped]
    return list({folder.resolve(): folder for folder in folders}.values())


def registered_files() -> RegisteredFiles:
    """Every pipeline that can be loaded; a file that raises, or repeats a name, is broken, and nothing else is."""
    pipelines: dict[str, Registered] = {}
    broken: dict[Path, str] = {}
    repeated: dict[str, tuple[Path, Path]] = {}
    for file in _files(broken):
        try:
            found = _loaded(file)
        except PipelineFileError as error:
            broken[file] = str(error)
            continue
        names = [pipeline.name for pipeline in found]
        known = {name: pipelines[name].file for name in names if name in pipelines}
        again = {name: (known.get(name, file), file) for name in names if name in known or names.count(name) > 1}
        if again:
            name, (first, _) = min(again.items())
            broken[file] = f"{file}: pipeline {name} is also defined in {first}; rename one"
            repeated |= again
        else:
            pipelines |= {pipeline.name: Registered(pipeline, file) for pipeline in found}
    return RegisteredFiles(dict(sorted(pipelines.items())), broken, repeated)


def resolve(reference: str) -> Pipeline:
    """The pipeline that ``reference`` names: a registered name, or ``path/to/file.py[:name]``.

    Raises UnknownPipelineError, and PipelineFileError for the file that is named.
    """
    path, _, name = reference.partition(":")
    if path.endswith(".py"):
        return _from_file(Path(path), name)
    found = registered_files()
    if reference in found.repeated:
        first, second = found.repeated[reference]
        raise UnknownPipelineError(f"pipeline {reference} is defined in {first} and in {second}; rename one")
    if reference not in found.pipelines:
        unusable = "".join(f"\ncannot be used: {why}" for why in found.broken.values())
        raise UnknownPipelineError(
            f"there is no pipeline {reference!r}; registered: {', '.join(found.pipelines) or 'none'}; "
            f"or give a file (path/to/file.py[:name]), or set {VARIABLE} to its folder{unusable}"
        )
    return found.pipelines[reference].pipeline


def in_file(file: Path) -> list[Registered]:
    """The pipelines that ``file`` defines. Raises UnknownPipelineError, PipelineFileError."""
    if not file.is_file():
        raise UnknownPipelineError(f"there is no file {file}")
    forget(file.parent)
    return [Registered(pipeline, file) for pipeline in _loaded(file)]


def _from_file(file: Path, name: str) -> Pipeline:
    found = [each.pipeline for each in in_file(file)]
    pipelines = [p for p in found if not name or p.name == name]
    if len(pipelines) != 1:
        names = ", ".join(p.name for p in found) or "none"
        raise UnknownPipelineError(f"{file} holds these pipelines: {names}; name one as {file}:NAME")
    return pipelines[0]


def _files(broken: dict[Path, str]) -> Iterator[Path]:
    """The files of all folders, whose modules are new; folders that are none go to ``broken``."""
    for folder in pipeline_folders():
        if not folder.is_dir():
            broken[folder] = f"{folder}: {VARIABLE} names it and it is not a folder"
            continue
        forget(folder)
        yield from sorted(folder.glob("[!_]*.py"))


def _loaded(file: Path) -> Sequence[Pipeline]:
    """The pipelines that ``file`` defines at its top level, in order of definition. Raises PipelineFileError."""
    try:
        module = load(file)
    except (Exception, SystemExit) as error:  # a user's file may raise anything, and may call sys.exit
        raise PipelineFileError(f"{_place(file, error)}: {type(error).__name__}: {_text(error)}") from error
    unique = {id(value): value for value in vars(module).values() if isinstance(value, Pipeline)}
    return list(unique.values())


def _place(file: Path, error: BaseException) -> str:
    """File and line at which ``error`` was raised: the last of the user's own files on the way there."""
    folder = str(file.resolve().parent)
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    own = [(name, line) for name, line in frames if name.startswith(f"{folder}{os.sep}")]
    name, line = own[-1] if own else (str(file), None)
    where = file if name == str(file.resolve()) else Path(name)
    return f"{where}:{line}" if line else str(where)


def _text(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return error.msg
    return f"it calls sys.exit({error})" if isinstance(error, SystemExit) else str(error)
