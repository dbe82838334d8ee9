"""Where the pages are in Airflow's UI, and the app that they ask.

Every component of Airflow imports plugins, and only the API server answers: the app is built with the first request.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

_PREFIX: Final = "/headrace"
_PAGE: Final = "Headrace"
_NAMES: Final = {
    "nav": _PAGE,
    "dag": _PAGE,
    "dag_run": _PAGE,
    "task_instance": _PAGE,
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
        app = await asyncio.to_thread(self._built) if self._app is None else self._app
        await app(scope, receive, send)

    def _built(self) -> Asgi:
        with self._lock:
            if self._app is None:
                from headrace_airflow.pages.app import pages_app
                from headrace_airflow.pages.opened_roots import OpenedRoots

                self._app = pages_app(OpenedRoots())
            return self._app


def fastapi_apps() -> list[dict[str, Any]]:
    """The app, for Airflow's API server to mount."""
    return [{"app": PagesWhenAsked(), "url_prefix": _PREFIX, "name": "headrace"}]


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
        for place, name in _NAMES.items()
    ]
