"""The list of all pipelines that a user may see, over all roots, those that need a person first."""

from collections.abc import Collection
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import msgspec
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

from headrace.model.time import instant
from headrace.runs.reporting.summary import PipelineState, PipelineSummary, urgent_first
from headrace_airflow.pages.access import Place, editable_by, visible_to, with_dags
from headrace_airflow.pages.airflow_runs import RunDeadline, pipeline_deadlines
from headrace_airflow.pages.opened_roots import OpenedRoots, RootSummaries
from headrace_airflow.pages.wording import told, told_of


def listed(roots: OpenedRoots, user: BaseUser) -> dict[str, Any]:
    """The list as a JSON value, with what is wrong with roots that are missing and of which ``user`` may read a DAG."""
    answered, there = roots.summaries(), with_dags(user)
    summaries = {(root.name, name): one for root, cached in answered.read for name, one in cached.summaries.items()}
    roots_read = {root.name: root for root, _ in answered.read}
    seen = {place: summaries[place] for place in visible_to(user, summaries)}
    waiting = {place: _never_ran(place[1]) for place in there - summaries.keys() if place[0] in roots_read}
    now, editable = instant(datetime.now(UTC)), editable_by(user, seen)
    deadlines = {
        roots_read[root].qualified(name): due
        for (root, name), due in pipeline_deadlines().items()
        if root in roots_read
    }
    rows = [
        msgspec.structs.replace(
            one if place in editable else one.without_values, pipeline=roots_read[place[0]].qualified(place[1])
        ).as_of(now)
        for place, one in (seen | waiting).items()
    ]
    missed = {name for name, deadline in deadlines.items() if deadline.is_missed}
    return {
        "age": round(max((cached.age for _, cached in answered.read), default=0.0), 1),
        "pipelines": [
            {**told_of(one.line_to_json()), "deadline": deadline_to_json(deadlines.get(one.pipeline))}
            for one in urgent_first(rows, now, missed)
        ],
        "problems": problems_for(there, answered),
    }


def problems_for(there: Collection[Place], answered: RootSummaries) -> list[dict[str, str]]:
    """What is wrong with roots that are missing, and of which a user may read a DAG: those ``there``."""
    missing = {root for root, _ in there} - {root.name for root, _ in answered.read}
    return [{"root": root, "message": told(str(_problem(root, answered)))} for root in sorted(missing)]


def deadline_to_json(deadline: RunDeadline | None) -> dict[str, Any] | None:
    """A JSON value of a pipeline's next deadline, if it has one."""
    return None if deadline is None else asdict(deadline)


def _problem(root: str, answered: RootSummaries) -> BaseException | str:
    problem = answered.problems.get(root)
    return "it is not declared any more, or what declares it is wrong" if problem is None else problem


def _never_ran(name: str) -> PipelineSummary:
    return PipelineSummary(pipeline=name, made_at="", entry=-1, state=PipelineState.EMPTY)
