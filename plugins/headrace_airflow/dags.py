"""The four DAGs of a pipeline: process what has landed, recover from an older snapshot, backfill a range or all, and
let what is old expire.

Built when Airflow parses ``dags/``, so nothing here or above imports pyspark or great_expectations.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from airflow.sdk import DAG, Param, chain
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.model.time import render_duration
from headrace.pipeline.executors import Executor
from headrace.pipeline.loading.registry import Registered, registered, registered_files
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.schedules import Retention, dag_id, pipeline_of
from headrace_airflow.assets import Published
from headrace_airflow.forms import Form
from headrace_airflow.maintenance import ExpireOperator
from headrace_airflow.operators import AuditOperator, CutOverOperator, HeadraceOperator, ReplayOperator
from headrace_airflow.preconditions import PreconditionsOperator
from headrace_airflow.publishing import PublishOperator
from headrace_airflow.settings import pool_name
from headrace_snapshots.refs import NAME

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_RETRY = {"retries": 2, "retry_delay": timedelta(seconds=15)}
_BY_HAND = [DagRunType.MANUAL, DagRunType.OPERATOR_TRIGGERED]
_END = r"$(?!\n)"  # $ also matches before a last newline, in Python; browsers do not know \Z
_BRANCH_PATTERN = f"^{NAME}{_END}"
_LENGTH_PATTERN = f"^([0-9.]+ *[A-Za-z]+ *)*{_END}"
_SIZE_FLAGS = {"--files-per-epoch": "files_per_epoch", "--bytes-per-epoch": "bytes_per_epoch"}


@dataclass(frozen=True)
class Built:
    """``dags`` by DAG id, and why the pipelines of each other file have none."""

    dags: Mapping[str, DAG]
    broken: Mapping[Path, str]


def built() -> Built:
    """The DAGs of every registered pipeline of which there can be some."""
    found = registered_files()
    dags: dict[str, DAG] = {}
    broken = dict(found.broken)
    for each in found.pipelines.values():
        try:
            dags |= dags_of(each)
        except Exception as error:  # whatever Airflow says of this one, the others stay
            broken[each.file] = f"{each.file}: {type(error).__name__}: {error}"
    return Built(dags, broken)


def built_for(dag_id: str) -> DAG | None:
    """The DAG of that id alone, for one of its tasks; None where it is none of Headrace's.

    Raises UnknownPipelineError if there is no such pipeline that can be used, and what Airflow raises.
    """
    if (owner := pipeline_of(dag_id)) is None:
        return None
    pipeline, family = owner
    return _dag_of(registered(pipeline), family)


def dags_of(registered: Registered) -> dict[str, DAG]:
    """The DAGs of a pipeline by DAG id. Raises what Airflow raises if it does not take one of them."""
    dags = [_dag_of(registered, family) for family in _FAMILIES]
    return {dag.dag_id: dag for dag in dags}


def _dag_of(registered: Registered, family: str) -> DAG:
    dag = _FAMILIES[family](registered)
    dag.validate()  # type: ignore[no-untyped-call]
    return dag


def process_dag(registered: Registered) -> DAG:
    """Drain what has landed in epochs of bounded size, see that it is audited, publish it.

    Its runs have no range of time, so `airflow backfill create` is refused. What has been read is read again by the DAG
    *backfill* of the pipeline, or on the command line: `headrace backfill PIPELINE --from ... --to ... --promote`.
    """
    name = registered.pipeline.name
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
            description="Only main is audited here and published.",
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
            description="Run though the last snapshot lacks some: they count only new data.",
        ),
        "create": Param(
            False,
            type="boolean",
            title="Create",
            description="Make a root that does not exist, even if there is no input.",
        ),
        "executor": _executor(registered.pipeline),
    }
    if awaited := registered.pipeline.signals:
        flags["--signal"] = "signals"
        params["signals"] = Param(
            [],
            type="array",
            items={"type": "string"},  # with examples, people could choose but not write
            title="Signals",
            description=f"Given to this run's first epoch, one a line: {', '.join(awaited)}; for one key only, as "
            'NAME=["key"].',
        )
    with _dag(
        registered,
        "process",
        schedule=registered.pipeline.schedule,
        params=params,
        run_types=[DagRunType.SCHEDULED, DagRunType.ASSET_MATERIALIZATION, *_BY_HAND],
    ) as dag:
        one_writer: dict[str, Any] = {"pool": pool_name(name)}
        chain(
            PreconditionsOperator(task_id="preconditions", form=Form(registered.pipeline, tuple(params))),
            HeadraceOperator(task_id="process", registered=registered, action="process", flags=flags, **one_writer),
            AuditOperator(task_id="audit", registered=registered, **one_writer),
            PublishOperator(task_id="publish", published=Published(name, is_made_here=True), **one_writer),
        )
    return dag


def recover_dag(registered: Registered) -> DAG:
    """Move main back to a snapshot, read everything after it again, audit and publish the result.

    Rows that a person has released stay released where the same ones are computed again: key, window and values.
    """
    name = registered.pipeline.name
    params = {
        "snapshot": Param(
            type="string",
            pattern=rf"^\S+{_END}",
            title="Snapshot",
            description_md=f"Where main moves back to: an id from `headrace log {name}` or from an asset event. Output "
            "patches that came after it are lost: the log of the task *recover* names them, and what makes each again; "
            f"`headrace rollback {name} --to SNAPSHOT --dry-run` says it before.",
        ),
        "executor": _executor(registered.pipeline),
        "reason": _reason(),
    }
    with _dag(registered, "recover", schedule=None, params=params, run_types=_BY_HAND) as dag:
        one_writer: dict[str, Any] = {"pool": pool_name(name)}
        flags = {"--snapshot": "snapshot"}
        chain(
            PreconditionsOperator(task_id="preconditions", form=Form(registered.pipeline, tuple(params))),
            HeadraceOperator(task_id="recover", registered=registered, action="recover", flags=flags, **one_writer),
            AuditOperator(task_id="audit", registered=registered, **one_writer),
            PublishOperator(task_id="publish", published=Published(name), **one_writer),
        )
    return dag


def backfill_dag(registered: Registered) -> DAG:
    """Read input again on a branch beside the live pipeline, audit it, and make it main while processing is held.

    Only the cut-over holds the pool: the replay writes nothing that the process DAG reads. Where the pipeline has a
    schedule for it, its runs compute the last so many days, whatever the clock says.
    """
    name, regular = registered.pipeline.name, registered.pipeline.backfill
    everything = "Empty: all input is read again"
    if regular is not None:
        everything += f"; in a run of the schedule, the last {render_duration(regular.last)}"
    params = {
        "from": _moment("From", f"Compute windows again from this event time on. {everything}."),
        "to": _moment("To", "And those before this. Empty: up to the newest."),
        "promote": Param(
            True,
            type="boolean",
            title="Promote",
            description="Make the branch main and published when its audit succeeds; else it stays, to be looked at.",
        ),
        **_size_params(),
        "branch": Param(
            None,
            type=["null", "string"],
            pattern=_BRANCH_PATTERN,
            title="Branch",
            description="Empty: a new branch for this run. A branch of an earlier backfill goes on where it stopped.",
        ),
        "executor": _executor(registered.pipeline),
        "reason": _reason(),
    }
    schedule = None if regular is None else regular.schedule
    run_types = _BY_HAND if regular is None else [DagRunType.SCHEDULED, *_BY_HAND]
    with _dag(registered, "backfill", schedule=schedule, params=params, run_types=run_types) as dag:
        chain(
            PreconditionsOperator(task_id="preconditions", form=Form(registered.pipeline, tuple(params))),
            ReplayOperator(task_id="replay", registered=registered, flags={**_SIZE_FLAGS, "--promotes": "promote"}),
            AuditOperator(task_id="audit", registered=registered, of_backfill=True),
            CutOverOperator(task_id="cut_over", registered=registered, pool=pool_name(name)),
        )
    return dag


def expire_dag(registered: Registered) -> DAG:
    """Let old snapshots go, with all that only they need, and what killed runs left behind.

    Each run deletes what the run before it marked: readers have time until then. So a failed run is not tried again at
    once; the next one continues where it stopped. It runs beside all others, and holds no pool.
    """
    pipeline = registered.pipeline
    regular = pipeline.retention or Retention(schedule=None)
    params = {
        "keep_last": Param(
            regular.keep_last,
            type="integer",
            minimum=1,
            title="Keep the last",
            description="So many of the newest published snapshots are kept.",
        ),
        "keep_for": Param(
            None if regular.keep_for is None else render_duration(regular.keep_for),
            type=["null", "string"],
            pattern=_LENGTH_PATTERN,
            title="Keep for",
            description="And those that are younger, such as 30d. Empty: none besides.",
        ),
        "keep_tags": Param(
            regular.keep_tags,
            type="boolean",
            title="Keep tags",
            description="Keep tagged snapshots; else the tags of those that expire are dropped.",
        ),
        "dry_run": Param(False, type="boolean", title="Dry run", description="Only say what would happen."),
    }
    run_types = _BY_HAND if regular.schedule is None else [DagRunType.SCHEDULED, *_BY_HAND]
    with _dag(registered, "expire", schedule=regular.schedule, params=params, run_types=run_types) as dag:
        ExpireOperator(task_id="expire", form=Form(pipeline, tuple(params)), retries=0)
    return dag


def _dag(
    registered: Registered, family: str, *, schedule: str | None, params: dict[str, Any], run_types: list[DagRunType]
) -> DAG:
    pipeline = registered.pipeline
    about = _FAMILIES[family].__doc__ or ""
    return DAG(
        dag_id=dag_id(pipeline.name, family),
        description=pipeline.description or about.splitlines()[0],
        doc_md=f"{about}\n\n{pipeline.description}\n\nDefined in `{registered.file}`.",
        schedule=schedule,
        start_date=_START,
        catchup=False,
        max_active_runs=1,
        params=params,
        tags=["headrace", pipeline.name, family],
        default_args=_RETRY,
        allowed_run_types=run_types,
        auto_register=False,  # the file in dags/ names them
    )


_FAMILIES: dict[str, Callable[[Registered], DAG]] = {
    "process": process_dag,
    "recover": recover_dag,
    "backfill": backfill_dag,
    "expire": expire_dag,
}


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
    return Param(
        None,
        type=["null", "string"],
        enum=[None, *map(str, Executor)],
        values_display={
            "None": f"as the pipeline says ({pipeline.executor})",
            str(Executor.SPARK): "spark: a Spark application",
            str(Executor.LOCAL): "local: a process of the task's own, without Spark",
            str(Executor.AUTO): "auto: local while there is little to do, else spark",
        },
        title="Executor",
        description="Where epochs are computed.",
    )


def _reason() -> Param:
    return Param(None, type=["null", "string"], title="Reason", description="For those who read this run later.")
