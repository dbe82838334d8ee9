"""The DAGs that look after what is stored: one that people start, and one for each schedule of a retention, whatever
the number of pipelines that have it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from airflow.sdk import DAG, Param

from headrace.pipeline.deployment import Times
from headrace.pipeline.schedules import MAINTAIN, retention_dag_name
from headrace_airflow.decisions.building import new_root_dag, switch
from headrace_airflow.decisions.maintain import MaintainOperator
from headrace_airflow.forms import LENGTH_PATTERN
from headrace_airflow.roots.root import Root, RootedPipeline

_TASK: Final = "maintain"
_DRY_RUN: Final = ("Dry run", "Only say in the log what would happen.")


def maintain_dag(root: Root, pipelines: Sequence[str] | None) -> DAG:
    """The DAG that people start, with ``pipelines`` to choose from."""
    about = (
        "Look after what one pipeline has stored, or all: let old snapshots go, with all that only they need, and "
        "check that everything is there that snapshots, readers and runs need. Each run deletes what the one before "
        "it marked, so readers have time until then, and a failed run is not tried again at once. It runs beside all "
        "others."
    )
    choice: dict[str, Any] = {} if pipelines is None else {"enum": [None, *pipelines]}
    params = {
        "pipeline": Param(
            None,
            type=["null", "string"],
            title="Pipeline",
            description="Empty: all. Of those without a retention nothing expires then, unless you say what to keep.",
            **choice,
        ),
        "expire": switch("Expire", "Let old snapshots go.", on=True),
        "keep_last": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Keep the last",
            description="How many of the newest published snapshots to keep. Empty: as the pipeline says, else 100.",
        ),
        "keep_for": Param(
            None,
            type=["null", "string"],
            pattern=LENGTH_PATTERN,
            title="Keep for",
            description="Also keep snapshots younger than this, such as 30d. Empty: as the pipeline says.",
        ),
        "keep_tags": Param(
            "as the pipeline says",
            type="string",
            enum=["as the pipeline says", "yes", "no"],
            title="Keep tags",
            description="Whether tagged snapshots stay; else the tags of those that expire are dropped.",
        ),
        "check": switch("Check", "Look whether everything is there.", on=True),
        "deep": switch("Deep", "When checking, read data files, too, and compare their checksums."),
        "repair": switch("Repair", "When checking, make again what can be; have what no snapshot ever named deleted."),
        "dry_run": switch(*_DRY_RUN),
    }
    with new_root_dag(root, MAINTAIN, about, params, command="`headrace expire` and `headrace fsck`") as dag:
        MaintainOperator(task_id=_TASK, root=root, names=tuple(params), retries=0)
    return dag


def retention_dags(root: Root, pipelines: Iterable[RootedPipeline]) -> dict[Times, DAG | Exception]:
    """For each schedule of a retention the DAG that applies it, or what Airflow has against it."""
    schedules: dict[Times, list[str]] = {}
    for rooted in pipelines:
        if (schedule := retention_schedule(rooted)) is not None:
            schedules.setdefault(schedule, []).append(rooted.name)
    dags: dict[Times, DAG | Exception] = {}
    for schedule, names in schedules.items():
        try:
            dags[schedule] = retention_dag(root, retention_dag_name(schedule), schedule, names)
        except Exception as error:  # whatever Airflow says of this one, the others stay
            dags[schedule] = error
    return dags


def retention_dag(root: Root, name: str, schedule: Times | None = None, pipelines: Sequence[str] = ()) -> DAG:
    """The DAG that applies retentions of one schedule. For its task the name is enough."""
    about = (
        f"Let old snapshots go, with all that only they need, as retentions with the schedule {schedule} say: those of "
        f"{', '.join(pipelines)}. Each run deletes what the one before it marked, so readers have time until then, and "
        "a failed run is not tried again at once. An error in one pipeline does not stop the others."
    )
    params = {"dry_run": switch(*_DRY_RUN)}
    tags = ("retention",)
    with new_root_dag(root, name, about, params, command="`headrace expire`", tags=tags, schedule=schedule) as dag:
        MaintainOperator(task_id=_TASK, root=root, names=tuple(params), retention=name, retries=0)
    dag.validate()  # type: ignore[no-untyped-call]
    return dag


def retention_schedule(rooted: RootedPipeline) -> Times | None:
    """When the retention of a pipeline is applied; None if only people apply it, or it has none."""
    retention = rooted.pipeline.retention
    return None if retention is None else retention.schedule
