"""A version that reads other records of a file than the one before: what was recorded is read as it was."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.connectors.files.source import FileReader
from headrace.pipeline.pipeline import Pipeline
from headrace.runs.options import Mode, RunOptions
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.manifest import INPUTS
from headrace_snapshots.store import open_store
from tests.building import change_pipeline
from tests.process.clicks import CLICKS, START
from tests.process.executors import ExecutorUnderTest
from tests.reading import read

CSV_CLICKS: Pipeline = change_pipeline(CLICKS, source=replace(CLICKS.source, format="csv"))
TIME = START.isoformat()
LINES = f'price,user,at,note\n1,ann,{TIME},"she wrote:\n2,bob,{TIME},x\nthanks"\n3,cid,{TIME},\n'
OLD_PRICES, NEW_PRICES = {"bob": 2, "cid": 3}, {"ann": 1, "cid": 3}


def prices(root: str, branch: str) -> dict[str, int]:
    rows = read(CSV_CLICKS, root, "current", branch).to_pylist()
    return {row["user"]: row["spent"] for row in rows}


def rules(root: str, branch: str) -> list[int]:
    catalog = Catalog(open_store(root), CSV_CLICKS.name)
    manifest = catalog.manifest(catalog.head().refs[branch])
    files = [file for record in catalog.file_records(manifest.logs[INPUTS]) for file in record.files]
    return [file.rules for file in files if isinstance(file, InputFile)]


def test_a_replay_reads_as_was_recorded_and_all_else_as_today(
    executor: ExecutorUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, folder = tmp_path.as_uri(), tmp_path / "landing" / "clicks"
    folder.mkdir(parents=True)
    (folder / "1.csv").write_text(LINES)
    with monkeypatch.context() as patch:
        patch.setattr(FileReader, "rules", 0)  # as 0.1.2 recorded it
        executor.process(CSV_CLICKS, root, RunOptions("old", publish=True))
    assert (prices(root, "main"), rules(root, "main")) == (OLD_PRICES, [0])
    executor.process(CSV_CLICKS, root, RunOptions("again", mode=Mode.REPLAY, branch="again"))
    assert (prices(root, "again"), rules(root, "again")) == (OLD_PRICES, [0])

    executor.process(CSV_CLICKS, root, RunOptions("fresh", mode=Mode.BATCH, branch="fresh"))
    assert (prices(root, "fresh"), rules(root, "fresh")) == (NEW_PRICES, [1])
    executor.process(CSV_CLICKS, root, RunOptions("same", mode=Mode.REPLAY, branch="same", from_branch="fresh"))
    assert (prices(root, "same"), rules(root, "same")) == (NEW_PRICES, [1])
    (folder / "2.csv").write_text(LINES.replace("ann", "dan").replace("cid", "eve"))
    executor.process(CSV_CLICKS, root, RunOptions("more", publish=True))
    assert (prices(root, "main"), rules(root, "main")) == ({**OLD_PRICES, "dan": 1, "eve": 3}, [0, 1])
