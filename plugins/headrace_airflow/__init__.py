"""Headrace in Airflow: every registered pipeline becomes its DAGs; their tasks are thin, the catalog is the truth."""

from headrace.installed import require_extra

require_extra("airflow", "headrace_airflow")
