"""How late the elements of a run were, as ``headrace plot`` tells it."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import Pipeline
from headrace.cli.main import app
from headrace.pipeline.loading.registry import resolve_pipeline
from headrace.read.snapshots.epoch_history import EpochFigures
from headrace.runs.options import Mode, RunOptions
from headrace_lab.sizes import set_sizes
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from tests.airflow.subprocesses import write_pipeline
from tests.process.executors import LOCAL, ExecutorUnderTest, on_both
from tests.process.golden_clicks import CLICKS
from tests.process.golden_roots import copy_root
from tests.process.golden_shop import SHOP
from tests.process.golden_tills import TILLS
from tests.reference.strategies import examples

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAIRS = Pipeline(
    "pairs",
    hr.json("landing/left", {"user": str, "at": datetime}).event_time("at", bound="10m"),
    union=[hr.json("landing/right", {"user": str, "at": datetime}).event_time("at", bound="10m").named("right")],
    key="user",
    what={"rows": hr.count()},
    where=hr.FixedWindows("1h"),
)
"""A pipeline with two inputs."""


def write_files(folder: Path, files: Sequence[Sequence[datetime]], name: str = "clicks") -> None:
    """A landing file of each, with these event times."""
    landing = folder / "landing" / name
    landing.mkdir(parents=True)
    for number, times in enumerate(files):
        lines = [json.dumps({"user": f"u{time.minute % 3}", "at": time.isoformat()}) for time in times]
        (landing / f"{number:03}.json").write_text("".join(f"{line}\n" for line in lines))


def quantiles_of(folder: Path, pipeline: Pipeline) -> dict[str, Any]:
    lateness = hr.open(folder.as_uri())[pipeline].plot().to_json()["lateness_seconds"]["behind"]
    assert isinstance(lateness, dict)
    return lateness


def manifests(folder: Path, name: str, branch: str = "main") -> list[Manifest]:
    catalog = Catalog(open_store(folder.as_uri()), name)
    return [*catalog.ancestry(catalog.head().refs[branch], until=None)][::-1]


def test_one_straggler_does_not_decide_the_quantiles(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """Of a hundred elements behind the newest one, 99 lay a minute behind it and one an hour."""
    reference = str(write_pipeline(tmp_path, "clicks"))
    times = [[NOON], [NOON - timedelta(minutes=1)] * 99 + [NOON - timedelta(hours=1)]]
    landing = tmp_path / "landing" / "clicks"
    landing.mkdir(parents=True)
    for number, epoch in enumerate(times):
        lines = [json.dumps({"user": "u", "at": time.isoformat()}) for time in epoch]
        (landing / f"{number}.json").write_text("\n".join(lines))
    executor.process(resolve_pipeline(reference), tmp_path.as_uri(), RunOptions("run", files_per_epoch=1))
    result = CliRunner().invoke(app, ["plot", reference, "--root", tmp_path.as_uri(), "--format", "json"])
    assert result.exit_code == 0, result.output
    lateness = json.loads(result.stdout)["lateness_seconds"]["behind"]
    assert lateness["100%"] == 3600
    assert lateness["90%"] == 60


@on_both
def test_files_of_one_epoch_are_behind_each_other(executor: ExecutorUnderTest, tmp_path: Path) -> None:
    """Each other file is of fifty minutes before: smaller epochs would show it as late, and a bound is chosen by it."""
    pipeline = resolve_pipeline(str(write_pipeline(tmp_path, "clicks")))
    steps = [NOON + timedelta(minutes=number) - timedelta(minutes=50 * (number % 2)) for number in range(21)]
    write_files(tmp_path, [[step] * 5 for step in steps])
    executor.process(pipeline, tmp_path.as_uri(), RunOptions("run"))
    assert [manifest.counts["input_files"] for manifest in manifests(tmp_path, "clicks")] == [21]
    assert quantiles_of(tmp_path, pipeline) == {"50%": 0, "90%": 3000, "99%": 3000, "100%": 3000}


FILES = st.lists(
    st.lists(st.integers(-4000, 4000).map(lambda second: NOON + timedelta(seconds=second)), max_size=60),
    min_size=1,
    max_size=6,
)
CUTS = st.tuples(st.integers(1, 6), st.sampled_from(["1", "2", "3"]), st.sampled_from([64, 2**20]))
"""How many files an epoch has, how many tasks, and from how many bytes on a file has pieces."""


@examples(4)
@given(left=FILES, right=FILES, cuts=CUTS)
def test_no_cut_into_epochs_shares_and_pieces_changes_a_figure(
    left: list[list[datetime]], right: list[list[datetime]], cuts: tuple[int, str, int]
) -> None:
    outcomes = []
    for files_per_epoch, tasks, least in ((1, "1", 2**20), cuts):
        with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            patch.setenv("HEADRACE_TASKS", tasks)
            with set_sizes(least_of_a_file=least):
                root = Path(folder)
                write_files(root, left, "left")
                write_files(root, right, "right")
                LOCAL.process(PAIRS, root.as_uri(), RunOptions("run", files_per_epoch=files_per_epoch))
                outcomes.append(
                    (quantiles_of(root, PAIRS), manifests(root, "pairs")[-1].progress["newest_event_times"])
                )
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(("golden", "pipeline"), [("format-1", CLICKS), ("format-3", SHOP), ("format-3-texts", TILLS)])
def test_epochs_of_older_versions_replay_as_they_were_recorded(golden: str, pipeline: Pipeline, tmp_path: Path) -> None:
    root = copy_root(golden, tmp_path)
    hr.open(root.as_uri())[pipeline].run(mode=Mode.REPLAY, from_branch="main", branch="again")
    recorded_manifests, replayed_manifests = manifests(root, pipeline.name), manifests(root, pipeline.name, "again")
    assert any(manifest.progress["behind"] for manifest in recorded_manifests)
    for was, now in zip(recorded_manifests, replayed_manifests, strict=True):
        assert "behind_by_file" not in was.progress
        assert now.progress["behind"] == was.progress["behind"]
        assert now.progress["newest_event_time"] == was.progress["newest_event_time"]
        assert now.counts == was.counts
        assert {str(int(lag)): count for lag, count in EpochFigures.from_manifest(was).behind.items()} == was.progress[
            "behind"
        ]
