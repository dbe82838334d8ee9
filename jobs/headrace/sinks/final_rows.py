"""The kind of sink ``final_rows``: a function of the user's that sends what cannot be taken back."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headrace.connections import Connection
from headrace.ext.sinks import FinalRows, OpenReceiver, SinkConnector, SinkRefusedError
from headrace.pipeline.loading.code_digests import named_function
from headrace.pipeline.sink import Sink
from headrace.pipeline.systems.final_rows import FinalRowsSink


@dataclass(frozen=True)
class _Function(OpenReceiver):
    function: Callable[[FinalRows], Any]

    def receive(self, rows: FinalRows) -> None:
        self.function(rows)


class FinalRowsKind(SinkConnector):
    """Functions of users."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[OpenReceiver]:
        assert isinstance(sink, FinalRowsSink)
        named = named_function(f"sink {sink.name}", sink.function, sink.package, SinkRefusedError)
        yield _Function(named.function)


FINAL_ROWS = FinalRowsKind()
