"""The inputs of a pipeline: what is new, which of it makes the next epoch, and the readers of it. Without Spark.

``check_places`` says where input may lie, and land again: in no folder of a pipeline, which Headrace writes to, reads
from and clears. Input there would be found by the pipeline's sweeps, and what the pipeline stores would be read as
input. A pipeline knows its own folder when it is built (``pipeline.validation``); the others under a root are known
only there.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Protocol

from headrace.errors import FixConfigError, FixDataError
from headrace.ext.sources import (
    FILES,
    SOURCES,
    FetchingReader,
    OpenSource,
    SourcePosition,
    SourceReader,
    SourceSplit,
    SplitEnumerator,
    UnknownPositionError,
    WritingReader,
)
from headrace.model.time import Instant
from headrace.pipeline.endpoints import BatchFunction, FunctionKey, Source
from headrace.pipeline.pipeline import Pipeline
from headrace.sources.file_planning import (
    MAX_READS,
    ChangingFileError,
    FilesEnumerator,
    KnownNames,
    gone_paths_of,
    next_batch,
)
from headrace_snapshots.format import files as stored
from headrace_snapshots.log import has_log
from headrace_snapshots.names import kind_of, landed_file
from headrace_snapshots.store import LocalStore, ObjectStore

if TYPE_CHECKING:
    from headrace.sources.flat_maps import FlatMapCall
    from headrace.sources.landed.files import LandedPortions, Lander
    from headrace.sources.landed.ranges import LandingPlace


ByInput = Mapping[str, Sequence[SourceSplit]]
"""Splits by the name of their input; no entry where there are none."""


class KnownFiles(Protocol):
    """What was read of all inputs."""

    def of_input(self, name: str) -> KnownNames:
        """The names of input ``name``, which is files."""

    def paths(self, name: str) -> set[str]:
        """The names of all splits of input ``name``."""


class Landing:
    """The inputs of ``pipeline``; what is not elsewhere lies below ``root``. ``batch_calls``: its batch functions by
    what they are known by, where they cannot be imported.
    """

    def __init__(
        self, pipeline: Pipeline, root: ObjectStore, batch_calls: "Mapping[FunctionKey, FlatMapCall] | None" = None
    ) -> None:
        self._sources = {input_.name: input_.source for input_ in pipeline.inputs}
        self._knows_splits = {input_.name for input_ in pipeline.inputs if input_.has_own_split}
        self._pipeline = pipeline
        self._batch_calls: dict[FunctionKey, FlatMapCall] = {**(batch_calls or {})}
        self.landers: dict[str, Lander] = {}
        open_sources = {name: self._open(name, source, root) for name, source in self._sources.items()}
        self.enumerators: Mapping[str, SplitEnumerator] = {name: one.enumerator for name, one in open_sources.items()}
        self.readers: Mapping[str, SourceReader] = {name: one.reader for name, one in open_sources.items()}

    def _open(self, name: str, source: Source, root: ObjectStore) -> OpenSource:
        open_source = SOURCES[source.kind].open_for(self._pipeline.name, source.as_read, root)
        if source.is_durable and source.plans_alike:
            return open_source
        from headrace.sources.landed.ranges import LandingPlace

        lander, open_source = landed_first(source, open_source, LandingPlace(root, self._pipeline.name, name))
        if lander is not None:
            self.landers[name] = lander
        return open_source

    def batch_call(self, function: BatchFunction) -> "FlatMapCall":
        """``function`` of the pipeline's, as it is called. Raises BatchFunctionError."""
        from headrace.sources.flat_maps import batch_call  # with Arrow

        if function.known_by not in self._batch_calls:
            self._batch_calls[function.known_by] = batch_call(function)
        return self._batch_calls[function.known_by]

    @property
    def batch_calls(self) -> "Mapping[FunctionKey, FlatMapCall]":
        """The batch functions by what they are known by. Raises BatchFunctionError."""
        functions = [function for function in self._pipeline.own_functions if isinstance(function, BatchFunction)]
        return {function.known_by: self.batch_call(function) for function in functions}

    @contextmanager
    def keep_connected(self) -> Iterator[None]:
        """While this lasts what sources connect to stays connected in this process."""
        with ExitStack() as open_:
            for kind in {source.kind: None for source in self._sources.values()}:
                open_.enter_context(SOURCES[kind].staying_connected())
            yield

    def land_first(
        self,
        offsets: Mapping[str, SourcePosition],
        max_files: int | None = None,
        max_bytes: int | None = None,
    ) -> "LandedPortions":
        """Land what makes an epoch of what inputs have that cannot give it again, as ``next_epoch`` takes it; what is
        left lands when it is asked for. All that was read up to ``offsets`` is landed.
        """
        from headrace.sources.landed.files import LandedPortions, PortionSize

        most = {
            name: PortionSize(max_files or source.max_files, max_bytes or source.max_bytes)
            for name, source in self._sources.items()
        }
        return LandedPortions(self.landers, {name: one.mark for name, one in offsets.items()}, most)

    def land_all(self, offsets: Mapping[str, SourcePosition]) -> None:
        for name, lander in self.landers.items():
            lander.land(offsets.get(name, SourcePosition()).mark)

    def unread_splits(self, name: str, position: SourcePosition) -> list[SourceSplit]:
        """What input ``name`` has behind ``position``."""
        return [*self.enumerators[name].unread(self._checked_position(name, position))]

    def to_land(self, offsets: Mapping[str, SourcePosition]) -> dict[str, list[SourceSplit]]:
        """What ``land_all`` would land, as splits of the sources; writes nothing."""
        waiting = {
            name: lander.waiting_splits(offsets.get(name, SourcePosition()).mark)
            for name, lander in self.landers.items()
        }
        return {name: splits for name, splits in waiting.items() if splits}

    @property
    def files(self) -> dict[str, FilesEnumerator]:
        return {name: one for name, one in self.enumerators.items() if isinstance(one, FilesEnumerator)}

    @property
    def stores(self) -> tuple[ObjectStore, ...]:
        """The stores that hold files, each once."""
        return tuple({id(place.store): place.store for place in self.files.values()}.values())

    @property
    def uris(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(store.uri for store in self.stores))

    def new_files(
        self,
        offsets: Mapping[str, SourcePosition],
        known_files: KnownFiles | None = None,
        *,
        full_sweep: bool = False,
    ) -> dict[str, list[SourceSplit]]:
        """What has come since ``offsets``, and is none of ``known_files``, which were read (None: nothing was).
        ``full_sweep``: stragglers are found as well, where nobody looks any more.
        """
        new: dict[str, list[SourceSplit]] = {}
        for name, enumerator in self.enumerators.items():
            position = self._checked_position(name, offsets.get(name, SourcePosition()))
            if isinstance(enumerator, FilesEnumerator):
                load_names = KnownNames if known_files is None else partial(known_files.of_input, name)
                unread = enumerator.unread_beside(position, load_names, looks_everywhere=full_sweep)
            else:
                unread = enumerator.unread(
                    position, known_files.paths(name) if full_sweep and known_files is not None else None
                )
            if splits := [*unread]:
                new[name] = splits
        return new

    def newest_landed(self, marks: Mapping[str, str]) -> dict[str, Instant | None]:
        """When the newest split of each input came, looked for after its mark; None where that cannot be told."""
        return {name: one.newest(SourcePosition(marks.get(name, ""))) for name, one in self.enumerators.items()}

    def _checked_position(self, name: str, position: SourcePosition) -> SourcePosition:
        """``position`` of input ``name``, which its source can read. Raises UnknownPositionError."""
        source = self._sources[name]
        if position == SourcePosition() or source.kind == position.kind == FILES:
            return position
        newest = SOURCES[source.kind].format
        if position.kind == FILES:  # a snapshot from before they said their kind: definitions have always said it
            return replace(position, kind=source.kind)
        if position.kind != source.kind or position.format > newest:
            raise UnknownPositionError(
                f"input {name} was read up to a position of kind {position.kind!r}, format {position.format}. It "
                f"is {source}, of kind {source.kind!r}, which knows formats up to {newest}: upgrade Headrace, or the "
                "package that brings this kind"
            )
        return position

    def position_after(self, name: str, position: SourcePosition, splits: Sequence[SourceSplit]) -> SourcePosition:
        """The position of input ``name`` once ``splits`` have been read."""
        kind, new_position = self._sources[name].kind, self.enumerators[name].after(position, splits)
        if kind == FILES or new_position == SourcePosition():
            return new_position
        return replace(new_position, kind=kind, format=SOURCES[kind].format)

    def watermarks(self, files: ByInput) -> dict[str, dict[str, Instant]]:
        """What sources know of how far parts of inputs have come once ``files`` are read, by input and part."""
        marks_by_input: dict[str, dict[str, Instant]] = {}
        for name, splits in files.items():
            for split in splits if name in self._knows_splits else ():
                for part, watermark in self.enumerators[name].watermarks(split).items():
                    parts = marks_by_input.setdefault(name, {})
                    parts[part] = max(watermark, parts.get(part, watermark))
        return marks_by_input

    def counting_again(self, files: ByInput) -> dict[str, SourceSplit]:
        """The first of ``files`` of each input whose records take back, or repeat, what was counted before."""
        again_of = {}
        for name, splits in files.items():
            counted_again = next((split for split in splits if self.enumerators[name].is_correction(split)), None)
            if counted_again is not None:
                again_of[name] = counted_again
        return again_of

    def is_repeatable(self, name: str) -> bool:
        """Whether splits of input ``name`` that were read come again after an older position."""
        return SOURCES[self._sources[name].kind].repeats

    def missing_splits(self, name: str, splits: Iterable[SourceSplit]) -> Iterable[tuple[SourceSplit, str]]:
        """Name the ``splits`` of input ``name`` that could not be read again as they were, each with why."""
        return self.enumerators[name].missing(splits)

    def gone_paths(self, name: str, files: Iterable[SourceSplit]) -> list[str]:
        """The paths of ``files`` of input ``name`` that are gone; what they hold is not looked at."""
        place = self.files[name]
        return gone_paths_of(place.store, place.prefix, files)

    def next_epoch(
        self, files: ByInput, max_files: int | None = None, max_bytes: int | None = None
    ) -> tuple[dict[str, list[SourceSplit]], dict[str, list[SourceSplit]]]:
        """What ``first_epoch`` gives, taken in, and the rest."""
        first = self.first_epoch(files, max_files, max_bytes)
        rest = {name: [*waiting[len(first.get(name, ())) :]] for name, waiting in files.items()}
        return self.take_files(first), {name: waiting for name, waiting in rest.items() if waiting}

    def first_epoch(
        self, files: ByInput, max_files: int | None = None, max_bytes: int | None = None
    ) -> dict[str, list[SourceSplit]]:
        """The first of ``files`` of each input that make an epoch. None: as the source says. A split that counts again
        is an epoch of its own.
        """
        first = {}
        for name, waiting in files.items():
            source = self._sources[name]
            batch = next_batch(waiting, max_files or source.max_files, max_bytes or source.max_bytes)
            first[name] = self._until_again(name, batch)
        correcting_input = next(
            (name for name, batch in first.items() if self.enumerators[name].is_correction(batch[0])), None
        )
        return first if correcting_input is None else {correcting_input: first[correcting_input]}

    def _until_again(self, name: str, batch: list[SourceSplit]) -> list[SourceSplit]:
        """What of ``batch`` comes before the first split that counts again; that one alone, if it is the first."""
        corrections = [number for number, split in enumerate(batch) if self.enumerators[name].is_correction(split)]
        return batch[: max(corrections[0], 1)] if corrections else batch

    def take_files(self, files: ByInput) -> dict[str, list[SourceSplit]]:
        """``files`` with what will tell whether they have changed. Raises VanishedFileError, ChangingFileError."""
        return {name: [self.enumerators[name].taken(split) for split in splits] for name, splits in files.items()}

    def reading_attempts(self, files: ByInput) -> Iterator[ByInput]:
        """``files``; then, as often as the next ones are asked for since some changed before they were read, these as
        they have become. Raises VanishedFileError; and ChangingFileError if they changed each time.
        """
        changing: dict[str, None] = {}
        files = self._by_rules_of_today(files)
        for _ in range(MAX_READS):
            yield files
            now = {name: self.enumerators[name].taken_again(splits) for name, splits in files.items()}
            pairs = [pair for name, splits in now.items() for pair in zip(files[name], splits, strict=True)]
            changing |= {file.path: None for old_file, file in pairs if file != old_file}
            files = self._by_rules_of_today(now)
        raise ChangingFileError([*changing])

    def _by_rules_of_today(self, files: ByInput) -> ByInput:
        """``files`` with the number of the rules by which they are read now."""
        rules = {name: self.readers[name].rules for name in files}
        return {name: [replace(split, rules=rules[name]) for split in splits] for name, splits in files.items()}

    def missing_paths(self, read: Iterable[stored.InputFile], splits_by_input: ByInput) -> list[str]:
        """The paths of the files that were ``read`` and are not in ``splits_by_input`` with the content that they
        had.
        """
        listed_files = {name: {file.path: file for file in splits} for name, splits in splits_by_input.items()}

        def is_lost(was: stored.InputFile) -> bool:
            enumerator = self.enumerators.get(was.input)
            return enumerator is None or enumerator.is_lost(_split_from_file(was), listed_files.get(was.input, {}))

        files = [*read]
        lost_paths = {
            name: {*self.lost_paths(name, [_split_from_file(file) for file in files if file.input == name])}
            for name in listed_files
        }
        return [file.path for file in files if is_lost(file) or file.path in lost_paths.get(file.input, ())]

    def lost_paths(self, name: str, claimed_splits: Sequence[SourceSplit]) -> list[str]:
        """The paths of the ``claimed_splits`` of input ``name`` that its source has no more, where claims are all that
        the root has of them; other inputs are not asked.
        """
        is_claimed = name in self.landers and self.landers[name].reader is None
        return [split.path for split, _ in self.missing_splits(name, claimed_splits)] if is_claimed else []

    def expired_before(self, files: ByInput, offsets: Mapping[str, SourcePosition]) -> dict[str, SourceSplit]:
        """The first of ``files`` of inputs that are read from the beginning, where that was landed and has expired."""
        first_splits = {name: splits[0] for name, splits in files.items() if splits and name in self.landers}
        if not first_splits:
            return {}
        first_splits = {
            name: split for name, split in first_splits.items() if not offsets.get(name, SourcePosition()).mark
        }
        from headrace.sources.landed.files import landed_as

        own = self._pipeline.name
        places = {name: landed_file(own, landed_as(own, split)) for name, split in first_splits.items()}
        return {name: first_splits[name] for name, place in places.items() if place is not None and place.range > 0}


