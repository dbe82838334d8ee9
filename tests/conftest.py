"""Fixtures that several folders of tests share: one Spark session per process."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from headrace.engine.types import SparkSession

settings.register_profile("unit", max_examples=20, deadline=None)  # for quick feedback; all of them in make test

# Tests run many queries once over few rows: compiling them well costs more than running them.
os.environ.setdefault("HEADRACE_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session, as applications have it."""
    from headrace.engine.session import spark_session

    folder = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "headrace tests",
        root_uri=f"file://{folder}",
        cores=2,
        conf={
            "spark.driver.memory": "3g",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.log.level": "ERROR",
        },
    )
    yield session
    session.stop()
