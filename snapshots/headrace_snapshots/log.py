"""The catalog's log: its entries, and the log on a store, whose end is found in a few requests, whatever its length.

``Entry`` says which refs it moved, and every ref and generation after it.

``CatalogLog`` appends exactly once. It knows entries and their numbers, and nothing of what they mean. The end is found
by listing what comes after a known entry, so that every gap shows. An entry is there for ever, unless a later one says
in its ``base`` that it is not needed any more. Then its number is free again, for a writer that was stopped meanwhile.
So a writer that has created an entry lists what follows it, most often nothing. Else the newest entry says whether the
number has been given up. Then the entry may have been stored before that or after; its writer can tell by comparing
what it did with the newest entry.

A disk lists all names of a folder, however few are wanted. There the end is looked for by asking for the next numbers
(``_numbers_after``). That is as good as a listing while the entry before them is the one that was known, since entries
are deleted in ascending order.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice, takewhile
from typing import Any, ClassVar, cast

import msgspec

from headrace.errors import RetryError
from headrace_snapshots import names as object_names
from headrace_snapshots import store as object_stores
from headrace_snapshots.errors import DamagedLogError
from headrace_snapshots.format.codec import JSON, BrokenObjectError, StoredObject
from headrace_snapshots.protocol.moves import Append, Head, Horizon, Kind, Past


class Entry(StoredObject, frozen=True, omit_defaults=True):
    """Entry ``number``, written at ``at`` (ISO 8601, UTC). ``write_id`` tells its writer that it is its own.

    ``branch`` and ``generation``: whose move it was, None for tags and expiries. ``moves``: ref -> (before, after),
    None where there was or is no such ref. No entry below ``base`` is needed any more. ``message`` is for people;
    ``detail`` is the caller's. ``horizon``: what is kept, None if nothing ever expired. ``past``: what main had and has
    not any more; None in older entries, so of what was before them nothing is known.
    """

    KIND: ClassVar = "entry"

    number: int
    write_id: str
    at: str
    kind: Kind
    branch: str | None
    generation: int | None
    moves: Mapping[str, tuple[str | None, str | None]]
    refs: Mapping[str, str]
    generations: Mapping[str, int]
    base: int
    message: str
    detail: JSON
    past: Past | None = None
    horizon: Horizon | None = None

    @classmethod
    def from_append(cls, append: Append, number: int, write_id: str, at: str, *, message: str, detail: JSON) -> "Entry":
        """Entry ``number``, as the protocol decided it."""
        return cls(number=number, write_id=write_id, at=at, message=message, detail=detail, **vars(append))

    def to_json(self) -> JSON:
        """A JSON object; the inverse of ``from_json``. A horizon without ``seen`` is as those of before had it."""
        value = cast("dict[str, Any]", super().to_json())
        if self.horizon is not None and not self.horizon.seen:
            del value["horizon"]["seen"]
        return value

    @property
    def head(self) -> Head:
        """The head of the catalog when this is its last entry."""
        past = Past(since=self.number + 1) if self.past is None else self.past
        return Head(self.number, self.refs, self.generations, self.base, horizon=self.horizon, past=past)

    @property
    def refs_before(self) -> dict[str, str]:
        """Every ref before it moved some."""
        refs = {**self.refs, **{ref: snapshot for ref, (snapshot, _) in self.moves.items()}}
        return {ref: snapshot for ref, snapshot in refs.items() if snapshot is not None}

    def floor(self, branch: str) -> int:
        """The first epoch whose output the next snapshots of ``branch`` need to name."""
        return self.horizon.floor if self.horizon is not None and branch == object_names.MAIN else 0

    @property
    def format(self) -> int:
        """The second since there is expiry; the third where what readers see is told by output: an older version
        would find nothing published, and move nothing of it back; the fourth where rows were handed over that cannot be
        taken back: an older version would go below them.
        """
        refs = {*self.refs, *self.moves}
        if any(map(object_names.is_delivery, refs)):
            return 4
        if any(object_names.is_published(ref) and object_names.output_of(ref) for ref in refs) or (
            self.past is not None and any(promotion.outputs for promotion in self.past.replaced)
        ):
            return 3
        return 1 if self.horizon is None else 2


HINT_EVERY = 16
"""Entries after which a hint is written though its command goes on: who looks for the end lists no more than these."""
_ASKED_FOR = 2 * HINT_EVERY
"""Numbers that are asked for on a disk: a lost entry shows by those after it. No command leaves as many unhinted."""

_APPEND_ATTEMPTS = 8
_MOST_NAMED = 3
_READERS = 16
_FIRST_DIGITS = "0000"
"""With which the numbers of all entries begin."""
_STRANGERS_LOOKED_AT = 100
"""The most objects that are looked at there, under names that are none of entries."""
_logger = logging.getLogger(__name__)


class AppendResult(Enum):
    """What became of an entry that was to be appended. FOLDED_AWAY: the log has been folded above its number. Either it
    was stored after that, and counts for nothing; or before, and what it did is in all entries after it.
    """

    APPENDED = "appended"
    NUMBER_TAKEN = "number taken"
    FOLDED_AWAY = "folded away"


class _Hint(StoredObject, frozen=True, omit_defaults=True):
    """Where to look for the log's end: from this number on. ``write_id``: of the entry if its writer saw it count."""

    KIND: ClassVar = "log-hint"

    entry: int
    write_id: str | None = None


