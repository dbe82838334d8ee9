"""Finding pipelines: those that ship, those of ``HEADRACE_PIPELINES``, and one named by a path.

Importing a pipeline file runs it, nothing else: no Spark, no storage. A file that cannot be used takes nothing away
from the others. Each has a limit of its own, and whatever it raises is its own.

``NameIndex`` keeps between processes which pipelines each file of a folder defines: so a name leads to its file alone.
An entry holds as long as all code is what it was that the file ran when it was loaded. What is kept is a cache: a part
that is missing, broken or outdated costs time and nothing else.
"""

import json
import os
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from threading import get_ident
from typing import Any, Final

from headrace.errors import FixConfigError, PipelineError
from headrace.model.time import UNITS, parse_duration
from headrace.pipeline.loading.modules import (
    InterruptedByUser,
    TimeUpError,
    content_digest,
    forget_modules,
    limit_time,
    load_module,
    one_at_a_time,
    run_code,
)
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.validation import check_beside, read_beside

_FORMAT: Final = 2
_COARSE_NS: Final = 2 * 10**9
"""How coarse times of files may be. The second of two changes within so long may leave no trace in them."""


@dataclass(frozen=True)
class RunFile:
    """A file that was run, by its digest; "": there was none. ``stamp``: what the file system said of it then."""

    digest: str
    stamp: tuple[int, ...] | None = None


@dataclass(frozen=True)
class FileNames:
    """The ``names`` of the pipelines that a file defined, and all files that it ``ran``, by path under its folder.
    ``home`` is that folder, which is another one for a link.

    ``is_fixed``: nothing else can change these names. It is not where the file could not be used, or asked about
    anything that is not written in its folder.

    ``approved_by``: who has found nothing wrong with these pipelines since; "": nobody.
    """

    names: Sequence[str]
    home: str
    ran: Mapping[str, RunFile]
    is_fixed: bool
    approved_by: str = ""

    def defines_as(self, other: "FileNames") -> bool:
        """Whether the same code has defined the same names."""
        digests = ({path: run.digest for path, run in one.ran.items()} for one in (self, other))
        return (self.names, self.home, next(digests)) == (other.names, other.home, next(digests))


