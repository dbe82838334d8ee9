"""The task that moves what readers see: it runs in the worker, without Spark, and announces it by an asset event."""

from typing import Any, Final

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from headrace_airflow.assets import Published
from headrace_airflow.families.dry_runs import is_dry_run
from headrace_airflow.operators import Summary, summary
from headrace_airflow.roots.store import reaching_store
from headrace_airflow.run_ids import run_id_of
from headrace_snapshots.format.output_view import UnknownOutputError
from headrace_snapshots.refs import MAIN

_EVENTS: Final = 20
"""Events to look through for one that names a snapshot: people make events by hand, which name none."""


class PublishOperator(BaseOperator):
    """Publish what is audited and not published yet, and announce what readers see unless the newest event of the
    asset says so already.

    Only the catalog and the events count, not what other tasks of this DAG run did. So what became visible in another
    way is announced too: by a release, by a run from the command line, by an attempt that died before its event, after
    a task that somebody marked as successful. Skipped, and so without an event, on a branch other than main.

    An output that is parked, or waits for what it is computed of, is no failure of its own: the task says so.
    """

    def __init__(self, *, published: Published, **kwargs: Any) -> None:
        super().__init__(inlets=[published.asset], outlets=[published.outlet], **kwargs)
        self.published = published

    def execute(self, context: Context) -> Summary:
        """Publish and announce; raises what is wrong with the audit."""
        from headrace.runs.publishing.planned_publish import NothingToPublishError
        from headrace.runs.publishing.publish import publish_audited

        if is_dry_run(context):
            raise AirflowSkipException("the form says to do nothing: nothing is published")
        if (branch := context["params"].get("branch", MAIN)) != MAIN:
            raise AirflowSkipException(f"branch {branch} is not published: only {MAIN} is")
        last_announced = self._told(context)
        with reaching_store(self.published.root):
            try:
                result = publish_audited(
                    self.published.pipeline,
                    self.published.root.uri,
                    last_announced=last_announced,
                    run_id=run_id_of(context),
                    output=self.published.output or None,
                    may_wait=True,
                )
            except (NothingToPublishError, UnknownOutputError) as error:
                raise AirflowSkipException(f"readers see nothing yet: {error}") from error
        for warning in result.warnings:
            self.log.warning("%s", warning)
        if result.published == last_announced:
            raise AirflowSkipException(f"nothing new: readers see snapshot {last_announced} as before")
        self.log.info(
            "readers see snapshot %s (epoch %s) now, %s epochs more; watermark %s",
            result.published,
            result.epoch,
            len(result.epochs),
            result.watermark,
        )
        became = summary(result)
        self.published.announce(context, became)
        return became

    def _told(self, context: Context) -> str | None:
        """The snapshot that the newest event names: what those downstream know of."""
        events = context["inlet_events"][self.published.asset].ascending(False).limit(_EVENTS)
        named = ((event.extra or {}).get("snapshot") for event in events)
        return next((str(snapshot) for snapshot in named if snapshot is not None), None)
