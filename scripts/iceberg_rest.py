"""A REST catalog of Iceberg on this machine: Iceberg's own, for tests. Apart from its jars it needs Java and PySpark.

    with IcebergRest(folder) as server:
        server.uri              # http://127.0.0.1:PORT

``python -m scripts.iceberg_rest path`` prints where its jars are; Maven gets them where they are not.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import pyspark
import tenacity

from headrace.distribute.spark.jvm import cache_folder
from headrace.errors import FixConfigError
from scripts.airflow_env import free_port
from scripts.maven import fetched

ICEBERG = "1.10.0"
JARS = (
    *(f"org.apache.iceberg:iceberg-{name}:{ICEBERG}" for name in ("api", "common", "bundled-guava", "core")),
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:test-fixtures",
    *(f"org.eclipse.jetty:jetty-{name}:11.0.26" for name in ("servlet", "server", "security", "http", "io", "util")),
    "org.eclipse.jetty.toolchain:jetty-jakarta-servlet-api:5.0.2",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.apache.httpcomponents.client5:httpclient5:5.5",
    "org.apache.httpcomponents.core5:httpcore5:5.3.4",
    "org.apache.httpcomponents.core5:httpcore5-h2:5.3.4",
    "com.github.ben-manes.caffeine:caffeine:2.9.3",
    "dev.failsafe:failsafe:3.3.2",
)
OF_SPARK = (
    *("hadoop-client-*", "avro-1*", "jackson-core-2*", "jackson-databind-2*", "jackson-annotations*"),
    *("slf4j-api*", "RoaringBitmap*", "commons-lang3*"),
)
"""What Spark brings along and the server needs, too."""

START_SECONDS = 60.0
STOP_SECONDS = 10.0


def jars() -> Path:
    """The folder of the jars, if they are here."""
    return cache_folder() / f"iceberg-rest-{ICEBERG}"


def fetch() -> Path:
    """The folder of the jars, which Maven gets where they are not. Raises JarsUnavailableError."""
    return fetched(jars(), JARS)


class IcebergRest:
    """A server, once entered, whose catalog and tables are below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def warehouse(self) -> str:
        """Where its tables are."""
        return (self._folder / "warehouse").as_uri()

    def __enter__(self) -> Self:
        of_spark = Path(pyspark.__file__).parent / "jars"
        paths = [str(jars() / "*"), *(str(path) for name in OF_SPARK for path in of_spark.glob(f"{name}.jar"))]
        java = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"
        settings = {
            "CATALOG_REST_PORT": str(self._port),
            "CATALOG_WAREHOUSE": self.warehouse,
            "CATALOG_URI": f"jdbc:sqlite:{self._folder / 'catalog.db'}",
        }
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", os.pathsep.join(paths)]
        log = self._folder / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [java, *options, "org.apache.iceberg.rest.RESTCatalogServer"],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            for attempt in tenacity.Retrying(
                stop=tenacity.stop_after_delay(START_SECONDS), wait=tenacity.wait_fixed(0.05), reraise=True
            ):
                with attempt:
                    assert self._process.poll() is None, log.read_text()
                    httpx.get(f"{self.uri}/v1/config").raise_for_status()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


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
