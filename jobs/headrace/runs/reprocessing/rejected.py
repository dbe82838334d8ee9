"""Replaying dead letters: records that could not be read, or were not allowed, landed again as they were.

For whoever has mended what was wrong: the pipeline's schema, or the records themselves, as files in a prefix of their
own. No window has counted them, so they may land where the pipeline reads, and its next run reads them again; who reads
the files anew that they came from leaves these out (``read.snapshots.reprocessed_copies``). By default they land under
a root of their own, ``{root}/rejected``.

Each epoch's dead letters of an input become one file, those of a CSV input one for each file that they came from, with
its header. They hold the bytes of the records, in the order of their files.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FileFormat, Input
from headrace.read.snapshots.damage import ways_out
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.reprocessed_copies import DroppedBefore, dropped, landed_from
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.arrow_types import schema_of
from headrace.read.views.columns import View, ViewColumns
from headrace.read.views.row_files import tables
from headrace.runs.reprocessing.copies import (
    NO_HEADER,
    Headers,
    LandingAgainError,
    Target,
    late_behind,
    suffix_of,
    target_of,
    text_of,
    why_no_header,
)
from headrace.sources.file_planning import open_source
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import open_store

_READ = ("input", "file", "position", "raw", "raw_bytes")


@dataclass(frozen=True)
class LandedRejected:
    """What landed: ``files`` with ``records``, of each input under its prefix of ``targets``.

    ``already_landed`` files had landed before. ``rejected_twice`` records had landed once and were rejected again; they
    are left out. ``left``: how many cannot land, by the reason why; they stay in the view ``rejected``.
    ``lands_in_source``: the pipeline itself reads a target. ``needs_full_sweep``: newer names are there, so that only a
    full sweep finds what has landed. ``late``: how many of the ``records`` are late behind the watermark of main if
    the next run reads them; None where that cannot be told (records of a user's own Spark code).
    """

    targets: Mapping[str, str]
    files: int = 0
    records: int = 0
    already_landed: int = 0
    rejected_twice: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    lands_in_source: bool = False
    needs_full_sweep: bool = False
    late: int | None = 0

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self)


class _DeadLetter(NamedTuple):
    """A dead letter that can land: its place in the file that it came from, and its bytes."""

    file: str
    position: int
    content: bytes


def land_rejected(
    pipeline: Pipeline, root: str, *, of: str | None = None, to: str | None = None, at: At = PUBLISHED
) -> LandedRejected:
    """Land the dead letters of the snapshot that ``at`` means, and of those before it. The pipeline may have changed.

    ``of``: only those of the input of that name. ``to``: the landing prefix of one input, a path below ``root`` or a
    whole URI.
    Raises LandingAgainError, BrokenObjectError, and what read.snapshots.snapshot_refs.snapshot_at raises. No Spark.
    """
    inputs = _chosen(pipeline, of, to)
    store = open_store(root)
    catalog = Catalog(store, pipeline.name)
    found = snapshot_at(catalog, at)
    rejected = dropped(catalog, found.manifest, View.REJECTED)
    landings: dict[str, _Landing] = {}
    for each in inputs:
        source, _ = open_source(store, each.source.path)
        headers = Headers(source, catalog, found.manifest, each.name)
        landings[each.name] = _Landing(each, headers, target_of(View.REJECTED, each.source, store, root, to))
    for landing in landings.values():
        landing.target.look()
        landing.target.check_there(catalog, rejected, at)
    own = {name: landing.target for name, landing in landings.items() if landing.target.lands_in_source}
    of_main = _of_main(catalog) if own else set()
    epochs = _Epochs({each.name for each in pipeline.inputs}, landings)
    with ways_out(catalog, found.ref or ""):
        for name, files in rejected.items():
            columns = ViewColumns.of(pipeline).types(View.REJECTED)
            for table in tables(store, files, schema_of({column: columns[column] for column in _READ})):
                epochs.sort(table.to_pylist(), is_of_main=name in of_main)
            epochs.land(name)
    marks = {} if found.manifest is None else StoredProgress.of(found.manifest).marks
    return LandedRejected(
        {name: landing.target.uri for name, landing in landings.items()},
        left=dict(sorted(epochs.left.items())),
        lands_in_source=bool(own),
        needs_full_sweep=any(
            name in marks and target.path(target.stem) <= marks[name].path for name, target in own.items()
        ),
        late=late_behind(catalog, pipeline, {name: target.created for name, target in own.items()}),
        **epochs.counts,
    )


def _of_main(catalog: Catalog) -> Set[str]:
    """The epochs and snapshots of main with dead letters: who goes on from it reads what lands of them."""
    manifest = snapshot_at(catalog, MAIN).manifest
    return set() if manifest is None else DroppedBefore.of(catalog, manifest, View.REJECTED).named


def _chosen(pipeline: Pipeline, of: str | None, to: str | None) -> list[Input]:
    """The inputs whose dead letters land. Raises LandingAgainError."""
    names = [each.name for each in pipeline.inputs]
    if of is not None and of not in names:
        raise LandingAgainError(f"pipeline {pipeline.name} has no input {of!r}; its inputs: {', '.join(names)}")
    if to is not None and of is None and len(names) > 1:
        raise LandingAgainError(
            f"pipeline {pipeline.name} has several inputs, whose records cannot land under one prefix: say which one "
            f"is meant (--input): {', '.join(names)}"
        )
    return [each for each in pipeline.inputs if of in {None, each.name}]


class _Landing:
    """Lands the dead letters of one input."""

    def __init__(self, given: Input, headers: Headers, target: Target) -> None:
        self._name, self._format = given.name, given.source.format
        self._headers, self.target = headers, target
        self._suffix = suffix_of(given.source)

    def why_not(self, row: Mapping[str, Any]) -> str | None:
        """Why a dead letter cannot land; None if it can."""
        if self._format is FileFormat.PARQUET:
            return "of a Parquet file, of which no bytes are kept"
        if row["raw"] is not None:
            return None
        if row["position"] is None:
            return "a file that could not be read as a whole: land a sound one under another name"
        return "made by a Spark function, so no bytes of a file"

    def files(self, epoch: str, letters: Sequence[_DeadLetter]) -> Iterator[tuple[str, list[_DeadLetter]]]:
        """The names of the files for the dead letters of ``epoch``, and what is in each. They depend on nothing else:
        a file of which nothing can land has a number all the same.
        """
        ordered = sorted(letters)
        if self._format is not FileFormat.CSV:
            yield f"{self.target.stem}{epoch}-{self._name}{self._suffix}", ordered
            return
        for number, file in enumerate(dict.fromkeys(letter.file for letter in ordered)):
            name = f"{self.target.stem}{epoch}-{self._name}-{number}{self._suffix}"
            yield name, [letter for letter in ordered if letter.file == file]

    def content(self, letters: Sequence[_DeadLetter]) -> bytes:
        """The content of a file of them. Raises one of NO_HEADER for what had their header."""
        header = [self._headers.of(letters[0].file)] if self._format is FileFormat.CSV else []
        return text_of([*header, *(letter.content for letter in letters)])


class _Epochs:
    """Lands epoch after epoch, and counts. ``inputs``: the names of all that the pipeline has."""

    def __init__(self, inputs: set[str], landings: Mapping[str, _Landing]) -> None:
        self._inputs, self._landings = inputs, landings
        self._letters: defaultdict[str, list[_DeadLetter]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.left: Counter[str] = Counter()

    def sort(self, rows: Sequence[Mapping[str, Any]], *, is_of_main: bool) -> None:
        """Take dead letters of the epoch that lands next. ``is_of_main``: main comes from its snapshot."""
        for row in rows:
            name, file = row["input"], row["file"]
            landing = self._landings.get(name)
            if landing is None:
                if name not in self._inputs:
                    what = "an input that the pipeline does not have any more" if file else "a pane, which has no file"
                    self.left[f"of {name}, {what}"] += 1
            elif landed_from(file, View.REJECTED):
                self.counts["rejected_twice"] += 1
            elif (why_not := landing.why_not(row)) is not None:
                self.left[why_not] += 1
            elif landing.target.lands_in_source and not is_of_main:
                self.left[
                    "rejected by a snapshot that main does not come from, or has let go: no run would read them"
                ] += 1
            else:
                octets = row["raw"].encode() if row["raw_bytes"] is None else row["raw_bytes"]
                self._letters[name].append(_DeadLetter(file, row["position"], octets))

    def land(self, epoch: str) -> None:
        """Land what was taken, as that of ``epoch``."""
        for name, letters in self._letters.items():
            landing = self._landings[name]
            for file, some in landing.files(epoch, letters):
                self._land(landing, file, some)
        self._letters.clear()

    def _land(self, landing: _Landing, name: str, letters: Sequence[_DeadLetter]) -> None:
        if name in landing.target.already_landed:
            self.counts["already_landed"] += 1
            return
        try:
            content = landing.content(letters)
        except NO_HEADER as error:
            self.left[why_no_header(letters[0].file, error)] += len(letters)
            return
        if landing.target.create(name, content):
            self.counts.update(files=1, records=len(letters))
        else:
            self.counts["already_landed"] += 1
