"""The Airflow DAGs of every registered pipeline."""

from headrace_airflow.registered import asked_for

globals().update(asked_for())
