"""Names that code of others imports from a module where they no longer are: they go on until 0.4, with a warning that
says where they are now. It goes with them.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final

SINCE, UNTIL = "0.3", "0.4"

_FORMER: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
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
    "headrace.connectors.delta.definition": {"headrace.pipeline.sinks": ("DeltaSink", "delta")},
    "headrace.connectors.final_rows": {"headrace.pipeline.sinks": ("FinalRowsSink", "final_rows")},
    "headrace.connectors.iceberg.definition": {"headrace.pipeline.sinks": ("IcebergSink", "iceberg")},
    "headrace.connectors.kafka.definition": {
        "headrace.pipeline.sinks": ("KafkaSink", "kafka_sink"),
        "headrace.pipeline.systems.kafka": ("KafkaSource",),
    },
    "headrace.connectors.postgres.definition": {"headrace.pipeline.sinks": ("PostgresSink", "postgres")},
    "headrace.connectors.spark.definition": {"headrace.pipeline.sinks": ("SparkSink", "spark_sink")},
}
"""The names of modules by where they were."""

_RENAMED: Final[Mapping[str, str]] = {
    "Applied": "AppliedCounts",
    "Held": "SinkState",
    "Offsets": "SourcePosition",
    "Required": "RequiredColumns",
    "Scanned": "ScannedRecords",
    "SinkKind": "SinkConnector",
}


def moved(old: str) -> Callable[[str], Any]:
    """Give the ``__getattr__`` of module ``old`` (PEP 562), which finds the names that were in it."""
    places = {name: new for new, former in _FORMER.items() for name in former.get(old, ())}

    def __getattr__(name: str) -> Any:  # noqa: N807
        if name not in places:
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        new, now = places[name], _RENAMED.get(name, name)
        warnings.warn(
            f"{old}.{name} is {new}.{now} since {SINCE}: import it from there; the old place goes with {UNTIL}",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(import_module(new), now)

    return __getattr__


def moved_modules(package: str) -> None:
    """Make the modules that a ``package`` had: each has the names that were in it."""
    for former in _FORMER.values():
        for old in former:
            if old.startswith(f"{package}."):
                module = ModuleType(old, "Where something was up to 0.2.")
                setattr(module, "__getattr__", moved(old))  # noqa: B010 (mypy: a module has no such attribute)
                sys.modules[old] = module
