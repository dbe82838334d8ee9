"""Tasks of a recovery: say what is given up, ask a person, go back; and the start of one by a run that has met broken
state.

What a recovery in Airflow says of readers that go back, too, and holds them against before they move.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowSkipException, ErrorType

from headrace.errors import HeadraceError, RestoreError
from headrace.pipeline.deployment import AT_ONCE, NEVER, WHEN_APPROVED
from headrace.runs.reporting.results import redacted
from headrace_airflow import forms
from headrace_airflow.connection import reaching_store
from headrace_airflow.decisions import REHEARSE, AskingOperator, handle_of
from headrace_airflow.failures import TypedTaskError, problem_left
from headrace_airflow.markdown import Proposal
from headrace_airflow.operators import HeadraceOperator, Summary, is_dry_run, skip_after_telling
from headrace_airflow.roots import RootedPipeline
from headrace_airflow.run_ids import request_of
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.log import Entry
from headrace_snapshots.names import MAIN

if TYPE_CHECKING:
    from headrace.runs.recovery_target import CutMove, RecoveryCut


Places = Mapping[str, Mapping[str, str | None]]
"""Of each reader by its name: its ``head``, and the snapshot ``to`` which it goes back."""


def takes_readers_back(form: Mapping[str, Any]) -> bool:
    """Whether a form says that readers go back, too."""
    return bool(form.get("with_readers", False))


def lines_about(cut: "RecoveryCut") -> Iterator[str]:
    """What becomes of each reader, and which readers nobody can see, for people."""
    for move in _readers(cut):
        way = "" if move.given_up is None else f"main moves from {move.head} to {move.to}; "
        yield f"reader {_name(move)}: {way}{redacted(move.in_words)}"
    yield from map(redacted, cut.searched.limits)


def where_to(cut: "RecoveryCut") -> dict[str, dict[str, str | None]]:
    """``Places`` of a cut, as a rehearsal leaves them for the task that goes back."""
    return {_name(move): {"head": move.head, "to": move.to} for move in _readers(cut)}


def check_as_rehearsed(catalog: Catalog, snapshot: str | None, places: Places, asked: Mapping[str, Any]) -> None:
    """Raise RehearsalOutdatedError if a reader of the pipeline would go another way than the ``places`` say that people
    were shown: a run of it that went on meanwhile makes no difference. ``asked`` are options of the cut.

    A reader that cannot follow is none of this: the recovery itself refuses it.
    """
    from headrace.read.lineage.cut import RootStores
    from headrace.runs.recovery_target import recovery_cut

    stores = RootStores(catalog.store)
    for move in _readers(recovery_cut(catalog, snapshot, **asked)):
        if move.problem is not None:
            continue
        shown = places.get(_name(move))
        if shown is None and move.given_up is None:
            continue  # it has appeared since, and stays
        if shown is None or not _goes_as(stores.catalog(move.pipeline), move, shown):
            raise forms.RehearsalOutdatedError(_outdated(move, shown))


def _goes_as(catalog: Catalog, move: "CutMove", shown: Mapping[str, str | None]) -> bool:
    """Whether a reader has come of the head that was ``shown``, and goes back no further."""
    return _leads_to(catalog, shown["head"], move.head) and _leads_to(catalog, shown["to"], move.to)


def _leads_to(catalog: Catalog, older: str | None, newer: str | None) -> bool:
    if older == newer:
        return True
    with suppress(MissingSnapshotError, BrokenObjectError):  # nobody can tell: then people look again
        return older is not None and newer is not None and catalog.is_ancestor(older, newer)
    return False


def _outdated(move: "CutMove", shown: Mapping[str, str | None] | None) -> str:
    before = "nobody knew of it" if shown is None else f"it was at {shown['head']}, to go to {shown['to']},"
    return (
        f"reader {_name(move)} is at {move.head} and would go back to {move.to}; {before} when the task {REHEARSE} "
        f"said what is given up. If this recovery is still wanted, clear {REHEARSE}, which looks again"
    )


def _readers(cut: "RecoveryCut") -> "tuple[CutMove, ...]":
    """All that goes back, or stays, beside the pipeline itself."""
    return cut.moves[1:]


def _name(move: "CutMove") -> str:
    return redacted(str(move.pipeline))


RECOVER: Final = "recover"
"""The task that goes back."""


class RehearseRecoveryOperator(BaseOperator):
    """Says which snapshot main goes back to, that it is whole, and what is given up. Nothing moves."""

    def __init__(self, *, rooted: RootedPipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rooted = rooted

    def execute(self, context: Context) -> dict[str, Any]:
        """The id of the snapshot, what is given up, in lines, and where main is; with readers, where each of them is
        and goes. Raises why it would be refused.
        """
        with problem_left(context), reaching_store(self.rooted.root):
            rehearsal, cut = self._looked(context)
            for line in rehearsal["said"]:
                self.log.info("%s", line)
            if cut is not None:
                cut.check_all_follow()  # once the log has said of all readers where they would go
        return rehearsal

    def _looked(self, context: Context) -> "tuple[dict[str, Any], RecoveryCut | None]":
        from headrace.read.snapshots.snapshot_refs import named_id
        from headrace.runs.recovery_target import check_whole, with_epochs

        handle = handle_of(self.rooted.root, self.rooted.name)
        if (done := _done(handle.catalog, context)) is not None:
            return {"snapshot": done.moves[MAIN][1], "said": [forms.done_already(done)], "head": None}, None
        head = handle.catalog.known_head()
        to = named_id(handle.catalog, head, context["params"]["snapshot"])
        files = check_whole(handle.catalog, to)
        lines, main = (
            [f"snapshot {to} is whole: all of its {files:,} files are as they were written"],
            head.refs.get(MAIN),
        )
        form = context["params"]
        if main == to:
            lines.append("main is there already: nothing is given up")
        else:
            given_up = with_epochs(
                handle.catalog, handle.rollback(to=to, dry_run=True, **forms.asked_in_form("rollback", form))
            )
            lines += [f"{ref} moves from {before} to {after}" for ref, (before, after) in given_up.moves.items()]
            lines += given_up.told
        rehearsal = {"snapshot": to, "said": lines, "head": main}
        if not takes_readers_back(form):
            return rehearsal, None
        cut = handle.recovery_cut(to, **forms.asked_in_form("recovery_cut", form))
        return {**rehearsal, "said": [*lines, *lines_about(cut)], "readers": where_to(cut)}, cut


class ApproveRecoveryOperator(AskingOperator):
    """Shows a person what a recovery gives up, and waits, if the form says so."""

    def __init__(self, *, rooted: RootedPipeline, **kwargs: Any) -> None:
        super().__init__(task_id=forms.APPROVE, root=rooted.root, subject=f"Recover {rooted.qualified}?", **kwargs)
        self.rooted = rooted

    def proposal(self, context: Context) -> Proposal | None:
        """What the rehearsal has said, as a list; None if nobody is to be asked."""
        when = context["params"]["when"]
        if when == NEVER:
            raise AirflowSkipException("the form says to do nothing: the log of the task before says what would happen")
        if when == AT_ONCE:
            self.log.info("the form says that nobody is to be asked")
            return None
        if (done := _done(handle_of(self.rooted.root, self.rooted.name).catalog, context)) is not None:
            self.log.info("%s", forms.done_already(done))
            return None
        return Proposal.as_list(_rehearsed(context)["said"])


class RecoverOperator(HeadraceOperator):
    """Go back to the snapshot that the rehearsal has looked at, and read again what came after it."""

    def __init__(self, *, rooted: RootedPipeline, **kwargs: Any) -> None:
        super().__init__(rooted=rooted, action="recover", **kwargs)

    def begin(self, context: Context) -> str | None:
        """The snapshot to which main goes back. Raises NotRehearsedError."""
        return str(_rehearsed(context)["snapshot"])

    def act(self, context: Context) -> Summary:
        """Recover. Raises NotApprovedError if a person is to be asked and nobody has approved it, and
        RehearsalOutdatedError if main, or a reader that goes back, too, has gone another way since it was said what is
        given up. Once main has gone back another try does the rest.
        """
        self.log.info("going back: %s", self._decided(context))
        catalog = self.rooted.catalog()
        if _done(catalog, context) is None:
            self._check_rehearsed(catalog, context)
        return super().act(context)

    def _check_rehearsed(self, catalog: Catalog, context: Context) -> None:
        rehearsal, form = _rehearsed(context), context["params"]
        _check_ahead(catalog, rehearsal["head"])
        if takes_readers_back(form):
            if "readers" not in rehearsal:
                raise forms.NotRehearsedError(
                    f"the task {REHEARSE} of this run has not said where readers go: clear it"
                )
            check_as_rehearsed(
                catalog, self.begin(context), rehearsal["readers"], forms.asked_in_form("recovery_cut", form)
            )

    def _arguments(self, context: Context, where: str, run_id: str) -> list[str]:
        given = [f"--snapshot={self.begin(context)}", f"--message={self._decided(context)}"]
        given += [f"--warning={warning}" for warning in forms.unreasoned(context)]
        return [*super()._arguments(context, where, run_id), *given]

    def _decided(self, context: Context) -> str:
        """Who decided it and why; once it is done nobody has to approve it again."""
        done = _done(self.rooted.catalog(), context)
        return forms.decided(context, asks=done is None and context["params"]["when"] == WHEN_APPROVED)


class ProcessOperator(HeadraceOperator):
    """Drain what has landed, audit it, and on main publish at once what the audit finds good. The tasks after it show
    that, say what is not good, and do what is not done yet.

    Where broken state stops it, start one recovery for the broken head of main: at once where readers lose nothing by
    it and all input is there, else one that asks a person.

    The id of the recovery's run follows from the snapshot that is broken, and Airflow makes a run of one id once.
    """

    def __init__(self, *, rooted: RootedPipeline, **kwargs: Any) -> None:
        super().__init__(rooted=rooted, action="process", **kwargs)

    def act(self, context: Context) -> Summary:
        """The task; raises the error of the run all the same, whatever was started because of it. A dry run is skipped,
        once the log says what it would do.
        """
        if is_dry_run(context):
            form = context["params"]
            asked = forms.asked_in_form("run", form)
            create = bool(form.get("create"))
            skip_after_telling(self.rooted, lambda handle: handle.run(**asked, dry_run=True), create=create)
        try:
            return super().act(context)
        except (TypedTaskError, RestoreError) as error:
            remedy = error.error.remedy if isinstance(error, TypedTaskError) else error.remedy
            if remedy == RestoreError.remedy and self.branch(context) == MAIN:
                self._start_recovery(context, error)
            raise

    def _arguments(self, context: Context, where: str, run_id: str) -> list[str]:
        given = super()._arguments(context, where, run_id)
        return [*given, "--publish"] if self.branch(context) == MAIN else given

    def _start_recovery(self, context: Context, error: TypedTaskError | RestoreError) -> None:
        from headrace.runs.recovery_target import way_back

        try:
            way = way_back(self.rooted.catalog(), self.rooted.pipeline)
        except HeadraceError as problem:
            self.log.error("no recovery was started, since where to cannot be told: %s", problem)
            return
        if way is None or way.target is None:
            self.log.error("no recovery was started: %s", "there is no snapshot yet" if way is None else way.reason)
            return
        code = error.error.code if isinstance(error, TypedTaskError) else error.code
        when = AT_ONCE if way.is_safe else WHEN_APPROVED
        reason = f"{code} in {context['ti'].dag_id}/{context['ti'].run_id}: snapshot {way.head} is broken"
        conf = {"snapshot": way.target, "when": when, "reason": reason}
        recovery, run_id = self.rooted.dag_id(RECOVER), f"broken__{way.head}"
        try:
            is_new = start_once(recovery, run_id, conf)
        except AirflowException as problem:
            self.log.error("no recovery was started: Airflow refused the run %s of %s: %s", run_id, recovery, problem)
            return
        if not is_new:
            self.log.error("run %s of %s was started for this snapshot before: no other is", run_id, recovery)
        elif way.is_safe:
            self.log.warning("started run %s of %s, back to %s: %s", run_id, recovery, way.target, way.reason)
        else:
            self.log.warning(
                "started run %s of %s, back to %s. It waits until a person approves: %s",
                run_id,
                recovery,
                way.target,
                way.reason,
            )


def start_once(dag: str, run_id: str, conf: dict[str, Any]) -> bool:
    """Start a run of another DAG, as the task that runs now; False if Airflow has one of that id already.

    Raises AirflowException where Airflow refuses it.
    """
    from airflow.sdk.execution_time import task_runner  # of workers: not for who parses DAGs
    from airflow.sdk.execution_time.comms import ErrorResponse, TriggerDagRun

    answer = task_runner.SUPERVISOR_COMMS.send(TriggerDagRun(dag_id=dag, run_id=run_id, conf=conf))
    if not isinstance(answer, ErrorResponse):
        return True
    if answer.error == ErrorType.DAGRUN_ALREADY_EXISTS:
        return False
    raise AirflowException(f"{answer.error.value}: {answer.detail}")


def _rehearsed(context: Context) -> dict[str, Any]:
    """What the rehearsal of this run has left. Raises NotRehearsedError."""
    rehearsal = context["ti"].xcom_pull(task_ids=REHEARSE)
    if not rehearsal:
        raise forms.NotRehearsedError(f"the task {REHEARSE} of this run has not said what is given up: clear it")
    return dict(rehearsal)


def _check_ahead(catalog: Catalog, rehearsed: str | None) -> None:
    """Raise RehearsalOutdatedError unless main is at the snapshot ``rehearsed``, or was continued from there."""
    main = catalog.head().refs.get(MAIN)
    if rehearsed is None or main is None or main == rehearsed:
        return
    with suppress(MissingSnapshotError, BrokenObjectError):  # nobody can tell
        if not catalog.is_ancestor(rehearsed, main):
            raise forms.RehearsalOutdatedError(
                f"main was at {rehearsed} when the task {REHEARSE} said what is given up; it has gone back since, and "
                f"is at {main} now. If this recovery is still wanted, clear {REHEARSE}, which looks again"
            )


def _done(catalog: Catalog, context: Context) -> Entry | None:
    """The entry by which an earlier try of this run has gone back; None if none has."""
    from headrace.runs.recovery_target import is_recovery

    request = request_of(context, RECOVER)
    return next((entry for entry in catalog.entries() if is_recovery(entry, request)), None)
