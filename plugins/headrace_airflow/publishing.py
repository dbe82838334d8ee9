"""The tasks around a run: what must hold before it, what its audit has found, and the move of what readers see.

``PreconditionsOperator`` is the first task of every DAG. Airflow leaves tasks of a pool that does not exist in
``scheduled`` for ever, with a line in the scheduler's log alone; and a pool with two slots lets two writers run. A task
cannot see the metadata database. So this one asks the REST API, from the default pool, and makes a pool that is
missing: a new pipeline needs nobody.

``BranchAudit`` is what the catalog and the stored audits say about what readers do not see yet, output by output.
``AuditOperator`` shows what an audit has found, and fails where that is bad.

``PublishOperator`` moves what readers see: it runs in the worker, without Spark, and announces it by an asset event.
"""

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import httpx
from airflow.sdk import BaseHook, BaseOperator, Connection, Context, conf
from airflow.sdk.exceptions import AirflowNotFoundException, AirflowSkipException

from headrace.audit.limits import LimitFinding, check_limits
from headrace.audit.range import UnpublishedRange, going_on, unpublished_ranges
from headrace.audit.store import AuditOutcome, audit_error, failing_limits, read_audit, stale_error, with_limits
from headrace.errors import FixConfigError, FixDataError, RetryError
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import Severity
from headrace.runs.publishing.publish import AuditMissingError, last_published_by
from headrace.runs.reporting.results import RunError, RunResult, now, write_run_result
from headrace_airflow.connection import reaching_store
from headrace_airflow.failures import TypedTaskError
from headrace_airflow.families.family import call_user_function, options_of
from headrace_airflow.forms import check_form
from headrace_airflow.operators import HeadraceOperator, Summary, is_dry_run, result_summary
from headrace_airflow.roots import RootedPipeline, api_connection
from headrace_airflow.run_ids import PublishedEvent, backfill_branch, run_id_begin, run_id_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import UnknownOutputError
from headrace_snapshots.names import MAIN
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.store import open_store

_TIMEOUT_SECONDS = 30.0
_SLOTS = 1
_MISSING_STATUS = HTTPStatus.NOT_FOUND
_CONFLICT_STATUS = HTTPStatus.CONFLICT
_POOL_DESCRIPTION = "One writer at a time of a Headrace pipeline: keep one slot"


class PoolError(FixConfigError, code="config.pool"):
    """The pool that keeps two writers of one pipeline apart cannot be looked at or made, or does not have one slot."""


class ApiUnavailableError(RetryError, code="retry.airflow_api"):
    """Airflow's REST API did not answer."""


class PreconditionsOperator(BaseOperator):
    """Makes the pipeline's pool if that is missing; fails, and says what to do, where it, form or root is wrong."""

    def __init__(self, *, rooted: RootedPipeline, names: Collection[str], **kwargs: Any) -> None:
        super().__init__(task_id="preconditions", **kwargs)
        self.rooted, self.names = rooted, names

    def execute(self, context: Context) -> None:
        """Check form, root and pool; returns nothing."""
        pool = self.rooted.pool
        with reaching_store(self.rooted.root):
            check_form(context, self.rooted.pipeline, self.names)
            _ = self.rooted.root.uri
            if ensure_pool(pool):
                self.log.info("made pool %s with one slot", pool)


def ensure_pool(pool: str) -> bool:
    """Make ``pool`` with one slot unless it is there; whether it was made.

    Raises PoolError when it has another number of slots or may not be made, ApiUnavailableError when nobody can say.
    """
    connection = _find_connection()
    address = _own_url() if connection is None else _connection_url(connection)
    try:
        with httpx.Client(base_url=address, timeout=_TIMEOUT_SECONDS) as api:
            api.headers["Authorization"] = f"Bearer {_api_token(api, connection)}"
            answer = _check_response(
                api.get(f"/api/v2/pools/{quote(pool, safe='')}"), f"reading pool {pool}", _MISSING_STATUS
            )
            if answer.status_code == _MISSING_STATUS:
                new = {"name": pool, "slots": _SLOTS, "description": _POOL_DESCRIPTION, "include_deferred": True}
                response = _check_response(api.post("/api/v2/pools", json=new), f"making pool {pool}", _CONFLICT_STATUS)
                return response.status_code != _CONFLICT_STATUS  # another pipeline run may have been quicker
    except httpx.TransportError as error:
        raise ApiUnavailableError(f"Airflow's REST API at {address} did not answer: {error}") from error
    if (slots := answer.json()["slots"]) != _SLOTS:
        raise PoolError(
            f"pool {pool} has {slots} slots and must have 1, or two writers could run at once. Set it to 1 under "
            "Admin, Pools in Airflow's UI"
        )
    return False


