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
    "DryRun": "headrace.runs.dry_run",
    "Entry": "headrace_snapshots.format.entry",
    "Expired": "headrace_snapshots.gc.expiry",
    "Explanation": "headrace.read.explain.explanation",
    "FsckReport": "headrace_snapshots.fsck",
    "GivenUp": "headrace_snapshots.patches",
    "Keep": "headrace_snapshots.gc.gc_roots",
    "LandedLate": "headrace.runs.reprocessing.late",
    "LandedRejected": "headrace.runs.reprocessing.rejected",
    "LatenessPlot": "headrace.observe.plot",
    "LazyView": "headrace.read.views.lazy_view",
    "Lineage": "headrace.read.lineage.lineage",
    "LogEntries": "headrace.read.log_entries",
    "Manifest": "headrace_snapshots.format.manifest",
    "OpenDeployment": "headrace.runs.client.deployment",
    "OutputPosition": "headrace.read.snapshots.output_positions",
    "OutputReader": "headrace.read.pipeline_reader",
    "PatchRehearsal": "headrace.runs.patching.patch",
    "PipelineHandle": "headrace.runs.client.handle",
    "PipelineList": "headrace.read.deployment",
    "Plan": "headrace.read.definition_plan",
    "RecoveryCut": "headrace.runs.following.recovery_cut",
    "Rehearsal": "headrace.runs.publishing.rehearsal",
    "RowsShown": "headrace.read.views.lazy_view",
    "RunError": "headrace.runs.reporting.results",
    "RunResult": "headrace.runs.reporting.results",
    "SinkCheck": "headrace.runs.delivering.checking",
    "SnapshotDiff": "headrace.read.diff.differences",
    "SnapshotGraph": "headrace.read.snapshots.graph",
    "TableComparison": "headrace.read.diff.table_comparison",
}

__all__, __getattr__, __dir__ = imported_when_used(__name__, _HOMES)
