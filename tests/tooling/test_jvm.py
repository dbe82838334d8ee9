"""What Spark's JVM is started with: found in the environment and the cache, without importing pyspark."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.engine import jvm
from headrace.engine.jvm import (
    JarsMissingError,
    cached_archive,
    cached_jars_folder,
    driver_java_options,
    pinned_jars,
    s3a_jars,
)
from headrace.errors import FixConfigError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no variable that overrides it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for variable in ("HEADRACE_SPARK_JARS", "HEADRACE_SPARK_ARCHIVE", "HEADRACE_JAVA_OPTIONS"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "headrace"


def fill(folder: Path, names: list[str]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return [folder / name for name in names]


def test_the_lock_pins_every_jar_once_and_leaves_out_the_bundle() -> None:
    jars = pinned_jars()
    artifacts = [jar.artifact for jar in jars]
    assert len(set(artifacts)) == len(artifacts)
    assert {"hadoop-aws", "s3", "sts", "apache-client"} <= set(artifacts)
    assert "bundle" not in artifacts
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in jars)
    assert len({jar.version for jar in jars if jar.group == "software.amazon.awssdk"}) == 1


def test_a_jar_is_where_maven_keeps_it() -> None:
    jar = next(jar for jar in pinned_jars() if jar.artifact == "hadoop-aws")
    assert jar.url_path == "org/apache/hadoop/hadoop-aws/3.5.0/hadoop-aws-3.5.0.jar"


def test_jars_come_from_the_cache_when_all_are_there(cache: Path) -> None:
    expected = fill(cached_jars_folder(), [jar.file_name for jar in pinned_jars()])
    assert s3a_jars() == tuple(expected)
    assert cached_jars_folder().is_relative_to(cache)


def test_one_missing_jar_says_what_to_run() -> None:
    first, *rest = [jar.file_name for jar in pinned_jars()]
    fill(cached_jars_folder(), rest)
    with pytest.raises(JarsMissingError, match="make setup") as raised:
        s3a_jars()
    assert first in str(raised.value)


def test_a_folder_or_a_list_of_jars_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = fill(tmp_path / "own", ["a.jar", "b.jar"])
    monkeypatch.setenv("HEADRACE_SPARK_JARS", str(tmp_path / "own"))
    assert s3a_jars() == (one, two)
    monkeypatch.setenv("HEADRACE_SPARK_JARS", f"{two},{one}")
    assert s3a_jars() == (two, one)


@pytest.mark.parametrize("stated", ["empty", "empty/none.jar"])
def test_a_named_place_without_jars_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated: str) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("HEADRACE_SPARK_JARS", str(tmp_path / stated))
    with pytest.raises(JarsMissingError, match="HEADRACE_SPARK_JARS"):
        s3a_jars()


DIRECTIVES = Path(jvm.__file__).parent / "planning_code.directives"
ALWAYS = (
    "-XX:-DontCompileHugeMethods -XX:ReservedCodeCacheSize=512m -XX:+UnlockDiagnosticVMOptions "
    f"-XX:CompilerDirectivesFile={DIRECTIVES} -XX:+DisplayVMOutputToStderr"
)


def test_long_methods_are_compiled_into_a_large_cache_and_without_an_archive_there_is_no_other_option() -> None:
    assert driver_java_options() == ALWAYS


def test_the_archive_in_the_cache_is_used_unless_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = cached_archive()
    assert archive is not None
    fill(archive.parent, [archive.name])
    assert f"-XX:SharedArchiveFile={archive}" in driver_java_options().split()
    monkeypatch.setenv("HEADRACE_SPARK_ARCHIVE", "off")
    assert driver_java_options() == ALWAYS


def test_own_options_follow_those_of_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_JAVA_OPTIONS", "-XX:+UseSerialGC -Xss2m")
    assert driver_java_options() == f"{ALWAYS} -XX:+UseSerialGC -Xss2m"
    archive = cached_archive()
    assert archive is not None
    fill(archive.parent, [archive.name])
    assert driver_java_options().split()[-3:] == [f"-XX:SharedArchiveFile={archive}", "-XX:+UseSerialGC", "-Xss2m"]


def test_a_named_archive_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SPARK_ARCHIVE", str(tmp_path / "spark.jsa"))
    with pytest.raises(FixConfigError, match="make archive"):
        driver_java_options()
    fill(tmp_path, ["spark.jsa"])
    assert str(tmp_path / "spark.jsa") in driver_java_options()


def test_another_jdk_has_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cached_archive()
    (tmp_path / "jdk").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert cached_archive() is None  # no release file: which JDK it is cannot be told
    (tmp_path / "jdk" / "release").write_text('JAVA_VERSION="21.0.1"\n')
    assert cached_archive() not in {None, here}


def test_a_jvm_ignores_an_archive_that_does_not_fit_and_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = shutil.which("java")
    assert java is not None
    (tmp_path / "spark.jsa").write_bytes(b"not an archive" * 1000)
    monkeypatch.setenv("HEADRACE_SPARK_ARCHIVE", str(tmp_path / "spark.jsa"))
    command = [java, *driver_java_options().split(), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == ""
    assert "version" in done.stderr
    assert "spark.jsa" not in done.stderr


def test_airflow_may_import_it_while_parsing() -> None:
    program = "import sys, headrace.engine.jvm; print('pyspark' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == "False"
