"""The DAGs of every registered pipeline, those of decisions and of upkeep, and what Airflow finds in ``dags/``.

They are built when Airflow parses ``dags/``, so nothing here or above imports pyspark or great_expectations.

Upkeep (``MaintainOperator``) lets old snapshots of pipelines go, and checks that nothing is missing. One DAG of it is
started by people; others, one for each schedule of a retention, serve all pipelines that have it. Decisions have a DAG
for each kind, whatever the number of pipelines, so that the list of DAGs stays short. Each pipeline has those of each
family (``DAG_FAMILIES``).

``asked_for`` gives Airflow the DAGs that it asks for. Pipeline files that cannot be used are an import error of a file
that has no DAGs (``raise_broken``).
"""

import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import DAG, BaseOperator, Context, Param, chain, get_parsing_context

from airflow import __version__ as airflow_version
from headrace import __version__, application
from headrace.errors import FixConfigError
from headrace.pipeline.deployment import AirflowOptions, Backfill, Schedule, ScheduleTimes
from headrace.pipeline.loading.modules import content_digest
from headrace.pipeline.loading.registry import RegisteredFiles, doubt_file, find_faults
from headrace.pipeline.scheduling import DAG_FAMILIES, MAINTAIN, is_retention, owner_of, retention_dag_name, split_id
from headrace.runs.reporting.results import redact_secrets
from headrace.this_process import collect_seldom, escape_invisible, without_collection
from headrace_airflow import decisions
from headrace_airflow.connection import forget_connections, reaching_store, without_connections
from headrace_airflow.failures import TypedTaskError, error_of_exit_code, headrace_errors
from headrace_airflow.families.family import AirflowDefaultsError, call_user_function, defaults_of, options_of
from headrace_airflow.forms import APPROVE, LENGTH_PATTERN, REASON, FormError, check_names, option_fields, reason_field
from headrace_airflow.processes import OwnProcess
from headrace_airflow.roots import Root, RootedPipeline, ServedRoots, local_memory, served_roots

if TYPE_CHECKING:
    from headrace.application.maintain import Maintenance, MaintenanceReport


PROGRAM: Final = Path(application.__file__).with_name("maintain.py")
_LESS: Final = "look after one pipeline at a time"

FormValues = Mapping[str, Any]

_RETENTION: Final = {
    **{"pipeline": None, "expire": True, "keep_last": None, "keep_for": None, "keep_tags": "as the pipeline says"},
    **{"check": False, "deep": False, "repair": False},
}
"""What the form of a retention's DAG does not ask."""


