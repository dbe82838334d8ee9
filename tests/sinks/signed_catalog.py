"""A catalog that asks for signed requests, as those of AWS do: Iceberg's REST catalog behind a gate that works each
signature out again, by what AWS says of it (Signature Version 4), without a library that signs.
"""

import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from tests.s3_proxy import Answer, Proxy, Request, proxying

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_AUTHORIZATION: Final = re.compile(
    rf"{_ALGORITHM} Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), SignedHeaders=(?P<names>[^,]+), Signature=(?P<hex>\w+)"
)
_PLAIN: Final = "-_.~"
_HAVE_TO_BE_SIGNED: Final = frozenset({"host", "x-amz-date"})


@dataclass(frozen=True)
class Key:
    """A key of AWS, and what it is used for."""

    id: str
    secret: str
    region: str
    service: str

    def options(self) -> str:
        """How the URI of a connection says so."""
        return f"rest.sigv4-enabled=true&rest.signing-region={self.region}&rest.signing-name={self.service}"

    def sign_text(self, scope: str, text: str) -> str:
        """The signature of ``text``."""
        return _mac(reduce(_mac, scope.split("/"), f"AWS4{self.secret}".encode()), text).hex()


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _canonical(request: Request, headers: Mapping[str, str], names: str) -> str:
    path, query = urlsplit(request.path).path, urlsplit(request.path).query
    pairs = sorted((quote(name, safe=_PLAIN), quote(value, safe=_PLAIN)) for name, value in parse_qsl(query, True))
    return "\n".join((
        request.method,
        quote(path, safe=f"/{_PLAIN}"),  # it is encoded already: all services but S3 want it so twice
        "&".join(f"{name}={value}" for name, value in pairs),
        *(f"{name}:{' '.join(headers[name].split())}" for name in names.split(";")),
        "",
        names,
        hashlib.sha256(request.body).hexdigest(),
    ))  # fmt: skip


def is_signed(request: Request, key: Key) -> bool:
    """Whether ``request`` has the signature of ``key``."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    match = _AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if match is None or not set(match["names"].split(";")) >= _HAVE_TO_BE_SIGNED:
        return False
    time = headers["x-amz-date"]
    if (match["key"], match["scope"]) != (key.id, f"{time[:8]}/{key.region}/{key.service}/aws4_request"):
        return False
    canonical = hashlib.sha256(_canonical(request, headers, match["names"]).encode()).hexdigest()
    text = "\n".join((_ALGORITHM, time, match["scope"], canonical))
    return hmac.compare_digest(key.sign_text(match["scope"], text), match["hex"])


@contextmanager
def signed_by(key: Key, catalog: str) -> Iterator[Proxy]:
    """The ``catalog`` for those that have the ``key``."""

    def judge(request: Request) -> Answer | None:
        if is_signed(request, key):
            return None
        error = {"message": "the signature does not match", "type": "ForbiddenException", "code": HTTPStatus.FORBIDDEN}
        return Answer(HTTPStatus.FORBIDDEN, json.dumps({"error": error}).encode(), "application/json")

    with proxying(catalog) as gate:
        gate.judge = judge
        yield gate
