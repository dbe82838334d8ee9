"""The app behind the pages: who asks is known to Airflow and may read the DAG, or gets 401 or 403.

Endpoints are plain functions, since they wait for the store: FastAPI runs them in threads.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag, requires_authenticated
from fastapi import Depends, FastAPI, HTTPException, Query, Request, status
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from pydantic import BaseModel, Field

from headrace.errors import FixConfigError, FixDataError, HeadraceError, RestoreError, RetryError
from headrace.model.expressions.data_types import replace_non_finite
from headrace.pipeline.quality import ExpectationView
from headrace.read.shown_values import as_json
from headrace_airflow.markdown import text_for_page, told_of
from headrace_airflow.pages import listing
from headrace_airflow.pages.answers import SANDBOX, PipelinePage
from headrace_airflow.pages.explanation import ask_for_explanation, explanation_server, written_key
from headrace_airflow.pages.listing import LineageGraphs, neighbours
from headrace_airflow.pages.opened_roots import OpenedRoots
from headrace_snapshots.names import MAIN, PUBLISHED

"""Where Airflow mounts the app."""

_STATIC: Final = Path(__file__).with_name("static")
_STATUS: Final[Mapping[type[HeadraceError], int]] = {
    FixConfigError: status.HTTP_400_BAD_REQUEST,
    FixDataError: status.HTTP_409_CONFLICT,
    RestoreError: status.HTTP_404_NOT_FOUND,
    RetryError: status.HTTP_503_SERVICE_UNAVAILABLE,
}

LimitQuery = Annotated[int, Query(ge=1, le=500)]
AtQuery = Annotated[str, Query(min_length=1, max_length=200)]

OfOutput = Annotated[str, Query(pattern="^[a-z0-9_]{0,63}$")]
"""One output of several, by name; "": the only one, which has none."""


class _RowsAsked(BaseModel):
    """Which rows of a view are asked for: of which snapshot, under which condition in SQL, how many."""

    at: str = Field(PUBLISHED, min_length=1, max_length=200)
    where: str = Field("", max_length=2_000)
    limit: int = Field(20, ge=1, le=500)
    output: str = Field("", pattern="^[a-z0-9_]{0,63}$")


class _PanesAsked(BaseModel):
    """The key whose panes are asked for, and how many rows at most. They are of a snapshot and the epochs before it."""

    key: str = Field("", max_length=2_000)
    at: str = Field(MAIN, min_length=1, max_length=200)
    epochs: int = Field(50, ge=1, le=500)
    limit: int = Field(200, ge=1, le=500)
    output: str = Field("", pattern="^[a-z0-9_]{0,63}$")


class _Answer(JSONResponse):
    """A JSON answer with values of rows in it, all of which browsers show as they are."""

    def render(self, content: Any) -> bytes:
        return json.dumps(_for_browsers(content), default=as_json, allow_nan=False, separators=(",", ":")).encode()


_MOST_IN_NUMBERS: Final = 2**53
"""Up to here JavaScript's numbers hold every int."""


def _for_browsers(value: Any) -> Any:
    """``value``, also inside, with text for numbers that JavaScript would round, or JSON has no form for."""
    match value:
        case dict():
            return {name: _for_browsers(own) for name, own in value.items()}
        case list() | tuple():
            return [_for_browsers(item) for item in value]
        case int() if abs(value) > _MOST_IN_NUMBERS:
            return str(value)
    return replace_non_finite(value)


