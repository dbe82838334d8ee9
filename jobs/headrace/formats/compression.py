"""What a text file is by its first bytes, whatever it is called: text, compressed text, or something without lines.

Each compression is held to what it carries to check itself by: lengths and checksums.
"""

import codecs
import re
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from typing import Final

import msgspec
import pyarrow as pa

from headrace.formats.file_format import UnreadableFileError

_HEAD_BYTES: Final = 65536
"""So many bytes show whether a file is text."""

_PACKED_NAME: Final = re.compile(
    r"\.(gz|gzip|tgz|bz2|bzip2|zst|zstd|lz4|xz|lzma|lzo|z|br|sz|snappy|deflate|zz|zip|7z|rar)(\.[0-9]+)?$",
    re.IGNORECASE,
)
_STRICT_NAMES: Final = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""How names end of files that are refused unless they are what that says."""


class _PackedError(Exception):
    """Why a file cannot be unpacked."""


def unpack_file(data: bytes, path: str) -> bytes:
    """The text in a file with the content ``data``, which is itself where it is not compressed. Raises
    UnreadableFileError for what is no whole file of its compression, for one in another, and for what is no text.
    """
    packing = _detect_packing(data)
    if packing is None:
        _check_name(data, path)
        text = data
    else:
        try:
            text = packing.unpack(data)
        except (_PackedError, pa.ArrowException, OSError, EOFError, zlib.error) as error:
            raise UnreadableFileError(path, f"it is not a whole {packing.name} file ({error})") from error
    if (other := what_is(text)) is not None:
        where = "" if packing is None else f" in {packing.article} {packing.name} file"
        raise UnreadableFileError(path, f"it is {other}{where}, and what is read there is text")
    return text


def unpacked_by_name(data: bytes, path: str) -> bytes:
    """The text in a file, compressed if its name says so: what was read up to 0.1.2. Raises UnreadableFileError."""
    codec = next((name for suffix, name in _STRICT_NAMES.items() if path.endswith(suffix)), None)
    if codec is None:
        return data
    try:
        return _by_arrow(data, codec)
    except (pa.ArrowException, OSError, EOFError, zlib.error) as error:
        raise UnreadableFileError(path, f"it is not a whole {codec} file ({error})") from error


def is_packed_by_name(path: str) -> bool:
    """Whether the name of a file says that it is compressed."""
    return _PACKED_NAME.search(path) is not None


def what_is(data: bytes) -> str | None:
    """What a file is that holds no lines of text, in words; None: it may be text."""
    packing = _detect_packing(data)
    if packing is not None:
        return f"{packing.article} {packing.name} file"
    known_words = (words for magic, words in _OTHER_FORMATS.items() if data.startswith(magic))
    return next(known_words, next((words for words, is_one in _OTHERS_BY_PARTS.items() if is_one(data)), None))


def _check_name(data: bytes, path: str) -> None:
    """Raise UnreadableFileError if the name says a compression, and the content does not show it."""
    strict = next((name for suffix, name in _STRICT_NAMES.items() if path.endswith(suffix)), None)
    if strict is not None:
        raise UnreadableFileError(path, f"it is not a whole {strict} file (it does not begin as one)")
    if is_packed_by_name(path) and not _is_text(data[:_HEAD_BYTES]):
        ending = path.rpartition("/")[2]
        raise UnreadableFileError(path, f"it is no text, and no compression that is read, as its name {ending} says")


def _is_text(head: bytes) -> bool:
    try:
        codecs.utf_8_decode(head, "strict", len(head) < _HEAD_BYTES)
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


# --- compressions


class _Packing(msgspec.Struct, frozen=True):
    name: str
    begins: re.Pattern[bytes]
    unpack: Callable[[bytes], bytes]
    article: str = "a"


def _by_arrow(data: bytes, codec: str) -> bytes:
    """Held to CRC-32 and length (gzip), to CRC-32 (bz2), to checksums and length (zstd and lz4, where the file has
    them).
    """
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        return bytes(stream.read())


def _unpack_xz(data: bytes) -> bytes:
    """Streams one behind the other, each held to its checks (CRC-32, CRC-64, SHA-256) and its index."""
    try:
        import lzma
    except ImportError as error:
        raise _PackedError("this Python was built without lzma, which reads such files") from error
    parts = []
    while data:
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        try:
            parts.append(stream.decompress(data))
        except lzma.LZMAError as error:
            raise _PackedError(str(error)) from error
        if not stream.eof:
            raise _PackedError("it ends early")
        data_behind = stream.unused_data
        data = data_behind.lstrip(b"\0")
        if (len(data_behind) - len(data)) % 4:
            raise _PackedError("something is behind its end")
    return b"".join(parts)


_END_OF_ZIP: Final = 22
_LOCAL_HEADER: Final = 30
_DESCRIPTORS: Final = (0, 12, 16, 20, 24)
"""How many bytes may be behind a file in an archive."""


def _unpack_zip(data: bytes) -> bytes:
    """The one file in an archive, held to its CRC-32 and length. Nothing may be in the archive but that file: what its
    directory does not name would be lost.
    """
    import zipfile  # few files are archives

    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if len(members) != 1 or len(archive.infolist()) != 1:
                raise _PackedError(f"it holds {len(members)} files, and one is read: land them as files of their own")
            (member,) = members
            name = int.from_bytes(data[26:28], "little") + int.from_bytes(data[28:30], "little")
            bytes_behind = archive.start_dir - (_LOCAL_HEADER + name + member.compress_size)
            end = len(data) - _END_OF_ZIP - len(archive.comment)
            if member.header_offset or bytes_behind not in _DESCRIPTORS or data[end : end + 4] != b"PK\5\6":
                raise _PackedError("something is in it that its directory does not name")
            return archive.read(member)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError) as error:  # encrypted, another method
        raise _PackedError(str(error)) from error


_PACKINGS: Final = (
    _Packing("gzip", re.compile(rb"\x1f\x8b"), partial(_by_arrow, codec="gzip")),
    _Packing("bz2", re.compile(rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)"), partial(_by_arrow, codec="bz2")),
    _Packing("zstd", re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18"), partial(_by_arrow, codec="zstd")),
    _Packing("lz4", re.compile(rb"\x04\x22\x4d\x18"), partial(_by_arrow, codec="lz4")),
    _Packing("xz", re.compile(rb"\xfd7zXZ\x00"), _unpack_xz, "an"),
    _Packing("zip", re.compile(rb"PK(?:\x03\x04|\x05\x06|\x07\x08)"), _unpack_zip),
)


def _detect_packing(data: bytes) -> _Packing | None:
    return next((packing for packing in _PACKINGS if packing.begins.match(data)), None)


# --- what is not read as text

_OTHER_FORMATS: Final = {
    b"Obj\x01": "an Avro file",
    b"ARROW1\0\0": "an Arrow file",
    b"SEQ\x06": "a sequence file of Hadoop",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a rar archive",
    b"LZIP\x01": "an lzip file",
    b"\x89LZO\x00\r\n": "an lzo file",
    b"\x1f\x9d": "a file of compress (.Z)",
    b"\x02\x21\x4c\x18": "an lz4 file of the old format",
    b"\xff\x06\x00\x00sNaPpY": "a framed snappy file",
    b"SQLite format 3\0": "a SQLite database",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a document of Office",
    b"%PDF-": "a PDF",
    b"\x89HDF\r\n": "an HDF5 file",
}


_OTHERS_BY_PARTS: Final[Mapping[str, Callable[[bytes], bool]]] = {
    "a Parquet file": lambda data: len(data) >= 12 and {data[:4], data[-4:]} <= {b"PAR1", b"PARE"},
    "an ORC file": lambda data: data.startswith(b"ORC") and data[-4:-1] == b"ORC",
    "a tar archive": lambda data: data[257:262] == b"ustar" and b"\0" in data[:257],
}
