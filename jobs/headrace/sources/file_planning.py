"""Which files an epoch reads: finding new files by listing, cutting them into epochs, remembering how far it came.

This is the driver's side of the file source, without Spark. Files are taken in the order of their names. What is new is
what is listed and has no name that was ever read (``KnownNames``). A listing is in the order of names, and so is what
is stored of names. Both are read side by side: of a million names a part is in memory at a time.

Where names are said to ascend, a snapshot remembers of ``SourcePosition`` the newest ``look_back`` files as they were
when they were read. It has the mark below them, from which listing starts. So a run lists only what is new or nearly
so. The files themselves are stored once, in the file log of the inputs. A manifest has the mark, and how many files
after it were read.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.errors import FixDataError, RetryError
from headrace.ext.sources import SourcePosition, SourceSplit, SplitEnumerator
from headrace.ext.stores import lists_in_pages, names_in, sort_key
from headrace.model.time import Instant
from headrace.pipeline.sources import FilesSource
from headrace.sources import content_marks
from headrace.sources.parallel_listing import listed_in_parallel, listed_of
from headrace.sources.progress import KnownVersion, hash_text
from headrace.this_process import Size
from headrace_snapshots import store as object_stores

if TYPE_CHECKING:
    from headrace.sources.names_file import NamesLookup


AT_ONCE: Final = Size(10_000)
"""So many names of a listing are looked up together."""


class KnownNames(msgspec.Struct, frozen=True):
    """``recent`` files, as they were read, by name; and many more in ``stored_names``, the contents of names files,
    oldest first.

    ``confirmed_splits`` takes files in that have another ETag and the content that they had, as they are now.
    """

    recent: Mapping[str, SourceSplit] = msgspec.field(default_factory=dict)
    stored_names: Sequence[bytes] = ()
    confirmed_splits: MutableMapping[str, SourceSplit] = msgspec.field(default_factory=dict)

    def find_news(
        self, listing: Iterable[object_stores.ObjectInfo]
    ) -> Iterator[tuple[object_stores.ObjectInfo, KnownVersion | None]]:
        """What in a ``listing`` was never read, with None; and what is listed otherwise than it was, with that."""
        lookup = self._open_lookup()
        remaining = iter(listing)
        while infos := [*islice(remaining, AT_ONCE.value)]:
            left = [info for info in infos if info.path not in self.recent]
            old = (info for info in infos if info.path in self.recent) if len(left) < len(infos) else ()
            changed_versions = {info.path: was for info in old if (was := self._version_if_changed(info)) is not None}
            unknown = {info.path for info in left}
            if lookup is not None and left:
                unknown, others = lookup.find_news(left)
                changed_versions |= others
            for info in infos:
                if info.path in unknown:
                    yield info, None
                elif info.path in changed_versions and not self._is_confirmed(info):
                    yield info, changed_versions[info.path]

    def listing_bounds(self) -> list[str]:
        """Names that cut a listing into ranges of similar size, ascending; none where few are stored."""
        if not self.stored_names:
            return []
        from headrace.sources.names_file import group_bounds

        return group_bounds(max(self.stored_names, key=len))

    def _version_if_changed(self, info: object_stores.ObjectInfo) -> KnownVersion | None:
        was = self.recent[info.path]
        return KnownVersion.from_file(was) if _has_other_etag(info, was) else None

    def _is_confirmed(self, info: object_stores.ObjectInfo) -> bool:
        confirmed_split = self.confirmed_splits.get(info.path)
        return confirmed_split is not None and not _has_other_etag(info, confirmed_split)

    def _open_lookup(self) -> "NamesLookup | None":
        if not self.stored_names:
            return None
        from headrace.sources.names_file import NamesLookup

        return NamesLookup(self.stored_names)


UNFINISHED_SUFFIXES: Final = (".tmp", ".part", ".filepart", ".crdownload", ".inprogress")
"""How names end while a producer still writes the file, as many do it; in letters of any case."""

LEFT_OUT: Final = (
    f"those that begin with _ or . or end in {', '.join(UNFINISHED_SUFFIXES[:-1])} or {UNFINISHED_SUFFIXES[-1]} "
    "are left out"
)
"""The rule in words, of names without ``suffixes``."""


def listed_inputs(
    store: object_stores.ObjectStore,
    prefix: str,
    suffixes: tuple[str, ...],
    start_after: str = "",
    bounds: Sequence[str] = (),
) -> Iterator[object_stores.ObjectInfo]:
    """The input under ``prefix`` that sorts after ``start_after``, in the order of names. Where a listing comes in
    pages, ranges of it are listed side by side: those between ``bounds``, which ascend, or as it goes.
    """
    folder = folder_of(prefix)
    is_paged = lists_in_pages(store)
    infos = listed_in_parallel(store, folder, start_after, bounds) if is_paged else store.list(folder, start_after)
    return (info for info in infos if is_input(info.path.removeprefix(folder), suffixes))


def inputs_of(
    store: object_stores.ObjectStore, prefix: str, wanted_names: Collection[str]
) -> dict[str, object_stores.ObjectInfo]:
    """Look up which of the ``wanted_names`` are there under ``prefix``."""
    if not wanted_names:
        return {}
    folder = folder_of(prefix)
    if lists_in_pages(store):
        return listed_of(store, folder, wanted_names)
    last, infos_by_path = max(map(sort_key, wanted_names)), dict[str, object_stores.ObjectInfo]()
    # a listing begins behind what it is given, and a name without its last letter sorts before it
    listing = store.list(folder, min(wanted_names, key=sort_key)[:-1])
    for info in takewhile(lambda info: sort_key(info.path) <= last, listing):
        if info.path in wanted_names:
            infos_by_path[info.path] = info
    return infos_by_path


def folder_of(prefix: str) -> str:
    """What all names under ``prefix`` begin with."""
    return f"{prefix}/" if prefix else ""


def is_input(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether a file of that ``name`` below its input's folder is input. Folders ``column=value`` are, whatever the
    column is called.
    """
    # Spark and Hadoop skip these names too, so they could not be read even if they were listed.
    folder, _, file = name.rpartition("/")
    if folder and any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in folder.split("/")):
        return False
    if not file or file.startswith(("_", ".")) or file.endswith("._COPYING_"):
        return False
    return name.endswith(suffixes) if suffixes else not is_unfinished(file)


