"""What errors of Kafka mean: whether a cluster may say something else soon."""

from typing import Final

from aiokafka import errors as kafka_errors

_PASSING: Final = (
    kafka_errors.BrokerNotAvailableError,
    kafka_errors.ConcurrentTransactions,
    kafka_errors.CorruptRecordException,
    kafka_errors.DuplicateSequenceNumber,
    kafka_errors.InvalidMessageError,  # its checksum says so: it was changed on the way
    kafka_errors.InvalidProducerIdMapping,  # it has forgotten the producer, and the next one gets another id
    kafka_errors.InvalidTxnState,
    kafka_errors.KafkaConnectionError,
    kafka_errors.KafkaTimeoutError,
    kafka_errors.KafkaUnavailableError,
    kafka_errors.ListenerNotFound,
    kafka_errors.LogDirNotFound,
    kafka_errors.NodeNotReadyError,
    kafka_errors.OperationNotAttempted,
    kafka_errors.OutOfOrderSequenceNumber,
    kafka_errors.ProducerClosed,
    kafka_errors.ReassignmentInProgress,
    kafka_errors.RebalanceInProgressError,
    kafka_errors.ReplicaNotAvailableError,
    kafka_errors.StaleControllerEpochError,
    kafka_errors.StaleLeaderEpochCodeError,
    kafka_errors.StaleMetadata,
    kafka_errors.UnknownError,
    kafka_errors.UnknownProducerId,
)
"""Errors that pass, beside those which the client says may be tried again. Others say the same again: rights, logins,
settings, versions.
"""

OVERTAKEN: Final = (
    kafka_errors.InvalidProducerEpoch,
    kafka_errors.ProducerFenced,
    kafka_errors.TransactionCoordinatorFenced,
)
"""A newer producer of the same transactional id has begun."""

TOO_LARGE: Final = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.RecordTooLargeError,
)
"""A record that the cluster does not take."""


def passes(error: BaseException) -> bool:
    """Whether another try may succeed. One without a kind of its own says nothing: a producer that has broken down
    raises copies.
    """
    says_nothing = type(error) is kafka_errors.KafkaError
    return says_nothing or bool(getattr(error, "retriable", False)) or isinstance(error, _PASSING)
