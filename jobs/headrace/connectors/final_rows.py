"""The sink ``final_rows``: a function of the user's gets rows once they are final, and sends what cannot come back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from headrace.connections import Connection
from headrace.ext.sinks import FinalRows, OpenReceiver, SinkConnector, SinkRefusedError
from headrace.model.arguments import Arguments, check_keywords
from headrace.pipeline.endpoints import FunctionSink, Sink, connection_name, function_name, sink_name
from headrace.pipeline.loading.code_digests import named_function
from headrace.pipeline.loading.modules import current_package


@dataclass(frozen=True)
class FinalRowsSink(FunctionSink):
    """A function that gets final rows: what a definition says of it."""

    kind: ClassVar[str] = "final_rows"
    gets_final_rows: ClassVar[bool] = True


@check_keywords
def final_rows(function: str, *, connection: str | None = None, name: str | None = None) -> FinalRowsSink:
    """A function of yours that sends what nobody can take back (mail, a bill): it gets each row once it is final.

    ``function`` is ``module:function``; the module lies beside the pipeline's file, or is installed. It gets a
    ``FinalRows``: rows whose windows have expired, each with a column ``_id``, which stays the same if the row comes
    again. It may come again if a delivery is killed or fails, and never less than once. From the first row on, nothing
    goes back below what was handed over, unless a person says ``--give-up-delivered``. ``connection`` is the name of
    one that the function needs, if any (``rows.connection``). ``name`` is what the sink is called, by default as the
    function.

    >>> hr.final_rows("billing:send").name
    'send'
    """
    arguments = Arguments("final_rows")
    sink_function = function_name(arguments, function, "billing:send")
    checked_connection = "" if connection is None else connection_name(arguments, connection)
    return FinalRowsSink(
        sink_name(arguments, name, sink_function), checked_connection, function, package=current_package()
    )


@dataclass(frozen=True)
class _FunctionReceiver(OpenReceiver):
    function: Callable[[FinalRows], Any]

    def receive(self, rows: FinalRows) -> None:
        self.function(rows)


class FinalRowsKind(SinkConnector):
    """Functions of users."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[OpenReceiver]:
        assert isinstance(sink, FinalRowsSink)
        send_function = named_function(f"sink {sink.name}", sink.function, sink.package, SinkRefusedError)
        yield _FunctionReceiver(send_function.function)


FINAL_ROWS = FinalRowsKind()
