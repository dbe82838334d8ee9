"""Audit: what the epochs of a range wrote, held against the pipeline's expectations and against history; kept for
publish.

Great Expectations is imported only when there is something to expect.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TypeVar

from headrace.audit.limits import LimitFinding
from headrace.audit.range import Frame, ReleasedPanes
from headrace.audit.store import AuditOutcome, Finding, succeeds, write_audit
from headrace.audit.usual import UsualAudit, ViewFindings
from headrace.model.time import instant, render
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.quality import Expectation, ExpectationView
from headrace.read.views.columns import View as ReadersView
from headrace.read.views.columns import ViewColumns
from headrace_snapshots.names import audit_folder
from headrace_snapshots.store import ObjectStore

_Found = TypeVar("_Found")


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

    for alone in pipeline.by_output.values():
        columns = ViewColumns.of(alone)
        check(alone.expectations, {view: columns.schema(ReadersView(view.value)).names for view in ExpectationView})


@dataclass(frozen=True)
class Audited:
    """What an audit looks at, and what is expected of it.

    ``frame`` gives the rows of a view: panes of the range's epochs, and the ``current`` rows that they change, without
    those of released panes, which ``find_released`` finds. ``identity``: the columns by which failing rows are named.
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
    audited: Audited,
    limits: tuple[LimitFinding, ...] = (),
    usual: UsualAudit | None = None,
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
    looked_at = _LookedAt.of(store, docs, audited, usual)
    compared = None if usual is None else usual.outcome(looked_at.beside_history)
    outcome = AuditOutcome(
        pipeline=pipeline,
        from_snapshot=from_snapshot,
        to_snapshot=to_snapshot,
        success=succeeds(looked_at.findings, limits, compared),
        findings=looked_at.findings,
        finished_at=render(instant(datetime.now(UTC))),
        rows=looked_at.rows,
        limits=limits,
        usual=compared,
        output=output,
    )
    if usual is not None and compared is not None:
        usual.keep(store, pipeline, compared, output)
    write_audit(store, outcome)
    return outcome


@dataclass(frozen=True)
class _LookedAt:
    """What was found: by expectations, beside history; ``rows`` of each view that was looked at."""

    findings: tuple[Finding, ...]
    beside_history: Mapping[ExpectationView, ViewFindings]
    rows: Mapping[str, int]

    @classmethod
    def of(cls, store: ObjectStore, docs: str, audited: Audited, usual: UsualAudit | None) -> "_LookedAt":
        """Audits each view, and keeps pages of what was found in the folder ``docs``."""
        by_view: dict[ExpectationView, tuple[Finding, ...]] = {}
        beside_history: dict[ExpectationView, ViewFindings] = {}
        rows: dict[str, int] = {}
        for view in ExpectationView:
            expected = [expectation for expectation in audited.expectations if expectation.view == view]
            checked = usual if usual is not None and view in usual.views else None
            if not expected and checked is None:
                continue
            with _held(audited.frame(view, ())) as looked_at:
                rows[view] = looked_at.count()
                if checked is not None:
                    beside_history[view] = checked.look_at(view, looked_at, rows[view], audited.identity)
                if expected:
                    from headrace.audit.gx_runner import evaluate

                    report = evaluate(view, expected, looked_at, audited.identity)
            if checked is not None:
                with_all_rows = beside_history[view]
                beside_history[view] = _usual_without_released(view, checked, with_all_rows, rows[view], audited)
            if expected:
                by_view[view] = _without_released(view, report.findings, rows[view], audited)
                store.write(f"{docs}/{view}.html", report.page)
        return cls(_as_declared(audited.expectations, by_view), beside_history, rows)


@contextmanager
def _held(frame: Frame) -> Iterator[Frame]:
    """``frame``, which is scanned many times inside."""
    frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def _without_released(
    view: ExpectationView, findings: tuple[Finding, ...], rows: int, audited: Audited
) -> tuple[Finding, ...]:
    """``findings`` on so many ``rows``, those that failed as they are without the rows that a person has released."""
    failed = [finding.expectation for finding in findings if not finding.success]
    if not failed:
        return findings

    def evaluated(undecided: Frame, left: int) -> Sequence[Finding]:
        from headrace.audit.gx_runner import evaluate

        return evaluate(view, failed, undecided, audited.identity).findings if left else ()

    of_undecided = _of_undecided(view, rows, audited, evaluated)
    if of_undecided is None:
        return findings
    again = iter(of_undecided)
    return tuple(
        finding if finding.success else replace(next(again, replace(finding, success=True)), released=audited.entries)
        for finding in findings
    )


def _usual_without_released(
    view: ExpectationView, usual: UsualAudit, with_all_rows: ViewFindings, rows: int, audited: Audited
) -> ViewFindings:
    """The findings ``with_all_rows``; what is not as usual, as it is without the rows that a person has released."""
    if all(finding.severity is None for finding in with_all_rows.findings.values()):
        return with_all_rows
    again = _of_undecided(
        view, rows, audited, lambda undecided, left: usual.look_at(view, undecided, left, audited.identity)
    )
    if again is None:
        return with_all_rows
    return with_all_rows.where_far(lambda check: again.findings[check].replace(released=audited.entries))


def _of_undecided(
    view: ExpectationView, rows: int, audited: Audited, look: Callable[[Frame, int], _Found]
) -> _Found | None:
    """What ``look`` finds in the rows that nobody has released, given how many there are; None: it is all ``rows``."""
    if not audited.released:
        return None
    with _held(audited.frame(view, audited.released)) as undecided:
        left = undecided.count()
        return None if left == rows else look(undecided, left)


def _as_declared(
    expectations: Sequence[Expectation], by_view: Mapping[ExpectationView, tuple[Finding, ...]]
) -> tuple[Finding, ...]:
    remaining = {view: iter(findings) for view, findings in by_view.items()}
    return tuple(next(remaining[expectation.view]) for expectation in expectations)
