"""Names files are written beside epochs, where an input has many names: a run then looks a name up without its log.

They are layers, as those of state are: each is four times as large as the next one, or both become one. So a name is
written again a few times, and few files have a million names. Their names are in the log anyway, so nothing of them is
waited for, and one that is lost is made again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.ext.sources import SourceSplit
from headrace.read.snapshots.read_names import NO_NAMES, NamesSeen, logged
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.datafiles import verify
from headrace_snapshots.format.codec import BrokenObjectError, checksum
from headrace_snapshots.format.filelog import FileLog, LoggedNames, NamesFile
from headrace_snapshots.format.files import DataFile

AT_LEAST: Final = 1_024
"""A names file is written once the log has so many files more: before that a few of its nodes say the same."""

_RATIO = 4
_MOST = 16_000_000
"""Rows of one names file: Arrow holds two GB of names in one array."""


@dataclass(frozen=True)
class NamesFiles:
    """Writes those of the ``inputs`` that are files. What was ``seen`` of them replaces what was known."""

    catalog: Catalog
    inputs: Collection[str]
    seen: NamesSeen = field(default_factory=NamesSeen)

    def after(self, log: FileLog, folder: str) -> FileLog:
        """``log`` with names files, put into a ``folder`` that nobody else has, of what it says by now."""
        if not self.inputs:
            return log
        names = log.names or NO_NAMES
        if any(one.file.path in self.seen.lost for one in names.files):
            names = NO_NAMES
        if log.files - names.of + sum(map(len, self.seen.confirmed.values())) < AT_LEAST:
            return log
        try:
            return self._written(log, names, folder)
        except BrokenObjectError:
            return self._written(log, NO_NAMES, folder)

    def _written(self, log: FileLog, names: LoggedNames, folder: str) -> FileLog:
        new = logged(self.catalog, log, names.of)
        files: list[NamesFile] = []
        for number, name in enumerate(sorted({*new, *self.seen.confirmed} & {*self.inputs})):
            before = [one for one in names.files if one.input == name]
            splits = [*new.get(name, ()), *self.seen.confirmed.get(name, {}).values()]
            files += self._layers(before, splits, name, f"{folder}/names-{number}.parquet") if splits else before
        files += [one for one in names.files if one.input not in {file.input for file in files}]
        self.seen.confirmed.clear()
        return log.replace(names=LoggedNames(log.files, tuple(files)))

    def _layers(
        self, before: Sequence[NamesFile], splits: Sequence[SourceSplit], name: str, path: str
    ) -> list[NamesFile]:
        """The files of input ``name`` with one more, at ``path``, that has ``splits``, and what it is merged with."""
        from headrace.sources.names_file import merged, names_table, table_of, to_bytes

        tables, kept = [names_table(splits)], [*before]
        while kept and kept[-1].file.rows < min(_RATIO * (rows := sum(map(len, tables))), _MOST - rows):
            tables.insert(0, table_of(verify(self.catalog.store, kept.pop().file)))
        table = merged(tables)
        data = to_bytes(table)
        self.catalog.store.write(path, data)
        return [*kept, NamesFile(name, DataFile(path, table.num_rows, len(data), checksum(data)))]
