"""A dry run says what a run would do, stage by stage, and does nothing of it."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.errors import ChangedPipelineError
from headrace_lab.fault_plans import Operation, disturb_stores
from tests.cli.deployments import PIPELINE_FILE
from tests.process.clicks import CLICKS, clicks, land

WRITING = ("put", "create", "delete")


def files(root: Path) -> dict[str, tuple[bytes, int]]:
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def written_paths() -> Iterator[list[str]]:
    """The paths that stores are asked to write in a test, or to delete."""
    paths: list[str] = []

    def note(operation: Operation) -> None:
        if operation.kind in WRITING:
            paths.append(operation.path)

    with disturb_stores(note):
        yield paths


def test_a_dry_run_says_what_the_run_does_then_and_writes_nothing(tmp_path: Path, written_paths: list[str]) -> None:
    land(tmp_path, 0, 2)
    handle = hr.open(tmp_path.as_uri())[CLICKS]
    handle.run(executor="local")
    land(tmp_path, 2, 5)
    files_before, count = files(tmp_path), len(written_paths)
    assert count > 0, "a run is seen to write"
    dry_run = handle.run(executor="local", dry_run=True)
    assert len(written_paths) == count
    assert files(tmp_path) == files_before
    snapshot = handle.show("main").snapshot_id
    assert [*dry_run.lines()] == [
        f"claim branch main, at snapshot {snapshot}: nobody else writes it then",
        f"restore snapshot {snapshot}, on executor local: asked for",
        "compute epochs: landing/clicks/part-00002.jsonl, landing/clicks/part-00003.jsonl, "
        "landing/clicks/part-00004.jsonl of source",
        "audit what branch main has and readers have not seen",
        "let readers see what the audit of branch main finds good",
    ]
    ran = handle.run(executor="local")
    assert ran.epochs == (2, 3, 4)
    second_dry_run = handle.run(executor="local", dry_run=True)
    assert [stage.word for stage in second_dry_run.stages] == ["audit", "publish"]


def test_a_dry_run_makes_no_root(tmp_path: Path) -> None:
    root = tmp_path / "none"
    with pytest.raises(hr.errors.MissingRootError):
        hr.open(root.as_uri())[CLICKS].run(executor="local", dry_run=True)
    dry_run = hr.open(root.as_uri(), create=True)[CLICKS].run(executor="local", dry_run=True)
    assert [stage.word for stage in dry_run.stages] == ["audit", "publish"]
    assert "source" in dry_run.warnings[0]
    assert not root.exists()


def test_more_than_a_few_files_are_listed_and_json_has_all(tmp_path: Path) -> None:
    land(tmp_path, 0, 25)
    dry_run = hr.open(tmp_path.as_uri())[CLICKS].run(executor="local", dry_run=True, branch="trial")
    lines = [*dry_run.lines()]
    assert lines[2].startswith("compute epochs: 25 splits from landing/clicks/part-00000.jsonl to ")
    assert lines[3] == "  source: landing/clicks/part-00000.jsonl"
    assert lines[23] == "  source: and 5 more"
    (computing,) = (stage for stage in dry_run.to_json()["stages"] if stage["stage"] == "compute")
    assert computing["does"] == lines[2]
    assert computing["reads"] == {"source": [f"landing/clicks/part-{number:05}.jsonl" for number in range(25)]}


def test_what_stands_against_the_run_is_raised_without_it(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    root = hr.open(tmp_path.as_uri())
    root[CLICKS].run(executor="local")
    other = root[clicks(hr.FixedWindows("2h"))]
    with pytest.raises(ChangedPipelineError) as rehearsal_error:
        other.run(executor="local", dry_run=True)
    with pytest.raises(ChangedPipelineError) as ran:
        other.run(executor="local")
    assert str(rehearsal_error.value) == str(ran.value)


def test_the_command_prints_each_stage_on_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clicks.py").write_text(PIPELINE_FILE)
    Path("root").mkdir()
    ran = CliRunner().invoke(app, ["run", "clicks.py", "--root", (tmp_path / "root").as_uri(), "--dry-run"])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines() == [
        "audit what branch main has and readers have not seen",
        "let readers see what the audit of branch main finds good",
    ]
    assert "warning: input source:" in ran.stderr
    assert [*Path("root").iterdir()] == []


def test_a_backfill_and_a_recovery_say_what_they_do_then(tmp_path: Path, written_paths: list[str]) -> None:
    land(tmp_path, 0, 2)
    handle = hr.open(tmp_path.as_uri())[CLICKS]
    first = handle.run(executor="local", max_epochs=1)
    second = handle.run(executor="local")
    files_before, count = files(tmp_path), len(written_paths)
    backfill = handle.backfill(executor="local", branch="again", promote=True, dry_run=True)
    recovery = handle.recover(str(first.snapshot), executor="local", dry_run=True)
    assert len(written_paths) == count
    assert files(tmp_path) == files_before
    assert [*backfill.lines()] == [
        "begin branch again with nothing: all input is read again",
        "claim branch again, which is empty: nobody else writes it then",
        "begin with nothing, on executor local: asked for",
        "compute epochs: again what was read before, and landing/clicks/part-00000.jsonl, "
        "landing/clicks/part-00001.jsonl of source",
        "audit what branch again has and readers have not seen",
        "make branch again main, and publish it, if its audit is good",
    ]
    assert [*recovery.lines()] == [
        f"move branch main back from snapshot {second.snapshot} to {first.snapshot}, and readers to what they could "
        "see then; what came after it is read again",
        f"claim branch main, at snapshot {first.snapshot}: nobody else writes it then",
        f"restore snapshot {first.snapshot}, on executor local: asked for",
        "compute epochs: again what was read before, and landing/clicks/part-00001.jsonl of source",
        "audit what branch main has and readers have not seen",
        "let readers see what the audit of branch main finds good",
    ]


def test_the_log_of_a_backfill_and_of_a_recovery_has_the_same_sentences(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    land(tmp_path, 0, 2)
    handle = hr.open(tmp_path.as_uri())[CLICKS]
    first = str(handle.run(executor="local", max_epochs=1).snapshot)
    handle.run(executor="local")
    for plan, act in [
        (
            handle.backfill(executor="local", branch="again", dry_run=True),
            lambda: handle.backfill(executor="local", branch="again"),
        ),
        (handle.recover(first, executor="local", dry_run=True), lambda: handle.recover(first, executor="local")),
    ]:
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="headrace.runs"):
            act()
        messages = [record.getMessage() for record in caplog.records if record.name == "headrace.runs.process"]
        assert messages == [*plan.lines()]


def test_a_backfill_that_goes_on_says_so_and_one_that_is_refused_is_refused_before_anything_moves(
    tmp_path: Path,
) -> None:
    land(tmp_path, 0, 3)
    handle = hr.open(tmp_path.as_uri())[CLICKS]
    handle.run(executor="local")
    handle.fork("main", "again")
    going_on = [*handle.backfill(executor="local", branch="again", dry_run=True).lines()]
    assert going_on[0] == f"go on with branch again, which has begun with snapshot {handle.show('main').snapshot_id}"
    (tmp_path / "landing" / "clicks" / "part-00000.jsonl").unlink()
    files_before = files(tmp_path)
    with pytest.raises(hr.errors.InputGoneError):
        handle.backfill(executor="local", branch="lost", dry_run=True)
    with pytest.raises(hr.errors.InputGoneError):
        handle.backfill(executor="local", branch="lost")
    assert {name for name in files(tmp_path) if "/log/" in name} == {name for name in files_before if "/log/" in name}


def test_a_delivery_says_what_each_sink_would_hold_and_asks_none(tmp_path: Path) -> None:
    land(tmp_path, 0, 1)
    sinks = [hr.postgres("reports.clicks", connection="nowhere"), hr.delta("clicks", connection="nowhere")]
    handle = hr.open(tmp_path.as_uri())[clicks(sinks=sinks)]
    ran = handle.run(executor="local")
    assert [*handle.deliver(dry_run=True).lines()] == [
        f"make sink {name} hold snapshot {ran.published}, which readers see" for name in ("reports.clicks", "clicks")
    ]
    (one,) = handle.deliver(sinks=["clicks"], refill=True, dry_run=True).lines()
    assert one == f"make sink clicks hold snapshot {ran.published}, which readers see, all of it again"
