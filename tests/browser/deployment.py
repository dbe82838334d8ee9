"""A deployment to look at: a pipeline that publishes, one whose audit fails, one with dead letters; and a local Airflow
with a user of each role.
"""

from pathlib import Path

import headrace as hr
from headrace.audit.store import AuditFailedError
from headrace.pipeline.loading.registry import in_file
from headrace_snapshots.store import open_store
from scripts.airflow_env import LocalAirflow
from tests.airflow.subprocesses import write_pipeline
from tests.airflow.test_end_to_end import land

ROLES = {"admin": "admin", "olga": "op", "uma": "user", "vic": "viewer"}
_MOST = {"clicks": 100, "orders": 1, "visits": 100}
_BAD = ('{"user": 1}', "oops")


def look_at(folder: Path) -> LocalAirflow:
    """An Airflow, not started yet, over three pipelines that have run three times each in ``folder``."""
    pipelines, root = folder / "pipelines", (folder / "root").as_uri()
    pipelines.mkdir()
    store = open_store(root)
    for name, most in _MOST.items():
        file = write_pipeline(pipelines, name, options='executor="local"', most=most)
        (registered,) = in_file(file)
        for number in range(3):
            bad = _BAD if name == "visits" else ()
            land(store, name, f"{number}.jsonl", range(number * 7, number * 7 + 10), *bad)
            try:
                hr.open(root, create=True)[registered.pipeline].run()
            except AuditFailedError:
                assert name == "orders"
        if name == "clicks":
            hr.open(root)[registered.pipeline].backfill(start="2026-11-20", end="2026-11-21", branch="again")
    environment = {"HEADRACE_PIPELINES": str(pipelines)}
    return LocalAirflow(folder / "home", root, environment, users=ROLES, triggerer=True)
