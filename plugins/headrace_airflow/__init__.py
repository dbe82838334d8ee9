"""Headrace in Airflow: every registered pipeline becomes its DAGs; their tasks are thin, the catalog is the truth."""

from headrace.extras import require

require("airflow", "headrace_airflow")
