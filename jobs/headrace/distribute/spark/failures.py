"""Failures of Spark, translated: what a caller can act on instead of a Java stack trace.

Spark's own error conditions decide wherever there is one; texts of the JVM only where Spark has none. The original
stays the cause of the translated error, for the log.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import AnalysisException, PySparkException

from headrace.distribute.spark import errors
from headrace.errors import HeadraceError
from headrace.formats.file_format import UnreadableFileError
from headrace.pipeline.loading.modules import OWN_PACKAGES
from headrace.sources.file_planning import VanishedFileError

SparkFailure = (PySparkException, Py4JError, ConnectionError)
"""What ``except`` should name around a Spark action; connections fail where the JVM is gone."""


@contextmanager
def spark_errors() -> Iterator[None]:
    """Raise what Spark raises inside the block as one of these errors."""
    try:
        yield
    except SparkFailure as error:
        raise translate_spark_error(error) from error


@contextmanager
def translate_start_errors(log: Path | None) -> Iterator[None]:
    """Raise what goes wrong while Spark starts inside the block as one of these errors; ``log`` has what it said."""
    try:
        yield
    except (*SparkFailure, OSError, TypeError) as error:  # half a JVM has no classes: PySpark calls what is not there
        messages = (
            [] if log is None else [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        )
        words = "; ".join(line.strip() for line in messages[-3:]) or _Failure(str(error), None).summary
        log_hint = "" if log is None else f" All its messages are in {log}"
        if _REFUSED_START.search(words):
            raise errors.JvmRefusedError(
                f"Java does not start Spark: {words}. Install Java 17 or newer (JAVA_HOME, or java on PATH), and look "
                f"at HEADRACE_JAVA_OPTIONS and HEADRACE_DRIVER_MEMORY.{log_hint}"
            ) from error
        raise errors.SparkStartError(
            f"Spark's JVM ended before it ran: {words}. Run again; if it is killed each time, the machine lacks "
            f"memory.{log_hint}"
        ) from error


def translate_spark_error(exc: BaseException, path: str | None = None) -> HeadraceError:
    """The error to raise instead of ``exc``, something that Spark or py4j raised; a HeadraceError is itself.

    ``path``: the one file that was being read, if it is known; else Spark's message says which it was.
    """
    if isinstance(exc, HeadraceError):
        return exc
    failure = _Failure(str(exc), path)
    for pattern, make in _TRANSLATIONS:
        if pattern.search(failure.text) and (error := make(failure)) is not None:
            return error
    if isinstance(exc, Py4JNetworkError | ConnectionError):
        return _stopped_error(failure)
    if isinstance(exc, AnalysisException):
        return errors.EngineError(
            f"Spark refuses the plan: {failure.summary}. This is a defect of Headrace: please report it"
        )
    if path is not None:
        return _unreadable_error(failure)
    return errors.SparkJobError(f"a Spark job failed: {failure.summary}")


_UNREADABLE_FILE = re.compile(
    r"Encountered error while reading file (?P<uri>.+?)\.? +(?=SQLSTATE|File does not exist|Data type mism)"
)
_REFUSED_START = re.compile(
    r"JAVA_HOME is not set|bin/java|java: command not found|Could not create the Java Virtual Machine|Unrecognized "
    r"(VM )?option|Error occurred during initialization of VM|UnsupportedClassVersionError"
)
_UNKNOWN_FILE = "(Spark does not say which)"
_MISSING_PATH = re.compile(r"Path does not exist: (?P<uri>.+?)\.? SQLSTATE")
_PYTHON = re.compile(  # the last line of a traceback of a Python worker, and what belongs to the message
    r"^(?:(?P<module>[\w.]+)\.)?(?P<kind>[A-Za-z_]\w*)(?:: (?P<message>.*?))?(?=\n\s*(?:\n|at |SQLSTATE)|\n\w|\Z)",
    re.MULTILINE | re.DOTALL,
)
_TRACEBACK = "Traceback (most recent call last):"
_CAUSE = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)*(?P<kind>[\w$]+)(?:: (?P<message>.*))?$", re.MULTILINE)
_NO_ANSWER = re.compile(
    r"\b(SocketException|SocketTimeoutException|InterruptedIOException|ConnectException|UnknownHostException"
    r"|NoRouteToHostException|SSLException|NoHttpResponseException|ConnectTimeoutException|ConnectionPoolTimeoutException"
    r"|ConnectionClosedException|HttpChannelEOFException|AWSNoResponseException|AWSServiceThrottledException"
    r"|AWSStatus500Exception|AWSApiCallTimeoutException|ApiCallTimeoutException|ApiCallAttemptTimeoutException"
    r"|Too many open files|Input/output error|Stale file handle)\b"
)
_CONDITION = re.compile(r"\[(?P<condition>[A-Z][A-Z_0-9]*(?:\.[A-Z_0-9]+)*)\] ?(?P<message>[^\n]*)")


@dataclass(frozen=True)
class _Failure:
    """The text of an exception, and what can be read out of it."""

    text: str
    path: str | None

    @property
    def summary(self) -> str:
        """One line for people: Spark's condition with its message, or the innermost cause, or the first line."""
        condition = _CONDITION.search(self.text)
        if condition:
            return f"[{condition['condition']}] {condition['message']}".rstrip(" .")
        if python_error := self.worker_exception:
            return ": ".join(part for part in (python_error["kind"], python_error["message"]) if part)
        lines = (line for line in self.text.splitlines() if line.strip())
        return self.cause or next(lines, "no message").rstrip(" .")

    @property
    def worker_exception(self) -> re.Match[str] | None:
        """What Python raised in a worker: module, kind and message of the exception; None if nothing did."""
        # Frames are indented, and of chained exceptions the last is the one that left the worker
        traceback_start = self.text.rfind(_TRACEBACK)
        return None if traceback_start < 0 else _PYTHON.search(self.text, traceback_start + len(_TRACEBACK))

    @property
    def cause(self) -> str:
        """The innermost Java exception, without its package; empty if the text has none."""
        causes = list(_CAUSE.finditer(self.text))
        if not causes:
            return ""
        return ": ".join(part for part in (causes[-1]["kind"], causes[-1]["message"]) if part).rstrip(" .")

    @property
    def file(self) -> str:
        """The file that was being read; empty if that is not known."""
        match = _MISSING_PATH.search(self.text) or _UNREADABLE_FILE.search(self.text)
        return self.path or (readable_uri(match["uri"]) if match else "")


