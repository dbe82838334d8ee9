"""Strings as bytes, a column at a time: words, checksums, values and maps in JSON, whether they are UTF-8,
automata.
"""

import math
import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from json import loads
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from numpy.typing import NDArray

from headrace.kernel.columns import Groups, Ints, arrow_scalar, as_numpy, items_at, of_lists, true_mask
from headrace.model.expressions.data_types import is_text

Words = NDArray[np.uint64]

_PAD = np.zeros(8, np.uint8)
_ONES = np.uint64(2**64 - 1)


class Octets(msgspec.Struct, frozen=True):
    """The bytes of a column of strings, eight at a time. ``words`` has a word for each place in memory: the eight bytes
    from there on, little endian. String ``i`` is ``lengths[i]`` bytes from place ``starts[i]`` on; eight before and
    after may be read.
    """

    words: Words
    starts: Ints
    lengths: Ints

    def words_from_start(self, rows: Ints, offset: int) -> Words:
        """The eight bytes from ``offset`` on of the strings of ``rows``, which go further; zeros after their ends."""
        words: Words = self.words[self.starts[rows] + offset]
        words &= _ONES >> self._missing_bits(rows, offset)
        return words

    def words_before_end(self, rows: Ints, offset: int) -> Words:
        """The eight bytes that end ``offset`` before the end, as ``words_from_start``; zeros before the beginning."""
        words: Words = self.words[self.starts[rows] + self.lengths[rows] - offset - 8]
        words &= _ONES << self._missing_bits(rows, offset)
        return words

    def _missing_bits(self, rows: Ints, offset: int) -> Words:
        """How many of 64 bits from ``offset`` bytes on are not of the string any more."""
        missing: Ints = np.maximum(offset + 8 - self.lengths[rows], 0) * 8
        return missing.astype(np.uint64)


def to_octets(strings: pa.Array) -> Octets:
    """The bytes of ``strings`` in UTF-8; NULL has none."""
    _, offsets, data = strings.buffers()
    ends = np.frombuffer(offsets, np.int32)[strings.offset : strings.offset + len(strings) + 1].astype(np.int64)
    own_bytes = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data is not None else _PAD[:0]
    padded_bytes = np.concatenate([_PAD, own_bytes, _PAD])
    words = np.ndarray((len(own_bytes) + 9,), "<u8", padded_bytes.data, strides=(1,))
    lengths = np.diff(ends)
    if strings.null_count:
        lengths[as_numpy(strings.is_null())] = 0
    return Octets(words, ends[:-1] - ends[0] + 8, lengths)


@cache
def _crc_tables() -> list[NDArray[np.uint32]]:
    """What each two of eight bytes add to the register of a CRC-32 after them."""
    single = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        single = np.where(
            single & np.uint32(1), (single >> np.uint32(1)) ^ np.uint32(0xEDB88320), single >> np.uint32(1)
        )
    by_byte = [single]
    for _ in range(7):
        last = by_byte[-1]
        by_byte.append(single[last & np.uint32(0xFF)] ^ (last >> np.uint32(8)))
    pairs = np.arange(1 << 16)
    return [by_byte[7 - i][pairs & 0xFF] ^ by_byte[6 - i][pairs >> 8] for i in (0, 2, 4, 6)]