def is_unfinished(name: str) -> bool:
    """Whether a file is called as producers call one that they have not ended."""
    return name.lower().endswith(UNFINISHED_SUFFIXES)


MAX_READS = 3
"""How often new files are read before it is an error that they change meanwhile."""


class ChangedFileError(FixDataError, code="data.changed_file"):
    """A file that was already read, or was to be read as it was recorded, has other content now."""

    def __init__(self, path: str, how: str) -> None:
        super().__init__(
            f"file {path} has changed since it was read: {how}. Land what is new under a new name. Put the old content "
            "back (or remove the file, if no backfill is to read it again); or run a backfill (of a range: one that "
            "begins no later than the records that the file had)"
        )


class ChangingFileError(RetryError, code="retry.changing_file"):
    """A file changes each time that it is read."""

    def __init__(self, paths: Sequence[str]) -> None:
        more = f" (and {len(paths) - 1} more)" if len(paths) > 1 else ""
        which = f"file {paths[0]}{more} was" if paths else "a file was"
        super().__init__(
            f"{which} written while it was read, {MAX_READS} times. Nothing of it counts: run again when it is whole. "
            "To land a file whole, write it under a name that ends in .tmp, or in another folder, and rename it"
        )


class VanishedFileError(FixDataError, code="data.vanished_file"):
    """A file was there when files were listed and is not there any more."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"file {path} was listed and is gone. Put it back: "
            "a file may be removed only once a snapshot holds its records"
        )


class FilesEnumerator(SplitEnumerator):
    """Finds files below a ``prefix`` of a ``store`` by listing: it is told which names are known, and says whether
    they ascend.
    """

    store: object_stores.ObjectStore
    prefix: str

    @property
    @abstractmethod
    def is_ordered(self) -> bool:
        """Whether files are said to land in the order of their names."""

    @abstractmethod
    def unread_beside(
        self, position: SourcePosition, load_names: Callable[[], KnownNames], *, looks_everywhere: bool = False
    ) -> Iterator[SourceSplit]:
        """Files whose names are not those that ``load_names`` gives; if names are said to ascend, only those after the
        mark, unless it ``looks_everywhere``. Raises ChangedFileError if a known one has another content now.
        """

    @abstractmethod
    def early_files(self, position: SourcePosition, files: Sequence[SourceSplit]) -> list[SourceSplit]:
        """Names those of unread ``files`` that sort before one that was read up to ``position``, if none should."""


def open_source(root: object_stores.ObjectStore, path: str) -> tuple[object_stores.ObjectStore, str]:
    """The store that holds a source and the source's prefix in it; ``path`` is relative to ``root``, or a whole URI."""
    if "://" in path:
        return object_stores.open_store(path), ""
    return root, path.strip("/")


