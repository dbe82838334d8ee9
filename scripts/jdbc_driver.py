"""PostgreSQL's JDBC driver, by which Spark reaches a server in tests. Maven gets it where it is not.

``python -m scripts.jdbc_driver path`` prints where it is.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from headrace.distribute.spark.jvm import cache_folder
from headrace.errors import FixConfigError

VERSION: Final = "42.7.7"
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


class JdbcDriverUnavailableError(FixConfigError):
    """The jar is not here, and cannot be had."""

    code = "config.jdbc_driver_unavailable"


def jar() -> Path:
    """Where the jar is, if it is here."""
    return cache_folder() / f"postgresql-{VERSION}.jar"


def fetch() -> Path:
    """Where the jar is, which Maven gets where it is not. Raises JdbcDriverUnavailableError."""
    file = jar()
    if file.is_file():
        return file
    maven = shutil.which("mvn")
    if maven is None:
        raise JdbcDriverUnavailableError("PostgreSQL's JDBC driver needs Maven: apt install maven")
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as work:
        words = [_COPY, f"-Dartifact=org.postgresql:postgresql:{VERSION}", f"-DoutputDirectory={work}"]
        process = subprocess.run(
            [maven, "--quiet", "--batch-mode", *words], capture_output=True, text=True, check=False
        )
        if process.returncode != 0:
            raise JdbcDriverUnavailableError(f"Maven did not get it: {process.stdout[-2000:]}{process.stderr[-500:]}")
        (Path(work) / file.name).replace(file)
    return file


if __name__ == "__main__":
    assert sys.argv[1:] == ["path"], __doc__
    print(fetch())