class MaintainOperator(BaseOperator):
    """Does for one pipeline, or for all, what the form says, in a process of its own, one after the other. An error in
    one does not stop the others.

    ``retention``: the name of the DAG that applies retentions of one schedule. Then it is done for the pipelines that
    have this schedule, and their ``on_failure`` is told of errors.
    """

    def __init__(self, *, root: Root, names: Collection[str], retention: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root, self.names, self.retention = root, names, retention
        self._own: OwnProcess | None = None

    def execute(self, context: Context) -> dict[str, list[str]]:
        """What is said of each pipeline, in lines. Raises the first error that there was, after all have had a turn."""
        form = {**_RETENTION, **context["params"]} if self.retention else context["params"]
        with headrace_errors():
            check_names(context, self.names)
            maintenance, pipelines = _maintenance_of_form(form), self._chosen_pipelines(form)
        try:
            with reaching_store(self.root):
                report = self._run_maintenance(maintenance, pipelines)
        except Exception as error:
            self._call_on_failure(pipelines, {one.name: error for one in pipelines}, context)
            raise
        errors = {name: TypedTaskError(problem) for name, problem in report.errors.items()}
        for name, problem in report.errors.items():
            self.log.error("%s: %s: %s", name, problem.code, problem.message)
        self._call_on_failure(pipelines, errors, context)
        for task_error in errors.values():
            raise task_error
        return report.lines

    def _call_on_failure(
        self, pipelines: Sequence[RootedPipeline], errors: Mapping[str, Exception], context: Context
    ) -> None:
        """Call what each pipeline names as ``on_failure``, if it had an error and this is its retention."""
        for rooted_pipeline in pipelines if self.retention else ():
            error, reference = errors.get(rooted_pipeline.name), options_of(rooted_pipeline).on_failure
            if error is None or reference is None:
                continue
            try:
                call_user_function(
                    reference, {**context, "exception": error, "headrace_pipeline": rooted_pipeline.name}
                )
            except Exception:  # code of a user's own; Airflow goes on after a callback that fails, too
                self.log.exception("on_failure=%r of %s failed", reference, rooted_pipeline.name)

    def on_kill(self) -> None:
        if self._own is not None:
            self._own.stop()

    def _chosen_pipelines(self, form: FormValues) -> list[RootedPipeline]:
        """The pipeline that the form names; else all whose files can be used."""
        if form["pipeline"]:
            return [self.root.pipeline(form["pipeline"])]
        files = self.root.registered_files()
        for problem in files.broken.values():
            self.log.warning("pipelines of a file that cannot be used are left out: %s", problem)
        return [one for one in self.root.rooted_pipelines(files) if self.retention in (None, _retention_of(one))]

    def _run_maintenance(self, maintenance: "Maintenance", pipelines: Sequence[RootedPipeline]) -> "MaintenanceReport":
        """What the process leaves. Raises TypedTaskError if it ends without that, and what OwnProcess raises."""
        from headrace.application.maintain import MaintenanceReport

        self._own = OwnProcess(local_memory(), advice=_LESS)
        with TemporaryDirectory() as folder:
            outcome = Path(folder) / "outcome.json"
            options = [f"--root={self.root.uri}", f"--form={json.dumps(asdict(maintenance))}", f"--outcome={outcome}"]
            command = [
                sys.executable,
                str(PROGRAM),
                *options,
                *(rooted_pipeline.reference for rooted_pipeline in pipelines),
            ]
            ending = self._own.run(command, lambda line: self.log.info("%s", escape_invisible(redact_secrets(line))))
            if not ending.well:
                raise TypedTaskError(error_of_exit_code(ending.exit_code, ending.last_line))
            return MaintenanceReport.of_json(outcome.read_text())


def _retention_of(rooted_pipeline: RootedPipeline) -> str:
    """The name of the DAG that applies its retention; empty if none does."""
    retention = rooted_pipeline.pipeline.retention
    return "" if retention is None or retention.schedule is None else retention_dag_name(retention.schedule)


def _maintenance_of_form(form: FormValues) -> "Maintenance":
    """What the form says. Raises FormError if something is wrong with it, before anything is done."""
    from headrace.application.maintain import Maintenance
    from headrace.runs.maintenance import keep_rule
    from headrace_snapshots.gc_roots import KeepError

    if not (form["expire"] or form["check"]):
        raise FormError("the form says neither to expire nor to check: choose one of them, or both")
    if (form["deep"] or form["repair"]) and not form["check"]:
        raise FormError("deep and repair are ways to check, and the form says not to check")
    try:
        keep_rule(form["keep_last"] or 1, form["keep_for"] or None)
    except KeepError as error:
        raise FormError(str(error)) from error
    return Maintenance(
        expire=form["expire"],
        keep_last=form["keep_last"],
        keep_for=form["keep_for"] or None,
        keep_tags={"yes": True, "no": False}.get(form["keep_tags"]),
        check=form["check"],
        deep=form["deep"],
        repair=form["repair"],
        dry_run=form["dry_run"],
        is_named=bool(form["pipeline"]),
    )


_TASK: Final = "maintain"


def maintain_dag(root: Root, pipelines: Sequence[str] | None) -> DAG:
    """The DAG that people start, with ``pipelines`` to choose from."""
    description = (
        "Look after what one pipeline has stored, or all. Let old snapshots go, with all that only they need, and "
        "check that everything is there that snapshots, readers and runs need. Each run deletes what the one before "
        "it marked, so readers have time until then, and a failed run is not tried again at once. It runs beside all "
        "others."
    )
    choice: dict[str, Any] = {} if pipelines is None else {"enum": [None, *pipelines]}
    params = {
        "pipeline": Param(
            None,
            type=["null", "string"],
            title="Pipeline",
            description="Empty: all. Then pipelines without a retention lose nothing, unless you say what to keep.",
            **choice,
        ),
        "expire": decisions.switch_param("Expire", "Let old snapshots go.", default=True),
        "keep_last": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Keep the last",
            description="How many of the newest published snapshots to keep. Empty: as the pipeline says, else 100.",
        ),
        "keep_for": Param(
            None,
            type=["null", "string"],
            pattern=LENGTH_PATTERN,
            title="Keep for",
            description="Also keep snapshots younger than this, such as 30d. Empty: as the pipeline says.",
        ),
        "keep_tags": Param(
            "as the pipeline says",
            type="string",
            enum=["as the pipeline says", "yes", "no"],
            title="Keep tags",
            description="yes: tagged snapshots stay. no: they expire like others, and their tags are dropped.",
        ),
        "check": decisions.switch_param("Check", "Look whether everything is there.", default=True),
        "deep": decisions.switch_param("Deep", "When checking, read data files, too, and compare their checksums."),
        "repair": decisions.switch_param(
            "Repair", "When checking, make again what can be; have what no snapshot ever named deleted."
        ),
        "dry_run": decisions.dry_run_switch(),
    }
    with decisions.new_root_dag(
        root, MAINTAIN, description, params, command="`headrace expire` and `headrace fsck`"
    ) as dag:
        MaintainOperator(task_id=_TASK, root=root, names=tuple(params), retries=0)
    return dag


