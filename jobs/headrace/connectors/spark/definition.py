"""What Spark reads or writes by a user's code: what a definition says of it, as a source and as a sink; errors.

A source is whatever Spark can read, by a user's class that reads ranges (``SparkSource``). A sink is a target that
Spark reaches (``SparkSink``). What can be wrong with a source is told apart by what the caller does.
"""

from dataclasses import dataclass, field
from typing import ClassVar, TypedDict, Unpack

from headrace.errors import FixConfigError, RetryError
from headrace.formats.file_format import FileColumnsError
from headrace.model.arguments import Arguments, check_keywords
from headrace.model.changelog import Changelog, Versions, WrittenChangelog, changelog_of, versions_of
from headrace.model.expressions.columns import SourceColumns, WrittenColumns, columns_of_source
from headrace.pipeline import endpoints
from headrace.pipeline.loading.modules import current_package


class RangeReading(TypedDict, total=False):
    """How ranges are read: the arguments of ``spark_source`` beside function, schema, connection and name."""

    max_files: int
    max_bytes: int
    max_rejected: int | None
    missing: endpoints.OnMissing | str
    transform: endpoints.OwnFunction | None
    explode: str | None
    changelog: WrittenChangelog | None
    versions: Versions | None


@dataclass(frozen=True)
class SparkSource(endpoints.Source):
    """What the ``function`` (``module:function``) reads by ranges, called ``name``. Written as ``spark_source(...)``.

    ``package`` says which folder the module lies in, if it lies beside the pipeline's file.
    """

    kind: ClassVar[str] = "spark"
    is_durable = False  # nobody knows what is there tomorrow

    function: str
    schema: SourceColumns
    name: str
    connection: str = ""
    max_files: int = 100
    max_bytes: int = 512 * 1024 * 1024
    max_rejected: int | None = None
    missing: endpoints.OnMissing = endpoints.OnMissing.FAIL
    transform: endpoints.OwnFunction | None = None
    explode: str | None = None
    changelog: Changelog | None = None
    versions: Versions | None = None
    package: str | None = field(default=None, repr=False, compare=False)

    @property
    def place(self) -> str:
        """The connection and the name."""
        return f"{self.connection}/{self.name}" if self.connection else self.name

    @property
    def connections(self) -> tuple[str, ...]:
        """The connection, if it names one."""
        return (self.connection,) if self.connection else ()

    def __str__(self) -> str:
        return f"{self.function} through Spark"


@check_keywords
def spark_source(
    function: str,
    schema: WrittenColumns,
    *,
    connection: str | None = None,
    name: str | None = None,
    **reading: Unpack[RangeReading],
) -> SparkSource:
    """Records that Spark reads and Headrace does not know (a JDBC database, BigQuery, MongoDB, Avro), by a class.

    ``function`` is ``module:function``, as a rule a class; the module lies beside the pipeline's file, or is installed.
    It is called with a session, which has ``spark`` (started when it is first used) and ``connection``, and gives an
    object with two methods. ``ends(begin)`` gives texts of yours, in order: each is where a range of new records ends,
    and the next one begins; ``begin`` is the last one that was landed, None at first. ``read(begin, end)`` gives a
    DataFrame of the records behind ``begin`` and up to ``end``, which has the columns of ``schema``. Each run first
    lands what is new as files in its pipeline's folder, and reads it from there. So replays and backfills ask for no
    range again. ``connection`` is the name of one. ``name`` is what the source is called, by default as the function;
    where records have been landed, it stays. The further arguments (``reading``) are those of ``FileSource``.

    >>> hr.spark_source("orders:Orders", {"shop": str, "at": datetime}, connection="orders_db").place
    'orders_db/orders:Orders'
    """
    arguments = Arguments("spark_source")
    endpoints.function_name(arguments, function, "orders:Orders")
    checked_connection = "" if connection is None else endpoints.connection_name(arguments, connection)
    checked_name = function if name is None else arguments.text("name", name, "orders")
    columns = columns_of_source(arguments, "schema", schema)
    limit = reading.get("max_rejected")
    transform = endpoints.own_function(arguments, reading.get("transform"))
    explode = endpoints.exploded_column(arguments, reading.get("explode"), columns, transform)
    endpoints.with_objects(arguments, explode, columns, "give a row of each in read(begin, end)")
    changelog = changelog_of(arguments, reading.get("changelog"))
    if changelog is not None:
        changelog.check(arguments, columns)
    defaults = SparkSource
    return SparkSource(
        function,
        columns,
        checked_name,
        checked_connection,
        arguments.whole_number("max_files", reading.get("max_files", defaults.max_files), least=1),
        arguments.whole_number("max_bytes", reading.get("max_bytes", defaults.max_bytes), least=1),
        None if limit is None else arguments.whole_number("max_rejected", limit, least=0),
        arguments.choice("missing", reading.get("missing", defaults.missing), endpoints.OnMissing),
        transform,
        explode,
        changelog,
        versions_of(arguments, reading.get("versions"), changelog, None),
        package=current_package(),
    )


@dataclass(frozen=True)
class SparkSink(endpoints.FunctionSink):
    """A function that gives a target of Spark's."""

    kind: ClassVar[str] = "spark"


@check_keywords
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
    arguments = Arguments("spark_sink")
    name_of_function = endpoints.function_name(arguments, function, "targets:Reports")
    checked_connection = "" if connection is None else endpoints.connection_name(arguments, connection)
    return SparkSink(
        endpoints.sink_name(arguments, name, name_of_function), checked_connection, function, package=current_package()
    )


class RangeFunctionError(FixConfigError, code="config.range_function"):
    """The function of a source that Spark reads cannot be imported, or gives what Headrace or Spark cannot use."""


class RangeColumnsError(FixConfigError, code="config.range_columns"):
    """A source that Spark reads gives other columns than its schema says. Nothing was landed."""


class RangeRefusedError(FixConfigError, code="config.range_refused"):
    """The database that a source reads through Spark refuses the login, or what it is asked for. Nothing was landed."""


class RangeFailedError(RetryError, code="retry.range_failed"):
    """The code of a source that Spark reads, or what it reads from, failed. Nothing was landed."""


class LandedColumnsError(FileColumnsError, code="data.landed_columns"):
    """A schema says otherwise of columns than what was landed of a source that Spark reads."""

    what_to_do = (
        "The schema has changed since it was landed: write the types that it had; of a column that is new, "
        'missing="null" makes it NULL in what was landed before'
    )
