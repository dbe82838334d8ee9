"""Topics of Kafka as a sink: what a definition says of one."""

import re
from dataclasses import dataclass
from typing import ClassVar

from headrace.model.arguments import Arguments, keywords
from headrace.pipeline.sink import Sink, connection_name, sink_name

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A ``topic`` of changes of a cluster of Kafka."""

    kind: ClassVar[str] = "kafka"

    topic: str


@keywords
def kafka_sink(topic: str, *, connection: str, name: str | None = None) -> KafkaSink:
    """A topic of Kafka that gets what happens to what readers see, as JSON: each pane and each retraction, in order.

    A record is an object with a number (``_change``), a sign (``_sign``: 1, or -1 for what is withdrawn), the epoch
    (``_epoch``), key, window and values; its own key is that of the row. Where ``published`` goes back, the rows that
    differ are withdrawn and put in place. What a delivery sends is one transaction. ``connection`` is a name; the
    environment says what it is, as for ``kafka``. The ``topic`` is there already, with the partitions and the retention
    that it is to have. ``name`` is what the sink is called, by default as the topic.

    >>> hr.kafka_sink("reports.sales", connection="events").name
    'reports.sales'
    """
    given = Arguments("kafka_sink")
    if not _TOPIC.fullmatch(given.text("topic", topic, "reports.sales")):
        raise given.wrong("topic", topic, "write letters, digits, ., - and _, at most 200")
    return KafkaSink(sink_name(given, name, topic[:100]), connection_name(given, connection), topic)