def crc32(strings: pa.Array) -> pa.Array:
    """CRC-32 of each string in UTF-8, an int from 0 to 2^32 - 1.

    A register of zero stays so over zeros, so strings may begin with as many as make them whole words long; the ones
    that the register begins with come in by the length alone.
    """
    text = to_octets(strings)
    words = -(-text.lengths // 8)
    longest_first = np.argsort(-words, kind="stable")
    fewer = -words[longest_first]
    register = np.zeros(len(text.lengths), np.uint32)
    tables = _crc_tables()
    for left in range(int(words.max(initial=0)), 0, -1):
        rows = longest_first[: np.searchsorted(fewer, -left, side="right")]
        word = text.words_before_end(rows, 8 * (left - 1)) ^ register[rows]
        crc = tables[0][word & np.uint64(0xFFFF)]
        for i in (1, 2, 3):
            crc ^= tables[i][(word >> np.uint64(16 * i)) & np.uint64(0xFFFF)]
        register[rows] = crc
    lengths, which = np.unique(text.lengths, return_inverse=True)
    of_zeros = np.array([zlib.crc32(bytes(int(length))) for length in lengths], np.uint32)
    values = (register ^ of_zeros[which]).astype(np.int64)
    return pa.array(values, mask=as_numpy(strings.is_null()) if strings.null_count else None)


def hash_strings(values: pa.Array, algorithm: Callable[..., Any]) -> pa.Array:
    """The digest of each string in UTF-8, or of bytes, in hexadecimal digits; it is computed once of equal ones."""
    dictionary = values.dictionary_encode()
    different = dictionary.dictionary.cast(pa.binary()).to_pylist()
    # not for security: else a Python that keeps to FIPS has no MD5
    digests = [algorithm(value, usedforsecurity=False).hexdigest() for value in different]
    return pa.array(digests, pa.string()).take(dictionary.indices)


PathStep = str | int
"""The name of a member of an object, or the place of an item of a list."""

_DEEPEST_JSON = 500
_BLANKS = " \t\n\r"
_FEW_TEXTS = 256


def json_values(texts: pa.Array, path: Sequence[PathStep], kind: pa.DataType) -> pa.Array:
    """What stands at ``path`` in JSON, NULL where that is nothing of ``kind``: string, int64, float64 or bool.

    Arrow reads objects, as many as it can at once. What it reads otherwise than RFC 8259 has it, or not at all, is read
    by Python.
    """
    texts = pc.utf8_trim(texts, characters=_BLANKS)
    plain = _are_plain(texts) if isinstance(path[0], str) else np.zeros(len(texts), np.bool_)
    values = _extract_members(texts.filter(pa.array(plain)), path, kind)
    if not plain.all():
        others = _members_one_by_one(texts.filter(pa.array(~plain)), path, kind)
        values = pc.replace_with_mask(
            pc.replace_with_mask(pa.nulls(len(texts), kind), pa.array(plain), values), pa.array(~plain), others
        )
    if kind == pa.float64():  # -0.0 is 0.0
        values = pc.if_else(pc.is_finite(values), pc.add(values, arrow_scalar(0.0)), pa.scalar(None, kind))
    return values


def _are_plain(texts: pa.Array) -> NDArray[np.bool_]:
    """Which may be objects that Arrow reads as they are: it takes NaN for a number, and any depth. One of these cannot
    end within the next, so as many objects as texts are one of each.
    """
    are_objects = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    are_odd = pc.or_(pc.match_substring(texts, "NaN"), pc.match_substring(texts, "Inf"))
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > 2 * _DEEPEST_JSON:
        are_odd = pc.or_(are_odd, pc.greater(pc.count_substring_regex(texts, "[{[]"), _DEEPEST_JSON))
    return true_mask(pc.and_not(are_objects, are_odd))


def _extract_members(texts: pa.Array, path: Sequence[PathStep], kind: pa.DataType) -> pa.Array:
    """Values of many texts; where one of them stops Arrow, of both halves."""
    values = _members_at_once(texts, path, kind) if len(texts) else pa.nulls(0, kind)
    if values is not None:
        return values
    if len(texts) <= _FEW_TEXTS:
        return _members_one_by_one(texts, path, kind)
    half = len(texts) // 2
    return pa.concat_arrays([_extract_members(part, path, kind) for part in (texts[:half], texts[half:])])


def _members_at_once(texts: pa.Array, path: Sequence[PathStep], kind: pa.DataType) -> pa.Array | None:
    for step in reversed(path[1:]):
        kind = pa.struct([(step, kind)]) if isinstance(step, str) else pa.list_(kind)
    as_one_list = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    lines = pc.binary_join(as_one_list, arrow_scalar("\n"))[0].as_buffer()
    schema = pa.schema([(path[0], kind)])
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            # a single block: Arrow refuses an object that is longer than one
            pj.ReadOptions(use_threads=False, block_size=lines.size + 1),
            pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:  # it does not say of which text
        return None
    if len(table) != len(texts):
        return None
    values = table.column(0).combine_chunks()
    for step in path[1:]:
        values = pc.struct_field(values, step) if isinstance(step, str) else items_at(values, step)
    return values


def _members_one_by_one(texts: pa.Array, path: Sequence[PathStep], kind: pa.DataType) -> pa.Array:
    accept_member = _MEMBER_CHECKS[kind]
    return pa.array([accept_member(_member_at_path(text, path)) for text in texts.to_pylist()], kind)


def _member_at_path(text: str | None, path: Sequence[PathStep]) -> Any:
    """What stands at ``path``; None if the text is no JSON."""
    if text is None or _nesting_depth(text) > _DEEPEST_JSON:
        return None
    try:
        value = loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)
    except ValueError:
        return None
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and -len(value) <= step < len(value) else None
    return value