def _api_token(api: httpx.Client, connection: Connection | None) -> str:
    """A token of the connection's user, or where Airflow asks for no login, of nobody."""
    if connection is None:
        answer = api.get("/auth/token")
    else:
        answer = api.post("/auth/token", json={"username": connection.login, "password": connection.password})
    return str(_check_response(answer, "logging in").json()["access_token"])


def _check_response(answer: httpx.Response, what: str, expected: HTTPStatus | None = None) -> httpx.Response:
    """``answer`` if the API did what was asked, or said ``expected``."""
    if answer.is_server_error:
        raise ApiUnavailableError(f"{what} failed: Airflow's REST API answered {answer.status_code}")
    if answer.is_error and answer.status_code != expected:
        raise PoolError(
            f"{what} was refused by Airflow's REST API ({answer.status_code}). Give the Airflow connection "
            f"{api_connection()} the login and password of a user who may read and make pools (role op). Or make the "
            "pool by hand, with one slot, under Admin, Pools in Airflow's UI; then a user who may read pools is "
            "enough"
        )
    return answer


def _find_connection() -> Connection | None:
    try:
        return BaseHook.get_connection(api_connection())
    except AirflowNotFoundException:
        return None


def _connection_url(connection: Connection) -> str:
    if not connection.host:
        return _own_url()
    return f"{connection.schema or 'http'}://{connection.host}:{connection.port or 8080}"


def _own_url() -> str:
    """Where this Airflow's API server is by its own configuration, read (and where empty, guessed) as Airflow does."""
    execution: str = conf.get("core", "execution_api_server_url", fallback="")
    if execution:
        return execution.rstrip("/").removesuffix("/execution")
    base: str = conf.get("api", "base_url", fallback="") or "/"
    return (f"http://localhost:8080{base}" if base.startswith("/") else base).rstrip("/")


@dataclass(frozen=True)
class BranchAudit:
    """What is to be audited of one output of a branch, as the catalog has it now: ``unpublished_range`` is None when
    that is nothing. ``pipeline`` and ``catalog`` are as that output has them.

    ``published_outcome``: the audit by which a run has let readers see all of it. ``limits`` is what was found beside
    its limits: then, or if there is none, just now. ``stands_still``: the branch has nothing new of the output, since
    it is parked there, or has not begun.
    """

    pipeline: Pipeline
    unpublished_range: UnpublishedRange | None
    published_outcome: AuditOutcome | None
    limits: tuple[LimitFinding, ...]
    stands_still: bool
    catalog: Catalog = field(repr=False)

    @classmethod
    def audits_of_branch(
        cls, pipeline: Pipeline, root: str, branch: str, run_id_begin: str, output: str | None = None
    ) -> "list[BranchAudit]":
        """Asks the catalog about one ``output``, or all, and the landing prefix if a limit is about it.
        ``run_id_begin``: with what the ids of runs begin whose audit counts as that of ``published_outcome``.
        """
        catalog = Catalog(open_store(root), pipeline.name)
        names = [*pipeline.by_output] if output is None else [output]
        catalogs = {name: seen_catalog(catalog, name) for name in names}
        moving = going_on(catalog, branch, names)
        ranges = dict.fromkeys(names) | unpublished_ranges(catalog, branch, moving)
        last_audits = {
            name: last_published_by(own, run_id_begin) if ranges[name] is None and branch == MAIN else None
            for name, own in catalogs.items()
        }
        unknown = {name: epochs for name, epochs in ranges.items() if last_audits[name] is None}
        limits = check_limits(pipeline, catalog, branch, unknown, lambda: datetime.now(UTC)) if unknown else {}
        return [
            cls(
                pipeline.by_output[name],
                ranges[name],
                last_audit,
                limits[name] if last_audit is None else last_audit.limits,
                name not in moving,
                catalogs[name],
            )
            for name, last_audit in last_audits.items()
        ]

    def stored_outcome(self) -> AuditOutcome | None:
        """The stored audit of exactly that range, if it held the output against the expectations of today, and
        against history by the checks of today; with the limits as they are found now.
        """
        assert self.unpublished_range is not None
        store, name = self.catalog.store, self.pipeline.name
        outcome = read_audit(
            store, name, self.unpublished_range.after, self.unpublished_range.until, self.catalog.output
        )
        if outcome is None or not outcome.covers(self.pipeline.expectations, self.pipeline.usual):
            return None
        return with_limits(store, outcome, self.limits)

    @property
    def output(self) -> str:
        """The output, "" if it has no name."""
        return self.catalog.output


