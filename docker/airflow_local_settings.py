"""What Airflow imports first in the scheduler and the DAG processor: code of users does not see their secrets."""

from headrace_airflow.processes import install_confinement

__all__: list[str] = []

install_confinement()
