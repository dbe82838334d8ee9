"""Headrace's own families of DAGs: process what has landed, recover from an older snapshot, backfill a range or all.

Built when Airflow parses ``dags/``, so nothing here or above imports pyspark or great_expectations.

Tasks that audit and publish what a run has computed: of each output that has a name, two of its own.
"""

from typing import Any, Final

from airflow.sdk import DAG, BaseOperator, Param, TriggerRule, chain
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.pipeline.deployment import AT_ONCE, NEVER, PROMOTIONS, WHEN_APPROVED
from headrace_airflow.assets import Published
from headrace_airflow.audit_task import AuditOperator
from headrace_airflow.decisions.operators import REHEARSE
from headrace_airflow.decisions.reasons import REASON, reason_field
from headrace_airflow.families.backfill_tasks import BackfillApprovalOperator, CutOverOperator, ReplayOperator
from headrace_airflow.families.dry_runs import DRY_RUN, dry_run_field
from headrace_airflow.families.family import BY_HAND, DagFamily, new_dag
from headrace_airflow.families.recovery_tasks import RECOVER as RECOVER_TASK
from headrace_airflow.families.recovery_tasks import (
    ApproveRecoveryOperator,
    ProcessOperator,
    RecoverOperator,
    RehearseRecoveryOperator,
)
from headrace_airflow.forms import END, Form, option_fields, option_flags
from headrace_airflow.preconditions import PreconditionsOperator
from headrace_airflow.publishing import PublishOperator
from headrace_airflow.roots.root import RootedPipeline


def audit_and_publish(rooted: RootedPipeline, after: BaseOperator, *, is_made_here: bool = False) -> None:
    """Audit and publish the pipeline once ``after`` has ended well. ``is_made_here``: as ``Published`` has it.

    An audit that fails holds back its own output alone. What readers of all outputs may see moves last, and is told
    unless something has failed: so the run fails if one of its outputs does.
    """
    one_writer: dict[str, Any] = {"pool": rooted.pool}

    def publish(task_id: str, output: str = "", rule: TriggerRule = TriggerRule.ALL_SUCCESS) -> PublishOperator:
        published = Published(rooted.root, rooted.name, output, is_made_here=is_made_here)
        return PublishOperator(task_id=task_id, published=published, trigger_rule=rule, **one_writer)

    if not rooted.pipeline.has_names:
        chain(after, AuditOperator(task_id="audit", rooted=rooted, **one_writer), publish("publish"))
        return
    last = publish("publish", rule=TriggerRule.NONE_FAILED)
    for output in rooted.pipeline.by_output:
        audit = AuditOperator(task_id=f"audit.{output}", rooted=rooted, output=output, **one_writer)
        chain(after, audit, publish(f"publish.{output}", output), last)


_RECOVERIES = 16
"""Runs of *recover* at once: those that wait for a person hold up no other. What writes is in the pool."""


def process_dag(rooted: RootedPipeline) -> DAG:
    """Drain what has landed in epochs of bounded size, audit it, publish it at once if the audit is good.

    The task *audit* shows what was found, and is red if that is bad; *publish* tells others. Both do what is left.

    Its runs have no range of time, so `airflow backfill create` is refused. What has been read is read again by the DAG
    *backfill* of the pipeline, or on the command line: `headrace backfill PIPELINE --from ... --to ... --promote`.
    """
    params = {**option_fields("process", rooted.pipeline), DRY_RUN: dry_run_field("process")}
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
        process = ProcessOperator(
            task_id="process", rooted=rooted, flags=option_flags("process", rooted.pipeline), pool=rooted.pool
        )
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
        **option_fields("recover", rooted.pipeline),
        REASON: reason_field(),
    }
    about = recover_dag.__doc__
    with new_dag(rooted, RECOVER_TASK, about, schedule=None, params=params, runs_at_once=_RECOVERIES) as dag:
        recover = RecoverOperator(
            task_id=RECOVER_TASK, rooted=rooted, flags=option_flags("recover", rooted.pipeline), pool=rooted.pool
        )
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
    given = {} if regular is None else {"output": regular.output, "patch": regular.patch}
    fields = option_fields("backfill", rooted.pipeline, **given)
    promote = Param(
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
    )
    params: dict[str, Any] = {name: fields.pop(name) for name in ("output", "from", "to") if name in fields}
    params |= {"promote": promote, **fields, DRY_RUN: dry_run_field("replay"), REASON: reason_field()}
    schedule = None if regular is None else regular.schedule
    with new_dag(rooted, "backfill", backfill_dag.__doc__, schedule=schedule, params=params) as dag:
        chain(
            PreconditionsOperator(task_id="preconditions", rooted=rooted, form=Form(rooted.pipeline, tuple(params))),
            ReplayOperator(task_id="replay", rooted=rooted),
            AuditOperator(task_id="audit", rooted=rooted, of_backfill=True),
            BackfillApprovalOperator(rooted=rooted),
            CutOverOperator(task_id="cut_over", rooted=rooted, pool=rooted.pool),
        )
    return dag


PROCESS: Final = DagFamily(process_dag)
RECOVER: Final = DagFamily(recover_dag)
BACKFILL: Final = DagFamily(backfill_dag)