class NameIndex:
    """What is known of the files of one folder. It raises nothing: where it cannot be kept, nothing is known."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.resolve())
        self._index_path = _kept_at(self._folder)
        self._kept_ns, self._read = (0, {}) if self._index_path is None else _read_index(self._index_path)
        self._files, self._is_late = dict(self._read), False

    def known_names(self, file: Path) -> FileNames | None:
        """What ``file`` defines; None if that is not known, or some of the code was changed that it ran."""
        names = self._files.pop(file.name, None)
        if names is None or names.home != self._home_folder(file):
            return None
        ran = {path: self._unchanged_file(os.path.join(names.home, path), run) for path, run in names.ran.items()}  # noqa: PTH118
        unchanged_runs = {path: run for path, run in ran.items() if run is not None}
        if len(unchanged_runs) < len(ran):
            return None
        self._files[file.name] = names if unchanged_runs == names.ran else replace(names, ran=unchanged_runs)
        return names

    def learn(self, file: Path, names: Sequence[str] | None) -> FileNames:
        """Note what ``file`` defined when it was loaded just now. None: it cannot be used."""
        code, names_before = run_code(file), self._read.get(file.name)
        ran = {path: RunFile(text) for path, text in code.digests.items()}
        if names_before is not None:  # with the stamps that go with the same texts
            ran |= {
                path: run for path, run in names_before.ran.items() if path in ran and run.digest == ran[path].digest
            }
        learnt = FileNames(tuple(names or ()), code.folder, ran, names is not None and not code.asks_outside)
        if names_before is not None and learnt.is_fixed and learnt.defines_as(names_before):
            learnt = replace(learnt, approved_by=names_before.approved_by)
        self._files[file.name] = learnt
        return learnt

    def is_approved(self, file: Path, examiner: str) -> bool:
        """Whether ``examiner`` has found nothing wrong with ``file``, which is known to be as it was then."""
        entry = self._files.get(file.name)
        return entry is not None and entry.is_fixed and entry.approved_by == examiner

    def approve(self, file: Path, examiner: str) -> None:
        """Note that ``examiner`` has found nothing wrong with the pipelines of ``file``, which is known."""
        if (entry := self._files.get(file.name)) is not None and entry.is_fixed:
            self._files[file.name] = replace(entry, approved_by=examiner)

    def doubt(self, file: Path) -> None:
        """Forget what is kept of the folder if somebody has found nothing wrong with ``file``: somebody else has."""
        entry = self._read.get(file.name)
        if self._index_path is not None and entry is not None and entry.approved_by:
            with suppress(OSError):  # who cannot delete it cannot have written it
                self._index_path.unlink(missing_ok=True)

    def save_files(self, files: Iterable[str]) -> None:
        """Keep what is known now of ``files``, those that the folder has."""
        known_files = {file: self._files[file] for file in files if file in self._files}
        if self._index_path is not None and (self._is_late or known_files != self._read):
            _write_index(self._index_path, known_files)

    def _unchanged_file(self, place: str, run: RunFile) -> RunFile | None:
        """The file as it is kept from now on; None if it is another."""
        stamp = _file_stamp(place)
        if not run.digest:
            return run if stamp is None else None
        if run.stamp is not None and stamp == run.stamp and max(stamp[:2]) < self._kept_ns - _COARSE_NS:
            return run
        self._is_late = True  # what is kept now is younger
        return replace(run, stamp=stamp) if _file_digest(place) == run.digest else None

    def _home_folder(self, file: Path) -> str:
        return str(file.resolve().parent) if os.path.islink(file) else self._folder  # noqa: PTH114 - as below


def _file_stamp(place: str) -> tuple[int, ...] | None:
    """Times of its content and of its entry, which no tool sets back; size, and identity. None: there is none."""
    try:
        status = os.stat(place)  # noqa: PTH116 - as above
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _file_digest(place: str) -> str:
    try:
        return content_digest(Path(place).read_bytes())
    except OSError:
        return ""


def _kept_at(folder: str) -> Path | None:
    """Where what is known of ``folder`` is kept: beside the cache of state. None: this user has no place for it."""
    if setting := os.environ.get("HEADRACE_CACHE"):
        cache_root = Path(setting)
    elif base := os.environ.get("XDG_CACHE_HOME"):
        cache_root = Path(base) / "headrace"
    else:
        try:
            cache_root = Path.home() / ".cache" / "headrace"
        except RuntimeError:  # this user has no home folder
            return None
    return cache_root / "names" / f"{content_digest(folder.encode())}.json"


def _read_index(index_file: Path) -> tuple[int, dict[str, FileNames]]:
    """When something was kept there, and what; nothing if it cannot be read, or is not what was written."""
    try:
        kept_ns = index_file.stat().st_mtime_ns
        stated_checksum, _, body = index_file.read_text(encoding="utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return 0, {}
    if stated_checksum != _body_checksum(body):
        return 0, {}
    return kept_ns, {name: _file_names(**entry) for name, entry in json.loads(body).items()}


def _file_names(names: Sequence[str], home: str, ran: Mapping[str, Any], is_fixed: bool, approved_by: str) -> FileNames:
    files = {path: RunFile(text, None if stamp is None else tuple(stamp)) for path, (text, stamp) in ran.items()}
    return FileNames(tuple(names), home, files, is_fixed, approved_by)


def _body_checksum(body: str) -> str:
    return f"{_FORMAT} {content_digest(body.encode())}"


def _write_index(index_file: Path, files: Mapping[str, FileNames]) -> None:
    entries = {
        name: {**vars(file_names), "ran": {path: (run.digest, run.stamp) for path, run in file_names.ran.items()}}
        for name, file_names in files.items()
    }
    body, new = json.dumps(entries), index_file.with_name(f"{index_file.name}.{os.getpid()}.{get_ident()}")
    try:
        index_file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(f"{_body_checksum(body)}\n{body}", encoding="utf-8")
        new.replace(index_file)  # others read the one or the other, whole
    except OSError:  # nothing is kept then, and who asks next loads the files again
        with suppress(OSError):
            new.unlink(missing_ok=True)


SHIPPED_FOLDER = Path(__file__).resolve().parents[3] / "pipelines"
"""In the repository: the installed package ships none, and the images leave it out."""

VARIABLE = "HEADRACE_PIPELINES"

IMPORT_LIMIT: Final = "HEADRACE_IMPORT_LIMIT"
_IMPORT_LIMIT: Final = "10s"


class ImportLimitError(FixConfigError, code="config.import_limit"):
    """The limit for importing a pipeline's file is no length of time."""


