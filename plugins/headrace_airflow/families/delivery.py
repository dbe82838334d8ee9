"""The DAG of a pipeline with sinks: it brings them to what readers see whenever that moves."""

from contextlib import nullcontext
from typing import Any, Final

from airflow.sdk import DAG, BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from headrace.pipeline.sink import Sink
from headrace_airflow.families.family import DagFamily, new_dag_after_publish
from headrace_airflow.roots.connection import reaching_system
from headrace_airflow.roots.root import RootedPipeline
from headrace_airflow.roots.store import reaching_store


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
        from headrace.runs.client.deployment import open as open_root

        del context
        reached = reaching_system(self.sink.connection) if self.sink.connection else nullcontext()
        with reaching_store(self.rooted.root), reached:
            handle = open_root(self.rooted.root.uri)[self.rooted.pipeline]
            (delivery,) = handle.deliver(output=self.of_output, sinks=[self.sink.name])
        self.log.info("%s", delivery.describe())
        if delivery.source is None:
            raise AirflowSkipException("the sink holds what readers see")
        return delivery.to_json()


def deliver_dag(rooted: RootedPipeline) -> DAG | None:
    """Bring the sinks of the pipeline to what readers see: after each publish, release, rollback, promotion and patch.

    Each sink is a task of its own. One that fails holds what it held, and gets all that it lacks the next time.
    """
    tasks = [(output, sink) for output, alone in rooted.pipeline.by_output.items() for sink in alone.sinks]
    if not tasks:
        return None
    outputs = dict.fromkeys(output for output, _ in tasks)
    with new_dag_after_publish(rooted, "deliver", deliver_dag.__doc__, outputs) as dag:
        for output, sink in tasks:
            task_id = ".".join(filter(None, (output, sink.name)))
            DeliverOperator(task_id=task_id, rooted=rooted, output=output, sink=sink)
    return dag


DELIVER: Final = DagFamily(deliver_dag)
