"""Requests that Spark itself makes to S3, as Hadoop's S3A counts them in this driver's JVM.

Retries and speculative reads are among them. Executors in JVMs of their own (a cluster's) keep counts of their own,
which nobody can ask for from here: then these are the driver's alone, its listings and looks at files.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.engine.errors import spark_errors
from headrace.engine.storage import hadoop_uri
from headrace.engine.types import SparkSession

_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "spark_get": ("action_http_get_request",),
    "spark_list": ("object_list_request", "object_continue_list_request"),
    "spark_stat": ("object_metadata_request",),
    "spark_all": ("store_io_request",),
}
"""Our names of kinds, and the counters of S3A that make them up; ``spark_all`` has every other kind too."""


class SparkRequests:
    """Counts over the file systems of ``uris``; nothing is counted for those that are not on S3."""

    def __init__(self, spark: SparkSession, uris: Iterable[str]) -> None:
        self._spark = spark
        self._roots = sorted({_bucket(hadoop_uri(uri, "")) for uri in uris if uri.startswith(("s3://", "s3a://"))})

    def snapshot(self) -> dict[str, int]:
        """Every kind and its count so far; empty when nothing is on S3."""
        with spark_errors():
            counters = [self._counters(root) for root in self._roots]
            return {
                kind: sum(int(found.get(name) or 0) for found in counters for name in names)
                for kind, names in (_COUNTERS.items() if counters else ())
            }

    def since(self, previous: Mapping[str, int]) -> dict[str, int]:
        """Every kind and how many were made after ``previous`` (an earlier snapshot)."""
        return {kind: count - previous.get(kind, 0) for kind, count in self.snapshot().items()}

    def _counters(self, root: str) -> Any:
        context: Any = self._spark.sparkContext
        hadoop = context._jvm.org.apache.hadoop.fs
        # Spark's own instance: Hadoop keeps one for each bucket and user.
        system = hadoop.FileSystem.get(context._jvm.java.net.URI(root), context._jsc.hadoopConfiguration())
        return system.getIOStatistics().counters()


def _bucket(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/"
