"""How the values of a topic are written in Avro: what a definition says of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.model.arguments import Arguments, keywords
from headrace.pipeline.sink import connection_name


@dataclass(frozen=True)
class AvroValues:
    """What ``avro`` gives: the connection ``registry`` says with which schema a value was written, or all were written
    with ``schema``, which is text of JSON.
    """

    registry: str | None = None
    schema: str | None = None


@keywords
def avro(*, registry: str | None = None, schema: str | Mapping[str, Any] | None = None) -> AvroValues:
    """Values of a topic that are Avro: ``hr.kafka(..., values=hr.avro(registry="schemas"))``.

    ``registry`` is the name of a connection to a schema registry (``https://user:password@host:8081``), whose number
    for the schema stands before each value, as Confluent's serializers write it. Without one all values were written
    with the ``schema``, and nothing stands before them. Columns are fields of the schema with which a value was
    written. One that an older schema does not have is NULL. Raises PipelineError.

    >>> hr.avro(registry="schemas").registry
    'schemas'
    """
    given = Arguments("avro")
    if (registry is None) == (schema is None):
        raise given.wrong("registry", registry, "give either the connection of a registry, or the schema of all values")
    if registry is not None:
        return AvroValues(registry=connection_name(given, registry))
    try:
        written = json.loads(schema) if isinstance(schema, str) else schema
        text = json.dumps(written, sort_keys=True)
    except (ValueError, TypeError) as error:
        raise given.wrong("schema", schema, f"it is no JSON ({error})") from None
    if not isinstance(written, Mapping) or written.get("type") != "record":
        raise given.wrong(
            "schema", schema, 'columns are fields of a record: {"type": "record", "name": ..., "fields": [...]}'
        )
    return AvroValues(schema=text)