def discover_splits(
    store: object_stores.ObjectStore,
    prefix: str,
    offsets: SourcePosition,
    source: FilesSource,
    load_names: Callable[[], KnownNames] = KnownNames,
) -> list[SourceSplit]:
    """Files to read that sort after the mark of ``offsets``, in the order of their names.

    Raises ChangedFileError if a file of ``offsets.recent`` has another content now.
    """
    return [*list_unread(store, prefix, offsets, source.suffixes, load_names)]


def list_unread(
    store: object_stores.ObjectStore,
    prefix: str,
    offsets: SourcePosition,
    suffixes: tuple[str, ...],
    load_names: Callable[[], KnownNames] = KnownNames,
) -> Iterator[SourceSplit]:
    """What ``discover_splits`` gives, one by one as they are listed, of a source with these ``suffixes``.

    A recent file with another ETag may have been confirmed by an earlier run: only then names are loaded.
    """
    recent_files = {file.path: file for file in offsets.recent}
    remaining = listed_inputs(store, prefix, suffixes, offsets.mark)
    known_names: KnownNames | None = None
    while infos := [*islice(remaining, AT_ONCE.value)]:
        others = [info for info in infos if _has_other_etag(info, recent_files.get(info.path))]
        if others:
            known_names = load_names() if known_names is None else known_names
            for info, was in known_names.find_news(others):
                recorded_file = recent_files[info.path]
                version = was or KnownVersion.from_file(recorded_file)
                _confirm_version(store, known_names, info, version, _version_text(recorded_file))
        yield from (_split_of(info) for info in infos if info.path not in recent_files)


def _has_other_etag(info: object_stores.ObjectInfo, was: SourceSplit | None) -> bool:
    return was is not None and (was.size, was.etag) != (info.size, info.etag)


def unread_names(
    store: object_stores.ObjectStore, prefix: str, known_names: KnownNames, suffixes: tuple[str, ...]
) -> Iterator[SourceSplit]:
    """Files under ``prefix`` whose names are not ``known_names``, in the order of their names; lists all.

    Raises ChangedFileError if one that is known has another content now.
    """
    for info, was in known_names.find_news(listed_inputs(store, prefix, suffixes, bounds=known_names.listing_bounds())):
        if was is None:
            yield SourceSplit(info.path, info.size, info.etag)
        else:
            _confirm_version(store, known_names, info, was)


def _confirm_version(
    store: object_stores.ObjectStore,
    known_names: KnownNames,
    info: object_stores.ObjectInfo,
    was: KnownVersion,
    old_text: str = "",
) -> None:
    """Take ``info`` in as known if only its ETag differs from what it was. Raises ChangedFileError, with ``old_text``
    for what it was, if that is known.
    """
    try:
        digested_info = store.digested(info.path) if was.size == info.size else None
        if digested_info is None or digested_info.digest is None or was.digest is None:
            is_known = content_marks.has_content_of_version(store, info, was)
        else:
            is_known = hash_text(digested_info.digest) == was.digest
    except object_stores.ObjectNotFoundError:  # it went since it was listed
        return
    if not is_known:
        old_text = old_text or (f"{was.size} bytes" if was.size != info.size else "other content, as far as ETags tell")
        raise ChangedFileError(info.path, f"it was {old_text}, now it is {_version_text(_split_of(info))}")
    known_names.confirmed_splits[info.path] = _split_of(digested_info or info)


def newest_landed(store: object_stores.ObjectStore, prefix: str, mark: str, source: FilesSource) -> Instant | None:
    """When the newest of the files that sort after ``mark`` landed; None if there are none, or the store does not say.

    A listing, as ``discover_splits`` makes one.
    """
    times = (info.modified for info in listed_inputs(store, prefix, source.suffixes, mark))
    return max((Instant(time) for time in times if time is not None), default=None)


