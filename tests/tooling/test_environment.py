"""The environment is what the lock file promises: above all, nothing has been installed over pyspark's files."""

import base64
import hashlib
from importlib import metadata

import pytest


def test_pyspark_client_is_absent() -> None:
    """The Spark provider asks for it, and it installs over pyspark's own files (see pyproject.toml)."""
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("pyspark-client")


@pytest.mark.parametrize(
    "name", ["pyspark/version.py", "pyspark/sql/session.py", "pyspark/sql/dataframe.py", "pyspark/java_gateway.py"]
)
def test_the_files_of_pyspark_are_its_own(name: str) -> None:
    files = metadata.files("pyspark")
    assert files is not None
    file = next(file for file in files if str(file) == name)
    assert file.hash is not None
    assert file.hash.mode == "sha256"
    text = base64.urlsafe_b64encode(hashlib.sha256(file.read_binary()).digest()).rstrip(b"=").decode()
    assert text == file.hash.value


@pytest.mark.slow  # asks every distribution
def test_no_other_distribution_claims_files_of_pyspark() -> None:
    owners = {
        distribution.metadata["Name"]
        for distribution in metadata.distributions()
        for file in distribution.files or []
        if file.parts[0] == "pyspark"
    }
    assert owners == {"pyspark"}


def test_pyspark_is_a_version_without_the_wrong_union_plans() -> None:
    assert metadata.version("pyspark") == "4.2.1"  # 4.2.0 loses keys in a groupBy over a union (SPARK-59141)
