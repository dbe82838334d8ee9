"""The DAGs of every registered pipeline: those of each family (``DAG_FAMILIES``).

Built when Airflow parses ``dags/``, so nothing here or above imports pyspark or great_expectations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow.sdk import DAG

from headrace.pipeline.loading.registry import Registered, registered, registered_files
from headrace.pipeline.schedules import DAG_FAMILIES, pipeline_of


@dataclass(frozen=True)
class Built:
    """``dags`` by DAG id, the names of their ``pipelines``, and what is wrong with each file whose pipelines have no
    DAGs, or not all.
    """

    dags: Mapping[str, DAG]
    pipelines: Sequence[str]
    broken: Mapping[Path, str]


def built() -> Built:
    """The DAGs of every registered pipeline of which there can be some. One of Headrace's own that cannot be built
    leaves its pipeline none; a family of others, only itself.
    """
    found = registered_files()
    dags: dict[str, DAG] = {}
    names: list[str] = []
    broken = dict(found.broken)
    others = [[name] for name in DAG_FAMILIES.names() if name not in DAG_FAMILIES.built_in]
    for each in found.pipelines.values():
        for families in ([*DAG_FAMILIES.built_in], *others):
            try:
                dags |= dags_of(each, families)
                names.append(each.pipeline.name)
            except Exception as error:  # whatever Airflow says of this one, the others stay
                broken[each.file] = f"{each.file}: {type(error).__name__}: {error}"
    return Built(dags, [*dict.fromkeys(names)], broken)


def built_for(dag_id: str) -> DAG | None:
    """The DAG of that id alone, for one of its tasks; None where it is none of Headrace's, or its pipeline has none.

    Raises UnknownPipelineError if there is no such pipeline that can be used, and what Airflow raises.
    """
    if (owner := pipeline_of(dag_id)) is None:
        return None
    pipeline, family = owner
    return _dag_of(registered(pipeline), family)


def dags_of(registered: Registered, families: Iterable[str]) -> dict[str, DAG]:
    """The DAGs of a pipeline by DAG id. Raises what Airflow raises if it does not take one of them, and
    BrokenEntryPointError.
    """
    dags = [_dag_of(registered, family) for family in families]
    return {dag.dag_id: dag for dag in dags if dag is not None}


def _dag_of(registered: Registered, family: str) -> DAG | None:
    dag = DAG_FAMILIES[family].build(registered)
    if dag is not None:
        dag.validate()  # type: ignore[no-untyped-call]
    return dag
