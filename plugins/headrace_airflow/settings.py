"""What a deployment sets: environment variables of the Airflow processes and the names that follow from a pipeline's.

Storage keys (``AWS_*``) are not here: the Spark application inherits them, and nothing renders them.
"""

import os
from typing import Final

from headrace.errors import FixConfigError
from headrace.sizes import size_in

ROOT: Final = "HEADRACE_ROOT"
SPARK_CONNECTION: Final = "HEADRACE_SPARK_CONN"
API_CONNECTION: Final = "HEADRACE_API_CONN"
STORE_CONNECTION: Final = "HEADRACE_STORE_CONN"
DRIVER_MEMORY: Final = "HEADRACE_DRIVER_MEMORY"
LOCAL_MEMORY: Final = "HEADRACE_LOCAL_MEMORY"
ALLOWED_HOSTS: Final = "HEADRACE_ALLOWED_HOSTS"
_LOCAL_MEMORY: Final = 4 * 2**30


class DeploymentError(FixConfigError):
    """An environment variable that Headrace needs is missing where the task runs."""

    code = "config.environment"


def root() -> str:
    """URI of the deployment's root. Raises DeploymentError."""
    if stated := os.environ.get(ROOT):
        return stated
    raise DeploymentError(
        f"{ROOT} is not set where this task runs; set it for every Airflow process to the URI of the root, "
        "file:///some/folder or s3://bucket/prefix"
    )


def spark_connection() -> str:
    """Id of the Airflow connection that says where Spark is."""
    return os.environ.get(SPARK_CONNECTION, "spark_default")


def api_connection() -> str:
    """Id of the Airflow connection with which tasks ask Airflow's own REST API about pools."""
    return os.environ.get(API_CONNECTION, "headrace_api")


def store_connection() -> str:
    """Id of the Airflow connection that says how the root's store is reached; empty: the environment says it."""
    return os.environ.get(STORE_CONNECTION, "")


def driver_memory() -> str:
    """Memory of the driver's JVM; in local mode the executor's too."""
    return os.environ.get(DRIVER_MEMORY, "2g")


def local_memory() -> int:
    """Bytes of memory that a run without Spark may take. Raises SizeError."""
    stated = size_in(LOCAL_MEMORY)
    return _LOCAL_MEMORY if stated is None else stated


def allowed_hosts() -> list[str]:
    """The names under which Airflow's API server may be called; none: any."""
    return [name for name in os.environ.get(ALLOWED_HOSTS, "").split(",") if name]


def pool_name(pipeline: str) -> str:
    """The pool whose one slot every task holds that writes the state of ``pipeline``."""
    return f"headrace_{pipeline}"
