"""Tasks of a recovery: say what is given up, ask a person, go back, with readers too; and what starts one.

``check_as_rehearsed`` holds readers that go back against what a person was shown, before they move. A run that has met
broken state starts a recovery by ``start_once``.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowSkipException, ErrorType

from headrace.errors import HeadraceError, RestoreError
from headrace.pipeline.deployment import AT_ONCE, NEVER, WHEN_APPROVED
from headrace.runs.reporting.results import redact_secrets
from headrace.this_process import in_one_line
from headrace_airflow import forms
from headrace_airflow.connection import reaching_sources, reaching_store
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
    from headrace.runs.client.handle import PipelineHandle
    from headrace.runs.recovery_target import CutMove, RecoveryCut


Places = Mapping[str, Mapping[str, str | None]]
"""The ``head`` of each reader by its name, and the snapshot ``to`` which it goes back."""


def takes_readers_back(form: Mapping[str, Any]) -> bool:
    """Whether a form says that readers go back, too."""
    return bool(form.get("with_readers", False))


def lines_about(cut: "RecoveryCut") -> Iterator[str]:
    """What becomes of each reader, and which readers nobody can see, for people."""
    for move in _reader_moves(cut):
        way = "" if move.given_up is None else f"main moves from {move.head} to {move.to}; "
        yield f"reader {_reader_name(move)}: {way}{redact_secrets(move.in_words)}"
    yield from map(redact_secrets, cut.searched.limits)


def check_as_rehearsed(
    catalog: Catalog, snapshot: str | None, places: Places, options_given: Mapping[str, Any]
) -> None:
    """Raise RehearsalOutdatedError if a reader of the pipeline would go another way than the ``places`` that people
    were shown. A run of the reader that went on meanwhile makes no difference. ``options_given`` are options of the
    cut.

    A reader that cannot follow is none of this: the recovery itself refuses it.
    """
    from headrace.read.lineage.cut import RootStores
    from headrace.runs.recovery_target import recovery_cut

    stores = RootStores(catalog.store)
    for move in _reader_moves(recovery_cut(catalog, snapshot, **options_given)):
        if move.problem is not None:
            continue
        place = places.get(_reader_name(move))
        if place is None and move.given_up is None:
            continue  # it has appeared since, and stays
        if place is None or not _goes_as(stores.catalog(move.pipeline), move, place):
            raise forms.RehearsalOutdatedError(_outdated_message(move, place))


def _goes_as(catalog: Catalog, move: "CutMove", place: Mapping[str, str | None]) -> bool:
    """Whether a reader has come of the head that ``place`` shows, and goes back no further."""
    return _leads_to(catalog, place["head"], move.head) and _leads_to(catalog, place["to"], move.to)


def _leads_to(catalog: Catalog, older: str | None, newer: str | None) -> bool:
    if older == newer:
        return True
    with suppress(MissingSnapshotError, BrokenObjectError):  # nobody can tell: then people look again
        return older is not None and newer is not None and catalog.is_ancestor(older, newer)
    return False


def _outdated_message(move: "CutMove", place: Mapping[str, str | None] | None) -> str:
    old_text = "nobody knew of it" if place is None else f"it was at {place['head']}, to go to {place['to']},"
    return (
        f"reader {_reader_name(move)} is at {move.head} and would go back to {move.to}; {old_text} when the task "
        f"{REHEARSE} said what is given up. If this recovery is still wanted, clear {REHEARSE}, which looks again"
    )


def _reader_moves(cut: "RecoveryCut") -> "tuple[CutMove, ...]":
    """All that goes back, or stays, beside the pipeline itself."""
    return cut.moves[1:]


def _reader_name(move: "CutMove") -> str:
    return redact_secrets(str(move.pipeline))


RECOVER: Final = "recover"
"""The task that goes back."""


class RehearseRecoveryOperator(BaseOperator):
    """Says which whole snapshot main goes back to, what is given up, and each stage. Nothing moves."""

    def __init__(self, *, rooted: RootedPipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rooted = rooted

    def execute(self, context: Context) -> dict[str, Any]:
        """The id of the snapshot; in lines what is given up, and each stage; where main is; with readers, where each
        of them is and goes. Raises why it would be refused.
        """
        from headrace.runs.client.handle import open as open_root

        rooted_pipeline = self.rooted
        with problem_left(context), reaching_store(rooted_pipeline.root), reaching_sources(rooted_pipeline.pipeline):
            handle = open_root(rooted_pipeline.root.uri)[rooted_pipeline.pipeline]
            if (entry_before := _earlier_recovery(handle.catalog, context)) is not None:
                self.log.info("%s", forms.done_already(entry_before))
                return {
                    "snapshot": entry_before.moves[MAIN][1],
                    "said": [forms.done_already(entry_before)],
                    "head": None,
                }
            rehearsal, cut = self._rehearse_recovery(handle, context["params"])
            for line in rehearsal["said"]:
                self.log.info("%s", line)
            if cut is not None:
                cut.check_all_follow()  # once the log has said of all readers where they would go
            options = forms.asked_in_form("recover", context["params"])
            dry_run = handle.recover(rehearsal["snapshot"], **options, dry_run=True)
            stages = [f"stage {number}: {in_one_line(str(stage))}" for number, stage in enumerate(dry_run.stages, 1)]
            for line in (*stages, *dry_run.warnings):
                self.log.info("%s", line)
        return {**rehearsal, "said": [*rehearsal["said"], *stages, *dry_run.warnings]}

    def _rehearse_recovery(
        self, handle: "PipelineHandle", form: Mapping[str, Any]
    ) -> "tuple[dict[str, Any], RecoveryCut | None]":
        from headrace.read.snapshots.snapshot_refs import named_id
        from headrace.runs.recovery_target import check_whole, with_epochs

        head = handle.catalog.known_head()
        target_id = named_id(handle.catalog, head, form["snapshot"])
        files = check_whole(handle.catalog, target_id)
        lines, main = (
            [f"snapshot {target_id} is whole: all of its {files:,} files are as they were written"],
            head.refs.get(MAIN),
        )
        if main == target_id:
            lines.append("main is there already: nothing is given up")
        else:
            given_up = with_epochs(
                handle.catalog, handle.rollback(to=target_id, dry_run=True, **forms.asked_in_form("rollback", form))
            )
            lines += [f"{ref} moves from {old_id} to {new_id}" for ref, (old_id, new_id) in given_up.moves.items()]
            lines += given_up.told
        rehearsal = {"snapshot": target_id, "said": lines, "head": main}
        if not takes_readers_back(form):
            return rehearsal, None
        cut = handle.recovery_cut(target_id, **forms.asked_in_form("recovery_cut", form))
        places = {_reader_name(move): {"head": move.head, "to": move.to} for move in _reader_moves(cut)}
        return {**rehearsal, "said": [*lines, *lines_about(cut)], "readers": places}, cut


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
        if (
            entry_before := _earlier_recovery(handle_of(self.rooted.root, self.rooted.name).catalog, context)
        ) is not None:
            self.log.info("%s", forms.done_already(entry_before))
            return None
        return Proposal.as_list(_rehearsal_result(context)["said"])


class RecoverOperator(HeadraceOperator):
    """Go back to the snapshot that the rehearsal has looked at, and read again what came after it."""

    action = "recover"

    def begin_snapshot(self, context: Context) -> str | None:
        """The snapshot to which main goes back. Raises NotRehearsedError."""
        return str(_rehearsal_result(context)["snapshot"])

    def act(self, context: Context) -> Summary:
        """Recover. Raises NotApprovedError if a person is to be asked and nobody has approved it. Raises
        RehearsalOutdatedError if main, or a reader that goes back, too, has gone another way since people were told
        what is given up. Once main has gone back another try does the rest.
        """
        self.log.info("going back: %s", self._decision_message(context))
        catalog = self.rooted.catalog()
        if _earlier_recovery(catalog, context) is None:
            self._check_rehearsed(catalog, context)
        return super().act(context)

    def _check_rehearsed(self, catalog: Catalog, context: Context) -> None:
        rehearsal, form = _rehearsal_result(context), context["params"]
        _check_ahead(catalog, rehearsal["head"])
        if takes_readers_back(form):
            if "readers" not in rehearsal:
                raise forms.NotRehearsedError(
                    f"the task {REHEARSE} of this run has not said where readers go: clear it"
                )
            check_as_rehearsed(
                catalog, self.begin_snapshot(context), rehearsal["readers"], forms.asked_in_form("recovery_cut", form)
            )

    def _application_arguments(self, context: Context, where: str, run_id: str) -> list[str]:
        arguments = [f"--snapshot={self.begin_snapshot(context)}", f"--message={self._decision_message(context)}"]
        arguments += [f"--warning={warning}" for warning in forms.missing_reason_warnings(context)]
        return [*super()._application_arguments(context, where, run_id), *arguments]

    def _decision_message(self, context: Context) -> str:
        """Who decided it and why; once it is done nobody has to approve it again."""
        entry_before = _earlier_recovery(self.rooted.catalog(), context)
        return forms.decision_message(context, asks=entry_before is None and context["params"]["when"] == WHEN_APPROVED)


class ProcessOperator(HeadraceOperator):
    """Drain what has landed, audit it, and on main publish at once what the audit finds good. The tasks after it show
    that, say what is not good, and do what is not done yet.

    Where broken state stops it, start one recovery for the broken head of main. It acts at once where readers lose
    nothing by it and all input is there. Otherwise it asks a person.

    The id of the recovery's run follows from the snapshot that is broken, and Airflow makes a run of one id once.
    """

    action = "process"

    def act(self, context: Context) -> Summary:
        """The task; raises the error of the run all the same, whatever was started because of it. A dry run is skipped,
        once the log says what it would do.
        """
        if is_dry_run(context):
            form = context["params"]
            options = forms.asked_in_form("run", form)
            create = bool(form.get("create"))
            skip_after_telling(self.rooted, lambda handle: handle.run(**options, dry_run=True), create=create)
        try:
            return super().act(context)
        except (TypedTaskError, RestoreError) as error:
            remedy = error.error.remedy if isinstance(error, TypedTaskError) else error.remedy
            if remedy == RestoreError.remedy and self.branch(context) == MAIN:
                self._start_recovery(context, error)
            raise

    def _application_arguments(self, context: Context, where: str, run_id: str) -> list[str]:
        arguments = super()._application_arguments(context, where, run_id)
        return [*arguments, "--publish"] if self.branch(context) == MAIN else arguments

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


def _rehearsal_result(context: Context) -> dict[str, Any]:
    """What the rehearsal of this run has left. Raises NotRehearsedError."""
    rehearsal = context["ti"].xcom_pull(task_ids=REHEARSE)
    if not rehearsal:
        raise forms.NotRehearsedError(f"the task {REHEARSE} of this run has not said what is given up: clear it")
    return dict(rehearsal)


def _check_ahead(catalog: Catalog, rehearsed_id: str | None) -> None:
    """Raise RehearsalOutdatedError unless main is at the snapshot ``rehearsed_id``, or was continued from there."""
    main = catalog.head().refs.get(MAIN)
    if rehearsed_id is None or main is None or main == rehearsed_id:
        return
    with suppress(MissingSnapshotError, BrokenObjectError):  # nobody can tell
        if not catalog.is_ancestor(rehearsed_id, main):
            raise forms.RehearsalOutdatedError(
                f"main was at {rehearsed_id} when the task {REHEARSE} said what is given up; it has gone back since, "
                f"and is at {main} now. If this recovery is still wanted, clear {REHEARSE}, which looks again"
            )


def _earlier_recovery(catalog: Catalog, context: Context) -> Entry | None:
    """The entry by which an earlier try of this run has gone back; None if none has."""
    from headrace.runs.recovery_target import is_recovery

    request = request_of(context, RECOVER)
    return next((entry for entry in catalog.entries() if is_recovery(entry, request)), None)
