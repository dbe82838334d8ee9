"""Stored records: how one is declared, its envelope, its checksum, and a clear word about what is wrong with one.

``encode_object`` gives every control object its envelope: ``{"format": 1, "kind": ..., "sha256": ..., "content":
{...}}``; the checksum is over the canonical JSON of the content. Formats are read for ever: a change that an older
reader would misread raises the number.

``JsonRecord`` declares a stored record: a frozen struct, whose fields are those of its JSON object. A field without a
default is always there. One with a default may be missing, and then has it; a class that says ``omit_defaults`` leaves
it out where it would say only that. Fields of newer versions are passed over. A type that is not JSON's, no record and
no dataclass has ``to_json`` and ``from_json`` of its own.

``seal_fields`` gives JSON objects a checksum of their other fields: results of runs and of audits, on which others act.
``convert_value`` makes records of any kind; no thread calls msgspec's own function.
"""

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeVar

import msgspec

from headrace.errors import RestoreError
from headrace.this_process import Size

FORMAT: Final = Size(6)
"""The newest that is read. An object is written in the lowest that holds its content. That is 2 since there is expiry,
3 for a manifest whose outputs have names, and for an entry that publishes such. It is 4 for an entry after rows were
handed over to a sink that cannot take back, and 5 where the content is packed. It is 6 for a manifest that names nodes
of layers, or of which an output gives rows.
"""

_PACKED_FORMAT = 5

JSON: TypeAlias = Any
"""Whatever ``json`` reads and writes: None, bool, int, finite float, str, and lists and string-keyed dicts of these."""

_TAIL = b"}\n"

Result = TypeVar("Result")


class BrokenObjectError(RestoreError, code="restore.broken_object"):
    """A stored object is not what its writer wrote: cut off, changed, or of another kind."""


class NewerFormatError(RestoreError, code="restore.newer_format"):
    """A stored object was written by a newer version of Headrace."""


class MalformedError(ValueError):
    """Content that lacks a field or has one of a wrong type; ``decode_object`` turns it into BrokenObjectError."""


