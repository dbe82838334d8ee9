"""No DAG: pipeline files that cannot be used appear here as an import error of Airflow, and nothing else is lost."""

from headrace_airflow.dags import raise_broken

raise_broken()
