"""The task that lets old snapshots go: it runs in the worker, without Spark, and beside every other task."""

from dataclasses import asdict
from typing import Any

from airflow.sdk import BaseOperator, Context

from headrace_airflow.forms import Form
from headrace_airflow.roots.root import RootedPipeline
from headrace_airflow.roots.store import reaching_store


class ExpireOperator(BaseOperator):
    """Delete what the run before marked, and mark what the form does not keep."""

    def __init__(self, *, rooted: RootedPipeline, form: Form, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rooted, self.form = rooted, form

    def execute(self, context: Context) -> dict[str, Any]:
        """What was deleted, marked and kept; raises what is wrong with the form, or that something kept is damaged."""
        from headrace.read.roots import check_root
        from headrace.runs.maintenance import expire, keeping

        form = context["params"]
        with reaching_store(self.rooted.root):
            self.form.check(context)
            catalog = self.rooted.catalog()
            check_root(catalog.store)
            keep = keeping(form["keep_last"], form["keep_for"] or None, tags=form["keep_tags"])
            expired = expire(catalog, keep, dry_run=form["dry_run"])
        verb = "would be" if expired.dry_run else "are"
        self.log.info(
            "%s objects %s deleted (%s bytes), %s %s marked for the next run, %s wait for writers of %s; "
            "%s snapshots are kept",
            expired.swept.objects,
            verb,
            expired.swept.bytes,
            expired.marked.objects,
            verb,
            expired.waiting.objects,
            ", ".join(expired.writers) or "no branch",
            expired.kept,
        )
        return asdict(expired)
