"""Audit: what the epochs of a range wrote, held against expectations and history, and what was found kept for publish.

Great Expectations is imported only when there is something to expect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import msgspec

from headrace.audit.limits import LimitFinding
from headrace.audit.range import Frame, ReleasedPanes
from headrace.audit.store import AuditOutcome, Finding, is_publishable, write_audit
from headrace.model.time import render, to_instant
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import Expectation, ExpectationView
from headrace.read.views.columns import View as ReadersView
from headrace.read.views.columns import ViewColumns
from headrace_snapshots.names import audit_folder
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    from headrace.audit.usual import UsualAudit, ViewFindings

_Finding = TypeVar("_Finding")


@contextmanager
def expectations_checked(pipeline: Pipeline) -> Iterator[Callable[[], None]]:
    """Looks, beside what is done within, whether the audit could be made of the pipeline's expectations: what that
    imports takes seconds. What it gives waits for the answer, and raises PipelineError if it could not.
    """
    if not any(pipeline.expected.values()):
        yield lambda: None
        return
    with ThreadPoolExecutor(1, thread_name_prefix="expectations") as thread:
        yield thread.submit(_check, pipeline).result


def _check(pipeline: Pipeline) -> None:
    from headrace.audit.gx_runner import check

    for output_pipeline in pipeline.by_output.values():
        columns = ViewColumns.from_pipeline(output_pipeline)
        check(
            output_pipeline.expectations,
            {view: columns.arrow_schema(ReadersView(view.value)).names for view in ExpectationView},
        )


@dataclass(frozen=True)
class AuditSubject:
    """What an audit looks at, and what is expected of it.

    ``frame`` gives the rows of a view: panes of the range's epochs, or the ``current`` rows that they change. Released
    panes, which ``find_released`` finds, are left out. ``identity``: the columns by which failing rows are named.
    """

    expectations: Sequence[Expectation]
    frame: Callable[[ExpectationView, Sequence[ReleasedPanes]], Frame]
    find_released: Callable[[], Sequence[ReleasedPanes]] = tuple
    identity: Sequence[str] = ()

    @cached_property
    def released(self) -> Sequence[ReleasedPanes]:
        """What was released before; looked for once, and only if an expectation fails."""
        return self.find_released()

    @property
    def entries(self) -> tuple[int, ...]:
        """The log entries that released it."""
        return tuple(release.release.entry for release in self.released)


def run_audit(
    *,
    store: ObjectStore,
    pipeline: str,
    from_snapshot: str | None,
    to_snapshot: str,
    subject: AuditSubject,
    limits: tuple[LimitFinding, ...] = (),
    usual: "UsualAudit | None" = None,
    output: str = "",
) -> AuditOutcome:
    """Audit the range (``from_snapshot``, ``to_snapshot``] of an ``output`` of ``pipeline``, keep data docs and then
    the result, and return the outcome. ``limits``: what was found beside the limits. ``usual``: what to hold against
    history.

    A view of which nothing is expected is not asked for. What fails is looked at again without the rows that a person
    has released. A failed expectation is an outcome, no error.
    Raises PipelineError or ExpectationNotEvaluatedError (then nothing is kept).
    """
    docs = f"{audit_folder(pipeline, from_snapshot, to_snapshot, output)}/docs"
    looked_at = _LookedAt.audit_views(store, docs, subject, usual)
    usual_outcome = None if usual is None else usual.outcome(looked_at.beside_history)
    outcome = AuditOutcome(
        pipeline=pipeline,
        from_snapshot=from_snapshot,
        to_snapshot=to_snapshot,
        success=is_publishable(looked_at.findings, limits, usual_outcome),
        findings=looked_at.findings,
        finished_at=render(to_instant(datetime.now(UTC))),
        rows=looked_at.rows,
        limits=limits,
        usual=usual_outcome,
        output=output,
    )
    if usual is not None and usual_outcome is not None:
        usual.keep_figures(store, pipeline, usual_outcome, output)
    write_audit(store, outcome)
    return outcome


class _LookedAt(msgspec.Struct, frozen=True):
    """What was found: by expectations, beside history; ``rows`` of each view that was looked at."""

    findings: tuple[Finding, ...]
    beside_history: "Mapping[ExpectationView, ViewFindings]"
    rows: Mapping[str, int]

    @classmethod
    def audit_views(
        cls, store: ObjectStore, docs: str, subject: AuditSubject, usual: "UsualAudit | None"
    ) -> "_LookedAt":
        """Audits each view, and keeps pages of what was found in the folder ``docs``."""
        by_view: dict[ExpectationView, tuple[Finding, ...]] = {}
        beside_history: dict[ExpectationView, ViewFindings] = {}
        rows: dict[str, int] = {}
        for view in ExpectationView:
            expected = [expectation for expectation in subject.expectations if expectation.view == view]
            usual_of_view = usual if usual is not None and view in usual.views else None
            if not expected and usual_of_view is None:
                continue
            with _keep_persisted(subject.frame(view, ())) as looked_at:
                rows[view] = looked_at.count()
                if usual_of_view is not None:
                    beside_history[view] = usual_of_view.look_at(view, looked_at, rows[view], subject.identity)
                if expected:
                    from headrace.audit.gx_runner import evaluate_expectations

                    report = evaluate_expectations(view, expected, looked_at, subject.identity)
            if usual_of_view is not None:
                with_all_rows = beside_history[view]
                beside_history[view] = _usual_without_released(view, usual_of_view, with_all_rows, rows[view], subject)
            if expected:
                by_view[view] = _without_released(view, report.findings, rows[view], subject)
                store.write(f"{docs}/{view}.html", report.page)
        return cls(_as_declared(subject.expectations, by_view), beside_history, rows)


@contextmanager
def _keep_persisted(frame: Frame) -> Iterator[Frame]:
    """``frame``, which is scanned many times inside."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def _without_released(
    view: ExpectationView, findings: tuple[Finding, ...], rows: int, subject: AuditSubject
) -> tuple[Finding, ...]:
    """``findings`` on so many ``rows``, those that failed as they are without the rows that a person has released."""
    failed_expectations = [finding.expectation for finding in findings if not finding.success]
    if not failed_expectations:
        return findings

    def evaluate_undecided(undecided_rows: Frame, left: int) -> Sequence[Finding]:
        from headrace.audit.gx_runner import evaluate_expectations

        return (
            evaluate_expectations(view, failed_expectations, undecided_rows, subject.identity).findings if left else ()
        )

    of_undecided = _of_undecided(view, rows, subject, evaluate_undecided)
    if of_undecided is None:
        return findings
    new_findings = iter(of_undecided)
    return tuple(
        finding
        if finding.success
        else replace(next(new_findings, replace(finding, success=True)), released=subject.entries)
        for finding in findings
    )