def retention_dags(root: Root, pipelines: Iterable[RootedPipeline]) -> dict[ScheduleTimes, DAG | Exception]:
    """For each schedule of a retention the DAG that applies it, or what Airflow has against it."""
    schedules: dict[ScheduleTimes, list[str]] = {}
    for rooted_pipeline in pipelines:
        if (schedule := retention_schedule(rooted_pipeline)) is not None:
            schedules.setdefault(schedule, []).append(rooted_pipeline.name)
    dags: dict[ScheduleTimes, DAG | Exception] = {}
    for schedule, names in schedules.items():
        try:
            dags[schedule] = retention_dag(root, retention_dag_name(schedule), schedule, names)
        except Exception as error:  # whatever Airflow says of this one, the others stay
            dags[schedule] = error
    return dags


def retention_dag(root: Root, name: str, schedule: ScheduleTimes | None = None, pipelines: Sequence[str] = ()) -> DAG:
    """The DAG that applies retentions of one schedule. For its task the name is enough."""
    description = (
        f"Let old snapshots go, with all that only they need, as retentions with the schedule {schedule} say: those of "
        f"{', '.join(pipelines)}. Each run deletes what the one before it marked, so readers have time until then, and "
        "a failed run is not tried again at once. An error in one pipeline does not stop the others."
    )
    params = {"dry_run": decisions.dry_run_switch()}
    tags = ("retention",)
    with decisions.new_root_dag(
        root, name, description, params, command="`headrace expire`", tags=tags, schedule=schedule
    ) as dag:
        MaintainOperator(task_id=_TASK, root=root, names=tuple(params), retention=name, retries=0)
    dag.validate()  # type: ignore[no-untyped-call]
    return dag


def retention_schedule(rooted_pipeline: RootedPipeline) -> ScheduleTimes | None:
    """When the retention of a pipeline is applied; None if only people apply it, or it has none."""
    retention = rooted_pipeline.pipeline.retention
    return None if retention is None else retention.schedule


PROMOTE: Final = "promote"
_DECISION_OF_NAME: Final = {kind.name: kind for kind in decisions.KINDS}
_ROOT_DAG_NAMES: Final = (*_DECISION_OF_NAME, PROMOTE, MAINTAIN)


def decision_dags(root: Root, pipelines: Sequence[str]) -> dict[str, DAG]:
    """The DAGs of all kinds for ``root`` by DAG id, with ``pipelines`` to choose from; none without any."""
    dags = [_root_dag(root, name, pipelines) for name in _ROOT_DAG_NAMES] if pipelines else []
    return {dag.dag_id: dag for dag in dags}


