"""Upkeep of what runs leave: snapshots, audits and results expire and are checked, and landed records with them.

``live_landed`` says which landed records stay: they expire with the snapshots that would read them again.
``check_landed`` is what fsck finds wrong with those that kept snapshots would read again, or have not read.
``range_of`` and its neighbours name the objects of landed records for others.
"""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Final
from urllib.parse import unquote

from headrace.audit.store import AuditDamagedError, HistoryDamagedError, read_audit, read_history
from headrace.ext.sources import SplitGoneError
from headrace.model.time import parse_duration
from headrace.pipeline.deployment import Retention
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.epoch_history import LandedReading, before_range
from headrace.read.snapshots.snapshot_refs import ways_out
from headrace.runs.reporting.results import ResultDamagedError, RunResult, from_json
from headrace.runs.upstream_holds import PositionsBySnapshot, let_go, note_consumed
from headrace.sources.landed import ranges
from headrace.sources.landed.files import as_fetched
from headrace.this_process import Size
from headrace_snapshots import expiry, fsck
from headrace_snapshots import names as object_names
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.expiry import Expired, Live
from headrace_snapshots.format.codec import BrokenObjectError, NewerFormatError
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.fsck import BACKUP, FsckReport, Problem, Witness
from headrace_snapshots.gc_roots import Keep, KeepError
from headrace_snapshots.holds import holds_of, mended_by
from headrace_snapshots.log import Entry
from headrace_snapshots.store import ObjectInfo, ObjectNotFoundError, ObjectStore


def live_landed(
    landed_objects: Collection[ObjectInfo], kept_ids: Collection[str], notes: dict[str, str], *, catalog: Catalog
) -> set[str]:
    """Find the landed objects that some kept snapshot would read again, or has not read yet. They are the ranges of
    each input from the first on that one of them has not read to its end. The newest range always stays, since landing
    continues from it. Where an input has left the definition, only what kept snapshots would read stays.
    """
    if not landed_objects:
        return set()
    reading = LandedReading.from_snapshots(catalog, kept_ids)
    live: set[str] = set()
    for where, infos in by_input(catalog.pipeline, landed_objects):
        objects = [info.path for info in infos]
        numbers = {path: range_of(catalog.pipeline, path) for path in objects}
        has_left = reading.has_left(where, infos)
        if has_left and not reading.is_read(where):
            continue
        if all(_claim_or_seal(catalog.pipeline, path) is not None for path in objects):
            live |= numbers.keys()  # claims alone: the source keeps the records, and a backfill may begin anywhere
            continue
        last = reading.read_by_all(where, has_left=has_left)
        first = last.range + (last.number == last.last)
        if not has_left:
            first = min(first, _newest_range(catalog.pipeline, numbers))
        kept_objects = {path for path, number in numbers.items() if number >= first}
        live |= kept_objects - _overtaken_files(catalog, kept_objects)
    return live


def _newest_range(pipeline: str, numbers: Mapping[str, int]) -> int:
    """The newest range; what was written and not claimed yet is none."""
    return max(
        (number for path, number in numbers.items() if object_names.written_attempt(pipeline, path) is None), default=0
    )


def _overtaken_files(catalog: Catalog, objects: Collection[str]) -> set[str]:
    """Files written for a range whose claim names those of others. What no range claims yet may be on its way."""
    attempts: dict[int, dict[str, list[str]]] = {}
    for path in objects:
        if (attempt_of_range := object_names.written_attempt(catalog.pipeline, path)) is not None:
            number, attempt = attempt_of_range
            attempts.setdefault(number, {}).setdefault(attempt, []).append(path)
    overtaken: set[str] = set()
    for number, several in attempts.items():
        if len(several) > 1 and (claim := _claimed_range(catalog, objects, number)) is not None:
            claimed_paths = {split.path for split in claim.splits}
            overtaken |= {path for paths in several.values() if claimed_paths.isdisjoint(paths) for path in paths}
    return overtaken


