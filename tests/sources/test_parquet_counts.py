"""A Parquet file whose own counts or checksums disagree is not read (docs/judging.md)."""

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import FileSource
from headrace.formats.file_format import WHOLE_FILE, RequiredColumns, Span, UnreadableFileError, read_file
from headrace.formats.parquet_pages import data_pages
from tests.reference.strategies import examples

TABLE = pa.table(
    {
        "a": [*range(6)],
        "l": [[1, 2], [], None, [3], [4, 5, 6], [7]],
        "s": ["x", None, "y", "z", "w", "v"],
        "o": [{"x": 1}, None, {"x": None}, {"x": 4}, {"x": 5}, {"x": 6}],
    }
)
SOURCE = FileSource("landing", "parquet", {"a": int, "l": list[int], "s": str})


def parquet(**options: Any) -> bytes:
    """``TABLE`` as a file of two row groups."""
    pq.write_table(TABLE, sink := io.BytesIO(), row_group_size=3, **options)
    return sink.getvalue()


def rows(data: bytes, span: Span = WHOLE_FILE) -> dict[str, list[Any]]:
    return {
        name: values.to_pylist()
        for name, values in read_file(data, SOURCE, RequiredColumns(), "f", span).columns.items()
    }


FILE_CONTENTS = [
    parquet(write_page_checksum=True, data_page_version=version, use_dictionary=has_dictionary)
    for version in ("1.0", "2.0")
    for has_dictionary in (True, False)
]
PLAIN = parquet()
ROWS = rows(PLAIN)


def with_one_bit_flipped(data: bytes, first: int = 0) -> Iterator[bytes]:
    for place in range(first * 8, len(data) * 8):
        content = bytearray(data)
        content[place // 8] ^= 1 << place % 8
        yield bytes(content)


@pytest.mark.parametrize("number", [0, 1, 3, 5, 7, 31])
def test_a_footer_of_other_rows_than_its_row_groups_is_not_read(number: int) -> None:
    content_before, its_rows, content_behind = (
        b"\x16",
        bytes([2 * 6]),
        b"\x19\x2c",
    )  # an integer in Thrift; a list of two row groups
    lying = PLAIN.replace(
        content_before + its_rows + content_behind, content_before + bytes([2 * number]) + content_behind
    )
    stored_metadata = pq.read_metadata(io.BytesIO(lying))
    assert (stored_metadata.num_rows, stored_metadata.row_group(0).num_rows, stored_metadata.row_group(1).num_rows) == (
        number,
        3,
        3,
    )
    reason = f"its footer says that it has {number} rows, and its row groups have 6"
    for span in (WHOLE_FILE, Span(0, 1, 2), Span(3, 4, 4)):
        with pytest.raises(UnreadableFileError, match=reason):
            rows(lying, span)


@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_page_is_held_to_its_checksum(has_checksums: bool) -> None:
    data = parquet(write_page_checksum=has_checksums, use_dictionary=False, compression="none")
    place = data.index(b"".join(number.to_bytes(8, "little") for number in (1, 2))) + 8
    damaged_data = data[:place] + b"\x07" + data[place + 1 :]
    if has_checksums:
        with pytest.raises(UnreadableFileError, match="CRC checksum verification failed"):
            rows(damaged_data)
    else:  # nothing in the file says that it was another number
        assert rows(damaged_data)["a"] == [0, 1, 7, 3, 4, 5]


def test_pages_have_as_many_values_as_the_footer_says() -> None:
    """The number of values in a page's header is in no checksum, and Arrow would fill lists up from the next page."""
    for data in FILE_CONTENTS[1::2]:
        column = pq.read_metadata(io.BytesIO(data)).row_group(0).column(1)
        end = column.data_page_offset + column.total_compressed_size
        (page,) = data_pages(data, column.data_page_offset, end)
        assert (page.values, page.end) == (4, end)
        refusals = 0
        for content in with_one_bit_flipped(data[:end], column.data_page_offset):
            try:
                (other,) = data_pages(content, column.data_page_offset, end)
            except ValueError:
                continue
            if other.values != 4 and other.end == end:
                refusals += 1
                with pytest.raises(UnreadableFileError):
                    rows(content + data[end:])
        assert refusals > 3


@given(st.sampled_from(FILE_CONTENTS), st.integers(0, 10**6))
@examples(2_000)
def test_a_file_with_a_wrong_bit_is_right_or_unreadable(data: bytes, place: int) -> None:
    """But for the name of a column, which may become that of another, so that the source's is missing: a run says that;
    and the lengths of levels in the header of a page of version 2.
    """
    content = bytearray(data)
    content[place // 8 % len(data)] ^= 1 << place % 8
    try:
        found_rows = rows(bytes(content))
    except UnreadableFileError:
        return
    wrong = {name: values for name, values in found_rows.items() if values != ROWS[name]}
    assert all(set(values) == {None} for values in wrong.values()) or data in FILE_CONTENTS[2:]


def test_columns_that_are_not_read_may_be_as_they_are() -> None:
    assert {name: TABLE.column(name).to_pylist() for name in "als"} == ROWS
    for data in FILE_CONTENTS:
        assert rows(data) == ROWS
        pieces = [rows(data, Span(number, number + 1, 3)) for number in range(3)]
        assert [value for piece in pieces for value in piece["a"]] == ROWS["a"]


def test_what_was_recorded_is_read_as_the_footer_said() -> None:
    lying = PLAIN.replace(b"\x16\x0c\x19\x2c", b"\x16\x06\x19\x2c")
    records = read_file(lying, SOURCE, RequiredColumns(), "f", rules=0)
    assert records.columns["a"].to_pylist() == [0, 1, 2]
    with pytest.raises(UnreadableFileError):
        read_file(lying, SOURCE, RequiredColumns(), "f", rules=1)
