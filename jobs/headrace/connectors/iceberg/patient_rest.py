"""A REST catalog of Iceberg that does not wait for ever: pyiceberg itself gives its requests no time limit."""

from collections.abc import Callable
from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session

from headrace.this_process import Size

SECONDS: Final = Size((10.0, 120.0))
"""To connect, and between two parts of an answer."""


class PatientRestCatalog(RestCatalog):  # type: ignore[misc] # pyiceberg's types say Any
    """The same with time limits."""

    def _create_session(self) -> Session:
        session: Session = super()._create_session()
        for adapter in session.adapters.values():  # also the one that signs requests
            adapter.send = _with_time_limit(adapter.send)  # type: ignore[method-assign]
        return session


def _with_time_limit(send: Callable[..., Response]) -> Callable[..., Response]:
    """``send`` of an adapter, which gives requests that have no time limit one."""

    def send_with_limit(request: PreparedRequest, **options: Any) -> Response:
        options["timeout"] = options.get("timeout") or SECONDS.value
        return send(request, **options)

    return send_with_limit
