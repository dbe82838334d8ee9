"""What a MinIO server of our own counted: requests by kind, and bytes that it sent and received."""

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import jwt
import urllib3

from scripts import minio_server
from scripts.minio_server import Server

BUCKET = "benchmark"
_METRICS = "/minio/metrics/v3/api/requests"
"""Counted at every request; the older metrics are ten seconds behind."""

_LINE = re.compile(r'minio_api_requests_(?:total\{name="(\w+)"|traffic_(sent|received)_bytes\{).*type="s3"\} (\S+)')


@dataclass(frozen=True)
class Traffic:
    """Bytes are of the bodies of requests and answers."""

    read_bytes: int
    written_bytes: int
    requests: Mapping[str, int]

    def since(self, before: "Traffic") -> "Traffic":
        """What came after ``before``."""
        requests = {name: count - before.requests.get(name, 0) for name, count in self.requests.items()}
        return Traffic(
            self.read_bytes - before.read_bytes,
            self.written_bytes - before.written_bytes,
            {name: count for name, count in requests.items() if count},
        )


def traffic(server: Server) -> Traffic:
    """What the server has counted so far. Raises SystemExit when it does not tell."""
    claims = {"sub": server.access_key, "iss": "prometheus", "exp": int(time.time()) + 60}
    token = jwt.encode(claims, server.secret_key, "HS256")
    answer = urllib3.request("GET", server.endpoint + _METRICS, headers={"Authorization": f"Bearer {token}"})
    if answer.status != 200:
        raise SystemExit(f"MinIO tells no metrics: {answer.status} {answer.data.decode(errors='replace')}")
    requests: dict[str, int] = {}
    moved = {"sent": 0, "received": 0}
    for kind, direction, value in _LINE.findall(answer.data.decode()):
        (requests if kind else moved)[kind or direction] = int(float(value))
    return Traffic(moved["sent"], moved["received"], requests)


@contextlib.contextmanager
def minio(folder: Path) -> Iterator[Server]:
    """A server with an empty bucket and its data in ``folder``, to which this process and its children are pointed."""
    server = minio_server.start(folder)
    try:
        minio_server.client(server).make_bucket(BUCKET)
        with patch.dict(os.environ, server.environment()):
            yield server
    finally:
        minio_server.stop(server)