def pages_app(roots: OpenedRoots) -> FastAPI:
    """The app: scripts for anybody who is logged in, answers about a pipeline for those who may read its DAG."""
    app = FastAPI(title="Headrace", docs_url=None, redoc_url=None, openapi_url=None, default_response_class=_Answer)
    app.add_exception_handler(HeadraceError, _error_response)
    readers, graphs = [Depends(requires_access_dag("GET"))], LineageGraphs(roots)

    @app.get("/static/{name}", dependencies=[Depends(requires_authenticated())])
    def script(name: str) -> Response:
        file = _STATIC / name
        # a name may lead out of the folder
        if file.parent != _STATIC or file.suffix != ".js" or not file.is_file():
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"there is no {name}")
        return FileResponse(file, media_type="text/javascript", headers={"Cache-Control": "no-cache"})

    @app.get("/api/pipelines", dependencies=[Depends(requires_authenticated())])
    def pipelines(user: GetUserDep) -> Any:
        return _Answer(listing.pipeline_list(roots, user))

    @app.get("/api/lineage", dependencies=[Depends(requires_authenticated())])
    def lineage_graph(user: GetUserDep) -> Any:
        return _Answer(graphs.seen_by(user))

    @app.get("/api/dags/{dag_id}", dependencies=readers)
    def pipeline(dag_id: str, user: GetUserDep) -> Any:
        owner = listing.owner_behind(dag_id)
        opened_root = roots.root_named(owner.root)
        known_summary = opened_root.summaries.read().summaries.get(owner.pipeline)
        page, can_edit = opened_root.page(owner.pipeline), listing.may_edit(dag_id, user)
        summary = page.summary(known_summary)
        run_id, under_way = None if summary.run is None else summary.run.run_id, summary.under_way
        runs = _dag_runs([one for one in (run_id, under_way and under_way.run_id) if one])
        return _Answer(
            {
                **told_of((summary if can_edit else summary.without_values).to_json()),
                "pipeline": opened_root.root.qualified_name(owner.pipeline),
                "deadline": listing.deadline_to_json(listing.pipeline_deadlines().get((owner.root, owner.pipeline))),
                "dag_run": runs.get(run_id or ""),
                "under_way": under_way and {**msgspec.to_builtins(under_way), "dag_run": runs.get(under_way.run_id)},
                "sinks": page.sinks(),
                "may_edit": can_edit,
            }
        )

    @app.get("/api/dags/{dag_id}/lineage", dependencies=readers)
    def lineage(dag_id: str, user: GetUserDep) -> Any:
        owner = listing.owner_behind(dag_id)
        return _Answer(neighbours(roots, roots.root_named(owner.root), owner.pipeline, user))

    @app.get("/api/dags/{dag_id}/history", dependencies=readers)
    def history(dag_id: str, limit: LimitQuery = 50, before: int | None = None) -> Any:
        return _Answer(_page_of(roots, dag_id).history(limit, before))

    @app.get("/api/dags/{dag_id}/epochs", dependencies=readers)
    def epochs(dag_id: str, at: AtQuery = MAIN, limit: LimitQuery = 50) -> Any:
        return _Answer(_page_of(roots, dag_id).epochs(at, limit))

    @app.get("/api/dags/{dag_id}/epochs/runs", dependencies=readers)
    def epoch_runs(dag_id: str, at: AtQuery = MAIN, limit: LimitQuery = 50) -> Any:
        writers = _page_of(roots, dag_id).writers(at, limit)
        runs = _dag_runs({*writers.values()})
        return _Answer({epoch: {"run": run_id, "dag_run": runs.get(run_id)} for epoch, run_id in writers.items()})

    @app.get("/api/dags/{dag_id}/graph", dependencies=readers)
    def graph(dag_id: str, user: GetUserDep, at: AtQuery = MAIN) -> Any:
        return _Answer(_page_of(roots, dag_id).graph(at, with_values=listing.may_edit(dag_id, user)))

    @app.get("/api/dags/{dag_id}/lateness", dependencies=readers)
    def lateness(dag_id: str, at: AtQuery = MAIN, limit: LimitQuery = 50, output: OfOutput = "") -> Any:
        return _Answer(_page_of(roots, dag_id).lateness(at, limit, output))

    @app.get("/api/dags/{dag_id}/audits", dependencies=readers)
    def audits(dag_id: str, user: GetUserDep, limit: LimitQuery = 20) -> Any:
        return _Answer(_page_of(roots, dag_id).audits(limit, with_values=listing.may_edit(dag_id, user)))

    @app.get("/api/dags/{dag_id}/diff", dependencies=readers)
    def diff(
        dag_id: str, before: AtQuery, after: AtQuery, user: GetUserDep, limit: LimitQuery = 20, *, output: OfOutput = ""
    ) -> Any:
        return _Answer(
            _page_of(roots, dag_id).diff(before, after, limit, output, with_values=listing.may_edit(dag_id, user))
        )

    @app.get("/api/dags/{dag_id}/rehearsals/release", dependencies=readers)
    def release(
        dag_id: str, snapshot: AtQuery, user: GetUserDep, limit: LimitQuery = 20, *, output: OfOutput = ""
    ) -> Any:
        page = _page_of(roots, dag_id)
        return _Answer(page.release(snapshot, output, limit, with_values=listing.may_edit(dag_id, user)))

    @app.get("/api/dags/{dag_id}/rehearsals/rollback", dependencies=readers)
    def rollback(dag_id: str, to: AtQuery, branch: AtQuery = MAIN) -> Any:
        return _Answer(_page_of(roots, dag_id).rollback(to, branch))

    @app.get("/api/dags/{dag_id}/recovery-targets", dependencies=readers)
    def recovery_targets(dag_id: str, limit: LimitQuery = 20) -> Any:
        return _Answer(_page_of(roots, dag_id).recovery_targets(limit))

    @app.get("/api/dags/{dag_id}/rehearsals/recover", dependencies=readers)
    def recovery(dag_id: str, to: AtQuery) -> Any:
        return _Answer(_page_of(roots, dag_id).recovery(to))

    @app.get("/api/dags/{dag_id}/rehearsals/promote", dependencies=readers)
    def promotion(
        dag_id: str, branch: AtQuery, user: GetUserDep, limit: LimitQuery = 20, *, patch: bool = False
    ) -> Any:
        changes = _page_of(roots, dag_id).promotion(
            branch, limit, patch=patch, with_values=listing.may_edit(dag_id, user)
        )
        return _Answer(changes)

    @app.get("/api/dags/{dag_id}/snapshots/{at}", dependencies=readers)
    def snapshot(dag_id: str, at: str) -> Any:
        return _Answer(_page_of(roots, dag_id).snapshot(at))

    @app.get("/api/dags/{dag_id}/runs/{run_id:path}", dependencies=readers)
    def results(dag_id: str, run_id: str, user: GetUserDep, task_id: str = "") -> Any:
        with_values = listing.may_edit(dag_id, user)
        return _Answer(_page_of(roots, dag_id).results(dag_id, run_id, task_id, with_values=with_values))

    _add_values(app, roots)
    return app


