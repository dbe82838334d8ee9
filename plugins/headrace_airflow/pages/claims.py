"""Which run made which epochs: the run that had claimed the branch, as the log of the catalog says."""

import threading
from collections.abc import Collection
from itertools import islice
from typing import Final

from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.protocol import Kind

_LOOKED_AT: Final = 2_000
"""Entries of the log that one question looks through at most."""

ClaimName = tuple[str, int]
"""A branch, and the generation that a claim gave it."""


class Claims:
    """The claims in the log of ``catalog``. Entries never change, so each is read once. Usable from many threads."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._owners: dict[ClaimName, str] = {}
        self._newest, self._oldest = -1, -1  # entries that were looked at, from the oldest to the newest
        self._lock = threading.Lock()

    def owners(self, wanted: Collection[ClaimName]) -> dict[ClaimName, str]:
        """Who made each of the claims, as far as the newest entries tell: the id of a run."""
        with self._lock:
            self._look(wanted)
            return {claim: self._owners[claim] for claim in wanted if claim in self._owners}

    def _look(self, wanted: Collection[ClaimName]) -> None:
        """Look through entries that are new, and then through older ones until all ``wanted`` are found."""
        end = self._catalog.known_head().entry
        new = end - self._newest
        if self._newest < 0 or new > _LOOKED_AT:
            self._newest, self._oldest, new = end, end + 1, 0
        for entry in islice(self._catalog.entries(end + 1), new):
            self._remember(entry)
        self._newest = end
        for entry in islice(self._catalog.entries(self._oldest), _LOOKED_AT):
            if all(claim in self._owners for claim in wanted):
                break
            self._remember(entry)
            self._oldest = entry.number

    def _remember(self, entry: Entry) -> None:
        if entry.kind is Kind.CLAIM and entry.branch is not None:
            self._owners[entry.branch, entry.generations[entry.branch]] = str(entry.detail["owner"])
