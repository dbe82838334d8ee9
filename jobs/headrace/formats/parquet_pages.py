"""What the headers of Parquet's pages say: how many values each has. Arrow reads as many as the footer says of a
column, whatever lies in its pages.

A header is a struct in Thrift's compact protocol, of which a page's sizes and counts are read and the rest is skipped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

_DATA_PAGE, _DATA_PAGE_V2 = 0, 3
_MOST_HEADER: Final = 1 << 20
"""How long a header may be: it may have the least and the greatest value of its page."""

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)


@dataclass(frozen=True)
class DataPage:
    """A page of values: how many, NULLs and empty lists included, and where it ends. ``rows``: None if it says none."""

    values: int
    rows: int | None
    end: int


def data_pages(data: bytes, begin: int, end: int) -> Iterator[DataPage]:
    """The data pages between two places, as far as there are headers. Raises ValueError where there is none."""
    at = begin
    while at < end:
        begin_of_header = at
        try:
            header, at = _struct(data, at)
            size, kind = _number(header, 3), _number(header, 1)
            page = header[5 if kind == _DATA_PAGE else 8] if kind in (_DATA_PAGE, _DATA_PAGE_V2) else None
            at += size
            if size < 0 or at > len(data):
                raise ValueError(f"a page of {size} bytes ends at byte {at}")
            if page is not None:
                yield DataPage(_number(page, 1), _number(page, 3) if kind == _DATA_PAGE_V2 else None, at)
        except (IndexError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"no page header at byte {begin_of_header}") from error


def _number(fields: dict[int, Any], name: int) -> int:
    number = fields[name]
    if type(number) is not int:
        raise TypeError
    return number


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[at]) & 0xF != _STOP:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        fields[number], at = _value(data, at, head & 0xF)
    return fields, at + 1


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind in (_I16, _I32, _I64):
        return _zigzag(data, at)
    if kind == _STRUCT:
        return _struct(data, at)
    if kind == _BINARY:
        length, at = _varint(data, at)
        if length > _MOST_HEADER:
            raise IndexError
        return None, at + length
    if kind in (_BYTE, _DOUBLE):
        return None, at + (1 if kind == _BYTE else 8)
    raise KeyError(kind)  # no header has lists or maps


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while (octet := data[at]) & 0x80:
        number |= (octet & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift > 63:
            raise IndexError
    return number | octet << shift, at + 1