WAYS_OUT: Final = (
    "Land a correction and trigger a new run; or choose on the page: Release… lets readers see these rows, Backfill… "
    "computes them again, History has Roll back"
)


def check_audits(audits: Sequence[tuple[BranchAudit, AuditOutcome | None]]) -> None:
    """Raise AuditFailedError with the failed expectations, LimitExceededError with the limits that are exceeded,
    AuditMissingError when there is no audit of a range; StaleDataError if nothing is to be audited and a limit fails
    for that.
    """
    if failed_audits := [outcome for _, outcome in audits if outcome is not None and not outcome.success]:
        raise audit_error(*failed_audits, ways_out=WAYS_OUT)
    for audit, outcome in audits:
        if audit.unpublished_range is not None and outcome is None:
            raise AuditMissingError(
                f"there is no audit of {audit.unpublished_range} of {audit.pipeline.name}, "
                "although one has just been made"
            )
        if audit.unpublished_range is None and (stale := failing_limits(audit.limits)):
            raise stale_error(audit.pipeline.name, stale)


_AuditOfBranch = tuple[BranchAudit, AuditOutcome | None]


class AuditOperator(HeadraceOperator):
    """See that what a branch has and readers have not was audited and found good; audit it only when nobody has. Shows
    what was found, also where a task of the same run has published it since.

    A failed one leaves a result of its own, as a run in a terminal does: pages show what failed, and why.

    ``of_backfill``: all of the backfill's branch, instead of (published, main]. ``output``: of one output alone.
    """

    shown_in = "quality"
    action = "audit"

    def __init__(
        self, *, rooted: RootedPipeline, of_backfill: bool = False, output: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(rooted=rooted, **kwargs)
        self.of_backfill, self.of_output = of_backfill, output

    def branch(self, context: Context) -> str:
        """The backfill's branch, or the one that this DAG run processed."""
        return backfill_branch(context) if self.of_backfill else super().branch(context)

    def act(self, context: Context) -> Summary:
        """The range whose audit is good, by output if these have names; raises what failed or is exceeded."""
        pipeline, branch, output = self.rooted.pipeline, self.branch(context), self.of_output
        task, started_at = context["ti"], now()
        audits = BranchAudit.audits_of_branch(
            pipeline, self.rooted.root.uri, branch, run_id_begin(task.dag_id, task.run_id), output
        )
        audits_made = [
            (audit, audit.published_outcome if audit.unpublished_range is None else self._audit_outcome(audit, context))
            for audit in audits
        ]
        warnings_found = [
            warning for audit, outcome in audits_made for warning in self._log_findings(audit, outcome, branch)
        ]
        self._notify(warnings_found, context)
        try:
            check_audits(audits_made)
        except FixDataError as error:  # the log has said all of it
            problem = RunError.of(error)
            self._leave_result(problem, audits_made, context, started_at)
            raise TypedTaskError(problem) from None
        ranges: dict[str, Summary] = {
            audit.output: {"from": outcome.from_snapshot, "to": outcome.to_snapshot, "success": True}
            for audit, outcome in audits_made
            if outcome is not None
        }
        return ranges if pipeline.has_names and output is None else ranges.get(output or "", {})

    def _leave_result(
        self, error: RunError, audits_made: Sequence[_AuditOfBranch], context: Context, started_at: str
    ) -> None:
        """Say in a result object, and in the summary, what failed."""
        from headrace.runs.publishing.publish import audit_reference
        from headrace.runs.reporting.summary import renew_summary

        catalog, branch = self.rooted.catalog(), self.branch(context)
        outcomes = {audit.output: outcome for audit, outcome in audits_made if outcome is not None}
        failed_audit = next((outcome for outcome in outcomes.values() if not outcome.success), None)
        head = catalog.head().refs.get(branch)
        result = RunResult(
            run_id=run_id_of(context),
            pipeline=self.rooted.name,
            action="audit",
            status="failed",
            started_at=started_at,
            finished_at=now(),
            error=error,
            snapshot=head,
            epoch=None if head is None else catalog.manifest(head).epoch,
            published=catalog.published_by_all(catalog.head().refs),
            audit=None if failed_audit is None else audit_reference(failed_audit),
            branch=branch,
            limits=tuple(limit for audit, _ in audits_made for limit in audit.limits),
        )
        write_run_result(catalog.store, result)
        if branch == MAIN:
            renew_summary(catalog, result)

    def _log_findings(self, audit: BranchAudit, outcome: AuditOutcome | None, branch: str) -> list[str]:
        """Say in the log what was found; what to warn of."""
        output_text = f"{audit.output}: " if audit.output else ""
        if audit.stands_still:
            self.log.info(
                "%snothing new on branch %s: the output is parked, or waits for its first epoch", output_text, branch
            )
        elif audit.unpublished_range is None:
            by_whom = "" if outcome is None else ": a task of this run has published what it found good"
            self.log.info("%sreaders see everything on branch %s already%s", output_text, branch, by_whom)
        if outcome is not None:
            tell = self.log.error if outcome.failed or outcome.unusual else self.log.info
            for line in outcome.report_lines():
                tell("%s", line)
        self._tell_limits(audit.limits)
        findings = () if outcome is None or outcome.usual is None else outcome.usual.findings
        limit_warnings = [limit.describe() for limit in audit.limits if limit.severity is Severity.WARN]
        limit_warnings += [finding.describe() for finding in findings if finding.severity is Severity.WARN]
        return [f"{output_text}{warning}" for warning in limit_warnings]

    def _audit_outcome(self, audit: BranchAudit, context: Context) -> AuditOutcome | None:
        outcome = audit.stored_outcome()
        if outcome is None:
            self.log.info("no audit of %s is stored yet: an application makes it", audit.unpublished_range)
            self.submit(context)
            outcome = audit.stored_outcome()
        return outcome

    def _tell_limits(self, limits: Sequence[LimitFinding]) -> None:
        """Say in the log what was found beside each limit."""
        levels = {None: logging.INFO, Severity.WARN: logging.WARNING, Severity.FAIL: logging.ERROR}
        for limit in limits:
            self.log.log(levels[limit.severity], "%s", limit.verdict_line())

    def _notify(self, warnings: Sequence[str], context: Context) -> None:
        """Tell ``warnings`` to whom the pipeline names for that."""
        notify = options_of(self.rooted).on_warning
        if warnings and notify is not None:
            try:
                call_user_function(notify, {**context, "headrace_warnings": [*warnings]})
            except Exception:  # code of a user's own; Airflow goes on after a callback that fails, too
                self.log.exception("on_warning=%r failed", notify)


_EVENTS_LOOKED_AT: Final = 20
"""Events to look through for one that names a snapshot: people make events by hand, which name none."""


class PublishOperator(BaseOperator):
    """Publish what is audited and not published yet, and announce what readers see unless the newest event says so.

    Only the catalog and the events count, not what other tasks of this DAG run did. So what became visible in another
    way is announced too. It may be by a release, by a run from the command line, or by an attempt that died before its
    event. It may also follow a task that somebody marked as successful. Skipped, and so without an event, on a branch
    other than main.

    An output that is parked, or waits for what it is computed of, is no failure of its own: the task says so.
    """

    def __init__(self, *, published: PublishedEvent, **kwargs: Any) -> None:
        super().__init__(inlets=[published.asset], outlets=[published.outlet], **kwargs)
        self.published = published

    def execute(self, context: Context) -> Summary:
        """Publish and announce; raises what is wrong with the audit."""
        from headrace.runs.publishing.publish import NothingToPublishError, publish_audited

        if is_dry_run(context):
            raise AirflowSkipException("the form says to do nothing: nothing is published")
        if (branch := context["params"].get("branch", MAIN)) != MAIN:
            raise AirflowSkipException(f"branch {branch} is not published: only {MAIN} is")
        last_announced = self._last_announced(context)
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
        became = result_summary(result)
        self.published.announce(context, became)
        return became

    def _last_announced(self, context: Context) -> str | None:
        """The snapshot that the newest event names: what those downstream know of."""
        events = context["inlet_events"][self.published.asset].ascending(False).limit(_EVENTS_LOOKED_AT)
        announced_ids = ((event.extra or {}).get("snapshot") for event in events)
        return next((str(snapshot) for snapshot in announced_ids if snapshot is not None), None)
