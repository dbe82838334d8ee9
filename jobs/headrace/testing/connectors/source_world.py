"""What the kit must be able to do with a source: add records, lose some, change some."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, ClassVar

from headrace.ext.sources import Input, Source
from headrace.ext.stores import ObjectStore
from headrace_snapshots.store.memory import MemoryStore

COLUMNS: Mapping[str, Any] = {"number": int, "text": str, "at": datetime}
"""The columns of the source of a world, under whatever names it has them."""


class SourceWorld(ABC):
    """A source with nothing in it, for one test. What is not durable, so that runs land it, is lost and altered where
    it was landed: then ``lose`` and ``alter`` are not asked for.
    """

    has_unreadable: ClassVar[bool] = True
    """Whether a record can be one that does not parse. If not, ``append_unreadable`` is not asked for."""

    @property
    def input(self) -> Input:
        """How pipelines read the source."""
        return self.source.event_time("at", bound="1h")

    @cached_property
    def root(self) -> ObjectStore:
        """Where it is landed in tests that run no pipeline."""
        return MemoryStore()

    @property
    @abstractmethod
    def source(self) -> Source:
        """What a definition names, with ``COLUMNS``."""

    @abstractmethod
    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Add ``records``, values of ``COLUMNS`` by name, with times as datetimes; from then on they can be planned, as
        splits of their own.
        """

    def append_unreadable(self) -> None:
        """Add one record that does not parse, as a split of its own: its ``number`` is text or, where types do not let
        that in, its ``text`` is not UTF-8.
        """
        raise NotImplementedError("say how a record is added that does not parse, or has_unreadable = False")

    def lose(self) -> None:
        """Take away what was added first."""
        raise NotImplementedError("say how what was added first is lost")

    def alter(self) -> None:
        """Change what was added first, as nobody should."""
        raise NotImplementedError("say how what was added first is changed")
