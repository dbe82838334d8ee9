"""Names that pages of 0.1 and 0.2 told code of others to import go on at their old places, each with a warning of where
it is now.
"""

from importlib import import_module

import pytest

import headrace as hr
from headrace.errors import FixConfigError
from headrace.ext.sources import SourcePosition, SplitEnumerator
from headrace.read.pending_work import WatchedSource
from tests.docs.pages import DOCS

SOURCES, SINKS, FORMATS, STORES = (f"headrace.ext.{role}" for role in ("sources", "sinks", "formats", "stores"))
NEW_PLACES = {
    "headrace.pipeline.sources:Source": f"{SOURCES}:Source",
    "headrace.sources.connector:FetchingReader": f"{SOURCES}:FetchingReader",
    "headrace.sources.connector:Offsets": f"{SOURCES}:SourcePosition",
    "headrace.sources.connector:OpenSource": f"{SOURCES}:OpenSource",
    "headrace.sources.connector:SourceConnector": f"{SOURCES}:SourceConnector",
    "headrace.sources.connector:SourceReader": f"{SOURCES}:SourceReader",
    "headrace.sources.connector:SourceSplit": f"{SOURCES}:SourceSplit",
    "headrace.sources.connector:SplitEnumerator": f"{SOURCES}:SplitEnumerator",
    "headrace.sources.connector:SplitGoneError": f"{SOURCES}:SplitGoneError",
    "headrace.sources.connector:WritingReader": f"{SOURCES}:WritingReader",
    "headrace.pipeline.sinks:Sink": f"{SINKS}:Sink",
    "headrace.read.diff.changes:ChangeSource": f"{SINKS}:ChangeSource",
    "headrace.sinks.open_sink:Applied": f"{SINKS}:AppliedCounts",
    "headrace.sinks.open_sink:Held": f"{SINKS}:SinkState",
    "headrace.sinks.open_sink:Intervention": f"{SINKS}:Intervention",
    "headrace.sinks.open_sink:OpenChangeLog": f"{SINKS}:OpenChangeLog",
    "headrace.sinks.open_sink:OpenReceiver": f"{SINKS}:OpenReceiver",
    "headrace.sinks.open_sink:OpenSink": f"{SINKS}:OpenSink",
    "headrace.sinks.open_sink:SinkKind": f"{SINKS}:SinkConnector",
    "headrace.sinks.open_sink:SinkMovedError": f"{SINKS}:SinkMovedError",
    "headrace.sinks.open_sink:SinkRefusedError": f"{SINKS}:SinkRefusedError",
    "headrace.sinks.open_sink:SinkUnreachableError": f"{SINKS}:SinkUnreachableError",
    "headrace.sinks.open_sink:UndeliverableError": f"{SINKS}:UndeliverableError",
    "headrace.sources.formats.errors:UnreadableFileError": f"{FORMATS}:UnreadableFileError",
    "headrace.sources.formats.fields:typed": f"{FORMATS}:typed",
    "headrace.sources.formats.file_format:FileFormat": f"{FORMATS}:FileFormat",
    "headrace.sources.formats.json_lines:JSON": f"{FORMATS}:JSON",
    "headrace.sources.formats.json_messages:read_json": f"{FORMATS}:read_json",
    "headrace.sources.formats.lines:TextLines": f"{FORMATS}:TextLines",
    "headrace.sources.formats.scan:NOT_UTF8": f"{FORMATS}:NOT_UTF8",
    "headrace.sources.formats.scan:Scanned": f"{FORMATS}:ScannedRecords",
    "headrace.sources.formats.scan:nothing": f"{FORMATS}:nothing",
    "headrace.sources.formats.spans:Span": f"{FORMATS}:Span",
    "headrace.sources.formats.text_format:TextFormat": f"{FORMATS}:TextFormat",
    "headrace.sources.required_columns:Required": f"{FORMATS}:RequiredColumns",
    "headrace_snapshots.store.port:ObjectChangedError": f"{STORES}:ObjectChangedError",
    "headrace_snapshots.store.port:ObjectExistsError": f"{STORES}:ObjectExistsError",
    "headrace_snapshots.store.port:ObjectInfo": f"{STORES}:ObjectInfo",
    "headrace_snapshots.store.port:ObjectNotFoundError": f"{STORES}:ObjectNotFoundError",
    "headrace_snapshots.store.port:ObjectStore": f"{STORES}:ObjectStore",
    "headrace_snapshots.store.port:RequestCounts": f"{STORES}:RequestCounts",
    "headrace_snapshots.store.port:check_path": f"{STORES}:check_path",
    "headrace_snapshots.store.port:sort_key": f"{STORES}:sort_key",
    "headrace_snapshots.store.scheme:StoreScheme": f"{STORES}:StoreScheme",
    "headrace.runs.executors.executor:Executor": "headrace.ext.executors:Executor",
    "headrace_airflow.assets:windows_asset": "headrace.ext.airflow:windows_asset",
    "headrace_airflow.families.dag_family:DagFamily": "headrace.ext.airflow:DagFamily",
    "headrace_airflow.families.dag_family:new_dag": "headrace.ext.airflow:new_dag",
}
"""Where a released name was, and where it is."""

