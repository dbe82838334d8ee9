"""What a run or a delivery came to, as small JSON objects beside the snapshots.

``RunResult`` says what a run did, or the typed error it died of. The starter of the run (Airflow, the command line, a
test) reads it instead of parsing logs or exit codes. Here are also what the epochs of a run came to, however many they
are, without a manifest kept; the warnings about its data (dates far ahead, missing columns, many dead letters or late
records); and messages for people who may not see values of records.

An error of the configuration names definitions and settings, one of stored objects their paths, one of an audit its
expectations and limits. All others may quote a key or a record, those among them that code of users has raised.

``DeliveryNote`` says which snapshot a sink held last, for people who do not connect to it. The sink itself says what it
holds, and deliveries ask it. Nothing but pages for people reads these notes; they name no connection and quote no
message, and may be deleted.
"""

import json
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from headrace.audit.limits import LimitFinding
from headrace.audit.store import AuditFailedError, LimitExceededError, StaleDataError, UnusualDataError, UsualFinding
from headrace.errors import FixConfigError, HeadraceError, RestoreError
from headrace.ext.stores import SCHEMES
from headrace.model.arguments import Suggesting
from headrace.model.time import render, whole_seconds
from headrace.pipeline.endpoints import Sink
from headrace.pipeline.quality import Limits
from headrace.pipeline.scheduling import ExecutorDecision
from headrace.read.snapshots.progress import StoredProgress
from headrace.sources.progress import Lacking, ParkedChain, RecordsAhead, Rejects
from headrace_snapshots.format.codec import convert_value, seal_fields, unseal_fields
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import MAIN, ObjectKind, delivery_path, object_folder, result_path
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore


@dataclass
class Tally:
    """The numbers of the ``epochs`` in their order, and their ``counts`` together. ``ahead`` has, for each input with
    records ahead of the clock, how many there were and the first; ``lacking`` has the same for each column that files
    lack, by input and name. ``rejects``: dead letters of each of several inputs.
    """

    epochs: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    ahead: dict[str, RecordsAhead] = field(default_factory=dict)
    lacking: dict[tuple[str, str], Lacking] = field(default_factory=dict)
    rejects: dict[str, Rejects] = field(default_factory=dict)

    def add_epoch(self, manifest: Manifest) -> None:
        self.epochs.append(manifest.epoch)
        self.counts.update(manifest.counts)
        stored_progress = StoredProgress.from_manifest(manifest)
        for records_ahead in stored_progress.ahead:
            first = self.ahead.get(records_ahead.input)
            self.ahead[records_ahead.input] = records_ahead if first is None else first.and_more(records_ahead.records)
        for rejects in stored_progress.rejects:
            earlier = self.rejects.get(rejects.input)
            self.rejects[rejects.input] = rejects if earlier is None else earlier.and_more(rejects)
        for lacking in stored_progress.lacking:
            name = (lacking.input, lacking.column)
            lacking_before = self.lacking.get(name)
            self.lacking[name] = (
                lacking
                if lacking_before is None
                else replace(lacking_before, files=lacking_before.files + lacking.files)
            )


LATE_SHARE = 0.01
"""A run warns if more late drops than this share of its records were counted, and the pipeline has no limit of them."""

DEAD_LETTER_SHARE = 0.5
"""The share of dead letters among the records of an input above which a run warns, where the pipeline has no limit of
them. Then the source is described wrongly, or a producer has changed.
"""


def data_warnings(tally: Tally, limits: Limits | None = None) -> Iterator[str]:
    """Warnings about the epochs of a run; lateness comes last."""
    yield from map(_ahead_warning, tally.ahead.values())
    yield from map(_missing_column_warning, tally.lacking.values())
    rows = tally.counts
    records, late, dead = (rows.get(name, 0) for name in ("records", "late_dropped", "rejected"))
    if limits is None or limits.rejected is None:
        by_input = [*_mostly_dead(tally)]
        yield from by_input
        if not by_input and dead > DEAD_LETTER_SHARE * records:
            yield _dead_letters(dead, records)
    if (limits is None or limits.late is None) and late > LATE_SHARE * records:
        yield (
            f"{late:,} late drops of {records:,} records, more than {LATE_SHARE:.0%}. Look at how late the data is "
            "(headrace plot), and give the watermark a larger bound or the windows more allowed lateness; what was "
            "dropped can land again (headrace replay-late)"
        )


