"""Stores for these tests: memory, local files, and a real MinIO server that lives as long as the session."""

import importlib.util
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from headrace_snapshots.store import ObjectStore, open_store
from headrace_snapshots.store.memory import MemoryStore

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "minio_server.py"
BUCKET = "tests"


def _minio_server() -> ModuleType:
    spec = importlib.util.spec_from_file_location("headrace_scripts_minio_server", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def minio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The endpoint of a MinIO server with a bucket ``tests``, its keys in the environment; stopped by pid."""
    script = _minio_server()
    if script.find() is None:
        message = "there is no MinIO server: run `make minio`, or put minio on PATH"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    server = script.start(tmp_path_factory.mktemp("minio") / "data")
    try:
        script.client(server).make_bucket(BUCKET)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment().items():
                patch.setenv(name, value)
            yield server.endpoint
    finally:
        script.stop(server)


@pytest.fixture(params=["memory", "local", pytest.param("s3", marks=pytest.mark.s3)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of a fresh root in each kind of store."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}"
    if request.param == "local":
        return (tmp_path / "a root %41").as_uri()
    request.getfixturevalue("minio")
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/a root"


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def shared_root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URI of a fresh root that several processes can use."""
    if request.param == "local":
        return tmp_path.as_uri()
    request.getfixturevalue("minio")
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def store(root: str) -> ObjectStore:
    """A store at ``root``."""
    return open_store(root)


@pytest.fixture
def memory() -> MemoryStore:
    """A store in memory of its own."""
    return MemoryStore()
