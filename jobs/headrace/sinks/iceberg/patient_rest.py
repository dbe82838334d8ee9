"""A REST catalog of Iceberg that does not wait for ever: pyiceberg itself gives its requests no time limit."""

from typing import Any, Final

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

SECONDS: Final = (10.0, 120.0)
"""To connect, and between two parts of an answer."""


class _Patient(HTTPAdapter):
    """Gives requests that have no time limit one."""

    def send(self, request: PreparedRequest, *given: Any, **named: Any) -> Response:
        named["timeout"] = named.get("timeout") or SECONDS
        return super().send(request, *given, **named)


class PatientRestCatalog(RestCatalog):  # type: ignore[misc] # pyiceberg's types say Any
    """The same with time limits."""

    def _create_session(self) -> Session:
        session: Session = super()._create_session()
        for prefix, adapter in [*session.adapters.items()]:
            if type(adapter) is HTTPAdapter:  # and not one that signs requests
                session.mount(prefix, _Patient())
        return session
