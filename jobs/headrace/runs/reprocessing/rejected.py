"""Replaying dead letters: records that could not be read, or were not allowed, landed again as they were.

This is for people who have corrected the cause: the pipeline's schema, or the records themselves, as files in a prefix
of their own. No window has counted dead letters, so they may land where the pipeline reads, and its next run reads them
again; a run that reads the original files again ignores the copies (``read.snapshots.reprocessed_copies``). By default
they land under a root of their own, ``{root}/rejected``.

Each epoch's dead letters of an input become one file, those of a CSV input one for each file that they came from, with
its header. They hold the bytes of the records, in the order of their files.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import Input
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.reprocessed_copies import DroppedBefore, landed_from
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.columns import View
from headrace.runs.reprocessing.copies import LandingAgainError, Target, late_behind
from headrace.runs.reprocessing.relanding import Copy, DroppedRecord, Relanding, Rows, lines_by_file
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.refs import MAIN, PUBLISHED

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


def land_rejected(
    pipeline: Pipeline, root: str, *, of: str | None = None, to: str | None = None, at: At = PUBLISHED
) -> LandedRejected:
    """Land the dead letters of the snapshot that ``at`` means, and of those before it. The pipeline may have changed.

    ``of``: only those of the input of that name. ``to``: the landing prefix of one input, a path below ``root`` or a
    whole URI.
    Raises LandingAgainError, BrokenObjectError, and what read.snapshots.snapshot_refs.snapshot_at raises. No Spark.
    """
    if pipeline.has_names:
        raise LandingAgainError(
            f"pipeline {pipeline.name} has several outputs, of which others have taken a record that one could not: "
            "they would count it twice. Correct the pipeline and run `headrace backfill "
            f"{pipeline.name} --promote`, which reads the original files again"
        )
    relanding = Relanding(pipeline, root, View.REJECTED, _chosen(pipeline, of, to), to=to, at=at)
    own = relanding.own
    rejected = _Rejected({input_.name for input_ in pipeline.inputs}, relanding)
    common = relanding.land(_READ, rejected.copies)
    marks = {} if relanding.manifest is None else StoredProgress.of(relanding.manifest).marks
    return LandedRejected(
        {name: target.uri for name, target in relanding.targets.items()},
        needs_full_sweep=any(
            name in marks and target.path(target.stem) <= marks[name].path for name, target in own.items()
        ),
        late=late_behind(relanding.catalog, pipeline, {name: target.created for name, target in own.items()}),
        **common,
    )


def _of_main(catalog: Catalog) -> Set[str]:
    """The epochs and snapshots of main with dead letters: who continues from it reads what lands of them."""
    manifest = snapshot_at(catalog, MAIN).manifest
    return set() if manifest is None else DroppedBefore.of(catalog, manifest, View.REJECTED).named


def _chosen(pipeline: Pipeline, of: str | None, to: str | None) -> list[Input]:
    """The inputs whose dead letters land. Raises LandingAgainError."""
    names = [input_.name for input_ in pipeline.inputs]
    if of is not None and of not in names:
        raise LandingAgainError(f"pipeline {pipeline.name} has no input {of!r}; its inputs: {', '.join(names)}")
    if to is not None and of is None and len(names) > 1:
        raise LandingAgainError(
            f"pipeline {pipeline.name} has several inputs, whose records cannot land under one prefix: choose one "
            f"(--input): {', '.join(names)}"
        )
    return [input_ for input_ in pipeline.inputs if of in {None, input_.name}]


class _Rejected:
    """Which dead letters land, and in which files. ``inputs``: the names of all that the pipeline has."""

    def __init__(self, inputs: set[str], relanding: Relanding) -> None:
        self._inputs, self._targets = inputs, relanding.targets
        self._counts, self._left = relanding.counts, relanding.left
        self._of_main = _of_main(relanding.catalog) if relanding.own else set()

    def copies(self, epoch: str, rows: Rows) -> Iterator[Copy]:
        """The files of an epoch. Their names depend on nothing else: a file of which nothing can land has a number all
        the same.
        """
        for name, letters in self._letters(epoch, rows).items():
            target = self._targets[name]
            lines = lines_by_file(letters)
            if target.format.has_header:
                for number, (file, file_lines) in enumerate(lines.items()):
                    yield Copy(target, target.name(epoch, name, number), {file: file_lines})
            else:
                yield Copy(target, target.name(epoch, name), lines)

    def _letters(self, epoch: str, rows: Rows) -> Mapping[str, list[DroppedRecord]]:
        """What lands of the dead letters of an epoch, by input."""
        letters: defaultdict[str, list[DroppedRecord]] = defaultdict(list)
        for row in rows():
            name, file = row["input"], row["file"]
            target = self._targets.get(name)
            if target is None:
                if name not in self._inputs:
                    origin = (
                        "an input that the pipeline does not have any more" if file else "a pane, which has no file"
                    )
                    self._left[f"of {name}, {origin}"] += 1
            elif landed_from(file, View.REJECTED):
                self._counts["rejected_twice"] += 1
            elif (why_not := self._why_not(row, target, epoch)) is not None:
                self._left[why_not] += 1
            else:
                octets = row["raw"].encode() if row["raw_bytes"] is None else row["raw_bytes"]
                letters[name].append(DroppedRecord(file, row["position"], octets))
        return letters

    def _why_not(self, row: Mapping[str, Any], target: Target, epoch: str) -> str | None:
        """Why a dead letter cannot land; None if it can."""
        if not target.format.keeps_bytes:
            return f"of a {target.format.name} file, of which no bytes are kept"
        if row["raw"] is None:
            if row["position"] is None:
                return "a file that could not be read as a whole: land a sound one under another name"
            return "made by a Spark function, so no bytes of a file"
        if target.lands_in_source and epoch not in self._of_main:
            return (
                "rejected by a snapshot that main does not continue from, or that has expired: no run would read them"
            )
        return None
