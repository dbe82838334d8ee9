"""Audit: what the epochs of a range wrote, held against the pipeline's expectations; kept for publish.

Great Expectations is imported only when there is something to expect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

from headrace.audit.frames import Frame
from headrace.audit.store import AuditOutcome, Finding, audit_path, write_audit
from headrace.model.time import instant, render
from headrace.pipeline.expectations import Expectation, View
from headrace.pipeline.graph import Pipeline
from headrace.read.columns import View as ReadersView
from headrace.read.columns import ViewColumns
from headrace_snapshots.store import ObjectStore


@contextmanager
def expectations_checked(pipeline: Pipeline) -> Iterator[Callable[[], None]]:
    """Looks, beside what is done within, whether the audit could be made of the pipeline's expectations: what that
    imports takes seconds. What it gives waits for the answer, and raises PipelineError if it could not.
    """
    if not pipeline.expectations:
        yield lambda: None
        return
    with ThreadPoolExecutor(1, thread_name_prefix="expectations") as thread:
        yield thread.submit(_check, pipeline).result


def _check(pipeline: Pipeline) -> None:
    from headrace.audit.gx_runner import check

    columns = ViewColumns.of(pipeline)
    check(pipeline.expectations, {view: columns.schema(ReadersView(view.value)).names for view in View})


def run_audit(
    *,
    store: ObjectStore,
    pipeline: str,
    expectations: Sequence[Expectation],
    from_snapshot: str | None,
    to_snapshot: str,
    frame: Callable[[View], Frame],
) -> AuditOutcome:
    """Audit the range (``from_snapshot``, ``to_snapshot``] of ``pipeline``, keep data docs and then the result, and
    return the outcome.

    ``frame`` gives the panes of the range's epochs, and the ``current`` rows that they change; a view of which nothing
    is expected is not asked for. A failed expectation is an outcome, no error.
    Raises PipelineError or ExpectationNotEvaluatedError (then nothing is kept).
    """
    found: dict[View, tuple[Finding, ...]] = {}
    rows: dict[View, int] = {}
    for view in View:
        expected = [expectation for expectation in expectations if expectation.view == view]
        if not expected:
            continue
        from headrace.audit.gx_runner import evaluate

        looked_at = frame(view)
        looked_at.persist()
        try:
            rows[view] = looked_at.count()
            report = evaluate(view, expected, looked_at)
        finally:
            looked_at.unpersist()
        found[view] = report.findings
        store.write(f"{audit_path(pipeline, from_snapshot, to_snapshot)}/docs/{view}.html", report.page)
    outcome = AuditOutcome(
        pipeline=pipeline,
        from_snapshot=from_snapshot,
        to_snapshot=to_snapshot,
        success=all(finding.success for findings in found.values() for finding in findings),
        findings=_as_declared(expectations, found),
        finished_at=render(instant(datetime.now(UTC))),
        rows=rows,
    )
    write_audit(store, outcome)
    return outcome


def _as_declared(expectations: Sequence[Expectation], found: Mapping[View, tuple[Finding, ...]]) -> tuple[Finding, ...]:
    remaining = {view: iter(findings) for view, findings in found.items()}
    return tuple(next(remaining[expectation.view]) for expectation in expectations)
