"""JSON objects that carry a checksum of their other fields: results of runs and of audits, on which others act."""

import json
from collections.abc import Mapping
from typing import Any

from headrace_snapshots.format.codec import checksum

_SEAL = "sha256"


def sealed(fields: Mapping[str, Any]) -> bytes:
    """``fields`` as a JSON object, with their checksum."""
    return json.dumps({**fields, _SEAL: _checksum(fields)}, indent=1).encode()


def unsealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an object that ``sealed`` wrote. Raises ValueError if they are not those that it wrote."""
    fields = {name: value for name, value in document.items() if name != _SEAL}
    if document.get(_SEAL) != _checksum(fields):
        raise ValueError("its fields are not those of its checksum")
    return fields


def _checksum(fields: Mapping[str, Any]) -> str:
    return checksum(json.dumps(fields, sort_keys=True).encode())
