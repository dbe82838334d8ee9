"""Replaying what was dropped: late records, and dead letters, landed again.

``land_late`` lands late records as files of the source's own format. Behind the same watermark they are late again, and
the files that they came from still hold them. So by default they land under a root of their own, ``{root}/late``. A
batch run of the same pipeline there gives their part of the results, to be added to what readers see. Who wants all in
one result runs the original files as one batch, in which nothing is late.

Each epoch's late records become one file; for CSV, whose files have headers, one for each header. A file is named after
the snapshot that dropped the records, and created by one conditional put. So doing it again lands only the rest.

A record whose id is forgotten (``deduplicate``) may have counted already: it does not land, and is counted. A record
late in all of its windows lands once. One that is late in some of them (sliding windows) was counted in the
others. A run of it alone would count it there again: it does not land, and is counted.

``land_rejected`` lands dead letters as they were: records that could not be read, or were not allowed. It is for people
who have corrected the cause: the pipeline's schema, or the records themselves, as files in a prefix of their own. No
window has counted dead letters, so they may land where the pipeline reads, and its next run reads them again. A run
that reads the original files again ignores the copies (``read.snapshots.read_names``). By default they land under a
root of their own, ``{root}/rejected``.

Each epoch's dead letters of an input become one file. Letters of a CSV input become one file for each file that they
came from, with its header. They hold the bytes of the records, in the order of their files.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np

from headrace.distribute import views
from headrace.kernel.windows import count_windows
from headrace.model.time import to_instant
from headrace.model.windows import CustomWindows, unshift_windows
from headrace.pipeline.endpoints import Input
from headrace.pipeline.output import AnyOutput
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.sources import FilesSource, NameOrder, UpstreamSource
from headrace.read.definition_plan import changed_since
from headrace.read.shown_values import JsonFields
from headrace.read.snapshots.progress import StoredProgress
from headrace.read.snapshots.read_names import DroppedBefore, landed_from
from headrace.read.snapshots.snapshot_refs import At, snapshot_at
from headrace.read.views.columns import View
from headrace.runs import relanding as runs_relanding
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format import output_view
from headrace_snapshots.names import MAIN, PUBLISHED

_ONE_FILE_INFIX = "file"
"""In the names of files with the records of one file each."""

_LATE = ("file", "event_time", "raw", "window_start", "window_end", "reason")
"""What is read of late rows."""

_PERHAPS_DUPLICATES_REASON = (
    "their ids are beyond the horizon of deduplicate, so they may have counted already; a batch over the original "
    "files (--mode batch) tells"
)


@dataclass(frozen=True)
class LandedLate(JsonFields):
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


def land_late(
    pipeline: Pipeline, root: str, *, output: str | None = None, destination: str | None = None, ref: At = PUBLISHED
) -> LandedLate:
    """Land the late records of the snapshot that ``ref`` means, and of those before it. They land under the landing
    prefix ``destination``: a path below ``root``, or a whole URI. ``output``: which one dropped them, where outputs
    have names; others may have taken them.

    CSV: records whose file is gone, and with it the header that says which field is which, are left and counted;
    a later landing has them once it is back.
    Raises LandingAgainError, BrokenObjectError, and what read.snapshots.snapshot_refs.snapshot_at raises. No Spark.
    """
    unfit = "so its late records cannot be written as files of its source"
    reason = None
    pipeline, output = runs_relanding.output_alone(pipeline, output)
    if pipeline.upstream:
        reason = f"an output {output} that reads panes: those that come too late are counted, not kept"
    elif isinstance(unshift_windows(pipeline.where), CustomWindows):
        reason = "a window function of its own, so Headrace does not know which late records other windows have taken"
    elif (read := next((one for one in pipeline.inputs if isinstance(one.source, UpstreamSource)), None)) is not None:
        raise runs_relanding.LandingAgainError(
            f"pipeline {pipeline.name} reads {read.source}, and panes of others are no files that could land. "
            f"`headrace backfill {pipeline.name} --promote` computes it again from what is published now; where that "
            "is not discarding, its rows are read in one epoch, and none of them is late"
        )
    elif looked_up := next((join.name for join in pipeline.join if join.by_arrival), None):
        raise runs_relanding.LandingAgainError(
            f"pipeline {pipeline.name} looks up {looked_up}, and elsewhere its late records would not meet what was "
            f"known when they came. Give the lookup a longer lateness=; `headrace backfill {pipeline.name} --promote` "
            "then takes them"
        )
    elif pipeline.join:
        reason = "a join, and what its late records would meet does not land with them"
    elif pipeline.union:
        reason = f"several inputs, {unfit}"
    elif pipeline.withdraws_records:
        reason = "a changelog, and records that withdraw others are no result without those"
    elif pipeline.source.is_flat_mapped:
        transform = pipeline.source.transform
        made_by = "explode=" if transform is None else f"a {transform.noun}"
        reason = f"{made_by} between its files and its records, {unfit}"
    if reason is not None:
        raise runs_relanding.LandingAgainError(
            f"pipeline {pipeline.name} has {reason}: run the original files as one batch (--mode batch), in which "
            "nothing is late"
        )
    relanding = runs_relanding.Relanding(
        pipeline, root, View.LATE, [pipeline.input], destination=destination, ref=ref, output=output
    )
    if relanding.manifest is not None and (change := changed_since(pipeline, relanding.manifest)):
        raise runs_relanding.LandingAgainError(
            f"{change}, and so is what was late. Take the change back for this; or run `headrace backfill "
            f"{pipeline.name}` (or the backfill DAG), and then this"
        )
    late = _Late(pipeline, relanding)
    return LandedLate(late.target.uri, **relanding.land(_LATE, late.files_of_epoch))


class _Late:
    """Which late records land, and in which files."""

    def __init__(self, pipeline: Pipeline, relanding: runs_relanding.Relanding) -> None:
        self._pipeline = pipeline
        self._counts, self._left = relanding.counts, relanding.left
        (self.target,) = relanding.targets.values()

    def files_of_epoch(self, epoch: str, rows: runs_relanding.ReadRows) -> Iterator[runs_relanding.Copy]:
        """The files of an epoch. Where the first has landed, all have: nothing is read."""
        first = self.target.file_name(epoch)
        if first in self.target.already_landed:
            yield runs_relanding.Copy(self.target, first, {})
        elif (lines := runs_relanding.lines_by_file(self._landing_records(rows))) and self.target.format.has_header:
            yield from self._by_header(epoch, lines)
        elif lines:
            yield runs_relanding.Copy(self.target, first, lines)

    def _by_header(self, epoch: str, lines: Mapping[str, Sequence[bytes]]) -> Iterator[runs_relanding.Copy]:
        """A file for each header. Where one is missing, now or when the epoch landed first, there is a file for each
        file of origin. So what is in it depends on no other.
        """
        headers = {file: self.target.headers.header_of_file(file) for file in lines}
        unknown_names = {
            file: self.target.file_name(epoch, _ONE_FILE_INFIX, number) for number, file in enumerate(lines)
        }
        landed_names = self.target.already_landed
        if landed_names & {*unknown_names.values()} or any(isinstance(header, str) for header in headers.values()):
            begins, unknown_part = f"{self.target.stem}{epoch}-", f"-{_ONE_FILE_INFIX}-"
            has_begun = any(name.startswith(begins) and unknown_part not in name for name in landed_names)
            for file, name in unknown_names.items():
                if has_begun and isinstance(
                    headers[file], bytes
                ):  # by a stopped landing, in files told apart by headers
                    self._left["of an epoch that has landed in part; the rest needs all headers"] += len(lines[file])
                else:
                    yield runs_relanding.Copy(self.target, name, {file: lines[file]})
            return
        files_of: defaultdict[bytes | str, list[str]] = defaultdict(list)
        for file, header in headers.items():
            files_of[header].append(file)
        # the one without a number is created last: where it is, all are
        for number, files in reversed([*enumerate(files_of.values())]):
            name = self.target.file_name(epoch, number) if number else self.target.file_name(epoch)
            yield runs_relanding.Copy(self.target, name, {file: lines[file] for file in files})

    def _landing_records(self, rows: runs_relanding.ReadRows) -> Iterator[runs_relanding.DroppedRecord]:
        """What lands of the late rows, equal records as often as they came."""
        windows: defaultdict[runs_relanding.DroppedRecord, Counter[tuple[Any, Any]]] = defaultdict(Counter)
        for row in rows():
            if row["reason"] == views.BEYOND_HORIZON:
                self._left[_PERHAPS_DUPLICATES_REASON] += 1
                continue
            window = row["window_start"], row["window_end"]
            windows[runs_relanding.DroppedRecord(row["file"], row["event_time"], row["raw"].encode())][window] += 1
        event_times = np.array([to_instant(record.order) for record in windows], np.int64)
        counts = count_windows(self._pipeline.where, event_times).tolist()
        for (record, late), own_windows in zip(windows.items(), counts, strict=True):
            # a record that came twice is there twice for each window
            times = max(late.values())
            if self.target.lands_in_source and landed_from(record.file, View.LATE):
                self._counts["late_twice"] += times
            elif (None, None) not in late and len(late) < own_windows:
                self._counts["late_in_some_windows"] += times
            else:
                yield from [record] * times


_READ_COLUMNS = ("input", "file", "position", "raw", "raw_bytes")


@dataclass(frozen=True)
class LandedRejected(JsonFields):
    """What landed: ``files`` with ``records``, of each input under its prefix of ``targets``.

    ``already_landed`` files had landed before. ``rejected_twice`` records had landed once and were rejected again; they
    are left out. ``left``: how many cannot land, by the reason why; they stay in the view ``rejected``.
    ``lands_in_source``: the pipeline itself reads a target. ``needs_full_sweep``: names are said to ascend, and newer
    ones are there, so that only a full sweep finds what has landed. ``late``: how many of the ``records`` are late
    behind the watermark of main if the next run reads them; None where that cannot be told (records of a user's own
    code). ``beside``: the root that they land below by default, None under another prefix.
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
    beside: str | None = None


