"""The kind of sink ``final_rows``: a function of the user's that sends what cannot be taken back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.connections import Connection
from headrace.pipeline.loading.folders import imported
from headrace.pipeline.sinks import FinalRowsSink, Sink
from headrace.read.diff.final_rows import FinalRows
from headrace.sinks.open_sink import OpenReceiver, SinkKind, SinkRefusedError


@dataclass(frozen=True)
class _Function(OpenReceiver):
    function: Callable[[FinalRows], Any]

    def receive(self, rows: FinalRows) -> None:
        self.function(rows)


class FinalRowsKind(SinkKind):
    """Functions of users."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[OpenReceiver]:
        assert isinstance(sink, FinalRowsSink)
        yield _Function(function_of(sink.name, sink.function, sink.package))


def function_of(sink: str, named: str, package: str | None) -> Callable[[Any], Any]:
    """The function that a ``sink`` names. Raises SinkRefusedError."""
    module, _, called = named.partition(":")
    try:
        function: Callable[[Any], Any] = getattr(imported(module, package), called)
    except (ImportError, AttributeError) as error:
        raise SinkRefusedError(
            f"sink {sink} is {named}, which cannot be imported ({error}): the module lies beside the pipeline's file, "
            "or is installed"
        ) from error
    return function


FINAL_ROWS = FinalRowsKind()