def _nesting_depth(text: str) -> int:
    brackets = [sign for sign in _TOKENS.findall(text) if sign[0] != '"']
    return max(accumulate(1 if sign in "[{" else -1 for sign in brackets), default=0)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _parse_int(digits: str) -> int | float:
    return int(digits) if len(digits) <= _MOST_INTEGER_DIGITS else float(digits)


def _float_or_none(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[{}\]]', re.DOTALL)
_MOST_INTEGER_DIGITS = 300
"""The most digits of a whole number that a float holds."""

_MEMBER_CHECKS: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.string(): lambda value: value if isinstance(value, str) and is_text(value) else None,
    pa.int64(): lambda value: value if type(value) is int and -(2**63) <= value < 2**63 else None,
    pa.float64(): _float_or_none,
    pa.bool_(): lambda value: value if isinstance(value, bool) else None,
}


_Octets = NDArray[np.uint8]

_FOLLOW = np.zeros(256, np.int8)
"""How many bytes follow the first one of a character."""
_FOLLOW[0xC2:0xE0], _FOLLOW[0xE0:0xF0], _FOLLOW[0xF0:0xF5] = 1, 2, 3

_INVALID_OCTETS = np.zeros(256, np.bool_)
_INVALID_OCTETS[[0xC0, 0xC1, *range(0xF5, 0x100)]] = True

_SECOND_BYTES = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
"""First bytes after which not every second one may stand."""

_PADDING_BYTES = bytes(3)
"""Stands behind each value: a character that is cut there lacks three bytes at most, and takes none of the next one."""


def text_of(values: pa.Array) -> pa.Array:
    """Bytes as strings, NULL where they are not UTF-8."""
    try:
        return pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        utf8_values = pc.if_else(pa.array(are_text(values)), values, pa.scalar(None, values.type))
        return pc.cast(utf8_values, pa.string())


