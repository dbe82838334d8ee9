"""Maps in lines of JSON, written so that Arrow's parser takes them: as lists of entries, for it takes no object as one.

``{"a":1,"b":2}`` becomes ``[{"k":"a","v":1},{"k":"b","v":2}]``, in all lines of a block at once. A line goes by its
marks: brackets, colons, commas and the beginnings of strings. What is between them stays as it is, and so does all that
is in no map. So a line that is no JSON does not become some: entries are set in brackets by their colons and commas,
and brackets that do not fit are left to the parser to refuse.
"""

from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.formats.lines import MOST_BYTES
from headrace.kernel.columns import Ints

_Bytes = NDArray[np.uint8]

_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE, _BEGIN_LIST, _END_LIST = b'":,{}[]'
_MARKS: Final = bytes(octet if octet in b'":,{}[]' else 0 for octet in range(256))
"""What stays of a text of which only the marks count, for ``bytes.translate``."""

_KEY, _VALUE, _END = 1, 2, 3
_INSERTED: Final = np.frombuffer(b'     {"k": ,"v"    }', np.uint8).reshape(4, 5)
"""What goes before a key, the colon behind it, and the end of its entry; blanks make them equally long."""


def may_hold_map(kind: pa.DataType) -> bool:
    """Whether values of ``kind`` have maps where ``with_entries`` looks for them."""
    if pa.types.is_struct(kind):
        return any(may_hold_map(field.type) for field in kind)
    return bool(pa.types.is_map(kind))


def entries_type(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow's parser reads ``kind``; ``pa.Array.view`` makes ``kind`` of it."""
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([("k", kind.key_type), ("v", entries_type(kind.item_type))]))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, entries_type(field.type)) for field in kind])
    return kind