def landed_first(source: Source, open_source: OpenSource, place: "LandingPlace") -> "tuple[Lander | None, OpenSource]":
    """What lands, or notes, at ``place`` what there is of a ``source``, and what finds and reads it there. A source
    that is read where it is, and plans alike each time, gives nothing and itself.
    """
    from headrace.sources.landed.files import LandedEnumerator, LandedReader, Lander, WritingLander

    reader = open_source.reader
    if source.is_durable:
        if source.plans_alike:
            return None, open_source
        return Lander(place, open_source.enumerator, None), _claimed_source(place, open_source)
    if isinstance(reader, WritingReader):
        return WritingLander(place, open_source.enumerator, writer=reader), _claimed_source(place, open_source)
    assert isinstance(reader, FetchingReader), f"{source.kind} is not durable: its reader fetches, or writes"
    landed_source = OpenSource(LandedEnumerator(place, open_source.enumerator), LandedReader(place, reader))
    return Lander(place, open_source.enumerator, reader), landed_source


def _claimed_source(place: "LandingPlace", open_source: OpenSource) -> OpenSource:
    from headrace.sources.landed.files import ClaimedEnumerator, ClaimedReader

    return OpenSource(ClaimedEnumerator(place, open_source.enumerator), ClaimedReader(open_source.reader))


