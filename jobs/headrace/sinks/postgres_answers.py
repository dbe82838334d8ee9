"""What errors of PostgreSQL mean for a sink, also where it is a catalog of Iceberg."""

from typing import TYPE_CHECKING

from headrace.connections import Connection, variable
from headrace.errors import HeadraceError
from headrace.ext.sinks import SinkRefusedError, SinkUnreachableError, UndeliverableError
from headrace.sql_states import SqlAnswer, answer_of

if TYPE_CHECKING:
    import psycopg


def refusal(text: str, error: "psycopg.Error", connection: Connection) -> HeadraceError:
    """The error of a sink that an ``error`` of PostgreSQL is, in a ``text`` without secrets."""
    import psycopg  # not for who lacks the extra, and is told so

    state = error.sqlstate or ""
    if not state and not isinstance(error, psycopg.OperationalError):  # an option that makes no sense
        return SinkRefusedError(f"{text}. Nothing was delivered. Is {variable(connection.name)} right?")
    match answer_of(state, text):
        case SqlAnswer.LOGIN:
            return SinkRefusedError(f"{text}. Is {variable(connection.name)} right?")
        case SqlAnswer.DATA:
            return UndeliverableError(f"{text}. Nothing was delivered")
        case SqlAnswer.PASSING:
            return SinkUnreachableError(f"{text}. Nothing was delivered; the next delivery tries again")
    return SinkRefusedError(f"{text}. Nothing was delivered")