STAYING = (
    "headrace.connections:connection",
    "headrace.model.expressions.data_types:DataType",
    "headrace.model.expressions.columns:SourceFields",
    "headrace_airflow.roots:RootedPipeline",
    "headrace_airflow.connection:reaching_store",
    "headrace_snapshots.store:ObjectStore",
    "headrace_snapshots.store:open_store",
)
"""Released names whose old places are still in use, and do not warn yet."""


_IN_AIRFLOW = [pytest.mark.airflow, pytest.mark.slow]


@pytest.mark.parametrize(
    "old", [pytest.param(old, marks=_IN_AIRFLOW if "airflow" in old else []) for old in NEW_PLACES]
)
def test_a_released_name_goes_on_and_says_where_it_is(old: str) -> None:
    module, _, name = old.partition(":")
    new_module, _, new = NEW_PLACES[old].partition(":")
    import_module(module)  # which may import Airflow, which shows warnings its own way from then on
    with pytest.warns(DeprecationWarning) as warnings:
        namespace: dict[str, object] = {}
        exec(f"from {module} import {name}", namespace)
    assert namespace[name] is getattr(import_module(new_module), new)
    assert {str(warning.message) for warning in warnings} == {
        f"{module}.{name} is {new_module}.{new} since 0.3: import it from there; the old place goes with 0.4"
    }
    assert {warning.filename for warning in warnings} == {"<string>"}, "it names the line that imports"


@pytest.mark.parametrize("old", [pytest.param(old, marks=_IN_AIRFLOW if "airflow" in old else []) for old in STAYING])
def test_a_released_name_that_stays_is_there(old: str) -> None:
    module, _, name = old.partition(":")
    assert hasattr(import_module(module), name)


def test_a_source_is_made_again_from_where_its_class_was() -> None:
    fields = {"topic": "orders", "connection": "events", "land": "never", "on_lost": "skip"}
    watched_source = WatchedSource("headrace.pipeline.systems.kafka:KafkaSource", fields, ("events",))
    with pytest.warns(DeprecationWarning):
        source = watched_source.build_source()
    assert (source.place, source.watched_fields()) == ("events/orders", fields)
    assert WatchedSource.from_source(source).build_source() == source


@pytest.mark.parametrize("name", ["delta", "final_rows", "iceberg", "kafka_sink", "postgres", "spark_sink"])
def test_sinks_are_found_where_all_of_them_were(name: str) -> None:
    with pytest.warns(DeprecationWarning):
        was = getattr(import_module("headrace.pipeline.sinks"), name)
    assert was is getattr(hr, name)


def test_a_name_that_never_was_is_refused_as_ever() -> None:
    with pytest.raises(AttributeError, match=r"module 'headrace\.sinks\.open_sink' has no attribute 'Hold'"):
        import_module("headrace.sinks.open_sink").Hold  # noqa: B018
    with pytest.raises(ImportError):
        exec("from headrace.sources.formats.scan import Scaned")


def test_the_page_of_versions_lists_every_moved_name() -> None:
    page = (DOCS / "versions.md").read_text()
    for place in NEW_PLACES:
        module, _, name = place.partition(":")
        line = next((line for line in page.splitlines() if f"`{module}`" in line), "")
        assert f"`{name}`" in line, place


def test_a_method_of_the_port_that_has_another_name_is_called_under_its_old_one() -> None:
    with pytest.warns(DeprecationWarning, match="Old.counts_again is called is_correction since 0.3"):

        class Old(SplitEnumerator):
            def unread(self, position, read=None):  # type: ignore[no-untyped-def]
                return iter(())

            def after(self, position, splits):  # type: ignore[no-untyped-def]
                return position

            def missing(self, splits):  # type: ignore[no-untyped-def]
                return iter(())

            def explain(self):  # type: ignore[no-untyped-def]
                return "nothing"

            def counts_again(self, split):  # type: ignore[no-untyped-def]
                return split == "again"

    old = Old()
    assert old.is_correction("again")  # type: ignore[arg-type]
    assert not old.is_correction("other")  # type: ignore[arg-type]
    assert old.after(SourcePosition("a"), []) == SourcePosition("a")


def test_errors_keep_their_codes_where_they_are_now() -> None:
    from headrace.ext.sinks import SinkRefusedError

    assert issubclass(SinkRefusedError, FixConfigError)
    assert SinkRefusedError.code == "config.sink_refused"
