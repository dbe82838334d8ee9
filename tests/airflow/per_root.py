"""An auth manager with which permissions go by DAG, as those of Airflow's FAB and Keycloak providers do."""

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

_OF_SALES = "sal"
"""A user who may do what the role allows with the DAGs of the root ``sales``, and with no others."""


class AuthManagerOfRoots(SimpleAuthManager):
    """The simple one, but for that user."""

    def is_authorized_dag(
        self, *, user: SimpleAuthManagerUser, details: DagDetails | None = None, **options: Any
    ) -> bool:
        """Whether ``user`` may do that with a DAG."""
        if user.username == _OF_SALES and not (details and details.id and details.id.startswith("headrace_sales.")):
            return False
        return super().is_authorized_dag(user=user, details=details, **options)
