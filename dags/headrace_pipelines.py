"""The Airflow DAGs of every registered pipeline; copies named headrace_pipelines_2.py and so on take their share."""

from headrace_airflow.dags import asked_for

globals().update(asked_for(__file__))