def readable_uri(uri: str) -> str:
    """Spark's URI of a file as ``hadoop_uri`` writes it: not percent-encoded, ``file:///`` with three slashes."""
    decoded_uri = unquote(uri)
    return "file://" + decoded_uri.removeprefix("file:") if re.match(r"file:/(?!/)", decoded_uri) else decoded_uri


def _unreadable_error(failure: _Failure) -> HeadraceError:
    file, reason = failure.file or _UNKNOWN_FILE, failure.cause or failure.summary
    if _NO_ANSWER.search(failure.text):  # Spark takes it for a fault of the file
        return errors.StorageFailedError(f"storage did not give file {file}: {reason}. Run again")
    return UnreadableFileError(file, reason)


def _vanished_file_error(failure: _Failure) -> HeadraceError:
    return VanishedFileError(failure.file or _UNKNOWN_FILE)


def _error_maker(kind: type[HeadraceError], text: str) -> "Callable[[_Failure], HeadraceError]":
    """Makes an error of that ``kind``, in whose ``text`` {summary} stands for what Spark said."""
    return lambda failure: kind(text.format(summary=failure.summary))


_CORRECT = "Cast its operands to float, filter such records out, or correct the data"
_arithmetic = _error_maker(
    errors.ArithmeticDataError, f"the data make an expression of the pipeline fail: {{summary}}. {_CORRECT}"
)
_overflow = _error_maker(
    errors.ArithmeticDataError,
    f"an integer of the pipeline's expressions or aggregates leaves 64 bits (it is never wrapped). {_CORRECT}",
)
_memory = _error_maker(
    errors.OutOfMemoryError,
    "Spark ran out of memory: {summary}. "
    "Give the driver (or the executors) more, or take smaller epochs (max_files, max_bytes of the source)",
)


def _access_denied_error(failure: _Failure) -> HeadraceError:
    return errors.AccessDeniedError(
        f"storage denies access{f' to {failure.file}' if failure.file else ''}: {failure.cause or failure.summary}. "
        "Check the credentials (AWS_ACCESS_KEY_ID ...) and the rights of the file or bucket"
    )


def _own_error(failure: _Failure) -> HeadraceError | None:
    """The error of Headrace that a Python worker raised, as if it had been raised here; None for anything else."""
    python_error = failure.worker_exception
    if python_error is None or (python_error["module"] or "").partition(".")[0] not in OWN_PACKAGES:
        return None
    kind = getattr(import_module(python_error["module"]), python_error["kind"], None)
    if not (isinstance(kind, type) and issubclass(kind, HeadraceError)):
        return None
    error = kind.__new__(kind)
    error.args = (python_error["message"] or "",)  # some kinds make their message of arguments that are not known here
    return error


def _disk_full(failure: _Failure) -> HeadraceError:
    message = failure.worker_exception["message"] if failure.worker_exception else failure.cause
    return errors.DiskFullError(
        f"a disk is full: {message or failure.summary}. Spark keeps what it shuffles and spills below SPARK_LOCAL_DIRS "
        f"({os.environ.get('SPARK_LOCAL_DIRS', tempfile.gettempdir())}): free space there, or name a larger disk, and "
        "run again"
    )


def _stopped_error(failure: _Failure) -> HeadraceError:
    return errors.SparkStoppedError(f"Spark stopped in the middle of its work: {failure.summary}. Run again")


# The first that matches decides: what explains the others comes first.
_TRANSLATIONS: list[tuple[re.Pattern[str], Callable[[_Failure], HeadraceError | None]]] = [
    (re.compile(re.escape(_TRACEBACK)), _own_error),
    (re.compile(r"No space left on device|Disk quota exceeded"), _disk_full),
    (re.compile(r"OutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY|Container killed .* memory"), _memory),
    (
        re.compile(r"AccessDenied|Permission denied|Forbidden|InvalidAccessKeyId|SignatureDoesNotMatch"),
        _access_denied_error,
    ),
    (re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST|\[PATH_NOT_FOUND\]|FileNotFoundException"), _vanished_file_error),
    (re.compile(r"\[FAILED_READ_FILE[.\]]"), _unreadable_error),
    (re.compile(r"\[(BINARY_)?ARITHMETIC_OVERFLOW[.\]]"), _overflow),
    (
        re.compile(
            r"\[(DIVIDE_BY_ZERO|REMAINDER_BY_ZERO|CAST_OVERFLOW|CAST_INVALID_INPUT|DATETIME_OVERFLOW"
            r"|NUMERIC_VALUE_OUT_OF_RANGE)[.\]]"
        ),
        _arithmetic,
    ),
    (re.compile(r"SparkContext was shut ?down|stopped SparkContext|SparkContext has been shutdown"), _stopped_error),
]
