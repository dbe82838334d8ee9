"""Stores for these tests: memory, local files, and a real MinIO."""

import uuid
from pathlib import Path

import pytest

from headrace_snapshots.store import ObjectStore, open_store
from headrace_snapshots.store.local import MemoryStore
from tests.minio_bucket import BUCKET


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
