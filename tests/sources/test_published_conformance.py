"""Pipelines as sources keep what the port of sources promises (headrace.testing.connectors), as far as it is theirs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.pipeline.endpoints import Input, Source
from headrace.runs.client.handle import PipelineHandle
from headrace.testing.connectors import SourceConformance, SourceWorld
from headrace.testing.connectors.worlds import COLUMNS
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.names import PUBLISHED, manifest_path
from headrace_snapshots.store import LocalStore


@dataclass
class PublishedWorld(SourceWorld):
    """A pipeline that gives a pane for each record, and publishes what comes at once."""

    folder: Path
    has_unreadable = False  # panes are typed
    landed: int = 0

    @cached_property
    def upstream(self) -> PipelineHandle:
        pipeline = hr.Pipeline(
            "given",
            hr.json("landing/given", COLUMNS).event_time("at", bound="10m"),
            key=["number", "text"],
            what={"at": col("at").max()},
            where=hr.FixedWindows("1m"),
            when=hr.Repeatedly(hr.AfterCount(1)),  # no pane but that of a record
            how=hr.retracting(allowed_lateness="1d"),
            executor="local",
        )
        return hr.open(self.folder.as_uri(), create=True)[pipeline]

    @property
    def source(self) -> Source:
        return self.input.source

    @property
    def input(self) -> Input:
        return hr.published("given", COLUMNS, root=self.folder.as_uri())

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.landed += 1
        landing = self.folder / "landing" / "given"
        landing.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({**row, "at": row["at"].isoformat()}) + "\n" for row in records)
        (landing / f"{self.landed:04}.jsonl").write_text("".join(lines))
        self.upstream.run()

    def lose(self) -> None:
        self.manifest.unlink()

    def alter(self) -> None:
        self.manifest.write_text(self.manifest.read_text().replace("landing/given", "landing/other"))

    @property
    def manifest(self) -> Path:
        """That of the snapshot that is published: the first that a reader has which begins now, and all it has."""
        published_snapshot = Catalog(LocalStore(self.folder), "given").head().refs[PUBLISHED]
        return self.folder / manifest_path("given", published_snapshot)


class TestPublished(SourceConformance):
    executors = ("local",)  # tests/process/test_published.py has it on Spark

    @pytest.fixture
    def world(self, tmp_path: Path) -> SourceWorld:
        folder = tmp_path / "upstream"
        folder.mkdir()
        return PublishedWorld(folder)

    @pytest.mark.parametrize("seed", [0])  # each of its turns is a run
    def test_each_record_is_in_one_split_wherever_a_run_stops(self, world: SourceWorld, seed: int) -> None:
        super().test_each_record_is_in_one_split_wherever_a_run_stops(world, seed)
