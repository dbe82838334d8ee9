"""The Airflow DAGs of every registered pipeline."""

from headrace_airflow.dags import built

globals().update(built().dags)