def _add_values(app: FastAPI, roots: OpenedRoots) -> None:
    """Add the answers that are keys, rows and records, for those who may edit the DAG."""
    readers = [Depends(requires_access_dag("GET"))]
    forks = explanation_server()

    @app.get("/api/dags/{dag_id}/audits/{until}/docs/{view}", dependencies=readers)
    def data_docs(
        dag_id: str,
        until: str,
        view: ExpectationView,
        user: GetUserDep,
        *,
        after: str | None = None,
        output: OfOutput = "",
    ) -> Any:
        _check_values(dag_id, user)
        return HTMLResponse(_page_of(roots, dag_id).data_docs(after, until, view, output), headers=SANDBOX)

    @app.get("/api/dags/{dag_id}/rows/{view}", dependencies=readers)
    def rows(dag_id: str, view: str, user: GetUserDep, asked: Annotated[_RowsAsked, Query()]) -> Any:
        _check_values(dag_id, user)
        return _Answer(_page_of(roots, dag_id).rows(view, asked.at, asked.where or None, asked.limit, asked.output))

    @app.get("/api/dags/{dag_id}/panes", dependencies=readers)
    def panes(dag_id: str, user: GetUserDep, asked: Annotated[_PanesAsked, Query()]) -> Any:
        _check_values(dag_id, user)
        key = written_key(asked.key)
        return _Answer(_page_of(roots, dag_id).panes(asked.at, asked.epochs, key, asked.limit, asked.output))

    @app.get("/api/dags/{dag_id}/panes/keys", dependencies=readers)
    def pane_keys(dag_id: str, user: GetUserDep, asked: Annotated[_PanesAsked, Query()]) -> Any:
        _check_values(dag_id, user)
        return _Answer(_page_of(roots, dag_id).pane_keys(asked.at, asked.epochs, asked.limit, asked.output))

    @app.get("/api/dags/{dag_id}/explain", dependencies=readers)
    def explain(dag_id: str, user: GetUserDep, key: str = "", window: str = "", output: OfOutput = "") -> Any:
        _check_values(dag_id, user)
        owner = listing.owner_behind(dag_id)
        opened_root = roots.root_named(owner.root)
        return _Answer(ask_for_explanation(forks, opened_root, (owner.pipeline, output), key, window))


def _page_of(roots: OpenedRoots, dag_id: str) -> PipelinePage:
    owner = listing.owner_behind(dag_id)
    return roots.root_named(owner.root).page(owner.pipeline)


def _check_values(dag_id: str, user: Any) -> None:
    """Raise HTTPException (403) unless ``user`` may see values of a pipeline."""
    if not listing.may_edit(dag_id, user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "keys, rows and records are shown to those who may edit the DAG")


def _dag_runs(run_ids: Collection[str]) -> dict[str, Any]:
    return {run_id: asdict(name) for run_id, name in listing.dag_runs_of(run_ids).items()}


def _error_response(_: Request, error: Exception) -> Response:
    """What went wrong, as a page shows it: code, remedy, message."""
    assert isinstance(error, HeadraceError)
    codes = (code for kind, code in _STATUS.items() if isinstance(error, kind))
    problem = {"code": error.code, "remedy": error.remedy, "message": text_for_page(str(error))}
    return _Answer({"error": problem}, next(codes, status.HTTP_500_INTERNAL_SERVER_ERROR))
