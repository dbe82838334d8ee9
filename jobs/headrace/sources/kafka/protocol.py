"""The one request of Kafka's that aiokafka lacks: what a topic is, with the id that no other of its name has."""

from io import BytesIO
from typing import Any, ClassVar

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

_KEY = 3
NO_ID = bytes(16)


class _Uuid(AbstractType[bytes]):
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


_Text = CompactString("utf-8")


class TopicResponse(Response):
    """Version 10 of the answer."""

    API_KEY = _KEY
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(("node_id", Int32), ("host", _Text), ("port", Int32), ("rack", _Text), ("tags", TaggedFields)),
        ),
        ("cluster_id", _Text),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", _Text),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("operations", Int32),
        ("tags", TaggedFields),
    )


class TopicRequestStruct(RequestStruct):
    """Version 10 of the request."""

    FLEXIBLE_VERSION = True
    API_KEY = _KEY
    API_VERSION = 10
    RESPONSE_TYPE = TopicResponse
    SCHEMA: ClassVar[Schema] = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("name", _Text), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicRequest(Request[TopicRequestStruct]):
    """Asks what a topic is; it is not made if there is none."""

    API_KEY = _KEY

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[TopicRequestStruct]) -> TopicRequestStruct:
        """The request as it is sent."""
        topics: list[Any] = [(NO_ID, self._topic, {})]
        return request_struct_class(topics, False, False, False, {})
