"""The envelope of every control object, and reading JSON with a clear word about what is wrong with it.

An object is ``{"format": 1, "kind": ..., "sha256": ..., "content": {...}}``; the checksum is over the canonical JSON
of the content. Formats are read for ever: a change that an older reader would misread raises the number.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from headrace.errors import RestoreError

FORMAT = 4
"""The newest that is read. Written is the lowest that holds what there is to say: 2 since there is expiry, 3 of a
manifest whose outputs have names, and of an entry that publishes such. It is 4 of an entry after rows were handed over
to a sink that cannot take back.
"""

JSON: TypeAlias = Any
"""Whatever ``json`` reads and writes: None, bool, int, finite float, str, and lists and string-keyed dicts of these."""

_TAIL = b"}\n"

Result = TypeVar("Result")


class BrokenObjectError(RestoreError, code="restore.broken_object"):
    """A stored object is not what its writer wrote: cut off, changed, or of another kind."""


class NewerFormatError(RestoreError, code="restore.newer_format"):
    """A stored object was written by a newer version of Headrace."""


class MalformedError(ValueError):
    """Content that lacks a field or has one of a wrong type; ``decode`` turns it into BrokenObjectError."""


def canonical(content: JSON) -> bytes:
    """One spelling of ``content``: sorted keys, no spaces, ASCII. Raises ValueError for NaN and infinities."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def checksum(data: bytes | memoryview) -> str:
    """Hex SHA-256."""
    return hashlib.sha256(data).hexdigest()


def encode(kind: str, content: JSON, number: int = 1) -> bytes:
    """The object that holds ``content``, whose format has that number."""
    body = canonical(content)
    return _head(kind, number, checksum(body)) + body + _TAIL


def decode(kind: str, data: bytes, name: str, parse: Callable[[JSON], Result]) -> Result:
    """What ``parse`` makes of the content of the object called ``name``.

    Raises BrokenObjectError or NewerFormatError, naming the object.
    """
    try:
        envelope = Fields(json.loads(data), "object")
        if envelope.integer("format") > FORMAT:
            raise NewerFormatError(
                f"{name} has format {envelope.integer('format')}, this Headrace reads up to {FORMAT}: upgrade it. Or "
                "if no newer one ever wrote here, the object is damaged: restore it from a backup"
            )
        if envelope.text("kind") != kind:
            raise MalformedError(f"it is a {envelope.text('kind')}, not a {kind}")
        if envelope.integer("format") < 1:
            raise MalformedError(f"there is no format {envelope.integer('format')}")
        content = envelope.fields("content")
        if not _is_as_written(data, kind, envelope) and checksum(canonical(content.value)) != envelope.text("sha256"):
            raise MalformedError("its checksum does not match its content")
        return parse(content.value)
    except ValueError as error:
        raise BrokenObjectError(
            f"{name} is broken ({len(data)} bytes): {error}; restore it from a backup, or continue "
            "from an older snapshot"
        ) from error


def _head(kind: str, number: int, sha256: str) -> bytes:
    return f'{{"format":{number},"kind":{json.dumps(kind)},"sha256":"{sha256}","content":'.encode()


def _is_as_written(data: bytes, kind: str, envelope: "Fields") -> bool:
    """Whether ``data`` is, byte for byte, what ``encode`` makes: then nothing has to be spelled once more."""
    sha256 = envelope.text("sha256")
    head = _head(kind, envelope.integer("format"), sha256)
    body = memoryview(data)[len(head) : -len(_TAIL)]
    return data.startswith(head) and data.endswith(_TAIL) and checksum(body) == sha256


class Fields:
    """A JSON object that is read field by field. Every reader raises MalformedError, saying where."""

    def __init__(self, value: JSON, where: str) -> None:
        if not isinstance(value, dict):
            raise MalformedError(f"{where} is {_name(value)}, not an object")
        self.value: dict[str, JSON] = value
        self.where = where

    def text(self, name: str) -> str:
        """A string."""
        value = self._get(name)
        if not isinstance(value, str):
            raise self._wrong(name, value, "a string")
        return value

    def optional_text(self, name: str) -> str | None:
        """A string or null."""
        return None if self._get(name) is None else self.text(name)

    def integer(self, name: str) -> int:
        """A whole number."""
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, value, "an integer")
        return value

    def optional_integer(self, name: str) -> int | None:
        """A whole number or null."""
        return None if self._get(name) is None else self.integer(name)

    def number(self, name: str) -> float:
        """Any number."""
        value = self._get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(name, value, "a number")
        return float(value)

    def json(self, name: str) -> JSON:
        """Anything; the field must be there."""
        return self._get(name)

    def fields(self, name: str) -> "Fields":
        """A nested object."""
        return Fields(self._get(name), f"{self.where}.{name}")

    def optional_fields(self, name: str) -> "Fields | None":
        """A nested object; None where there is no such field."""
        return self.fields(name) if name in self.value else None

    def array(self, name: str) -> list[JSON]:
        """An array."""
        value = self._get(name)
        if not isinstance(value, list):
            raise self._wrong(name, value, "an array")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """An array of strings."""
        values = self.array(name)
        if not all(isinstance(value, str) for value in values):
            raise self._wrong(name, values, "an array of strings")
        return tuple(values)

    def items(self, name: str, parse: "Callable[[Fields], Result]") -> tuple[Result, ...]:
        """An array of objects, each given to ``parse``."""
        where = f"{self.where}.{name}"
        return tuple(parse(Fields(value, f"{where}[{n}]")) for n, value in enumerate(self.array(name)))

    def mapping(self, name: str, read: "Callable[[Fields, str], Result]") -> Mapping[str, Result]:
        """A nested object whose fields are all read by ``read`` (such as ``Fields.integer``)."""
        nested = self.fields(name)
        return {key: read(nested, key) for key in nested.value}

    def _get(self, name: str) -> JSON:
        if name not in self.value:
            raise MalformedError(f"{self.where} has no field {name!r}")
        return self.value[name]

    def _wrong(self, name: str, value: JSON, wanted: str) -> MalformedError:
        return MalformedError(f"{self.where}.{name} is {_name(value)}, not {wanted}")


def _name(value: JSON) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"