def _claimed_range(catalog: Catalog, objects: Collection[str], number: int) -> ranges.LandedRange | None:
    """Range ``number`` of an input; None if unclaimed, or if claim and seal are damaged, of which fsck tells."""
    claims = {_claim_or_seal(catalog.pipeline, path): path for path in objects}
    if number not in claims:
        return None
    with suppress(BrokenObjectError, SplitGoneError):
        return place_of(catalog, claims[number]).claimed_range(number)
    return None


def place_of(catalog: Catalog, path: str) -> ranges.LandingPlace:
    """Where the input is landed that the object at ``path`` is of."""
    where = object_names.landed_input(catalog.pipeline, path)
    assert where is not None, "only such are listed"
    return ranges.LandingPlace(catalog.store, catalog.pipeline, unquote(where.rstrip("/").rpartition("/")[2]))


def by_input(pipeline: str, landed_objects: Iterable[ObjectInfo]) -> Iterator[tuple[str, list[ObjectInfo]]]:
    """Landed objects by the folder of their input."""
    by_folder: dict[str, list[ObjectInfo]] = {}
    for info in landed_objects:
        where = object_names.landed_input(pipeline, info.path)
        assert where is not None, "objects with other names are not listed"
        by_folder.setdefault(where, []).append(info)
    yield from by_folder.items()


def _claim_or_seal(pipeline: str, path: str) -> int | None:
    """The range whose claim or seal is at ``path``."""
    range_number = object_names.claimed_range(pipeline, path)
    return object_names.sealed_range(pipeline, path) if range_number is None else range_number


def range_of(pipeline: str, path: str) -> int:
    """The range that a landed object is of."""
    range_number, file = _claim_or_seal(pipeline, path), object_names.landed_file(pipeline, path)
    attempt_of_range = object_names.written_attempt(pipeline, path)
    if attempt_of_range is not None:
        return attempt_of_range[0]
    return range_number if range_number is not None else -1 if file is None else file.range


_NEEDED_BY = "the next run, and replays of what came since"


def check_landed(
    catalog: Catalog,
    entries: Iterable[Entry],
    kept_ids: Collection[str],
    *,
    deep: bool = False,
    repair: bool = False,
) -> Iterator[Problem]:
    """Each range is claimed, whole, and as its seal says; ``deep``: its files are read for that. ``repair`` writes
    claims again from seals, and seals from claims and the files as they are.
    """
    objects = [*catalog.store.list(object_names.object_folder(catalog.pipeline, object_names.ObjectKind.LANDED))]
    ours = [
        info for info in objects if object_names.kind_of(catalog.pipeline, info.path) is object_names.ObjectKind.LANDED
    ]
    readable = [snapshot for snapshot in kept_ids if _is_readable(catalog, snapshot)]  # of others fsck has told
    live = live_landed(ours, readable, {}, catalog=catalog)
    reading = LandedReading.from_snapshots(catalog, readable)
    for where, infos in by_input(catalog.pipeline, ours):
        needed_files = {info.path: info for info in infos if info.path in live}
        if needed_files:
            yield from _InputCheck(catalog, where, needed_files, deep=deep, repair=repair).problems(reading)


def _is_readable(catalog: Catalog, snapshot: str) -> bool:
    try:
        catalog.manifest(snapshot)
    except (BrokenObjectError, MissingSnapshotError):
        return False
    return True


