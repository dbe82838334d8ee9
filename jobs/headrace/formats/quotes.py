"""Where quotes are open in a text of CSV: a line break in them ends no record (RFC 4180, 2.6).

A quote opens at the beginning of a field alone, and the next one that is not doubled closes it, as in Python's ``csv``
and wherever else CSV is read: one inside a field that has none at its beginning is a character like others. So a run of
quotes says what it does by the byte before it and by its length. An even one leaves open what is open, and closed what
is closed. An odd one at the beginning of a field opens if nothing is open, and closes if something is; an odd one
elsewhere closes. So what is open behind a run is a sum over those since the last that closes, wherever a piece of a
file begins, and Python looks at no byte.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.formats.scan import Span
from headrace.kernel.grouping import Ints

Octets = NDArray[np.uint8]

_NEWLINE, _RETURN, _OTHER = 10, 13, ord("x")
_WINDOW: Final = 2**18
"""How many bytes are looked at together: as many as fit into a cache of the processor."""


@dataclass(frozen=True)
class Quotes:
    """The bytes of a ``quote``, of the ``delimiter`` between fields, and of what escapes the byte behind it."""

    quote: int = ord('"')
    delimiter: int = ord(",")
    escape: int | None = None

    def marks(self, data: bytes) -> bytes:
        """``data`` with escaped bytes, and what escapes them, as others, which mean nothing."""
        if self.escape is None or self.escape not in data:
            return data
        octets = np.frombuffer(data, np.uint8).copy()
        escapes = np.flatnonzero(octets == self.escape)
        first = np.flatnonzero(np.diff(escapes, prepend=-2) != 1)
        lengths = np.diff(first, append=len(escapes))
        behind = (escapes[first] + lengths)[lengths % 2 == 1]
        octets[escapes] = _OTHER
        octets[behind[behind < len(octets)]] = _OTHER
        return octets.tobytes()

    def open_at(self, octets: Octets, places: Ints) -> NDArray[np.bool_]:
        """At which ``places`` of a text, which ascend, quotes are open; none is where it begins."""
        is_open, at, before = np.zeros(len(places), np.bool_), 0, False
        while at < len(octets):
            stop = self._behind_run(octets, min(at + _WINDOW, len(octets)))
            runs, states = self._states(octets, at, stop, before)
            chosen = slice(*np.searchsorted(places, (at, stop)))
            is_open[chosen] = np.append(before, states)[np.searchsorted(runs, places[chosen])]
            at, before = stop, bool(states[-1]) if len(states) else before
        is_open[np.searchsorted(places, len(octets)) :] = before
        return is_open

    def are_open_behind(self, data: bytes) -> bool:
        """Whether quotes are open where ``data`` ends; none is where it begins. It looks back to one that closes."""
        marks = self.marks(data)
        return self._open_behind(marks, np.frombuffer(marks, np.uint8), 0, len(marks))

    def bounds(self, data: bytes, span: Span) -> tuple[int, int]:
        """Where the records of ``span`` begin and end in ``data``: pieces end after the first newline outside quotes at
        or after their share.
        """
        data = self.marks(data)
        begin = self._record(data, span.of, span.first, 0)
        return begin, self._record(data, span.of, span.after, begin)

    def _record(self, data: bytes, of: int, number: int, known: int) -> int:
        """Where the first record of a piece begins. The one at ``known``, before it, begins a record."""
        at = len(data) * number // of
        if at <= known or at == len(data):
            return max(at, known)
        octets = np.frombuffer(data, np.uint8)
        at = self._run_begin(octets, at)
        is_open = self._open_behind(data, octets, known, at)
        if at == 0 or (octets[at - 1] == _NEWLINE and not is_open):
            return at
        while at < len(octets):
            stop = self._behind_run(octets, min(at + _WINDOW, len(octets)))
            runs, states = self._states(octets, at, stop, is_open)
            newlines = at + np.flatnonzero(octets[at:stop] == _NEWLINE)
            outside = newlines[~np.append(is_open, states)[np.searchsorted(runs, newlines)]]
            if len(outside):
                return int(outside[0]) + 1
            at, is_open = stop, bool(states[-1]) if len(states) else is_open
        return len(octets)

    def _open_behind(self, data: bytes, octets: Octets, begin: int, end: int) -> bool:
        turns = 0
        while (end := data.rfind(self.quote, begin, end) + 1) > 0:
            start = self._run_begin(octets, max(end - _WINDOW, begin))
            runs, begins = self._odd_runs(octets, start, end)
            closing = np.flatnonzero(~begins)
            if len(closing):
                turns += len(runs) - 1 - int(closing[-1])
                break
            turns, end = turns + len(runs), start
        return turns % 2 == 1

    def _run_begin(self, octets: Octets, at: int) -> int:
        """Where the run of quotes begins that ``at`` would cut; ``at`` if none does."""
        while at > 0 and octets[at - 1] == self.quote:
            start = max(at - _WINDOW, 0)
            others = np.flatnonzero(octets[start:at] != self.quote)
            at = start + int(others[-1]) + 1 if len(others) else start
        return at

    def _behind_run(self, octets: Octets, at: int) -> int:
        """Where the run of quotes ends that ``at`` would cut; ``at`` if none does."""
        while at < len(octets) and octets[at - 1] == octets[at] == self.quote:
            others = np.flatnonzero(octets[at : at + _WINDOW] != self.quote)
            at = at + int(others[0]) if len(others) else min(at + _WINDOW, len(octets))
        return at

    def _odd_runs(self, octets: Octets, begin: int, end: int) -> tuple[Ints, NDArray[np.bool_]]:
        """The runs from ``begin`` to ``end`` with an odd number of quotes, and which of them begin a field."""
        quotes = np.flatnonzero(octets[begin:end] == self.quote)
        first = np.flatnonzero(np.diff(quotes, prepend=-2) != 1)
        if len(first) < len(quotes):
            quotes = quotes[first[np.diff(first, append=len(quotes)) % 2 == 1]]
        runs = quotes + begin
        before = octets[runs - 1]  # the last byte, at the beginning of the text
        return runs, (before == self.delimiter) | (before == _NEWLINE) | (before == _RETURN) | (runs == 0)

    def _states(self, octets: Octets, begin: int, end: int, is_open: bool) -> tuple[Ints, NDArray[np.bool_]]:
        """The odd runs, and whether quotes are open behind each; ``is_open`` says whether they are before the first."""
        runs, begins = self._odd_runs(octets, begin, end)
        turns = np.cumsum(begins) + is_open
        closed: Ints = np.maximum.accumulate(np.where(begins, 0, turns))
        states: NDArray[np.bool_] = np.not_equal((turns - closed) % 2, 0)
        return runs, states
