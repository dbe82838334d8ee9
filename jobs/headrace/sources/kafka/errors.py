"""What can be wrong with a topic, by what the caller does."""

from typing import Final

from headrace.errors import FixConfigError, FixDataError, RetryError

GOES_ON: Final = 'on_lost="skip" of the source goes on without'


class KafkaRefusedError(FixConfigError):
    """The cluster does not let us in, or does not have the topic."""

    code = "config.kafka_refused"


class UnknownTopicError(KafkaRefusedError):
    """The cluster has no topic of that name."""


class KafkaUnreachableError(RetryError):
    """The cluster does not answer, or has nobody who leads a partition."""

    code = "retry.kafka_unreachable"


class TopicReplacedError(FixDataError):
    """Under the name of a topic there is another one: its offsets are not those that were read."""

    code = "data.topic_replaced"


class RecordsLostError(FixDataError):
    """Records are gone from a topic before anybody has read them."""

    code = "data.records_lost"