@dataclass(frozen=True)
class _InputCheck:
    """The landed objects of an input, with its folder, that somebody needs."""

    catalog: Catalog
    where: str
    objects: Mapping[str, ObjectInfo]
    deep: bool
    repair: bool

    @cached_property
    def place(self) -> ranges.LandingPlace:
        return place_of(self.catalog, next(iter(self.objects)))

    def problems(self, reading: LandedReading) -> Iterator[Problem]:
        attempts = {
            path for path in self.objects if object_names.written_attempt(self.catalog.pipeline, path) is not None
        }
        numbers = {range_of(self.catalog.pipeline, path) for path in self.objects.keys() - attempts}
        read = reading.furthest_file(self.where)
        has_left = reading.has_left(self.where, [*self.objects.values()])
        if read is not None and not has_left and read.range > max(numbers, default=-1):
            numbers.add(read.range)  # it has been read, so it was there
        if not numbers:  # a job that writes the first range
            return
        for number in range(min(numbers), max(numbers) + 1):
            yield from self._of_range(number, is_newest=number == max(numbers))

    def _of_range(self, number: int, *, is_newest: bool) -> Iterator[Problem]:
        path, seal = self.place.claim_path(number), self.place.read_seal(number)
        try:
            claim, promises = self.place.claim_alone(number)
        except (BrokenObjectError, NewerFormatError, ObjectNotFoundError) as error:
            problem = "it is missing" if isinstance(error, ObjectNotFoundError) else str(error)
            if seal is None or isinstance(error, NewerFormatError):
                yield Problem(path, problem, _NEEDED_BY, self._way_on(number))
                return
            yield self._written_again(path, problem, self.place.encoded_claim(seal.range))
            claim, promises = seal.range, True
        if seal is not None and seal.range != claim and (seal.range.is_landed or not claim.is_landed):
            yield Problem(path, "it is another claim than its seal says", _NEEDED_BY, self._way_on(number))
            return
        wrong = [*self._file_problems(claim, seal, is_newest=is_newest)]
        yield from wrong
        is_broken = (
            seal is None and object_names.seal_path(self.catalog.pipeline, self.place.input, number) in self.objects
        )
        is_gone = seal is None and promises and not is_newest  # of the newest, the next run makes another
        if (is_broken or is_gone) and not wrong:
            yield self._sealed_again(claim)

    def _written_again(self, path: str, problem: str, data: bytes) -> Problem:
        remedy = f"{BACKUP}; or `headrace fsck {self.catalog.pipeline} --repair` writes it again"
        damage = Problem(path, problem, _NEEDED_BY, remedy)
        if not self.repair:
            return damage
        self.catalog.store.write(path, data)
        return replace(damage, remedy="it was written again from what is beside it", is_repaired=True)

    def _sealed_again(self, claim: ranges.LandedRange) -> Problem:
        """The seal is gone, or broken: its files are held against nothing until there is another."""
        path = object_names.seal_path(self.catalog.pipeline, self.place.input, claim.number)
        problem = "it is broken" if path in self.objects else "it is missing"
        paths = [self.place.file_path(claim, number) for number in range(len(claim.splits))] if claim.is_landed else []
        files = (
            tuple(ranges.SealedFile.from_data(self.catalog.store.read(path)) for path in paths) if self.repair else ()
        )
        return self._written_again(
            path,
            f"{problem}: files of the range are held against nothing",
            self.place.encoded_seal(ranges.RangeSeal(claim, files)),
        )

    def _file_problems(
        self, claim: ranges.LandedRange, seal: ranges.RangeSeal | None, *, is_newest: bool
    ) -> Iterator[Problem]:
        """What is wrong with the files of a range: those that are landed, or that were written before."""
        splits = {
            number: self.place.file_path(claim, number) if claim.is_landed else split.path
            for number, split in enumerate(claim.splits)
            if claim.is_landed or object_names.written_attempt(self.catalog.pipeline, split.path)
        }
        missing = [number for number, path in splits.items() if path not in self.objects]
        remedy = self._way_on(claim.number)
        if missing and not (claim.is_landed and is_newest and seal is None):  # the newest may be on its way
            split = claim.splits[missing[0]].path
            problem = f"{len(missing)} of its {len(claim.splits)} files are missing, such as that of {split}"
            yield Problem(self.place.claim_path(claim.number), problem, _NEEDED_BY, remedy)
        for number, path in splits.items():
            wrong = None if number in missing else self._content_problem(path, claim, seal, number)
            if wrong is not None:
                yield Problem(path, wrong, _NEEDED_BY, remedy)

    def _content_problem(
        self, path: str, claim: ranges.LandedRange, seal: ranges.RangeSeal | None, number: int
    ) -> str | None:
        """What is wrong with a file that is there."""
        sealed_file = seal.files[number] if seal is not None and seal.files else None
        size = sealed_file.size if sealed_file is not None else None if claim.is_landed else claim.splits[number].size
        if size is not None and self.objects[path].size != size:
            return f"it has {self.objects[path].size} bytes, and had {size} when it was landed"
        if not self.deep:
            return None
        data = self.catalog.store.read(path)
        if not claim.is_landed:
            is_same = ranges.digest_of(data) == claim.splits[number].etag
            return None if is_same else "it has another content than when it was written"
        if sealed_file is not None:
            return (
                "it has another content than when it was landed"
                if ranges.SealedFile.from_data(data) != sealed_file
                else None
            )
        try:
            as_fetched(data, path)
        except ranges.LandedDamagedError as error:
            return str(error)
        return None

    def _way_on(self, number: int) -> str:
        """What helps where there is no backup."""
        name, where = self.catalog.pipeline, self.where
        main = self.catalog.head().refs.get("main")
        snapshot_before = before_range(self.catalog, where, number)
        rollback_hint = (
            ""
            if snapshot_before == main
            else f"`headrace rollback {name} --to {snapshot_before or 'beginning'}`, then "
        )
        return (
            f"{BACKUP}; without one {rollback_hint}delete what {where} has of range {number} and later "
            f"({number:020d}-* and _ranges/{number:020d}.*, all behind them, _written/{number:020d}-*). The next run "
            "lands again what the source still has"
        )


