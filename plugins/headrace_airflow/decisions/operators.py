"""The tasks of decisions: they run in the worker, without Spark, and say all that they did in their logs."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import AssetAlias, BaseOperator, Context

from headrace.errors import HeadraceError
from headrace_airflow.assets import Published
from headrace_airflow.decisions.asking import AskingOperator
from headrace_airflow.decisions.kinds import Decision
from headrace_airflow.decisions.reasons import decided, done_already, earlier_try, reason_of
from headrace_airflow.forms import check_names
from headrace_airflow.roots.root import Root
from headrace_airflow.roots.store import reaching_store
from headrace_snapshots.protocol import Kind
from headrace_snapshots.refs import MAIN, PUBLISHED

if TYPE_CHECKING:
    from headrace.runs.client.handle import PipelineHandle
    from headrace_snapshots.catalog import Catalog
    from headrace_snapshots.format.entry import Entry

REHEARSE: Final = "rehearse"
"""The task that says what a promotion would change."""

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
        with reaching_store(self.root):
            check_names(context, self.names)
            handle = handle_of(self.root, form["pipeline"])
            done = earlier_try(handle.catalog, context)
            before = seen_before(handle, done)
            act = self.decision.act(handle, form, reason_of(context)) if done is None else [done_already(done)]
            lines = []
            for line in act:
                self.log.info("%s", line)
                lines.append(line)
            return {"said": lines, "published": announced(self.root, handle, context, before)}


class RehearsalOperator(BaseOperator):
    """Says what a promotion would change for readers: in its log, and as a table for the person who approves it."""

    def __init__(self, *, root: Root, names: Collection[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root, self.names = root, names

    def execute(self, context: Context) -> str:
        """A table in Markdown; raises why the promotion would be refused."""
        form = context["params"]
        with reaching_store(self.root):
            check_names(context, self.names)
            handle = handle_of(self.root, form["pipeline"])
            done = earlier_try(handle.catalog, context)
            lines = rehearsed(handle, form["branch"], patch=form["patch"]) if done is None else [done_already(done)]
        for line in lines:
            self.log.info("%s", line)
        return "\n".join(lines)


class ApproveOperator(AskingOperator):
    """Waits for a person, unless the form says that nobody is to be asked, or what it asks about is done."""

    def proposal(self, context: Context) -> str | None:
        """What the rehearsal has said."""
        form = context["params"]
        if not form["approve"]:
            self.log.info("the form says that nobody is to be asked")
            return None
        if (done := earlier_try(handle_of(self.root, form["pipeline"]).catalog, context)) is not None:
            self.log.info("%s", done_already(done))
            return None
        return str(context["ti"].xcom_pull(task_ids=REHEARSE))


class PromoteOperator(BaseOperator):
    """Makes a branch main, or its rows a patch of main; says in the log of the pipeline who decided it, and why."""

    def __init__(self, *, root: Root, **kwargs: Any) -> None:
        super().__init__(outlets=[moved(root)], **kwargs)
        self.root = root

    def execute(self, context: Context) -> dict[str, Any]:
        """The result of the promotion; raises why it is refused."""
        form = context["params"]
        with reaching_store(self.root):
            handle = handle_of(self.root, form["pipeline"])
            done = earlier_try(handle.catalog, context)
            before = seen_before(handle, done)
            if done is not None:
                self.log.info("%s", done_already(done))
                finish(handle, done, form["branch"])
            else:
                message = decided(context, asks=form["approve"])
                result = handle.promote(form["branch"], patch=form["patch"], message=message)
                self.log.info("readers see %s (epoch %s) now: %s", result.published, result.epoch, message)
            return {"published": announced(self.root, handle, context, before)}


def moved(root: Root) -> AssetAlias:
    """Through it the assets of pipelines get an event when a decision has moved what readers see."""
    return AssetAlias(name=root.named("decided"))


def handle_of(root: Root, pipeline: str) -> "PipelineHandle":
    """The pipeline under ``root``. Raises UnknownResultsError, DeploymentError, MissingRootError."""
    from headrace.runs.client.deployment import open as open_root

    return open_root(root.uri)[pipeline]


def rehearsed(
    handle: "PipelineHandle", branch: str, *, patch: bool, later: tuple[type[HeadraceError], ...] = ()
) -> list[str]:
    """What readers would see change by a promotion of ``branch``, as Markdown. Raises why it would be refused; what is
    put right ``later``, before the promotion, is only said.
    """
    if patch:
        patched = handle.promote(branch, patch=True, dry_run=True, limit=_ROWS)
        output, refusals = patched.output, patched.refusals
    else:
        rehearsal = handle.promote(branch, dry_run=True, limit=_ROWS)
        output, refusals = rehearsal.diff.output, rehearsal.refusals
    notes = []
    for refusal in refusals:
        if not isinstance(refusal, later):
            raise refusal
        notes += ["", f"Before that the branch catches up, and this changes: {refusal}"]
    return [*changes_table(output.rows.to_json(), [change.to_json() for change in output.first]), *notes]


def finish(handle: "PipelineHandle", done: "Entry", branch: str) -> None:
    """Publish the patch that ``done`` has committed, if that try ended before it could, and main is still there."""
    refs = handle.catalog.head().refs
    if done.refs.get(MAIN) == refs.get(MAIN) != refs.get(PUBLISHED):
        handle.promote(branch, patch=True)


def seen_before(handle: "PipelineHandle", done: "Entry | None") -> str | None:
    """What readers saw before this run moved it, or what they see if it has not."""
    if done is not None and (moved := done.moves.get(MAIN if done.kind is Kind.COMMIT else PUBLISHED)):
        return moved[0]  # a commit is a patch, of a main that readers see
    return handle.catalog.known_head().refs.get(PUBLISHED)


def announced(root: Root, handle: "PipelineHandle", context: Context, before: str | None) -> str | None:
    """What readers see now, after an event of the pipeline's asset has told it if that is not ``before`` any more."""
    published = handle.catalog.head().refs.get(PUBLISHED)
    if published is not None and published != before:
        extra = readers_see(handle.catalog)
        context["outlet_events"][moved(root)].add(Published(root, handle.name).asset, extra=extra)
    return published


def readers_see(catalog: "Catalog") -> dict[str, Any]:
    """What an event says of the snapshot that readers see: there is one."""
    manifest = catalog.manifest(catalog.head().refs[PUBLISHED])
    return {
        "epoch": manifest.epoch,
        "snapshot": manifest.snapshot_id,
        "counts": dict(manifest.counts),
        "watermark": manifest.progress.get("watermark"),
    }


def changes_table(numbers: dict[str, int], first: list[dict[str, Any]]) -> Iterator[str]:
    """What readers would see change, as a table in Markdown."""
    yield "Readers would see " + ", ".join(f"{number:,} rows {kind}" for kind, number in numbers.items()) + "."
    if not first:
        return
    yield ""
    yield "| change | key and window | before | after |"
    yield "|---|---|---|---|"
    for change in first:
        cells = (change["kind"], *(_cell(change[name]) for name in ("key", "before", "after")))
        yield f"| {' | '.join(cells)} |"


def _cell(values: dict[str, Any] | None) -> str:
    text = "" if values is None else ", ".join(f"{name} = {value}" for name, value in values.items())
    return text.replace("|", "\\|").replace("\n", " ")
