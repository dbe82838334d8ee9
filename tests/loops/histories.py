"""Histories of a pipeline with loops: what people do to it between runs, and what each output must be after that.

The oracle computes all edges at once: those of the files that a snapshot has read, without those that its output has
dropped as late or refused.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import col
from headrace.pipeline.identity import recorded_definition
from headrace.read.snapshots.progress import LastStage
from headrace.runs.client.recording import make_change
from headrace.runs.options import RunOptions
from headrace.runs.plan import CutOver
from headrace.runs.process import process
from headrace_lab.actions import backfill, recover
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.manifest import INPUTS, Manifest, OutputTables
from headrace_snapshots.format.output_view import outputs_of, parked_in, seen_by
from headrace_snapshots.fsck import fsck
from headrace_snapshots.store import open_store
from tests.loops.graphs import Edge
from tests.loops.pipelines import LOOPS, SECOND, answers, links
from tests.loops.stopping import stopped_after
from tests.loops.test_crash import START_TIME, land

NAME = "graph"
Rows = Mapping[tuple[int | None, Any], Any]


@dataclass(frozen=True)
class LoopOutput:
    """An output with the loop called ``kind`` in windows of ``width`` seconds (None: one), without edges of the weight
    ``without``.
    """

    kind: str
    width: int | None
    lateness: int
    rounds: int | None
    without: int | None = None

    @property
    def output(self) -> hr.Output:
        where = hr.GlobalWindows() if self.width is None else hr.FixedWindows(f"{self.width}s")
        return hr.Output(
            key=["a", "b"],
            loop=LOOPS[self.kind].with_rounds(self.rounds),
            where=where,
            when=hr.Repeatedly(hr.AfterCount(1)),
            how=hr.retracting(f"{self.lateness}s"),
            filter=None if self.without is None else col("weight") != self.without,
        )

    def takes(self, edge: Edge) -> bool:
        """Whether ``edge`` is none that is filtered, and no dead letter."""
        return edge.weight != self.without and (edge.weight >= 0 or self.kind != "paths")

    def answer(self, edges: Sequence[Edge]) -> Rows:
        """What it must come to of ``edges``."""
        values_by_place = answers(LOOPS[self.kind], filter(self.takes, edges), self.width)
        return {place: value for place, value in values_by_place.items() if value is not None}


@dataclass
class History:
    """A pipeline with these ``outputs`` under ``root``, and all that has landed, by file."""

    root: Path
    outputs: dict[str, LoopOutput]
    bound: str = "0s"
    publishes: bool = True
    formerly: dict[str, str] = field(default_factory=dict)
    landed: dict[str, Sequence[Edge]] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=count)

    @property
    def pipeline(self) -> hr.Pipeline:
        renamed_outputs = {
            name: replace(output.output, formerly=self.formerly.get(name)) for name, output in self.outputs.items()
        }
        plain = hr.Output(key="a", what={"n": hr.count()}, where=hr.GlobalWindows(), when=hr.Always())
        return hr.Pipeline(NAME, links(self.bound), outputs={**renamed_outputs, "plain": plain}, executor="local")

    @property
    def catalog(self) -> Catalog:
        return Catalog(open_store(self.root.as_uri()), NAME)

    @property
    def handle(self) -> Any:
        return hr.open(self.root.as_uri())[NAME]

    @property
    def line(self) -> list[Manifest]:
        """The snapshots of main, oldest first."""
        refs = self.catalog.head().refs
        return [*self.catalog.ancestry(refs["main"])][::-1] if "main" in refs else []

    def land(self, edges: Sequence[Edge]) -> None:
        """A file of ``edges``."""
        number = len(self.landed)
        land(self.root, number, edges)
        self.landed[f"links/{number:04}.jsonl"] = edges

    def run(self, epochs: int | None = None) -> None:
        """A run of so many epochs at most."""
        options = RunOptions(
            f"run-{next(self._numbers)}",
            files_per_epoch=1,
            max_epochs=epochs,
            create=True,
            publish=self.publishes,
        )
        process(self.pipeline, self.root.as_uri(), options)

    def kill(self, writes: int) -> None:
        """A run whose store takes so many ``writes`` and no more."""
        with stopped_after(writes):
            self.run()

    def roll_back(self, epochs: int, files: int | None, *, recovers: bool) -> None:
        """Main goes so many epochs back, as far as outputs were then what they are now; if it ``recovers``, it reads
        again at once what it had read, in epochs of so many files.
        """
        line, now = self.line, recorded_definition(self.pipeline)
        same = [manifest for manifest in line if manifest.definition == now and not parked_in(manifest)]
        if not same:
            return
        snapshot = same[max(0, len(same) - 1 - epochs)].snapshot_id
        if recovers:
            name = f"recovery-{next(self._numbers)}"
            recover(self.pipeline, self.root.as_uri(), RunOptions(name, snapshot=snapshot, files_per_epoch=files))
            self.check("main")
        elif snapshot != line[-1].snapshot_id:
            self.handle.rollback(to=snapshot)

    def turn(self, rounds: int | None) -> None:
        """From now on all loops turn so many rounds in an epoch."""
        self.outputs = {name: replace(output, rounds=rounds) for name, output in self.outputs.items()}

    def rename(self) -> None:
        """The first output gets another name."""
        (old, output), *rest = self.outputs.items()
        new = f"{old}x"
        self.outputs = {new: output, **dict(rest)}
        self.formerly = {new: old}
        self.run(1)  # readers know outputs by the names that main has

    def change(self, omission: int, epochs: int | None) -> None:
        """The last output leaves other edges out, which is computed again while main goes on, and adopted."""
        *rest, (name, output) = self.outputs.items()
        self.outputs = {**dict(rest), name: replace(output, without=omission)}
        if not self.line or parked_in(self.line[-1]):
            return
        self.run(epochs)
        branch = f"again-{next(self._numbers)}"
        options = RunOptions(branch, branch=branch, output=name)
        backfill(self.pipeline, self.root.as_uri(), options)
        self.check(branch, [name])
        make_change(self.catalog, CutOver(branch, name), run_id=branch)
        self.formerly = {}

    def begin_anew(self, files: int | None, *, promote: bool) -> None:
        """A backfill of everything, in epochs of so many files, which main becomes or not."""
        if not self.line:
            return
        branch = f"fill-{next(self._numbers)}"
        options = RunOptions(branch, branch=branch, files_per_epoch=files)
        backfill(self.pipeline, self.root.as_uri(), options)
        self.check(branch)
        accepted_edges = {name: {*self.accepted_edges(name, "main")} for name in self.outputs}
        assert all(accepted_edges[name] <= {*self.accepted_edges(name, branch)} for name in self.outputs), (
            "main took more"
        )
        if promote:
            self.handle.promote(branch)
            self.formerly = {}
        else:
            self.handle.drop(branch)

    def damage(self, table: str) -> None:
        """The newest files of a ``table`` of a loop are lost: a run falls back, where readers have not seen them."""
        if self.publishes:
            return
        for name in self.outputs:
            layers = self.line[-1].tables.get(getattr(OutputTables(name), table)) if self.line else ()
            for layer in (layers or ())[-1:]:
                for file in layer.files:
                    (self.root / file.path).unlink(missing_ok=True)

    def settle(self) -> None:
        """Runs until nothing is in flight, and everything is what it must be."""
        self.run()
        head = self.line[-1]
        assert not any(head.tables.get(OutputTables(name).in_flight) for name in self.outputs)
        assert parked_in(head) == {}
        self.check("main")
        self.check_files()

    def check_files(self) -> None:
        """Nothing is missing that snapshots name."""
        check_catalog(open_store(self.root.as_uri()), NAME)

    def check(self, ref: str, names: Sequence[str] | None = None) -> None:
        """Outputs are what all edges that they have taken come to, unless something is in flight."""
        manifest = self.catalog.manifest(self.catalog.head().refs[ref])
        known_names = [
            name for name in self.outputs if name in outputs_of(manifest) and name not in parked_in(manifest)
        ]
        for name in known_names if names is None else names:
            if not manifest.tables.get(OutputTables(name).in_flight):
                assert self.current(name, ref) == self.outputs[name].answer(self.accepted_edges(name, ref)), (name, ref)

    def current(self, name: str, ref: str) -> dict[tuple[int | None, Any], Any]:
        """The rows of ``current``."""
        rows = self.handle[name].current(at=ref).to_arrow().to_pylist()
        return {(_seconds(row["window_start"]), row["vertex"]): row["value"] for row in rows}

    def accepted_edges(self, name: str, ref: str) -> list[Edge]:
        """The edges that were read and not dropped as late."""
        catalog = self.catalog
        manifest = catalog.manifest(catalog.head().refs[ref])
        records = catalog.file_records(manifest.logs[INPUTS])
        paths = [file.path for record in records for file in record.files if isinstance(file, InputFile)]
        rows = self.handle[name].late(at=ref).to_arrow().to_pylist()
        late = {(row["file"].rpartition("links/")[2], _edge(row["raw"])) for row in rows}
        return [
            edge for path in paths for edge in self.landed[path] if (path.rpartition("links/")[2], edge) not in late
        ]

    def patch(self, files: int | None) -> None:
        """Rows of a backfill in place of those of an output whose windows have expired on both."""
        branch = f"patch-{next(self._numbers)}"
        options = RunOptions(branch, branch=branch, files_per_epoch=files)
        backfill(self.pipeline, self.root.as_uri(), options)
        for name, output in self.outputs.items():
            if output.width is None:
                continue
            main, filled_manifest = (
                seen_by(self.catalog.manifest(self.catalog.head().refs[ref]), name) for ref in ("main", branch)
            )
            stage = LastStage.from_manifest(main)
            assert stage is not None
            expired_until = min(stage.expired_until(main), stage.expired_until(filled_manifest)) // SECOND
            answer_before, answer_after = (output.answer(self.accepted_edges(name, ref)) for ref in ("main", branch))
            if self.current(name, branch) != answer_after:  # something is in flight on the branch
                continue
            self.handle.promote(branch, output=name, patch=True)
            for place, value in self.current(name, "main").items():
                expected = answer_after if (place[0] or 0) + output.width <= expired_until else answer_before
                assert expected[place] == value, (name, place)
            break  # the others would have to be published first
        assert fsck(self.catalog, deep=True).damage == ()


def _seconds(start: Any) -> int | None:
    return None if start is None else int((start - START_TIME).total_seconds())


def _edge(raw: str) -> Edge:
    row = json.loads(raw)
    moment = datetime.fromisoformat(row["at"])
    return Edge(row["a"], row["b"], row["weight"], int((moment - START_TIME).total_seconds()))