def decision_of(dag_id: str) -> tuple[str, str] | None:
    """The name of the root and the kind of decision that a DAG id names; None where it names none."""
    split = split_id(dag_id)
    return split if split is not None and (split[1] in _ROOT_DAG_NAMES or is_retention(split[1])) else None


def _root_dag(root: Root, name: str, pipelines: Sequence[str] | None) -> DAG:
    own = {PROMOTE: _promote_dag, MAINTAIN: maintain_dag}.get(name)
    dag = _decision_dag(root, _DECISION_OF_NAME[name], pipelines) if own is None else own(root, pipelines)
    dag.validate()  # type: ignore[no-untyped-call]
    return dag


def _decision_dag(root: Root, kind: decisions.Decision, pipelines: Sequence[str] | None) -> DAG:
    params = {"pipeline": _pipeline(pipelines), **kind.params(), REASON: reason_field(is_required=kind.needs_reason)}
    with decisions.new_root_dag(root, kind.name, kind.about, params, command=f"`headrace {kind.name}`") as dag:
        decisions.DecisionOperator(task_id=kind.name, root=root, decision=kind, names=tuple(params))
    return dag


def _promote_dag(root: Root, pipelines: Sequence[str] | None) -> DAG:
    description = (
        "Make a branch main and published, once a person has seen what readers will see change. Or replace rows of "
        "main by those of the branch, as a patch; then main goes on as it is, and the branch stays. Or let main adopt "
        "one output of the branch, which the next run publishes."
    )
    asks = "Wait until a person has seen what would change and approves it; else promote at once."
    fields = option_fields(PROMOTE)
    params = {
        "pipeline": _pipeline(pipelines),
        "branch": Param(type="string", minLength=1, title="Branch", description="A branch whose audit succeeded."),
        **{name: fields.pop(name) for name in ("patch", "output")},
        "approve": decisions.switch_param("Ask before", asks, default=True),
        **fields,
        REASON: reason_field(),
    }
    with decisions.new_root_dag(root, PROMOTE, description, params, command="`headrace promote`") as dag:
        chain(
            decisions.RehearsalOperator(task_id=decisions.REHEARSE, root=root, names=tuple(params)),
            decisions.ApproveOperator(
                task_id=APPROVE, root=root, subject="Promote {{ params.branch }} of {{ params.pipeline }}?"
            ),
            decisions.PromoteOperator(task_id="promote", root=root),
        )
    return dag


def _pipeline(pipelines: Sequence[str] | None) -> Param:
    choice: dict[str, Any] = {} if pipelines is None else {"enum": [*pipelines]}
    return Param(type="string", title="Pipeline", description="Which one it is about.", **choice)


_SHARED_STEM: Final = "headrace_pipelines"
"""How the files in ``dags/`` are called that share the pipelines."""


class DagFilesError(FixConfigError, code="config.dag_files"):
    """Files in ``dags/`` that share the pipelines do not know of each other."""


@dataclass(frozen=True)
class DagFile:
    """A file in ``dags/``, and the names of all ``beside`` it with which it shares the pipelines, itself among them.

    Which of them has the DAGs of a pipeline follows from the pipeline's name and theirs alone. However many pipelines
    there are, it is always the same one, and a further file takes over its share of each.
    """

    name: str
    beside: Sequence[str]

    @classmethod
    def from_file(cls, file: str) -> "DagFile":
        """What the module attribute ``__file__`` names. Raises DagFilesError if the first of all does not share."""
        path = Path(file)
        sibling_files = sorted(path.parent.glob(f"{_SHARED_STEM}*.py"))
        if path.stem.startswith(_SHARED_STEM) and "__file__" not in sibling_files[0].read_text(encoding="utf-8"):
            raise DagFilesError(f"{sibling_files[0]} has the DAGs of all pipelines: write asked_for(__file__) in it")
        return cls(path.stem, [one.stem for one in sibling_files] if path in sibling_files else [path.stem])

    @property
    def is_first(self) -> bool:
        """Whether it has the DAGs that are about several pipelines."""
        return self.name == self.beside[0]

    @property
    def is_alone(self) -> bool:
        """Whether it has the DAGs of all pipelines."""
        return len(self.beside) == 1

    def has(self, pipeline: str) -> bool:
        """Whether it has the DAGs of the pipeline of that qualified name."""
        return self.is_alone or self.name == max(
            self.beside, key=lambda one: sha256(f"{one} {pipeline}".encode()).digest()
        )


