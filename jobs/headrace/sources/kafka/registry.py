"""A registry of Avro schemas, by Confluent's protocol: what number stands for which schema never changes.

What is fetched of a topic keeps the schemas of its values with it, in the metadata of the table, and so does what is
landed: to read it again nobody is asked.
"""

import json
import logging
import re
from base64 import b64encode
from collections.abc import Collection
from typing import Final

import pyarrow as pa
import urllib3
from urllib3.util import Retry

from headrace.connections import Connection, connection, variable
from headrace.formats.avro_datums import RecordType
from headrace.formats.avro_messages import AvroSchemaError, record_of, schema_ids
from headrace.sources.kafka.errors import RegistryRefusedError, RegistryUnreachableError

_logger = logging.getLogger(__name__)
logging.getLogger("urllib3").setLevel(logging.INFO)

_KEPT: Final = b"headrace.avro."
_NAMED: Final = re.compile(rb"headrace\.avro\.([0-9]+)")
_ASKED: Final = b"headrace.avro"
"""What was fetched says so that a registry was asked."""

_NO_SUCH_SCHEMA: Final = 40403
_SECONDS: Final = 10.0
_TRIES: Final = 4

_known: dict[tuple[str, int], str] = {}
"""Schemas of this process, by the place of their registry and their number."""


def with_schemas(fetched: pa.Table, registry: str) -> pa.Table:
    """What was ``fetched``, with the schemas of its values. Raises MissingConnectionError, RegistryRefusedError,
    RegistryUnreachableError.
    """
    known = schemas(connection(registry, kind="registry"), _numbers(fetched))
    kept = {_KEPT + str(one).encode(): text.encode() for one, text in known.items()}
    return fetched.replace_schema_metadata({_ASKED: b"1", **kept})


def kept_schemas(fetched: pa.Table, registry: str) -> dict[int, RecordType | None]:
    """The schemas that ``fetched`` keeps, by number; None: one that is no record. What was landed before the source was
    said to be in Avro keeps none: then the registry is asked. Raises what ``with_schemas`` raises.
    """
    if _ASKED not in (fetched.schema.metadata or {}):
        fetched = with_schemas(fetched, registry)
    kept = fetched.schema.metadata.items()
    return {int(named[1]): _record(text.decode()) for key, text in kept if (named := _NAMED.fullmatch(key))}


def _numbers(fetched: pa.Table) -> set[int]:
    return {int(one) for chunk in fetched.column("value").chunks for one in set(schema_ids(chunk)) if one >= 0}


def _record(text: str) -> RecordType | None:
    try:
        return record_of(text)
    except AvroSchemaError as error:
        _logger.warning("values have a schema that is no record in Avro: %s", error)
        return None


def schemas(registry: Connection, numbers: Collection[int]) -> dict[int, str]:
    """The schemas with these ``numbers``, as far as the registry has them. Raises RegistryRefusedError,
    RegistryUnreachableError.
    """
    if registry.scheme not in ("http", "https"):
        raise RegistryRefusedError(f"{registry}: a schema registry needs http://host:port or https://host:port")
    place = str(registry)
    lacking = [one for one in sorted(numbers) if (place, one) not in _known]
    if lacking:
        with _pool(registry) as pool:
            for one in lacking:
                if (schema := _schema(pool, registry, one)) is not None:
                    _known[place, one] = schema
    return {one: schema for one in numbers if (schema := _known.get((place, one))) is not None}


def _pool(registry: Connection) -> urllib3.PoolManager:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
    if registry.user or registry.password:
        pair = f"{registry.user}:{registry.password}".encode()
        headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
    again = Retry(
        _TRIES,
        backoff_factor=0.2,
        status_forcelist=(429, 500, 502, 503, 504),
        raise_on_status=False,
        respect_retry_after_header=False,  # whatever it says is waited for
    )
    ca = registry.options.get("cafile")
    return urllib3.PoolManager(headers=headers, retries=again, timeout=_SECONDS, ca_certs=ca)


def _schema(pool: urllib3.PoolManager, registry: Connection, number: int) -> str | None:
    port = "" if registry.port is None else f":{registry.port}"
    path = f"{registry.database.rstrip('/')}/" if registry.database else ""
    host = f"[{registry.host}]" if ":" in registry.host else registry.host
    url = f"{registry.scheme}://{host}{port}/{path}schemas/ids/{number}"
    try:
        answer = pool.request("GET", url, redirect=False)
    except urllib3.exceptions.HTTPError as error:
        reason = registry.without_secrets(str(getattr(error, "reason", None) or error))
        raise RegistryUnreachableError(f"{registry} does not answer: {reason}") from error
    if answer.status >= 500 or answer.status == 429:
        raise RegistryUnreachableError(f"{registry} answers with {answer.status}")
    if answer.status in (401, 403):
        raise RegistryRefusedError(
            f"{registry} does not let in: correct user and password in {variable(registry.name)}"
        )
    if answer.status == 404 and _says_none(answer):
        return None
    try:
        text = answer.json()["schema"] if answer.status == 200 else None
        kind = answer.json().get("schemaType", "AVRO") if text is not None else None
    except (ValueError, KeyError, TypeError, AttributeError):
        text = kind = None
    if not isinstance(text, str):
        raise RegistryRefusedError(f"{registry}: what answers ({answer.status}) is no schema registry")
    return text if kind == "AVRO" else json.dumps(f"{kind}, and not Avro")


def _says_none(answer: urllib3.BaseHTTPResponse) -> bool:
    """Whether it is a registry that says so, and not something else at that place."""
    try:
        return bool(answer.json()["error_code"] == _NO_SUCH_SCHEMA)
    except (ValueError, KeyError, TypeError):
        return False