def land_rejected(
    pipeline: Pipeline,
    root: str,
    *,
    output: str | None = None,
    input_name: str | None = None,
    destination: str | None = None,
    ref: At = PUBLISHED,
) -> LandedRejected:
    """Land the dead letters of the snapshot that ``ref`` means, and of those before it. The pipeline may have changed.
    Where outputs have names those land that none could take, or those that one ``output`` could not and others could.

    ``input_name``: only those of the input of that name. ``destination``: the landing prefix of one input, a path below
    ``root`` or a whole URI. Raises LandingAgainError, BrokenObjectError, and what
    read.snapshots.snapshot_refs.snapshot_at raises. No Spark."""
    if output is not None:
        runs_relanding.output_alone(pipeline, output)
    chosen_inputs = _chosen_inputs(pipeline, input_name, destination)
    relanding = runs_relanding.Relanding(
        pipeline, root, View.REJECTED, chosen_inputs, destination=destination, ref=ref, output=output or ""
    )
    own = relanding.own
    letters = _DeadLetterChoice(pipeline, relanding, output)
    columns = (*_READ_COLUMNS, "output") if pipeline.has_names else _READ_COLUMNS
    common = relanding.land(columns, letters.copies_of_epoch)
    marks = {} if relanding.manifest is None else StoredProgress.from_manifest(relanding.manifest).marks
    ordered_inputs = {
        input_.name
        for input_ in chosen_inputs
        if isinstance(input_.source, FilesSource) and input_.source.names is NameOrder.ORDERED
    }
    return LandedRejected(
        {name: target.uri for name, target in relanding.targets.items()},
        needs_full_sweep=any(
            name in marks and name in ordered_inputs and target.file_path(target.stem) <= marks[name].path
            for name, target in own.items()
        ),
        late=runs_relanding.late_behind(
            relanding.catalog, pipeline, {name: target.created for name, target in own.items()}
        ),
        **common,
    )