_ONLY_FILE: Final = DagFile(_SHARED_STEM, [_SHARED_STEM])


@dataclass(frozen=True)
class BuiltDags:
    """The DAGs of a root: ``dags`` by DAG id, and the names of their ``pipelines``. ``broken`` says what is wrong with
    each file whose pipelines have no DAGs, or not all.
    """

    dags: Mapping[str, DAG]
    pipelines: Sequence[str]
    broken: Mapping[Path, str]


def build_dags(root: Root, file: DagFile = _ONLY_FILE) -> BuiltDags:
    """The DAGs that ``file`` has of the registered pipelines of ``root``, if there can be some. One of Headrace's own
    that cannot be built leaves its pipeline none; a family of others, only itself.
    """
    files = root.registered_files(None if file.is_first else file.has)
    dags: dict[str, DAG] = {}
    problems, every = dict(files.broken), _families()
    pipelines = root.rooted_pipelines(files)
    names = {rooted_pipeline.name for rooted_pipeline in pipelines if not file.has(rooted_pipeline.qualified)}
    for rooted_pipeline in (one for one in pipelines if one.name not in names):
        for families in every:
            try:
                dags |= dags_of(rooted_pipeline, families)
                names.add(rooted_pipeline.name)
            except Exception as error:  # whatever Airflow says of this one, the others stay
                problems[rooted_pipeline.file] = _error_text(rooted_pipeline, error)
    retentions, refused_files = _retention_dags(root, files) if file.is_first else ({}, {})
    problems |= refused_files
    for broken_file in problems.keys() - files.broken.keys():
        doubt_file(broken_file)  # whatever has changed since, the file that names what is broken looks again
    return BuiltDags(dags | retentions, sorted(names) if file.is_first else (), problems)


def broken_files(root: Root) -> Mapping[Path, str]:
    """What ``build_dags`` finds wrong with files. A file in which nothing was wrong before is not loaded again."""
    try:
        defaults = str(defaults_of(root))
    except AirflowDefaultsError as error:  # the pipelines that meet it are named below
        defaults = str(error)
    examiner = f"{root.name} {__version__} {airflow_version} {sys.version} {DAG_FAMILIES.names()} {defaults}"
    return find_faults(root.folders, content_digest(examiner.encode()), lambda files: _refused_by_airflow(root, files))


def _refused_by_airflow(root: Root, files: RegisteredFiles) -> Mapping[Path, str]:
    """What Airflow has against ``files``. DAGs that differ in nothing that it could refuse are built once."""
    problems: dict[Path, str] = {}
    accepted_settings: list[DagSettings] = []
    own, *others = _families()
    for rooted_pipeline in root.rooted_pipelines(files):
        try:
            settings = DagSettings.from_pipeline(rooted_pipeline)
            if settings is None or settings not in accepted_settings:
                dags_of(rooted_pipeline, own)
            if settings is not None and settings not in accepted_settings:
                accepted_settings.append(settings)
        except Exception as error:  # as above
            problems[rooted_pipeline.file] = _error_text(rooted_pipeline, error)
        for families in others:
            try:
                dags_of(rooted_pipeline, families)
            except Exception as error:  # as above
                problems[rooted_pipeline.file] = _error_text(rooted_pipeline, error)
    return problems | _retention_dags(root, files)[1]


