"""What a deployment sets: environment variables of the Airflow processes, but for those of a root (``roots``).

Storage keys (``AWS_*``) are not here: the Spark application inherits them, and nothing renders them.
"""

import os
from typing import Final

from headrace.sizes import size_in

SPARK_CONNECTION: Final = "HEADRACE_SPARK_CONN"
API_CONNECTION: Final = "HEADRACE_API_CONN"
DRIVER_MEMORY: Final = "HEADRACE_DRIVER_MEMORY"
LOCAL_MEMORY: Final = "HEADRACE_LOCAL_MEMORY"
ALLOWED_HOSTS: Final = "HEADRACE_ALLOWED_HOSTS"
_LOCAL_MEMORY: Final = 4 * 2**30


def spark_connection() -> str:
    """Id of the Airflow connection that says where Spark is."""
    return os.environ.get(SPARK_CONNECTION, "spark_default")


def api_connection() -> str:
    """Id of the Airflow connection with which tasks ask Airflow's own REST API about pools."""
    return os.environ.get(API_CONNECTION, "headrace_api")


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
