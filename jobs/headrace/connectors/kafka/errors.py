"""What can be wrong with a topic, or with the registry of its schemas."""

import logging

from headrace.errors import FixConfigError, FixDataError, RetryError

_logger = logging.getLogger(__name__)


class KafkaRefusedError(FixConfigError, code="config.kafka_refused"):
    """The cluster does not let us in, or does not have the topic."""


class UnknownTopicError(KafkaRefusedError):
    """The cluster has no topic of that name."""


class KafkaUnreachableError(RetryError, code="retry.kafka_unreachable"):
    """The cluster does not answer, or has nobody who leads a partition."""


class TopicReplacedError(FixDataError, code="data.topic_replaced"):
    """Under the name of a topic there is another one: its offsets are not those that were read."""


class RecordsLostError(FixDataError, code="data.records_lost"):
    """Records are gone from a topic before anybody has read them."""


class RegistryRefusedError(FixConfigError, code="config.schema_registry"):
    """A registry of schemas does not answer as one, or does not let in."""


class RegistryUnreachableError(RetryError, code="retry.schema_registry"):
    """A registry of schemas does not answer."""


def lose(what: str, error: type[FixDataError], *, skips_lost: bool) -> None:
    """Raise the ``error``, which says ``what`` is lost, unless a source is to go on without; then that is logged."""
    if not skips_lost:
        raise error(f'{what}. on_lost="skip" of the source goes on without') from None
    _logger.warning("%s; it goes on without", what)
