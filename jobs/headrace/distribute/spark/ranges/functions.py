"""The object of a user that says which ranges there are, and reads them. What it raises becomes an error by name."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.connections import Connection
from headrace.distribute.spark.connected.session import ConnectedSession
from headrace.distribute.spark.ranges.errors import RangeFunctionError
from headrace.distribute.spark.ranges.failures import named_failures
from headrace.distribute.spark.task_payload import travels
from headrace.distribute.spark.types import DataFrame
from headrace.pipeline.loading.code_digests import named_function
from headrace.pipeline.systems.spark import SparkSource


class Ranges(Protocol):
    """What the function of a source gives."""

    def ends(self, begin: str | None) -> Iterable[str]:
        """Where ranges end that are new behind ``begin``, in order, each where the next begins; None: from the start.
        The last one again, or nothing: there is nothing new.
        """

    def read(self, begin: str | None, end: str) -> "DataFrame":
        """The records behind ``begin``, up to ``end``."""


@dataclass(frozen=True)
class NamedRanges:
    """The ``ranges`` of a ``source``, with its name in whatever they raise, and no secret of its connection."""

    source: SparkSource
    ranges: Ranges
    session: ConnectedSession

    def ends(self, begin: str | None) -> list[str]:
        """Where new ranges end. Raises RangeFunctionError, RangeRefusedError, RangeFailedError."""
        with named_failures(self.source, self.session.connection):
            given: Any = self.ranges.ends(begin)
            is_several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
            ends = [*given] if is_several else [given]
        wrong = [end for end in ends if not isinstance(end, str) or not end]
        if wrong or not is_several:
            raise RangeFunctionError(
                f"{self.source}: ends({begin!r}) gives {(wrong or ends)[0]!r:.100}: give a list of texts, each where a "
                "range ends and the next one begins; an empty list where nothing is new"
            )
        return ends

    def read(self, begin: str | None, end: str) -> "DataFrame":
        """The records of a range. Raises RangeFunctionError, RangeRefusedError, RangeFailedError."""
        _ = self.session.spark  # functions of pyspark.sql ask for a session that is there
        with named_failures(self.source, self.session.connection):
            frame = self.ranges.read(begin, end)
        if not isinstance(frame, DataFrame) and not hasattr(frame, "mapInArrow"):
            raise RangeFunctionError(f"{self.source}: read() gives {type(frame).__name__}, and must give a DataFrame")
        return frame


@contextmanager
def ranges_of(source: SparkSource, connection: Connection | None) -> Iterator[NamedRanges]:
    """The ranges of a ``source``, whose session ends with this, or where sessions are kept with what keeps them. Raises
    RangeFunctionError, RangeFailedError.
    """
    session = ConnectedSession(connection, "landing")
    try:
        with named_failures(source, connection):
            named = named_function(str(source), source.function, source.package, RangeFunctionError)
            travels(named.module)  # with its own functions for rows
            ranges: Any = named.function(session)
        for method in ("ends", "read"):
            if not callable(getattr(ranges, method, None)):
                raise RangeFunctionError(f"{source}: it gives {type(ranges).__name__}, which has no method {method}()")
        yield NamedRanges(source, ranges, session)
    finally:
        session.leave()
