"""What type checkers know of headrace.types: written by ``python -m scripts.stubs --write``."""

from headrace.describe.check import CheckReport as CheckReport
from headrace.observe.lateness import LatenessPlot as LatenessPlot
from headrace.pipeline.joins import Join as Join
from headrace.read.definition_plan import Plan as Plan
from headrace.read.deployment import PipelineList as PipelineList
from headrace.read.diff.comparison import SnapshotDiff as SnapshotDiff
from headrace.read.diff.target_comparison import TableComparison as TableComparison
from headrace.read.explanation import Explanation as Explanation
from headrace.read.lineage.lineage import Dependents as Dependents
from headrace.read.lineage.lineage import Lineage as Lineage
from headrace.read.lineage.waits import DeploymentWaits as DeploymentWaits
from headrace.read.pipeline_reader import OutputReader as OutputReader
from headrace.read.snapshots.catalog_log import LogEntries as LogEntries
from headrace.read.snapshots.catalog_log import SnapshotGraph as SnapshotGraph
from headrace.read.snapshots.progress import OutputPosition as OutputPosition
from headrace.read.views.lazy_view import LazyView as LazyView
from headrace.read.views.lazy_view import RowsShown as RowsShown
from headrace.runs.client.handle import OpenDeployment as OpenDeployment
from headrace.runs.client.handle import PipelineHandle as PipelineHandle
from headrace.runs.delivering.checking import SinkCheck as SinkCheck
from headrace.runs.delivering.deliver import Delivery as Delivery
from headrace.runs.dropped_records import LandedLate as LandedLate
from headrace.runs.dropped_records import LandedRejected as LandedRejected
from headrace.runs.plan import DryRun as DryRun
from headrace.runs.publishing.patch import PatchRehearsal as PatchRehearsal
from headrace.runs.publishing.promotion import Rehearsal as Rehearsal
from headrace.runs.recovery_target import RecoveryCut as RecoveryCut
from headrace.runs.reporting.results import RunError as RunError
from headrace.runs.reporting.results import RunResult as RunResult
from headrace_snapshots.expiry import Expired as Expired
from headrace_snapshots.format.manifest import Manifest as Manifest
from headrace_snapshots.fsck import FsckReport as FsckReport
from headrace_snapshots.gc_roots import Keep as Keep
from headrace_snapshots.log import Entry as Entry
from headrace_snapshots.output_catalog import GivenUp as GivenUp

__all__: list[str]
