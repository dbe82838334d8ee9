"""Tables of an Iceberg catalog as a sink: what a definition says of one, how a catalog is reached, errors."""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Final, cast
from urllib.parse import quote

from headrace.connections import Connection, variable_name
from headrace.errors import HeadraceError
from headrace.ext.sinks import OpenTarget, SinkConnector, SinkMovedError, SinkRefusedError, SinkUnreachableError
from headrace.installed import require_extra
from headrace.model.arguments import Arguments, check_keywords
from headrace.pipeline.endpoints import Sink, connection_name, sink_name
from headrace.sinks.failures import check_columns, refuses_for_good
from headrace.this_process import Size

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyiceberg.catalog import Catalog


_ICEBERG_TABLE = re.compile(r"[A-Za-z0-9_-]{1,100}(\.[A-Za-z0-9_-]{1,100})+")
_PARTITION_UNITS: Final = ("year", "month", "day", "hour")


@dataclass(frozen=True)
class IcebergSink(Sink):
    """A ``table`` of an Iceberg catalog, with its namespace; ``partition_by`` is how a new table is partitioned: by the
    year, month, day or hour in which a window begins, or not at all.
    """

    kind: ClassVar[str] = "iceberg"

    table: str
    partition_by: str | None

    @property
    def table_of_rows(self) -> str | None:
        return self.table


@check_keywords
def iceberg(table: str, *, connection: str, partition_by: str | None = "day", name: str | None = None) -> IcebergSink:
    """A table of an Iceberg catalog that holds what readers see: key, window and values.

    ``table`` has its namespace before it (``reports.sales``). ``connection`` is a name, and what the catalog is called.
    The environment says what it is (``HEADRACE_CONN_{NAME}``), or Airflow does:
    ``https://client:secret@host/path?warehouse=NAME`` for a REST catalog, ``postgresql://user:password@host/database?
    warehouse=s3://bucket/prefix`` for an SQL catalog. ``partition_by`` divides a new table by the
    ``"year"``, ``"month"``, ``"day"`` or ``"hour"`` in which windows begin; None: not at all. A delivery rewrites files
    that have rows which change. ``name`` is what the sink is called, by default as the table.

    >>> hr.iceberg("reports.sales", connection="lake").name
    'reports.sales'
    """
    arguments = Arguments("iceberg")
    if not _ICEBERG_TABLE.fullmatch(arguments.text("table", table, "reports.sales")):
        raise arguments.refusal("table", table, "write namespace.table, with letters, digits, - and _")
    if partition_by is not None and not (isinstance(partition_by, str) and partition_by in _PARTITION_UNITS):
        raise arguments.refusal("partition_by", partition_by, 'write "year", "month", "day", "hour" or None')
    return IcebergSink(
        sink_name(arguments, name, table), connection_name(arguments, connection), table, partition_by=partition_by
    )


_REST_SCHEMES: Final = ("http", "https")
_POSTGRES: Final = ("postgresql", "postgres")
_CATALOG: Final = "catalog"
"""The option that says what the catalog is called, if not as the connection."""
_CATALOG_CLASS: Final = "py-catalog-impl"
_PATIENT_REST: Final = "headrace.connectors.iceberg.patient_rest.PatientRestCatalog"
_PATIENT_SQL: Final = "headrace.connectors.iceberg.patient_sql.PatientSqlCatalog"
_SIGV4_PROPERTY: Final = "rest.sigv4-enabled"
CONNECT_SECONDS: Final = Size(10)
_SQLITE_PASSES: Final = re.compile(r"is locked|is busy|disk I/O error|disk is full|interrupted")
"""What SQLite says that passes."""
_STORE_TIMEOUTS: Final = {"s3.connect-timeout": "10", "s3.request-timeout": "60"}
"""Seconds that a store of files is waited for."""


class Iceberg(SinkConnector):
    """Tables of Iceberg catalogs: REST, and SQL in PostgreSQL or SQLite."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[OpenTarget]:
        require_extra("iceberg", f"sink {sink.name}")
        from headrace.connectors.iceberg.table import IcebergTarget

        assert isinstance(sink, IcebergSink)
        with _open_catalog(connection, f"the catalog of sink {sink.name}") as catalog:
            yield IcebergTarget(catalog, sink.table, f"{sink.table} of {connection}", sink.partition_by)

    @contextmanager
    def read(self, table: str, columns: Sequence[str], connection: Connection) -> "Iterator[pa.RecordBatchReader]":
        require_extra("iceberg", f"the comparison with {table}")
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        from headrace.connectors.iceberg.table import read_columns

        with _open_catalog(connection, f"the comparison with {table}") as catalog:
            try:
                iceberg_table = catalog.load_table(table)
                check_columns(table, columns, [field.name for field in iceberg_table.schema().fields])
                yield read_columns(iceberg_table, columns)
            except (NoSuchTableError, NoSuchNamespaceError):
                raise SinkRefusedError(f"there is no table {table} in {connection}") from None


ICEBERG = Iceberg()


def catalog_properties(connection: Connection) -> dict[str, str]:
    """What pyiceberg is told of a catalog. Raises SinkRefusedError."""
    options = {name: value for name, value in connection.options.items() if name != _CATALOG}
    port = "" if connection.port is None else f":{connection.port}"
    if connection.scheme in _REST_SCHEMES:
        uri = f"{connection.scheme}://{connection.host}{port}/{connection.database}".rstrip("/")
        login = _signing_properties(connection) if _is_signed(connection) else _oauth_properties(connection, uri)
        return {_CATALOG_CLASS: _PATIENT_REST, "uri": uri, **login, **_STORE_TIMEOUTS, **options}
    if connection.scheme in _POSTGRES:
        user = f"{quote(connection.user, safe='')}:{quote(connection.password, safe='')}@" if connection.user else ""
        place = f"{user}{connection.host}{port}/{connection.database}"
        uri = f"postgresql+psycopg://{place}?connect_timeout={CONNECT_SECONDS.value}&client_encoding=utf8"
        return {_CATALOG_CLASS: _PATIENT_SQL, "uri": uri, **_STORE_TIMEOUTS, **options}
    if connection.scheme == "sqlite":
        uri = f"sqlite:////{connection.database}"
        return {_CATALOG_CLASS: _PATIENT_SQL, "uri": uri, **_STORE_TIMEOUTS, **options}
    raise SinkRefusedError(
        f"{variable_name(connection.name)} is a URI of {connection.scheme}; Iceberg catalogs need https://..., "
        "postgresql://... or sqlite:///..., with ?warehouse=..."
    )


def _is_signed(connection: Connection) -> bool:
    """Whether requests are signed, as catalogs of AWS ask for (SigV4)."""
    return connection.options.get(_SIGV4_PROPERTY, "").lower() in ("true", "1", "yes", "on", "y", "t")


def _oauth_properties(connection: Connection, uri: str) -> dict[str, str]:
    login = {"credential": f"{connection.user}:{connection.password}"} if connection.user else {}
    # where pyiceberg looks by itself, which it is about to give up
    return {"oauth2-server-uri": f"{uri}/v1/oauth/tokens", **login}


def _signing_properties(connection: Connection) -> dict[str, str]:
    """User and password are a key of AWS; without, pyiceberg does as AWS's own tools. Raises SinkRefusedError."""
    if find_spec("boto3") is None:
        raise SinkRefusedError(f"{connection}: {_SIGV4_PROPERTY} needs boto3: pip install 'pyiceberg[rest-sigv4]'")
    key = {"client.access-key-id": connection.user, "client.secret-access-key": connection.password}
    return {"rest.sigv4.max-retries": "0", **(key if connection.user else {})}  # the next delivery tries again


