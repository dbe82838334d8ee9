"""Upkeep of what runs leave: expire and check it, with the audits and results that lie beside the snapshots."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

from headrace.audit.store import AuditDamagedError, read_audit
from headrace.audit.usual.measures import HistoryDamagedError, read_history
from headrace.model.time import parse_duration
from headrace.pipeline.deployment import Retention
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.damage import ways_out
from headrace.runs.following.reading import let_go
from headrace.runs.landed import check_landed, live_landed
from headrace.runs.reporting.results import ResultDamagedError, RunResult, from_json
from headrace_snapshots import fsck
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.fsck import BACKUP, FsckReport, Problem, Witness
from headrace_snapshots.gc import expiry
from headrace_snapshots.gc.expiry import Expired, Live
from headrace_snapshots.gc.gc_roots import Keep, KeepError
from headrace_snapshots.gc.holds import holds_of, mended_by
from headrace_snapshots.layout import (
    AuditedRange,
    ObjectKind,
    audited_range,
    folder,
    history_path,
    kind_of,
    result_path,
)
from headrace_snapshots.store import ObjectInfo, ObjectNotFoundError, ObjectStore

KEPT_RESULTS = 100
"""The least number of results of runs that is kept."""

_READERS = 16
_LONGEST = timedelta(days=365_000)
_RESULT = "/result.json"


def keeping(last: int, younger: str | timedelta | None = None, *, tags: bool = True) -> Keep:
    """What to keep; ``younger`` is a length of time, such as "30d". Raises KeepError."""
    if isinstance(younger, str):
        try:
            younger = timedelta(microseconds=parse_duration(younger))
        except ValueError as error:
            raise KeepError(f"keep_for={younger!r} is not a length of time: {error}; write 30d, or 12h") from error
    if younger is not None and younger > _LONGEST:
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
            f"pipeline {name} is not registered, so its retention is not known: give --keep-last (in Python "
            "keep_last=), give the pipeline's file, or name its folder in HEADRACE_PIPELINES"
        )
    retention = (None if pipeline is None else pipeline.retention) or Retention()
    retained_for = None if retention.keep_for is None else timedelta(microseconds=retention.keep_for)
    return keeping(
        retention.keep_last if last is None else last,
        retained_for if younger is None else younger,
        tags=retention.keep_tags if tags is None else tags,
    )


def expire(
    catalog: Catalog,
    keep: Keep,
    *,
    dry_run: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Expired:
    """Delete what an earlier expiry marked, and mark what ``keep`` does not keep.

    Audits go with the snapshot that they are of, landed records with those that would read them again. Of results of
    runs the newest are kept, as many as snapshots (at least 100), and the young ones. Raises RestoreError when what is
    kept is damaged.
    """
    at = now()
    beside: dict[ObjectKind, Live] = {
        ObjectKind.AUDITS: _live_audits,
        ObjectKind.RUNS: partial(_live_results, store=catalog.store, keep=keep, now=at),
        ObjectKind.LANDED: partial(live_landed, catalog=catalog),
    }
    with ways_out(catalog, None):
        expired = expiry.expire(catalog, keep, at, beside=beside, dry_run=dry_run)
    if not dry_run:
        let_go(catalog)
    return expired


def check(catalog: Catalog, *, deep: bool = False, repair: bool = False) -> FsckReport:
    """Hold everything that is kept against what is stored; see headrace_snapshots.fsck. The copies of which ``repair``
    makes files of state again are those of the local cache.

    Raises what the store raises when it does not answer.
    """
    return fsck.fsck(
        catalog,
        deep=deep,
        repair=repair,
        copies=_cached,
        beside=(_audits, _histories, _results, _holds, partial(check_landed, deep=deep, repair=repair)),
        witnesses=_witnesses,
    )


def _cached(file: DataFile) -> bytes | None:
    from headrace.state.datafiles.cache import default_cache  # with Arrow

    return default_cache().content(file)


def _live_audits(listed: Collection[ObjectInfo], kept: Collection[str], notes: dict[str, str]) -> set[str]:
    return {info.path for info in listed if _audited(info.path).end in kept}


def _audited(path: str) -> AuditedRange:
    """What an object of an audit is about."""
    audited = audited_range(path.partition("/")[0], path)
    assert audited is not None, "objects with other names are not listed"
    return audited


def _live_results(
    listed: Collection[ObjectInfo],
    kept: Collection[str],
    notes: dict[str, str],
    *,
    store: ObjectStore,
    keep: Keep,
    now: datetime,
) -> set[str]:
    """The newest, and the young; and what is no result, of which nobody knows whose it is. Notes when a run ended."""
    new = [info.path for info in listed if info.path not in notes]
    with ThreadPoolExecutor(_READERS, thread_name_prefix="results") as pool:
        ended = pool.map(partial(_finished_at, store), new)
        notes |= {path: at for path, at in zip(new, ended, strict=True) if at is not None}
    paths = {info.path for info in listed}
    for path in [path for path in notes if path not in paths]:
        del notes[path]
    at = {path: datetime.fromisoformat(ended) for path, ended in notes.items()}
    newest = heapq.nlargest(max(keep.last, KEPT_RESULTS), at, key=at.__getitem__)
    young = [path for path, ended in at.items() if keep.younger is not None and ended >= now - keep.younger]
    return {*newest, *young} | (paths - notes.keys())


def _finished_at(store: ObjectStore, path: str) -> str | None:
    """When the run ended whose result that is; None if it cannot be read."""
    with suppress(ResultDamagedError, ObjectNotFoundError):
        return _read(store, path).finished_at
    return None


def _read(store: ObjectStore, path: str) -> RunResult:
    return from_json(store.read(path))


def _audits(catalog: Catalog, entries: Iterable[Entry], kept: Collection[str]) -> Iterator[Problem]:
    """Audits of kept snapshots: each can be read, and those that let a range be published say so."""
    trusted = {path: entry for entry in entries for path in _trusted(entry)}
    stored = {path.removesuffix(_RESULT) for path in _stored(catalog, ObjectKind.AUDITS) if path.endswith(_RESULT)}
    for path in sorted({*stored, *trusted}):
        about = _audited(path + _RESULT)
        if about.end not in kept:
            continue
        entry, end = trusted.get(path), about.end
        needed_by = f"the audit of {end}" if entry is None else f"entry {entry.number}, which published {end}"
        try:
            outcome = read_audit(catalog.store, catalog.pipeline, about.begin, end, about.output)
        except AuditDamagedError as error:
            yield Problem(path + _RESULT, str(error), needed_by, f"{BACKUP}; the next run audits the range again")
            continue
        if entry is not None and (outcome is None or not outcome.success):
            problem = "it is missing" if outcome is None else "it says that expectations failed, and it was published"
            yield Problem(path + _RESULT, problem, needed_by, f"{BACKUP}; nothing but the evidence is lost")


def _trusted(entry: Entry) -> Iterator[str]:
    """The audits by which it published: one, or of outputs with names one for each."""
    if isinstance(entry.detail, dict):
        if "audit" in entry.detail:
            yield str(entry.detail["audit"])
        yield from map(str, entry.detail.get("audits", {}).values())


def _histories(catalog: Catalog, entries: Iterable[Entry], kept: Collection[str]) -> Iterator[Problem]:
    """Figures of earlier versions, beside kept snapshots: each can be read."""
    for path in _stored(catalog, ObjectKind.AUDITS):
        about = _audited(path)
        snapshot, output = about.end, about.output
        if snapshot in kept and path == history_path(catalog.pipeline, snapshot, output):
            try:
                read_history(catalog.store, catalog.pipeline, snapshot, output)
            except HistoryDamagedError as error:
                needed_by = f"checks against history of what follows {snapshot}"
                yield Problem(path, str(error), needed_by, f"{BACKUP}; else earlier versions count")


def _results(catalog: Catalog, entries: Iterable[Entry], kept: Collection[str]) -> Iterator[Problem]:
    """Results of runs: each can be read."""
    for path in _stored(catalog, ObjectKind.RUNS):
        try:
            content = _read(catalog.store, path)
            if path != result_path(catalog.pipeline, content.run_id):
                raise ResultDamagedError(f"it is the result of run {content.run_id} of {content.pipeline}")
        except ResultDamagedError as error:
            yield Problem(path, str(error), "who started that run", f"{BACKUP}, or delete it: no expiry does")
        except ObjectNotFoundError:
            continue


def _holds(catalog: Catalog, entries: Iterable[Entry], kept: Collection[str]) -> Iterator[Problem]:
    """What readers say that they need: it can be read, or nothing expires."""
    for hold in holds_of(catalog.store, catalog.pipeline)[1]:
        remedy = mended_by(catalog.pipeline, hold.reader)
        yield Problem(hold.path, str(hold.wrong).removesuffix(f". {remedy}"), "every expiry", remedy)


def _witnesses(catalog: Catalog, stored: Collection[str]) -> Iterator[Witness]:
    """What results of runs and audits say was committed, and published."""
    for path in stored:
        kind = kind_of(catalog.pipeline, path)
        if kind is ObjectKind.AUDITS and path.endswith(_RESULT):
            about = _audited(path)
            yield Witness(path, frozenset(filter(None, [about.begin])), audited=about.end)
        elif kind is ObjectKind.RUNS:
            with suppress(ResultDamagedError, ObjectNotFoundError):
                content = _read(catalog.store, path)
                snapshots = {snapshot for snapshot in (content.snapshot, content.published) if snapshot is not None}
                yield Witness(path, frozenset(snapshots), published=content.published, at=content.started_at)


def _stored(catalog: Catalog, kind: ObjectKind) -> Iterator[str]:
    """The paths of the objects of ``kind``."""
    paths = (info.path for info in catalog.store.list(folder(catalog.pipeline, kind)))
    return (path for path in paths if kind_of(catalog.pipeline, path) is kind)
