"""Where things are: Headrace's own parts, by kind and name, and names that were elsewhere in 0.1 and 0.2.

``BUILT_IN`` has all of Headrace's own parts: the group, the name by which users ask for a part, and its place. One more
part is a line here. Beside it stands what parts need: the libraries of extras, and how connections are written.

``headrace`` gives this table to the registries, which know others' parts by the metadata of installed distributions. So
own parts come in by the same door. No module names one that stands above it, and none is imported before it is asked
for. They are also found in the archive that is sent to a cluster, which has no metadata.

``headrace.moved`` reads where names were that code of others imports; that goes with 0.4.
"""

from collections.abc import Mapping
from typing import Final

PORTS: dict[str, str] = {
    "headrace.commands": "click:Command",
    "headrace.dag_families": "headrace_airflow.families.family:DagFamily",
    "headrace.executors": "headrace.ext.executors:Executor",
    "headrace.formats": "headrace.formats.file_format:FileFormat",
    "headrace.sinks": "headrace.ext.sinks:SinkConnector",
    "headrace.sources": "headrace.ext.sources:SourceConnector",
    "headrace.stores": "headrace.ext.stores:StoreScheme",
    "headrace.test_executors": "builtins:type",
}
"""The class of which each part of a group is an instance, own or not."""

BUILT_IN: dict[str, dict[str, str]] = {
    "headrace.dag_families": {
        "process": "headrace_airflow.families.own:PROCESS",
        "recover": "headrace_airflow.families.own:RECOVER",
        "backfill": "headrace_airflow.families.own:BACKFILL",
        "deliver": "headrace_airflow.families.own:DELIVER",
        "windows": "headrace_airflow.families.own:WINDOWS",
    },
    "headrace.executors": {
        "spark": "headrace.runs.executors.own:SPARK",
        "local": "headrace.runs.executors.own:LOCAL",
    },
    "headrace.formats": {
        "json": "headrace.formats.json_lines:JSON",
        "csv": "headrace.formats.csv_lines:CSV",
        "parquet": "headrace.formats.parquet:PARQUET",
    },
    "headrace.sinks": {
        "postgres": "headrace.connectors.postgres.sink:POSTGRES",
        "delta": "headrace.connectors.delta.sink:DELTA",
        "iceberg": "headrace.connectors.iceberg.sink:ICEBERG",
        "final_rows": "headrace.connectors.final_rows:FINAL_ROWS",
        "spark": "headrace.connectors.spark.sink:SPARK",
        "kafka": "headrace.connectors.kafka.sink:KAFKA_SINK",
    },
    "headrace.sources": {
        "files": "headrace.connectors.files.source:FILES",
        "kafka": "headrace.connectors.kafka.source:KAFKA",
        "spark": "headrace.connectors.spark.source:SPARK",
        "published": "headrace.connectors.published.source:CONNECTOR",
    },
    "headrace.stores": {
        "file": "headrace_snapshots.store.local:FILE",
        "s3": "headrace_snapshots.store:S3",
        "memory": "headrace_snapshots.store.local:MEMORY",
    },
}
"""Places by group and name, in the order in which messages list them."""

EXTRAS: dict[str, tuple[str, ...]] = {
    "spark": ("pyspark", "pandas"),
    "airflow": ("airflow", "airflow.providers.apache.spark", "httpx"),
    "quality": ("great_expectations", "pandas"),
    "s3": ("minio", "certifi", "urllib3"),
    "plots": ("matplotlib",),
    "postgres": ("psycopg",),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg", "pyiceberg_core", "sqlalchemy"),
    "kafka": ("aiokafka", "urllib3"),
    "test": ("pytest",),
}
"""The modules that each extra brings for Headrace's own use."""

