"""Delta tables as a sink: what a definition says of one, how a table is reached, and what its errors mean."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from headrace.connections import Connection, variable_name
from headrace.ext.sinks import OpenTarget, SinkConnector, SinkMovedError, SinkRefusedError, SinkUnreachableError
from headrace.installed import require_extra
from headrace.model.arguments import Arguments, check_keywords
from headrace.pipeline.endpoints import Sink, connection_name, sink_name
from headrace.sinks.failures import check_columns, refuses_for_good

if TYPE_CHECKING:
    import pyarrow as pa


_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.=-]*(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)*")


@dataclass(frozen=True)
class DeltaSink(Sink):
    """A Delta table at ``path``, below the place that the connection names."""

    kind: ClassVar[str] = "delta"

    path: str

    @property
    def table_of_rows(self) -> str | None:
        return self.path


@check_keywords
def delta(path: str, *, connection: str, name: str | None = None) -> DeltaSink:
    """A Delta table that holds what readers see: key, window and values.

    ``path`` is where it is below the place of the ``connection``, whose URI is ``s3://key:secret@bucket/prefix`` or
    ``file:///folder`` (``HEADRACE_CONN_{NAME}``, or a connection of Airflow's). ``name`` is what the sink is called, by
    default as the path, with dots.

    >>> hr.delta("reports/sales", connection="lake").name
    'reports.sales'
    """
    arguments = Arguments("delta")
    if not _PATH.fullmatch(arguments.text("path", path, "reports/sales")):
        raise arguments.refusal(
            "path", path, "write folders below the connection's, as in reports/sales: no .. and no scheme"
        )
    return DeltaSink(sink_name(arguments, name, path.replace("/", ".")), connection_name(arguments, connection), path)


_STORAGE_OPTIONS: Final[Mapping[str, str]] = {
    "endpoint_url": "aws_endpoint",
    "region": "aws_region",
    "region_name": "aws_region",
    "aws_session_token": "aws_session_token",
}
"""Options of a connection that the store's client calls otherwise. Others go to it as they are."""
_STORE_TIMEOUTS: Final = {"connect_timeout": "10s", "retry_timeout": "30s", "max_retries": "5"}
_NO_ANSWER: Final = re.compile(r"error sending request|HTTP error")
_MISWRITTEN: Final = re.compile(r"Generic Config error|failed to parse", re.IGNORECASE)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")


class Delta(SinkConnector):
    """Delta tables on S3, or in a folder."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[OpenTarget]:
        require_extra("delta", f"sink {sink.name}")
        from headrace.connectors.delta.table import DeltaTarget

        assert isinstance(sink, DeltaSink)
        place, options = store_location(connection)
        with translate_errors(connection):
            yield DeltaTarget(f"{place}/{sink.path}", options, f"{sink.path} of {connection}")

    @contextmanager
    def read(self, table: str, columns: Sequence[str], connection: Connection) -> "Iterator[pa.RecordBatchReader]":
        require_extra("delta", f"the comparison with {table}")
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        place, options = store_location(connection)
        with translate_errors(connection):
            try:
                delta_table = DeltaTable(f"{place}/{table}", storage_options=options)
            except TableNotFoundError:
                raise SinkRefusedError(f"there is no Delta table {table} in {connection}") from None
            check_columns(table, columns, [field.name for field in delta_table.schema().fields])
            yield delta_table.to_pyarrow_dataset().scanner(columns=[*columns]).to_reader()


DELTA = Delta()


def store_location(connection: Connection) -> tuple[str, dict[str, str]]:
    """The place of a connection, and options for the client of its store. Raises SinkRefusedError."""
    folder = connection.database.strip("/")
    if connection.scheme == "file":
        return f"/{folder}", {}
    if connection.scheme != "s3":
        raise SinkRefusedError(
            f"{variable_name(connection.name)} is a URI of {connection.scheme}; Delta tables need s3://bucket/prefix "
            "or file:///folder"
        )
    options = {_STORAGE_OPTIONS.get(name, name): value for name, value in connection.options.items()}
    if connection.user:
        options |= {"aws_access_key_id": connection.user, "aws_secret_access_key": connection.password}
    if options.get("aws_endpoint", "").startswith("http://"):
        options["aws_allow_http"] = "true"
    # commits are put if nobody was faster: no lock, no other table
    own = {**_STORE_TIMEOUTS, "aws_conditional_put": "etag", **_instead_of_the_environment(connection, options)}
    return f"s3://{connection.host}/{folder}".rstrip("/"), {**own, **options}


def _instead_of_the_environment(connection: Connection, options: Mapping[str, str]) -> dict[str, str]:
    """Options without which the client would take the environment's, which belong to another key or another store."""
    own = {}
    if connection.user:
        own["aws_skip_signature"] = "false"
        if "AWS_SESSION_TOKEN" in os.environ:
            own["aws_session_token"] = ""
    if (endpoint := options.get("aws_endpoint")) is not None:
        own |= dict.fromkeys(("aws_endpoint_url", "aws_endpoint_url_s3"), endpoint)
        own["aws_virtual_hosted_style_request"] = "false"
    return own


_APPEND_ONLY: Final = "Delta table is append-only"


@contextmanager
def translate_errors(connection: Connection) -> Iterator[None]:
    """Errors of Delta become those of sinks, by what the caller should do, without secrets."""
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        yield
    except CommitFailedError as error:
        if _APPEND_ONLY in str(error):
            raise SinkRefusedError(
                f"{connection}: {connection.without_secrets(str(error))}. Nothing was delivered: set its property "
                "delta.appendOnly to false"
            ) from None
        raise SinkMovedError(
            f"{connection}: another commit came between ({connection.without_secrets(str(error))}). Nothing was "
            "changed, or all of it if the answer was lost; the next delivery continues from there"
        ) from None
    except (DeltaError, OSError) as error:
        text = f"{connection}: {connection.without_secrets(_COLOURS.sub('', str(error)).strip())}"
        if refuses_for_good(text) or (_MISWRITTEN.search(text) and not _NO_ANSWER.search(text)):
            raise SinkRefusedError(f"{text}. Is {variable_name(connection.name)} right?") from None
        if isinstance(error, OSError) or "error sending request" in text or "Generic S3 error" in text:
            raise SinkUnreachableError(f"{text}. The next delivery tries again") from None
        raise SinkRefusedError(f"{text}. Nothing was delivered") from None
