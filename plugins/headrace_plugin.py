"""The only file of this folder that Airflow executes: Headrace's pages in the UI, the names under which Airflow may be
called, and the last line of a log.

Every component of Airflow imports plugins; only the API server has pages, so only there their app is built. Those that
fork tasks import what a task does.
"""

from typing import Any

from airflow.plugins_manager import AirflowPlugin
from starlette.middleware.trustedhost import TrustedHostMiddleware

from headrace_airflow import plugin_parts
from headrace_airflow.plugin_parts import fastapi_apps, react_apps
from headrace_airflow.roots import ALLOWED_HOSTS, allowed_hosts


def _middlewares() -> list[dict[str, Any]]:
    """Refuse requests under a name that is not ours: a web page could have its own name point at this machine."""
    if not (hosts := allowed_hosts()):
        return []
    options = {"allowed_hosts": hosts, "www_redirect": False}
    return [{"name": ALLOWED_HOSTS, "middleware": TrustedHostMiddleware, "kwargs": options}]


plugin_parts.preload_modules()


class HeadracePlugin(AirflowPlugin):
    """Pages about pipelines: in the navigation, on the home page, as a tab of each DAG and of each run; logs of tasks
    that fail end with the address of one.
    """

    name = "headrace"
    fastapi_apps = fastapi_apps()
    react_apps = react_apps()
    fastapi_root_middlewares = _middlewares()
    listeners = [plugin_parts]
