"""An envelope with one of its two rows, in the very bytes of that row: numbers stay as they are written."""

import json
import re
from typing import Final

from headrace.model.changelog import DebeziumEnvelope

_BLANKS: Final = re.compile(r"[ \t\n\r]*")
_DECODER: Final = json.JSONDecoder()

Span = tuple[int, int]


def with_one_row(envelope: DebeziumEnvelope, record: bytes, sign: int) -> bytes:
    """``record``, an update, as the deletion of the row before (``sign`` -1) or the creation of the row after. It stays
    whole where it is no text of an object, as in formats that have columns.
    """
    text = record.decode()
    gone, op = (envelope.after, '"d"') if sign < 0 else (envelope.before, '"c"')
    start = 0
    for name in envelope.within:
        members = _members(text, start)
        if name not in members:
            return record
        start = members[name][0]
    members = _members(text, start)
    changes = {members[name]: value for name, value in ((gone, "null"), (envelope.op, op)) if name in members}
    for (begin, end), value in sorted(changes.items(), reverse=True):
        text = text[:begin] + value + text[end:]
    return text.encode()


def _members(text: str, start: int) -> dict[str, Span]:
    """Where the values of the object lie that begins at ``start``."""
    at = _after_blanks(text, start)
    members: dict[str, Span] = {}
    if text[at : at + 1] != "{":
        return members
    at = _after_blanks(text, at + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        begin = _after_blanks(text, _after_blanks(text, at) + 1)  # behind the colon
        _, end = _DECODER.raw_decode(text, begin)
        members[name] = (begin, end)
        at = _after_blanks(text, end)
        at = _after_blanks(text, at + (text[at] == ","))
    return members


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    return at if blanks is None else blanks.end()
