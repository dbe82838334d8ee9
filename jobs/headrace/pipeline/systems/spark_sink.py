"""A target that Spark reaches, as a sink: what a definition says of it."""

from dataclasses import dataclass
from typing import ClassVar

from headrace.model.arguments import Arguments, keywords
from headrace.pipeline.loading.modules import current
from headrace.pipeline.sink import FunctionSink, connection_name, function_name, sink_name


@dataclass(frozen=True)
class SparkSink(FunctionSink):
    """A function that gives a target of Spark's."""

    kind: ClassVar[str] = "spark"


@keywords
def spark_sink(function: str, *, connection: str | None = None, name: str | None = None) -> SparkSink:
    """A target that Spark reaches and Headrace does not know (Snowflake, BigQuery, a JDBC database), as a class.

    ``function`` is ``module:function``, as a rule a class; the module lies beside the pipeline's file, or is installed.
    It is called with a session, which has ``spark`` (started when it is first used) and ``connection``, and gives an
    object with two methods. ``held()`` reads the text from the target that says which snapshot it holds, or gives None.
    ``apply(changes, before, after, replaces=...)`` writes a DataFrame of changes, and stores the text ``after`` in the
    same transaction, unless the target does not hold the text ``before``. ``connection`` is the name of one. ``name``
    is what the sink is called, by default as the function.

    >>> hr.spark_sink("targets:Reports", connection="oracle").name
    'Reports'
    """
    given = Arguments("spark_sink")
    called = function_name(given, function, "targets:Reports")
    reached = "" if connection is None else connection_name(given, connection)
    return SparkSink(sink_name(given, name, called), reached, function, package=current())
