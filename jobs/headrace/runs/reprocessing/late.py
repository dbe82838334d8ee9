"""Replaying late records: what was dropped as late, landed again as files of the source's own format.

Where to? Behind the same watermark they are late again, and the files that they came from still hold them. So by
default they land under a root of their own, ``{root}/late``, where a batch run of the same pipeline gives their part of
the results, to be added to what readers see. Who wants all in one result runs the original files as one batch, in which
nothing is late.

Each epoch's late records become one file (CSV, whose files have headers: one for each header), named after the snapshot
that dropped them and created by one conditional put: doing it again lands only what is not there yet.

A record late in all of its windows lands once. One that is late in some of them (sliding windows) was counted in the
others, and a run of it alone would count it there again: it does not land, and is counted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from headrace.kernel.windows.assignment import count_windows
from headrace.model.time import instant
from headrace.model.windows import CustomWindows
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.upstream_source import UpstreamSource
from headrace.read.definition_plan import changed_since
from headrace.read.snapshots.read_names import landed_from
from headrace.read.snapshots.snapshot_refs import At
from headrace.read.views.columns import View
from headrace.runs.reprocessing.copies import LandingAgainError, output_alone
from headrace.runs.reprocessing.relanding import Copy, DroppedRecord, Relanding, Rows, lines_by_file
from headrace_snapshots.refs import PUBLISHED

_ALONE = "file"
"""In the names of files with the records of one file each."""

_LATE = ("file", "event_time", "raw", "window_start", "window_end")
"""What is read of late rows."""


@dataclass(frozen=True)
class LandedLate:
    """What landed: ``files`` with ``records``, under ``target``; ``already_landed`` files had landed before.

    Records left out: ``late_in_some_windows``, which other windows had taken, and ``late_twice``, which had landed here
    before and were dropped once more. ``left``: how many cannot land, by the reason why. ``lands_in_source``: the
    pipeline itself reads the target. ``beside``: the root that they land below by default, None under another prefix.
    """

    target: str
    files: int = 0
    records: int = 0
    already_landed: int = 0
    late_in_some_windows: int = 0
    late_twice: int = 0
    left: Mapping[str, int] = field(default_factory=dict)
    lands_in_source: bool = False
    beside: str | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return asdict(self)


def land_late(
    pipeline: Pipeline, root: str, *, output: str | None = None, to: str | None = None, at: At = PUBLISHED
) -> LandedLate:
    """Land the late records of the snapshot that ``at`` means, and of those before it, under the landing prefix ``to``:
    a path below ``root``, or a whole URI. ``output``: which one dropped them, where outputs have names; others may have
    taken them.

    CSV: records whose file is gone, and with it the header that says which field is which, are left and counted;
    a later landing has them once it is back.
    Raises LandingAgainError, BrokenObjectError, and what read.snapshots.snapshot_refs.snapshot_at raises. No Spark.
    """
    unfit = "so its late records cannot be written as files of its source"
    reason = None
    pipeline, output = output_alone(pipeline, output)
    if pipeline.upstream:
        reason = f"an output {output} that reads panes: those that come too late are counted, not kept"
    elif isinstance(pipeline.where, CustomWindows):
        reason = "a window function of its own, so Headrace does not know which late records other windows have taken"
    elif (read := next((one for one in pipeline.inputs if isinstance(one.source, UpstreamSource)), None)) is not None:
        raise LandingAgainError(
            f"pipeline {pipeline.name} reads {read.source}, and panes of others are no files that could land. "
            f"`headrace backfill {pipeline.name} --promote` computes it again from what is published now; where that "
            "is not discarding, its rows are read in one epoch, and none of them is late"
        )
    elif pipeline.union:
        reason = f"several inputs, {unfit}"
    elif pipeline.withdraws_records:
        reason = "a changelog, and records that withdraw others are no result without those"
    elif pipeline.source.transform is not None:
        reason = f"a Spark function between its files and its records, {unfit}"
    if reason is not None:
        raise LandingAgainError(
            f"pipeline {pipeline.name} has {reason}: run the original files as one batch (--mode batch), in which "
            "nothing is late"
        )
    relanding = Relanding(pipeline, root, View.LATE, [pipeline.input], to=to, at=at, output=output)
    if relanding.manifest is not None and (changed := changed_since(pipeline, relanding.manifest)):
        raise LandingAgainError(
            f"{changed}, and so is what was late. Take the change back for this; or run `headrace backfill "
            f"{pipeline.name}` (or the backfill DAG), and then this"
        )
    late = _Late(pipeline, relanding)
    return LandedLate(late.target.uri, **relanding.land(_LATE, late.copies))


class _Late:
    """Which late records land, and in which files."""

    def __init__(self, pipeline: Pipeline, relanding: Relanding) -> None:
        self._pipeline = pipeline
        self._counts, self._left = relanding.counts, relanding.left
        (self.target,) = relanding.targets.values()

    def copies(self, epoch: str, rows: Rows) -> Iterator[Copy]:
        """The files of an epoch. Where the first has landed, all have: nothing is read."""
        first = self.target.name(epoch)
        if first in self.target.already_landed:
            yield Copy(self.target, first, {})
        elif (lines := lines_by_file(self._records(rows))) and self.target.format.has_header:
            yield from self._by_header(epoch, lines)
        elif lines:
            yield Copy(self.target, first, lines)

    def _by_header(self, epoch: str, lines: Mapping[str, Sequence[bytes]]) -> Iterator[Copy]:
        """A file for each header. Where one is missing, now or when the epoch landed first, a file for each that
        records came from, so that what is in it depends on no other.
        """
        headers = {file: self.target.headers.of(file) for file in lines}
        alone = {file: self.target.name(epoch, _ALONE, number) for number, file in enumerate(lines)}
        landed = self.target.already_landed
        if landed & {*alone.values()} or any(isinstance(header, str) for header in headers.values()):
            begins, apart = f"{self.target.stem}{epoch}-", f"-{_ALONE}-"
            begun = any(name.startswith(begins) and apart not in name for name in landed)
            for file, name in alone.items():
                if begun and isinstance(headers[file], bytes):  # by a stopped landing, in files told apart by headers
                    self._left["of an epoch that has landed in part; the rest needs all headers"] += len(lines[file])
                else:
                    yield Copy(self.target, name, {file: lines[file]})
            return
        files_of: defaultdict[bytes | str, list[str]] = defaultdict(list)
        for file, header in headers.items():
            files_of[header].append(file)
        # the one without a number is created last: where it is, all are
        for number, files in reversed([*enumerate(files_of.values())]):
            name = self.target.name(epoch, number) if number else self.target.name(epoch)
            yield Copy(self.target, name, {file: lines[file] for file in files})

    def _records(self, rows: Rows) -> Iterator[DroppedRecord]:
        """What lands of the late rows, equal records as often as they came."""
        windows: defaultdict[DroppedRecord, Counter[tuple[Any, Any]]] = defaultdict(Counter)
        for row in rows():
            window = row["window_start"], row["window_end"]
            windows[DroppedRecord(row["file"], row["event_time"], row["raw"].encode())][window] += 1
        at = np.array([instant(record.order) for record in windows], np.int64)
        counts = count_windows(self._pipeline.where, at).tolist()
        for (record, late), own_windows in zip(windows.items(), counts, strict=True):
            times = max(late.values())
            if self.target.lands_in_source and landed_from(record.file, View.LATE):
                self._counts["late_twice"] += times
            elif (None, None) not in late and len(late) < own_windows:
                self._counts["late_in_some_windows"] += times
            else:
                yield from [record] * times
