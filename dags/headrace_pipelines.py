"""The Airflow DAGs of every registered pipeline."""

from headrace_airflow.dag_files import asked_for

globals().update(asked_for())