KEPT_RESULTS: Final = Size(100)
"""The least number of results of runs that is kept."""

_READERS = 16
_LONGEST_AGE = timedelta(days=365_000)
_RESULT = "/result.json"


def keep_rule(last: int, younger: str | timedelta | None = None, *, tags: bool = True) -> Keep:
    """What to keep; ``younger`` is a length of time, such as "30d". Raises KeepError."""
    if isinstance(younger, str):
        try:
            younger = timedelta(microseconds=parse_duration(younger))
        except ValueError as error:
            raise KeepError(f"keep_for={younger!r} is not a length of time: {error}; write 30d, or 12h") from error
    if younger is not None and younger > _LONGEST_AGE:
        raise KeepError(f"keep_for={younger} is longer than 1,000 years: leave expiry out to keep all")
    return Keep(last, younger, tags)


def rule_of(
    name: str,
    pipeline: Pipeline | None,
    *,
    last: int | None = None,
    younger: str | timedelta | None = None,
    tags: bool | None = None,
) -> Keep:
    """What to keep of ``pipeline``: each as given, else as its ``retention`` says, else as ``Retention()`` does.

    Raises KeepError, also if nothing but the ``name`` of the pipeline is known and ``last`` is not given: its retention
    may keep more than others.
    """
    if pipeline is None and last is None:
        raise KeepError(
            f"pipeline {name} is not registered, so its retention is not known. Give --keep-last (in Python "
            "keep_last=), give the pipeline's file, or name its folder in HEADRACE_PIPELINES"
        )
    retention = (None if pipeline is None else pipeline.retention) or Retention()
    retained_for = None if retention.keep_for is None else timedelta(microseconds=retention.keep_for)
    return keep_rule(
        retention.keep_last if last is None else last,
        retained_for if younger is None else younger,
        tags=retention.keep_tags if tags is None else tags,
    )