def _split_from_file(file: stored.InputFile) -> SourceSplit:
    return SourceSplit(file.path, file.size, file.etag, file.digest)


def count_files(files: ByInput) -> int:
    return sum(len(splits) for splits in files.values())


class PlaceError(FixConfigError, code="config.place"):
    """Input lies, or would land, where Headrace stores snapshots; or the folder of a new pipeline holds other files."""


def check_places(pipeline: Pipeline, root: ObjectStore, *, is_first: bool) -> None:
    """Raise PlaceError if an input of ``pipeline`` overlaps with a pipeline's folder under ``root``. A request for each
    input; before its first run another, for what its folder holds.
    """
    for name, place in Landing(pipeline, root).files.items():
        if (problem := overlap_problem(root, place.store, place.prefix, own=pipeline.name)) is not None:
            raise PlaceError(
                f"pipeline {pipeline.name}: {problem}. What Headrace stores would be read as records of the input "
                f"{name}: move its files elsewhere, such as landing/{pipeline.name}, and let the pipeline read there"
            )
    infos = root.list(f"{pipeline.name}/") if is_first else ()
    foreign = next((info.path for info in infos if kind_of(pipeline.name, info.path) is None), None)
    if foreign is not None:
        raise PlaceError(
            f"pipeline {pipeline.name} has not run under {root.uri} yet, and its folder there holds files that are not "
            f"of Headrace, such as {foreign}. Move them elsewhere, or give the pipeline another name"
        )


