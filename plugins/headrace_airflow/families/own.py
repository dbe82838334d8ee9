"""Headrace's own families of DAGs: process what has landed, recover from an older snapshot, backfill a range or all.

Built when Airflow parses ``dags/``, so nothing here or above imports pyspark or great_expectations.
"""

from typing import Any, Final

from airflow.sdk import DAG, Param, chain
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.model.time import render_duration
from headrace.pipeline.deployment.regular_runs import AT_ONCE, NEVER, PROMOTIONS, WHEN_APPROVED
from headrace.pipeline.executors import AUTO, EXECUTORS
from headrace.pipeline.pipeline import Pipeline
from headrace_airflow.audit_task import AuditOperator
from headrace_airflow.decisions.kinds import give_up_delivered
from headrace_airflow.decisions.operators import REHEARSE
from headrace_airflow.decisions.reasons import REASON, reason_field
from headrace_airflow.families.backfill_tasks import BackfillApprovalOperator, CutOverOperator, ReplayOperator
from headrace_airflow.families.dag_family import BY_HAND, DagFamily, new_dag
from headrace_airflow.families.output_tasks import audit_and_publish
from headrace_airflow.families.recovery_tasks import RECOVER as RECOVER_TASK
from headrace_airflow.families.recovery_tasks import (
    ApproveRecoveryOperator,
    ProcessOperator,
    RecoverOperator,
    RehearseRecoveryOperator,
)
from headrace_airflow.families.recovery_with_readers import with_readers
from headrace_airflow.forms import END, Form
from headrace_airflow.preconditions import PreconditionsOperator
from headrace_airflow.roots.root import RootedPipeline
from headrace_snapshots.refs import NAME

_BRANCH_PATTERN = f"^{NAME}{END}"
_RECOVERIES = 16
"""Runs of *recover* at once: those that wait for a person hold up no other. What writes is in the pool."""

_SIZE_FLAGS = {"--files-per-epoch": "files_per_epoch", "--bytes-per-epoch": "bytes_per_epoch"}


def process_dag(rooted: RootedPipeline) -> DAG:
    """Drain what has landed in epochs of bounded size, audit it, publish it at once if the audit is good.

    The task *audit* shows what was found, and is red if that is bad; *publish* tells others. Both do what is left.

    Its runs have no range of time, so `airflow backfill create` is refused. What has been read is read again by the DAG
    *backfill* of the pipeline, or on the command line: `headrace backfill PIPELINE --from ... --to ... --promote`.
    """
    switches = {
        "--full-sweep": "full_sweep",
        "--strict": "strict",
        "--allow-new-aggregates": "allow_new_aggregates",
        "--create": "create",
    }
    flags = {"--max-epochs": "max_epochs", **_SIZE_FLAGS, **switches}
    params = {
        "max_epochs": _limit("Epochs at most", "Empty: until nothing is left."),
        **_size_params(),
        "branch": Param(
            "main",
            type="string",
            pattern=_BRANCH_PATTERN,
            title="Branch",
            description="Here only main is audited and published.",
        ),
        "full_sweep": Param(
            False,
            type="boolean",
            title="Full sweep",
            description="List the whole landing prefix, to find stragglers that sort before the newest files.",
        ),
        "strict": Param(
            False,
            type="boolean",
            title="Strict",
            description="Refuse to run if code of your own has changed since the last snapshot.",
        ),
        "allow_new_aggregates": Param(
            False,
            type="boolean",
            title="Added aggregates start empty",
            description="Run although the last snapshot lacks some aggregates: these count only new data.",
        ),
        "create": Param(
            False,
            type="boolean",
            title="Create",
            description="Make a root that does not exist, even if there is no input.",
        ),
        "executor": _executor(rooted.pipeline),
    }
    if rooted.pipeline.has_names:
        flags["--without"] = "without"
        params["without"] = Param(
            [],
            type="array",
            items={"type": "string"},
            title="Without",
            description="Outputs, one a line, that stay as they are until a later run: the others go on without them.",
        )
    if awaited := rooted.pipeline.signals:
        flags["--signal"] = "signals"
        params["signals"] = Param(
            [],
            type="array",
            items={"type": "string"},  # with examples, people could choose but not write
            title="Signals",
            description=f"Given to this run's first epoch, one a line: {', '.join(awaited)}; for one key only, as "
            'NAME=["key"].',
        )
    with new_dag(
        rooted,
        "process",
        process_dag.__doc__,
        schedule=rooted.pipeline.schedule,
        params=params,
        by_hand=[DagRunType.ASSET_MATERIALIZATION, *BY_HAND],
    ) as dag:
        preconditions = PreconditionsOperator(
            task_id="preconditions", rooted=rooted, form=Form(rooted.pipeline, tuple(params))
        )
        process = ProcessOperator(task_id="process", rooted=rooted, flags=flags, pool=rooted.pool)
        chain(preconditions, process)
        audit_and_publish(rooted, process, is_made_here=True)
    return dag


