"""A REST catalog of Iceberg on this machine: Iceberg's own, for tests. Apart from its jars it needs Java and PySpark.

    with IcebergRest(folder) as server:
        server.uri              # http://127.0.0.1:PORT

``python -m scripts.iceberg_rest path`` prints where its jars are; Maven gets them where they are not.
"""

import argparse
import os
import sys
from pathlib import Path

import pyspark

from headrace.distribute.spark.jvm import cache_folder
from headrace.errors import FixConfigError
from scripts.java_server import JavaServer
from scripts.maven import fetch_jars

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


def jars() -> Path:
    """The folder of the jars, if they are here."""
    return cache_folder() / f"iceberg-rest-{ICEBERG}"


def fetch() -> Path:
    """The folder of the jars, which Maven gets where they are not. Raises JarsUnavailableError."""
    return fetch_jars(jars(), JARS)


class IcebergRest(JavaServer):
    """A server, once entered, whose catalog and tables are below ``folder``."""

    @property
    def uri(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def warehouse(self) -> str:
        """Where its tables are."""
        return (self._folder / "warehouse").as_uri()

    @property
    def _words(self) -> list[str]:
        of_spark = Path(pyspark.__file__).parent / "jars"
        paths = [str(jars() / "*"), *(str(path) for name in OF_SPARK for path in of_spark.glob(f"{name}.jar"))]
        return ["-cp", os.pathsep.join(paths), "org.apache.iceberg.rest.RESTCatalogServer"]

    @property
    def _settings(self) -> dict[str, str]:
        return {
            "CATALOG_REST_PORT": str(self._port),
            "CATALOG_WAREHOUSE": self.warehouse,
            "CATALOG_URI": f"jdbc:sqlite:{self._folder / 'catalog.db'}",
        }

    @property
    def _answers(self) -> str:
        return "v1/config"


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
