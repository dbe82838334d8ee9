"""Recover: move main back to a snapshot by a catalog entry, then replay what came after it, audit and (if asked)
publish.
"""

from dataclasses import replace

from headrace.engine.types import SparkSession
from headrace.entrypoints.options import RunOptions
from headrace.entrypoints.process import Listener, process
from headrace.entrypoints.results import RunResult
from headrace.errors import FixConfigError
from headrace.pipeline.graph import Pipeline
from headrace.pipeline.registry import resolve
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store


class RecoverOptionsError(FixConfigError):
    """A recovery that does not say where to go back to."""

    code = "config.recover_options"


def main(reference: str, root: str, options: RunOptions) -> RunResult:
    """Recover the pipeline that ``reference`` names (the action of ``submit.py``)."""
    return recover(resolve(reference), root, options)


def recover(
    pipeline: Pipeline,
    root: str,
    options: RunOptions,
    *,
    listener: Listener | None = None,
    spark: SparkSession | None = None,
) -> RunResult:
    """Move ``options.branch`` back to ``options.snapshot``, fencing whoever writes it, and process from there.

    If ``published`` is newer than the snapshot it moves back too, in the same entry. A retry of the same recovery
    finds main already at (or past) the snapshot by its own entry and only goes on replaying.
    """
    if options.snapshot is None:
        raise RecoverOptionsError("a recovery needs the snapshot to go back to; `headrace log` lists their ids")
    catalog = Catalog(open_store(root), pipeline.name)
    if catalog.head().refs.get(options.branch) != options.snapshot:
        catalog.rollback(options.branch, options.snapshot, message=f"recovery {options.run_id}")
    # What full sweeps had found since is below the mark of the snapshot.
    result = process(pipeline, root, replace(options, full_sweep=True), listener=listener, spark=spark)
    return replace(result, action="recover")