def _usual_without_released(
    view: ExpectationView, usual: "UsualAudit", with_all_rows: "ViewFindings", rows: int, subject: AuditSubject
) -> "ViewFindings":
    """The findings ``with_all_rows``; what is not as usual, as it is without the rows that a person has released."""
    if all(finding.severity is None for finding in with_all_rows.findings.values()):
        return with_all_rows
    new_view_findings = _of_undecided(
        view, rows, subject, lambda undecided_rows, left: usual.look_at(view, undecided_rows, left, subject.identity)
    )
    if new_view_findings is None:
        return with_all_rows
    return with_all_rows.where_far(lambda check: new_view_findings.findings[check].replace(released=subject.entries))


def _of_undecided(
    view: ExpectationView, rows: int, subject: AuditSubject, look: Callable[[Frame, int], _Finding]
) -> _Finding | None:
    """What ``look`` finds in the rows that nobody has released, given how many there are; None: it is all ``rows``."""
    if not subject.released:
        return None
    with _keep_persisted(subject.frame(view, subject.released)) as undecided_rows:
        left = undecided_rows.count()
        return None if left == rows else look(undecided_rows, left)


def _as_declared(
    expectations: Sequence[Expectation], by_view: Mapping[ExpectationView, tuple[Finding, ...]]
) -> tuple[Finding, ...]:
    remaining = {view: iter(findings) for view, findings in by_view.items()}
    return tuple(next(remaining[expectation.view]) for expectation in expectations)
