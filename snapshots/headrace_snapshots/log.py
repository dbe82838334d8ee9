"""The catalog log on a store: finding its end in a few requests whatever its length, and appending exactly once.

Knows entries and their numbers, and nothing of what they mean.
"""

import json
import logging
from collections.abc import Iterator

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from headrace.errors import RetryError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.store import (
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectStore,
    StoreUnavailableError,
    UnknownOutcomeError,
)

HINT_EVERY = 4
"""Entries per hint written: a put saved per entry, two or three more probes for a newcomer."""

_ATTEMPTS = 8
_logger = logging.getLogger(__name__)


class CatalogLog:
    """The log of one pipeline. Thread-safe: what it remembers is only ever a lower bound of the end."""

    def __init__(self, store: ObjectStore, pipeline: str) -> None:
        self._store = store
        self._folder = f"{pipeline}/log"
        self._hint = f"{pipeline}/log-hint.json"
        self._newest: Entry | None = None

    def last(self) -> Entry | None:
        """The last entry, None if there is none.

        Probes forward in doubling steps from an entry that is known, or from the hint, and closes in by halving.
        """
        low = self._newest or self._hinted()
        step = 1
        while (found := self.find(_number(low) + step)) is not None:
            low, step = found, step * 2
        missing = _number(low) + step
        while missing - _number(low) > 1:
            middle = (missing + _number(low)) // 2
            found = self.find(middle)
            low, missing = (low, middle) if found is None else (found, missing)
        return low

    def find(self, number: int) -> Entry | None:
        """Entry ``number``, None if there is none (yet). Raises BrokenObjectError."""
        path = self._path(number)
        try:
            data = self._store.read(path)
        except ObjectNotFoundError:
            return None
        entry = Entry.from_bytes(data, f"{self._store.uri}/{path}")
        if entry.number != number:
            raise BrokenObjectError(f"{self._store.uri}/{path} holds entry {entry.number}: restore it from a backup")
        if number > _number(self._newest):
            self._newest = entry
        return entry

    def before(self, number: int) -> Iterator[Entry]:
        """Entries below ``number``, newest first. Raises BrokenObjectError when one is missing."""
        for n in range(number - 1, -1, -1):
            entry = self.find(n)
            if entry is None:
                raise BrokenObjectError(
                    f"{self._store.uri}/{self._path(n)} is missing, and later entries exist: restore it from a backup"
                )
            yield entry

    def append(self, entry: Entry) -> bool:
        """Store ``entry`` under its number; False when another entry has it.

        After a lost answer the object is read back: the write id tells whose it is. While it is not there the same
        put is repeated, which is safe however late the first one lands. Raises UnknownOutcomeError when that does not
        settle it.
        """
        if not self._create_surely(entry):
            return False
        if entry.number > _number(self._newest):
            self._newest = entry
        if entry.number % HINT_EVERY == 0:
            self._write_hint(entry.number)
        return True

    def _create_surely(self, entry: Entry) -> bool:
        in_doubt = False

        def attempt() -> bool:
            nonlocal in_doubt
            try:
                return self._create(entry)
            except (UnknownOutcomeError, StoreUnavailableError) as error:
                in_doubt = in_doubt or isinstance(error, UnknownOutcomeError)
                if in_doubt:  # a later put that certainly failed says nothing about an earlier one
                    where = f"{self._store.uri}/{self._path(entry.number)}"
                    raise UnknownOutcomeError(
                        f"whether {where} was stored is unknown; look at the log: {error}"
                    ) from error
                raise

        retrying = Retrying(
            retry=retry_if_exception_type(UnknownOutcomeError),
            wait=wait_random_exponential(multiplier=0.02, max=2),
            stop=stop_after_attempt(_ATTEMPTS),
            reraise=True,
        )
        return retrying(attempt)

    def _create(self, entry: Entry) -> bool:
        try:
            self._store.create(self._path(entry.number), entry.to_bytes())
        except (ObjectExistsError, UnknownOutcomeError) as error:
            try:
                found = self.find(entry.number)
            except StoreUnavailableError as unreadable:
                raise UnknownOutcomeError(str(unreadable)) from unreadable
            if found is None:
                raise UnknownOutcomeError(str(error)) from error
            return found.write_id == entry.write_id
        return True

    def _write_hint(self, number: int) -> None:
        try:
            self._store.write(self._hint, json.dumps({"format": 1, "entry": number}).encode())
        except RetryError as error:
            _logger.warning("%s was not written, the next one will be: %s", self._hint, error)

    def _hinted(self) -> Entry | None:
        """The entry that the hint names, if both are there. A broken hint costs probes, nothing else."""
        try:
            number = json.loads(self._store.read(self._hint))["entry"]
        except ObjectNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            _logger.warning("%s is broken and not used: %s", self._hint, error)
            return None
        return self.find(number) if isinstance(number, int) and number >= 0 else None

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:020d}.json"


def _number(entry: Entry | None) -> int:
    return -1 if entry is None else entry.number
