"""Which executor a run takes: the decision itself, what it is made of, and what a run tells of it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace import Pipeline, SparkFunction
from headrace.cli.main import app
from headrace.errors import NotInstalledError, PipelineError
from headrace.ext.executors import EXECUTORS, Execution
from headrace.own_parts import EXTRAS
from headrace.pipeline.scheduling import ExecutorDecision
from headrace.read.views.columns import View
from headrace.runs.executors.choice import Bounds, WorkEstimate, choose, fitting_executor, work_of
from headrace.runs.options import Mode, RunOptions
from headrace.runs.process import process
from headrace.runs.reporting.listener import LineListener
from headrace.runs.reporting.results import RunAction, from_json, to_json
from headrace.this_process import SizeError, shown_size, size_in
from headrace_lab.actions import audit
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from tests.building import change_pipeline
from tests.cli.deployments import PIPELINE_FILE
from tests.process.clicks import CLICKS, FILES, MODEST, clicks, land
from tests.process.executors import ExecutorUnderTest, SparkStandIn, on_spark
from tests.reading import read

BOUNDS = Bounds(input=1000, state=500)
AUTO = replace(CLICKS, executor="auto")


def fail_if_asked() -> WorkEstimate:
    raise AssertionError("nobody has to look at the work")


def with_spark_code(pipeline: Pipeline) -> Pipeline:
    function = SparkFunction("tests.engine.spark_transforms:same", pipeline.source.schema, deterministic=True)
    return change_pipeline(pipeline, source=replace(pipeline.source, transform=function))


@pytest.mark.parametrize(
    ("own", "requested_executor", "choice"),
    [
        ("spark", None, ExecutorDecision("spark", "the pipeline's own")),
        ("local", None, ExecutorDecision("local", "the pipeline's own")),
        ("local", "spark", ExecutorDecision("spark", "asked for")),
        ("auto", "local", ExecutorDecision("local", "asked for")),
    ],
)
def test_what_is_asked_for_comes_before_the_pipelines_own(
    own: str, requested_executor: str, choice: ExecutorDecision
) -> None:
    assert choose(replace(CLICKS, executor=own), requested_executor, fail_if_asked) == choice


def test_whoever_chose_before_the_run_says_why() -> None:
    assert choose(CLICKS, "local", fail_if_asked, "auto: little to do").reason == "auto: little to do"


@pytest.mark.parametrize(
    ("work_before", "executor", "reason"),
    [
        (WorkEstimate(0), "local", "0 bytes of new input and 0 bytes of state"),
        (WorkEstimate(1000, 500), "local", "1000 bytes of new input and 500 bytes of state"),
        (
            WorkEstimate(1001, 500),
            "spark",
            "1001 bytes of new input are more than 1000 bytes (HEADRACE_AUTO_INPUT)",
        ),
        (WorkEstimate(1000, 501), "spark", "501 bytes of state are more than 500 bytes (HEADRACE_AUTO_STATE)"),
    ],
)
def test_auto_takes_what_fits_and_says_why(work_before: WorkEstimate, executor: str, reason: str) -> None:
    choice = fitting_executor(AUTO, work_before, BOUNDS)
    assert choice.name is executor
    assert choice.reason.startswith("auto: ")
    assert reason in choice.reason
    assert "\n" not in choice.reason


def test_auto_never_takes_spark_code_anywhere_else() -> None:
    choice = fitting_executor(with_spark_code(AUTO), WorkEstimate(0), BOUNDS)
    assert choice == ExecutorDecision(
        "spark", "auto: the pipeline names Spark code, tests.engine.spark_transforms:same"
    )


def test_bounds_are_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Bounds.from_environment() == Bounds(256 * 2**20, 2**30)
    monkeypatch.setenv("HEADRACE_AUTO_INPUT", "0")
    monkeypatch.setenv("HEADRACE_AUTO_STATE", "3m")
    assert Bounds.from_environment() == Bounds(0, 3 * 2**20)
    monkeypatch.setenv("HEADRACE_AUTO_INPUT", "much")
    with pytest.raises(SizeError, match="HEADRACE_AUTO_INPUT=much: write a number of bytes"):
        Bounds.from_environment()


@pytest.mark.parametrize(
    ("text", "size"), [("17", 17), ("1k", 1024), ("512m", 2**29), ("4G", 2**32), ("1tb", 2**40), (" 2 ", 2), ("", None)]
)
def test_sizes_are_written_as_javas(monkeypatch: pytest.MonkeyPatch, text: str, size: int | None) -> None:
    monkeypatch.setenv("SOME_SIZE", text)
    assert size_in("SOME_SIZE") == size


@pytest.mark.parametrize("text", ["-1", "1.5g", "g", "1x", "one"])
def test_what_is_no_size_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SOME_SIZE", text)
    with pytest.raises(SizeError):
        size_in("SOME_SIZE")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KB"),
        (2**28, "256 MB"),
        (2**30 - 1, "1,023 MB"),
        (5 * 2**40, "5,120 GB"),
    ],
)
def test_sizes_are_told_with_three_digits(size: int, text: str) -> None:
    assert shown_size(size) == text


def test_an_executor_that_there_is_not_is_refused() -> None:
    with pytest.raises(PipelineError, match=r"executor='yarn'\): write one of \"spark\", \"local\", \"auto\""):
        replace(CLICKS, executor="yarn")  # type: ignore[arg-type]


def head(root: Path, branch: str = "main") -> Manifest:
    catalog = Catalog(open_store(root.as_uri()), CLICKS.name)
    return catalog.manifest(catalog.head().refs[branch])


def state_bytes(manifest: Manifest) -> int:
    return sum(file.bytes for layer in manifest.tables["state"] for file in layer.files)


def landed_bytes(root: Path, first: int = 0) -> int:
    return sum(file.stat().st_size for file in sorted((root / "landing/clicks").iterdir())[first:])


def work(root: Path, action: RunAction, branch: str = "main", snapshot: str | None = None) -> WorkEstimate:
    return work_of(action, CLICKS, root.as_uri(), branch=branch, snapshot=snapshot, full_sweep=False)


def test_the_work_is_what_has_landed_behind_the_state(tmp_path: Path) -> None:
    land(tmp_path)
    root = tmp_path.as_uri()
    assert work(tmp_path, "process") == WorkEstimate(landed_bytes(tmp_path))
    first = process(CLICKS, root, RunOptions("first", executor="local", max_epochs=2))
    process(CLICKS, root, RunOptions("second", executor="local"))
    land(tmp_path, FILES, FILES + 2)
    state = state_bytes(head(tmp_path))
    assert state > 0
    assert work(tmp_path, "process") == WorkEstimate(landed_bytes(tmp_path, FILES), state)
    assert work(tmp_path, "recover", snapshot=first.snapshot).input == landed_bytes(tmp_path, 2)
    assert work(tmp_path, "backfill", branch="backfill") == WorkEstimate(landed_bytes(tmp_path))
    auditing = work(tmp_path, "audit")
    assert auditing.state == 0
    assert auditing.input > sum(file.bytes for layer in head(tmp_path).tables["current"] for file in layer.files)


@pytest.mark.slow
def test_a_head_that_cannot_be_read_is_sized_by_what_is_below_it(tmp_path: Path) -> None:
    land(tmp_path)
    root = tmp_path.as_uri()
    process(CLICKS, root, RunOptions("first", executor="local", max_epochs=4))
    manifest_below = head(tmp_path)
    process(CLICKS, root, RunOptions("second", executor="local"))
    store = open_store(root)
    store.write(f"clicks/manifests/{head(tmp_path).snapshot_id}.json", b"no manifest")
    assert work(tmp_path, "process") == WorkEstimate(landed_bytes(tmp_path, 4), state_bytes(manifest_below))


def test_a_run_under_auto_says_what_it_took_and_why(tmp_path: Path) -> None:
    land(tmp_path)
    reported_lines: list[str] = []
    result = process(AUTO, tmp_path.as_uri(), RunOptions("first"), listener=LineListener(reported_lines.append))
    assert result.executor is not None
    assert result.executor.name == "local"
    assert reported_lines[0] == f"executor local: {result.executor.reason}"
    assert from_json(to_json(result)) == result
    land(tmp_path, FILES, FILES + 1)
    second_result = process(AUTO, tmp_path.as_uri(), RunOptions("again"))
    assert second_result.epochs == (FILES,)


@pytest.mark.slow  # imports Great Expectations
def test_auto_does_for_replays_batches_and_audits(tmp_path: Path) -> None:
    land(tmp_path)
    root = tmp_path.as_uri()
    pipeline = replace(clicks(expectations=MODEST), executor="auto")
    process(AUTO, root, RunOptions("first"))
    second_result = process(pipeline, root, RunOptions("again", mode=Mode.REPLAY, branch="again"))
    batch = process(pipeline, root, RunOptions("batch", mode=Mode.BATCH, branch="batch"))
    audited_result = audit(pipeline, root, RunOptions("audited"))
    for result in (second_result, batch, audited_result):
        assert result.executor is not None
        assert result.executor.name == "local"
    assert audited_result.audit is not None
    assert audited_result.audit.success


def test_too_much_input_goes_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path)
    monkeypatch.setenv("HEADRACE_AUTO_INPUT", "1k")
    taken_names: list[str] = []

    class StopError(Exception):
        pass

    def on_spark(*_: object) -> Execution:
        raise StopError

    stopping = EXECUTORS.replace_part("spark", replace(EXECUTORS["spark"], open=on_spark))
    with stopping, pytest.raises(StopError):
        process(AUTO, tmp_path.as_uri(), RunOptions("first"), listener=LineListener(taken_names.append))
    assert taken_names[0].startswith("executor spark: auto: ")
    assert "of new input are more than 1 KB" in taken_names[0]


def executors(root: Path, branch: str = "main") -> list[object]:
    """That of each epoch, as its snapshot says."""
    catalog = Catalog(open_store(root.as_uri()), CLICKS.name)
    head = catalog.head().refs[branch]
    return [manifest.progress["executor"] for manifest in catalog.ancestry(head)][::-1]


def land_as_much_again(root: Path, file: int) -> None:
    """Give a landed file 20 KB of records that mean nothing."""
    with (root / f"landing/clicks/part-{file:05d}.jsonl").open("a") as lines:
        lines.writelines(json.dumps({"user": None, "at": "never", "price": None}) + "\n" for _ in range(400))


def assert_equal_views(one: Path, other: Path) -> None:
    for view in View:
        mine, yours = (read(CLICKS, root.as_uri(), view, "main").to_pylist() for root in (one, other))
        assert sorted(map(repr, mine)) == sorted(map(repr, yours))
        assert mine or view is View.LATE


@pytest.fixture
def spark_begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """When Spark began, in runs of this test."""
    monkeypatch.setenv("HEADRACE_AUTO_INPUT", "12k")
    with SparkStandIn.stand_in() as starts:
        yield starts


def test_spark_starts_before_the_first_epoch_that_needs_it(tmp_path: Path, spark_begun: list[str]) -> None:
    land(tmp_path)
    land_as_much_again(tmp_path, 2)
    reported_lines: list[str] = []
    result = process(AUTO, tmp_path.as_uri(), RunOptions("first"), listener=LineListener(reported_lines.append))
    assert executors(tmp_path) == ["local", "local", "tasks", "tasks", "tasks"]
    assert result.executor is not None
    assert result.executor.name == "spark"
    assert result.executor.reason.endswith("more than 12 KB (HEADRACE_AUTO_INPUT), from epoch 2 on")
    assert [line.split(":")[0] for line in reported_lines if line.startswith("executor")] == [
        "executor local",
        "executor spark",
    ]
    assert spark_begun == ["begun"]
    land(tmp_path / "alone")
    land_as_much_again(tmp_path / "alone", 2)
    process(CLICKS, (tmp_path / "alone").as_uri(), RunOptions("first", executor="local"))
    assert_equal_views(tmp_path, tmp_path / "alone")


def test_much_input_in_small_epochs_needs_no_spark(tmp_path: Path, spark_begun: list[str]) -> None:
    land(tmp_path)
    assert landed_bytes(tmp_path) > 12 * 1024
    result = process(AUTO, tmp_path.as_uri(), RunOptions("first"))
    assert (executors(tmp_path), spark_begun) == (["local"] * FILES, [])
    assert result.executor is not None
    assert result.executor.name == "local"
    replay = process(AUTO, tmp_path.as_uri(), RunOptions("replay", mode=Mode.REPLAY, branch="again"))
    assert (len(replay.epochs), spark_begun) == (FILES, [])
    process(AUTO, tmp_path.as_uri(), RunOptions("batch", mode=Mode.BATCH, branch="batch"))
    assert (executors(tmp_path, "batch"), spark_begun) == (["tasks"], ["begun"])


def test_state_that_grows_in_a_run_turns_it_to_spark(
    tmp_path: Path, spark_begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path)
    process(CLICKS, tmp_path.as_uri(), RunOptions("first", executor="local", max_epochs=1))
    monkeypatch.setenv("HEADRACE_AUTO_STATE", str(state_bytes(head(tmp_path))))
    result = process(AUTO, tmp_path.as_uri(), RunOptions("second"))
    assert executors(tmp_path) == ["local", "local", "tasks", "tasks", "tasks"]
    assert result.executor is not None
    assert "of state are more than" in result.executor.reason
    land(tmp_path / "alone")
    process(CLICKS, (tmp_path / "alone").as_uri(), RunOptions("first", executor="local"))
    rows = [read(CLICKS, root.as_uri(), branch="main").to_pylist() for root in (tmp_path, tmp_path / "alone")]
    assert sorted(map(repr, rows[0])) == sorted(map(repr, rows[1])) != []


def test_what_is_asked_for_stays(tmp_path: Path, spark_begun: list[str]) -> None:
    land(tmp_path)
    land_as_much_again(tmp_path, 2)
    process(AUTO, tmp_path.as_uri(), RunOptions("first", executor="local"))
    assert (executors(tmp_path), spark_begun) == (["local"] * FILES, [])


def test_epochs_before_a_spark_that_is_not_installed_stay(
    tmp_path: Path, spark_begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    land(tmp_path)
    land_as_much_again(tmp_path, 2)
    monkeypatch.setitem(EXTRAS, "spark", ("pyspark_that_is_not_here",))
    with pytest.raises(NotInstalledError, match="executor spark"):
        process(AUTO, tmp_path.as_uri(), RunOptions("first"))
    assert executors(tmp_path)[0] == "local"
    assert spark_begun == []
    second_result = process(AUTO, tmp_path.as_uri(), RunOptions("again", executor="local"))
    assert second_result.epoch == FILES - 1


@on_spark
def test_a_run_turns_to_a_real_spark(
    tmp_path: Path, executor: ExecutorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_AUTO_INPUT", "12k")
    for root in (tmp_path, tmp_path / "alone"):
        land(root)
        land_as_much_again(root, 2)
    result = process(AUTO, tmp_path.as_uri(), RunOptions("first"), spark=executor.spark)
    assert executors(tmp_path) == ["local", "local", "spark", "spark", "spark"]
    process(CLICKS, (tmp_path / "alone").as_uri(), RunOptions("first", executor="local"))
    assert_equal_views(tmp_path, tmp_path / "alone")
    assert from_json(to_json(result)) == result


def test_the_command_line_takes_every_executor(tmp_path: Path) -> None:
    (tmp_path / "clicks.py").write_text(PIPELINE_FILE)
    (tmp_path / "landing/clicks").mkdir(parents=True)
    (tmp_path / "landing/clicks/a.jsonl").write_text('{"user": "ann", "at": "2026-01-01T00:00:00Z", "amount": 1}\n')
    command = ["run", str(tmp_path / "clicks.py"), "--root", tmp_path.as_uri(), "--format", "json", "--executor"]
    auto_result = CliRunner().invoke(app, [*command, "auto"])
    result = json.loads(auto_result.stdout)
    assert result["executor"]["name"] == "local"
    assert auto_result.stderr.splitlines()[0] == f"executor local: {result['executor']['reason']}"
    second_result = json.loads(CliRunner().invoke(app, [*command, "local"]).stdout)
    assert (second_result["executor"], second_result["epochs"]) == ({"name": "local", "reason": "asked for"}, [])
