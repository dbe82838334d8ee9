"""Final rows handed over to a sink that cannot take them back.

Before the first row an entry of the log says up to which snapshot rows may be handed over; main goes nowhere without it
from then on. After the last one another entry says that they all were. Who dies between leaves the first alone, so all
rows since the last that is known come again. So each row comes at least once, with an id by which it is known.
"""

from headrace.connections import Connection
from headrace.ext.sinks import OpenReceiver
from headrace.pipeline.sink import Sink
from headrace.read.diff.final_rows import final_rows_between
from headrace_snapshots.catalog import Catalog, Head
from headrace_snapshots.protocol import BeginDelivery, EndDelivery
from headrace_snapshots.refs import PUBLISHED, delivered_ref, delivering_ref


def handed_over(head: Head, output: str, sink: Sink) -> str | None:
    """The snapshot up to which all final rows were handed over."""
    return head.refs.get(delivered_ref(output, sink.name))


def hand_over(
    catalog: Catalog, head: Head, output: str, sink: Sink, *, target: OpenReceiver, connection: Connection | None
) -> int:
    """Hand the rows over that are final in what readers see at ``head``, and were not in what was handed over last. How
    many these are; without any, nothing is said in the log.

    Raises PublishConflictError if something moves meanwhile: the next delivery goes on.
    """
    published, before = head.refs.get(PUBLISHED), handed_over(head, output, sink)
    if published is None or published == before:
        return 0
    with final_rows_between(catalog, before, catalog.manifest(published), sink.name, connection) as rows:
        if not rows.number:
            return 0
        log = Catalog(catalog.store, catalog.pipeline)
        if head.refs.get(delivering_ref(output, sink.name)) != published:
            log.deliver(BeginDelivery(output, sink.name, published))
        target.receive(rows)
        log.deliver(EndDelivery(output, sink.name, published))
        return rows.number
