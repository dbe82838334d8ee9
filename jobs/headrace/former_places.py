"""Where names of 0.1 and 0.2 were that code of others imports, by where they are now: ``headrace.moved`` reads it. It
goes with 0.4.
"""

from collections.abc import Mapping
from typing import Final

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
