"""What a process may be at when a fault hits: a run, and whatever else writes entries of the log.

Each may be done again, wherever it was left, and ends as if it had been done once.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import headrace as hr
from headrace.ext.sinks import FinalRows
from headrace.runs.client.handle import open as open_root
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.listener import Silent
from headrace_lab.actions import backfill
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import FencedError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.names import MAIN, PUBLISHED
from headrace_snapshots.store import ObjectStore, open_store
from tests.faults.scenarios import FAILING_OUTPUT, OUTBOX, PIPELINES, break_brittle


def drain(pipeline: hr.Pipeline, root: str, *, publish: bool = True, listener: Silent | None = None) -> None:
    """Process what has landed, and publish it."""
    options = RunOptions("run", executor="local", publish=publish)
    process(pipeline, root, options, listener=listener)


def overtaken(pipeline: hr.Pipeline, root: str) -> None:
    """A run that somebody overtakes after its first commit, and another that goes on."""

    class Overtaking(Silent):
        def committed(self, manifest: Manifest) -> None:
            Catalog(open_store(root), pipeline.name).claim(MAIN, "somebody")

    with suppress(FencedError):
        drain(pipeline, root, listener=Overtaking())
    drain(pipeline, root)


def moves(pipeline: hr.Pipeline, root: str) -> None:
    """All else that writes entries: a release, a rollback, a backfill that is promoted, and taken back, and another, a
    branch, tags, expiries.

    Tags say what has been done.
    """
    catalog = Catalog(open_store(root), pipeline.name)
    _release_first(pipeline, root, catalog)
    _rolled_back(catalog)
    drain(pipeline, root)
    _tag(catalog, "old", MAIN)
    _replay_on(pipeline, root, catalog, "again")
    _taken_back(catalog)
    _replay_on(pipeline, root, catalog, "anew")
    if "spare" not in catalog.head().generations and "tags/spared" not in catalog.head().refs:
        catalog.fork("spare", catalog.head().refs[MAIN])
    if "tags/spared" not in catalog.head().refs:
        catalog.tag("spared", catalog.head().refs["tags/first"])
    if "spare" in catalog.head().generations:
        catalog.drop("spare")
    for _ in range(2):
        open_root(root)[pipeline.name].expire(keep_last=1)


def patch_main(pipeline: hr.Pipeline, root: str) -> None:
    """Process what has landed, fill a branch that has what was late, and patch main with it."""
    drain(pipeline, root)
    backfill(pipeline, root, RunOptions("run", executor="local", branch="again"))
    open_root(root)[pipeline.name].promote("again", patch=True)


def park_output(pipeline: hr.Pipeline, root: str) -> None:
    """Process and publish what has landed while an output fails; then mend it, and let it catch up."""
    catalog = Catalog(open_store(root), pipeline.name)
    if "tags/parked" not in catalog.head().refs:
        with break_brittle():
            drain(pipeline, root)
        assert "parked" in catalog.manifest(catalog.head().refs[MAIN]).progress["outputs"]["visits"]
        _tag(catalog, "parked", MAIN)
    drain(pipeline, root)


_outbox: list[ObjectStore] = []


def send(rows: FinalRows) -> None:
    """Keep each row by its id, as somebody would who has a mail for each."""
    for row in rows:
        _outbox[-1].write(f"{OUTBOX}/{row['_id']}.json", json.dumps(row, default=str, sort_keys=True).encode())


def handed_over(pipeline: hr.Pipeline, root: str) -> None:
    """Publish some of what has landed, and then all; each time hand over what is final."""
    _outbox.append(open_store(root))
    for most in (2, None):
        process(pipeline, root, RunOptions("run", executor="local", publish=True, max_epochs=most))
        open_root(root)[pipeline].deliver()


def _release_first(pipeline: hr.Pipeline, root: str, catalog: Catalog) -> None:
    """Let all be committed, a person publish it, and the first snapshot have a tag."""
    if "tags/first" in catalog.head().refs:
        return
    drain(pipeline, root, publish=False)
    main = catalog.head().refs[MAIN]
    if catalog.head().refs.get(PUBLISHED) != main:
        catalog.release(main, "as somebody decided")
    *_, first = catalog.lineage(main)
    catalog.tag("first", first.snapshot_id)


def _rolled_back(catalog: Catalog) -> None:
    refs = catalog.head().refs
    if "tags/rolled-back" in refs:
        return
    if refs[MAIN] != refs["tags/first"]:
        catalog.release(refs["tags/first"], "it was so, though it was published with what follows")
        catalog.rollback(MAIN, refs["tags/first"], "all but the first epoch")
    catalog.tag("rolled-back", refs["tags/first"])


def _replay_on(pipeline: hr.Pipeline, root: str, catalog: Catalog, branch: str) -> None:
    if f"tags/{branch}-replayed" in catalog.head().refs:
        return
    backfill(pipeline, root, RunOptions("run", executor="local", branch=branch))
    hr.open(root)[pipeline.name].promote(branch)
    _tag(catalog, f"{branch}-replayed", "tags/first")


def _taken_back(catalog: Catalog) -> None:
    refs = catalog.head().refs
    if "tags/taken-back" in refs:
        return
    if refs[MAIN] != refs["tags/old"]:
        catalog.rollback(MAIN, refs["tags/old"], "the promotion was a mistake")
    _tag(catalog, "taken-back", "tags/old")


def _tag(catalog: Catalog, name: str, ref: str) -> None:
    """Give what ``ref`` leads to the tag, unless there is one."""
    refs = catalog.head().refs
    if f"tags/{name}" not in refs:
        catalog.tag(name, refs[ref])


@dataclass(frozen=True)
class Scenario:
    """A pipeline, and what is done with it."""

    pipeline: hr.Pipeline
    work: Callable[[hr.Pipeline, str], None] = drain

    def run(self, root: str) -> None:
        """Do it in this process."""
        self.work(self.pipeline, root)


SCENARIOS: Mapping[str, Scenario] = {
    **{name: Scenario(pipeline) for name, pipeline in PIPELINES.items()},
    "overtaken": Scenario(PIPELINES["one_stage"], overtaken),
    "moves": Scenario(PIPELINES["two_stages"], moves),
    "patched": Scenario(PIPELINES["one_stage"], patch_main),
    "parked": Scenario(FAILING_OUTPUT, park_output),
    "handed_over": Scenario(
        replace(PIPELINES["one_stage"], sinks=(hr.final_rows("tests.faults.works:send"),)), handed_over
    ),
}
