"""The DAGs of every registered pipeline, and what Airflow finds in ``dags/``.

The DAGs of every registered pipeline: those of each family (``DAG_FAMILIES``).

Built when Airflow parses ``dags/``, so nothing here or above imports pyspark or great_expectations.

What Airflow finds in ``dags/``: the DAGs that it asks for; and pipeline files that cannot be used, as an import
error of a file that has no DAGs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow.sdk import DAG, get_parsing_context

from headrace.errors import FixConfigError
from headrace.pipeline.deployment import AirflowOptions, Backfill, Schedule
from headrace.pipeline.loading.registry import RegisteredFiles
from headrace.pipeline.schedules import DAG_FAMILIES, owner_of
from headrace_airflow.decisions.dags import decision_dag, decision_dags, decision_of
from headrace_airflow.decisions.maintenance_dags import retention_dags, retention_schedule
from headrace_airflow.families.options import options_of
from headrace_airflow.roots.root import Root, RootedPipeline
from headrace_airflow.roots.served import ServedRoots, served_roots
from headrace_airflow.roots.store import forget_connections, without_connections


@dataclass(frozen=True)
class Built:
    """The DAGs of a root: ``dags`` by DAG id, the names of their ``pipelines``, and what is wrong with each file whose
    pipelines have no DAGs, or not all.
    """

    dags: Mapping[str, DAG]
    pipelines: Sequence[str]
    broken: Mapping[Path, str]


def built(root: Root) -> Built:
    """The DAGs of every registered pipeline of ``root`` of which there can be some. One of Headrace's own that cannot
    be built leaves its pipeline none; a family of others, only itself.
    """
    files = root.files()
    dags: dict[str, DAG] = {}
    names: list[str] = []
    broken, every = dict(files.broken), _families()
    for rooted in root.rooted(files):
        for families in every:
            try:
                dags |= dags_of(rooted, families)
                names.append(rooted.name)
            except Exception as error:  # whatever Airflow says of this one, the others stay
                broken[rooted.file] = _said(rooted, error)
    own, refused = _retention_dags(root, files)
    return Built(dags | own, [*dict.fromkeys(names)], broken | refused)


def broken_files(root: Root) -> Mapping[Path, str]:
    """What ``built`` finds wrong with files. Of pipelines whose Headrace DAGs differ in nothing that Airflow could
    refuse, only one has them built.
    """
    files = root.files()
    broken = dict(files.broken)
    accepted: list[DagSettings] = []
    own, *others = _families()
    for rooted in root.rooted(files):
        try:
            settings = DagSettings.of(rooted)
            if settings is None or settings not in accepted:
                dags_of(rooted, own)
            if settings is not None and settings not in accepted:
                accepted.append(settings)
        except Exception as error:  # as above
            broken[rooted.file] = _said(rooted, error)
        for families in others:
            try:
                dags_of(rooted, families)
            except Exception as error:  # as above
                broken[rooted.file] = _said(rooted, error)
    return broken | _retention_dags(root, files)[1]


def _retention_dags(root: Root, files: RegisteredFiles) -> tuple[dict[str, DAG], dict[Path, str]]:
    """The DAGs of retentions with a schedule, and files with a schedule that Airflow refuses."""
    pipelines = root.rooted(files)
    made = retention_dags(root, pipelines)
    dags = {dag.dag_id: dag for dag in made.values() if isinstance(dag, DAG)}
    refused: dict[Path, str] = {}
    for rooted in pipelines:
        schedule = retention_schedule(rooted)
        if schedule is not None and isinstance(error := made[schedule], Exception):
            refused[rooted.file] = _said(rooted, error)
    return dags, refused


@dataclass(frozen=True)
class DagSettings:
    """All that the DAGs of pipelines are made of, but for names and descriptions, which Headrace has checked."""

    options: AirflowOptions
    schedule: Schedule | None
    backfill: Backfill | None
    signals: Sequence[str]
    executor: str
    has_names: bool
    sinks: Sequence[tuple[str, str]]

    @classmethod
    def of(cls, rooted: RootedPipeline) -> "DagSettings | None":
        """None for a pipeline with arguments of tasks that Headrace does not know. Raises AirflowDefaultsError."""
        options, pipeline = options_of(rooted), rooted.pipeline
        if options.default_args:
            return None
        sinks = [(output, sink.name) for output, alone in pipeline.by_output.items() for sink in alone.sinks]
        return cls(
            options,
            pipeline.schedule,
            pipeline.backfill,
            pipeline.signals,
            pipeline.executor,
            pipeline.has_names,
            sinks,
        )


def _families() -> list[list[str]]:
    """Headrace's own, which a pipeline has together or not at all, and then each of the others."""
    others = [[name] for name in DAG_FAMILIES.names() if name not in DAG_FAMILIES.built_in]
    return [[*DAG_FAMILIES.built_in], *others]


def _said(rooted: RootedPipeline, error: Exception) -> str:
    return f"{rooted.file}: {type(error).__name__}: {error}"


def built_for(root: Root, pipeline: str, family: str) -> DAG | None:
    """One DAG alone, for one of its tasks; None where the pipeline has none.

    Raises UnknownPipelineError if there is no such pipeline that can be used, and what Airflow raises.
    """
    return _dag_of(root.pipeline(pipeline), family)


def dags_of(rooted: RootedPipeline, families: Iterable[str]) -> dict[str, DAG]:
    """The DAGs of a pipeline by DAG id. Raises what Airflow raises if it does not take one of them, and
    BrokenEntryPointError.
    """
    dags = [_dag_of(rooted, family) for family in families]
    return {dag.dag_id: dag for dag in dags if dag is not None}


def _dag_of(rooted: RootedPipeline, family: str) -> DAG | None:
    dag: DAG | None = DAG_FAMILIES[family].build(rooted)
    if dag is not None:
        dag.validate()  # type: ignore[no-untyped-call]
    return dag


class BrokenPipelineFilesError(FixConfigError, code="config.broken_pipeline_files"):
    """Pipeline files that cannot be used, each with the reason."""


def asked_for() -> Mapping[str, DAG]:
    """The DAGs of every registered pipeline, and those of decisions, by DAG id; for a task that starts, only the one
    that it belongs to.

    So a task neither builds the DAGs of others nor waits for their files. It raises what is wrong with its own.
    """
    dag_id, served = get_parsing_context().dag_id, served_roots()
    if dag_id is not None:
        dag = _asked_for_by_a_task(dag_id, served)
        return {} if dag is None else {dag_id: dag}
    dags: dict[str, DAG] = {}
    with without_connections(served.roots):
        for root in served.roots:
            of_root = built(root)
            dags |= {**of_root.dags, **decision_dags(root, of_root.pipelines)}
    return dags


def _asked_for_by_a_task(dag_id: str, served: ServedRoots) -> DAG | None:
    decision, owner = decision_of(dag_id), owner_of(dag_id)
    name = decision[0] if decision is not None else owner.root if owner is not None else None
    if name is None:
        return None
    root = served.named(name)
    forget_connections(served.roots, but=root.store)
    if decision is not None:
        return decision_dag(root, decision[1])
    return None if owner is None else built_for(root, owner.pipeline, owner.family)


def raise_broken() -> None:
    """Raise BrokenPipelineFilesError naming every broken file; nothing when there is none, and not for one DAG."""
    if get_parsing_context().dag_id is not None:
        return
    served = served_roots()
    with without_connections(served.roots):
        broken = [*served.problems, *(problem for root in served.roots for problem in broken_files(root).values())]
    if broken:
        raise BrokenPipelineFilesError("\n".join(broken))
