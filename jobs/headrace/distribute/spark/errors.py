"""What goes wrong while Spark computes an epoch; ``failures`` tells by what Spark says."""

from headrace.errors import FixConfigError, FixDataError, GiveUpError, RetryError


class ArithmeticDataError(FixDataError):
    """An expression over the data left its type: an overflow, a division by zero, a cast that does not fit."""

    code = "data.arithmetic"


class OutOfMemoryError(FixConfigError):
    """The JVM has too little memory for one epoch."""

    code = "config.out_of_memory"


class AccessDeniedError(FixConfigError):
    """Storage refuses the credentials or their rights."""

    code = "config.access_denied"


class StorageFailedError(RetryError):
    """Storage did not answer, or not in time, while a file was read: that says nothing about the file."""

    code = "retry.storage"


class DiskFullError(RetryError):
    """A disk on which Spark keeps what it shuffles and spills has no room left."""

    code = "retry.disk_full"


class SparkStoppedError(RetryError):
    """The JVM or its Spark context went away."""

    code = "retry.spark_stopped"


class SparkStartError(RetryError):
    """The JVM ended, or was killed, before Spark ran in it."""

    code = "retry.spark_start"


class SparkJobError(RetryError):
    """A Spark job failed for a reason that none of the other errors names."""

    code = "retry.spark_job"


class JvmRefusedError(FixConfigError):
    """There is no Java, or not one that runs Spark with these options."""

    code = "config.jvm"


class EngineError(GiveUpError):
    """Spark refused the engine's own plan: a defect of Headrace."""

    code = "give_up.engine"


class SparkFunctionError(FixConfigError):
    """A named Spark function that is not there, fails, or does not give what it declares."""

    code = "config.spark_function"