def _of_main(catalog: Catalog) -> Set[str]:
    """The epochs and snapshots of main with dead letters: who continues from it reads what lands of them."""
    manifest = snapshot_at(catalog, MAIN).manifest
    return set() if manifest is None else DroppedBefore.from_manifest(catalog, manifest, View.REJECTED).named


def _chosen_inputs(pipeline: Pipeline, input_name: str | None, target: str | None) -> list[Input]:
    """The inputs whose dead letters land. Raises LandingAgainError."""
    names = [input_.name for input_ in pipeline.inputs]
    if input_name is not None and input_name not in names:
        raise runs_relanding.LandingAgainError(
            f"pipeline {pipeline.name} has no input {input_name!r}; its inputs: {', '.join(names)}"
        )
    if target is not None and input_name is None and len(names) > 1:
        raise runs_relanding.LandingAgainError(
            f"pipeline {pipeline.name} has several inputs, whose records cannot land under one prefix: choose one "
            f"(--input): {', '.join(names)}"
        )
    return [input_ for input_ in pipeline.inputs if input_name in {None, input_.name}]


def _came_since(catalog: Catalog, defined_outputs: Mapping[str, AnyOutput], epoch: str) -> str:
    """An output of main, or one of ``defined_outputs`` that comes with the next run, that the snapshot of ``epoch`` had
    not; "" if it had all, "of that time" if nobody can tell.
    """
    main = snapshot_at(catalog, MAIN).manifest
    if main is None:
        return ""
    outputs, main_names = output_view.outputs_of(main), output_view.output_names(main)
    for name, output in defined_outputs.items():
        if name not in main_names and output.formerly not in main_names and not output.of:
            return name
    if not outputs:
        return ""
    try:
        had = output_view.output_names(catalog.manifest(epoch.partition("-")[2]))
    except MissingSnapshotError:
        return "of that time"
    new = (name for name in outputs if not {name, *output_view.called_before(main, name)} & {*had})
    return next(new, "")