class UnknownPipelineError(FixConfigError, code="config.unknown_pipeline"):
    """No pipeline of that name, or several, or a file without one."""


class PipelineFileError(PipelineError, code="config.pipeline_file"):
    """A pipeline's file, or a module beside it, raises when it is imported. The message begins with file and line."""


REFERENCES: dict[str, str] = {}
"""By name, how this process was told to find pipelines in files: their names alone need not resolve."""


@dataclass(frozen=True)
class RegisteredPipeline:
    """A usable pipeline and the file that defines it. ``reference`` finds it without looking at any other file."""

    pipeline: Pipeline
    file: Path

    @property
    def reference(self) -> str:
        """``FILE:NAME``, as the command line and submit.py take it."""
        return f"{self.file.resolve()}:{self.pipeline.name}"


@dataclass(frozen=True)
class RegisteredFiles:
    """``pipelines`` by name. ``broken``: why each of the other files cannot be used. ``repeated``: names that several
    files define, and two of them; the first of these counts (``_likeliest_first``).
    """

    pipelines: Mapping[str, RegisteredPipeline]
    broken: Mapping[Path, str]
    repeated: Mapping[str, tuple[Path, Path]]


@dataclass(frozen=True)
class PipelineFolders:
    """Folders that are searched for pipelines' files, and what names them. Files of ``others`` are not theirs: neither
    where a folder is named twice, nor where a link leads there.
    """

    folders: tuple[Path, ...]
    named_by: str = VARIABLE
    others: tuple[Path, ...] = ()

    @classmethod
    def of_environment(cls) -> "PipelineFolders":
        """The folders in ``HEADRACE_PIPELINES`` (separated like PATH), then the shipped ones."""
        named_folders = [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
        shipped_folders = [SHIPPED_FOLDER] if SHIPPED_FOLDER.parent.name == "jobs" and SHIPPED_FOLDER.is_dir() else []
        return cls(tuple({folder.resolve(): folder for folder in [*named_folders, *shipped_folders]}.values()))

    def list_files(self, broken_files: dict[Path, str]) -> list[Path]:
        """The files of all folders, whose modules are new; folders that are none go to ``broken_files``."""
        files = []
        others = {folder.resolve() for folder in self.others}
        for folder in self.folders:
            if folder.resolve() in others:
                broken_files[folder] = (
                    f"{folder}: {self.named_by} names it, and so does another root: a file belongs to one"
                )
                continue
            try:
                names = sorted(entry.name for entry in folder.iterdir())
            except OSError as error:
                problem = f"{self.named_by} names it and it is not a folder that can be read: {error.strerror}"
                broken_files[folder] = f"{folder}: {problem}"
                continue
            forget_modules(folder)
            for file in (folder / name for name in names if name.endswith(".py") and not name.startswith("_")):
                if others and file.resolve().parent in others:
                    broken_files[file] = (
                        f"{file}: it is {file.resolve()}, a file of another root: a file belongs to one"
                    )
                else:
                    files.append(file)
        return files


def registered_files(
    folders: PipelineFolders | None = None, is_wanted: Callable[[str], bool] | None = None
) -> RegisteredFiles:
    """Every pipeline of ``folders``, else of the environment's, that can be loaded; a file that raises, takes too long
    or repeats a name is broken, nothing else. ``is_wanted``: only pipelines whose names it takes; files that are known
    to define none of these are not loaded.

    Raises ImportLimitError.
    """
    broken_files: dict[Path, str] = {}
    candidates = (PipelineFolders.of_environment() if folders is None else folders).list_files(broken_files)
    named_files = _NamedFiles(candidates)
    known_names = {} if is_wanted is None else named_files.pipeline_names(broken_files)
    loaded_files = named_files.load(
        (file for file in candidates if is_wanted is None or any(map(is_wanted, known_names.get(file, ())))),
        broken_files,
    )
    return _collect_usable(candidates, known_names, loaded_files, broken_files, is_wanted)


def find_faults(
    folders: PipelineFolders, examiner: str, find_more: Callable[[RegisteredFiles], Mapping[Path, str]]
) -> Mapping[Path, str]:
    """What is wrong with each file of ``folders``: what ``registered_files`` finds, then ``find_more`` among those that
    it is given. A file is not loaded in which ``examiner`` has found nothing wrong before, as long as nothing else can
    change what it defines.

    Raises ImportLimitError.
    """
    broken_files: dict[Path, str] = {}
    candidates = folders.list_files(broken_files)
    named_files = _NamedFiles(candidates)
    known_names = named_files.pipeline_names(broken_files)
    done_files = named_files.approved_files(examiner) | broken_files.keys()
    loaded_files = named_files.load((file for file in candidates if file not in done_files), broken_files)
    files = _collect_usable(candidates, known_names, loaded_files, broken_files)
    faults = {**files.broken, **find_more(files)}
    named_files.approve((file for file in loaded_files if file not in faults), examiner)
    return faults


def doubt_file(file: Path) -> None:
    """Have ``find_faults`` look at ``file`` again, whatever it has found: somebody has found something wrong with its
    pipelines.
    """
    NameIndex(file.parent).doubt(file)


def _collect_usable(
    candidates: Iterable[Path],
    known_names: Mapping[Path, Sequence[str]],
    loaded_files: Mapping[Path, Sequence[Pipeline]],
    broken_files: dict[Path, str],
    is_wanted: Callable[[str], bool] | None = None,
) -> RegisteredFiles:
    """The pipelines of ``loaded_files`` that count, of which other files may define the names, too."""
    names = {**known_names, **{file: _list_names(pipelines) for file, pipelines in loaded_files.items()}}
    defining: dict[str, list[Path]] = defaultdict(list)
    for file in candidates:
        for name in () if file in broken_files else names.get(file, ()):
            defining[name].append(file)
    repeated_names: dict[str, tuple[Path, Path]] = {}
    for name, files in sorted(defining.items()):
        if len(files) == 1:
            continue
        first, *others = _likeliest_first(name, files)
        for other in others:
            broken_files.setdefault(other, f"{other}: pipeline {name} is also defined in {first}; rename one")
            repeated_names.setdefault(name, (first, other))
    usable = {
        pipeline.name: RegisteredPipeline(pipeline, file)
        for file, pipelines in loaded_files.items()
        if file not in broken_files
        for pipeline in pipelines
        if is_wanted is None or is_wanted(pipeline.name)
    }
    return RegisteredFiles(dict(sorted(usable.items())), broken_files, repeated_names)


class _NamedFiles:
    """Files of folders, and the names of their pipelines as they are known from other processes."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = {folder: [*siblings] for folder, siblings in groupby(files, lambda file: file.parent)}
        self._indexes = {folder: NameIndex(folder) for folder in self._files}
        self._pipelines_by_file: dict[Path, Sequence[Pipeline]] = {}

    def load(self, files: Iterable[Path], broken_files: dict[Path, str]) -> Mapping[Path, Sequence[Pipeline]]:
        """The pipelines of ``files`` and of those loaded before, as far as they can be used; their names are known from
        now on. Why the others cannot goes to ``broken_files``.
        """
        new_files = [file for file in files if file not in self._pipelines_by_file]
        self._pipelines_by_file |= _load_usable(new_files, broken_files)
        for file in new_files:
            names = _list_names(self._pipelines_by_file[file]) if file in self._pipelines_by_file else None
            self._indexes[file.parent].learn(file, names)
        self._save()
        return self._pipelines_by_file

    def _save(self) -> None:
        for folder, index in self._indexes.items():
            index.save_files([file.name for file in self._files[folder]])

    def _every_file(self) -> Iterator[Path]:
        return (file for files in self._files.values() for file in files)

    def approved_files(self, examiner: str) -> frozenset[Path]:
        """Files that are known, in which ``examiner`` has found nothing wrong as they are."""
        return frozenset(file for file in self._every_file() if self._indexes[file.parent].is_approved(file, examiner))

    def approve(self, files: Iterable[Path], examiner: str) -> None:
        """Keep that ``examiner`` has found nothing wrong with ``files``, which are loaded."""
        for file in files:
            self._indexes[file.parent].approve(file, examiner)
        self._save()

    def pipeline_names(self, broken_files: dict[Path, str]) -> dict[Path, Sequence[str]]:
        """The names of the pipelines of each file that can be used; files are loaded of which nobody knows them, and
        why these cannot be used goes to ``broken_files``.
        """
        known_names = {
            file: entry.names
            for folder, index in self._indexes.items()
            for file in self._files[folder]
            if (entry := index.known_names(file)) is not None and entry.is_fixed
        }
        loaded_pipelines = self.load((file for file in self._every_file() if file not in known_names), broken_files)
        return known_names | {file: _list_names(pipelines) for file, pipelines in loaded_pipelines.items()}

    def find_pipeline(self, name: str, file: Path) -> Pipeline | None:
        """The pipeline of that name in ``file``, which is loaded if it was not; None if there is none."""
        loaded_pipelines = self.load([file], {})
        return next((one for one in loaded_pipelines.get(file, ()) if one.name == name), None)


def _list_names(pipelines: Iterable[Pipeline]) -> list[str]:
    return [pipeline.name for pipeline in pipelines]


def _loaded_alone(name: str) -> list[Pipeline]:
    """The registered pipeline of that name, then all that it reads of the others, without loading files that are known
    to define none of these. Nothing where there is no such pipeline, or where only all files together tell which it is.
    """
    files = _NamedFiles(PipelineFolders.of_environment().list_files({}))
    names = files.pipeline_names({})
    defining: dict[str, list[Path]] = defaultdict(list)
    for file, defined_names in names.items():
        for one in defined_names:
            defining[one].append(file)
    pipelines: dict[str, Pipeline] = {}
    wanted_names = [name]
    while wanted_names:
        one = wanted_names.pop()
        if one in pipelines or one not in defining:
            continue
        file = defining[one][0]
        if any(len(defining[sibling_name]) > 1 for sibling_name in names[file]):  # then perhaps the file does not count
            return []
        pipeline = files.find_pipeline(one, file)
        if pipeline is None:
            return []
        pipelines[one] = pipeline
        wanted_names += read_beside(pipeline)
    return [*pipelines.values()]


def find_registered(name: str, folders: PipelineFolders | None = None) -> RegisteredPipeline:
    """The pipeline of that name out of ``registered_files``, without loading files that need not be. One of the files
    in which the name is written will do. Raises UnknownPipelineError.
    """
    broken_files: dict[Path, str] = {}
    files = (PipelineFolders.of_environment() if folders is None else folders).list_files(broken_files)
    for file, pipelines in _load_usable(_likeliest_first(name, files), broken_files):
        for pipeline in pipelines:
            if pipeline.name == name:
                return RegisteredPipeline(pipeline, file)
    raise UnknownPipelineError(f"there is no pipeline {name!r}{_describe_broken(broken_files)}")


def resolve_pipeline(reference: str) -> Pipeline:
    """The pipeline that ``reference`` names: a registered name, or ``path/to/file.py[:name]``.

    Raises UnknownPipelineError, and PipelineFileError for the file that is named.
    """
    return _with_others(reference)[0]


def resolve_to_run(reference: str) -> Pipeline:
    """The pipeline that ``reference`` names, for a run. Raises what ``resolve_pipeline`` raises, and
    UpstreamCycleError if it reads itself through others that are registered as it is, or in its file.
    """
    pipeline, others = _with_others(reference)
    check_beside(pipeline, others)
    return pipeline


def _with_others(reference: str) -> tuple[Pipeline, list[Pipeline]]:
    """The pipeline that ``reference`` names, and all among which it was looked for."""
    path, _, name = reference.partition(":")
    if path.endswith(".py"):
        pipelines = [entry.pipeline for entry in in_file(Path(path))]
        pipeline = _one_of(Path(path), pipelines, name)
        REFERENCES[pipeline.name] = reference
        return pipeline, pipelines
    if loaded_pipelines := _loaded_alone(reference):
        return loaded_pipelines[0], loaded_pipelines
    registry = registered_files()
    if reference in registry.repeated:
        first, second = registry.repeated[reference]
        raise UnknownPipelineError(f"pipeline {reference} is defined in {first} and in {second}; rename one")
    if reference not in registry.pipelines:
        raise UnknownPipelineError(
            f"there is no pipeline {reference!r}; registered: {', '.join(registry.pipelines) or 'none'}; or give a "
            f"file (path/to/file.py[:name]), or set {VARIABLE} to its folder{_describe_broken(registry.broken)}"
        )
    return registry.pipelines[reference].pipeline, [one.pipeline for one in registry.pipelines.values()]


def resolve_output(reference: str) -> Pipeline:
    """The pipeline that ``reference`` names, with the output alone that it names: ``shop.hourly``,
    ``shop.py:shop.hourly``. Raises what ``resolve_pipeline`` raises, UnknownPipelineError for an output that there is
    not.
    """
    reference, output = output_named(reference)
    pipeline = resolve_pipeline(reference)
    if not output:
        return pipeline
    if output not in pipeline.outputs:
        raise UnknownPipelineError(
            f"pipeline {pipeline.name} has no output {output!r}; it has "
            f"{', '.join(pipeline.outputs) or 'one without a name'}"
        )
    return pipeline.by_output[output]


def output_named(reference: str) -> tuple[str, str]:
    """What names a pipeline, and the name of its output; "": none is named."""
    path, colon, name = reference.partition(":")
    if path.endswith(".py"):
        name, _, output = name.partition(".")
        return f"{path}{colon}{name}", output
    pipeline, _, output = reference.partition(".")
    return pipeline, output


def in_file(file: Path) -> list[RegisteredPipeline]:
    """The pipelines that ``file`` defines. Raises UnknownPipelineError, PipelineFileError."""
    if not file.is_file():
        raise UnknownPipelineError(f"there is no file {file}")
    with one_at_a_time():
        forget_modules(file.parent)
        return [RegisteredPipeline(pipeline, file) for pipeline in _load_pipelines(file)]


def _one_of(file: Path, file_pipelines: Sequence[Pipeline], name: str) -> Pipeline:
    pipelines = [p for p in file_pipelines if not name or p.name == name]
    if len(pipelines) != 1:
        names = ", ".join(p.name for p in file_pipelines) or "none"
        raise UnknownPipelineError(f"{file} holds these pipelines: {names}; name one as {file}:NAME")
    return pipelines[0]


def _describe_broken(broken_files: Mapping[Path, str]) -> str:
    return "".join(f"\ncannot be used: {why}" for why in broken_files.values())


def _likeliest_first(name: str, files: Iterable[Path]) -> list[Path]:
    """``files`` as they are asked for pipeline ``name``: those in which it is written come first."""
    return sorted(files, key=lambda file: not _is_written(name, file))


def _is_written(name: str, file: Path) -> bool:
    try:
        return name.encode() in file.read_bytes()
    except OSError:  # loading it tells more
        return False


def _load_usable(files: Iterable[Path], broken_files: dict[Path, str]) -> Iterator[tuple[Path, Sequence[Pipeline]]]:
    """The pipelines of each file that can be used; why the others cannot goes to ``broken_files``."""
    limit = import_limit()
    for file in files:
        try:
            yield file, _load_pipelines(file, limit)
        except PipelineFileError as error:
            broken_files[file] = str(error)


def import_limit() -> float | None:
    """Seconds that each file may take to import where all of a folder are asked for; None: any time.

    Raises ImportLimitError.
    """
    limit_text = os.environ.get(IMPORT_LIMIT) or _IMPORT_LIMIT
    try:
        limit = parse_duration(limit_text) / UNITS["seconds"]
    except ValueError as error:
        raise ImportLimitError(f"{IMPORT_LIMIT}={limit_text!r}: {error}; write 10s, or 1m; 0s: no limit") from None
    return limit if limit > 0 else None


def _load_pipelines(file: Path, limit: float | None = None) -> Sequence[Pipeline]:
    """The pipelines that ``file`` defines at its top level, in order of definition. Raises PipelineFileError, also when
    that takes longer than ``limit`` seconds.
    """
    try:
        with limit_time(limit):
            module = load_module(file)
    except InterruptedByUser:
        raise
    except BaseException as error:  # a user's file may raise anything
        raise PipelineFileError(f"{_error_place(file, error)}: {_describe_error(error)}") from error
    # by the type alone: whatever else a file holds is not asked what it is
    unique = {id(value): value for value in vars(module).values() if issubclass(type(value), Pipeline)}
    return list(unique.values())


def _error_place(file: Path, error: BaseException) -> str:
    """File and line at which ``error`` was raised: the last of the user's own files on the way there."""
    folder = str(file.resolve().parent)
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    own = [(name, line) for name, line in frames if name.startswith(f"{folder}{os.sep}")]
    name, line = own[-1] if own else (str(file), None)
    where = file if name == str(file.resolve()) else Path(name)
    return f"{where}:{line}" if line else str(where)


def _describe_error(error: BaseException) -> str:
    if isinstance(error, TimeUpError):
        return f"{error}: let it define pipelines and nothing else, or raise {IMPORT_LIMIT}"
    return f"{type(error).__name__}: {_error_text(error)}"


def _error_text(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return error.msg
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({error})"
    try:
        return str(error)
    except Exception as failure:  # the text of an error is code of the file too
        return f"(its text cannot be had: {type(failure).__name__})"
