"""Tasks of a backfill: replay on a branch beside main, ask a person, cut over.

``awaited_branches`` are those of unfinished runs of Airflow: something computes them, or a person is asked.
"""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context
from airflow.sdk.api.datamodels._generated import DagRunType, TerminalTIState
from airflow.sdk.exceptions import AirflowSkipException

from headrace.pipeline.deployment import NEVER, WHEN_APPROVED
from headrace.runs.option_values import parse_span
from headrace.runs.reporting.results import RunResult
from headrace_airflow.dags import PROMOTE
from headrace_airflow.decisions import (
    REHEARSED_BRANCH,
    AskingOperator,
    check_shown,
    finish_promotion,
    handle_of,
    readers_see,
    rehearse_promotion,
)
from headrace_airflow.forms import (
    APPROVE,
    asked_in_form,
    decision_message,
    done_already,
    earlier_promotion,
    missing_reason_warnings,
)
from headrace_airflow.markdown import Proposal
from headrace_airflow.operators import HeadraceOperator, Summary, is_dry_run, result_summary, skip_after_telling
from headrace_airflow.roots import RootedPipeline
from headrace_airflow.run_ids import PublishedEvent, backfill_branch, branch_of_run
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN, published_of
from headrace_snapshots.output_catalog import seen_catalog

if TYPE_CHECKING:
    from headrace.runs.client.handle import PipelineHandle

_FINAL_STATES = frozenset(state.value for state in TerminalTIState)


def awaited_branches(rooted_pipeline: RootedPipeline) -> set[str]:
    """The branches of a pipeline that its backfills are at work on or ask about, and those that somebody is asked to
    promote. It does not matter how long ago that began. It is asked in a task.
    """
    backfill, promote = rooted_pipeline.dag_id("backfill"), rooted_pipeline.root.airflow_name(PROMOTE)
    names = {str(form.get("branch") or branch_of_run(run)) for run, form in _open_runs(backfill)}
    open_forms = (form for _, form in _open_runs(promote) if form.get("pipeline") == rooted_pipeline.name)
    return names | {str(form["branch"]) for form in open_forms}


