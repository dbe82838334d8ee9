"""Addresses: of Headrace's pages, for people who read a log, and of the assets of a pipeline, for DAGs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from airflow.sdk import Asset
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


def published_asset(qualified: str) -> Asset:
    """Name what readers see of a pipeline or of one of its outputs. Airflow knows an asset by name and URI together: a
    follower needs both. It raises nothing.

    :param qualified: ``[ROOT.]PIPELINE[/OUTPUT]``.
    :returns: an asset that has an event whenever readers see something else.
    """
    return Asset(name=f"headrace_{qualified}", uri=f"headrace://{qualified}/published")


def windows_asset(qualified: str) -> Asset:
    """Name the complete windows of what readers see, each a partition. It raises nothing.

    :param qualified: ``[ROOT.]PIPELINE[/OUTPUT]``.
    :returns: an asset that has an event for each window that is complete, or is corrected.
    """
    return Asset(name=f"headrace_{qualified}:windows", uri=f"headrace://{qualified}/windows")
