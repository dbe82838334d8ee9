"""What Airflow's plugin gives each process: the pages, imports done once, and the last line of a failed task's log.

``fastapi_apps`` and ``react_apps`` say where the pages are in Airflow's UI, and the app that they ask. Every component
of Airflow imports plugins, and only the API server answers: the app is built with the first request.

``preload_modules`` imports what every task of Headrace imports, once, in the processes that Airflow forks tasks and
parsing from. It saves a task a quarter of a second of CPU. Pipelines of users are not among it: a task loads its own as
it is then. Nothing here starts a thread, since a fork has only one.

``on_task_instance_failed`` gives the log of a task that failed its last line: where the page is that shows why. It
stands below what Airflow prints of the error, unfolded. Airflow asks each plugin when a task has failed, so callbacks
of users stay what they are.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any, Final

from airflow.listeners import hookimpl

from headrace_airflow.families.code_tab import outlive_removal

_URL_PREFIX: Final = "/headrace"
_PAGE_NAME: Final = "Headrace"
_NAME_OF_PLACE: Final = {
    "nav": _PAGE_NAME,
    "dag": _PAGE_NAME,
    "dag_run": _PAGE_NAME,
    "task_instance": _PAGE_NAME,
    "dashboard": "Headrace pipelines",
}
"""What the page is called, by its place. The UI keeps a component by its name, and hands it the DAG and the run that it
is about; on the home page there is only the block, so that has a name of its own."""

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


class PagesWhenAsked:
    """The app of the pages as Airflow mounts it: imported and built when the first request comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._app: Asgi | None = None

    async def __call__(
        self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        """Answer a request."""
        app = await asyncio.to_thread(self._build_app) if self._app is None else self._app
        await app(scope, receive, send)

    def _build_app(self) -> Asgi:
        with self._lock:
            if self._app is None:
                from headrace_airflow.pages.app import pages_app
                from headrace_airflow.pages.opened_roots import OpenedRoots

                self._app = pages_app(OpenedRoots())
            return self._app


def fastapi_apps() -> list[dict[str, Any]]:
    """The app, for Airflow's API server to mount."""
    return [{"app": PagesWhenAsked(), "url_prefix": _URL_PREFIX, "name": "headrace"}]


def react_apps() -> list[dict[str, Any]]:
    """The page in each place. Each has an address of the script of its own: the UI executes that of an address once."""
    return [
        {
            "name": name,
            "bundle_url": f"headrace/static/console.js?{place}",
            "url_route": f"headrace_{place}",
            "destination": place,
            **({"category": "browse"} if place == "nav" else {}),
        }
        for place, name in _NAME_OF_PLACE.items()
    ]


_PARSING: Final = "dag-processor"
_FORKING: Final = ("scheduler", "dag-processor", "celery", "standalone")
"""The commands of Airflow whose processes do."""

_IMPORTED_MODULES: Final = (
    "headrace_airflow.dags",
    "headrace_airflow.families.own",
    "headrace.runs.executors.own",
    "headrace.connectors.files.definition",  # of nearly all pipelines
)


_PARSING_MODULES: Final = (
    "airflow.providers.standard.operators.trigger_dagrun",
    "airflow.providers.standard.sensors.external_task",
    "airflow.timetables.trigger",
)
"""What Airflow itself imports in each process that parses, once it makes of DAGs what it stores."""


def preload_modules() -> None:
    """Import it if this is such a process; in the one that stores what was parsed, mind files that go meanwhile."""
    if sys.argv[1:2] and sys.argv[1] in _FORKING:
        for module in _IMPORTED_MODULES:
            import_module(module)
    if sys.argv[1:2] == [_PARSING]:
        for module in _PARSING_MODULES:
            import_module(module)
        outlive_removal()


_log = logging.getLogger("airflow.task")


@hookimpl
def on_task_instance_failed(previous_state: Any, task_instance: Any, error: Any) -> None:
    """Say where to look if the error names a page; Airflow's own group of what follows a task is closed first."""
    del previous_state, task_instance
    if page := getattr(error, "page", ""):
        _log.info("::endgroup::")
        _log.error("What failed, and what can be done about it: %s", page)
