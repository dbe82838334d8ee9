"""The only file of this folder that Airflow executes: it makes Headrace known to the UI's list of plugins."""

from typing import Any

from airflow.plugins_manager import AirflowPlugin
from starlette.middleware.trustedhost import TrustedHostMiddleware

from headrace_airflow.settings import ALLOWED_HOSTS, allowed_hosts


def _middlewares() -> list[dict[str, Any]]:
    """Refuse requests under a name that is not ours: a web page could have its own name point at this machine."""
    if not (hosts := allowed_hosts()):
        return []
    options = {"allowed_hosts": hosts, "www_redirect": False}
    return [{"name": ALLOWED_HOSTS, "middleware": TrustedHostMiddleware, "kwargs": options}]


class HeadracePlugin(AirflowPlugin):
    """Headrace has no pages in the UI yet: its DAGs, forms and asset events are all there is."""

    name = "headrace"
    fastapi_root_middlewares = _middlewares()
