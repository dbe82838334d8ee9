"""Input and what Headrace stores share no folder; and where they do all the same, what is not Headrace's stays."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headrace import Pipeline
from headrace.errors import PipelineError
from headrace.pipeline.pipeline import Pipeline as Graph
from headrace.runs.client.handle import open as open_root
from headrace.runs.dropped_records import land_late, land_rejected
from headrace.runs.options import RunOptions
from headrace.runs.process import process
from headrace.runs.relanding import LandingAgainError
from headrace.runs.reporting.results import write_run_result
from headrace.sources.landing import PlaceError
from headrace_lab.actions import backfill
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.holds import Batch, DeletionList
from headrace_snapshots.protocol.moves import Horizon
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS, land, records

FOREIGN = (
    "data/2026-01-01.jsonl",
    "data/00000000-orders/part-0.parquet",
    "runs/monday.json",
    "runs/monday.jsonl",
    "marks/x.json",
    "manifests/orders.json",
    "index/orders.json",
    "audits/a--b/result.json",
    "audits/2026/audit.json",
    "log/orders.json",
    "orders.json",
)
"""What users may keep where a pipeline keeps its own, one for each kind and more."""


def reading(path: str, name: str = "sales") -> Pipeline:
    source = replace(CLICKS.input, source=replace(CLICKS.source, path=path))
    return replace(CLICKS, name=name, input=source)


def run(pipeline: Graph, root: Path, run_id: str) -> None:
    result = process(pipeline, root.as_uri(), RunOptions(run_id, executor="local", publish=True))
    write_run_result(open_store(root.as_uri()), result)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("sales", "sales/data"),
        ("sales", "sales"),
        ("sales", "/sales/runs/"),
        ("landing", "landing/data"),
        ("sales", "/"),
    ],
)
def test_a_pipeline_is_not_built_over_its_own_folder(name: str, path: str) -> None:
    with pytest.raises(PipelineError, match=rf'the folder {name}/.*"landing/{name}"'):
        reading(path, name)
    reading(f"{name}s/{name}", name)


def test_of_further_inputs_too() -> None:
    weather = replace(reading("landing/weather").input, name="weather")
    assert replace(CLICKS, union=[weather])
    with pytest.raises(PipelineError, match="the folder clicks/"):
        replace(CLICKS, union=[replace(weather, source=replace(weather.source, path="clicks/audits"))])


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["clicks/data", "clicks", "{root}/clicks/runs", "{root}", "{above}", "linked/there", "{linked}/clicks"]
)
def test_a_run_over_the_folder_of_another_pipeline_is_refused(tmp_path: Path, path: str) -> None:
    """Also through links, and where the input holds the whole root."""
    root = tmp_path / "root"
    land(root, 0, 1)
    run(CLICKS, root, "first")
    (root / "linked").symlink_to(root / "clicks")
    (tmp_path / "link").symlink_to(root)
    names = {"root": root.as_uri(), "above": tmp_path.as_uri(), "linked": (tmp_path / "link").as_uri()}
    sales = reading(path.format(**names))
    for action in (process, backfill):
        with pytest.raises(PlaceError, match=r"the folders? of (pipeline (clicks|linked)|all pipelines) under"):
            action(sales, root.as_uri(), RunOptions("run", executor="local"))
    assert not (root / "sales").exists()


@pytest.mark.slow
def test_a_folder_that_holds_input_of_others_becomes_no_pipelines(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    landing = reading("inbox", "landing")
    with pytest.raises(PlaceError, match=r"has not run under .* such as landing/clicks/part-00000.jsonl"):
        run(landing, tmp_path, "first")
    run(CLICKS, tmp_path, "first")
    assert [*open_root(tmp_path.as_uri())] == ["clicks"]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["clicks/data", "other/runs", "{root}/other", "/"])
def test_records_land_again_in_no_folder_of_a_pipeline(tmp_path: Path, target: str) -> None:
    land(tmp_path, 0, 1)
    run(CLICKS, tmp_path, "first")
    run(replace(CLICKS, name="other"), tmp_path, "first")
    for lands in (land_late, land_rejected):
        with pytest.raises(LandingAgainError, match=r"where files are no input: name another landing prefix"):
            lands(CLICKS, tmp_path.as_uri(), destination=target.format(root=tmp_path.as_uri()))


@pytest.mark.slow
def test_nor_by_default(tmp_path: Path) -> None:
    """Late records land below `late/`, which may be the folder of a pipeline."""
    land(tmp_path, 0, 1)
    run(CLICKS, tmp_path, "first")
    run(replace(CLICKS, name="late"), tmp_path, "first")
    with pytest.raises(LandingAgainError, match="pipeline late"):
        land_late(CLICKS, tmp_path.as_uri())
    assert land_rejected(CLICKS, tmp_path.as_uri()).files == 0


@pytest.mark.slow
def test_expiry_and_repairs_leave_what_is_not_headraces(tmp_path: Path) -> None:
    """Also what an expiry of before has marked, when it took all that it found for its own."""
    root, folder = tmp_path.as_uri(), tmp_path / "clicks"
    land(tmp_path, 0, 1)
    run(CLICKS, tmp_path, "first")
    content = "".join(json.dumps(record) + "\n" for record in records(0))
    for path in FOREIGN:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content)
    catalog = Catalog(open_store(root), "clicks")
    head = catalog.head()
    mark = DeletionList(
        catalog.marks.new_id(head.entry + 1, catalog.new_snapshot_id()), (Batch({}, foreign_sizes(folder)),)
    )
    catalog.marks.write(mark)
    catalog.expire(head.entry, Horizon(mark.id), tags=(), idle=(), message="as before")
    history = open_root(root)["clicks"]
    for number in range(1, 5):
        land(tmp_path, number, number + 1)
        run(CLICKS, tmp_path, f"run-{number}")
        history.expire(keep_last=1)
        report = history.fsck(repair=True, deep=True)
        assert set(report.unknown) == {f"clicks/{path}" for path in FOREIGN if path != "runs/monday.json"}
        assert {problem.path for problem in report.problems} == {"clicks/runs/monday.json"}, "a name that runs can have"
    assert history.expire(keep_last=1).swept.snapshots == 1
    assert {path: (folder / path).read_text() for path in FOREIGN} == dict.fromkeys(FOREIGN, content)


def foreign_sizes(folder: Path) -> dict[str, int]:
    return {f"clicks/{path}": (folder / path).stat().st_size for path in FOREIGN}
