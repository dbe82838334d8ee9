"""The Airflow DAGs of every registered pipeline."""

from headrace_airflow.dags import asked_for

globals().update(asked_for())
