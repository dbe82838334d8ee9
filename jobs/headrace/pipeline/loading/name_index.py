"""Which pipelines each file of a folder defines, kept between processes: so a name leads to its file alone.

An entry holds as long as all code is what it was that the file ran when it was loaded. What is kept is a cache: a part
that is missing, broken or outdated costs time and nothing else.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import get_ident
from typing import Any, Final

from headrace.pipeline.loading.modules import content_digest, run_code

_FORMAT: Final = 1
_COARSE_NS: Final = 2 * 10**9
"""As coarse may times of files be: of two changes within so long the second may leave no trace in them."""


@dataclass(frozen=True)
class RunFile:
    """A file that was run, by its digest; "": there was none. ``stamp``: what the file system said of it then."""

    digest: str
    stamp: tuple[int, ...] | None = None


@dataclass(frozen=True)
class FileNames:
    """The ``names`` of the pipelines that a file defined, and all that it ``ran``, by path under its folder: ``home``,
    which is another for a link.

    ``is_fixed``: nothing else can change these names. It is not where the file could not be used, or asked about
    anything that is not written in its folder.
    """

    names: Sequence[str]
    home: str
    ran: Mapping[str, RunFile]
    is_fixed: bool


class NameIndex:
    """What is known of the files of one folder. It raises nothing: where it cannot be kept, nothing is known."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder.resolve())
        self._kept = _kept_at(self._folder)
        self._kept_ns, self._read = (0, {}) if self._kept is None else _read_index(self._kept)
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
        self._files[file.name] = learnt
        return learnt

    def save_files(self, files: Iterable[str]) -> None:
        """Keep what is known now of ``files``, those that the folder has."""
        known_files = {file: self._files[file] for file in files if file in self._files}
        if self._kept is not None and (self._is_late or known_files != self._read):
            _write_index(self._kept, known_files)

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


def _file_names(names: Sequence[str], home: str, ran: Mapping[str, Any], is_fixed: bool) -> FileNames:
    files = {path: RunFile(text, None if stamp is None else tuple(stamp)) for path, (text, stamp) in ran.items()}
    return FileNames(tuple(names), home, files, is_fixed)


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
