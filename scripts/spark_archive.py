"""Builds the class-data archive with which Spark's JVM starts in half the time; it changes no result.

One archive per JDK and Spark version, in the cache; ``distribute.spark.jvm.driver_java_options`` finds it there. The
JVM writes it at the end of a real run of a shipped pipeline, so it holds the classes that runs load.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from headrace.distribute.spark.jvm import ARCHIVE_VARIABLE, cached_archive
from headrace.errors import FixConfigError, GiveUpError
from scripts.land_flights import land

REPOSITORY = Path(__file__).resolve().parents[1]
PIPELINE = REPOSITORY / "jobs/pipelines/flights_departures.py"


MOST_ARCHIVES = 12
"""Archives of other checkouts and JDKs that stay, the newest; each has 150 MB."""


class ArchiveError(GiveUpError):
    """The archive could not be made; everything works without it."""

    code = "give_up.spark_archive"


def ensure() -> Path:
    """The archive of this JDK and this Spark, built when there is none. Raises FixConfigError, ArchiveError."""
    archive = cached_archive()
    if archive is None:
        raise FixConfigError("cannot tell which JDK Spark will use: put java on PATH or set JAVA_HOME")
    if not archive.is_file():
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            _build(Path(folder)).replace(archive)  # complete or invisible
        for old in sorted(archive.parent.glob("*.jsa"), key=lambda each: each.stat().st_mtime)[:-MOST_ARCHIVES]:
            old.unlink(missing_ok=True)
    return archive


def _build(folder: Path) -> Path:
    new_archive = folder / "spark.jsa"
    root = f"file://{folder}/root"
    land(root, instalment=1, instalments=60)
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[2]", "--driver-java-options", f"-XX:ArchiveClassesAtExit={new_archive} -Xlog:cds=off"),
        *(
            str(REPOSITORY / "jobs/headrace/application/submit.py"),
            "process",
            "--pipeline",
            str(PIPELINE),
            "--root",
            root,
        ),
        *("--run-id", "archive", "--files-per-epoch", "1", "--max-epochs", "2"),
    ]
    environment = {**os.environ, ARCHIVE_VARIABLE: "off", "PYSPARK_PYTHON": sys.executable}
    process = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if process.returncode != 0 or not new_archive.is_file():
        raise ArchiveError(
            f"the run that should make the archive ended with {process.returncode}:\n{process.stderr[-2000:]}"
        )
    return new_archive


if __name__ == "__main__":
    try:
        print(f"Spark's class-data archive is {ensure()}")
    except (FixConfigError, GiveUpError) as error:
        sys.exit(f"{error.code}: {error}")
