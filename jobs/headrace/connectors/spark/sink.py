"""The kind of sink ``spark``: a class of the user's that writes a DataFrame of changes to whatever Spark reaches."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.connections import Connection, SqlAnswer
from headrace.connectors.spark.definition import SparkSink
from headrace.connectors.spark.ranges import ConnectedSession
from headrace.errors import HeadraceError
from headrace.ext import sinks as sink_ports
from headrace.installed import require_extra
from headrace.model.expressions.data_types import DataType, ValueType, from_words
from headrace.pipeline.endpoints import Sink
from headrace.pipeline.loading.code_digests import named_function
from headrace.sinks.failures import check_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.distribute.spark.application import DataFrame


class SparkTarget(Protocol):
    """What the function of a sink gives."""

    def held(self) -> str | None:
        """The text that the target stores about what it holds; None if it has never been delivered to."""

    def apply(self, changes: "DataFrame", before: str | None, after: str, *, replaces: bool) -> None:
        """Write ``changes`` and the text ``after`` in one transaction, in which the target says that it holds
        ``before``; else raise SinkMovedError.

        One that has ``rows()``, too, which gives a DataFrame of all rows, is compared by ``deliver --check``.
        """


@dataclass(frozen=True)
class _OpenTarget(sink_ports.OpenSink):
    target: SparkTarget
    session: ConnectedSession
    name: str

    def held(self) -> sink_ports.SinkState | None:
        text = self.target.held()
        if text is None:
            return None
        try:
            return sink_ports.SinkState(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise sink_ports.SinkRefusedError(
                f"sink {self.name}: held() gave {text!r:.100}. It must give what apply() got as `after`, or None"
            ) from error

    def apply(
        self, changes: sink_ports.Changes, before: sink_ports.SinkState | None, after: sink_ports.SinkState
    ) -> sink_ports.AppliedCounts:
        # where nothing is published there are the columns that it had, and no row
        columns = changes.columns or {name: from_words(kind) for name, kind in after.columns.items()}
        rows = _signed_rows(changes, columns)
        rows_written = _count_rows(rows, 1)
        replaces = changes.source is sink_ports.ChangeSource.ALL_ROWS
        before_text = None if before is None else _state_text(before)
        frame = self.session.spark.createDataFrame(rows)
        self.target.apply(frame, before_text, _state_text(after), replaces=replaces)
        return sink_ports.AppliedCounts(rows.num_rows - rows_written, rows_written)

    def rows(self, columns: Mapping[str, ValueType]) -> "AbstractContextManager[pa.RecordBatchReader] | None":
        """What the function ``rows`` of the target gives, if it has one."""
        read: Callable[[], DataFrame] | None = getattr(self.target, "rows", None)
        return None if read is None else self._row_readers(read(), [*columns])

    @contextmanager
    def _row_readers(self, frame: "DataFrame", columns: Sequence[str]) -> "Iterator[pa.RecordBatchReader]":
        check_columns(f"of sink {self.name}", columns, frame.columns)
        names = ("`" + name.replace("`", "``") + "`" for name in columns)
        yield frame.select(*names).toArrow().to_reader()


class SparkKind(sink_ports.SinkConnector):
    """Whatever Spark reaches."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[sink_ports.OpenSink]:
        require_extra("spark", f"sink {sink.name}")
        from headrace.distribute.spark.application import ship_module

        assert isinstance(sink, SparkSink)
        session = ConnectedSession(connection if sink.connection else None, "deliver")
        try:
            target_function = named_function(
                f"sink {sink.name}", sink.function, sink.package, sink_ports.SinkRefusedError
            )
            ship_module(target_function.module)  # with its own functions for rows
            with _translate_transient_errors(sink, connection):
                yield _OpenTarget(target_function.function(session), session, sink.name)
        finally:
            session.stop()


@contextmanager
def _translate_transient_errors(sink: Sink, connection: Connection) -> Iterator[None]:
    """Inside, what a database says that passes is SinkUnreachableError, without the class of the user's saying so."""
    from headrace.connectors.spark.ranges import answer_of_database

    try:
        yield
    except Exception as error:
        match None if isinstance(error, HeadraceError) else answer_of_database(error, connection):
            case SqlAnswer.PASSING, text:
                # without what was caught: it may quote a secret
                raise sink_ports.SinkUnreachableError(
                    f"sink {sink.name} ({connection}): {text}. The next delivery tries again"
                ) from None
        raise


SPARK: Final = SparkKind()


def _state_text(sink_state: sink_ports.SinkState) -> str:
    """The text that a target of the user's compares with what it has stored, by an older version too."""
    fields = asdict(sink_state)
    unknown = [name for name in ("identity", "at") if fields[name] is None]
    return json.dumps({name: value for name, value in fields.items() if name not in unknown}, sort_keys=True)


def _count_rows(rows: "pa.Table", sign: int) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(pc.equal(rows.column(sink_ports.SIGN), sign), min_count=0).as_py())


def _signed_rows(changes: sink_ports.Changes, columns: Mapping[str, ValueType]) -> "pa.Table":
    """Rows that go (sign -1), of which only the identity is there, and those that come (1)."""
    import pyarrow as pa

    from headrace.read.views.arrow_types import named_as, schema_of

    own = schema_of(columns)
    schema = schema_of({sink_ports.SIGN: DataType.INT, **columns})
    identity = pa.schema([own.field(name) for name in changes.identity])
    parts: list[tuple[int, Any, Iterator[pa.RecordBatch]]] = [
        (-1, identity, changes.removed()),
        (1, own, changes.rows()),
    ]
    batches = [
        _with_sign(schema, named_as(batch, column_names), sign)
        for sign, column_names, batches_of_part in parts
        for batch in batches_of_part
    ]
    return pa.Table.from_batches(batches, schema)


def _with_sign(schema: "pa.Schema", batch: "pa.RecordBatch", sign: int) -> "pa.RecordBatch":
    import pyarrow as pa

    columns = {sink_ports.SIGN: pa.repeat(pa.scalar(sign, pa.int64()), batch.num_rows)}
    columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = [columns.get(field.name, pa.nulls(batch.num_rows, field.type)) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