@contextmanager
def _open_catalog(connection: Connection, what: str) -> "Iterator[Catalog]":
    """The catalog, for as long as it answers; ``what`` needs it."""
    properties = catalog_properties(connection)
    watch: AbstractContextManager[None] = nullcontext()
    if connection.scheme in _POSTGRES:
        require_extra("postgres", what)
        from headrace.connectors.iceberg.patient_sql import watched_catalog

        watch = watched_catalog(properties["uri"], str(connection))
    # pyiceberg's load_catalog would add settings that the environment has of a catalog of that name
    module, _, name = properties[_CATALOG_CLASS].rpartition(".")
    with translate_errors(connection), watch:
        catalog = getattr(import_module(module), name)(connection.options.get(_CATALOG, connection.name), **properties)
        try:
            yield catalog
        finally:
            catalog.close()


@contextmanager
def translate_errors(connection: Connection) -> Iterator[None]:
    """Errors of Iceberg become those of sinks, by what the caller should do, without secrets."""
    from pydantic import ValidationError
    from pyiceberg import exceptions as iceberg
    from requests import exceptions as requests
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    denial_errors = (iceberg.UnauthorizedError, iceberg.ForbiddenError, iceberg.OAuthError, PermissionError)
    passing = (
        iceberg.ServiceUnavailableError,
        iceberg.ServerError,
        iceberg.TooManyRequestsError,
        iceberg.CommitStateUnknownException,
        iceberg.AuthorizationExpiredError,
        requests.RequestException,
        OSError,
    )
    miswritten = (
        requests.InvalidURL,
        requests.MissingSchema,
        requests.InvalidSchema,
        requests.InvalidHeader,
        requests.TooManyRedirects,
    )
    try:
        yield
    except (iceberg.CommitFailedException, iceberg.TableAlreadyExistsError, iceberg.ValidationException) as error:
        raise SinkMovedError(
            f"{_error_text(connection, error)}: another commit came between. Nothing was changed; the next delivery "
            "continues from there"
        ) from None
    except denial_errors as error:
        raise SinkRefusedError(
            f"{_error_text(connection, error)}. Is {variable_name(connection.name)} right?"
        ) from None
    except passing as error:
        is_uncertified = isinstance(error, requests.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error)
        if isinstance(error, miswritten) or is_uncertified or refuses_for_good(str(error)):
            raise SinkRefusedError(
                f"{_error_text(connection, error)}. Is {variable_name(connection.name)} right?"
            ) from None
        raise SinkUnreachableError(f"{_error_text(connection, error)}. The next delivery tries again") from None
    except ValidationError as error:
        raise SinkRefusedError(
            f"{_error_text(connection, error)}: no catalog of Iceberg answers that. Is "
            f"{variable_name(connection.name)} right?"
        ) from None
    except DBAPIError as error:
        raise _of_database(_error_text(connection, error), error.orig, connection) from None
    except (iceberg.RESTError, SQLAlchemyError, iceberg.NoSuchNamespaceError) as error:
        raise SinkRefusedError(f"{_error_text(connection, error)}. Nothing was delivered") from None


def _of_database(text: str, error: BaseException | None, connection: Connection) -> HeadraceError:
    """The error of a sink that an ``error`` of an SQL catalog's database is: PostgreSQL's, or SQLite's, which locks."""
    if getattr(error, "sqlstate", ...) is not ...:
        from headrace.sinks.failures import sink_error

        return sink_error(text, cast("psycopg.Error", error), connection)
    if _SQLITE_PASSES.search(text):
        return SinkUnreachableError(f"{text}. The next delivery tries again")
    return SinkRefusedError(f"{text}. Nothing was delivered. Is {variable_name(connection.name)} right?")


def _error_text(connection: Connection, error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{connection}: {connection.without_secrets(lines[0] if lines else type(error).__name__)}"
