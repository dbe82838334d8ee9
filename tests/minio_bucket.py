"""A bucket on a real MinIO, one server for all tests of a process."""

import os
from collections.abc import Iterator

import pytest

BUCKET = "tests"


def need_minio() -> None:
    """Skip the test where there is no MinIO; in CI it fails."""
    from scripts import minio_server

    if minio_server.find() is None:
        message = "there is no MinIO server: run `make minio`, or put minio on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a MinIO server with the bucket, its keys in the environment; stopped by pid."""
    from scripts import minio_server

    need_minio()
    server = minio_server.start(tmp_path_factory.mktemp("minio") / "data")
    try:
        minio_server.client(server).make_bucket(BUCKET)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment().items():
                patch.setenv(name, value)
            yield server.endpoint
    finally:
        minio_server.stop(server)
