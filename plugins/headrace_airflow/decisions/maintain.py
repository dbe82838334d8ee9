"""The task that looks after what is stored: old snapshots of pipelines go, and it checks that nothing is missing."""

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Context

from headrace.errors import HeadraceError, RestoreError
from headrace_airflow.forms import FormError, check_names
from headrace_airflow.roots.root import Root, RootedPipeline
from headrace_airflow.roots.store import reaching_store

if TYPE_CHECKING:
    from headrace.runs.client.handle import PipelineHandle

Form = Mapping[str, Any]


class DamagedStoreError(RestoreError):
    """A check found objects that snapshots, readers or runs need, and that are missing or damaged."""

    code = "restore.damaged_store"


class MaintainOperator(BaseOperator):
    """Does for one pipeline, or for all, what the form says, one after the other. An error in one does
    not stop the others.
    """

    def __init__(self, *, root: Root, names: Collection[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.root, self.names = root, names

    def execute(self, context: Context) -> dict[str, list[str]]:
        """What is said of each pipeline, in lines. Raises the first error that there was, after all have had a turn."""
        form = context["params"]
        with reaching_store(self.root):
            check_names(context, self.names)
            _check(form)
            lines_of: dict[str, list[str]] = {}
            errors: list[HeadraceError] = []
            for rooted in self._asked(form):
                lines = lines_of[rooted.name] = []
                try:
                    for line in _maintained(rooted, form):
                        self.log.info("%s: %s", rooted.name, line)
                        lines.append(line)
                except HeadraceError as error:
                    self.log.error("%s: %s: %s", rooted.name, error.code, error)
                    errors.append(error)
            if errors:
                raise errors[0]
        return lines_of

    def _asked(self, form: Form) -> list[RootedPipeline]:
        """The pipeline that the form names; else all whose files can be used."""
        if form["pipeline"]:
            return [self.root.pipeline(form["pipeline"])]
        files = self.root.files()
        for problem in files.broken.values():
            self.log.warning("pipelines of a file that cannot be used are left out: %s", problem)
        return self.root.rooted(files)


def _check(form: Form) -> None:
    """Raise FormError if something is wrong with the form, before anything is done."""
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


def _maintained(rooted: RootedPipeline, form: Form) -> Iterator[str]:
    from headrace.read.roots import check_root
    from headrace.runs.client.handle import PipelineHandle

    catalog = rooted.catalog()
    check_root(catalog.store)
    handle = PipelineHandle(catalog)
    if not catalog.known_head().refs:
        yield "it has not run yet: nothing is stored"
        return
    has_rule = rooted.pipeline.retention is not None or form["pipeline"] or form["keep_last"]
    if form["expire"] and not has_rule:
        yield "nothing expires: it has no retention. Name the pipeline, or say how many snapshots to keep"
    elif form["expire"]:
        yield from _expired(handle, rooted, form)
    if form["check"]:
        yield from _checked(handle, form)


def _expired(handle: "PipelineHandle", rooted: RootedPipeline, form: Form) -> Iterator[str]:
    tags = {"yes": True, "no": False}.get(form["keep_tags"])
    expired = handle.expire(
        rooted.pipeline,
        keep_last=form["keep_last"],
        keep_for=form["keep_for"] or None,
        keep_tags=tags,
        dry_run=form["dry_run"],
    )
    verb = "would be" if expired.dry_run else "are"
    yield (
        f"{expired.swept.objects:,} objects {verb} deleted ({expired.swept.bytes:,} bytes), {expired.marked.objects:,} "
        f"{verb} marked for the next run, {expired.waiting.objects:,} wait for writers of "
        f"{', '.join(expired.writers) or 'no branch'}; {expired.kept:,} snapshots are kept"
    )


def _checked(handle: "PipelineHandle", form: Form) -> Iterator[str]:
    report = handle.fsck(deep=form["deep"], repair=form["repair"] and not form["dry_run"])
    yield f"{report.snapshots:,} snapshots, {report.objects:,} objects of {report.bytes:,} bytes"
    yield f"named by nothing that is kept: {report.unreferenced:,} objects of {report.unreferenced_bytes:,} bytes"
    for path in report.unknown:
        yield f"{path} is of no kind that Headrace stores"
    for problem in report.problems:
        yield f"{problem.path}: {problem.problem}; {'repaired' if problem.is_repaired else problem.remedy}"
    if report.damage:
        raise DamagedStoreError(f"{len(report.damage)} objects are missing or damaged: the log above names each")
    yield "nothing is missing"
