"""A DAG for each pipeline that says how much it stores."""

from typing import Any, Final

from airflow.sdk import DAG, BaseOperator

from headrace.ext.airflow import DagFamily, RootedPipeline, new_dag, reaching_store
from headrace.ext.stores import open_store


class SizeOperator(BaseOperator):
    """Gives the bytes of all objects of a pipeline."""

    def __init__(self, rooted: RootedPipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rooted = rooted

    def execute(self, context: Any) -> int:
        with reaching_store(self.rooted.root):
            return sum(file.size for file in open_store(self.rooted.root.uri).list(f"{self.rooted.name}/"))


def _dag(rooted_pipeline: RootedPipeline) -> DAG:
    """Say how many bytes the pipeline stores."""
    with new_dag(rooted_pipeline, "size_report", _dag.__doc__, schedule=None, params={}) as dag:
        SizeOperator(rooted=rooted_pipeline, task_id="size")
    return dag


SIZE_REPORT: Final = DagFamily(_dag)
