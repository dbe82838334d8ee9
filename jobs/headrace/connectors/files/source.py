"""Landed files as a source: each is a split, and the position is the name from which listing starts."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.ext.sources import OpenSource, SourceConnector, SourcePosition, SourceReader, SourceSplit
from headrace.model.time import Instant
from headrace.pipeline.endpoints import Source
from headrace.pipeline.sources import FilesSource, NameOrder
from headrace.sources import file_planning
from headrace.sources.file_planning import KnownNames
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:  # with Arrow, which planning does without
    from headrace.formats.file_format import RequiredColumns, ScannedFiles, ScannedRecords, Span


@dataclass(frozen=True)
class FileEnumerator(file_planning.FilesEnumerator):
    """Finds the files of ``source`` in a ``store``, below a ``prefix`` there, by listing."""

    store: ObjectStore
    prefix: str
    source: FilesSource

    def unread(self, position: SourcePosition, read: Collection[str] | None = None) -> Iterator[SourceSplit]:
        """Files after the mark that are not among the recent ones, by name; before them stragglers that were never
        ``read``. Raises ChangedFileError if a recent one has another content now.
        """
        if read is not None:
            yield from file_planning.full_sweep(self.store, self.prefix, position, read, self.source)
        yield from file_planning.discover_splits(self.store, self.prefix, position, self.source)

    def unread_beside(
        self, position: SourcePosition, load_names: Callable[[], KnownNames], *, looks_everywhere: bool = False
    ) -> Iterator[SourceSplit]:
        """Files whose names are not those that ``load_names`` gives; if names are said to ascend, only those after the
        mark, unless it ``looks_everywhere``. Raises ChangedFileError if a known one has another content now.
        """
        if self.is_ordered and not looks_everywhere:
            return iter(file_planning.discover_splits(self.store, self.prefix, position, self.source, load_names))
        return file_planning.unread_names(self.store, self.prefix, load_names(), self.source.suffixes)

    @property
    def is_ordered(self) -> bool:
        """Whether files are said to land in the order of their names."""
        return self.source.names is NameOrder.ORDERED

    def early_files(self, position: SourcePosition, files: Sequence[SourceSplit]) -> list[SourceSplit]:
        """Names those of unread ``files`` that sort before one that was read up to ``position``, if none should."""
        newest = max([position.mark, *(file.path for file in position.recent)])
        return [file for file in files if file.path < newest] if self.is_ordered else []

    def after(self, position: SourcePosition, splits: Sequence[SourceSplit]) -> SourcePosition:
        """Where names ascend, the newest ``look_back`` files stay in the window; else they are in the log alone."""
        return file_planning.advance_position(position, splits, self.source.look_back if self.is_ordered else 0)

    def is_same(self, was: SourceSplit, now: SourceSplit) -> bool:
        """Whether a file has the content that it had."""
        return file_planning.is_unchanged(self.store, was, now)

    def taken(self, split: SourceSplit) -> SourceSplit:
        """The file with its digest, where its ETag does not tell. Raises VanishedFileError, ChangingFileError."""
        return file_planning.taken_in(self.store, split)

    def taken_again(self, splits: Sequence[SourceSplit]) -> list[SourceSplit]:
        """The files as they are now, taken in. Raises VanishedFileError, ChangingFileError."""
        return [
            file_planning.taken_in(self.store, file)
            for file in file_planning.listed_again(self.store, self.prefix, splits)
        ]

    def missing(self, splits: Iterable[SourceSplit]) -> Iterator[tuple[SourceSplit, str]]:
        """The files that are gone or have changed."""
        return file_planning.missing_splits(self.store, self.prefix, splits)

    def newest(self, position: SourcePosition) -> Instant | None:
        """When the newest file landed; where names ascend, of those after the mark."""
        return file_planning.newest_landed(
            self.store, self.prefix, position.mark if self.is_ordered else "", self.source
        )

    def is_lost(self, split: SourceSplit, unread: Mapping[str, SourceSplit]) -> bool:
        """Whether records of ``split`` are missed; not if its name was input as it was read, and is none any more."""
        is_left_out = not self.source.suffixes and file_planning.is_unfinished(split.path)
        return not is_left_out and super().is_lost(split, unread)

    def explain(self) -> str:
        """What lies under the prefix instead of input, or around it."""
        return file_planning.instead_of_input(self.store, self.prefix, self.source.suffixes)


@dataclass(frozen=True)
class FileReader(SourceReader):
    """Reads the files of ``source`` in a ``store``."""

    store: ObjectStore
    source: FilesSource

    def read(self, split: SourceSplit, span: "Span", required: "RequiredColumns") -> "ScannedRecords":
        """The records of a file. Raises VanishedFileError, ChangedFileError too."""
        from headrace.formats.file_format import read_file

        return read_file(
            file_planning.read_content(self.store, split), self.source, required, split.path, span, rules=split.rules
        )

    def read_together(self, splits: Sequence[SourceSplit], required: "RequiredColumns") -> "ScannedFiles | None":
        """The records of small files; None if older rules apply. Raises VanishedFileError, ChangedFileError."""
        form = self.source.file_format
        if any(split.rules is not None and split.rules < form.rules for split in splits):
            return None
        files = [(split.path, file_planning.read_content(self.store, split)) for split in splits]
        return form.read_together(files, self.source.fields, required)  # type: ignore[no-any-return]

    @property
    def rules(self) -> int:
        """What its format has."""
        rules: int = self.source.file_format.rules
        return rules

    def is_divisible(self, split: SourceSplit) -> bool:
        """Whether its format can be read in pieces."""
        return bool(self.source.file_format.is_divisible(split.path))


class FileConnector(SourceConnector):
    """Files."""

    def open(self, source: Source, root: ObjectStore) -> OpenSource:
        """The files of ``source``."""
        assert isinstance(source, FilesSource)
        store, prefix = file_planning.open_source(root, source.path)
        return OpenSource(FileEnumerator(store, prefix, source), FileReader(store, source))


FILES: Final = FileConnector()
