"""Where the port of families was up to 0.2: it is ``headrace.ext.airflow``.

The form of a DAG, which its tasks do not copy.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from airflow.sdk import DAG, Param

from headrace.moved import moved


@contextmanager
def has_form(dag: DAG, params: Mapping[str, Param]) -> Iterator[None]:
    """Tasks made inside belong to ``dag``, which has the form ``params`` at the end.

    Tasks that are made when a DAG has a form copy it several times over, and Airflow stores it with each: that is most
    of the time that many DAGs take to parse. A run goes by the form of its DAG, whatever its tasks have.
    """
    with dag:
        yield
    dag.params.update(params)  # Airflow checks them when a run is triggered; an assignment would check all schemas now


__getattr__ = moved(__name__)