def with_entries(text: pa.Array, schema: pa.Schema) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Write maps as lists of entries.

    :param text: lines, of which each may be a record.
    :param schema: the columns, with the maps that are in them.
    :returns: the lines; and which of them say what they said. Others are doubtful: they are to be read by themselves.
    """
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    content = bytes(memoryview(text.buffers()[2])[offsets[0] : offsets[-1]])
    rewriting = _Rewriting(content, offsets - offsets[0])
    rewriting.rewrite_struct(rewriting.records(), pa.struct(list(schema)))
    return rewriting.lines()


class _Marks(msgspec.Struct, frozen=True):
    """The marks of lines whose brackets and quotes have partners. Closing quotes, and what is in strings, are left out.
    Depth is that of the brackets around a mark; brackets have that of what is in them.
    """

    place: Ints
    octet: _Bytes
    depth: Ints

    def in_brackets(self, opens: Ints) -> Ints:
        """The marks that stand directly in brackets, and these themselves; ``opens`` are of one depth."""
        level = np.flatnonzero(self.depth == self.depth[opens[0]])
        is_wanted = np.zeros(len(self.depth), np.bool_)
        is_wanted[opens] = True
        begins = np.flatnonzero(_is_open(self.octet[level]))
        members: Ints = level[np.repeat(is_wanted[level[begins]], np.diff(np.append(begins, len(level))))]
        return members

    def keys(self, members: Ints) -> Ints:
        """The ``members`` that are strings with a colon behind them."""
        strings = members[self.octet[members] == _QUOTE]
        keys: Ints = strings[self.octet[strings + 1] == _COLON]
        return keys


class _Rewriting:
    """Lines, and what is to be changed in them."""

    def __init__(self, content: bytes, offsets: Ints) -> None:
        self.octets = np.frombuffer(content, np.uint8).copy()
        self.offsets = offsets
        self.backslashes = np.flatnonzero(self.octets == ord("\\")) if b"\\" in content else np.zeros(0, np.int64)
        self.inserted = np.zeros(len(content), np.uint8)
        self.certain = np.ones(len(offsets) - 1, np.bool_)
        self.marks = self._find_marks(content)

    def _find_marks(self, content: bytes) -> _Marks:
        # pairs go from left to right, as a parser takes them
        unescaped = content.replace(rb"\\", b"  ").replace(rb"\"", b"  ") if len(self.backslashes) else content
        octets = np.frombuffer(unescaped.translate(_MARKS), np.uint8)
        place = np.flatnonzero(octets != 0)
        octet = octets[place]
        bounds = np.searchsorted(place, self.offsets)
        is_quote = octet == _QUOTE
        quotes = np.append(0, np.cumsum(is_quote))
        self.certain &= np.diff(quotes[bounds]) % 2 == 0
        quotes_in_line = quotes[:-1] - np.repeat(quotes[bounds[:-1]], np.diff(bounds))
        kept = np.flatnonzero((quotes_in_line % 2 == 0) & np.repeat(self.certain, np.diff(bounds)))
        place, octet = place[kept], octet[kept]

        bounds = np.searchsorted(place, self.offsets)
        is_close = (octet == _CLOSE) | (octet == _END_LIST)
        depths = np.append(0, np.cumsum(_is_open(octet).astype(np.int64) - is_close))
        after = depths[1:] - np.repeat(depths[bounds[:-1]], np.diff(bounds))
        bottoms = np.append(0, np.cumsum(after <= 0))
        # the last bracket, and no other mark, leaves the line's own object
        self.certain &= (np.diff(depths[bounds]) == 0) & (np.diff(bottoms[bounds]) == 1)
        kept = np.flatnonzero(np.repeat(self.certain, np.diff(bounds)))
        return _Marks(place[kept], octet[kept], (after + is_close)[kept])

    def records(self) -> Ints:
        """The marks with which lines begin."""
        marks = self.marks
        return np.flatnonzero((marks.depth == 1) & (marks.octet == _OPEN))

    def rewrite_struct(self, opens: Ints, kind: pa.DataType) -> None:
        """Rewrite what is in objects of one depth that are of ``kind``; ``opens`` are their first marks."""
        if not len(opens):
            return
        keys = self.marks.keys(self.marks.in_brackets(opens))
        self._doubt_escaped(keys)
        for field in kind:
            if may_hold_map(field.type):
                self._rewrite_values(self._having_name(keys, field.name) + 2, field.type)

    def _rewrite_values(self, values: Ints, kind: pa.DataType) -> None:
        """Rewrite values of ``kind``; ``values`` are the marks behind colons, which are no part of a number or null."""
        is_map, octet = pa.types.is_map(kind), self.marks.octet[values]
        if is_map:
            self._doubt(values[octet == _BEGIN_LIST])  # it would be one of entries
        opens = values[octet == _OPEN]
        (self._rewrite_map if is_map else self.rewrite_struct)(opens, kind)

    def _rewrite_map(self, opens: Ints, kind: pa.DataType) -> None:
        if not len(opens):
            return
        marks = self.marks
        members = marks.in_brackets(opens)
        keys = marks.keys(members)
        closes = members[np.append(np.flatnonzero(_is_open(marks.octet[members]))[1:], len(members)) - 1]
        has_entries = marks.place[closes] > marks.place[opens] + 1
        self._doubt(closes[(marks.octet[closes] != _CLOSE) | (has_entries & (closes == opens + 1))])
        self.octets[marks.place[opens]] = _BEGIN_LIST
        self.octets[marks.place[closes]] = _END_LIST
        self.inserted[marks.place[keys]] = _KEY
        self.inserted[marks.place[keys + 1]] = _VALUE
        self.inserted[marks.place[members[marks.octet[members] == _COMMA]]] = _END
        self.inserted[marks.place[closes[has_entries]]] = _END
        if may_hold_map(kind.item_type):
            self._rewrite_values(keys + 2, kind.item_type)

    def _having_name(self, keys: Ints, name: str) -> Ints:
        """The ``keys`` that are ``name``, written without escapes."""
        spelled = f'"{name}"'.encode()
        place = self.marks.place
        keys = keys[place[keys] + len(spelled) <= place[keys + 1]]
        for at in (len(spelled) - 1, *range(1, len(spelled) - 1)):  # the length tells most of them apart
            keys = keys[self.octets[place[keys] + at] == spelled[at]]
        return keys

    def _doubt_escaped(self, keys: Ints) -> None:
        """Doubt lines with a key that may be a name in another spelling."""
        if len(self.backslashes):
            begin, end = (np.searchsorted(self.backslashes, self.marks.place[at]) for at in (keys, keys + 1))
            self._doubt(keys[begin < end])

    def _doubt(self, marks: Ints) -> None:
        self.certain[np.searchsorted(self.offsets, self.marks.place[marks], "right") - 1] = False

    def lines(self) -> tuple[pa.Array, NDArray[np.bool_]]:
        """The lines with the changes, and which of them are certain."""
        places = np.flatnonzero(self.inserted != 0)
        width = _INSERTED.shape[1]
        offsets = self.offsets + width * np.searchsorted(places, self.offsets)
        if offsets[-1] + len(self.certain) > MOST_BYTES.value:
            return pa.array([b""] * len(self.certain), pa.binary()), np.zeros(len(self.certain), np.bool_)
        content = np.insert(self.octets, np.repeat(places, width), _INSERTED[self.inserted[places]].reshape(-1))
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
        return pa.Array.from_buffers(pa.binary(), len(self.certain), buffers), self.certain


def _is_open(octet: _Bytes) -> NDArray[np.bool_]:
    is_open: NDArray[np.bool_] = (octet == _OPEN) | (octet == _BEGIN_LIST)
    return is_open
