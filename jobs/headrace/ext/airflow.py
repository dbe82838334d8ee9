"""Airflow: DAGs of your own beside those of Headrace, and the assets that they wait for.

What belongs here: what code of others in Airflow needs. The definitions lie in ``headrace_airflow``, the only package
that imports Airflow; this module imports them, so it needs Airflow installed and says so where it is not. Nothing of
Headrace imports this module.

A family of DAGs has one DAG for each pipeline. To bring one, write a function that builds the DAG, and declare a
``DagFamily``. Its name is the end of the ids of its DAGs::

    [project.entry-points."headrace.dag_families"]
    size_report = "my_package.size_report:SIZE_REPORT"

**Order of calls.** ``DagFamily.build`` is called for each pipeline whenever Airflow parses ``dags/``, and once where a
task of such a DAG starts. It makes the DAG with ``new_dag`` and its tasks inside, or gives None: this pipeline has
none. Tasks run in processes of Airflow's: ``reaching_store(rooted.root)`` gives the environment what a store needs
there.

**What is guaranteed.** ``new_dag`` gives the DAG its id, schedule, tags, documentation and the options that the
pipeline and the file of defaults say (``airflow=``, ``HEADRACE_DAG_DEFAULTS``). No secret is in its parameters or
templates.

**What a family guarantees.** ``build`` imports no engine, reads no store, and takes milliseconds. A task that writes
what a run of the pipeline writes is in ``rooted.pool``, whose one slot keeps writers apart.

Example::

    from airflow.sdk import DAG, BaseOperator

    from headrace.ext.airflow import DagFamily, RootedPipeline, new_dag, reaching_store
    from headrace.ext.stores import open_store


    class SizeOperator(BaseOperator):
        def __init__(self, rooted, **options):
            super().__init__(**options)
            self.rooted = rooted

        def execute(self, context):
            with reaching_store(self.rooted.root):
                store = open_store(self.rooted.root.uri)
                return sum(found.size for found in store.list(f"{self.rooted.name}/"))


    def size_report_dag(rooted: RootedPipeline) -> DAG:
        '''Say how many bytes the pipeline stores.'''
        with new_dag(rooted, "size_report", size_report_dag.__doc__, schedule=None, params={}) as dag:
            SizeOperator(rooted=rooted, task_id="size")
        return dag


    SIZE_REPORT = DagFamily(size_report_dag)

A DAG that runs once for each complete window waits for ``windows_asset("sales")``; one that runs whenever readers see
something else waits for ``published_asset("sales")``.
"""

from headrace_airflow.connection import reaching_store
from headrace_airflow.families.family import BY_HAND, DagFamily, new_dag
from headrace_airflow.roots import RootedPipeline
from headrace_airflow.run_ids import published_asset, windows_asset

__all__ = [
    "BY_HAND",
    "DagFamily",
    "RootedPipeline",
    "new_dag",
    "published_asset",
    "reaching_store",
    "windows_asset",
]
