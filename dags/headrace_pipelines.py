"""The Airflow DAGs of every registered pipeline."""

from headrace_airflow.dags import build_dags

globals().update(build_dags())
