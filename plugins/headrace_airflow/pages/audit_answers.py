"""Audits as pages show them: what was found, with rows for those who may see them, and Great Expectations' own page."""

from typing import Any, Final

from headrace.audit.store import AuditOutcome, Finding
from headrace.audit.usual.measures import UsualFinding

SANDBOX: Final = {
    "Content-Security-Policy": (
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}
"""Headers of a stored page, which Great Expectations and a bucket have made: it runs no script, loads nothing from
elsewhere, and has no part in the origin of Airflow's UI.
"""

_STYLE: Final = (
    b"<style>:root{color-scheme:light dark}body{font-family:system-ui,sans-serif;margin:2rem}nav,footer,.modal{display:"
    b"none!important}table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #8888;padding:.3rem .6rem;"
    b"text-align:left;vertical-align:top}</style></head>"
)


def audit_to_json(outcome: AuditOutcome, *, with_values: bool) -> dict[str, Any]:
    """An audit; rows and aggregates of values only ``with_values``. ``docs`` are the views that have a page."""
    return {
        "after": outcome.from_snapshot,
        "until": outcome.to_snapshot,
        "output": outcome.output,
        "success": outcome.success,
        "finished_at": outcome.finished_at,
        "rows": {str(view): count for view, count in outcome.rows.items()},
        "docs": sorted({str(finding.view) for finding in outcome.findings}) if with_values else [],
        "findings": [_expectation(finding, with_values=with_values) for finding in outcome.findings],
        "limits": [
            {"limit": finding.describe(), "severity": finding.severity, "released": list(finding.released)}
            for finding in outcome.limits
        ],
        "usual": [
            _usual(finding, with_values=with_values)
            for finding in (() if outcome.usual is None else outcome.usual.findings)
        ],
    }


def _expectation(finding: Finding, *, with_values: bool) -> dict[str, Any]:
    return {
        "expectation": finding.expectation.describe(),
        "success": finding.success,
        "unexpected": finding.unexpected_count,
        "of": finding.element_count,
        "observed": finding.observed if with_values else None,
        "failing": [dict(row) for row in finding.failing] if with_values else [],
        "released": list(finding.released),
    }


def _usual(finding: UsualFinding, *, with_values: bool) -> dict[str, Any]:
    """What was found beside a check against history. Its figures are counts, shares and distances, and no values."""
    return {
        "check": finding.check.describe(),
        "kind": finding.check.kind,
        "bound": finding.check.bound,
        "severity": finding.severity,
        "is_judged": finding.is_judged,
        "said": finding.describe(),
        "observed": finding.observed,
        "usual": finding.usual,
        "versions": finding.versions,
        "failing": [dict(row) for row in finding.failing] if with_values else [],
        "released": list(finding.released),
    }


def styled(page: bytes) -> bytes:
    """``page`` with a style of its own, since it may load none."""
    return page.replace(b"</head>", _STYLE, 1)