@dataclass(frozen=True)
class LostEntry:
    """An entry that is missing, or cannot be read; ``problem`` says which object and why."""

    number: int
    problem: str

    def to_json(self) -> JSON:
        return {"number": self.number, "kind": "lost", "message": self.problem}


class End(msgspec.Struct, frozen=True):
    """Where the log ends: the highest number that is known to have been given, and the newest entry that can be read.

    ``lost``: what is wrong with objects that should be there. None: the entry is the last one, and it can be trusted.
    """

    number: int
    entry: Entry | None
    lost: str | None = None


class CatalogLog:
    """The log of one pipeline. Thread-safe: what it remembers is only ever a lower bound of the end.

    ``looks_once``: the end is where the first look found it, or behind what was appended here since. That holds until
    ``look_again``, or until an entry's number is taken.
    """

    def __init__(self, store: object_stores.ObjectStore, pipeline: str, *, looks_once: bool = False) -> None:
        self._store = store
        self._pipeline = pipeline
        self.looks_once = looks_once
        self._folder = object_names.object_folder(pipeline, object_names.ObjectKind.LOG)
        self._hint = object_names.hint_path(pipeline)
        self._newest: Entry | None = None
        self._last_seen: Entry | None = None
        self._looks = 0
        self._seeing = threading.Lock()
        self._last_stored = self._hinted_at = -1

    def last_entry(self) -> Entry | None:
        """The last entry, None if there is none. Raises DamagedLogError when entries are lost."""
        end = self.find_end()
        if end.lost is None:
            return end.entry
        raise DamagedLogError(
            f"the log of {self._pipeline} is damaged: {end.lost}. Bring it back from a backup"
            f"{_way_out(self._pipeline, end)}"
        )

    def look_again(self) -> None:
        """Have the next question for the end look for it, also where the log looks once."""
        self._record_look(None)

    def _record_look(self, entry: Entry | None) -> None:
        with self._seeing:
            self._last_seen, self._looks = entry, self._looks + 1

    def find_end(self) -> End:
        """Where the log ends, damaged or not: one listing of what comes after the entry that is known or hinted at."""
        last_seen = self._last_seen if self.looks_once else None
        if last_seen is not None:
            return End(last_seen.number, last_seen)
        looks = self._looks
        end = self._found_end()
        with self._seeing:
            if end.lost is None and looks == self._looks:  # else another thread has stored an entry meanwhile
                self._last_seen = end.entry
        return end

    def _found_end(self) -> End:
        newest_known = self._newest
        hint = self._usable_hint() if newest_known is None else None
        first = (hint.entry if hint is not None else 0) if newest_known is None else newest_known.number + 1
        # most often the hint names the last entry
        numbers, hinted_entry = object_stores.do_both(
            self._store,
            lambda: self._numbers_to_look_at(first, newest_known, hint),
            lambda: (
                self._try_to_read(hint.entry)
                if hint is not None and object_stores.lists_in_pages(self._store)
                else None
            ),
        )
        if not numbers:
            if newest_known is not None or first == 0:
                return End(_entry_number(newest_known), newest_known)
            problem = f"the hint {self._object_uri(self._hint)} names entry {first}, and there is none from there on"
            return self._salvage_end(first, numbers, [problem])
        try:
            entry = hinted_entry
            if not isinstance(entry, Entry) or entry.number != numbers[-1]:
                entry = self._read_entry(numbers[-1])
        except BrokenObjectError as error:
            return self._salvage_end(numbers[-1], numbers, [str(error)])
        except object_stores.ObjectNotFoundError:
            if self._list_numbers(numbers[-1] + 1):
                return self._found_end()  # it was folded away meanwhile
            raise
        numbers_listed = set(numbers)
        missing_numbers = [
            n for n in range(max(first, entry.base), entry.number) if n not in numbers_listed and not self._is_there(n)
        ]
        if missing_numbers:
            losses = [
                f"{self._object_uri(self._entry_path(n))} is missing, and later entries exist" for n in missing_numbers
            ]
            return self._salvage_end(entry.number, numbers, losses)
        self._remember(entry)
        return End(entry.number, entry)

    def _numbers_to_look_at(self, first: int, known_entry: Entry | None, hint: _Hint | None) -> list[int]:
        """The numbers of the entries from ``first`` on, which follows the ``known_entry``, or is hinted at."""
        if known_entry is not None:
            return self._numbers_after(known_entry.number, known_entry.write_id)
        if hint is not None and hint.write_id is not None:
            following = self._asked_numbers(first, hint.write_id)
            if following is not None:
                return [first, *following]
        return self._list_numbers(first)

    def _numbers_after(self, number: int, write_id: str) -> list[int]:
        """The numbers of the entries after entry ``number``, which counted when it was seen with its ``write_id``."""
        numbers = self._asked_numbers(number, write_id)
        # whoever knows of later entries has written so, unless the log is damaged
        if numbers is None or (not numbers and (hint := self._usable_hint()) is not None and hint.entry > number):
            return self._list_numbers(number + 1)
        return numbers

    def _asked_numbers(self, number: int, write_id: str) -> list[int] | None:
        """The same where the store can be asked which objects are there; None if only a listing tells."""
        find_present = getattr(self._store, "find_present", None)
        if find_present is None:
            return None
        numbers: list[int] = []
        while True:
            first = number + 1 + len(numbers)
            paths = tuple(self._entry_path(n) for n in range(first, first + _ASKED_FOR))
            present = find_present(paths)
            if present != paths[: len(present)]:
                return None
            numbers += range(first, first + len(present))
            if len(present) < len(paths):
                break
        # after the others: what is deleted meanwhile is this entry before them
        entry = self._try_to_read(number, from_store=True)
        return numbers if isinstance(entry, Entry) and entry.write_id == write_id else None

    def entries_before(self, number: int, at_once: int = 1) -> Iterator[Entry | LostEntry]:
        """Entries below ``number``, newest first, past those that are lost, down to the folded: a request for each.
        ``at_once``: so many are surely wanted, and read together, some ahead, where the store is far.
        """
        reads_at_once = min(at_once, _READERS) if object_stores.lists_in_pages(self._store) else 1
        first_unfolded = _fold_limit(self._newest or self.find_end().entry)
        for newest in range(number - 1, first_unfolded - 1, -reads_at_once):
            numbers = range(newest, max(newest - reads_at_once, first_unfolded - 1), -1)
            entries = object_stores.do_all(self._store, self._try_to_read, numbers, reads_at_once)
            for n, entry in zip(numbers, entries, strict=True):
                if entry is None:
                    self.look_again()
                    first_unfolded = _fold_limit(self.find_end().entry)
                    if n < first_unfolded:
                        return
                    yield LostEntry(n, f"{self._object_uri(self._entry_path(n))} is missing")
                else:
                    yield entry

    def _try_to_read(self, number: int, *, from_store: bool = False) -> Entry | LostEntry | None:
        """Entry ``number``; why it cannot be read; None if it is not there. ``from_store``: as it is there by now."""
        if not from_store and self.looks_once and self._newest is not None and self._newest.number == number:
            return self._newest
        try:
            return self._read_entry(number)
        except object_stores.ObjectNotFoundError:
            return None
        except BrokenObjectError as error:
            return LostEntry(number, str(error))

    def append(self, entry: Entry, *, is_last: bool) -> AppendResult:
        """Store ``entry`` under its number, unless another entry has it. ``is_last``: of its command, so the hint is to
        name it.

        After a lost answer the object is read back: the write id tells whose it is. While it is not there the same
        put is repeated, which is safe however late the first one lands. Raises UnknownOutcomeError when that does not
        settle it.
        """
        if not self._create_surely(entry):
            self.look_again()
            return AppendResult.NUMBER_TAKEN
        names_hint = is_last or entry.number % HINT_EVERY == 0
        if object_stores.lists_in_pages(self._store):
            later_entry, _ = object_stores.do_both(
                self._store,
                lambda: self._newest_entry_after(entry),
                lambda: self.write_hint(entry.number) if names_hint else None,
            )
        else:
            later_entry = self._newest_entry_after(entry)
            if names_hint:
                counts = later_entry is None or later_entry.base <= entry.number
                self.write_hint(entry.number, entry.write_id if counts else None)
        self._record_look(entry if later_entry is None else None)
        if later_entry is not None and later_entry.base > entry.number:
            _logger.warning("%s has been folded away by now", self._entry_path(entry.number))
            return AppendResult.FOLDED_AWAY
        self._remember(entry)
        self._last_stored = entry.number
        return AppendResult.APPENDED

    def settle_hint(self) -> None:
        """Let the hint name the last entry, if this log stored one since its last hint. Raises no error of a store."""
        if self._last_stored <= self._hinted_at:
            return
        try:
            self.look_again()  # others may have stored entries since, and a hint
            end = self.find_end()
        except RetryError as error:
            _logger.warning("%s was not written, the next command writes it: %s", self._hint, error)
            return
        if end.lost is None and end.entry is not None:
            self.write_hint(end.number, end.entry.write_id)
        else:
            self.write_hint(self._last_stored)

    def fold(self, first_kept: int) -> int:
        """Delete the entries below ``first_kept``, which an entry has for its base; how many there were."""
        numbers = self._list_numbers(0, first_kept)
        for number in numbers:
            self._store.delete(self._entry_path(number))
        return len(numbers)

    def hint_problem(self) -> str | None:
        """What is wrong with the hint, if anything is. A hint that lags behind is no problem. The command that was to
        write the next one was killed first, and the search for the end is a little longer.
        """
        end = self.find_end()
        entry, last = end.entry, end.number
        try:
            hinted_number = self._read_hint().entry
        except object_stores.ObjectNotFoundError as error:
            is_only_late = entry is None or (last < HINT_EVERY and entry.refs.keys() <= entry.generations.keys())
            return None if is_only_late else str(error)  # what moves other refs than branches writes it
        except BrokenObjectError as error:
            return str(error)
        return f"it names entry {hinted_number}, and the last one is {last}" if hinted_number > last else None

    def _newest_entry_after(self, entry: Entry) -> Entry | None:
        """The newest entry after ``entry``, which has just been stored; None, most often, if it is the last. The newest
        holds all refs and generations, as a checkpoint of the log does, and says whether the log has been folded above.

        Raises DamagedLogError if ``entry`` has the number of one that was lost: what follows begins elsewhere.
        """
        where = self._object_uri(self._entry_path(entry.number))
        try:
            previous_entry = self._newest
            numbers = None
            if previous_entry is not None and previous_entry.number + 1 == entry.number:
                numbers = self._asked_numbers(previous_entry.number, previous_entry.write_id)
            numbers = self._list_numbers(entry.number + 1) if numbers is None else numbers[1:]
            newest = self._read_entry(numbers[-1]) if numbers else None
            if newest is None or newest.base > entry.number or not self.looks_once:
                return newest
            following = self._read_entry(entry.number + 1)
        except (object_stores.StoreUnavailableError, object_stores.ObjectNotFoundError) as error:
            raise object_stores.UnknownOutcomeError(
                f"{where} was stored; whether it counts is unknown, look at the log: {error}"
            ) from error
        if following.refs_before != dict(entry.refs):
            raise DamagedLogError(
                f"the log of {self._pipeline} is damaged: another entry was stored as {where} and is lost; what this "
                "writer has stored there since does not count. Bring the other one back from a backup: `headrace fsck` "
                f"says what of {self._pipeline} is not as the log says"
            )
        return newest

    def _salvage_end(self, number: int, numbers: Sequence[int], losses: list[str]) -> End:
        """The end of a damaged log: its newest entry that can be read, among ``numbers`` or below them."""
        newest: Entry | None = None
        for candidate in reversed([*self._list_numbers(0, numbers[0] if numbers else number), *numbers]):
            try:
                newest = self._read_entry(candidate)
                break
            except BrokenObjectError as error:
                losses = [*losses, str(error)]
        losses = list(dict.fromkeys(losses))
        more = f"; and {len(losses) - _MOST_NAMED} more" if len(losses) > _MOST_NAMED else ""
        return End(number, newest, "; ".join(losses[:_MOST_NAMED]) + more)

    def _create_surely(self, entry: Entry) -> bool:
        try:
            return self._create(entry)
        except object_stores.UnknownOutcomeError:
            return self._create_in_doubt(entry)

    def _create_in_doubt(self, entry: Entry) -> bool:
        """Whether ``entry`` is stored, of which one put has an unknown outcome. Raises UnknownOutcomeError."""
        from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential  # few do

        def attempt() -> bool:
            try:
                return self._create(entry)
            except (object_stores.UnknownOutcomeError, object_stores.StoreUnavailableError) as error:
                # a later put that certainly failed says nothing about an earlier one
                where = f"{self._store.uri}/{self._entry_path(entry.number)}"
                raise object_stores.UnknownOutcomeError(
                    f"whether {where} was stored is unknown; look at the log: {error}"
                ) from error

        retrying = Retrying(
            retry=retry_if_exception_type(object_stores.UnknownOutcomeError),
            wait=wait_random_exponential(multiplier=0.02, max=2),
            stop=stop_after_attempt(_APPEND_ATTEMPTS - 1),
            reraise=True,
        )
        return retrying(attempt)

    def _create(self, entry: Entry) -> bool:
        try:
            self._store.create(self._entry_path(entry.number), entry.to_bytes())
        except (object_stores.ObjectExistsError, object_stores.UnknownOutcomeError) as error:
            try:
                stored_entry = self._read_entry(entry.number)
            except object_stores.StoreUnavailableError as unreadable:
                raise object_stores.UnknownOutcomeError(str(unreadable)) from unreadable
            except object_stores.ObjectNotFoundError:
                raise object_stores.UnknownOutcomeError(str(error)) from error
            except BrokenObjectError:
                if isinstance(error, object_stores.ObjectExistsError):
                    return False  # whether it is the last one, and the log damaged, the next look tells
                raise
            self._remember(stored_entry)
            return stored_entry.write_id == entry.write_id
        return True

    def _read_entry(self, number: int) -> Entry:
        """Entry ``number``. Raises ObjectNotFoundError, BrokenObjectError."""
        where = self._object_uri(self._entry_path(number))
        entry = Entry.from_bytes(self._store.read(self._entry_path(number)), where)
        if entry.number != number:
            raise BrokenObjectError(f"{where} holds entry {entry.number}: restore it from a backup")
        return entry

    def _is_there(self, number: int) -> bool:
        """A listing that was under way while entries were appended may show a later one and not this."""
        return object_stores.is_there(self._store, self._entry_path(number))

    def _list_numbers(self, first: int, limit: int | None = None) -> list[int]:
        """The numbers of the entries from ``first`` on, and below ``limit`` if that is given."""
        start_after = self._entry_path(first - 1) if first else ""
        names = (info.path.rpartition("/")[2] for info in self._store.list(self._folder, start_after))
        numbers = (number for name in names if (number := object_names.entry_number(name)) is not None)
        return list(takewhile(lambda number: limit is None or number < limit, numbers))

    def _remember(self, entry: Entry) -> None:
        if entry.number > _entry_number(self._newest):
            self._newest = entry

    def write_hint(self, number: int, write_id: str | None = None) -> None:
        """Let those who come look for the end from entry ``number`` on, which is known to count if its ``write_id`` is
        given. It is no loss if the store refuses.
        """
        try:
            self._store.write(self._hint, _Hint(number, write_id).to_bytes())
            self._hinted_at = number
        except RetryError as error:
            _logger.warning("%s was not written, the next one will be: %s", self._hint, error)

    def _usable_hint(self) -> _Hint | None:
        """The hint, if there is one. A broken one costs a longer listing, nothing else. The ``write_id`` is left out if
        names of entries have come or gone since: only a listing tells whether some of them are lost.
        """
        has_changed_since = getattr(self._store, "has_changed_since", None)
        try:
            is_old = has_changed_since is not None and has_changed_since(self._folder.rstrip("/"), self._hint)
            hint = self._read_hint()
            return msgspec.structs.replace(hint, write_id=None) if is_old else hint
        except object_stores.ObjectNotFoundError:
            return None
        except BrokenObjectError as error:
            _logger.warning("the hint is not used: %s", error)
            return None

    def _read_hint(self) -> _Hint:
        return _Hint.from_bytes(self._store.read(self._hint), self._object_uri(self._hint))

    def _entry_path(self, number: int) -> str:
        return object_names.entry_path(self._pipeline, number)

    def _object_uri(self, path: str) -> str:
        return f"{self._store.uri}/{path}"


