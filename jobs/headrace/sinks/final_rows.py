"""The kind of sink ``final_rows``: a function of the user's that sends what cannot be taken back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.connections import Connection
from headrace.pipeline.loading.named_function import named_function
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
        named = named_function(f"sink {sink.name}", sink.function, sink.package, SinkRefusedError)
        yield _Function(named.function)


FINAL_ROWS = FinalRowsKind()
