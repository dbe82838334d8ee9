"""What goes wrong behind Spark, in words for a person: in a user's code, and in the systems that it asks.

What a database has said to code of users that reaches it through Spark: to Java's driver, or to Python's.

What the code of a source that Spark reads raises, and Spark and the database behind it: errors by what the caller
does, with the name of the source, and without the secrets of its connection.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from headrace.connections import Connection, failure, hide_secrets, in_a_line
from headrace.connectors.spark.definition import SparkSource
from headrace.connectors.spark.errors import RangeFailedError, RangeFunctionError, RangeRefusedError
from headrace.distribute.spark.errors import SparkJobError
from headrace.distribute.spark.failures import translate_spark_error
from headrace.errors import HeadraceError
from headrace.sql_states import SqlAnswer, answer_of


@dataclass(frozen=True)
class DatabaseAnswer:
    """What a database says: its SQLSTATE, and a text in a line."""

    state: str
    text: str

    @property
    def refuses(self) -> bool:
        """Whether it would say the same again."""
        return self._answer in (SqlAnswer.LOGIN, SqlAnswer.REFUSED)

    @property
    def passes(self) -> bool:
        """Whether it may say something else soon; so where nothing was connected, which has no SQLSTATE."""
        return self._answer is SqlAnswer.PASSING

    @property
    def _answer(self) -> SqlAnswer:
        return answer_of(self.state, self.text)


def answer_of_database(error: Exception, connection: Connection | None) -> DatabaseAnswer | None:
    """What a database says that a driver of Python or Java has asked; None if it is no error of one."""
    if hasattr(error, "sqlstate"):  # psycopg's; None where nothing was connected
        return DatabaseAnswer(error.sqlstate or "", failure(error, connection))
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)  # as py4j or PySpark has it
    with suppress(Py4JError):  # a JVM that is gone
        while java is not None:
            with suppress(Py4JError):  # it is no SQLException
                return DatabaseAnswer(java.getSQLState() or "", in_a_line(java.getMessage(), connection))
            java = java.getCause()
    return None


@contextmanager
def named_failures(source: SparkSource, connection: Connection | None) -> Iterator[None]:
    """Inside, what the code of ``source`` and Spark raise beside Headrace's errors becomes an error of this source."""
    try:
        yield
    except HeadraceError as error:
        if connection is not None:
            hide_secrets(error, connection)
        raise
    except Exception as error:
        # without what was caught: it may quote a secret
        raise _named(source, connection, error) from None


def _named(source: SparkSource, connection: Connection | None, error: Exception) -> HeadraceError:
    of = str(source) if connection is None else f"{source} ({connection})"
    answer = answer_of_database(error, connection)
    if answer is not None and answer.refuses:
        return RangeRefusedError(f"{of}: the database refuses: {answer.text}. Nothing of it was landed")
    if answer is not None:
        text = answer.text
    elif isinstance(error, AnalysisException):
        reason = in_a_line(str(error).partition(";")[0], connection)
        return RangeFunctionError(f"{of}: Spark refuses its DataFrame: {reason}. Correct read()")
    elif isinstance(error, PySparkException | Py4JError):
        translated = translate_spark_error(error)
        text = in_a_line(str(translated), connection)
        if not isinstance(translated, SparkJobError):
            translated.args = (f"{of}: {text}",)
            return translated
    else:
        text = failure(error, connection)
    return RangeFailedError(f"{of} failed: {text}. Nothing of it was landed; the next run begins there again")