def _open_runs(dag_id: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The runs of a DAG with a task that is not over, by their id, and what the form of each was given."""
    from airflow.sdk.execution_time import task_runner  # not for who parses DAGs
    from airflow.sdk.execution_time.comms import GetDagRun

    for run_id, states in task_runner.RuntimeTaskInstance.get_task_states(dag_id).items():
        if any(state not in _FINAL_STATES for state in states.values()):
            run = task_runner.SUPERVISOR_COMMS.send(GetDagRun(dag_id=dag_id, run_id=run_id))
            yield run_id, getattr(run, "conf", None) or {}


class _BackfillOperator(HeadraceOperator):
    """Read input again on a backfill's branch, as the form says; an attempt goes on where the last one stopped.

    A run of the schedule whose form names no range takes that of the pipeline's ``backfill``. It is counted back from
    when the run was due, so that every attempt takes the same.
    """

    action = "backfill"

    def branch(self, context: Context) -> str:
        """The branch that the form names, or one of this DAG run's own."""
        return backfill_branch(context)

    def _application_arguments(self, context: Context, where: str, run_id: str) -> list[str]:
        ends = zip(("--from", "--to"), self._backfill_range(context), strict=True)
        arguments = [f"{flag}={moment}" for flag, moment in ends if moment]
        form = context["params"]
        if form["promote"] != NEVER:
            arguments.append("--patches" if form["patch"] else "--promotes")
        arguments += [f"--warning={warning}" for warning in missing_reason_warnings(context)]
        return [*super()._application_arguments(context, where, run_id), *arguments]

    def _backfill_arguments(self, context: Context) -> dict[str, Any]:
        """The same for the method of a handle."""
        form, (start, end) = context["params"], self._backfill_range(context)
        options = {**asked_in_form("backfill", form), "branch": self.branch(context), "start": start, "end": end}
        promotes = form["promote"] != NEVER
        return {**options, "promote": promotes and not form["patch"], "patch": promotes and form["patch"]}

    def _backfill_range(self, context: Context) -> tuple[str | None, str | None]:
        """From when to when, as the command line takes it."""
        regular, run, form = self.rooted.pipeline.backfill, context.get("dag_run"), context["params"]
        start, end = form.get("from"), form.get("to")
        if regular is None or run is None or run.run_type != DagRunType.SCHEDULED or start or end:
            return start, end
        return (run.run_after - timedelta(microseconds=regular.last)).isoformat(), None


class ReplayOperator(_BackfillOperator):
    """Read input again on a backfill's branch; an attempt goes on where the last one stopped. It first drops branches
    that runs before it have left, but for those about which somebody is asked.
    """

    def begin_snapshot(self, context: Context) -> str | None:
        """The snapshot from which a branch that is not there yet is forked."""
        from headrace.runs.backfill.branches import fork_point

        pipeline = self.rooted.pipeline
        catalog = self.rooted.catalog()
        form = context["params"]
        if self.branch(context) in catalog.head().generations or (form.get("output") and not form["patch"]):
            return None
        return fork_point(catalog, pipeline, parse_span(*self._backfill_range(context))).snapshot

    def act(self, context: Context) -> Summary:
        """Tidy up after runs that failed or were rejected, then replay. Skipped as long as nothing has landed; a dry
        run too, once the log says what it would do.
        """
        from headrace.runs.backfill.backfill import has_input
        from headrace.runs.backfill.branches import drop_abandoned

        if not has_input(self.rooted.pipeline, self.rooted.root.uri):
            raise AirflowSkipException("nothing has landed yet: there is nothing to compute again")

        if is_dry_run(context):
            options = self._backfill_arguments(context)
            skip_after_telling(self.rooted, lambda handle: handle.backfill(**options, dry_run=True))
        list_awaited = partial(awaited_branches, self.rooted)
        for branch in drop_abandoned(self.rooted.catalog(), self.branch(context), datetime.now(UTC), list_awaited):
            self.log.info("dropped branch %s: a backfill left it, which nobody has promoted", branch)
        return super().act(context)


class BackfillApprovalOperator(AskingOperator):
    """Shows a person what the branch of a backfill would change for readers, and waits, if the form says so."""

    def __init__(self, *, rooted: RootedPipeline, **kwargs: Any) -> None:
        subject = f"Let readers of {rooted.qualified} see what the backfill has computed?"
        super().__init__(task_id=APPROVE, root=rooted.root, subject=subject, **kwargs)
        self.rooted = rooted

    def proposal(self, context: Context) -> Proposal | None:
        """The rows that change; None if nobody is to be asked. Raises why it would be refused."""
        from headrace.runs.publishing.promotion import BranchBehindError

        form, branch = context["params"], backfill_branch(context)
        if form["promote"] != WHEN_APPROVED:
            self.log.info("the form says that nobody is to be asked: the branch is promoted %s", form["promote"])
            return None
        handle = handle_of(self.rooted.root, self.rooted.name)
        if (entry_before := earlier_promotion(handle.catalog, context, branch)) is not None:
            self.log.info("%s", done_already(entry_before))
            return None
        output = form.get("output")
        # before it is read: what comes to the branch from here on is only what it has to catch up with
        context["ti"].xcom_push(key=REHEARSED_BRANCH, value=handle.catalog.head().refs.get(branch))
        return rehearse_promotion(handle, branch, output=output, patch=form["patch"], later_errors=(BranchBehindError,))


class CutOverOperator(_BackfillOperator):
    """Make the branch of a backfill ``main`` and ``published`` in one catalog entry, or its rows a patch of main, while
    processing is held. What an earlier try has done is not done again. One output main adopts: the next run of
    *process* audits and publishes it.

    If main went on since the replay, the branch catches up first: this task holds the pool's slot, so main stays there.
    """

    def __init__(self, *, rooted: RootedPipeline, **kwargs: Any) -> None:
        self.published = PublishedEvent(rooted.root, rooted.name)
        super().__init__(rooted=rooted, outlets=[self.published.outlet], **kwargs)

    def act(self, context: Context) -> Summary:
        """Cut over and announce it; raises when the branch is not audited, its audit failed, or nobody has approved it.
        Skipped, and so without an event, when the form says not to promote, and when a patch changes nothing.
        """
        from headrace.runs.backfill.branches import how_long
        from headrace.runs.publishing.promotion import BranchBehindError

        branch, form = self.branch(context), context["params"]
        output = form.get("output")
        adopts = output and not form["patch"]
        if form["promote"] == NEVER:
            raise AirflowSkipException(
                f"the form says not to promote: branch {branch} stays for you to look at, {how_long(branch)}"
            )
        handle = handle_of(self.rooted.root, self.rooted.name)
        entry_before = earlier_promotion(handle.catalog, context, branch)
        if entry_before is not None:
            self.log.info("%s", done_already(entry_before))
            return self._announce_published(context, self._finish_earlier(handle, entry_before, context))
        asks = form["promote"] == WHEN_APPROVED
        message = decision_message(context, asks=asks)
        if asks:
            check_shown(
                handle.catalog, branch, context["ti"].xcom_pull(APPROVE, key=REHEARSED_BRANCH), APPROVE, goes_on=True
            )
        try:
            result = self._cut_over(context, message)
        except BranchBehindError as error:
            self.log.info("%s: catching up while processing is held", error)
            self.submit(context)
            result = self._cut_over(context, message)
        if form["patch"] and not result.epochs:
            raise AirflowSkipException(f"nothing differs in windows that have expired: branch {branch} patches nothing")
        if adopts:
            for warning in result.warnings:
                self.log.warning("%s", warning)
            self.log.info("main has adopted output %s; the next run of process audits and publishes it", output)
            return result_summary(result)
        return self._announce_published(context, result_summary(result))

    def _finish_earlier(self, handle: "PipelineHandle", entry_before: Entry, context: Context) -> Summary:
        """Do what is left of what an earlier try has committed; what readers see then."""
        from headrace.read.snapshots.snapshot_refs import UnknownBranchError

        branch, form = self.branch(context), context["params"]
        output, catalog = form.get("output") or None, handle.catalog
        if form["patch"] or output:
            finish_promotion(handle, entry_before, branch, output=output, patch=form["patch"])
        elif catalog.head().refs.get(MAIN) == entry_before.refs[MAIN]:
            with suppress(UnknownBranchError):  # the branch has begun again since, and was dropped
                return result_summary(self._cut_over(context, ""))
        return readers_see(catalog, catalog.published_by_all(catalog.head().refs))

    def _cut_over(self, context: Context, message: str) -> RunResult:
        from headrace.runs.client.recording import make_change
        from headrace.runs.plan import CutOver

        form = context["params"]
        cut_over = CutOver(self.branch(context), form.get("output") or None, form["patch"])
        return make_change(self.rooted.catalog(), cut_over, run_id="cut_over", message=message)

    def _announce_published(self, context: Context, became: Summary) -> Summary:
        self.published.announce(context, became)
        catalog = self.rooted.catalog()
        for output, snapshot in published_of(catalog.head().refs).items():
            if output:
                sees = readers_see(seen_catalog(catalog, output), snapshot)
                PublishedEvent(self.rooted.root, self.rooted.name, output).announce(context, sees)
        return became
