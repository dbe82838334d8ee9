"""What tasks tell those below them, and at last the driver: counts, clocks, and the files that they stored.

Digests of results show whether a task that ran twice has said the same (``canonical_digest``).
"""

import hashlib
import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa

from headrace.distribute.process import LargeEpochError, columns_fit
from headrace.distribute.tasks.exchange import ReceivedMessage, message_batches
from headrace.distribute.watermark_inputs import InputObservations
from headrace.errors import HeadraceError, RetryError
from headrace.kernel.delta import Accounting, Disposition
from headrace.kernel.step import Counts
from headrace.model.time import MIN_INSTANT, NEVER, Instant
from headrace.sources.validation import ISOLATED_ERRORS
from headrace_snapshots.format.files import DataFile


def canonical_digest(value: Any) -> bytes:
    """SHA-256 of the encoding of ``value``. A DataFile counts by its rows, length and checksum: its name is new in each
    run of a task. Raises TypeError for a type that has no encoding.

    Equal values have one encoding, in every process and however they share objects; values of different types never
    have the same. Pickles have neither property: an object that occurs twice is written once and referred to. So
    pickles of equal values differ by which of their parts are the same object.
    """
    return hashlib.sha256(_encode(value)).digest()


def _encode(value: Any) -> bytes:  # noqa: PLR0911, PLR0912 (a case for each kind of value)
    match value:
        case None:
            return _tag_parts("none")
        case np.generic():  # some are Python's numbers and texts, too
            return _encode(value.item())
        case Enum():  # before the numbers and texts that some are
            return _tag_parts("enum", _type_name(type(value)), value.name.encode())
        case bool():  # before int, which it is
            return _tag_parts("bool", str(value).encode())
        case int():
            return _tag_parts("int", str(value).encode())
        case float():
            return _tag_parts("float", struct.pack(">d", math.nan if math.isnan(value) else value))
        case str():
            return _tag_parts("text", value.encode(errors="surrogatepass"))
        case bytes():
            return _tag_parts("bytes", value)
        case type():
            return _tag_parts("type", _type_name(value))
        case tuple() | list():
            return _tag_parts("sequence", *map(_encode, value))
        case Mapping():
            return _tag_parts("mapping", *sorted(_encode(item) for item in value.items()))
        case set() | frozenset():
            return _tag_parts("set", *sorted(map(_encode, value)))
        case DataFile():
            return _tag_parts("file", *map(_encode, (value.rows, value.bytes, value.sha256)))
        case msgspec.Struct():
            names = value.__struct_fields__
        case _ if is_dataclass(value):
            names = tuple(field.name for field in fields(value))
        case _:
            raise TypeError(f"{type(value).__name__} has no canonical encoding: give it one in {__name__}")
    return _tag_parts("record", _type_name(type(value)), *(_encode(getattr(value, name)) for name in names))