def is_unchanged(store: object_stores.ObjectStore, was: SourceSplit, now: SourceSplit) -> bool:
    """Whether a file has the content that it had; where only its ETag differs, the content decides."""
    if (was.size, was.etag) == (now.size, now.etag):
        return True
    if was.size != now.size:
        return False
    try:
        digested_info = None if was.digest is None else store.digested(was.path)
        if digested_info is not None:
            return was.digest == digested_info.digest
        return content_marks.has_content(store, object_stores.ObjectInfo(now.path, now.size, now.etag), was)
    except object_stores.ObjectNotFoundError:  # it went since it was listed
        return False


def taken_in(store: object_stores.ObjectStore, file: SourceSplit) -> SourceSplit:
    """``file`` with what will tell whether it has changed from now on. Where its ETag does not tell, the file is read
    once, and is what it is then. Raises VanishedFileError, ChangingFileError.
    """
    try:
        digested_split = store.digested(file.path)
    except object_stores.ObjectNotFoundError as error:
        raise VanishedFileError(file.path) from error
    except object_stores.ObjectChangedError as error:
        raise ChangingFileError([file.path]) from error
    return file if digested_split is None else _split_of(digested_split)


def listed_again(store: object_stores.ObjectStore, prefix: str, files: Sequence[SourceSplit]) -> list[SourceSplit]:
    """``files``, which landed under ``prefix``, as they are now. Raises VanishedFileError."""
    wanted_paths = {file.path for file in files}
    listed_files = inputs_of(store, prefix, wanted_paths)
    if gone_paths := sorted(wanted_paths - listed_files.keys()):
        raise VanishedFileError(gone_paths[0])
    now = (listed_files[file.path] for file in files)
    return [SourceSplit(info.path, info.size, info.etag) for info in now]


def missing_splits(
    store: object_stores.ObjectStore, prefix: str, files: Iterable[SourceSplit]
) -> Iterator[tuple[SourceSplit, str]]:
    """Name the ``files`` that are gone or have changed, each with which of it. A listing of ``prefix`` as far as they
    are, and a request for each that is elsewhere: the pipeline may read elsewhere since.
    """
    for file, now in _files_now(store, prefix, files):
        if now is None:
            yield file, "is gone"
        elif not is_unchanged(store, file, _split_of(now)):
            yield file, "has changed"


def gone_paths_of(store: object_stores.ObjectStore, prefix: str, files: Iterable[SourceSplit]) -> list[str]:
    """The paths of ``files`` that are gone, as ``missing_splits`` finds them. Their contents are not looked at."""
    return [file.path for file, now in _files_now(store, prefix, files) if now is None]


def _files_now(
    store: object_stores.ObjectStore, prefix: str, files: Iterable[SourceSplit]
) -> Iterator[tuple[SourceSplit, object_stores.ObjectInfo | None]]:
    wanted_files = {file.path: file for file in files}
    listed_files = inputs_of(store, prefix, wanted_files)
    for file in wanted_files.values():
        yield file, listed_files.get(file.path) or _stat_object(store, file.path)


def _stat_object(store: object_stores.ObjectStore, path: str) -> object_stores.ObjectInfo | None:
    try:
        return store.stat(path)
    except object_stores.ObjectNotFoundError:
        return None


def read_content(store: object_stores.ObjectStore, file: SourceSplit) -> bytes:
    """What ``file`` held when it was taken in. Raises VanishedFileError, and ChangedFileError if it has another content
    now.
    """
    try:
        try:
            return store.read_same(object_stores.ObjectInfo(file.path, file.size, file.etag, file.digest))
        except object_stores.ObjectChangedError as error:
            data = store.read(file.path)
            if content_marks.is_content_of(file, data):
                return data
            raise ChangedFileError(file.path, f"it was {_version_text(file)}, and now it is another file") from error
    except object_stores.ObjectNotFoundError as error:
        raise VanishedFileError(file.path) from error


def full_sweep(
    store: object_stores.ObjectStore,
    prefix: str,
    offsets: SourcePosition,
    known_paths: Iterable[str],
    source: FilesSource,
) -> list[SourceSplit]:
    """Stragglers: files that sort at or before the mark, where ``discover_splits`` does not look, and were never read.

    ``known_paths`` are the paths of all files that were read. Lists the whole prefix up to the mark.
    """
    read = frozenset(known_paths)
    stragglers: list[SourceSplit] = []
    for file in _list_splits(store, prefix, "", source.suffixes):
        if file.path > offsets.mark:
            break
        if file.path not in read:
            stragglers.append(file)
    return stragglers


