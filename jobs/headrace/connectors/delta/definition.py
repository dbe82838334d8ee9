"""Delta tables as a sink: what a definition says of one."""

import re
from dataclasses import dataclass
from typing import ClassVar

from headrace.model.arguments import Arguments, keywords
from headrace.pipeline.sink import Sink, connection_name, sink_name

_PATH = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.=-]*(/[A-Za-z0-9_][A-Za-z0-9_.=-]*)*")


@dataclass(frozen=True)
class DeltaSink(Sink):
    """A Delta table at ``path``, below the place that the connection names."""

    kind: ClassVar[str] = "delta"

    path: str

    @property
    def table_of_rows(self) -> str | None:
        return self.path


@keywords
def delta(path: str, *, connection: str, name: str | None = None) -> DeltaSink:
    """A Delta table that holds what readers see: key, window and values.

    ``path`` is where it is below the place of the ``connection``, whose URI is ``s3://key:secret@bucket/prefix`` or
    ``file:///folder`` (``HEADRACE_CONN_{NAME}``, or a connection of Airflow's). ``name`` is what the sink is called, by
    default as the path, with dots.

    >>> hr.delta("reports/sales", connection="lake").name
    'reports.sales'
    """
    given = Arguments("delta")
    if not _PATH.fullmatch(given.text("path", path, "reports/sales")):
        raise given.wrong(
            "path", path, "write folders below the connection's, as in reports/sales: no .. and no scheme"
        )
    return DeltaSink(sink_name(given, name, path.replace("/", ".")), connection_name(given, connection), path)
