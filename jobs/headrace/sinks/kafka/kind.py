"""The kind of sink ``kafka``: how a cluster is reached, and what its errors mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace.connections import Connection, variable
from headrace.extras import require
from headrace.pipeline.sinks import KafkaSink, Sink
from headrace.sinks.open_sink import (
    OpenTarget,
    SinkKind,
    SinkMovedError,
    SinkRefusedError,
    SinkUnreachableError,
    UndeliverableError,
)
from headrace.sources.kafka.errors import KafkaRefusedError, KafkaUnreachableError


class KafkaTopics(SinkKind):
    """Topics of Kafka."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[OpenTarget]:
        require("kafka", f"sink {sink.name}")
        from headrace.sinks.kafka.topic import ChangeTopic
        from headrace.sources.kafka.client import KafkaClient

        assert isinstance(sink, KafkaSink)
        if connection.scheme != "kafka":
            raise SinkRefusedError(
                f"{variable(connection.name)} is a URI of {connection.scheme}; sink {sink.name} needs kafka://host:port"
            )
        with translated(connection), KafkaClient(connection) as client:
            yield ChangeTopic(client, connection, sink.topic)


KAFKA_SINK: Final = KafkaTopics()


@contextmanager
def translated(connection: Connection) -> Iterator[None]:
    """Errors of Kafka become those of sinks, by what the caller should do, without secrets."""
    from aiokafka import errors as kafka_errors

    try:
        yield
    except KafkaUnreachableError as error:
        raise SinkUnreachableError(f"{error}. The next delivery tries again") from None
    except KafkaRefusedError as error:
        raise SinkRefusedError(str(error)) from None
    except kafka_errors.KafkaError as error:
        text = f"{connection}: {connection.without_secrets(str(error) or type(error).__name__)}"
        if isinstance(error, kafka_errors.ProducerFenced):
            raise SinkMovedError(f"{text}. Another delivery has begun; the next one continues from there") from None
        if isinstance(error, kafka_errors.MessageSizeTooLargeError | kafka_errors.RecordListTooLargeError):
            raise UndeliverableError(f"{text}. Nothing was delivered") from None
        if error.retriable or isinstance(error, kafka_errors.KafkaConnectionError | kafka_errors.KafkaTimeoutError):
            raise SinkUnreachableError(f"{text}. The next delivery tries again") from None
        raise SinkRefusedError(f"{text}. Nothing was delivered. Is {variable(connection.name)} right?") from None
    except (OSError, TimeoutError) as error:
        text = connection.without_secrets(str(error) or type(error).__name__)
        raise SinkUnreachableError(f"{connection}: {text}. The next delivery tries again") from None