def expire_snapshots(
    catalog: Catalog,
    keep: Keep,
    *,
    dry_run: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Expired:
    """Delete what an earlier expiry marked, and mark what ``keep`` does not keep.

    Audits go with the snapshot that they are of, landed records with those that would read them again. The newest
    results of runs stay (``keep.last``, at least 100), as do young ones. Raises RestoreError when what is kept is
    damaged.
    """
    time = now()
    live_by_kind: dict[object_names.ObjectKind, Live] = {
        object_names.ObjectKind.AUDITS: _live_audits,
        object_names.ObjectKind.RUNS: partial(_live_results, store=catalog.store, keep=keep, now=time),
        object_names.ObjectKind.LANDED: partial(live_landed, catalog=catalog),
    }
    positions: PositionsBySnapshot = {}
    remember = partial(note_consumed, catalog=catalog, positions=positions)
    with ways_out(catalog, None):
        result = expiry.expire(catalog, keep, time, beside=live_by_kind, remember=remember, dry_run=dry_run)
    if not dry_run:
        let_go(catalog, positions)
    return result


def check(catalog: Catalog, *, deep: bool = False, repair: bool = False) -> FsckReport:
    """Hold everything that is kept against what is stored; see headrace_snapshots.fsck. The copies of which ``repair``
    makes files of state again are those of the local cache.

    Raises what the store raises when it does not answer.
    """
    return fsck.fsck(
        catalog,
        deep=deep,
        repair=repair,
        copies=_cached_content,
        beside=(
            _audit_problems,
            _history_problems,
            _result_problems,
            _hold_problems,
            partial(check_landed, deep=deep, repair=repair),
        ),
        witnesses=_find_witnesses,
    )


def _cached_content(file: DataFile) -> bytes | None:
    from headrace.state.file_cache import default_cache  # with Arrow

    return default_cache().object_content(file)


def _live_audits(objects: Collection[ObjectInfo], kept_ids: Collection[str], notes: dict[str, str]) -> set[str]:
    return {info.path for info in objects if _audited_range(info.path).end in kept_ids}


def _audited_range(path: str) -> object_names.AuditedRange:
    """What an object of an audit is about."""
    audit_range = object_names.audited_range(path.partition("/")[0], path)
    assert audit_range is not None, "objects with other names are not listed"
    return audit_range


def _live_results(
    objects: Collection[ObjectInfo],
    kept_ids: Collection[str],
    notes: dict[str, str],
    *,
    store: ObjectStore,
    keep: Keep,
    now: datetime,
) -> set[str]:
    """The newest, and the young; and what is no result, of which nobody knows whose it is. Notes when a run ended."""
    new = [info.path for info in objects if info.path not in notes]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="results") as pool:
        new_ends = pool.map(partial(_finished_at, store), new)
        notes |= {path: end_text for path, end_text in zip(new, new_ends, strict=True) if end_text is not None}
    paths = {info.path for info in objects}
    for path in [path for path in notes if path not in paths and _is_result(path)]:
        del notes[path]
    end_by_path = {path: datetime.fromisoformat(notes[path]) for path in paths if path in notes}
    newest = heapq.nlargest(max(keep.last, KEPT_RESULTS.value), end_by_path, key=end_by_path.__getitem__)
    young = [path for path, end in end_by_path.items() if keep.younger is not None and end >= now - keep.younger]
    return {*newest, *young} | (paths - end_by_path.keys())


def _is_result(path: str) -> bool:
    return object_names.kind_of(path.partition("/")[0], path) is object_names.ObjectKind.RUNS


def _finished_at(store: ObjectStore, path: str) -> str | None:
    """When the run ended whose result that is; None if it cannot be read."""
    with suppress(ResultDamagedError, ObjectNotFoundError):
        return _read_result(store, path).finished_at
    return None


def _read_result(store: ObjectStore, path: str) -> RunResult:
    return from_json(store.read(path))


def _audit_problems(catalog: Catalog, entries: Iterable[Entry], kept_ids: Collection[str]) -> Iterator[Problem]:
    """Audits of kept snapshots: each can be read, and those that let a range be published say so."""
    trusted_audits = {path: entry for entry in entries for path in _trusted_audits(entry)}
    stored_audits = {
        path.removesuffix(_RESULT)
        for path in _stored_paths(catalog, object_names.ObjectKind.AUDITS)
        if path.endswith(_RESULT)
    }
    for path in sorted({*stored_audits, *trusted_audits}):
        audit_range = _audited_range(path + _RESULT)
        if audit_range.end not in kept_ids:
            continue
        entry, end = trusted_audits.get(path), audit_range.end
        needed_by = f"the audit of {end}" if entry is None else f"entry {entry.number}, which published {end}"
        try:
            outcome = read_audit(catalog.store, catalog.pipeline, audit_range.begin, end, audit_range.output)
        except AuditDamagedError as error:
            yield Problem(path + _RESULT, str(error), needed_by, f"{BACKUP}; the next run audits the range again")
            continue
        if entry is not None and (outcome is None or not outcome.success):
            problem = "it is missing" if outcome is None else "it says that expectations failed, and it was published"
            yield Problem(path + _RESULT, problem, needed_by, f"{BACKUP}; nothing but the evidence is lost")