def canonical_json(content: JSON) -> bytes:
    """One spelling of ``content``: sorted keys, no spaces, ASCII. Raises ValueError for NaN and infinities."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def checksum(data: bytes | memoryview) -> str:
    """Hex SHA-256."""
    return hashlib.sha256(data).hexdigest()


def encode_object(kind: str, content: JSON, number: int = 1, packed_from: int | None = None) -> bytes:
    """The object that holds ``content``, whose format has that number; packed if its JSON has so many bytes."""
    body = canonical_json(content)
    sha256 = checksum(body)
    if packed_from is not None and len(body) >= packed_from:
        number, body = max(number, _PACKED_FORMAT), b'"%s"' % base64.b64encode(zlib.compress(body))
    return _envelope_head(kind, number, sha256) + body + _TAIL


def decode_object(kind: str, data: bytes, name: str, parse: Callable[[JSON], Result]) -> Result:
    """What ``parse`` makes of the content of the object called ``name``.

    Raises BrokenObjectError or NewerFormatError, naming the object.
    """
    try:
        envelope = Fields(json.loads(data), "object")
        if envelope.integer("format") > FORMAT.value:
            raise NewerFormatError(
                f"{name} has format {envelope.integer('format')}, this Headrace reads up to {FORMAT.value}: upgrade "
                "it. Or if no newer one ever wrote here, the object is damaged: restore it from a backup"
            )
        if envelope.text("kind") != kind:
            raise MalformedError(f"it is a {envelope.text('kind')}, not a {kind}")
        if envelope.integer("format") < 1:
            raise MalformedError(f"there is no format {envelope.integer('format')}")
        return parse(_checked_content(data, kind, envelope))
    except ValueError as error:
        raise BrokenObjectError(
            f"{name} is broken ({len(data)} bytes): {error}; restore it from a backup, or continue "
            "from an older snapshot"
        ) from error


def _envelope_head(kind: str, number: int, sha256: str) -> bytes:
    return f'{{"format":{number},"kind":{json.dumps(kind)},"sha256":"{sha256}","content":'.encode()


_ENVELOPE_HEAD = re.compile(rb'\{"format":\d+,"kind":"\w+","sha256":"([0-9a-f]{64})","content":')


def stated_checksum(data: bytes) -> str | None:
    """The checksum that an object says its content has; None if it is not spelled as ``encode_object`` does."""
    head = _ENVELOPE_HEAD.match(data)
    return None if head is None else head[1].decode()


def _checked_content(data: bytes, kind: str, envelope: "Fields") -> JSON:
    """The content of an object, which is that of its checksum. In newer formats it is packed where it is a text."""
    number = envelope.integer("format")
    if number == _PACKED_FORMAT or (number > _PACKED_FORMAT and isinstance(envelope.json("content"), str)):
        body = _unpack_content(envelope.text("content"))
        if checksum(body) == envelope.text("sha256"):
            return json.loads(body)
    else:
        content = envelope.fields("content").value
        if _is_as_written(data, kind, envelope) or checksum(canonical_json(content)) == envelope.text("sha256"):
            return content
    raise MalformedError("its checksum does not match its content")


def _unpack_content(text: str) -> bytes:
    try:
        return zlib.decompress(base64.b64decode(text, validate=True))
    except zlib.error as error:
        raise MalformedError(f"it cannot be unpacked: {error}") from error


def _is_as_written(data: bytes, kind: str, envelope: "Fields") -> bool:
    """Whether ``data`` is, byte for byte, what ``encode_object`` makes: then nothing has to be spelled once more."""
    sha256 = envelope.text("sha256")
    head = _envelope_head(kind, envelope.integer("format"), sha256)
    body = memoryview(data)[len(head) : -len(_TAIL)]
    return data.startswith(head) and data.endswith(_TAIL) and checksum(body) == sha256


class Fields:
    """A JSON object that is read field by field. Every reader raises MalformedError, saying where."""

    def __init__(self, value: JSON, where: str) -> None:
        if not isinstance(value, dict):
            raise MalformedError(f"{where} is {_type_name(value)}, not an object")
        self.value: dict[str, JSON] = value
        self.where = where

    def text(self, name: str) -> str:
        return self._value_of_kind(name, str, "a string")

    def optional_text(self, name: str) -> str | None:
        return None if self._field_value(name) is None else self.text(name)

    def integer(self, name: str) -> int:
        return self._value_of_kind(name, int, "an integer")

    def optional_integer(self, name: str) -> int | None:
        return None if self._field_value(name) is None else self.integer(name)

    def json(self, name: str) -> JSON:
        """Anything; the field must be there."""
        return self._field_value(name)

    def fields(self, name: str) -> "Fields":
        return Fields(self._field_value(name), f"{self.where}.{name}")

    def optional_fields(self, name: str) -> "Fields | None":
        """A nested object; None where there is no such field."""
        return self.fields(name) if name in self.value else None

    def array(self, name: str) -> list[JSON]:
        return self._value_of_kind(name, list, "an array")

    def items(self, name: str, parse: "Callable[[Fields], Result]") -> tuple[Result, ...]:
        """An array of objects, each given to ``parse``."""
        where = f"{self.where}.{name}"
        return tuple(parse(Fields(value, f"{where}[{n}]")) for n, value in enumerate(self.array(name)))

    def mapping(self, name: str, read: "Callable[[Fields, str], Result]") -> Mapping[str, Result]:
        """A nested object whose fields are all read by ``read`` (such as ``Fields.integer``)."""
        inner_fields = self.fields(name)
        return {key: read(inner_fields, key) for key in inner_fields.value}

    def _field_value(self, name: str) -> JSON:
        if name not in self.value:
            raise MalformedError(f"{self.where} has no field {name!r}")
        return self.value[name]

    def _value_of_kind(self, name: str, kind: type[Result], kind_text: str) -> Result:
        value = self._field_value(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            raise MalformedError(f"{self.where}.{name} is {_type_name(value)}, not {kind_text}")
        return value


def _type_name(value: JSON) -> str:
    return "null" if value is None else f"of type {type(value).__name__}"


_known_kinds: set[type] = set()
_first_use = RLock()  # a hook may convert, too


def convert_value(value: JSON, kind: type[Result], hook: Callable[[type, Any], Any] | None = None) -> Result:
    """``value`` as one of ``kind``. Raises msgspec.ValidationError.

    msgspec looks into a class, and those of its fields, when it converts to it for the first time. Two threads that do
    so at once crash the process, and many read manifests side by side.
    """
    if kind in _known_kinds:
        return msgspec.convert(value, kind, dec_hook=hook)
    with _first_use:
        try:
            return msgspec.convert(value, kind, dec_hook=hook)
        finally:
            _known_kinds.add(kind)


class JsonRecord(msgspec.Struct, frozen=True):
    """A JSON object that is stored in another, or alone."""

    def replace(self, **changes: Any) -> Self:
        return msgspec.structs.replace(self, **changes)

    def to_json(self) -> JSON:
        """A JSON object; the inverse of ``from_json``."""
        return msgspec.to_builtins(self, enc_hook=_value_to_json)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Read what ``to_json`` wrote. Raises MalformedError, which says where."""
        try:
            return convert_value(value, cls, _value_from_json)
        except msgspec.ValidationError as error:
            what, *where = str(error).split(" - at `$")
            place = "".join(part.removesuffix("`") for part in reversed(where))
            raise MalformedError(f"content{place}: {what}") from error


class StoredObject(JsonRecord, frozen=True):
    """A record that is an object of its own, of ``KIND``."""

    KIND: ClassVar[str]
    PACKED_FROM: ClassVar[int | None] = None
    """Bytes of JSON from which on the content is stored packed; None: never."""

    @property
    def format(self) -> int:
        """The lowest format that holds what there is to say, unless it is packed."""
        return 1

    def to_bytes(self) -> bytes:
        return encode_object(self.KIND, self.to_json(), self.format, self.PACKED_FROM)

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """The record in object ``name``. Raises BrokenObjectError or NewerFormatError."""
        return decode_object(cls.KIND, data, name, cls.from_json)


def _value_to_json(value: Any) -> JSON:
    return value.to_json()


def _value_from_json(kind: type, value: JSON) -> Any:
    try:
        return kind.from_json(value)  # type: ignore[attr-defined]
    except msgspec.ValidationError as error:  # as a ValueError it is given the place of ``value``, too
        raise ValueError(str(error)) from error


_SEAL_FIELD = "sha256"


def seal_fields(fields: Mapping[str, Any]) -> bytes:
    """``fields`` as a JSON object, with their checksum; each on a line of its own, for people who look into it."""
    # json would indent in Python, not in C: ten times as slow, a tenth of a small run
    sealed_fields = {**fields, _SEAL_FIELD: _fields_checksum(fields)}
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in sealed_fields.items())
    return ("{\n " + ",\n ".join(lines) + "\n}").encode()


def unseal_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object that ``seal_fields`` wrote. Raises ValueError if they are not those that it wrote."""
    fields = {name: value for name, value in document.items() if name != _SEAL_FIELD}
    if document.get(_SEAL_FIELD) != _fields_checksum(fields):
        raise ValueError("its fields are not those of its checksum")
    return fields


def _fields_checksum(fields: Mapping[str, Any]) -> str:
    return checksum(json.dumps(fields, sort_keys=True).encode())