def are_text(values: pa.Array) -> NDArray[np.bool_]:
    """Which values of a binary column are UTF-8 (RFC 3629); NULL is."""
    joined_bytes = pc.binary_join_element_wise(
        values.cast(pa.binary()).fill_null(b""), arrow_scalar(_PADDING_BYTES), arrow_scalar(b"")
    )
    offsets = np.frombuffer(joined_bytes.buffers()[1], np.int32)[
        joined_bytes.offset : joined_bytes.offset + len(joined_bytes) + 1
    ]
    octets = np.frombuffer(joined_bytes.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    wrong = np.concatenate([_invalid_bytes(octets), [False]])
    valid: NDArray[np.bool_] = ~np.logical_or.reduceat(wrong, offsets[:-1] - offsets[0]) if len(values) else wrong[:0]
    return valid


def _invalid_bytes(octets: _Octets) -> NDArray[np.bool_]:
    """Where a byte stands that cannot stand there; none of a value is past its end."""
    follow = _FOLLOW[octets]
    must_follow = np.zeros(len(octets) + 3, np.bool_)
    for distance in (1, 2, 3):
        must_follow[distance : distance + len(octets)] |= follow >= distance
    wrong: NDArray[np.bool_] = ((octets & 0xC0) == 0x80) != must_follow[: len(octets)]
    wrong |= _INVALID_OCTETS[octets]
    second = octets[1:]
    for first, (low, high) in _SECOND_BYTES.items():
        wrong[1:] |= (octets[:-1] == first) & ((second < low) | (second > high))
    return wrong


_SHORT_TEXT = 64


def walk_automata(states: pa.Array, codes: pa.Array, moves: Ints) -> pa.Array:
    """Where automata at ``states`` are after the lists ``codes``; a code leads to ``moves[state, code]``."""
    items, groups = of_lists(codes)
    symbols = as_numpy(items).astype(np.int64, copy=False)
    return pa.array(_walk_lists(as_numpy(states).copy(), symbols, groups, moves))


def _walk_lists(states: Ints, symbols: Ints, groups: Groups, moves: Ints) -> Ints:
    """One code of every list after another; long lists in pieces, with where each leads from every state."""
    longest = int(groups.sizes.max(initial=0))
    if longest <= _SHORT_TEXT:
        return _step_through_items(states, groups, lambda states, items: moves[states, symbols[items]])
    piece = int(np.sqrt(longest))
    pieces, numbers = _cut_into_pieces(groups, piece)
    every = np.tile(np.arange(len(moves), dtype=np.int64), (len(pieces), 1))
    leads = _step_through_items(every, pieces, lambda states, items: moves[states, symbols[items][:, None]])
    return _step_through_items(states, numbers, lambda states, items: leads[items, states])


def _cut_into_pieces(groups: Groups, size: int) -> tuple[Groups, Groups]:
    """The groups cut into pieces of at most ``size`` items, and which pieces are whose."""
    counts = -(-groups.sizes // size)
    numbers = Groups(np.append(0, np.cumsum(counts)))
    place = np.arange(numbers.offsets[-1], dtype=np.int64) - np.repeat(numbers.offsets[:-1], counts)
    starts = np.repeat(groups.offsets[:-1], counts) + place * size
    return Groups(np.append(starts, groups.offsets[-1])), numbers


def _step_through_items(list_states: Ints, groups: Groups, step: Callable[[Ints, Ints], Ints]) -> Ints:
    """``list_states``, an entry for each group, after a step with each of its items in turn."""
    longest_first = np.argsort(-groups.sizes, kind="stable")
    sizes, starts, list_states = (
        groups.sizes[longest_first],
        groups.offsets[:-1][longest_first],
        list_states[longest_first],
    )
    for i in range(int(sizes.max(initial=0))):
        rows = int(np.searchsorted(-sizes, -i, side="left"))
        list_states[:rows] = step(list_states[:rows], starts[:rows] + i)
    states = np.empty_like(list_states)
    states[longest_first] = list_states
    return states


# --- maps in JSON
#
# Arrow's parser takes no object for a map, but a list of entries. ``{"a":1,"b":2}`` becomes
# ``[{"k":"a","v":1},{"k":"b","v":2}]``, in all lines of a block at once. A line goes by its marks: brackets, colons,
# commas and the beginnings of strings. What is between them stays as it is, and so does all that is in no map. So a
# line that is no JSON does not become some: entries are set in brackets by their colons and commas, and brackets that
# do not fit are left to the parser to refuse.

_Bytes = NDArray[np.uint8]

_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE, _BEGIN_LIST, _END_LIST = b'":,{}[]'
_MARKS: Final = bytes(octet if octet in b'":,{}[]' else 0 for octet in range(256))
"""What stays of a text of which only the marks count, for ``bytes.translate``."""

_KEY, _VALUE, _END = 1, 2, 3
_INSERTIONS: Final = np.frombuffer(b'     {"k": ,"v"    }', np.uint8).reshape(4, 5)
"""What goes before a key, the colon behind it, and the end of its entry; blanks make them equally long."""


def may_hold_map(kind: pa.DataType) -> bool:
    """Whether values of ``kind`` have maps where ``with_entries`` looks for them."""
    if pa.types.is_struct(kind):
        return any(may_hold_map(field.type) for field in kind)
    return bool(pa.types.is_map(kind) or (pa.types.is_list(kind) and may_hold_map(kind.value_type)))


def entries_type(kind: pa.DataType) -> pa.DataType:
    """The type as which Arrow's parser reads ``kind``; ``pa.Array.view`` makes ``kind`` of it."""
    if pa.types.is_map(kind):
        return pa.list_(pa.struct([("k", kind.key_type), ("v", entries_type(kind.item_type))]))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, entries_type(field.type)) for field in kind])
    return pa.list_(entries_type(kind.value_type)) if pa.types.is_list(kind) else kind