def _mostly_dead(tally: Tally) -> Iterator[str]:
    """The inputs, of several, whose records are mostly dead letters, however many others have."""
    for name, rejects in sorted(tally.rejects.items()):
        if rejects.dead > DEAD_LETTER_SHARE * rejects.records:
            yield f"input {name}: {_dead_letters(rejects.dead, rejects.records)}"


def _dead_letters(dead: int, records: int) -> str:
    return (
        f"{dead:,} of {records:,} records are dead letters, and what was published lacks them. Look at why "
        "(headrace read --view rejected): correct the source or the files, and let them land again (headrace "
        'replay-rejected). limits=hr.Limits(rejected="1%") holds such a run back'
    )


def _missing_column_warning(lacking: Lacking) -> str:
    files = (
        f"file {lacking.file}" if lacking.files == 1 else f"{lacking.files:,} files, the first of them {lacking.file},"
    )
    spelling_hint = (
        "" if lacking.near is None else f"; its first record has {lacking.near!r}, which is spelled much like it"
    )
    return (
        f"input {lacking.input} has no column {lacking.column!r} in any record of {files} and the pipeline reads it: "
        f"the column is NULL there{spelling_hint}. Correct the name in the schema of the source, or write "
        'missing="null" in it '
        "if files may lack a column"
    )


def _ahead_warning(first: RecordsAhead) -> str:
    count = first.records
    line = "" if first.position is None else f" record {first.position}"
    records = "1 record of" if count == 1 else f"{count:,} records, the first of"
    return (
        f"input {first.input} is ahead of the clock by more than its max_ahead: {records} file {first.file}{line}, "
        f"dated {render(first.at)}. Such records are accepted and move no watermark; correct them, or set max_ahead= "
        "of the event time (None for schedules)"
    )


NOT_SHOWN: Final = "not shown, since it may quote values of records"
"""Instead of a message."""

_BRANCHES: Final = ("config.", "restore.")
_OF_CODE_OF_USERS: Final = frozenset(
    {"config.spark_function", "config.expectation_not_evaluated", "config.pipeline_file"}
)
_SHOWN_CODES: Final = frozenset(
    {"left_out", *(kind.code for kind in (AuditFailedError, LimitExceededError, UnusualDataError, StaleDataError))}
)


def message_without_values(code: str, message: str) -> str:
    """The ``message`` of an error, unless one of its ``code`` may quote values."""
    is_shown = code in _SHOWN_CODES or (code.startswith(_BRANCHES) and code not in _OF_CODE_OF_USERS)
    return message if is_shown else NOT_SHOWN


def warnings_without_values(warnings: Sequence[str]) -> tuple[str, ...]:
    """How many ``warnings`` there are: any of them may quote values."""
    if not warnings:
        return ()
    return (("1 warning: " if len(warnings) == 1 else f"{len(warnings):,} warnings: ") + NOT_SHOWN,)


def parked_without_values(parked_chain: ParkedChain | None) -> ParkedChain | None:
    """Why an output stands still, unless that may quote values."""
    return parked_chain and replace(
        parked_chain, message=message_without_values(parked_chain.code, parked_chain.message)
    )


FORMAT: Final = 1

RunAction = Literal["process", "audit", "publish", "recover", "backfill", "cut_over", "patch"]
Status = Literal["succeeded", "failed"]


@dataclass(frozen=True)
class RunError:
    """A failure as data: ``code`` and ``remedy`` of the error tree (see headrace.errors), ``message`` for people."""

    code: str
    remedy: str
    message: str

    @classmethod
    def of(cls, error: BaseException) -> "RunError":
        """``error`` as data. One that Headrace did not raise is ``unexpected``, and worth one more attempt."""
        if isinstance(error, HeadraceError):
            return cls(error.code, error.remedy, redact_secrets(str(error)))
        return cls("unexpected", "retry", redact_secrets(f"{type(error).__name__}: {error}"))


class AuditReference(msgspec.Struct, frozen=True, rename={"from_snapshot": "from", "to_snapshot": "to"}):
    """The audit that a run made or trusted: of the range (``from_snapshot``, ``to_snapshot``], stored at ``path``."""

    success: bool
    from_snapshot: str | None
    to_snapshot: str
    path: str


