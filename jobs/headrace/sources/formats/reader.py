"""A landed file as records of its source's schema, whatever its format."""

import zlib
from dataclasses import replace

import pyarrow as pa

from headrace.pipeline.sources import FileFormat, FileSource
from headrace.sources.formats.csv_lines import read_csv_lines, read_header
from headrace.sources.formats.errors import LargeFileError, UnreadableFileError
from headrace.sources.formats.json_lines import lacking, read_json_lines
from headrace.sources.formats.lines import cut, first_line
from headrace.sources.formats.parquet import read_parquet
from headrace.sources.formats.scan import Scanned, nothing
from headrace.sources.formats.spans import WHOLE_FILE, Span
from headrace.sources.required_columns import Required

_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""Compressions of text files, by how the name ends."""

MOST_BYTES = 2**31 - 16
"""How much text is cut into lines as one piece: offsets of Arrow's strings have 32 bits."""


def is_divisible(source: FileSource, path: str) -> bool:
    """Whether reading a part of a file takes less work than reading all of it."""
    return source.format is FileFormat.PARQUET or _codec(path) is None


def read_file(data: bytes, source: FileSource, required: Required, path: str, span: Span = WHOLE_FILE) -> Scanned:
    """The records in the ``span`` of a file with the content ``data``, which must have what is ``required``.

    Raises UnreadableFileError if it is not a whole file of its format, FileColumnsError for a column that is missing or
    does not fit, LargeFileError for more text than MOST_BYTES.
    """
    if not data:
        return nothing(source.schema)
    if source.format is FileFormat.PARQUET:
        return read_parquet(data, source.schema, required, path, span)
    text = decompressed(data, path)
    begin, end = span.lines(text)
    if end - begin > MOST_BYTES:
        raise LargeFileError(path, end - begin)
    lines = cut(text, span)
    if source.format is FileFormat.JSON:
        if not len(lines):
            return nothing(source.schema)
        found = read_json_lines(lines, source.schema)
        return replace(found, lacks=lacking(found, required.columns, lines))
    header = read_header(lines if span.first == 0 and len(lines) else first_line(text), source.schema, path)
    if header is None:
        return nothing(source.schema)
    required.check(header.names, header.stored, path, "header")
    return read_csv_lines(lines, header, source.schema)


def decompressed(data: bytes, path: str) -> bytes:
    """What a text file holds, decompressed if its name says that it is compressed. Raises UnreadableFileError."""
    codec = _codec(path)
    if codec is None:
        return data
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            return bytes(stream.read())
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise UnreadableFileError(path, f"it is not a whole {codec} file ({error})") from error


def _codec(path: str) -> str | None:
    return next((name for suffix, name in _COMPRESSED.items() if path.endswith(suffix)), None)
