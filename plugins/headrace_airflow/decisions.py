"""Decisions of people: their kinds, what a DAG of one is made of, and their tasks.

``AskingOperator`` shows a person what would happen, and waits for an answer. ``new_root_dag`` makes DAGs of decisions
and of maintenance.

``Decision`` is a kind: what it asks for, and what it does to a pipeline. Each is a move in the history of snapshots, or
a look after what is stored, as a method of ``hr.open(root)[name]`` does it.

Tasks of decisions run in the worker, without Spark, and say all that they did in their logs.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, AssetAlias, BaseOperator, Context, Param
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.errors import HeadraceError
from headrace.pipeline.deployment import ScheduleTimes
from headrace_airflow import forms
from headrace_airflow.connection import reaching_store
from headrace_airflow.failures import RETRIES, problem_left
from headrace_airflow.families.family import START_DATE, has_form, run_types, timetable_by_time
from headrace_airflow.markdown import ChangedRows, Proposal, Sentence
from headrace_airflow.roots import Root
from headrace_airflow.run_ids import PublishedEvent
from headrace_snapshots.names import BEGINNING, MAIN, is_published, output_of, published_of, published_ref
from headrace_snapshots.output_catalog import seen_catalog
from headrace_snapshots.protocol.moves import Kind

if TYPE_CHECKING:
    from headrace.runs.client.handle import PipelineHandle
    from headrace.runs.publishing.patch import PatchRehearsal
    from headrace.runs.publishing.promotion import Rehearsal
    from headrace_snapshots.catalog import Catalog
    from headrace_snapshots.log import Entry


class AskingOperator(ApprovalOperator):
    """Waits until a person approves or rejects its ``proposal``; what comes next is skipped if it is rejected.

    Each try asks, whatever was answered before: Airflow 3.3 fails a task whose answer comes before its worker has
    ended, and loses the answer.
    """

    def __init__(self, *, root: Root, **kwargs: Any) -> None:
        super().__init__(execution_timeout=None, **kwargs)  # how long a task may take says nothing of a person
        self.root = root

    def proposal(self, context: Context) -> Proposal | None:
        """What the person is shown; None if nobody is to be asked."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        """Who approved it; None where nobody was asked."""
        with reaching_store(self.root):
            proposal = self.proposal(context)
        if proposal is None:
            return None
        for line in proposal.lines:
            self.log.info("%s", line)
        self.body = proposal.markdown
        return super().execute(context)


@contextmanager
def new_root_dag(
    root: Root,
    name: str,
    description: str,
    params: dict[str, Any],
    *,
    command: str,
    tags: Sequence[str] = ("decision",),
    schedule: ScheduleTimes | None = None,
) -> Iterator[DAG]:
    """The DAG ``name`` of all pipelines of ``root``, for tasks made inside. ``command`` does the same in a shell."""
    at_once: dict[str, Any] = {} if schedule is None else {"max_active_runs": 1}
    dag = DAG(
        dag_id=root.airflow_name(name),
        description=description,
        doc_md=f"{description}\n\nThe same on the command line: {command}.",
        schedule=schedule if schedule is None or isinstance(schedule, str) else timetable_by_time(schedule),
        start_date=START_DATE,
        catchup=False,
        default_args=RETRIES,
        tags=["headrace", *tags, *root.tags],
        allowed_run_types=[*run_types(schedule), DagRunType.MANUAL, DagRunType.OPERATOR_TRIGGERED],
        auto_register=False,  # the file in dags/ names them
        **at_once,
    )
    with has_form(dag, params):
        yield dag


def switch_param(title: str, description: str, *, default: bool = False) -> Param:
    """A field that is on or off."""
    return Param(default, type="boolean", title=title, description=description)


def dry_run_switch() -> Param:
    """The field by which a decision does nothing."""
    return switch_param("Dry run", "Only say in the log what would happen.")


FormValues = Mapping[str, Any]
DecisionAct = Callable[["PipelineHandle", FormValues, str], Iterator[str]]
"""Does it, for the reason that is given last; says in lines what it did."""


@dataclass(frozen=True)
class Decision:
    """A kind of decision. ``about`` says in the UI what it does; ``params`` are the fields beside pipeline and reason.

    ``needs_reason``: whether it cannot be submitted without one.
    """

    name: str
    about: str
    params: Callable[[], dict[str, Any]]
    act: DecisionAct
    needs_reason: bool = False


def _text_param(title: str, description: str, default: str | None = None, *, is_required: bool = False) -> Param:
    if is_required:
        return Param(type="string", minLength=1, title=title, description=description)
    return Param(default, type=["null", "string"], title=title, description=description)


_SNAPSHOT_HELP: Final = "A snapshot's id, a branch, a tag"


def _release_snapshot(handle: "PipelineHandle", form: FormValues, reason: str) -> Iterator[str]:
    from headrace.runs.publishing.publish import STAY

    snapshot, output = form["snapshot"] or MAIN, form.get("output") or None
    if (published_id := _seen_already(handle, snapshot, output)) is not None:
        yield f"published already: readers see {published_id} since an earlier entry of the log"
        return
    entry = handle.release(snapshot, message=reason, output=output)
    for ref, (_, new_id) in entry.moves.items():
        output_text = f" of output {output}" if (output := output_of(ref)) else ""
        yield f"readers see {new_id}{output_text} now, released by entry {entry.number}"
    if not entry.moves:
        yield f"{STAY} (entry {entry.number})"


def _seen_already(handle: "PipelineHandle", snapshot_ref: str, output: str | None) -> str | None:
    """The snapshot that a release would let readers see, if they see it."""
    head = handle.catalog.head()
    snapshot = head.refs.get(snapshot_ref) or handle.show(snapshot_ref).snapshot_id
    published_id = published_of(head.refs).get(output) if output else handle.catalog.published_by_all(head.refs)
    return snapshot if published_id == snapshot else None


def _rollback_branch(handle: "PipelineHandle", form: FormValues, reason: str) -> Iterator[str]:
    branch = form["branch"] or MAIN
    options = forms.asked_in_form("rollback", form)
    given_up = handle.rollback(to=form["to"], branch=branch, dry_run=True, **options)
    verb = "would move" if form["dry_run"] else "moves"
    for ref, (old_id, new_id) in given_up.moves.items():
        yield f"{ref} {verb} from {old_id or 'nothing'} to {new_id or 'nothing'}"
    yield from given_up.told
    if not form["dry_run"]:
        entry = handle.rollback(to=form["to"], branch=branch, message=reason, **options)
        yield f"rolled back by entry {entry.number}; the next run continues from there"


def _drop_branch(handle: "PipelineHandle", form: FormValues, reason: str) -> Iterator[str]:
    entry = handle.drop(form["name"], message=f"dropped {form['name']}: {reason}")
    yield f"dropped {form['name']} by entry {entry.number}; left are {', '.join(sorted(entry.refs))}"


def _tag_snapshot(handle: "PipelineHandle", form: FormValues, reason: str) -> Iterator[str]:
    entry = handle.tag(form["name"], form["snapshot"] or MAIN, message=reason)
    (snapshot,) = (tagged_id for _, tagged_id in entry.moves.values())
    yield f"tag {form['name']} names {snapshot}"


def _fork_branch(handle: "PipelineHandle", form: FormValues, reason: str) -> Iterator[str]:
    entry = handle.fork(form["snapshot"] or MAIN, form["name"], message=reason)
    yield f"branch {form['name']} begins at {entry.refs[form['name']]}: process it with Branch = {form['name']}"


def _replay_dropped(handle: "PipelineHandle", form: FormValues, reason: str) -> Iterator[str]:
    snapshot_ref = form["at"] or MAIN
    landing = (
        handle.replay_late(output=form.get("output") or None, to=form["to"], at=snapshot_ref)
        if form["records"] == "late"
        else handle.replay_rejected(
            output=form.get("output") or None, input=form["input"], to=form["to"], at=snapshot_ref
        )
    )
    for name, value in landing.to_json().items():
        yield f"{name.replace('_', ' ')}: {value}"


KINDS: Final = (
    Decision(
        "release",
        "Publish a snapshot whose audit failed. Readers see its rows from then on; the log of the pipeline says who "
        "decided it and why.",
        lambda: {
            "snapshot": _text_param("Snapshot", f"{_SNAPSHOT_HELP}. Empty: the newest of main."),
            "output": _text_param(
                "Output", "Which of several outputs. Empty: all whose readers see an older snapshot."
            ),
        },
        _release_snapshot,
        needs_reason=True,
    ),
    Decision(
        "rollback",
        "Move a branch back to a snapshot. What readers see moves with main if it is newer; the next run reads again "
        "what came after. Nothing is deleted.",
        lambda: {
            "to": _text_param("To", f"{_SNAPSHOT_HELP}, or {BEGINNING!r}.", is_required=True),
            "branch": _text_param("Branch", "Empty: main."),
            "dry_run": dry_run_switch(),
            **forms.option_fields("rollback"),
        },
        _rollback_branch,
        needs_reason=True,
    ),
    Decision(
        "drop",
        "Drop a branch or a tag. Its snapshots stay in the store until they expire.",
        lambda: {"name": _text_param("Branch or tag", "Which one is dropped.", is_required=True)},
        _drop_branch,
    ),
    Decision(
        "tag",
        "Give a snapshot a name that stays, and keeps it from expiring.",
        lambda: {
            "name": _text_param("Tag", "The new name.", is_required=True),
            "snapshot": _text_param("Snapshot", f"{_SNAPSHOT_HELP}. Empty: the newest of main."),
        },
        _tag_snapshot,
    ),
    Decision(
        "fork",
        "Make a branch at a snapshot, for runs beside main. Readers see nothing of it.",
        lambda: {
            "name": _text_param("Branch", "The new name.", is_required=True),
            "snapshot": _text_param("Snapshot", f"{_SNAPSHOT_HELP}. Empty: the newest of main."),
        },
        _fork_branch,
    ),
    Decision(
        "replay",
        "Land late records or dead letters once more, each only once, as files of the source's format. A run of the "
        "pipeline reads them, once it can.",
        lambda: {
            "records": Param(
                "rejected",
                type="string",
                enum=["rejected", "late"],
                values_display={"rejected": "dead letters", "late": "late records"},
                title="Records",
                description="Which records land again.",
            ),
            "output": _text_param(
                "Output", "Only records that this output dropped. Empty: dead letters that no output could take."
            ),
            "input": _text_param("Input", "Dead letters of one input alone. Empty: of all."),
            "to": _text_param(
                "To", "A path below the root, or a URI. Empty: below the folders 'late' and 'rejected' of the root."
            ),
            "at": _text_param("At", f"{_SNAPSHOT_HELP}: the records that it knows land. Empty: the newest of main."),
        },
        _replay_dropped,
    ),
)


REHEARSE: Final = "rehearse"
"""The task that says what a promotion would change."""

REHEARSED_BRANCH: Final = "branch"
"""Under this key the task leaves the snapshot of the branch that it spoke of."""

LINES: Final = "lines"
"""Under this key it leaves what its log says."""

_TEXT_ROWS: Final = 20
"""Rows that change, as a person is shown them who is to approve."""


class DecisionOperator(BaseOperator):
    """Does what a person has decided about the pipeline that the form names, and announces what readers see if that
    has moved. What an earlier try of the run has done is not done again.
    """

    def __init__(self, *, root: Root, decision: Decision, names: Collection[str], **kwargs: Any) -> None:
        super().__init__(outlets=[moved_asset_alias(root)], **kwargs)
        self.root, self.decision, self.names = root, decision, names

    def execute(self, context: Context) -> dict[str, Any]:
        """What is said of it, in lines, and what readers see now; raises why it is refused."""
        form = context["params"]
        with problem_left(context), reaching_store(self.root):
            forms.check_names(context, self.names)
            handle = handle_of(self.root, form["pipeline"])
            entry_before = forms.earlier_try(handle.catalog, context)
            published_before = seen_before(handle, entry_before)
            act = (
                self.decision.act(handle, form, forms.reason_of(context))
                if entry_before is None
                else [forms.done_already(entry_before)]
            )
            lines = []
            for line in act:
                self.log.info("%s", line)
                lines.append(line)
            lines += forms.told_if_unreasoned(context) if entry_before is None else ()
            return {"said": lines, "published": announce_changes(self.root, handle, context, published_before)}


class RehearsalOperator(BaseOperator):
    """Says what a promotion would change for readers: in its log, and as a table for the person who approves it."""

    def __init__(self, *, root: Root, names: Collection[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root, self.names = root, names

    def execute(self, context: Context) -> str:
        """A table in Markdown; raises why the promotion would be refused."""
        form = context["params"]
        with problem_left(context), reaching_store(self.root):
            forms.check_names(context, self.names)
            handle = handle_of(self.root, form["pipeline"])
            entry_before = forms.earlier_try(handle.catalog, context)
            output = form.get("output") or None
            # before it is read: whatever comes to the branch from here on, this run does not promote
            context["ti"].xcom_push(key=REHEARSED_BRANCH, value=handle.catalog.head().refs.get(form["branch"]))
            proposal = (
                rehearse_promotion(
                    handle,
                    form["branch"],
                    output=output,
                    patch=form["patch"],
                    options_given=forms.asked_in_form("promote", form),
                )
                if entry_before is None
                else Proposal.from_parts([Sentence(forms.done_already(entry_before))])
            )
        for line in proposal.lines:
            self.log.info("%s", line)
        context["ti"].xcom_push(key=LINES, value=[*proposal.lines])
        return proposal.markdown


class ApproveOperator(AskingOperator):
    """Waits for a person, unless the form says that nobody is to be asked, or what it asks about is done."""

    def proposal(self, context: Context) -> Proposal | None:
        """What the rehearsal has said."""
        form = context["params"]
        if not form["approve"]:
            self.log.info("the form says that nobody is to be asked")
            return None
        if (entry_before := forms.earlier_try(handle_of(self.root, form["pipeline"]).catalog, context)) is not None:
            self.log.info("%s", forms.done_already(entry_before))
            return None
        task = context["ti"]
        lines = task.xcom_pull(task_ids=REHEARSE, key=LINES) or ()
        return Proposal(str(task.xcom_pull(task_ids=REHEARSE)), tuple(lines))


class PromoteOperator(BaseOperator):
    """Makes a branch main, or its rows a patch of main, or lets main adopt one output of it; says in the log of the
    pipeline who decided it, and why. If a person is asked, it is of the branch as that person was shown it.
    """

    def __init__(self, *, root: Root, **kwargs: Any) -> None:
        super().__init__(outlets=[moved_asset_alias(root)], **kwargs)
        self.root = root

    def execute(self, context: Context) -> dict[str, Any]:
        """The result of the promotion; raises why it is refused."""
        form = context["params"]
        output = form.get("output") or None
        with problem_left(context), reaching_store(self.root):
            handle = handle_of(self.root, form["pipeline"])
            entry_before = forms.earlier_try(handle.catalog, context)
            published_before = seen_before(handle, entry_before)
            if entry_before is not None:
                lines = [forms.done_already(entry_before)]
                finish_promotion(handle, entry_before, form["branch"], output=output, patch=form["patch"])
            else:
                message = forms.decision_message(context, asks=form["approve"])
                if form["approve"]:
                    rehearsed_id = context["ti"].xcom_pull(REHEARSE, key=REHEARSED_BRANCH)
                    check_shown(handle.catalog, form["branch"], rehearsed_id, REHEARSE)
                result = handle.promote(
                    form["branch"],
                    output=output,
                    patch=form["patch"],
                    message=message,
                    **forms.asked_in_form("promote", form),
                )
                lines = [f"readers see {result.published} (epoch {result.epoch}) now: {message}"]
            for line in lines:
                self.log.info("%s", line)
            lines += forms.told_if_unreasoned(context) if entry_before is None else ()
            return {"said": lines, "published": announce_changes(self.root, handle, context, published_before)}


def check_shown(catalog: "Catalog", branch: str, shown_id: str | None, task: str, *, goes_on: bool = False) -> None:
    """Raise NotRehearsedError if nobody can have seen the branch, RehearsalOutdatedError unless it is as it was
    ``shown_id`` by ``task``; or, if it ``goes_on`` by catching up with main, as that was said there, continues from it.
    """
    if shown_id is None:
        raise forms.NotRehearsedError(f"clear the task {task}, which says what would change; then approve that")
    now = catalog.head().refs.get(branch)
    if now != shown_id and not (goes_on and now is not None and _is_continuation(catalog, shown_id, now)):
        raise forms.RehearsalOutdatedError(
            f"branch {branch} was at {shown_id} when the task {task} said what readers would see change, and that was "
            f"approved; it is at {now or 'nothing'} now. If that is to be promoted, clear {task}, which looks again"
        )


def _is_continuation(catalog: "Catalog", rehearsed_id: str, now: str) -> bool:
    """Whether ``now`` has come of ``rehearsed_id``, by one definition."""
    return (
        catalog.is_ancestor(rehearsed_id, now)
        and catalog.manifest(rehearsed_id).fingerprint == catalog.manifest(now).fingerprint
    )


def moved_asset_alias(root: Root) -> AssetAlias:
    """Through it the assets of pipelines get an event when a decision has moved what readers see."""
    return AssetAlias(name=root.airflow_name("decided"))


def handle_of(root: Root, pipeline: str) -> "PipelineHandle":
    """The pipeline under ``root``. Raises UnknownResultsError, DeploymentError, MissingRootError."""
    from headrace.runs.client.handle import open as open_root

    return open_root(root.uri)[pipeline]


def rehearse_promotion(
    handle: "PipelineHandle",
    branch: str,
    *,
    output: str | None = None,
    patch: bool,
    later_errors: tuple[type[HeadraceError], ...] = (),
    options_given: Mapping[str, Any] | None = None,
) -> Proposal:
    """What readers would see change by a promotion of ``branch``. Raises why it would be refused; what is put right
    ``later_errors``, before the promotion, is only said. ``options_given`` are options of the promotion.
    """
    options: dict[str, Any] = {"dry_run": True, "limit": _TEXT_ROWS, "patch": patch, **(options_given or {})}
    rehearsal: Rehearsal | PatchRehearsal = handle.promote(branch, output=output, **options)
    refusals = rehearsal.refusals
    for refusal in refusals:
        if not isinstance(refusal, later_errors):
            raise refusal
    parts: list[Sentence | ChangedRows] = [Sentence(f"It would {rehearsal.change}.")]
    for name, difference in rehearsal.outputs.items():
        parts += [Sentence(f"Output {name}:")] if name else []
        parts.append(ChangedRows(difference.rows.to_json(), [change.to_json() for change in difference.first]))
    catching_up = [Sentence(f"Before that the branch catches up, and this changes: {why}") for why in refusals]
    losses = [
        Sentence(f"Output {name or 'without a name'} is gone: its readers see nothing any more.")
        for name in rehearsal.gone
    ]
    return Proposal.from_parts([*parts, *losses, *catching_up])


def finish_promotion(
    handle: "PipelineHandle", promotion_entry: "Entry", branch: str, *, output: str | None = None, patch: bool
) -> None:
    """Do what is left of what ``promotion_entry`` has committed, if that try ended before it could: publish the patch,
    if main is still there; drop the branch whose ``output`` main has adopted.
    """
    head = handle.catalog.head()
    if output is not None and not patch:
        if branch in head.generations:
            handle.drop(branch, message=f"dropped {branch}: main has adopted {output}")
        return
    published_id = (
        handle.catalog.published_by_all(head.refs) if output is None else head.refs.get(published_ref(output))
    )
    if promotion_entry.refs.get(MAIN) == head.refs.get(MAIN) != published_id:
        handle.promote(branch, output=output, patch=True)


def seen_before(handle: "PipelineHandle", entry: "Entry | None") -> dict[str, str | None]:
    """What readers saw before this run moved it, or see if it has not, in the form of ``_seen_snapshots``."""
    catalog = handle.catalog
    is_commit = entry is not None and entry.kind is Kind.COMMIT and MAIN in entry.moves  # a patch, or an adoption
    if entry is not None and (is_commit or any(map(is_published, entry.moves))):
        return _seen_snapshots(catalog, entry.refs_before)
    return _seen_snapshots(catalog, catalog.known_head().refs)


def announce_changes(
    root: Root, handle: "PipelineHandle", context: Context, old_ids: Mapping[str, str | None]
) -> str | None:
    """What readers of all outputs may see now, after events have told it. Each asset that is not as ``old_ids`` gets
    one: the pipeline's, and those of its outputs.
    """
    catalog = handle.catalog
    now = _seen_snapshots(catalog, catalog.head().refs)
    for output in {**old_ids, **now}:
        if (published_id := now.get(output)) != old_ids.get(output):
            published_event = PublishedEvent(root, handle.name, output)
            extra = published_event.event_extra(readers_see(seen_catalog(catalog, output), published_id))
            context["outlet_events"][moved_asset_alias(root)].add(published_event.asset, extra=extra)
    return now[""]


def _seen_snapshots(catalog: "Catalog", refs: Mapping[str, str]) -> dict[str, str | None]:
    """What readers see of each output; "": what readers of all may see."""
    return {**published_of(refs), "": catalog.published_by_all(refs)}


def readers_see(catalog: "Catalog", published_id: str | None) -> dict[str, Any]:
    """What an event says of the snapshot that readers see; it says none where they see nothing any more."""
    if published_id is None:
        return {"epoch": None, "snapshot": None, "counts": {}, "watermark": None}
    manifest = catalog.manifest(published_id)
    return {
        "epoch": manifest.epoch,
        "snapshot": manifest.snapshot_id,
        "counts": dict(manifest.counts),
        "watermark": manifest.progress.get("watermark"),
    }
