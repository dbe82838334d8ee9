"""Errors of Spark as typed errors: each provoked for real where that is possible."""

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.distribute.spark.application import SparkSession
from headrace.distribute.spark.errors import (
    AccessDeniedError,
    ArithmeticDataError,
    DiskFullError,
    EngineError,
    OutOfMemoryError,
    SparkJobError,
    SparkStoppedError,
    StorageFailedError,
)
from headrace.distribute.spark.failures import readable_uri, spark_errors, translate_spark_error
from headrace.errors import FixDataError, HeadraceError
from headrace.formats.file_format import FileColumnsError, UnreadableFileError
from headrace.sources.file_planning import VanishedFileError
from headrace_snapshots.store import StoreUnavailableError


@pytest.mark.spark
@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("sum(9223372036854775807 + id)", "leaves 64 bits"),
        ("sum(9223372036854775807 - id)", "leaves 64 bits"),
        ("max(id div (id - 1))", "DIVIDE_BY_ZERO"),
        ("max(cast('x' || id as bigint))", "CAST_INVALID_INPUT"),
    ],
)
def test_arithmetic_that_does_not_fit_is_the_datas_fault(
    spark: SparkSession, expression: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ArithmeticDataError, match=message) as error, spark_errors():
        spark.range(3).selectExpr(expression).collect()
    assert error.value.remedy == "fix_data"
    assert len(str(error.value).splitlines()) == 1
    assert "SQLQueryContextLogger" not in capfd.readouterr().err  # nor PySpark's own report of it


@pytest.mark.spark
def test_a_plan_that_spark_refuses_is_a_defect(spark: SparkSession) -> None:
    with pytest.raises(EngineError, match="UNRESOLVED_COLUMN"), spark_errors():
        spark.range(1).select("nothing").collect()


@pytest.mark.spark
def test_a_missing_path_names_it(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(VanishedFileError, match=f"{tmp_path}/gone"), spark_errors():
        spark.read.text(f"{tmp_path}/gone").collect()


@pytest.mark.spark
def test_a_torn_file_names_itself_and_its_cause(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a b.parquet").write_bytes(b"PAR1 this is no footer PAR1")
    with pytest.raises(UnreadableFileError) as error, spark_errors():
        spark.read.schema("a int").parquet(str(tmp_path)).collect()
    assert error.value.path == f"file://{tmp_path}/a b.parquet"
    assert "Exception" in error.value.reason


def raising(error: Callable[[], Exception]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task that dies of ``error``."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise error()
        yield from batches

    return task


@pytest.mark.spark
@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (lambda: StoreUnavailableError("s3://b/x did not answer"), StoreUnavailableError, r"^s3://b/x did not answer$"),
        (
            lambda: OSError(errno.ENOSPC, "No space left on device"),
            DiskFullError,
            r"^a disk is full: .*No space left on",
        ),
        (
            lambda: FileColumnsError("a.csv", "no column x"),
            FileColumnsError,
            r"^file a\.csv cannot be read: no column x\.",
        ),
        (lambda: ZeroDivisionError("of mine"), SparkJobError, r"ZeroDivisionError: of mine$"),
    ],
)
def test_what_python_raises_in_a_worker_keeps_its_kind_and_cause(
    spark: SparkSession, error: Callable[[], Exception], kind: type[HeadraceError], message: str
) -> None:
    with pytest.raises(HeadraceError, match=message) as error_info, spark_errors():
        spark.range(1).mapInArrow(raising(error), "x long").collect()
    assert type(error_info.value) is kind


def test_what_cannot_be_provoked_here_is_told_by_its_text() -> None:
    oom = translate_spark_error(RuntimeError("Job aborted ... java.lang.OutOfMemoryError: Java heap space"))
    error = translate_spark_error(
        RuntimeError("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://b/x y.json.  SQLSTATE: K\n"
                     "Caused by: java.nio.file.AccessDeniedException: s3a://b/x y.json: 403 Forbidden\n")
    )  # fmt: skip
    stop_error = translate_spark_error(RuntimeError("Job 3 cancelled because SparkContext was shut down"))
    assert isinstance(oom, OutOfMemoryError)
    assert isinstance(error, AccessDeniedError)
    assert "s3a://b/x y.json" in str(error)
    assert isinstance(stop_error, SparkStoppedError)
    assert isinstance(translate_spark_error(ConnectionRefusedError("py4j")), SparkStoppedError)
    unknown = translate_spark_error(
        RuntimeError("o1.collect failed\n: x.Y: z\n\tat a.b\nCaused by: a.b.C: broken pipe\n")
    )
    assert isinstance(unknown, SparkJobError)
    assert str(unknown) == "a Spark job failed: C: broken pipe"


@pytest.mark.parametrize(
    "cause",
    [
        "java.net.SocketTimeoutException: Read timed out",
        "java.net.SocketException: Connection reset",
        "org.apache.hadoop.fs.s3a.AWSServiceThrottledException: re-open s3a://b/x.json at 0: SlowDown (503)",
        "java.io.IOException: Input/output error",
    ],
)
@pytest.mark.parametrize("path", [None, "x.json"])
def test_a_store_that_does_not_answer_says_nothing_about_the_file(cause: str, path: str | None) -> None:
    # as a dead letter the file would be lost for good
    text = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file s3a://b/x.json.  SQLSTATE: K\n"
    text += f"Caused by: {cause}\n"
    error = translate_spark_error(RuntimeError(text), path)
    assert isinstance(error, StorageFailedError)
    assert error.remedy == "retry"
    assert "x.json" in str(error)


def test_a_typed_error_is_itself() -> None:
    error = FixDataError("as it was")
    assert translate_spark_error(error) is error
    with pytest.raises(HeadraceError, match="as it was"), spark_errors():
        raise error


def test_errors_outside_spark_pass_through() -> None:
    with pytest.raises(KeyError), spark_errors():
        raise KeyError("x")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("file:/a/b%20c%2541", "file:///a/b c%41"),
        ("file:///a/b", "file:///a/b"),
        ("s3a://bucket/a%5B1%5D", "s3a://bucket/a[1]"),
    ],
)
def test_uris_are_shown_as_the_names_that_people_gave(uri: str, expected: str) -> None:
    assert readable_uri(uri) == expected