def _trusted_audits(entry: Entry) -> Iterator[str]:
    """The audits by which it published: one, or of outputs with names one for each."""
    if isinstance(entry.detail, dict):
        if "audit" in entry.detail:
            yield str(entry.detail["audit"])
        yield from map(str, entry.detail.get("audits", {}).values())


def _history_problems(catalog: Catalog, entries: Iterable[Entry], kept_ids: Collection[str]) -> Iterator[Problem]:
    """Figures of earlier versions, beside kept snapshots: each can be read."""
    for path in _stored_paths(catalog, object_names.ObjectKind.AUDITS):
        audit_range = _audited_range(path)
        snapshot, output = audit_range.end, audit_range.output
        if snapshot in kept_ids and path == object_names.history_path(catalog.pipeline, snapshot, output):
            try:
                read_history(catalog.store, catalog.pipeline, snapshot, output)
            except HistoryDamagedError as error:
                needed_by = f"checks against history of what follows {snapshot}"
                yield Problem(path, str(error), needed_by, f"{BACKUP}; else earlier versions count")


def _result_problems(catalog: Catalog, entries: Iterable[Entry], kept_ids: Collection[str]) -> Iterator[Problem]:
    """Results of runs: each can be read."""
    for path in _stored_paths(catalog, object_names.ObjectKind.RUNS):
        try:
            content = _read_result(catalog.store, path)
            if path != object_names.result_path(catalog.pipeline, content.run_id):
                raise ResultDamagedError(f"it is the result of run {content.run_id} of {content.pipeline}")
        except ResultDamagedError as error:
            yield Problem(path, str(error), "who started that run", f"{BACKUP}, or delete it: no expiry does")
        except ObjectNotFoundError:
            continue


def _hold_problems(catalog: Catalog, entries: Iterable[Entry], kept_ids: Collection[str]) -> Iterator[Problem]:
    """What readers say that they need: it can be read, or nothing expires."""
    for hold in holds_of(catalog.store, catalog.pipeline)[1]:
        remedy = mended_by(catalog.pipeline, hold.reader)
        yield Problem(hold.path, str(hold.wrong).removesuffix(f". {remedy}"), "every expiry", remedy)


def _find_witnesses(catalog: Catalog, stored_paths: Collection[str]) -> Iterator[Witness]:
    """What results of runs and audits say was committed, and published."""
    for path in stored_paths:
        kind = object_names.kind_of(catalog.pipeline, path)
        if kind is object_names.ObjectKind.AUDITS and path.endswith(_RESULT):
            audit_range = _audited_range(path)
            yield Witness(path, frozenset(filter(None, [audit_range.begin])), audited=audit_range.end)
        elif kind is object_names.ObjectKind.RUNS:
            with suppress(ResultDamagedError, ObjectNotFoundError):
                content = _read_result(catalog.store, path)
                snapshots = {snapshot for snapshot in (content.snapshot, content.published) if snapshot is not None}
                yield Witness(path, frozenset(snapshots), published=content.published, at=content.started_at)


def _stored_paths(catalog: Catalog, kind: object_names.ObjectKind) -> Iterator[str]:
    """The paths of the objects of ``kind``."""
    paths = (info.path for info in catalog.store.list(object_names.object_folder(catalog.pipeline, kind)))
    return (path for path in paths if object_names.kind_of(catalog.pipeline, path) is kind)
