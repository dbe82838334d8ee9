"""Addresses of Headrace's pages, for people who read a log."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from airflow.sdk.configuration import conf

from headrace_airflow.failures import TypedTaskError
from headrace_airflow.roots.root import RootedPipeline

_WHERE_AIRFLOW_IS: Final = "http://localhost:8080/"
"""As Airflow itself has it where nobody says it."""


def page_of(rooted: RootedPipeline, view: str) -> str:
    """Where a view of the page of a pipeline is."""
    airflow = conf.get("api", "base_url", fallback=_WHERE_AIRFLOW_IS)
    return f"{airflow.rstrip('/')}/dags/{rooted.dag_id('process')}/plugin/headrace_dag?view={view}"


@contextmanager
def told_where(rooted: RootedPipeline, view: str) -> Iterator[None]:
    """What is raised inside for people ends with the address of the page that shows it."""
    try:
        yield
    except TypedTaskError as error:
        raise error.seen_at(page_of(rooted, view)) from None
