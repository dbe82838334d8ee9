"""The tasks of decisions: they run in the worker, without Spark, and say all that they did in their logs."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import AssetAlias, BaseOperator, Context

from headrace.errors import HeadraceError
from headrace_airflow.assets import Published
from headrace_airflow.decisions.building import AskingOperator
from headrace_airflow.decisions.kinds import Decision
from headrace_airflow.decisions.proposals import ChangedRows, Proposal, Sentence
from headrace_airflow.decisions.reasons import (
    NotRehearsedError,
    RehearsalOutdatedError,
    decided,
    done_already,
    earlier_try,
    reason_of,
    told_if_unreasoned,
)
from headrace_airflow.failures import problem_left
from headrace_airflow.forms import asked_in_form, check_names
from headrace_airflow.roots.root import Root
from headrace_airflow.roots.store import reaching_store
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol import Kind
from headrace_snapshots.refs import MAIN, is_published, published_of, published_ref

if TYPE_CHECKING:
    from headrace.runs.client.handle import PipelineHandle
    from headrace_snapshots.catalog import Catalog
    from headrace_snapshots.format.entry import Entry

REHEARSE: Final = "rehearse"
"""The task that says what a promotion would change."""

REHEARSED: Final = "branch"
"""Under this key the task leaves the snapshot of the branch that it spoke of."""

LINES: Final = "lines"
"""Under this key it leaves what its log says."""

_ROWS: Final = 20
"""Rows that change, as a person is shown them who is to approve."""


class DecisionOperator(BaseOperator):
    """Does what a person has decided about the pipeline that the form names, and announces what readers see if that
    has moved. What an earlier try of the run has done is not done again.
    """

    def __init__(self, *, root: Root, decision: Decision, names: Collection[str], **kwargs: Any) -> None:
        super().__init__(outlets=[moved(root)], **kwargs)
        self.root, self.decision, self.names = root, decision, names

    def execute(self, context: Context) -> dict[str, Any]:
        """What is said of it, in lines, and what readers see now; raises why it is refused."""
        form = context["params"]
        with problem_left(context), reaching_store(self.root):
            check_names(context, self.names)
            handle = handle_of(self.root, form["pipeline"])
            done = earlier_try(handle.catalog, context)
            before = seen_before(handle, done)
            act = self.decision.act(handle, form, reason_of(context)) if done is None else [done_already(done)]
            lines = []
            for line in act:
                self.log.info("%s", line)
                lines.append(line)
            lines += told_if_unreasoned(context) if done is None else ()
            return {"said": lines, "published": announced(self.root, handle, context, before)}


class RehearsalOperator(BaseOperator):
    """Says what a promotion would change for readers: in its log, and as a table for the person who approves it."""

    def __init__(self, *, root: Root, names: Collection[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root, self.names = root, names

    def execute(self, context: Context) -> str:
        """A table in Markdown; raises why the promotion would be refused."""
        form = context["params"]
        with problem_left(context), reaching_store(self.root):
            check_names(context, self.names)
            handle = handle_of(self.root, form["pipeline"])
            done = earlier_try(handle.catalog, context)
            output = form.get("output") or None
            # before it is read: whatever comes to the branch from here on, this run does not promote
            context["ti"].xcom_push(key=REHEARSED, value=handle.catalog.head().refs.get(form["branch"]))
            shown = (
                rehearsed(
                    handle, form["branch"], output=output, patch=form["patch"], asked=asked_in_form("promote", form)
                )
                if done is None
                else Proposal.of([Sentence(done_already(done))])
            )
        for line in shown.lines:
            self.log.info("%s", line)
        context["ti"].xcom_push(key=LINES, value=[*shown.lines])
        return shown.markdown


class ApproveOperator(AskingOperator):
    """Waits for a person, unless the form says that nobody is to be asked, or what it asks about is done."""

    def proposal(self, context: Context) -> Proposal | None:
        """What the rehearsal has said."""
        form = context["params"]
        if not form["approve"]:
            self.log.info("the form says that nobody is to be asked")
            return None
        if (done := earlier_try(handle_of(self.root, form["pipeline"]).catalog, context)) is not None:
            self.log.info("%s", done_already(done))
            return None
        task = context["ti"]
        lines = task.xcom_pull(task_ids=REHEARSE, key=LINES) or ()
        return Proposal(str(task.xcom_pull(task_ids=REHEARSE)), tuple(lines))


class PromoteOperator(BaseOperator):
    """Makes a branch main, or its rows a patch of main, or lets main adopt one output of it; says in the log of the
    pipeline who decided it, and why. If a person is asked, it is of the branch as that person was shown it.
    """

    def __init__(self, *, root: Root, **kwargs: Any) -> None:
        super().__init__(outlets=[moved(root)], **kwargs)
        self.root = root

    def execute(self, context: Context) -> dict[str, Any]:
        """The result of the promotion; raises why it is refused."""
        form = context["params"]
        output = form.get("output") or None
        with problem_left(context), reaching_store(self.root):
            handle = handle_of(self.root, form["pipeline"])
            done = earlier_try(handle.catalog, context)
            before = seen_before(handle, done)
            if done is not None:
                lines = [done_already(done)]
                finish(handle, done, form["branch"], output=output, patch=form["patch"])
            else:
                message = decided(context, asks=form["approve"])
                if form["approve"]:
                    shown = context["ti"].xcom_pull(REHEARSE, key=REHEARSED)
                    check_shown(handle.catalog, form["branch"], shown, REHEARSE)
                result = handle.promote(
                    form["branch"],
                    output=output,
                    patch=form["patch"],
                    message=message,
                    **asked_in_form("promote", form),
                )
                lines = [f"readers see {result.published} (epoch {result.epoch}) now: {message}"]
            for line in lines:
                self.log.info("%s", line)
            lines += told_if_unreasoned(context) if done is None else ()
            return {"said": lines, "published": announced(self.root, handle, context, before)}


def check_shown(catalog: "Catalog", branch: str, shown: str | None, task: str, *, goes_on: bool = False) -> None:
    """Raise NotRehearsedError if nobody can have seen the branch, RehearsalOutdatedError unless it is as it was
    ``shown`` by ``task``; or, if it ``goes_on`` by catching up with main, as that was said there, continues from it.
    """
    if shown is None:
        raise NotRehearsedError(f"clear the task {task}, which says what would change; then approve that")
    now = catalog.head().refs.get(branch)
    if now != shown and not (goes_on and now is not None and _continues(catalog, shown, now)):
        raise RehearsalOutdatedError(
            f"branch {branch} was at {shown} when the task {task} said what readers would see change, and that was "
            f"approved; it is at {now or 'nothing'} now. If that is to be promoted, clear {task}, which looks again"
        )


def _continues(catalog: "Catalog", shown: str, now: str) -> bool:
    """Whether ``now`` has come of ``shown``, by one definition."""
    return catalog.is_ancestor(shown, now) and catalog.manifest(shown).fingerprint == catalog.manifest(now).fingerprint


def moved(root: Root) -> AssetAlias:
    """Through it the assets of pipelines get an event when a decision has moved what readers see."""
    return AssetAlias(name=root.named("decided"))


def handle_of(root: Root, pipeline: str) -> "PipelineHandle":
    """The pipeline under ``root``. Raises UnknownResultsError, DeploymentError, MissingRootError."""
    from headrace.runs.client.deployment import open as open_root

    return open_root(root.uri)[pipeline]


def rehearsed(
    handle: "PipelineHandle",
    branch: str,
    *,
    output: str | None = None,
    patch: bool,
    later: tuple[type[HeadraceError], ...] = (),
    asked: Mapping[str, Any] | None = None,
) -> Proposal:
    """What readers would see change by a promotion of ``branch``. Raises why it would be refused; what is put right
    ``later``, before the promotion, is only said. ``asked`` are options of the promotion.
    """
    gone: tuple[str, ...] = ()
    if patch:
        patched = handle.promote(branch, output=output, patch=True, dry_run=True, limit=_ROWS)
        outputs, refusals, change = {output or "": patched.output}, patched.refusals, patched.change
    else:
        rehearsal = handle.promote(branch, output=output, dry_run=True, limit=_ROWS, **(asked or {}))
        outputs = {name: diff.output for name, diff in rehearsal.diffs.items()}
        refusals, gone, change = rehearsal.refusals, rehearsal.gone, rehearsal.change
    for refusal in refusals:
        if not isinstance(refusal, later):
            raise refusal
    parts: list[Sentence | ChangedRows] = [Sentence(f"It would {change}.")]
    for name, changed in outputs.items():
        parts += [Sentence(f"Output {name}:")] if name else []
        parts.append(ChangedRows(changed.rows.to_json(), [change.to_json() for change in changed.first]))
    catching_up = [Sentence(f"Before that the branch catches up, and this changes: {why}") for why in refusals]
    lost = [Sentence(f"Output {name or 'without a name'} is gone: its readers see nothing any more.") for name in gone]
    return Proposal.of([*parts, *lost, *catching_up])


def finish(handle: "PipelineHandle", done: "Entry", branch: str, *, output: str | None = None, patch: bool) -> None:
    """Do what is left of what ``done`` has committed, if that try ended before it could: publish the patch, if main is
    still there; drop the branch whose ``output`` main has adopted.
    """
    head = handle.catalog.head()
    if output is not None and not patch:
        if branch in head.generations:
            handle.drop(branch, message=f"dropped {branch}: main has adopted {output}")
        return
    shown = handle.catalog.published_by_all(head.refs) if output is None else head.refs.get(published_ref(output))
    if done.refs.get(MAIN) == head.refs.get(MAIN) != shown:
        handle.promote(branch, output=output, patch=True)


def seen_before(handle: "PipelineHandle", done: "Entry | None") -> dict[str, str | None]:
    """What readers saw before this run moved it, or what they see if it has not; as ``_seen`` has it."""
    catalog = handle.catalog
    is_commit = done is not None and done.kind is Kind.COMMIT and MAIN in done.moves  # a patch, or an adoption
    if done is not None and (is_commit or any(map(is_published, done.moves))):
        return _seen(catalog, done.refs_before)
    return _seen(catalog, catalog.known_head().refs)


def announced(root: Root, handle: "PipelineHandle", context: Context, before: Mapping[str, str | None]) -> str | None:
    """What readers of all outputs may see now, after an event has told it of each asset that is not as ``before``: the
    pipeline's, and those of its outputs.
    """
    catalog = handle.catalog
    now = _seen(catalog, catalog.head().refs)
    for output in {**before, **now}:
        if (shown := now.get(output)) != before.get(output):
            published = Published(root, handle.name, output)
            extra = published.event_extra(readers_see(seen_catalog(catalog, output), shown))
            context["outlet_events"][moved(root)].add(published.asset, extra=extra)
    return now[""]


def _seen(catalog: "Catalog", refs: Mapping[str, str]) -> dict[str, str | None]:
    """What readers see of each output; "": what readers of all may see."""
    return {**published_of(refs), "": catalog.published_by_all(refs)}


def readers_see(catalog: "Catalog", published: str | None) -> dict[str, Any]:
    """What an event says of the snapshot that readers see; of none where they see nothing any more."""
    if published is None:
        return {"epoch": None, "snapshot": None, "counts": {}, "watermark": None}
    manifest = catalog.manifest(published)
    return {
        "epoch": manifest.epoch,
        "snapshot": manifest.snapshot_id,
        "counts": dict(manifest.counts),
        "watermark": manifest.progress.get("watermark"),
    }
