"""The names of all files that were read up to a snapshot, as its log of inputs has them.

Names files have those of the first files of a long log; the log itself has the others. Names files repeat what the log
says: if one is lost, the log is read.
"""

import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

from headrace.ext.sources import SourceSplit
from headrace.sources.known_names import KnownNames
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.filelog import FileLog, LoggedNames
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import INPUTS

_READERS = 8
_logger = logging.getLogger(__name__)
NO_NAMES = LoggedNames(0, ())


@dataclass
class NamesSeen:
    """What a run saw of known names: files that are ``confirmed`` to have the content that they had, under another
    ETag, as they are now, by input and name; and paths of names files that are ``lost``.
    """

    confirmed: dict[str, dict[str, SourceSplit]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class ReadNames:
    """The names in ``log``, of inputs. Reads nothing before it is asked."""

    catalog: Catalog
    log: FileLog
    seen: NamesSeen = field(default_factory=NamesSeen)

    @classmethod
    def of(cls, catalog: Catalog, manifest: Manifest, seen: NamesSeen | None = None) -> "ReadNames":
        """Has those of the files that were read up to ``manifest``."""
        return cls(catalog, manifest.logs[INPUTS], NamesSeen() if seen is None else seen)

    def of_input(self, name: str) -> KnownNames:
        """The names of input ``name``. Raises BrokenObjectError if the log is damaged."""
        recent = {file.path: file for file in self._recent.get(name, ())}
        return KnownNames(recent, self._stored.get(name, ()), self.seen.confirmed.setdefault(name, {}))

    def paths(self, name: str) -> set[str]:
        """All of them of input ``name``, as the log has them: for sources whose splits are few."""
        return {file.path for file in logged(self.catalog, self.log, 0).get(name, ())}

    @cached_property
    def names(self) -> LoggedNames:
        """What names files have, where they are whole."""
        return self._read[0]

    @cached_property
    def _stored(self) -> Mapping[str, list[bytes]]:
        return self._read[1]

    @cached_property
    def _recent(self) -> Mapping[str, list[SourceSplit]]:
        return logged(self.catalog, self.log, self.names.of)

    @cached_property
    def _read(self) -> tuple[LoggedNames, Mapping[str, list[bytes]]]:
        names = self.log.names or NO_NAMES
        if not names.files:
            return names, {}
        try:
            with ThreadPoolExecutor(_READERS) as pool:
                contents = pool.map(lambda one: verify(self.catalog.store, one.file), names.files)
                by_input: dict[str, list[bytes]] = {}
                for one, data in zip(names.files, contents, strict=True):
                    by_input.setdefault(one.input, []).append(data)
        except BrokenObjectError as error:
            _logger.warning("%s. Or do nothing: the log of inputs says the same, and is stored so again", error)
            self.seen.lost.update(one.file.path for one in names.files)
            return NO_NAMES, {}
        return names, by_input


def logged(catalog: Catalog, log: FileLog, beyond: int) -> dict[str, list[SourceSplit]]:
    """The files of ``log`` after its first so many, by input, oldest first."""
    files: dict[str, list[SourceSplit]] = {}
    for file in _inputs(catalog, log, beyond):
        files.setdefault(file.input, []).append(SourceSplit(file.path, file.size, file.etag, file.digest))
    return files


def _inputs(catalog: Catalog, log: FileLog, beyond: int) -> Iterator[InputFile]:
    for record in catalog.files_beyond(log, beyond):
        yield from (file for file in record.files if isinstance(file, InputFile))