def recover_dag(rooted: RootedPipeline) -> DAG:
    """Move main back to a snapshot, read everything after it again, audit and publish the result.

    It waits until a person has seen what is given up, or goes at once. A run of *process* that meets broken state
    starts it by itself, once.

    Rows that a person has released stay released where the same ones are computed again: key, window and values.
    """
    params = {
        "snapshot": Param(
            type="string",
            pattern=rf"^\S+{END}",
            title="Snapshot",
            examples=["published"],
            description_md="The snapshot to which main moves back: an id, a tag, or `published` for what readers see. "
            "The page of the pipeline (the tab *Headrace*, *Recover…*) offers the last good ones. The log of the "
            f"task *{REHEARSE}* says what is given up; nothing has moved then.",
        ),
        "when": Param(
            WHEN_APPROVED,
            type="string",
            enum=[AT_ONCE, WHEN_APPROVED, NEVER],
            values_display={
                AT_ONCE: "at once, if the snapshot is whole",
                WHEN_APPROVED: "when a person has seen what is given up, and approves it",
                NEVER: "never: only say what would be given up",
            },
            title="When",
            description="When main goes back.",
        ),
        **give_up_delivered(),
        **with_readers(),
        "executor": _executor(rooted.pipeline),
        REASON: reason_field(),
    }
    about = recover_dag.__doc__
    with new_dag(rooted, RECOVER_TASK, about, schedule=None, params=params, runs_at_once=_RECOVERIES) as dag:
        recover = RecoverOperator(task_id=RECOVER_TASK, rooted=rooted, pool=rooted.pool)
        chain(
            PreconditionsOperator(task_id="preconditions", rooted=rooted, form=Form(rooted.pipeline, tuple(params))),
            RehearseRecoveryOperator(task_id=REHEARSE, rooted=rooted),
            ApproveRecoveryOperator(rooted=rooted),
            recover,
        )
        audit_and_publish(rooted, recover)
    return dag


def backfill_dag(rooted: RootedPipeline) -> DAG:
    """Read input again on a branch beside the live pipeline, audit it, and make it main while processing is held: at
    once, or after a person has seen what readers will see change. As a patch only rows of expired windows are replaced.

    Only the cut-over holds the pool: the replay writes nothing that the process DAG reads. Where the pipeline has a
    schedule for it, its runs compute the last so many days, whatever the clock says.
    """
    regular = rooted.pipeline.backfill
    everything = "Empty: all input is read again"
    if regular is not None:
        everything += f"; in a run of the schedule, the last {render_duration(regular.last)}"
    params = {
        "from": _moment("From", f"Compute windows again from this event time on. {everything}."),
        "to": _moment("To", "Compute only windows before this event time. Empty: up to the newest."),
        "promote": Param(
            AT_ONCE if regular is None else regular.promote,
            type="string",
            enum=[*PROMOTIONS],
            values_display={
                AT_ONCE: "at once, when the audit has succeeded",
                WHEN_APPROVED: "when a person has seen what would change, and approves it",
                NEVER: "never: the branch stays for you to look at, for a time or for good (see Branch)",
            },
            title="Promote",
            description="When readers see what the branch has.",
        ),
        "patch": Param(
            regular is not None and regular.patch,
            type="boolean",
            title="Patch",
            description="Replace only rows of windows that have expired on both; main goes on as it is.",
        ),
        **_size_params(),
        "branch": Param(
            None,
            type=["null", "string"],
            pattern=_BRANCH_PATTERN,
            title="Branch",
            description=(
                "Empty: a new branch for this run. If nobody promotes it, a later backfill drops it once it has not "
                "changed for 14 days; that of a run of the schedule, once there are 3 newer ones. A branch with a name "
                "of yours stays until it is dropped. A backfill that was stopped continues in its branch."
            ),
        ),
        "executor": _executor(rooted.pipeline),
        REASON: reason_field(),
    }
    if rooted.pipeline.has_names:
        params = {"output": _output(rooted.pipeline, None if regular is None else regular.output), **params}
    schedule = None if regular is None else regular.schedule
    with new_dag(rooted, "backfill", backfill_dag.__doc__, schedule=schedule, params=params) as dag:
        chain(
            PreconditionsOperator(task_id="preconditions", rooted=rooted, form=Form(rooted.pipeline, tuple(params))),
            ReplayOperator(task_id="replay", rooted=rooted, flags=_SIZE_FLAGS),
            AuditOperator(task_id="audit", rooted=rooted, of_backfill=True),
            BackfillApprovalOperator(rooted=rooted),
            CutOverOperator(task_id="cut_over", rooted=rooted, pool=rooted.pool),
        )
    return dag


PROCESS: Final = DagFamily(process_dag)
RECOVER: Final = DagFamily(recover_dag)
BACKFILL: Final = DagFamily(backfill_dag)


def _size_params() -> dict[str, Any]:
    return {
        "files_per_epoch": _limit("Files per epoch at most", "Empty: as the pipeline says."),
        "bytes_per_epoch": _limit("Bytes per epoch at most", "Empty: as the pipeline says."),
    }


def _moment(title: str, description: str) -> Param:
    return Param(None, type=["null", "string"], format="date-time", title=title, description=description)


def _limit(title: str, description: str) -> Param:
    return Param(None, type=["null", "integer"], minimum=1, title=title, description=description)


def _executor(pipeline: Pipeline) -> Param:
    names = EXECUTORS.names()
    return Param(
        None,
        type=["null", "string"],
        enum=[None, *names, AUTO],
        values_display={
            "None": f"as the pipeline says ({pipeline.executor})",
            **{name: f"{name}: {EXECUTORS[name].about}" for name in names},
            AUTO: "auto: local while there is little to do, else spark",
        },
        title="Executor",
        description="Where epochs are computed.",
    )


def _output(pipeline: Pipeline, output: str | None) -> Param:
    return Param(
        output,
        type=["null", "string"],
        enum=[None, *pipeline.outputs],
        values_display={"None": "all outputs"},
        title="Output",
        description="One output alone, with what is computed of it, in the epochs of main: leave out the range then. "
        "Main adopts it, and the next run of process publishes it. A patch is always of one output.",
    )
