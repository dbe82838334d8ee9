"""What the code of a source that Spark reads raises, and Spark and the database behind it: errors by what the caller
does, with the name of the source, and without the secrets of its connection.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException

from headrace.connections import Connection, failure, hide_secrets, in_a_line
from headrace.distribute.spark.connected.answers import answer_of_database
from headrace.distribute.spark.errors import SparkJobError
from headrace.distribute.spark.failures import translate_spark_error
from headrace.distribute.spark.ranges.errors import RangeFailedError, RangeFunctionError, RangeRefusedError
from headrace.errors import HeadraceError
from headrace.pipeline.systems.spark import SparkSource


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