def _type_name(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()


def _tag_parts(tag: str, *parts: bytes) -> bytes:
    """``parts`` under a ``tag``, each with its length before it, so that no two ways to cut them look the same."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in (tag.encode(), *parts))


Files = tuple[DataFile, ...]


class DisagreementError(RetryError, code="retry.nondeterministic_task"):
    """Two tasks of an epoch got different results from a third, which ran twice: nothing of the epoch counts."""


class StoredLayer(msgspec.Struct, frozen=True):
    """A layer of a table as one task stored it. ``expires``: the watermark to exceed for it to count no more."""

    files: Files = ()
    expires: Instant = MIN_INSTANT


@dataclass(frozen=True)
class BundleOutput:
    """What became of records in the first stage of a chain; ``late`` are those that were late, ``rejected`` those that
    the stage cannot take. ``rows``: what left of them, counted by ``counts``, where they leave as rows.
    """

    accounting: Accounting = field(default_factory=Accounting)
    late: Files = ()
    rejected: Files = ()
    rows: Files = ()
    counts: Counts | None = None


@dataclass(frozen=True)
class ShareOutput:
    """What a share of the input gave: what its records say; what became of them in each of the ``chains``, by number,
    none if there were no records; rejected rows. Where duplicates are told apart, ``chains`` tell only of records that
    take no part. ``errors``: why there is nothing of other chains.
    """

    observations: InputObservations = field(default_factory=InputObservations)
    chains: Mapping[int, BundleOutput] = field(default_factory=dict)
    rejected: Files = ()
    errors: Mapping[int, "Failure"] = field(default_factory=dict)


@dataclass(frozen=True)
class IdsOutput:
    """What became of the records of a part of the ids in each of the ``chains``, by number, none if there were no
    records; the ids to remember. ``errors``: why there is nothing of other chains.
    """

    chains: Mapping[int, BundleOutput] = field(default_factory=dict)
    ids: StoredLayer = field(default_factory=StoredLayer)
    errors: Mapping[int, "Failure"] = field(default_factory=dict)


@dataclass(frozen=True)
class LoopOutput:
    """What an epoch did to a loop: new ``edges``, what is ``in_flight`` after it, and after how many ``rounds``.
    ``hold``: the last moment of the earliest window in which something is. ``is_acknowledged``: all of it is part of
    the snapshot. ``errors``: why there is nothing of its chain, by its number.
    """

    edges: StoredLayer = field(default_factory=StoredLayer)
    in_flight: Files = ()
    hold: Instant = NEVER
    rounds: int = 0
    is_acknowledged: bool = False
    errors: Mapping[int, "Failure"] = field(default_factory=dict)


@dataclass(frozen=True)
class JoinOutput:
    """What an epoch did to a part of a join: what is added to its two tables. The last join of a chain has the
    ``accounting`` of joined rows in the stage below. It also has those that the stage cannot take, and what left of
    them as ``rows``. ``errors``: why there is nothing of its chain, by its number.
    """

    left: StoredLayer = field(default_factory=StoredLayer)
    right: StoredLayer = field(default_factory=StoredLayer)
    accounting: Accounting = field(default_factory=Accounting)
    rejected: Files = ()
    rows: Files = ()
    counts: Counts | None = None
    errors: Mapping[int, "Failure"] = field(default_factory=dict)

    @property
    def changed(self) -> int:
        """How many rows are added to its tables."""
        return sum(file.rows for layer in (self.left, self.right) for file in layer.files)

    @property
    def dead(self) -> int:
        """How many joined rows the stage below cannot take."""
        return self.accounting.rows.get(Disposition.REJECTED, 0)


@dataclass(frozen=True)
class StageOutput:
    """What an epoch did to a part of a stage. ``panes_accounting``: what became of its panes in the stage below;
    ``rejected`` are those that have no key there. ``elements``: its panes, where they go through a user's own code.
    ``hold``: the earliest hold of its windows, or the watermark. ``errors``: why there is nothing of its chain, by its
    number.
    """

    counts: Counts | None = None
    changed: int = 0
    hold: Instant = NEVER
    due_event: Instant = NEVER
    due_time: Instant = NEVER
    state: StoredLayer = field(default_factory=StoredLayer)
    panes: Files = ()
    panes_accounting: Accounting = field(default_factory=Accounting)
    rejected: Files = ()
    elements: Files = ()
    errors: Mapping[int, "Failure"] = field(default_factory=dict)


@dataclass(frozen=True)
class PanesOutput:
    """What became of panes in the first stage of the job for each chain, by its number; ``rejected`` have no key
    there. ``rows``: what left of them as rows. ``errors``: why there is nothing of other chains.
    """

    accounting: Mapping[int, Accounting] = field(default_factory=dict)
    rejected: Mapping[int, Files] = field(default_factory=dict)
    rows: Mapping[int, BundleOutput] = field(default_factory=dict)
    errors: Mapping[int, "Failure"] = field(default_factory=dict)


class MergedLayers(msgspec.Struct, frozen=True):
    """What a part of some layers became."""

    files: Files = ()


_OfChains = ShareOutput | IdsOutput | LoopOutput | JoinOutput | StageOutput | PanesOutput
TaskOutput = _OfChains | MergedLayers


@dataclass(frozen=True)
class TaskResult:
    """What a task passes on: its ``output``, and the digest of all messages that it received. Task 0 alone passes on
    the history, too: the results of each level above. ``error``: why there is no output. ``requests`` are its own.
    """

    output: TaskOutput | None
    received_digest: bytes = b""
    history: "tuple[tuple[TaskResult, ...], ...]" = ()
    error: "Failure | None" = None
    requests: Mapping[str, int] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        """What two runs of a task must have in common."""
        errors = {-1: self.error} if self.error is not None else self.errors
        error_texts = [(number, error.kind, str(error.rebuild_error())) for number, error in sorted(errors.items())]
        output = replace(self.output, errors={}) if isinstance(self.output, _OfChains) else self.output
        return canonical_digest((output, self.received_digest, error_texts))

    @property
    def errors(self) -> Mapping[int, "Failure"]:
        """Why there is no output for some chains, by number."""
        return self.output.errors if isinstance(self.output, _OfChains) else NO_ERRORS


T = TypeVar("T")


def outputs_of(results: Iterable[TaskResult], kind: type[T]) -> list[T]:
    """The outputs of that ``kind`` among those of tasks."""
    return [result.output for result in results if isinstance(result.output, kind)]


class Message(msgspec.Struct, frozen=True):
    """What ``task`` says to those of the level below: its ``result`` to all, ``bundles`` of rows to some parts."""

    task: int
    result: TaskResult
    bundles: Mapping[int, pa.RecordBatch] = msgspec.field(default_factory=dict)

    def to_blobs(self, parts: int) -> Iterator[pa.RecordBatch]:
        """Rows of blobs for an exchange to ``parts`` parts."""
        return message_batches(self.task, parts, self.result, self.result.content, self.bundles)

    def received_by(self, part: int) -> ReceivedMessage:
        """The message for ``part`` in the same process, where no task runs twice."""
        return ReceivedMessage(self.task, b"", self.result, self.bundles.get(part))


@dataclass(frozen=True)
class Failure:
    """An error that a task tells instead of raising it, since another run of the task would end the same."""

    kind: type[HeadraceError]
    args: tuple[Any, ...]
    state: Mapping[str, Any]

    @classmethod
    def from_error(cls, error: HeadraceError) -> "Failure":
        """Wraps an error so that it can be sent to the driver."""
        return cls(type(error), error.args, dict(error.__dict__))

    def rebuild_error(self) -> HeadraceError:
        """Rebuilds the error without its constructor, which may take other arguments."""
        error = self.kind.__new__(self.kind)
        error.args = self.args
        error.__dict__.update(self.state)
        return error


NO_ERRORS: Mapping[int, Failure] = {}


@contextmanager
def collect_failure(failures: list[Failure]) -> Iterator[None]:
    """Adds an error inside to ``failures`` if another run of the task would end the same; else raises RetryError."""
    try:
        with columns_fit():
            yield
    except RetryError:
        raise
    except HeadraceError as own_error:
        failures.append(Failure.from_error(own_error))


@contextmanager
def isolate_failure(failures: dict[int, Failure], chain: int, *, isolates: bool) -> Iterator[None]:
    """Keep an error inside as that of the ``chain`` among ``failures``, if the chain is isolated and the error is its
    own. That is an error of a user's code, or of a value or column that outgrows its type. Raises all other errors.
    """
    if not isolates:
        yield
        return
    try:
        with columns_fit():
            yield
    except (*ISOLATED_ERRORS, LargeEpochError) as isolated_error:
        failures[chain] = Failure.from_error(isolated_error)


class UpstreamResults(msgspec.Struct, frozen=True):
    """The ``results`` of all tasks of the level above, the ``digest`` of their messages, and their first ``error``.
    ``errors``: the first of each chain that any level above has nothing of, by its number.
    """

    results: tuple[TaskResult, ...]
    digest: bytes
    error: Failure | None
    errors: Mapping[int, Failure] = msgspec.field(default_factory=dict)

    @classmethod
    def from_messages(cls, messages: Sequence[ReceivedMessage]) -> "UpstreamResults":
        """Gathers the messages of all tasks of the level above."""
        results = tuple(message.result for message in messages)
        digest = hashlib.sha256(b"".join(message.digest for message in messages)).digest()
        error = next((result.error for result in results if result.error is not None), None)
        if error is None and len({result.received_digest for result in results}) > 1:
            error = Failure.from_error(
                DisagreementError("tasks of one level got different results: run the epoch again")
            )
        levels = (*results[0].history, results)
        return cls(results, digest, error, errors_of(levels))

    def history_for_task(self, task: int) -> "tuple[tuple[TaskResult, ...], ...]":
        """What ``task`` below passes on of them."""
        if task:
            return ()
        return (*self.results[0].history, tuple(replace(result, history=()) for result in self.results))


def errors_of(levels: Sequence[Sequence[TaskResult]]) -> dict[int, Failure]:
    """The first error of each chain that has one in the results of ``levels``, by its number."""
    errors: dict[int, Failure] = {}
    for result in (result for level in levels for result in level):
        for number, error in result.errors.items():  # in their order: if all outputs fail, a run raises the first one
            errors.setdefault(number, error)
    return errors
