"""What Spark's JVM is started with: found in the environment and the cache, without importing pyspark."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.distribute.spark.jvm import cached_archive, driver_java_options
from headrace.errors import FixConfigError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no variable that overrides it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for variable in ("HEADRACE_SPARK_ARCHIVE", "HEADRACE_JAVA_OPTIONS"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "headrace"


def fill(folder: Path, names: list[str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return [folder / name for name in names]


USUAL_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms64m"


def test_a_jvm_that_computes_nothing_compiles_little_and_collects_simply() -> None:
    assert driver_java_options() == USUAL_OPTIONS


def test_the_archive_in_the_cache_is_used_unless_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = cached_archive()
    assert archive is not None
    fill(archive.parent, [archive.name])
    assert f"-XX:SharedArchiveFile={archive}" in driver_java_options().split()
    monkeypatch.setenv("HEADRACE_SPARK_ARCHIVE", "off")
    assert driver_java_options() == USUAL_OPTIONS


def test_own_options_follow_those_of_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_JAVA_OPTIONS", "-XX:+UseParallelGC -Xss2m")
    assert driver_java_options() == f"{USUAL_OPTIONS} -XX:+UseParallelGC -Xss2m"
    archive = cached_archive()
    assert archive is not None
    fill(archive.parent, [archive.name])
    assert driver_java_options().split()[-3:] == [f"-XX:SharedArchiveFile={archive}", "-XX:+UseParallelGC", "-Xss2m"]


def test_a_named_archive_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SPARK_ARCHIVE", str(tmp_path / "spark.jsa"))
    with pytest.raises(FixConfigError, match="make archive"):
        driver_java_options()
    fill(tmp_path, ["spark.jsa"])
    assert str(tmp_path / "spark.jsa") in driver_java_options()


def test_another_jdk_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = cached_archive()
    (tmp_path / "jdk").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert cached_archive() is None  # no release file: which JDK it is cannot be told
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21.0.1"\n')
    assert cached_archive() not in {None, archive}


def test_a_jvm_ignores_an_archive_that_does_not_fit_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = shutil.which("java")
    assert java is not None
    (tmp_path / "spark.jsa").write_bytes(b"not an archive" * 1000)
    monkeypatch.setenv("HEADRACE_SPARK_ARCHIVE", str(tmp_path / "spark.jsa"))
    command = [java, *driver_java_options().split(), "-version"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0
    assert result.stdout == ""
    assert "version" in result.stderr
    assert "spark.jsa" not in result.stderr


def test_airflow_may_import_it_while_parsing() -> None:
    program = "import sys, headrace.distribute.spark.jvm; print('pyspark' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"
