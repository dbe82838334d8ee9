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
from headrace.runs.reporting.results import redacted
from headrace_airflow.failures import TypedTaskError, error_of_exit_code
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


class MaintainOperator(BaseOperator):
    """Does for one pipeline, or for all, what the form says, in a process of its own, one after the other. An error in
    one does not stop the others.
    """

    def __init__(self, *, root: Root, names: Collection[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root, self.names = root, names
        self._own: OwnProcess | None = None

    def execute(self, context: Context) -> dict[str, list[str]]:
        """What is said of each pipeline, in lines. Raises the first error that there was, after all have had a turn."""
        form = context["params"]
        with reaching_store(self.root):
            check_names(context, self.names)
            maintained = self._maintained(_asked(form), self._pipelines(form))
        for name, error in maintained.errors.items():
            self.log.error("%s: %s: %s", name, error.code, error.message)
        for error in maintained.errors.values():
            raise TypedTaskError(error)
        return maintained.lines

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
        return self.root.rooted(files)

    def _maintained(self, asked: "Maintenance", pipelines: Sequence[RootedPipeline]) -> "Maintained":
        """What the process leaves. Raises TypedTaskError if it ends without that, and what OwnProcess raises."""
        from headrace.application.maintain import Maintained

        self._own = OwnProcess(local_memory(), otherwise=_LESS)
        with TemporaryDirectory() as folder:
            outcome = Path(folder) / "outcome.json"
            options = [f"--root={self.root.uri}", f"--form={json.dumps(asdict(asked))}", f"--outcome={outcome}"]
            command = [sys.executable, str(PROGRAM), *options, *(rooted.reference for rooted in pipelines)]
            ended = self._own.run(command, lambda line: self.log.info("%s", redacted(line)))
            if not ended.well:
                raise TypedTaskError(error_of_exit_code(ended.exit_code, ended.said))
            return Maintained.of_json(outcome.read_text())


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
