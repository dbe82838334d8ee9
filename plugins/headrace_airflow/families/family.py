"""What Headrace asks of a family of DAGs: one DAG for each pipeline.

A family of another distribution is an entry point of ``headrace.dag_families``: a ``DagFamily``, by the name with which
the ids of its DAGs end. Airflow executes no file of it: Headrace's own files in ``dags/`` ask for all families.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from inspect import cleandoc
from typing import Any, Final

from airflow.sdk import DAG, AssetAny
from airflow.sdk.api.datamodels._generated import DagRunType  # the type that DAG asks for

from headrace.describe.check import CheckReport, checked
from headrace.ext.stores import shown
from headrace.pipeline.deployment import Schedule
from headrace_airflow.assets import Published
from headrace_airflow.failures import RETRIES
from headrace_airflow.families.code_tab import shows
from headrace_airflow.families.dag_family import has_form
from headrace_airflow.families.options import deadline, options_of, run_types, task_arguments, timetable
from headrace_airflow.markdown import code, fenced
from headrace_airflow.roots.root import RootedPipeline

BY_HAND: Final = (DagRunType.MANUAL, DagRunType.OPERATOR_TRIGGERED)
"""How a DAG without a schedule is run."""

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class DagFamily:
    """DAGs of one kind. ``build`` gives that of a pipeline, made by ``new_dag``; its docstring says what the DAG does.
    None: this pipeline has none.

    It is called each time that Airflow parses ``dags/``, so it imports no engine and reads no store.
    """

    build: Callable[[RootedPipeline], DAG | None]


@contextmanager
def new_dag(
    rooted: RootedPipeline,
    family: str,
    about: str | None,
    *,
    schedule: Schedule | AssetAny | None,
    params: dict[str, Any],
    by_hand: Sequence[DagRunType] = BY_HAND,
    runs_at_once: int = 1,
) -> Iterator[DAG]:
    """Make the DAG of a family for a pipeline, as a context: all tasks belong to it that are made inside.

    :param rooted: the pipeline.
    :param family: the name with which the DAG's id ends.
    :param about: what it does; its first line is the description of a pipeline that has none.
    :param schedule: when it runs: a cron expression, assets, or None: by hand.
    :param params: the fields of its form.
    :param by_hand: how else it may be run.
    :param runs_at_once: more than one where a run may wait for a person; what writes is in the pool all the same.
    :returns: a context that gives the DAG.
    :raises FixConfigError: options of the pipeline or of the file of defaults are wrong.
    """
    pipeline, text = rooted.pipeline, cleandoc(about or "")
    options = options_of(rooted)
    dag = DAG(
        dag_id=rooted.dag_id(family),
        description=pipeline.description or text.splitlines()[0],
        doc_md=_documented(rooted, family, text),
        schedule=timetable(schedule, rooted),
        start_date=options.start_date or _START,
        catchup=False,
        max_active_runs=runs_at_once,
        tags=["headrace", *rooted.root.tags, pipeline.name, family, *options.tags],
        default_args=RETRIES | task_arguments(options),
        deadline=deadline(options) if family == "process" else None,
        allowed_run_types=[*run_types(schedule), *by_hand],
        auto_register=False,  # the file in dags/ names them
    )
    shows(dag, rooted.file)
    with has_form(dag, params):
        yield dag


@contextmanager
def new_dag_after_publish(
    rooted: RootedPipeline,
    family: str,
    about: str | None,
    outputs: Iterable[str],
    by_hand: Sequence[DagRunType] = BY_HAND,
) -> Iterator[DAG]:
    """Make a DAG that runs whenever readers see something else of one of the ``outputs``; see ``new_dag``."""
    moved = AssetAny(*(Published(rooted.root, rooted.name, output).asset for output in outputs))
    by_hand = [DagRunType.ASSET_TRIGGERED, *by_hand]
    with new_dag(rooted, family, about, schedule=moved, params={}, by_hand=by_hand) as dag:
        yield dag


def _documented(rooted: RootedPipeline, family: str, about: str) -> str:
    """What the UI says of a DAG in Markdown: what it does; for that which processes, the pipeline in words, too."""
    pipeline = rooted.pipeline
    root = f" Root {code(rooted.root.name)}: {code(shown(rooted.root.uri))}." if rooted.root.name else ""
    parts = [about, pipeline.description, f"Defined in {code(str(rooted.file))}.{root}"]
    if family == "process":
        words = CheckReport([checked(pipeline, root=rooted.root.name)]).lines()
        parts.append("\n".join(fenced([line for text in words for line in text.splitlines()])))
    return "\n\n".join(part for part in parts if part)