def has_log(store: object_stores.ObjectStore, pipeline: str) -> bool:
    """Whether a pipeline of that name has run: its folder holds an entry. One request."""
    entries = store.list(f"{object_names.object_folder(pipeline, object_names.ObjectKind.LOG)}{_FIRST_DIGITS}")
    return any(
        object_names.kind_of(pipeline, info.path) is object_names.ObjectKind.LOG
        for info in islice(entries, _STRANGERS_LOOKED_AT)
    )


def _entry_number(entry: Entry | None) -> int:
    return -1 if entry is None else entry.number


def _fold_limit(entry: Entry | None) -> int:
    return 0 if entry is None or entry.horizon is None else entry.horizon.folded


def _way_out(pipeline: str, end: End) -> str:
    """How a person goes on without what is lost."""
    if end.entry is None:
        return ": no other entry can be read either"
    refs = end.entry.refs
    published_refs = [ref for ref in sorted(refs) if object_names.is_published(ref)] or [object_names.PUBLISHED]
    refs_text = ", ".join(f"{name} at {refs.get(name, 'nothing')}" for name in (object_names.MAIN, *published_refs))
    main = refs.get(object_names.MAIN, object_names.BEGINNING)
    return (
        f", or give up what is lost: `headrace rollback {pipeline} --to {main}` continues from "
        f"entry {end.entry.number} ({refs_text}), as if nothing had been committed, patched or published since"
    )
