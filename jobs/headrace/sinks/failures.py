"""What is wrong beside what the code of a sink says: a target of others, code that fails, a column that is missing."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from headrace.connections import Connection, failure, hide_secrets
from headrace.errors import FixConfigError, HeadraceError
from headrace.ext.sinks import SinkRefusedError
from headrace.pipeline.sink import Sink


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
        of = f" of {connection}" if sink.connection else ""
        # without what was caught: it may quote a secret
        raise SinkFailedError(
            f"sink {sink.name} ({sink.kind}{of}) failed: {failure(error, connection)}. It holds what its last whole "
            "delivery left, if it takes changes in one step. Code of a sink says SinkUnreachableError of what passes, "
            "which is tried again"
        ) from None


def check_columns(table: str, wanted: Sequence[str], there: Iterable[str]) -> None:
    """Raise SinkRefusedError for the first of the ``wanted`` columns that a ``table`` does not have."""
    known = [*there]
    for name in wanted:
        if name not in known:
            raise SinkRefusedError(
                f"table {table} has no column {name!r}; it has {', '.join(known)}. Say what it is called "
                f"(--column {name}=THEIRS), or leave it out (--without {name})"
            )
