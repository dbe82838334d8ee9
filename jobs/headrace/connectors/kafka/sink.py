"""The kind of sink ``kafka``: how a cluster is reached, and what its errors mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace.connections import Connection, variable_name
from headrace.connectors.kafka.definition import KafkaRefusedError, KafkaSink, KafkaUnreachableError
from headrace.ext import sinks as sink_ports
from headrace.installed import require_extra
from headrace.pipeline.endpoints import Sink


class KafkaTopics(sink_ports.SinkConnector):
    """Topics of Kafka."""

    @contextmanager
    def open(self, sink: Sink, connection: Connection) -> Iterator[sink_ports.OpenTarget]:
        require_extra("kafka", f"sink {sink.name}")
        from headrace.connectors.kafka.client import KafkaClient
        from headrace.connectors.kafka.target import ChangeTopic

        assert isinstance(sink, KafkaSink)
        if connection.scheme != "kafka":
            raise sink_ports.SinkRefusedError(
                f"{variable_name(connection.name)} is a URI of {connection.scheme}; sink {sink.name} needs "
                "kafka://host:port"
            )
        with translate_errors(connection), KafkaClient(connection) as client:
            yield ChangeTopic(client, connection, sink.topic)


KAFKA_SINK: Final = KafkaTopics()


@contextmanager
def translate_errors(connection: Connection) -> Iterator[None]:
    """Errors of Kafka become those of sinks, by what the caller should do, without secrets."""
    from aiokafka import errors as kafka_errors

    from headrace.connectors.kafka.client import OVERTAKEN, TOO_LARGE, UNANSWERED_ERRORS, is_retriable

    try:
        yield
    except KafkaUnreachableError as error:
        raise sink_ports.SinkUnreachableError(f"{error}. The next delivery tries again") from None
    except KafkaRefusedError as error:
        raise sink_ports.SinkRefusedError(str(error)) from None
    except (kafka_errors.KafkaError, OSError, TimeoutError) as client_error:
        cause = _first_cause(client_error)
        text = f"{connection}: {connection.without_secrets(str(cause) or type(cause).__name__)}"
        if isinstance(cause, OVERTAKEN):
            raise sink_ports.SinkMovedError(
                f"{text}. Another delivery has begun; the next one continues from there"
            ) from None
        if isinstance(cause, UNANSWERED_ERRORS):
            raise sink_ports.SinkMovedError(
                f"{text}. It is not known whether the rows arrived; the next delivery looks, and continues from there"
            ) from None
        if isinstance(cause, TOO_LARGE):
            raise sink_ports.UndeliverableError(f"{text}. Nothing was delivered") from None
        if isinstance(cause, OSError | TimeoutError) or is_retriable(cause):
            raise sink_ports.SinkUnreachableError(f"{text}. The next delivery tries again") from None
        raise sink_ports.SinkRefusedError(
            f"{text}. Nothing was delivered. Is {variable_name(connection.name)} right?"
        ) from None


def _first_cause(error: BaseException) -> BaseException:
    """What happened: a producer wraps it into errors of no kind, where it looks for who coordinates transactions."""
    from aiokafka.errors import KafkaError

    while type(error) is KafkaError and error.__cause__ is not None:
        error = error.__cause__
    return error