def _retention_dags(root: Root, files: RegisteredFiles) -> tuple[dict[str, DAG], dict[Path, str]]:
    """The DAGs of retentions with a schedule, and files with a schedule that Airflow refuses."""
    pipelines = root.rooted_pipelines(files)
    dags_by_schedule = retention_dags(root, pipelines)
    dags = {dag.dag_id: dag for dag in dags_by_schedule.values() if isinstance(dag, DAG)}
    refused_files: dict[Path, str] = {}
    for rooted_pipeline in pipelines:
        schedule = retention_schedule(rooted_pipeline)
        if schedule is not None and isinstance(error := dags_by_schedule[schedule], Exception):
            refused_files[rooted_pipeline.file] = _error_text(rooted_pipeline, error)
    return dags, refused_files


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
    def from_pipeline(cls, rooted_pipeline: RootedPipeline) -> "DagSettings | None":
        """None for a pipeline with arguments of tasks that Headrace does not know. Raises AirflowDefaultsError."""
        options, pipeline = options_of(rooted_pipeline), rooted_pipeline.pipeline
        if options.default_args:
            return None
        sinks = [
            (output, sink.name)
            for output, output_pipeline in pipeline.by_output.items()
            for sink in output_pipeline.sinks
        ]
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


def _error_text(rooted_pipeline: RootedPipeline, error: Exception) -> str:
    return f"{rooted_pipeline.file}: {type(error).__name__}: {error}"


def dags_of(rooted_pipeline: RootedPipeline, families: Iterable[str]) -> dict[str, DAG]:
    """The DAGs of a pipeline by DAG id. Raises what Airflow has against one of them, and BrokenEntryPointError."""
    dags = [_dag_of(rooted_pipeline, family) for family in families]
    return {dag.dag_id: dag for dag in dags if dag is not None}


def _dag_of(rooted_pipeline: RootedPipeline, family: str) -> DAG | None:
    dag: DAG | None = DAG_FAMILIES[family].build(rooted_pipeline)
    if dag is not None:
        dag.validate()  # type: ignore[no-untyped-call]
    return dag


class BrokenPipelineFilesError(FixConfigError, code="config.broken_pipeline_files"):
    """Pipeline files that cannot be used, each with the reason."""


def asked_for(file: str | None = None) -> Mapping[str, DAG]:
    """The DAGs of every registered pipeline, and those of decisions, by DAG id; for a task that starts, only the one
    that it belongs to. ``file`` is the ``__file__`` of one that shares the pipelines with those beside it.

    So a task neither builds the DAGs of others nor waits for their files. It raises what is wrong with its own; and
    DagFilesError.
    """
    dag_id, roots_served = get_parsing_context().dag_id, served_roots()
    if dag_id is not None:
        dag = _asked_for_by_a_task(dag_id, roots_served)
        return {} if dag is None else {dag_id: dag}
    dags: dict[str, DAG] = {}
    dag_file = _ONLY_FILE if file is None else DagFile.from_file(file)
    with without_connections(roots_served.roots), without_collection():
        for root in roots_served.roots:
            of_root = build_dags(root, dag_file)
            dags |= {**of_root.dags, **decision_dags(root, of_root.pipelines)}
    collect_seldom()  # Airflow makes of all of them what it stores, and then this process ends
    return dags


def _asked_for_by_a_task(dag_id: str, roots_served: ServedRoots) -> DAG | None:
    decision, owner = decision_of(dag_id), owner_of(dag_id)
    name = decision[0] if decision is not None else owner.root if owner is not None else None
    if name is None:
        return None
    root = roots_served.root_named(name)
    forget_connections(roots_served.roots, but=root.store)
    if decision is not None:  # the form has been checked
        kind = decision[1]
        return retention_dag(root, kind) if is_retention(kind) else _root_dag(root, kind, None)
    return None if owner is None else _dag_of(root.pipeline(owner.pipeline), owner.family)


def raise_broken() -> None:
    """Raise BrokenPipelineFilesError naming every broken file; nothing when there is none, and not for one DAG."""
    if get_parsing_context().dag_id is not None:
        return
    roots_served = served_roots()
    with without_connections(roots_served.roots), without_collection():
        problems = [
            *roots_served.problems,
            *(problem for root in roots_served.roots for problem in broken_files(root).values()),
        ]
    if problems:
        raise BrokenPipelineFilesError("\n".join(problems))
