"""A DAG for each pipeline that says how much it stores."""

import os
from typing import Any, Final

from airflow.sdk import DAG, BaseOperator

from headrace.pipeline.loading.registry import Registered
from headrace_airflow.families.dag_family import DagFamily, new_dag
from headrace_snapshots.store import open_store


class SizeOperator(BaseOperator):
    """Gives the bytes of all objects of a pipeline."""

    def __init__(self, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Any) -> int:
        return sum(found.size for found in open_store(os.environ["HEADRACE_ROOT"]).list(f"{self.pipeline}/"))


def _dag(registered: Registered) -> DAG:
    """Say how many bytes the pipeline stores."""
    with new_dag(registered, "size_report", _dag.__doc__, schedule=None, params={}) as dag:
        SizeOperator(pipeline=registered.pipeline.name, task_id="size")
    return dag


SIZE_REPORT: Final = DagFamily(_dag)
