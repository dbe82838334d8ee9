"""What goes wrong while Spark computes an epoch; ``failures`` tells by what Spark says."""

from headrace.errors import FixConfigError, FixDataError, GiveUpError, RetryError


class ArithmeticDataError(FixDataError, code="data.arithmetic"):
    """An expression over the data left its type: an overflow, a division by zero, a cast that does not fit."""


class OutOfMemoryError(FixConfigError, code="config.out_of_memory"):
    """The JVM has too little memory for one epoch."""


class AccessDeniedError(FixConfigError, code="config.access_denied"):
    """Storage refuses the credentials or their rights."""


class StorageFailedError(RetryError, code="retry.storage"):
    """Storage did not answer, or not in time, while a file was read: that says nothing about the file."""


class DiskFullError(RetryError, code="retry.disk_full"):
    """A disk on which Spark keeps what it shuffles and spills has no room left."""


class SparkStoppedError(RetryError, code="retry.spark_stopped"):
    """The JVM or its Spark context went away."""


class SparkStartError(RetryError, code="retry.spark_start"):
    """The JVM ended, or was killed, before Spark ran in it."""


class SparkJobError(RetryError, code="retry.spark_job"):
    """A Spark job failed for a reason that none of the other errors names."""


class JvmRefusedError(FixConfigError, code="config.jvm"):
    """There is no Java, or not one that runs Spark with these options."""


class EngineError(GiveUpError, code="give_up.engine"):
    """Spark refused the engine's own plan: a defect of Headrace."""


class SparkFunctionError(FixConfigError, code="config.spark_function"):
    """A named Spark function that is not there, fails, or does not give what it declares."""
