"""What the task *maintain* runs: old snapshots of pipelines go, and a check finds whether anything is missing.

A worker of Airflow is a fork of a process with threads. A thread that is not there may hold a lock in it for ever. So
what opens stores and starts threads has a process of its own, which was not forked.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.errors import HeadraceError, RestoreError
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.pipeline.pipeline import Pipeline
from headrace.read.pipeline_reader import check_root
from headrace.runs.client.handle import PipelineHandle
from headrace.runs.reporting.listener import write_log_line
from headrace.runs.reporting.results import RunError
from headrace.this_process import collect_seldom, end_with_input, exit_with, flush_output
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store


class DamagedStoreError(RestoreError, code="restore.damaged_store"):
    """A check found objects that snapshots, readers or runs need, and that are missing or damaged."""


@dataclass(frozen=True)
class Maintenance:
    """What is done to each pipeline: fields as in the task's form; what is None is as the pipeline says.

    ``is_named``: somebody has named the pipeline, so it expires by the usual rule if it has none of its own.
    """

    expire: bool
    keep_last: int | None
    keep_for: str | None
    keep_tags: bool | None
    check: bool
    deep: bool
    repair: bool
    dry_run: bool
    is_named: bool

    def maintain_pipeline(self, pipeline: Pipeline, root: str) -> Iterator[str]:
        """Do it for one pipeline, and say it in lines. Raises what expiry and check raise, and DamagedStoreError."""
        catalog = Catalog(open_store(root), pipeline.name)
        check_root(catalog.store)
        handle = PipelineHandle(catalog)
        head = catalog.known_head()
        if head.is_whole and not head.refs:  # of a damaged log expiry and check say what is wrong
            yield "it has not run yet: nothing is stored"
            return
        has_rule = pipeline.retention is not None or self.is_named or self.keep_last
        if self.expire and not has_rule:
            yield "nothing expires: it has no retention. Name the pipeline, or say how many snapshots to keep"
        elif self.expire:
            yield self._expire_snapshots(handle, pipeline)
        if self.check:
            yield from self._check_store(handle)

    def _expire_snapshots(self, handle: PipelineHandle, pipeline: Pipeline) -> str:
        result = handle.expire(
            pipeline,
            keep_last=self.keep_last,
            keep_for=self.keep_for,
            keep_tags=self.keep_tags,
            dry_run=self.dry_run,
        )
        verb = "would be" if result.dry_run else "are"
        return (
            f"{result.swept.objects:,} objects {verb} deleted ({result.swept.bytes:,} bytes), "
            f"{result.marked.objects:,} {verb} marked for the next run, {result.waiting.objects:,} wait for writers "
            f"of {', '.join(result.writers) or 'no branch'}; {result.kept:,} snapshots are kept"
        )

    def _check_store(self, handle: PipelineHandle) -> Iterator[str]:
        report = handle.fsck(deep=self.deep, repair=self.repair and not self.dry_run)
        yield f"{report.snapshots:,} snapshots, {report.objects:,} objects of {report.bytes:,} bytes"
        yield f"named by nothing that is kept: {report.unreferenced:,} objects of {report.unreferenced_bytes:,} bytes"
        for path in report.unknown:
            yield f"{path} is of no kind that Headrace stores"
        for problem in report.problems:
            yield f"{problem.path}: {problem.problem}; {'repaired' if problem.is_repaired else problem.remedy}"
        if report.damage:
            raise DamagedStoreError(f"{len(report.damage)} objects are missing or damaged: the log above names each")
        yield "nothing is missing"


@dataclass(frozen=True)
class MaintenanceReport:
    """What was said of each pipeline, and what went wrong with some, by name."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    errors: dict[str, RunError] = field(default_factory=dict)

    @classmethod
    def of_json(cls, text: str) -> "MaintenanceReport":
        document = json.loads(text)
        return cls(document["lines"], {name: RunError(**error) for name, error in document["errors"].items()})

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def main(arguments: list[str]) -> int:
    """Look after each pipeline that ``arguments`` name, one after the other. An error in one does not stop the others.

    The outcome is in a file then; the exit code is 0 whenever it is.
    """
    options = _argument_parser().parse_args(arguments)
    end_with_input()
    maintenance, report = Maintenance(**json.loads(options.form)), MaintenanceReport()
    for reference in options.pipeline:
        name = reference.rpartition(":")[2]
        lines = report.lines[name] = []
        try:
            for line in maintenance.maintain_pipeline(resolve_pipeline(reference), options.root):
                write_log_line(f"{name}: {line}")
                lines.append(line)
        except HeadraceError as error:
            report.errors[name] = RunError.of(error)
    options.outcome.write_text(report.to_json())
    flush_output()
    return 0


def _argument_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipeline", nargs="*", help="path/to/file.py:name")
    parser.add_argument("--root", required=True, help="URI of the deployment's root")
    parser.add_argument("--form", required=True, help="what to do, as JSON: the fields of Maintenance")
    parser.add_argument("--outcome", required=True, type=Path, help="the file that is written at the end")
    return parser


if __name__ == "__main__":
    collect_seldom()
    exit_with(main(sys.argv[1:]))
