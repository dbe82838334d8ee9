"""Runs of DAGs in a real Airflow: waiting for their ends, and for the person whom a task asks."""

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from scripts.airflow_api import AirflowApi, EndedRun
from scripts.airflow_env import LocalAirflow

_SECONDS = 300
SELDOM = {
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "2",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",  # each look at a file imports Airflow anew
}
"""What an Airflow is told whose scheduler looks for work, 60 ms each time, less often than for a person who waits; and
which sees a new pipeline a minute later.
"""
CALM = {**SELDOM, "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120"}
"""And one whose files stay."""


def wait_for_success(api: AirflowApi, dag_id: str, run_id: str, seconds: float) -> EndedRun:
    """The run, ended well; fails with the states of its tasks and the logs of those that failed."""
    ended_run = api.wait_for_run(dag_id, run_id, seconds)
    failed_tasks = [task for task, state in ended_run.tasks.items() if state == "failed"]
    assert ended_run.state == "success", (ended_run, {task: api.log(dag_id, run_id, task) for task in failed_tasks})
    return ended_run


def first_run(api: AirflowApi, dag_id: str, seconds: float) -> str:
    """The id of the first run of a DAG, which begins by itself."""
    patient = Retrying(
        stop=stop_after_delay(seconds), wait=wait_fixed(0.5), retry=retry_if_result(lambda state: not state)
    )
    return str(patient(lambda: api.runs(dag_id))[0]["dag_run_id"])


def wait_until_asked(airflow: LocalAirflow, dag_id: str, run_id: str, task_id: str) -> None:
    """Wait until a task waits for a person, and its worker is gone.

    Airflow 3.3 fails a task that is answered before its scheduler has seen the worker go: it takes the end of that
    worker for the end of the next, which it has not started yet ("the task instance's state attribute is queued").
    """
    log = airflow.home / "logs" / "scheduler.log"
    finished_line = f"TaskInstance Finished: dag_id={dag_id}, task_id={task_id}, run_id={run_id},"

    def is_asked() -> bool:
        return airflow.api.task_state(dag_id, run_id, task_id) == "awaiting_input" and finished_line in log.read_text()

    patient = Retrying(
        stop=stop_after_delay(_SECONDS), wait=wait_fixed(0.5), retry=retry_if_result(lambda state: not state)
    )
    patient(is_asked)
