"""The kit of sources with versions: a feed that keeps what it says passes, and each that does not is found out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.ext.sources import Source
from headrace.testing.connectors import VersionsConformance, VersionsWorld

pytestmark = pytest.mark.slow


@dataclass
class FeedWorld(VersionsWorld):
    """Files of versions, each with its number in the feed. ``breaks``: what is wrong with it."""

    folder: Path
    breaks: str = ""
    said: int = 0

    @property
    def source(self) -> Source:
        schema: dict[str, Any] = {"number": int, "text": str, "at": datetime, "seq": int, "gone": bool}
        deletion = None if self.breaks == "deleted" else col("gone")
        return hr.json(self.folder.as_uri(), schema, versions=hr.upserts("number", "seq", deleted=deletion))

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        lines = []
        for record in records:
            self.said += 1
            seq = 1 if self.breaks == "counter" else self.said
            lines.append(json.dumps({"seq": seq, **record, "at": record["at"].isoformat()}))
        (self.folder / f"{self.said:04}.json").write_text("".join(f"{line}\n" for line in lines))

    def delete(self, records: Sequence[Mapping[str, Any]]) -> None:
        self.append([{**record, "gone": True} for record in records])


class TestFeed(VersionsConformance):
    @pytest.fixture
    def world(self, tmp_path: Path) -> FeedWorld:
        (tmp_path / "feed").mkdir()
        return FeedWorld(tmp_path / "feed")


def test_versions_that_say_no_order_are_found_out(tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir()
    with pytest.raises(AssertionError, match=r"of rows .*1: 'z'.* stand, and .*1: 'c'.* were said last"):
        TestFeed().test_the_version_that_was_said_last_counts_however_runs_cut(
            FeedWorld(tmp_path / "feed", "counter"), tmp_path
        )


def test_deletions_that_nobody_is_told_of_are_found_out(tmp_path: Path) -> None:
    (tmp_path / "feed").mkdir()
    with pytest.raises(AssertionError, match=r"rows met .*'a version without a text'.*None.* held"):
        TestFeed().test_a_row_is_joined_with_the_version_that_held(FeedWorld(tmp_path / "feed", "deleted"), tmp_path)
