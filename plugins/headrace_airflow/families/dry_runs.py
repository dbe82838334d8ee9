"""Dry runs of a pipeline's DAGs: a task says in its log what the run would do, and that is all the run does."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NoReturn

from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowSkipException

from headrace.this_process import in_one_line
from headrace_airflow.roots import RootedPipeline

if TYPE_CHECKING:
    from headrace.runs.client.handle import PipelineHandle
    from headrace.runs.plan import DryRun

DRY_RUN: Final = "dry_run"
"""The field of a form."""

_logger = logging.getLogger(__name__)


def dry_run_field(task: str) -> Param:
    """The switch of a form, by which ``task`` says what the run would do."""
    description = f"Do nothing: the log of the task {task} says what the run would do, stage by stage."
    return Param(False, type="boolean", title="Dry run", description=description)


def is_dry_run(context: Context) -> bool:
    """Whether the form of this run says to do nothing."""
    return bool(context["params"].get(DRY_RUN))


def skip_after_telling(
    rooted: RootedPipeline, look: "Callable[[PipelineHandle], DryRun]", *, create: bool = False
) -> NoReturn:
    """Have the log say what a run would do, and skip it, and so what comes after it. Raises what stands against it."""
    from headrace.runs.client.handle import PipelineHandle

    looked = look(PipelineHandle(rooted.catalog(), rooted.pipeline, create=create))
    for line in looked.lines():
        _logger.info("%s", in_one_line(line))
    for warning in looked.warnings:
        _logger.warning("%s", in_one_line(warning))
    raise AirflowSkipException("the form says to do nothing: the lines above say what the run would do")
