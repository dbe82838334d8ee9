"""Headrace's own parts, all of them: the group, the name by which users ask for a part, and its place.

``headrace`` gives this table to the registries, which know others' parts by the metadata of installed distributions. So
own parts come in by the same door, no module names one that stands above it, none is imported before it is asked for,
and they are found in the archive that is sent to a cluster, which has no metadata. One more part is a line here.
"""

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
        "s3": "headrace_snapshots.store.s3_root:S3",
        "memory": "headrace_snapshots.store.local:MEMORY",
    },
}
"""Places by group and name, in the order in which messages list them."""

TABLES: dict[str, str] = {
    "errors": "headrace.error_tree",
    "former places": "headrace.former_places",
}
"""Modules of lists of places, which only few ask for."""
