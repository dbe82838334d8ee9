"""The assets of a pipeline: what its readers see, and where a watcher looks, what has landed for it."""

from dataclasses import dataclass
from typing import Any

from airflow.sdk import Asset, AssetAlias, AssetWatcher, Context
from airflow.sdk.configuration import conf

from headrace.model.time import Duration
from headrace.moved import redirect_names
from headrace.pipeline.scheduling import dag_id
from headrace_airflow.roots import Root, RootedPipeline
from headrace_airflow.run_ids import published_asset

__getattr__ = redirect_names(__name__)


def snapshot_page(root: Root, pipeline: str, snapshot: str) -> str:
    """Where Airflow's UI has the page of a snapshot."""
    return f"/dags/{dag_id(pipeline, 'process', root.name)}/plugin/headrace_dag?view=history&snapshot={snapshot}"


@dataclass(frozen=True)
class PublishedEvent:
    """What readers of ``pipeline`` under ``root`` see, as a task tells of it: events carry {epoch, snapshot, counts,
    watermark, page}: the last is where Airflow's UI shows the snapshot. ``output``: one of several; else it is
    what readers of all may see.

    Who asks Airflow to materialize an asset means the one DAG whose tasks have it as their outlet (``is_made_here``).
    Tasks of other DAGs give it events through an alias: for those downstream there is no difference.
    """

    root: Root
    pipeline: str
    output: str = ""
    is_made_here: bool = False

    @property
    def asset(self) -> Asset:
        """The asset itself."""
        return published_asset("/".join(filter(None, (self.root.qualified_name(self.pipeline), self.output))))

    @property
    def outlet(self) -> Asset | AssetAlias:
        """What a task that tells of it declares."""
        return self.asset if self.is_made_here else AssetAlias(name=f"{self.root.airflow_name(self.pipeline)}_moved")

    def announce(self, context: Context, became: dict[str, Any]) -> None:
        """Give this task's event what readers see now, as its summary ``became`` has it."""
        extra = self.event_extra(became)
        events = context["outlet_events"][self.outlet]
        if self.is_made_here:
            events.extra = extra
        else:
            events.add(self.asset, extra=extra)

    def event_extra(self, became: dict[str, Any]) -> dict[str, Any]:
        """What an event says of what readers see now, which ``became`` tells."""
        extra = {key: became[key] for key in ("epoch", "snapshot", "counts", "watermark")}
        if became["snapshot"] is not None and (base := conf.get("api", "base_url", fallback=None)):
            extra["page"] = base.rstrip("/") + snapshot_page(self.root, self.pipeline, became["snapshot"])
        return extra


def landed_asset(rooted: RootedPipeline, poll_interval: Duration) -> Asset:
    """What has landed for a pipeline: a watcher gives it an event when a run would find something to do."""
    from headrace.read.pending_work import (
        watched_inputs,
        watched_sources,  # not for pipelines without a watcher
    )
    from headrace_airflow.watching.trigger import PendingWorkTrigger, landed_name

    trigger = PendingWorkTrigger(
        root=rooted.root.name,
        pipeline=rooted.name,
        inputs={
            name: [one.path, [*one.suffixes], *([True] if one.is_ordered else [])]
            for name, one in watched_inputs(rooted.pipeline).items()
        },
        sources={
            name: [one.source_type, dict(one.arguments), [*one.connections]]
            for name, one in watched_sources(rooted.pipeline).items()
        },
        poll_seconds=poll_interval / 1_000_000,
    )
    return Asset(
        name=landed_name(rooted.root, rooted.name),
        uri=f"headrace://{rooted.qualified}/landed",
        watchers=[AssetWatcher(name="headrace", trigger=trigger)],
    )