def _output_names_at(catalog: Catalog, output: str, epoch: str) -> tuple[Set[str | None], Set[str]]:
    """What ``output`` was called in ``epoch``; and what it may have been, where the snapshot has expired."""
    main = snapshot_at(catalog, MAIN).manifest
    if main is None:
        return {output}, set()
    own = {output, *output_view.called_before(main, output)}
    try:
        names_then = output_view.output_names(catalog.manifest(epoch.partition("-")[2]))
    except MissingSnapshotError:
        return own, {*output_view.all_names_before(main, output)} - own
    name_then = output_view.called_where(names_then, main, output)
    return (set() if name_then is None else {name_then}), set()


class _DeadLetterChoice:
    """Which dead letters of ``pipeline`` land, and in which files: those of an ``output``, or those of none."""

    def __init__(self, pipeline: Pipeline, relanding: runs_relanding.Relanding, output: str | None) -> None:
        self._inputs, self._targets = {input_.name for input_ in pipeline.inputs}, relanding.targets
        self._output, self._name = output, pipeline.name
        self._names_at_epoch = cache(partial(_output_names_at, relanding.whole, output or ""))
        self._counts, self._left = relanding.counts, relanding.left
        self._of_main = _of_main(relanding.catalog) if relanding.own else set()
        self._came_since = cache(partial(_came_since, relanding.catalog, pipeline.outputs))

    def copies_of_epoch(self, epoch: str, rows: runs_relanding.ReadRows) -> Iterator[runs_relanding.Copy]:
        """The files of an epoch. A file of which nothing can land has a number, too: names depend on nothing else."""
        for name, letters in self._letters_by_input(epoch, rows).items():
            target = self._targets[name]
            lines = runs_relanding.lines_by_file(letters)
            if target.format.has_header:
                for number, (file, file_lines) in enumerate(lines.items()):
                    yield runs_relanding.Copy(target, target.file_name(epoch, name, number), {file: file_lines})
            else:
                yield runs_relanding.Copy(target, target.file_name(epoch, name), lines)

    def _letters_by_input(
        self, epoch: str, rows: runs_relanding.ReadRows
    ) -> Mapping[str, list[runs_relanding.DroppedRecord]]:
        """What lands of the dead letters of an epoch, by input; a record of which several were made, once."""
        letters: defaultdict[str, dict[runs_relanding.DroppedRecord, None]] = defaultdict(dict)
        for row in rows():
            name, file, refused_by = row["input"], row["file"], row.get("output")
            target = self._targets.get(name)
            known_names, possible_names = ({None}, set[str]()) if self._output is None else self._names_at_epoch(epoch)
            if refused_by in possible_names:
                self._left[
                    f"refused by output {refused_by} in a snapshot that has expired, and two outputs have had that name"
                ] += 1
            elif refused_by not in known_names:
                if self._output is None:
                    self._left[
                        f"refused by output {refused_by} alone, and taken by others: correct it and run `headrace "
                        f"backfill {self._name}.{refused_by} --promote`"
                    ] += 1
            elif target is None:
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
                letters[name][runs_relanding.DroppedRecord(file, row["position"], octets)] = None
        return {name: [*records] for name, records in letters.items()}

    def _why_not(self, row: Mapping[str, Any], target: runs_relanding.Target, epoch: str) -> str | None:
        """Why a dead letter cannot land; None if it can."""
        if not target.format.keeps_bytes:
            return f"of a {target.format.name} file, of which no bytes are kept"
        if row["raw"] is None:
            if row["position"] is None:
                return "a file that could not be read as a whole: land a sound one under another name"
            return "made by a Spark function, so no bytes of a file"
        return self._why_not_here(target, epoch) if target.lands_in_source else None

    def _why_not_here(self, target: runs_relanding.Target, epoch: str) -> str | None:
        """Why it cannot land where the pipeline itself reads it."""
        if target.source.is_flat_mapped:
            return (
                "of a source that makes others of its records, of which some may have been taken, and would count "
                "twice. Correct it and land that, or name another landing prefix (--to)"
            )
        if epoch not in self._of_main:
            return (
                "rejected by a snapshot that main does not continue from, or that has expired: no run would read them"
            )
        if newer := self._came_since(epoch):
            return (
                f"rejected before there was output {newer}, which is computed of what was read before and may have "
                f"taken them: `headrace backfill {self._name} --promote` reads the original files again"
            )
        return None
