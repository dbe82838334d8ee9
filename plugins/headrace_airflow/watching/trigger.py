"""The trigger behind a schedule by files: it runs in Airflow's triggerer, which knows no pipelines and imports none.

The arguments have what it must know of a pipeline, without secrets. Keys come from the environment of the triggerer, or
from the Airflow connection.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from headrace.errors import HeadraceError
from headrace.ext.stores import reached_by
from headrace.model.time import to_instant
from headrace.pipeline.scheduling import dag_id
from headrace.read.pending_work import PendingWork, WatchedInput, WorkFinder
from headrace_airflow.connection import KeptVariables, StoreVariables, find_connection
from headrace_airflow.roots import Root, served_roots
from headrace_airflow.watching.watch import Runs, Watch
from headrace_snapshots.store import ObjectStore, open_store

if TYPE_CHECKING:  # which watchers of files do without
    from headrace.read.pending_work import SplitWatch

STATE_KEY: Final = "headrace_watcher"
"""Under which Airflow's state store of the asset says how the watcher is."""

_UNDER_WAY: Final = ["queued", "running"]
_KAFKA: Final = "headrace.connectors.kafka.definition:KafkaSource"


def landed_name(root: Root, pipeline: str) -> str:
    """The name of the asset whose events say that there is work for ``pipeline``."""
    return f"{root.airflow_name(pipeline)}_landed"


class PendingWorkTrigger(BaseEventTrigger):
    """Fires when a run of ``pipeline`` would find something to do and none is queued or running. ``root`` is the name
    of its root, ``inputs`` are its inputs of files by name: a path and suffixes each, and whether names ascend;
    ``sources`` are all others: a class, its arguments and the names of its connections each.

    ``topics`` is what 0.2.0 and older have stored of topics of Kafka: a topic, its connection, and how it is read.
    """

    def __init__(
        self,
        *,
        root: str,
        pipeline: str,
        inputs: Mapping[str, list[Any]],
        poll_seconds: float,
        topics: Mapping[str, Sequence[str]] | None = None,
        sources: Mapping[str, Sequence[Any]] | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.root = root
        self.pipeline = pipeline
        self.inputs = dict(inputs)
        self.sources = {name: [*watch_fields] for name, watch_fields in (sources or {}).items()} | _from_topics(
            topics or {}
        )
        self.poll_seconds = poll_seconds
        self._variables_of_root: tuple[Root, KeptVariables] | None = None
        self._finder: tuple[Root, StoreVariables, WorkFinder] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class and arguments, from which the triggerer makes it again."""
        arguments = ("root", "pipeline", "inputs", "sources", "poll_seconds")
        return f"{__name__}.{type(self).__name__}", {name: getattr(self, name) for name in arguments}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Events, for ever."""
        watch = Watch(self._find_pending_work, self._count_runs, self._report_failure, self.poll_seconds)
        async for work in watch.announcements():
            work_fields = work.to_json()
            self.log.info("pipeline %s has work: %s", self._qualified_name, work_fields)
            await self._store_state({"state": "announced", **work_fields})
            yield TriggerEvent(work_fields)  # type: ignore[no-untyped-call]

    @property
    def _qualified_name(self) -> str:
        return f"{self.root}.{self.pipeline}" if self.root else self.pipeline

    def _find_pending_work(self) -> PendingWork | None:
        root = served_roots().root_named(self.root)
        if self._variables_of_root is None or self._variables_of_root[0] != root:
            self._variables_of_root = root, KeptVariables(root)
        variables = self._variables_of_root[1].get()
        if self._finder is None or self._finder[:2] != (root, variables):
            watched_files = {
                name: WatchedInput(path, tuple(suffixes), *is_ordered)
                for name, (path, suffixes, *is_ordered) in self.inputs.items()
            }
            with reached_by(variables.apply_to(os.environ)):
                store = open_store(root.uri)
            others = {} if not self.sources else self._watched_sources(store)
            self._finder = root, variables, WorkFinder(store, self.pipeline, watched_files, others)
        return self._finder[2].find_work(to_instant(datetime.now(UTC)))

    def _watched_sources(self, store: ObjectStore) -> "dict[str, SplitWatch]":
        from headrace.read.pending_work import SplitWatch, WatchedSource

        watched_sources = {
            name: WatchedSource(source_type, arguments, tuple(connections))
            for name, (source_type, arguments, connections) in self.sources.items()
        }
        return {
            name: SplitWatch(store, self.pipeline, name, one, find_connection) for name, one in watched_sources.items()
        }

    def _count_runs(self) -> Runs:
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance  # not for who parses DAGs

        count, dag = RuntimeTaskInstance.get_dr_count, dag_id(self.pipeline, "process", self.root)
        runs_made = count(dag)  # first: one that is made between the two questions is under way
        return Runs(runs_made, count(dag, states=_UNDER_WAY))

    async def _report_failure(self, error: Exception | None) -> None:
        if error is None:
            self.log.info("pipeline %s can be watched again", self._qualified_name)
            await self._store_state({"state": "watching"})
            return
        code = error.code if isinstance(error, HeadraceError) else type(error).__name__
        self.log.warning("pipeline %s cannot be watched, and is tried again: %s: %s", self._qualified_name, code, error)
        await self._store_state({"state": "failing", "error": f"{code}: {error}"})

    async def _store_state(self, state: dict[str, Any]) -> None:
        """Say how the watcher is where people can look; that this fails stops nothing.

        Airflow 3.3 gives a trigger whose asset is new no ``asset_state_store``.
        """
        from airflow.sdk.execution_time.context import AssetStateStoreAccessor

        try:
            note = {**state, "since": datetime.now(UTC).isoformat()}
            asset = landed_name(served_roots().root_named(self.root), self.pipeline)
            await AssetStateStoreAccessor(name=asset).aset(STATE_KEY, note)
        except Exception:
            self.log.exception("the state of the watcher of pipeline %s could not be stored", self._qualified_name)


def _from_topics(topics: Mapping[str, Sequence[str]]) -> dict[str, list[Any]]:
    """Topics as 0.2.0 and older have stored them with a trigger, as sources."""
    names = ("topic", "connection", "land", "on_lost")
    return {
        name: [_KAFKA, dict(zip(names, topic_fields, strict=False)), [topic_fields[1]]]
        for name, topic_fields in topics.items()
    }
