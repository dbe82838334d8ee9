"""Types of what methods return, for annotations: nobody makes them, and each is imported when it is first used.

>>> def epochs(result: hr.types.RunResult) -> list[int]:
...     return [*result.epochs]

>>> def shops(view: hr.types.LazyView) -> set[str]:
...     return {row["shop"] for row in view.to_json()}
"""

from headrace import imported_when_used

_HOMES = {
    "CheckReport": "headrace.describe.check",
    "Delivery": "headrace.runs.delivering.deliver",
    "Dependents": "headrace.read.lineage.lineage",
    "DeploymentWaits": "headrace.read.lineage.waits",
    "DryRun": "headrace.runs.plan",
    "Entry": "headrace_snapshots.log",
    "Expired": "headrace_snapshots.expiry",
    "Explanation": "headrace.read.explanation",
    "FsckReport": "headrace_snapshots.fsck",
    "GivenUp": "headrace_snapshots.output_catalog",
    "Join": "headrace.pipeline.joins",
    "Keep": "headrace_snapshots.gc_roots",
    "LandedLate": "headrace.runs.dropped_records",
    "LandedRejected": "headrace.runs.dropped_records",
    "LatenessPlot": "headrace.observe.lateness",
    "LazyView": "headrace.read.views.lazy_view",
    "Lineage": "headrace.read.lineage.lineage",
    "LogEntries": "headrace.read.snapshots.catalog_log",
    "Manifest": "headrace_snapshots.format.manifest",
    "OpenDeployment": "headrace.runs.client.handle",
    "OutputPosition": "headrace.read.snapshots.progress",
    "OutputReader": "headrace.read.pipeline_reader",
    "PatchRehearsal": "headrace.runs.publishing.patch",
    "PipelineHandle": "headrace.runs.client.handle",
    "PipelineList": "headrace.read.deployment",
    "Plan": "headrace.read.definition_plan",
    "RecoveryCut": "headrace.runs.recovery_target",
    "Rehearsal": "headrace.runs.publishing.promotion",
    "RowsShown": "headrace.read.views.lazy_view",
    "RunError": "headrace.runs.reporting.results",
    "RunResult": "headrace.runs.reporting.results",
    "SinkCheck": "headrace.runs.delivering.checking",
    "SnapshotDiff": "headrace.read.diff.comparison",
    "SnapshotGraph": "headrace.read.snapshots.catalog_log",
    "TableComparison": "headrace.read.diff.target_comparison",
}

__all__, __getattr__, __dir__ = imported_when_used(__name__, _HOMES)
