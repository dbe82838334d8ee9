"""What targets answer, in words for a person: stores, PostgreSQL, and whatever a client raises.

``refuses_for_good`` reads what a store of files says: clients of Delta and Iceberg tell it in texts alone.
``sink_error`` says what errors of PostgreSQL mean for a sink, also where it is a catalog of Iceberg. ``named_failures``
has words for code of a sink that fails.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from headrace.connections import Connection, SqlAnswer, answer_of, describe_failure, hide_secrets, variable_name
from headrace.errors import FixConfigError, HeadraceError
from headrace.ext.sinks import SinkRefusedError, SinkUnreachableError, UndeliverableError
from headrace.pipeline.endpoints import Sink

if TYPE_CHECKING:
    import psycopg


_FOR_GOOD: Final = re.compile(
    r"\b401 Unauthorized|\b403 Forbidden|Forbidden\b|Unauthorized\b|Access ?Denied|ACCESS_DENIED|InvalidAccessKeyId"
    r"|SignatureDoesNotMatch|AuthorizationHeaderMalformed|PermanentRedirect|NoSuchBucket|NO_SUCH_BUCKET"
    r"|InvalidBucketName|MethodNotAllowed|Invalid Zone suffix|Permission denied|Read-only file system"
    r"|\(os error (1|13|20|21|30|36)\)|\[errno (1|13|20|21|30|36)\]|HTTP status (301|401|403|405)\b"
)
"""Rights, keys and signatures; buckets that there are not, or in another region; in a folder: not permitted, no access,
no folder or one where a file is due, read-only, a name that is too long. A full disk may have room soon.
"""


def refuses_for_good(text: str) -> bool:
    """Whether the store would say the same again."""
    return _FOR_GOOD.search(text) is not None


def sink_error(text: str, error: "psycopg.Error", connection: Connection) -> HeadraceError:
    """The error of a sink that an ``error`` of PostgreSQL is, in a ``text`` without secrets."""
    import psycopg  # not for who lacks the extra, and is told so

    state = error.sqlstate or ""
    if not state and not isinstance(error, psycopg.OperationalError):  # an option that makes no sense
        return SinkRefusedError(f"{text}. Nothing was delivered. Is {variable_name(connection.name)} right?")
    match answer_of(state, text):
        case SqlAnswer.LOGIN:
            return SinkRefusedError(f"{text}. Is {variable_name(connection.name)} right?")
        case SqlAnswer.DATA:
            return UndeliverableError(f"{text}. Nothing was delivered")
        case SqlAnswer.PASSING:
            return SinkUnreachableError(f"{text}. Nothing was delivered; the next delivery tries again")
    return SinkRefusedError(f"{text}. Nothing was delivered")


class SinkTakenError(FixConfigError, code="config.sink_taken"):
    """The target holds rows of another root, pipeline or output."""


class SinkFailedError(FixConfigError, code="config.sink_failed"):
    """The code of a sink, or the client that it uses, raised something that it has no word for."""


@contextmanager
def named_failures(sink: Sink, connection: Connection) -> Iterator[None]:
    """Inside, what the code of ``sink`` raises beside Headrace's errors becomes SinkFailedError; none has a secret."""
    try:
        yield
    except HeadraceError as error:
        hide_secrets(error, connection)
        raise
    except Exception as error:
        connection_text = f" of {connection}" if sink.connection else ""
        # without what was caught: it may quote a secret
        raise SinkFailedError(
            f"sink {sink.name} ({sink.kind}{connection_text}) failed: {describe_failure(error, connection)}. If it "
            "takes changes in one step, it holds what its last whole delivery left. If the failure passes by itself, "
            "the sink's code should raise SinkUnreachableError: then the delivery is tried again"
        ) from None


def check_columns(table: str, wanted_columns: Sequence[str], table_columns: Iterable[str]) -> None:
    """Raise SinkRefusedError for the first of the ``wanted_columns`` that a ``table`` does not have."""
    known_columns = [*table_columns]
    for name in wanted_columns:
        if name not in known_columns:
            raise SinkRefusedError(
                f"table {table} has no column {name!r}; it has {', '.join(known_columns)}. Say what it is called "
                f"(--column {name}=THEIRS), or leave it out (--without {name})"
            )
