"""How a stored record is declared: a frozen struct, whose fields are those of its JSON object.

A field without a default is always there. One with a default may be missing, and then has it; a class that says
``omit_defaults`` leaves it out where it would say only that. Fields of newer versions are passed over. A type that is
not JSON's, no record and no dataclass has ``to_json`` and ``from_json`` of its own.
"""

from typing import Any, ClassVar, Self

import msgspec

from headrace_snapshots.format.codec import JSON, MalformedError, decode, encode


class JsonRecord(msgspec.Struct, frozen=True):
    """A JSON object that is stored in another, or alone."""

    def replace(self, **changes: Any) -> Self:
        """A copy that differs in these fields."""
        return msgspec.structs.replace(self, **changes)

    def to_json(self) -> JSON:
        """A JSON object; the inverse of ``from_json``."""
        return msgspec.to_builtins(self, enc_hook=_written)

    @classmethod
    def from_json(cls, value: JSON) -> Self:
        """Read what ``to_json`` wrote. Raises MalformedError, which says where."""
        try:
            return msgspec.convert(value, cls, dec_hook=_read)
        except msgspec.ValidationError as error:
            what, *where = str(error).split(" - at `$")
            place = "".join(part.removesuffix("`") for part in reversed(where))
            raise MalformedError(f"content{place}: {what}") from error


class StoredObject(JsonRecord, frozen=True):
    """A record that is an object of its own, of ``KIND``."""

    KIND: ClassVar[str]

    @property
    def format(self) -> int:
        """The lowest format that holds what there is to say."""
        return 1

    def to_bytes(self) -> bytes:
        """The object to store."""
        return encode(self.KIND, self.to_json(), self.format)

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Self:
        """The record in object ``name``. Raises BrokenObjectError or NewerFormatError."""
        return decode(cls.KIND, data, name, cls.from_json)


def _written(value: Any) -> JSON:
    return value.to_json()


def _read(kind: type, value: JSON) -> Any:
    try:
        return kind.from_json(value)  # type: ignore[attr-defined]
    except msgspec.ValidationError as error:  # as a ValueError it is given the place of ``value``, too
        raise ValueError(str(error)) from error
