"""Who may see what: a pipeline is seen by those who may read its DAG, its values by those who may edit that."""

from collections.abc import Collection

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.models.dag import DagModel
from fastapi import HTTPException, status

from headrace.pipeline.schedules import DagOwner, dag_id, owner_of


def owner_behind(dag_id: str) -> DagOwner:
    """Root and pipeline of the DAG of that id. Raises HTTPException (404) for a DAG that is none of Headrace's."""
    owner = owner_of(dag_id)
    if owner is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"{dag_id} is no DAG of a Headrace pipeline")
    return owner


def may_edit(dag_id: str, user: BaseUser) -> bool:
    """Whether ``user`` may edit a DAG, and so see the values of its pipeline."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    return bool(get_auth_manager().is_authorized_dag(method="PUT", details=details, user=user))


Place = tuple[str, str]
"""The names of a root and of a pipeline under it."""


def editable_by(user: BaseUser, pipelines: Collection[Place]) -> set[Place]:
    """Keep the ``pipelines`` whose values ``user`` may see."""
    return _authorized(user, pipelines, "PUT")


def visible_to(user: BaseUser, pipelines: Collection[Place]) -> set[Place]:
    """Keep the ``pipelines`` whose process DAG ``user`` may read."""
    return _authorized(user, pipelines, "GET")


def with_dags(user: BaseUser) -> set[Place]:
    """The pipelines whose process DAG is there, and may be read by ``user``."""
    owners = (owner_of(allowed_id) for allowed_id in get_auth_manager().get_authorized_dag_ids(user=user))
    return {(owner.root, owner.pipeline) for owner in owners if owner is not None and owner.family == "process"}


def _authorized(user: BaseUser, pipelines: Collection[Place], method: ResourceMethod) -> set[Place]:
    names = {dag_id(name, "process", root): (root, name) for root, name in pipelines}
    allowed = get_auth_manager().filter_authorized_dag_ids(dag_ids={*names}, user=user, method=method)
    return {names[allowed_id] for allowed_id in allowed}
