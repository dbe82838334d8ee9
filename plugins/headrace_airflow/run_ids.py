"""Names that follow from a task of Airflow: of its runs, of branches, of assets, and addresses of pages.

Addresses of Headrace's pages are for people who read a log, those of the assets of a pipeline for DAGs. Assets are what
readers of a pipeline see, its complete windows, and, where a watcher looks, what has landed for it.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from airflow.sdk import Asset, AssetAlias, AssetWatcher, Context
from airflow.sdk.configuration import conf

from headrace.model.time import Duration
from headrace.pipeline.scheduling import dag_id
from headrace_airflow.failures import TypedTaskError
from headrace_airflow.roots import Root, RootedPipeline

_WHERE_AIRFLOW_IS: Final = "http://localhost:8080/"
"""Airflow's own default."""


def page_of(rooted_pipeline: RootedPipeline, view: str) -> str:
    """Where a view of the page of a pipeline is."""
    airflow = conf.get("api", "base_url", fallback=_WHERE_AIRFLOW_IS)
    return f"{airflow.rstrip('/')}/dags/{rooted_pipeline.dag_id('process')}/plugin/headrace_dag?view={view}"


@contextmanager
def told_where(rooted_pipeline: RootedPipeline, view: str) -> Iterator[None]:
    """What is raised inside for people ends with the address of the page that shows it."""
    try:
        yield
    except TypedTaskError as error:
        raise error.seen_at(page_of(rooted_pipeline, view)) from None


def published_asset(qualified: str) -> Asset:
    """Name what readers see of a pipeline or of one of its outputs. Airflow knows an asset by name and URI together: a
    follower needs both. It raises nothing.

    :param qualified: ``[ROOT.]PIPELINE[/OUTPUT]``.
    :returns: an asset that has an event whenever readers see something else.
    """
    return Asset(name=f"headrace_{qualified}", uri=f"headrace://{qualified}/published")


def windows_asset(qualified: str) -> Asset:
    """Name the complete windows of what readers see, each a partition. It raises nothing.

    :param qualified: ``[ROOT.]PIPELINE[/OUTPUT]``.
    :returns: an asset that has an event for each window that is complete, or is corrected.
    """
    return Asset(name=f"headrace_{qualified}:windows", uri=f"headrace://{qualified}/windows")


_LONGEST_ID = 200
"""Characters of the id of a run."""

_DIGEST = 8


def run_id_of(context: Context) -> str:
    """A run id that no other attempt of any task has."""
    task = context["ti"]
    return _plain_name(
        f"{task.dag_id}.{task.run_id}.{task.task_id}.{task.try_number}", _LONGEST_ID, unique=str(task.id)
    )


def run_id_begin(dag_id: str, run_id: str, task_id: str = "") -> str:
    """With what the run ids of all attempts of all tasks of a DAG run begin, or of one of its tasks."""
    task = f"{task_id}." if task_id else ""
    return _safe_id(f"{dag_id}.{run_id}.{task}")[: _LONGEST_ID - _DIGEST - 1]


def request_of(context: Context, task_id: str | None = None) -> str:
    """What every attempt of a task is for: a name that no other task of any DAG run has. ``task_id``: one of this run,
    if not the task itself.
    """
    task = context["ti"]
    name = f"{task.dag_id}.{task.run_id}.{task_id or task.task_id}"
    return _plain_name(name, _LONGEST_ID, unique=name)


def backfill_branch(context: Context) -> str:
    """The branch that the form of a backfill names, or the DAG run's own: the same in every task and every attempt."""
    if form_branch := context["params"].get("branch"):
        return str(form_branch)
    return branch_of_run(context["ti"].run_id)


def branch_of_run(run_id: str) -> str:
    """The branch of a backfill whose form names none."""
    return _plain_name(f"backfill-{run_id}", 100, unique=run_id)


def _plain_name(text: str, length: int, unique: str) -> str:
    """``text`` in at most ``length`` plain characters, told apart from others alike by ``unique``."""
    digest = hashlib.sha256(unique.encode()).hexdigest()[:_DIGEST]
    return f"{_safe_id(text)[: length - _DIGEST - 1]}-{digest}"


def _safe_id(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)


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


def landed_asset(rooted_pipeline: RootedPipeline, poll_interval: Duration) -> Asset:
    """What has landed for a pipeline: a watcher gives it an event when a run would find something to do."""
    from headrace.read.pending_work import (
        watched_inputs,
        watched_sources,  # not for pipelines without a watcher
    )
    from headrace_airflow.watching.trigger import PendingWorkTrigger, landed_name

    trigger = PendingWorkTrigger(
        root=rooted_pipeline.root.name,
        pipeline=rooted_pipeline.name,
        inputs={
            name: [one.path, [*one.suffixes], *([True] if one.is_ordered else [])]
            for name, one in watched_inputs(rooted_pipeline.pipeline).items()
        },
        sources={
            name: [one.source_type, dict(one.arguments), [*one.connections]]
            for name, one in watched_sources(rooted_pipeline.pipeline).items()
        },
        poll_seconds=poll_interval / 1_000_000,
    )
    return Asset(
        name=landed_name(rooted_pipeline.root, rooted_pipeline.name),
        uri=f"headrace://{rooted_pipeline.qualified}/landed",
        watchers=[AssetWatcher(name="headrace", trigger=trigger)],
    )
