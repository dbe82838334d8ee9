"""Schemas of Avro, as those who wrote a message had them: text of JSON (the specification of Avro 1.12)."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from headrace.errors import FixConfigError
from headrace.formats.avro.datums import (
    PRIMITIVE,
    AvroType,
    BytesType,
    DecimalType,
    EnumType,
    FixedType,
    IntegerType,
    ItemsType,
    RecordType,
    UnionType,
)

_TIMES: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_MOST_DIGITS: Final = 38


class AvroSchemaError(FixConfigError, code="config.avro_schema"):
    """A schema of Avro is none, or has what cannot be read."""


@lru_cache(maxsize=256)
def record_of(text: str) -> RecordType:
    """The record that ``text`` is a schema of. Raises AvroSchemaError."""
    try:
        kind = _Parser().kind(json.loads(text), "")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AvroSchemaError(f"it is no schema of Avro ({error!r}): {text[:200]}") from error
    if not isinstance(kind, RecordType):
        raise AvroSchemaError(f"it is no record, and columns are fields of a record: {text[:200]}")
    return kind


class _Parser:
    """Types that have names are known by them from their definition on."""

    def __init__(self) -> None:
        self.named: dict[str, AvroType | None] = {}

    def kind(self, schema: Any, namespace: str) -> AvroType:
        """The type that ``schema`` means. Raises AvroSchemaError, or what any error in it raises."""
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return UnionType(tuple(self.kind(branch, namespace) for branch in schema))
        kind: Any = schema["type"]
        if isinstance(kind, dict | list):
            return self.kind(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._defined(schema, kind, namespace)
        if kind in ("array", "map"):
            return ItemsType(
                self.kind(schema["items" if kind == "array" else "values"], namespace), is_map=kind == "map"
            )
        return _logical(schema, self._by_name(kind, namespace), None)

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVE:
            return PRIMITIVE[name]()
        full = _full(name, namespace)
        if full not in self.named:
            raise AvroSchemaError(f"it names a type {name!r}, which it does not define: only whole schemas are read")
        kind = self.named[full]
        if kind is None:
            raise AvroSchemaError(f"type {full} is in itself: a column has no such type")
        return kind

    def _defined(self, schema: Mapping[str, Any], kind: str, namespace: str) -> AvroType:
        full = _full(schema["name"], schema.get("namespace", namespace))
        inner = full.rpartition(".")[0]
        self.named[full] = None
        if kind == "enum":
            defined: AvroType = EnumType(tuple(map(str, schema["symbols"])))
        elif kind == "fixed":
            defined = _logical(schema, FixedType(int(schema["size"])), int(schema["size"]))
        else:
            defined = RecordType({str(one["name"]): self.kind(one["type"], inner) for one in schema["fields"]})
        self.named[full] = defined
        return defined


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _logical(schema: Mapping[str, Any], kind: AvroType, size: int | None) -> AvroType:
    """``kind`` as its logical type says; one that is not known, or does not fit, means nothing, as Avro has it."""
    logical = schema.get("logicalType")
    if logical == "decimal" and (isinstance(kind, FixedType) or kind == BytesType()):
        precision, scale = (schema.get(name, 0) for name in ("precision", "scale"))
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= _MOST_DIGITS:
            return DecimalType(precision, scale, size) if precision else kind
    time = _TIMES.get(logical or "")
    return IntegerType(time) if isinstance(kind, IntegerType) and time is not None else kind