class OutputResult(msgspec.Struct, frozen=True):
    """One output of several after a run. It has what readers see, the ``audit`` that the run made or trusted, and since
    when and why it is ``parked`` (None: it goes on).
    """

    published: str | None
    audit: AuditReference | None = None
    parked: ParkedChain | None = None

    @property
    def without_values(self) -> "OutputResult":
        """The same without a message that may quote values."""
        return msgspec.structs.replace(self, parked=parked_without_values(self.parked))


@dataclass(frozen=True)
class RunResult(Suggesting):
    """What one run did. ``epochs`` are those that it committed (or, for a publish, made visible), oldest first.

    ``snapshot`` and ``epoch`` are the head of the run's ``branch`` afterwards, ``published`` is what readers see then;
    ``counts`` says how much the epochs wrote, by name (older results call it ``rows``); ``watermark`` and both times
    are ISO 8601 in UTC. ``warnings`` are for people: a snapshot that was broken and where the run continued from
    instead, records dated far ahead. The last one is that many came too late. ``executor`` is the one that the run took
    and why, None if it came to none. ``forked_from`` is the snapshot that the branch of a backfill continues from, None
    if from nothing. ``limits`` is what a run found beside the pipeline's limits, ``usual`` what its audit found beside
    earlier versions, without rows. Where outputs have names, ``outputs`` has what is each one's own; ``published`` is
    the oldest of theirs, and ``audit`` is None.
    """

    run_id: str
    pipeline: str
    action: RunAction
    status: Status
    started_at: str
    finished_at: str
    error: RunError | None = None
    epochs: tuple[int, ...] = ()
    snapshot: str | None = None
    epoch: int | None = None
    published: str | None = None
    audit: AuditReference | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    watermark: str | None = None
    warnings: tuple[str, ...] = ()
    branch: str = MAIN
    executor: ExecutorDecision | None = None
    forked_from: str | None = None
    limits: tuple[LimitFinding, ...] = ()
    usual: tuple[UsualFinding, ...] = ()
    outputs: Mapping[str, OutputResult] = field(default_factory=dict)

    @property
    def parked(self) -> dict[str, ParkedChain]:
        """The outputs that are parked on main, with since when and why."""
        return {name: output.parked for name, output in self.outputs.items() if output.parked is not None}

    @property
    def without_values(self) -> "RunResult":
        """The same without what may quote values of records: messages, and rows to blame."""
        error = self.error
        return replace(
            self,
            error=error and replace(error, message=message_without_values(error.code, error.message)),
            warnings=warnings_without_values(self.warnings),
            usual=tuple(finding.replace(failing=()) for finding in self.usual),
            outputs={name: output.without_values for name, output in self.outputs.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """The stored object as a JSON value."""
        document: dict[str, Any] = json.loads(to_json(self))
        return document

    def __repr__(self) -> str:
        status_text = self.status if self.error is None else f"{self.status} ({self.error.code})"
        place = "no snapshot yet" if self.snapshot is None else f"at {self.snapshot} (epoch {self.epoch})"
        return (
            f"<{self.action} of {self.pipeline} {status_text}: {len(self.epochs)} epochs; {self.branch} {place}; "
            f"published: {self.published or 'nothing'}; {len(self.warnings)} warnings>"
        )


def to_json(result: RunResult) -> bytes:
    """The bytes of the object (docs/reference/formats.md, "Results of runs")."""
    fields = msgspec.to_builtins(result)
    if not result.outputs:
        del fields["outputs"]
    return seal_fields({"format": FORMAT, **fields})


class ResultFormatError(FixConfigError, code="config.result_format"):
    """A result object of a format that this version cannot read."""


class ResultDamagedError(RestoreError, code="restore.result_damaged"):
    """A result object that is not what was written."""


def from_json(data: bytes) -> RunResult:
    """The result in ``data``. Raises ResultFormatError (written by a newer version) or ResultDamagedError."""
    try:
        document: dict[str, Any] = json.loads(data)
        if (version := document["format"]) != FORMAT:
            raise ResultFormatError(
                f"a result object of format {version}; this version reads {FORMAT}: upgrade Headrace"
            )
        fields = unseal_fields(document)
        if "rows" in fields:  # as results before November 2026 call the counts
            fields["counts"] = fields.pop("rows")
        return convert_value(fields, RunResult)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResultDamagedError(f"a result object that cannot be read ({error}); run the action again") from error


def now() -> str:
    """The time for ``started_at`` and ``finished_at``."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def write_run_result(store: ObjectStore, result: RunResult) -> None:
    """Keep ``result`` (one put). Raises what the store raises."""
    store.write(result_path(result.pipeline, result.run_id), to_json(result))


def read_run_result(store: ObjectStore, pipeline: str, run_id: str) -> RunResult:
    """The result that a run left. Raises ObjectNotFoundError when it left none, and what from_json raises."""
    path = result_path(pipeline, run_id)
    result = from_json(store.read(path))
    if (result.pipeline, result.run_id) != (pipeline, run_id):
        raise ResultDamagedError(
            f"{path} is the result of run {result.run_id} of {result.pipeline}; run the action again"
        )
    return result


def redact_secrets(text: str) -> str:
    """``text`` without the values of the environment's secrets: a foreign exception may quote a request."""
    for variable in (variable for scheme in SCHEMES.loaded_parts() for variable in scheme.secrets):
        if secret := os.environ.get(variable):
            text = text.replace(secret, f"<{variable}>")
    return text


_log = logging.getLogger(__name__)

NOTE_FORMAT: Final = 1


class DeliveryNote(msgspec.Struct, frozen=True):
    """What a ``sink`` of an ``output`` ("": the one without a name) held when it was last seen. It held the
    ``snapshot`` of an ``epoch`` (None: nothing), since the delivery at ``delivered_at``, which wrote and removed so
    many rows.

    ``failed_at`` and ``error_code`` tell of a delivery after that which failed. Times are ISO 8601 in UTC. ``entry``:
    the last one of the catalog's log when the delivery looked. One that looked before, and comes late, changes no note:
    the sink has refused it, or it was applied first.
    """

    output: str
    sink: str
    kind: str
    snapshot: str | None = None
    epoch: int | None = None
    delivered_at: str | None = None
    written: int = 0
    removed: int = 0
    failed_at: str | None = None
    error_code: str | None = None
    entry: int = -1

    def with_delivery(
        self, snapshot: str | None, epoch: int | None, written_count: int, removed_count: int, entry: int
    ) -> "DeliveryNote":
        """The note after a delivery at ``entry`` that left ``snapshot``; without rows if the sink held that already."""
        if entry < self.entry:
            return self
        if self.delivered_at is not None and self.snapshot == snapshot and not written_count and not removed_count:
            return msgspec.structs.replace(self, failed_at=None, error_code=None)
        return DeliveryNote(
            self.output,
            self.sink,
            self.kind,
            snapshot,
            epoch,
            whole_seconds(datetime.now(UTC)),
            written_count,
            removed_count,
            entry=entry,
        )

    def with_failure(self, error: HeadraceError, entry: int) -> "DeliveryNote":
        """The note after a delivery that began at ``entry`` and failed: the sink holds what it held."""
        if entry < self.entry:
            return self
        return msgspec.structs.replace(self, failed_at=whole_seconds(datetime.now(UTC)), error_code=error.code)


def update_note(
    store: ObjectStore, pipeline: str, output: str, sink: Sink, renew_note: Callable[[DeliveryNote], DeliveryNote]
) -> None:
    """Keep what ``renew_note`` makes of the note of a sink, if that is another one.

    A get and a put. What was delivered is delivered: if the store refuses, a warning says so.
    """
    path = delivery_path(pipeline, output, sink.name)
    try:
        old_note = _read_note(store, path) or DeliveryNote(output, sink.name, sink.kind)
        new_note = renew_note(old_note)
        if new_note != old_note:
            store.write(path, seal_fields({"format": NOTE_FORMAT, **msgspec.to_builtins(new_note)}))
    except HeadraceError as error:
        why = f"{error.code}: {redact_secrets(str(error))}"
        _log.warning(
            "what sink %s of %s holds is not noted (%s): Airflow's pages do not show it", sink.name, pipeline, why
        )


def read_notes(store: ObjectStore, pipeline: str) -> list[DeliveryNote]:
    """The notes of all sinks of a pipeline that can be read, by output and sink."""
    paths = [info.path for info in store.list(object_folder(pipeline, ObjectKind.DELIVERIES))]
    read = (_read_note(store, path) for path in paths)
    return sorted((one for one in read if one is not None), key=lambda one: (one.output, one.sink))


def _read_note(store: ObjectStore, path: str) -> DeliveryNote | None:
    """The note at ``path``; None if there is none, or one that is damaged or of another version."""
    try:
        fields = unseal_fields(json.loads(store.read(path)))
        return convert_value(fields, DeliveryNote) if fields.pop("format") == NOTE_FORMAT else None
    except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