def with_entries(text: pa.Array, schema: pa.Schema, most_bytes: int) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Write maps as lists of entries.

    :param text: lines, of which each may be a record.
    :param schema: the columns, with the maps that are in them.
    :param most_bytes: how long they may become; else all are doubtful.
    :returns: the lines; and which of them say what they said. Others are doubtful: they are to be read by themselves.
    """
    offsets = np.frombuffer(text.buffers()[1], np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    content = bytes(memoryview(text.buffers()[2])[offsets[0] : offsets[-1]])
    rewriting = _Rewriting(content, offsets - offsets[0])
    rewriting.rewrite_struct(rewriting.records(), pa.struct(list(schema)))
    return rewriting.lines(most_bytes)


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

    def opens_within(self, opens: Ints) -> Ints:
        """The brackets that open directly in brackets; ``opens`` are of one depth."""
        level = np.flatnonzero(self.depth == self.depth[opens[0]])
        inner = np.flatnonzero((self.depth == self.depth[opens[0]] + 1) & _is_open(self.octet))
        begins = level[_is_open(self.octet[level])]
        outer = begins[np.searchsorted(begins, inner) - 1]
        inner_opens: Ints = inner[np.isin(outer, opens)]
        return inner_opens

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
        self.insertion_numbers = np.zeros(len(content), np.uint8)
        self.certain = np.ones(len(offsets) - 1, np.bool_)
        self.marks = self._find_marks(content)

    def _find_marks(self, content: bytes) -> _Marks:
        # pairs go from left to right, as a parser takes them
        unescaped_content = content.replace(rb"\\", b"  ").replace(rb"\"", b"  ") if len(self.backslashes) else content
        octets = np.frombuffer(unescaped_content.translate(_MARKS), np.uint8)
        place = np.flatnonzero(octets != 0)
        octet = octets[place]
        bounds = np.searchsorted(place, self.offsets)
        is_quote = octet == _QUOTE
        quotes = np.append(0, np.cumsum(is_quote))
        self.certain &= np.diff(quotes[bounds]) % 2 == 0
        quotes_in_line = quotes[:-1] - np.repeat(quotes[bounds[:-1]], np.diff(bounds))
        kept_marks = np.flatnonzero((quotes_in_line % 2 == 0) & np.repeat(self.certain, np.diff(bounds)))
        place, octet = place[kept_marks], octet[kept_marks]

        bounds = np.searchsorted(place, self.offsets)
        is_close = (octet == _CLOSE) | (octet == _END_LIST)
        depths = np.append(0, np.cumsum(_is_open(octet).astype(np.int64) - is_close))
        depth_after = depths[1:] - np.repeat(depths[bounds[:-1]], np.diff(bounds))
        bottoms = np.append(0, np.cumsum(depth_after <= 0))
        # the last bracket, and no other mark, leaves the line's own object
        self.certain &= (np.diff(depths[bounds]) == 0) & (np.diff(bottoms[bounds]) == 1)
        kept_marks = np.flatnonzero(np.repeat(self.certain, np.diff(bounds)))
        return _Marks(place[kept_marks], octet[kept_marks], (depth_after + is_close)[kept_marks])

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
        """Rewrite values of ``kind``; ``values`` are the marks behind colons, which are no part of a number or null, or
        brackets in a list.
        """
        octet = self.marks.octet[values]
        if pa.types.is_list(kind):
            lists = values[octet == _BEGIN_LIST]
            if len(lists):
                self._rewrite_values(self.marks.opens_within(lists), kind.value_type)
        elif pa.types.is_map(kind):
            self._doubt(values[octet == _BEGIN_LIST])  # it would be one of entries
            self._rewrite_map(values[octet == _OPEN], kind)
        else:
            self.rewrite_struct(values[octet == _OPEN], kind)

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
        self.insertion_numbers[marks.place[keys]] = _KEY
        self.insertion_numbers[marks.place[keys + 1]] = _VALUE
        self.insertion_numbers[marks.place[members[marks.octet[members] == _COMMA]]] = _END
        self.insertion_numbers[marks.place[closes[has_entries]]] = _END
        if may_hold_map(kind.item_type):
            self._rewrite_values(keys + 2, kind.item_type)

    def _having_name(self, keys: Ints, name: str) -> Ints:
        """The ``keys`` that are ``name``, written without escapes."""
        quoted_name = f'"{name}"'.encode()
        place = self.marks.place
        keys = keys[place[keys] + len(quoted_name) <= place[keys + 1]]
        for offset in (len(quoted_name) - 1, *range(1, len(quoted_name) - 1)):  # the length tells most of them apart
            keys = keys[self.octets[place[keys] + offset] == quoted_name[offset]]
        return keys

    def _doubt_escaped(self, keys: Ints) -> None:
        """Doubt lines with a key that may be a name in another spelling."""
        if len(self.backslashes):
            begin, end = (np.searchsorted(self.backslashes, self.marks.place[marks]) for marks in (keys, keys + 1))
            self._doubt(keys[begin < end])

    def _doubt(self, marks: Ints) -> None:
        self.certain[np.searchsorted(self.offsets, self.marks.place[marks], "right") - 1] = False

    def lines(self, most_bytes: int) -> tuple[pa.Array, NDArray[np.bool_]]:
        """The lines with the changes, and which of them are certain."""
        places = np.flatnonzero(self.insertion_numbers != 0)
        width = _INSERTIONS.shape[1]
        offsets = self.offsets + width * np.searchsorted(places, self.offsets)
        if offsets[-1] + len(self.certain) > most_bytes:
            return pa.array([b""] * len(self.certain), pa.binary()), np.zeros(len(self.certain), np.bool_)
        content = np.insert(
            self.octets, np.repeat(places, width), _INSERTIONS[self.insertion_numbers[places]].reshape(-1)
        )
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
        return pa.Array.from_buffers(pa.binary(), len(self.certain), buffers), self.certain


def _is_open(octet: _Bytes) -> NDArray[np.bool_]:
    is_open: NDArray[np.bool_] = (octet == _OPEN) | (octet == _BEGIN_LIST)
    return is_open
