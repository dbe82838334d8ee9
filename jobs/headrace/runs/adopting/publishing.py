"""Publishing what main has adopted, by the graph, once it is audited."""

from dataclasses import replace

from headrace.runs.adopting.scope import AdoptedOutputs
from headrace.runs.publishing.planned_publish import PlannedPublish
from headrace.runs.publishing.publish import output_results
from headrace.runs.reporting.results import RunResult
from headrace.runs.reporting.summary_renewal import renew_summary
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.output_view import upstream_of
from headrace_snapshots.refs import MAIN


def published(catalog: Catalog, result: RunResult, output: str, run_id: str) -> RunResult:
    """The ``result`` of an adoption of ``output`` by main, once what its audits found good is published, of all
    outputs: readers of one see it no further than readers of what it is computed of. What waits is a warning.

    Raises AuditFailedError, AuditMissingError of what was adopted.
    """
    head = catalog.head().refs[MAIN]
    planned = PlannedPublish.of(catalog, head)
    if planned.publish(run_id) is not None:
        renew_summary(catalog)
    adopted = AdoptedOutputs.of(catalog.pipeline, upstream_of(planned.head), output).adopted
    own = replace(planned, asked=frozenset(adopted))
    own.check(may_wait=True)
    return replace(
        result,
        published=catalog.published_by_all(catalog.head().refs),
        outputs=output_results(catalog, planned.audits),
        warnings=(*result.warnings, *own.notes),
    )