CONNECTIONS: dict[str, str] = {
    "delta": "s3://key:secret@bucket/prefix?region=eu-west-1, or file:///folder",
    "iceberg": "https://client:secret@host/path?warehouse=NAME, or "
    "postgresql://user:password@host/database?warehouse=...",
    "kafka": "kafka://host:9092, or kafka://user:password@host:9092",
    "postgres": "postgresql://user:password@host:5432/database",
    "registry": "https://user:password@host:8081",
}
"""How connections of sinks and sources are written, by kind."""

TABLES: dict[str, str] = {
    "errors": "headrace.error_tree",
    "former places": "headrace.built_in",
}
"""Modules of lists of places, which only few ask for."""


FORMER_PLACES: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "headrace.ext.airflow": {
        "headrace_airflow.assets": ("windows_asset",),
        "headrace_airflow.families.dag_family": ("BY_HAND", "DagFamily", "new_dag"),
    },
    "headrace.ext.executors": {"headrace.runs.executors.executor": ("Executor",)},
    "headrace.ext.formats": {
        "headrace.sources.formats.errors": ("FileColumnsError", "MissingColumnError", "UnreadableFileError"),
        "headrace.sources.formats.fields": ("typed",),
        "headrace.sources.formats.file_format": ("FileFormat",),
        "headrace.sources.formats.json_lines": ("JSON",),
        "headrace.sources.formats.json_messages": ("read_json",),
        "headrace.sources.formats.lines": ("TextLines",),
        "headrace.sources.formats.scan": ("NOT_UTF8", "Scanned", "misfit", "nothing"),
        "headrace.sources.formats.spans": ("Span", "WHOLE_FILE"),
        "headrace.sources.formats.text_format": ("TextFormat",),
        "headrace.sources.required_columns": ("Required",),
    },
    "headrace.ext.sinks": {
        "headrace.pipeline.sinks": ("Sink",),
        "headrace.read.diff.changes": ("ChangeSource",),
        "headrace.sinks.open_sink": (
            *("Applied", "Held", "Intervention", "OpenChangeLog", "OpenReceiver", "OpenSink", "SinkKind"),
            *("SinkMovedError", "SinkRefusedError", "SinkUnreachableError", "UndeliverableError"),
        ),
    },
    "headrace.ext.sources": {
        "headrace.pipeline.sources": ("Source",),
        "headrace.sources.connector": (
            *("FetchingReader", "Offsets", "OpenSource", "SourceConnector", "SourceReader", "SourceSplit"),
            *("SplitEnumerator", "SplitGoneError", "WritingReader"),
        ),
    },
    "headrace.ext.stores": {
        "headrace_snapshots.store.port": (
            *("ObjectChangedError", "ObjectExistsError", "ObjectInfo", "ObjectNotFoundError", "ObjectPathError"),
            *("ObjectStore", "RequestCounts", "StoreUnavailableError", "UnknownOutcomeError"),
            *("check_path", "sort_key"),
        ),
        "headrace_snapshots.store.scheme": ("StoreScheme",),
    },
    "headrace.connectors.delta.sink": {"headrace.pipeline.sinks": ("DeltaSink", "delta")},
    "headrace.connectors.final_rows": {"headrace.pipeline.sinks": ("FinalRowsSink", "final_rows")},
    "headrace.connectors.iceberg.sink": {"headrace.pipeline.sinks": ("IcebergSink", "iceberg")},
    "headrace.connectors.files.definition": {"headrace.pipeline.sources": ("FileSource", "csv", "json", "parquet")},
    "headrace.connectors.kafka.definition": {
        "headrace.pipeline.sinks": ("KafkaSink", "kafka_sink"),
        "headrace.pipeline.systems.kafka": ("KafkaSource",),
    },
    "headrace.connectors.postgres.sink": {"headrace.pipeline.sinks": ("PostgresSink", "postgres")},
    "headrace.connectors.spark.definition": {"headrace.pipeline.sinks": ("SparkSink", "spark_sink")},
}
"""The names of modules by where they were."""