def next_batch(files: Sequence[SourceSplit], max_files: int, max_bytes: int) -> list[SourceSplit]:
    """The first of ``files`` that make one epoch of at most ``max_files`` and ``max_bytes``; a larger file is alone."""
    batch: list[SourceSplit] = []
    size = 0
    for file in files[:max_files]:
        if batch and size + file.size > max_bytes:
            break
        batch.append(file)
        size += file.size
    return batch


def advance_position(offsets: SourcePosition, batch: Sequence[SourceSplit], look_back: int) -> SourcePosition:
    """``offsets`` after ``batch`` has been read; the newest ``look_back`` files stay in the window."""
    if not batch:
        return offsets
    by_name = sorted((*offsets.recent, *batch), key=lambda file: file.path)
    passed_files = by_name[: max(0, len(by_name) - look_back)]
    mark = max([offsets.mark, *(file.path for file in passed_files)])
    return SourcePosition(
        mark=mark,
        recent=tuple(file for file in by_name if file.path > mark),
        files=offsets.files + len(batch),
        bytes=offsets.bytes + sum(file.size for file in batch),
    )


def _list_splits(
    store: object_stores.ObjectStore, prefix: str, start_after: str, suffixes: tuple[str, ...]
) -> Iterator[SourceSplit]:
    for info in listed_inputs(store, prefix, suffixes, start_after):
        yield SourceSplit(info.path, info.size, info.etag)


def _split_of(info: object_stores.ObjectInfo) -> SourceSplit:
    return SourceSplit(info.path, info.size, info.etag, info.digest)


def _version_text(file: SourceSplit) -> str:
    return f"{file.size} bytes with ETag {file.etag}"


SHOWN_FILES = 5


def root_exists(store: object_stores.ObjectStore) -> bool:
    """Whether there is a root: a local folder, or anything under a prefix."""
    if isinstance(store, object_stores.LocalStore):
        return store.root.is_dir()
    return next(iter(store.list("")), None) is not None


def describe_surroundings(store: object_stores.ObjectStore) -> str:
    """What there is instead of a root that does not exist."""
    if not isinstance(store, object_stores.LocalStore):
        return "nothing lies under it"
    existing_folder = next(folder for folder in store.root.parents if folder.is_dir())
    entries = sorted(existing_folder.iterdir())[: SHOWN_FILES + 1]
    return _contents_text(str(existing_folder), [f"{path.name}/" if path.is_dir() else path.name for path in entries])


def instead_of_input(store: object_stores.ObjectStore, prefix: str, suffixes: tuple[str, ...]) -> str:
    """Why there are no files, and never were: what is under the prefix or around it, which shows a typing mistake."""
    folder = f"{prefix}/" if prefix else ""
    where = f"{store.uri.rstrip('/')}/{folder}"
    if existing_infos := [*islice(store.list(folder), SHOWN_FILES)]:
        such = ", ".join(info.path.removeprefix(folder) for info in existing_infos)
        return f"no file under {where} is input, such as {such}: {_accepted_names_text(suffixes)}"
    if not root_exists(store):
        return f"{where} does not exist; {describe_surroundings(store)}"
    parent_folder = folder
    while parent_folder:
        parent_folder = parent_folder.rstrip("/").rpartition("/")[0]
        parent_folder = f"{parent_folder}/" if parent_folder else ""
        if names := [*islice(names_in(store, parent_folder), SHOWN_FILES + 1)]:  # one more than are shown
            return f"nothing lies under {where}; " + _contents_text(f"{store.uri}/{parent_folder}", names)
    return f"nothing lies under {where}"


def _accepted_names_text(suffixes: tuple[str, ...]) -> str:
    if suffixes:
        return f"names must end in {' or '.join(suffixes)}, and those that begin with _ or . are left out"
    return LEFT_OUT


def _contents_text(where: str, names: list[str]) -> str:
    if not names:
        return f"{where} is empty"
    more = ", ..." if len(names) > SHOWN_FILES else ""
    return f"{where} holds {', '.join(names[:SHOWN_FILES])}{more}"
