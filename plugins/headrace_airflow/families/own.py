"""Headrace's own families of DAGs: process, recover, backfill; and, if asked for, windows and delivery to sinks.

The first three process what has landed, recover from an older snapshot, and backfill a range or all. They are built
when Airflow parses ``dags/``, so nothing here or above imports pyspark or great_expectations. Each output that has a
name has two tasks of its own, which audit and publish what a run has computed.

The asset ``headrace://NAME/windows`` has a partition for each complete window. A DAG that is scheduled by partitions of
assets runs once for such a window, and again when it is corrected.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import DAG, BaseOperator, Context, Param, TriggerRule, chain
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for
from airflow.sdk.exceptions import AirflowSkipException

from headrace.model.windows import GlobalWindows
from headrace.pipeline.deployment import AT_ONCE, NEVER, PROMOTIONS, WHEN_APPROVED
from headrace.pipeline.endpoints import Sink
from headrace_airflow.connection import reaching_store, reaching_system
from headrace_airflow.decisions import REHEARSE
from headrace_airflow.families import recovery_tasks
from headrace_airflow.families.backfill_tasks import BackfillApprovalOperator, CutOverOperator, ReplayOperator
from headrace_airflow.families.family import BY_HAND, DagFamily, new_dag, new_dag_after_publish, options_of
from headrace_airflow.families.recovery_tasks import RECOVER as RECOVER_TASK
from headrace_airflow.forms import END, REASON, option_fields, option_flags, reason_field
from headrace_airflow.operators import DRY_RUN, dry_run_field
from headrace_airflow.publishing import AuditOperator, PreconditionsOperator, PublishOperator
from headrace_airflow.roots import RootedPipeline
from headrace_airflow.run_ids import PublishedEvent, windows_asset

if TYPE_CHECKING:
    from headrace.read.diff.appended_rows import AnnouncedWindows


def audit_and_publish(
    rooted_pipeline: RootedPipeline, upstream_task: BaseOperator, *, is_made_here: bool = False
) -> None:
    """Audit and publish once ``upstream_task`` has ended well. ``is_made_here``: as ``PublishedEvent`` has it.

    An audit that fails holds back its own output alone. What readers of all outputs may see moves last, and is told
    unless something has failed. So the run fails if one of its outputs does.
    """
    one_writer: dict[str, Any] = {"pool": rooted_pipeline.pool}

    def publish_task(task_id: str, output: str = "", rule: TriggerRule = TriggerRule.ALL_SUCCESS) -> PublishOperator:
        published_event = PublishedEvent(rooted_pipeline.root, rooted_pipeline.name, output, is_made_here=is_made_here)
        return PublishOperator(task_id=task_id, published=published_event, trigger_rule=rule, **one_writer)

    if not rooted_pipeline.pipeline.has_names:
        chain(
            upstream_task, AuditOperator(task_id="audit", rooted=rooted_pipeline, **one_writer), publish_task("publish")
        )
        return
    last = publish_task("publish", rule=TriggerRule.NONE_FAILED)
    for output in rooted_pipeline.pipeline.by_output:
        audit = AuditOperator(task_id=f"audit.{output}", rooted=rooted_pipeline, output=output, **one_writer)
        chain(upstream_task, audit, publish_task(f"publish.{output}", output), last)


_RECOVERIES = 16
"""Runs of *recover* at once: those that wait for a person hold up no other. What writes is in the pool."""


def process_dag(rooted_pipeline: RootedPipeline) -> DAG:
    """Drain what has landed in epochs of bounded size, audit it, publish it at once if the audit is good.

    The task *audit* shows what was found, and is red if that is bad; *publish* tells others. Both do what is left.

    Its runs have no range of time, so `airflow backfill create` is refused. What has been read is read again by the DAG
    *backfill* of the pipeline, or on the command line: `headrace backfill PIPELINE --from ... --to ... --promote`.
    """
    params = {**option_fields("process", rooted_pipeline.pipeline), DRY_RUN: dry_run_field("process")}
    with new_dag(
        rooted_pipeline,
        "process",
        process_dag.__doc__,
        schedule=rooted_pipeline.pipeline.schedule,
        params=params,
        by_hand=[DagRunType.ASSET_MATERIALIZATION, *BY_HAND],
    ) as dag:
        preconditions = PreconditionsOperator(rooted=rooted_pipeline, names=tuple(params))
        process = recovery_tasks.ProcessOperator(
            task_id="process",
            rooted=rooted_pipeline,
            flags=option_flags("process", rooted_pipeline.pipeline),
            pool=rooted_pipeline.pool,
        )
        chain(preconditions, process)
        audit_and_publish(rooted_pipeline, process, is_made_here=True)
    return dag


def recover_dag(rooted_pipeline: RootedPipeline) -> DAG:
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
        **option_fields("recover", rooted_pipeline.pipeline),
        REASON: reason_field(),
    }
    description = recover_dag.__doc__
    with new_dag(
        rooted_pipeline, RECOVER_TASK, description, schedule=None, params=params, runs_at_once=_RECOVERIES
    ) as dag:
        recover = recovery_tasks.RecoverOperator(
            task_id=RECOVER_TASK,
            rooted=rooted_pipeline,
            flags=option_flags("recover", rooted_pipeline.pipeline),
            pool=rooted_pipeline.pool,
        )
        chain(
            PreconditionsOperator(rooted=rooted_pipeline, names=tuple(params)),
            recovery_tasks.RehearseRecoveryOperator(task_id=REHEARSE, rooted=rooted_pipeline),
            recovery_tasks.ApproveRecoveryOperator(rooted=rooted_pipeline),
            recover,
        )
        audit_and_publish(rooted_pipeline, recover)
    return dag


def backfill_dag(rooted_pipeline: RootedPipeline) -> DAG:
    """Read input again on a branch beside the live pipeline, audit it, and make it main while processing is held. The
    cut-over comes at once, or after a person has seen what readers will see change. With a patch only rows that are
    over are replaced.

    Only the cut-over holds the pool: the replay writes nothing that the process DAG reads. Where the pipeline has a
    schedule for it, its runs compute the last so many days, whatever the clock says.
    """
    regular = rooted_pipeline.pipeline.backfill
    field_values = {} if regular is None else {"output": regular.output, "patch": regular.patch}
    fields = option_fields("backfill", rooted_pipeline.pipeline, **field_values)
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
    flags = option_flags("backfill", rooted_pipeline.pipeline, skipped_options=("start", "end", "patch"))
    with new_dag(rooted_pipeline, "backfill", backfill_dag.__doc__, schedule=schedule, params=params) as dag:
        chain(
            PreconditionsOperator(rooted=rooted_pipeline, names=tuple(params)),
            ReplayOperator(task_id="replay", rooted=rooted_pipeline, flags=flags),
            AuditOperator(task_id="audit", rooted=rooted_pipeline, of_backfill=True),
            BackfillApprovalOperator(rooted=rooted_pipeline),
            CutOverOperator(task_id="cut_over", rooted=rooted_pipeline, flags=flags, pool=rooted_pipeline.pool),
        )
    return dag


PROCESS: Final = DagFamily(process_dag)
RECOVER: Final = DagFamily(recover_dag)
BACKFILL: Final = DagFamily(backfill_dag)


_ANNOUNCED_KEY: Final = "announced"
"""Under this key Airflow keeps, beside the asset, what was announced last."""

_ANNOUNCING: Final = "announcing"
"""Under this key what the last run was about to announce: it has, if the newest event says so."""

_UNTIL_KEY: Final = "until"
"""Events of ours say up to when windows were complete then."""

_EVENTS_LOOKED_AT: Final = 100
"""The newest event of ours is looked for among so many."""

_FIRST_WINDOWS: Final = 1_000
"""Complete windows of which it is told when nothing was told before, at most."""


class AnnounceWindowsOperator(BaseOperator):
    """Gives the asset of windows an event for each window that is complete or was corrected since the last one; skipped
    if there is none. A task that is killed, retried or cleared says again what it may not have said.
    """

    def __init__(self, *, rooted: RootedPipeline, output: str, **kwargs: Any) -> None:
        qualified_name = "/".join(filter(None, (rooted.qualified, output)))
        self.windows = windows_asset(qualified_name)
        super().__init__(inlets=[self.windows], outlets=[self.windows], max_active_tis_per_dag=1, **kwargs)
        self.rooted, self.of_output = rooted, output

    def execute(self, context: Context) -> dict[str, Any]:
        """How many windows were announced."""
        from headrace.read.diff.appended_rows import window_news
        from headrace.runs.client.handle import open as open_root

        state = context["asset_state_store"][self.windows]
        last_announced = self._last_announced(context)
        where = self.rooted.pipeline.by_output[self.of_output].stages[-1].aggregation.where
        with reaching_store(self.rooted.root):
            reader = open_root(self.rooted.root.uri)[self.rooted.name]
            news = window_news(
                reader[self.of_output] if self.of_output else reader, where, last_announced, at_first=_FIRST_WINDOWS
            )
        if news.is_guess:
            self.log.warning("what was announced last has expired: all complete windows are announced again")
        keys, now = news.partition_keys(), news.announced.to_json()
        if not keys:
            state.set(_ANNOUNCED_KEY, now)
            state.set(_ANNOUNCING, None)
            raise AirflowSkipException("no window is complete that was not, and none was corrected")
        state.set(_ANNOUNCED_KEY, None if last_announced is None else last_announced.to_json())
        # the event is there only once the task has succeeded: the next run sees whether it is
        state.set(_ANNOUNCING, now)
        event = context["outlet_events"][self.windows]
        event.add_partitions(keys)
        event.extra = {**now, "completed": len(news.completed), "corrected": len(news.corrected)}
        self.log.info("%s windows are complete, and %s were corrected", len(news.completed), len(news.corrected))
        return {"partitions": len(keys), **event.extra}

    def _last_announced(self, context: Context) -> "AnnouncedWindows | None":
        """What was announced last, as far as anyone knows."""
        state = context["asset_state_store"][self.windows]
        announcing, last_announced = (
            None if (stored_value := state.get(key)) is None else _announced_from_json(stored_value)
            for key in (_ANNOUNCING, _ANNOUNCED_KEY)
        )
        events = context["inlet_events"][self.windows].ascending(False).limit(_EVENTS_LOOKED_AT)
        # a person may have made events of the asset, too, as in order to have a window done once more
        newest = next(
            (_announced_from_json(event.extra) for event in events if _UNTIL_KEY in (event.extra or {})), None
        )
        return announcing if announcing is not None and newest == announcing else last_announced


def _announced_from_json(stored_value: Any) -> "AnnouncedWindows":
    from headrace.read.diff.appended_rows import AnnouncedWindows

    return AnnouncedWindows.from_json(stored_value)


def windows_dag(rooted_pipeline: RootedPipeline) -> DAG | None:
    """Announce windows that are complete, and those that were corrected: after each publish, release, rollback,
    promotion and patch. Each is a partition of an asset, `headrace://NAME/windows`; its key is when the window begins.
    """
    outputs = [
        output
        for output, output_pipeline in rooted_pipeline.pipeline.by_output.items()
        if not (output_pipeline.rows or isinstance(output_pipeline.stages[-1].aggregation.where, GlobalWindows))
    ]
    if not options_of(rooted_pipeline).announce_windows or not outputs:
        return None
    by_hand = [DagRunType.ASSET_MATERIALIZATION, *BY_HAND]
    with new_dag_after_publish(rooted_pipeline, "windows", windows_dag.__doc__, outputs, by_hand) as dag:
        for output in outputs:
            AnnounceWindowsOperator(task_id=output or "windows", rooted=rooted_pipeline, output=output)
    return dag


WINDOWS: Final = DagFamily(windows_dag)


class DeliverOperator(BaseOperator):
    """Makes one sink hold what readers see; skipped if it does. What the sink says that it holds decides, so a task
    that is killed, retried, cleared or marked takes nothing away and does nothing twice.
    """

    def __init__(self, *, rooted: RootedPipeline, output: str, sink: Sink, **kwargs: Any) -> None:
        # one at a time: a second one would be refused by the sink, and tried again for nothing
        super().__init__(max_active_tis_per_dag=1, **kwargs)
        self.rooted, self.of_output, self.sink = rooted, output, sink

    def execute(self, context: Context) -> dict[str, Any]:
        """What was delivered."""
        from headrace.runs.client.handle import open as open_root

        del context
        reaching_sink = reaching_system(self.sink.connection) if self.sink.connection else nullcontext()
        with reaching_store(self.rooted.root), reaching_sink:
            handle = open_root(self.rooted.root.uri)[self.rooted.pipeline]
            (delivery,) = handle.deliver(output=self.of_output, sinks=[self.sink.name])
        self.log.info("%s", delivery.describe())
        if delivery.source is None:
            raise AirflowSkipException("the sink holds what readers see")
        return delivery.to_json()


def deliver_dag(rooted_pipeline: RootedPipeline) -> DAG | None:
    """Bring the sinks of the pipeline to what readers see: after each publish, release, rollback, promotion and patch.

    Each sink is a task of its own. One that fails holds what it held, and gets all that it lacks the next time.
    """
    tasks = [
        (output, sink)
        for output, output_pipeline in rooted_pipeline.pipeline.by_output.items()
        for sink in output_pipeline.sinks
    ]
    if not tasks:
        return None
    outputs = dict.fromkeys(output for output, _ in tasks)
    with new_dag_after_publish(rooted_pipeline, "deliver", deliver_dag.__doc__, outputs) as dag:
        for output, sink in tasks:
            task_id = ".".join(filter(None, (output, sink.name)))
            DeliverOperator(task_id=task_id, rooted=rooted_pipeline, output=output, sink=sink)
    return dag


DELIVER: Final = DagFamily(deliver_dag)
