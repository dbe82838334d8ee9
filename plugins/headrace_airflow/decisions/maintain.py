"""The task that looks after what is stored: old snapshots of pipelines go, and it checks that nothing is missing."""

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator, Context

from headrace import application
from headrace.pipeline.schedules import retention_dag_name
from headrace.runs.reporting.results import redacted
from headrace.terminal import visible
from headrace_airflow.failures import TypedTaskError, error_of_exit_code, headrace_errors
from headrace_airflow.families.options import call, options_of
from headrace_airflow.forms import FormError, check_names
from headrace_airflow.processes import OwnProcess
from headrace_airflow.roots.root import Root, RootedPipeline
from headrace_airflow.roots.store import reaching_store
from headrace_airflow.settings import local_memory

if TYPE_CHECKING:
    from headrace.application.maintain import Maintained, Maintenance

PROGRAM: Final = Path(application.__file__).with_name("maintain.py")
_LESS: Final = "look after one pipeline at a time"

Form = Mapping[str, Any]

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
            asked, pipelines = _asked(form), self._pipelines(form)
        try:
            with reaching_store(self.root):
                maintained = self._maintained(asked, pipelines)
        except Exception as error:
            self._tell(pipelines, {one.name: error for one in pipelines}, context)
            raise
        errors = {name: TypedTaskError(problem) for name, problem in maintained.errors.items()}
        for name, problem in maintained.errors.items():
            self.log.error("%s: %s: %s", name, problem.code, problem.message)
        self._tell(pipelines, errors, context)
        for raised in errors.values():
            raise raised
        return maintained.lines

    def _tell(self, pipelines: Sequence[RootedPipeline], errors: Mapping[str, Exception], context: Context) -> None:
        """Call what each pipeline names as ``on_failure``, if it had an error and this is its retention."""
        for rooted in pipelines if self.retention else ():
            error, reference = errors.get(rooted.name), options_of(rooted).on_failure
            if error is None or reference is None:
                continue
            try:
                call(reference, {**context, "exception": error, "headrace_pipeline": rooted.name})
            except Exception:  # code of a user's own; Airflow goes on after a callback that fails, too
                self.log.exception("on_failure=%r of %s failed", reference, rooted.name)

    def on_kill(self) -> None:
        """End the process."""
        if self._own is not None:
            self._own.stop()

    def _pipelines(self, form: Form) -> list[RootedPipeline]:
        """The pipeline that the form names; else all whose files can be used."""
        if form["pipeline"]:
            return [self.root.pipeline(form["pipeline"])]
        files = self.root.files()
        for problem in files.broken.values():
            self.log.warning("pipelines of a file that cannot be used are left out: %s", problem)
        return [one for one in self.root.rooted(files) if self.retention in (None, _retention_of(one))]

    def _maintained(self, asked: "Maintenance", pipelines: Sequence[RootedPipeline]) -> "Maintained":
        """What the process leaves. Raises TypedTaskError if it ends without that, and what OwnProcess raises."""
        from headrace.application.maintain import Maintained

        self._own = OwnProcess(local_memory(), otherwise=_LESS)
        with TemporaryDirectory() as folder:
            outcome = Path(folder) / "outcome.json"
            options = [f"--root={self.root.uri}", f"--form={json.dumps(asdict(asked))}", f"--outcome={outcome}"]
            command = [sys.executable, str(PROGRAM), *options, *(rooted.reference for rooted in pipelines)]
            ended = self._own.run(command, lambda line: self.log.info("%s", visible(redacted(line))))
            if not ended.well:
                raise TypedTaskError(error_of_exit_code(ended.exit_code, ended.said))
            return Maintained.of_json(outcome.read_text())


def _retention_of(rooted: RootedPipeline) -> str:
    """The name of the DAG that applies its retention; empty if none does."""
    retention = rooted.pipeline.retention
    return "" if retention is None or retention.schedule is None else retention_dag_name(retention.schedule)


def _asked(form: Form) -> "Maintenance":
    """What the form says. Raises FormError if something is wrong with it, before anything is done."""
    from headrace.application.maintain import Maintenance
    from headrace.runs.maintenance import keeping
    from headrace_snapshots.gc.gc_roots import KeepError

    if not (form["expire"] or form["check"]):
        raise FormError("the form says neither to expire nor to check: choose one of them, or both")
    if (form["deep"] or form["repair"]) and not form["check"]:
        raise FormError("deep and repair are ways to check, and the form says not to check")
    try:
        keeping(form["keep_last"] or 1, form["keep_for"] or None)
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