def overlap_problem(root: ObjectStore, store: ObjectStore, prefix: str, own: str = "") -> str | None:
    """What is wrong with a prefix of input; None if it shares nothing with the folder of a pipeline under ``root``.

    ``own``: the name of a pipeline that counts as one though it may not have run.
    """
    for top, place in dict.fromkeys(zip(_place_locations(root, ""), _place_locations(store, prefix), strict=False)):
        if top.is_relative_to(place):
            return f"{place} holds the folders of all pipelines under {root.uri}"
        if place.is_relative_to(top):
            name = place.relative_to(top).parts[0]
            if name == own or (name.isidentifier() and has_log(root, name)):
                return f"{place} lies in the folder of pipeline {name} under {root.uri}"
    return None


def _place_locations(store: ObjectStore, prefix: str) -> Iterator[PurePosixPath]:
    """The place as it is written and, in a local store, as links lead to it."""
    if isinstance(store, LocalStore):
        written_path = store.root / prefix
        yield PurePosixPath(os.path.normpath(written_path))
        yield PurePosixPath(written_path.resolve())
    else:
        yield PurePosixPath(f"{store.uri}/{prefix}")


SHOWN_LETTERS = 3
"""How many dead letters an error names."""


class DeadLetterBudgetError(FixDataError, code="data.dead_letter_budget"):
    """More records of one epoch were rejected than a source allows."""


def check_budgets(
    pipeline: Pipeline, epoch: int, rejected_counts: Mapping[str, int], sample: Mapping[str, Sequence[str]]
) -> None:
    """Raise DeadLetterBudgetError if more records of an input are rejected (``rejected_counts``) than its source
    allows; ``sample`` shows some of them.
    """
    for input_ in pipeline.inputs:
        budget, count = input_.source.max_rejected, rejected_counts.get(input_.name, 0)
        if budget is not None and count > budget:
            raise DeadLetterBudgetError(
                f"epoch {epoch} rejects {count} records of input {input_.name} and max_rejected is {budget}: "
                f"{'; '.join(sample.get(input_.name, ()))}. Correct the files, or raise max_rejected of the source"
            )
