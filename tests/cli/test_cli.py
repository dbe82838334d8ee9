"""The command line: its output for people and machines, its exit codes, and what it does not import."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.distribute.watermark_inputs import lags_of
from headrace.model.time import Duration, Instant
from headrace.observe.lateness import count_by_lag, quantiles_of_counts
from headrace.read.snapshots.epoch_history import EpochFigures
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.store import open_store
from tests.airflow.subprocesses import write_pipeline
from tests.cli.deployments import Deployment, pane
from tests.cli.test_replay_late import late, raw


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    made_deployment = Deployment(tmp_path)
    made_deployment.commit(panes=[pane("ann", 1, 2), pane("bob", 1, 1500)])
    made_deployment.commit(panes=[pane("ann", 1, 2, retraction=True), pane("ann", 1, 3, index=1)])
    return made_deployment


def headrace(deployment: Deployment, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--root", deployment.root])


def parse_output(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.slow
def test_read_prints_tables_and_json(deployment: Deployment) -> None:
    text = headrace(deployment, "read", deployment.reference, "--at", "main")
    assert text.exit_code == 0
    assert "1,500" in text.stdout
    assert "2026-03-01 01:00:00Z" in text.stdout
    assert "2 of 2 rows of current at main" in text.stderr
    rows = parse_output(headrace(deployment, "read", deployment.reference, "--at", "main", "--format", "json"))
    assert [(r["user"], r["clicks"], r["amount"], r["window_start"]) for r in rows] == [
        ("ann", 3, None, "2026-03-01T01:00:00Z"),
        ("bob", 1500, None, "2026-03-01T01:00:00Z"),
    ]


@pytest.mark.slow
def test_read_takes_whatever_names_a_snapshot(deployment: Deployment) -> None:
    first = deployment.catalog.head().refs["main"]
    deployment.commit(panes=[pane("cid", 2, 7)])
    second = deployment.catalog.head().refs["main"]
    release_time = deployment.catalog.release(first, "seen").at
    deployment.catalog.tag("early", first)
    deployment.catalog.release(second, "seen too")
    for command in ("read", "files"):
        outputs = {
            ref: parse_output(headrace(deployment, command, deployment.reference, "--at", ref, "--format", "json"))
            for ref in (first, "early", "tags/early", release_time, second, "main", "published")
        }
        old = [outputs[ref] for ref in (first, "early", "tags/early", release_time)]
        new = [outputs[ref] for ref in (second, "main", "published")]
        assert all(output == old[0] for output in old), command
        assert all(output == new[0] for output in new), command
        assert len(new[0]) > len(old[0])
    for ref, code in (("2020-01-01T00:00Z", "config.no_snapshot"), ("2020-01-01", "config.snapshot_ref")):
        assert code in headrace(deployment, "read", deployment.reference, "--at", ref).stderr
    for ref, epochs in ((first, 2), ("main", 3)):
        output = parse_output(headrace(deployment, "plot", deployment.reference, "--at", ref, "--format", "json"))
        assert output["epochs"] == epochs


def test_read_takes_a_condition_an_order_and_a_limit(deployment: Deployment) -> None:
    common = ("read", deployment.reference, "--view", "panes", "--at", "main", "--format", "json")
    rows = parse_output(
        headrace(deployment, *common, "--where", "not is_retraction", "--order", "clicks desc", "--limit", "2")
    )
    assert [row["clicks"] for row in rows] == [1500, 3]


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_definition_that_has_changed_since_is_told_beside_the_rows(deployment: Deployment, output: str) -> None:
    common = ("read", deployment.reference, "--at", "main", "--format", output)
    result_before = headrace(deployment, *common)
    file = Path(deployment.reference)
    file.write_text(file.read_text().replace("what={", 'what={"most": hr.count(), '))
    result_after = headrace(deployment, *common)
    assert (result_after.exit_code, result_after.stdout) == (0, result_before.stdout)
    assert "clicks has changed since snapshot" in result_after.stderr
    assert "changed" not in result_before.stderr
    assert "clicks has changed" in headrace(deployment, "files", deployment.reference, "--at", "main").stderr


def test_a_damaged_file_leaves_by_the_way_that_its_error_names(deployment: Deployment) -> None:
    head = deployment.catalog.head().refs["main"]
    path = f"{deployment.catalog.data_prefix(1, head)}/panes-0.parquet"
    deployment.store.write(path, deployment.store.read(path).replace(b"ann", b"Ann"))
    common = ("read", deployment.reference, "--at", "main", "--format", "json")
    refused_result = headrace(deployment, *common)
    assert refused_result.exit_code == 40
    error = json.loads(refused_result.stdout)["error"]
    assert (error["code"], error["remedy"]) == ("restore.broken_object", "restore")
    assert path in error["message"]
    match = re.search(r"`headrace rollback clicks --to (\w+)`", error["message"])
    assert match
    assert headrace(deployment, "rollback", deployment.reference, "--to", match[1]).exit_code == 0
    assert [row["clicks"] for row in parse_output(headrace(deployment, *common))] == [2, 1500]


@pytest.mark.slow
def test_what_is_no_text_is_printed_too(deployment: Deployment) -> None:
    dead = {
        "input": "source",
        "file": "f",
        "position": 0,
        "reason": "not UTF-8",
        "raw": "a\ufffd",
        "raw_bytes": b"a\xff",
    }
    deployment.commit(rejected=[dead])
    common = ("read", deployment.reference, "--view", "rejected", "--at", "main")
    assert [row["raw_bytes"] for row in parse_output(headrace(deployment, *common, "--format", "json"))] == ["Yf8="]
    assert r"b'a\xff'" in headrace(deployment, *common).stdout


def test_files_prints_one_path_a_line(deployment: Deployment) -> None:
    result = headrace(deployment, "files", deployment.reference, "--at", "main")
    assert result.exit_code == 0
    assert [Path(line).is_file() for line in result.stdout.splitlines()] == [True, True]
    assert parse_output(headrace(deployment, "files", deployment.reference, "--at", "main", "--format", "json")) == (
        result.stdout.splitlines()
    )


def test_files_are_verified_if_that_is_asked_for(deployment: Deployment) -> None:
    arguments = ("files", deployment.reference, "--at", "main")
    whole = headrace(deployment, *arguments)
    assert headrace(deployment, *arguments, "--verify").stdout == whole.stdout
    damaged_path = Path(whole.stdout.splitlines()[-1])
    content = bytearray(damaged_path.read_bytes())
    content[len(content) // 2] ^= 1
    damaged_path.write_bytes(content)
    assert headrace(deployment, *arguments).stdout == whole.stdout
    result = headrace(deployment, *arguments, "--verify")
    assert result.exit_code == 40
    assert result.stdout == ""
    assert f"{damaged_path.name} does not have the checksum in its manifest" in result.stderr


def test_log_and_show_tell_the_story_of_a_snapshot(deployment: Deployment) -> None:
    entries = parse_output(headrace(deployment, "log", deployment.reference, "--format", "json"))
    assert [entry["kind"] for entry in entries] == ["commit", "commit", "claim", "init"]
    assert "epoch 1" in headrace(deployment, "log", deployment.reference, "--limit", "1").stdout
    head = deployment.catalog.head().refs["main"]
    manifest = parse_output(headrace(deployment, "show", deployment.reference, head, "--format", "json"))
    assert manifest["epoch"] == 1
    by_branch = headrace(deployment, "show", deployment.reference, "main")
    assert head in by_branch.stdout
    assert "2026-03-01T01:50:00Z" in by_branch.stdout
    assert "input source, split JFK, since 2026-03-02T00:00:00Z" in by_branch.stdout


def test_rollback_moves_main_and_published_back(deployment: Deployment) -> None:
    head, first = (m.snapshot_id for m in deployment.catalog.ancestry(deployment.catalog.head().refs["main"]))
    deployment.catalog.publish(first, None)
    deployment.catalog.publish(head, first)
    entry = parse_output(
        headrace(deployment, "rollback", deployment.reference, "--to", first, "--message", "why", "--format", "json")
    )
    assert entry["kind"] == "rollback"
    assert deployment.catalog.head().refs == {"main": first, "published": first}
    assert headrace(deployment, "rollback", deployment.reference, "--to", "beginning").exit_code == 0
    assert deployment.catalog.head().refs == {}


def test_a_damaged_log_is_told_and_the_command_that_is_named_gets_out_of_it(deployment: Deployment) -> None:
    folder = Path(deployment.root.removeprefix("file://")) / "clicks" / "log"
    for number in (1, 3):  # an old entry, and the newest one
        entry = folder / f"{number:020d}.json"
        entry.write_bytes(entry.read_bytes()[:-9])
    first = deployment.catalog.list_entries()[0].refs["main"]
    for command, option in (("read", "--at"), ("run", "--branch")):
        refused_result = headrace(deployment, command, deployment.reference, option, "main")
        assert refused_result.exit_code == 40
        assert f"{3:020d}.json is broken" in refused_result.stderr
        assert f"`headrace rollback {deployment.reference} --to {first}`" in refused_result.stderr
        assert "restore.damaged_log" in refused_result.stderr
    entries = parse_output(headrace(deployment, "log", deployment.reference, "--format", "json"))
    assert [(entry["number"], entry["kind"]) for entry in entries] == [
        (3, "lost"),
        (2, "commit"),
        (1, "lost"),
        (0, "init"),
    ]
    assert headrace(deployment, "rollback", deployment.reference, "--to", first).exit_code == 0
    rows = parse_output(headrace(deployment, "read", deployment.reference, "--at", "main", "--format", "json"))
    assert [(row["user"], row["clicks"]) for row in rows] == [("ann", 2), ("bob", 1500)]
    text = headrace(deployment, "log", deployment.reference)
    assert text.exit_code == 0
    assert "lost" in text.stdout


def test_release_publishes_with_a_reason_and_not_without(deployment: Deployment) -> None:
    refused_result = headrace(deployment, "release", deployment.reference, "main", "--message", " ")
    assert refused_result.exit_code == 10
    assert "who decided it and why" in refused_result.stderr
    assert headrace(deployment, "release", deployment.reference, "main", "--message", "Ann: known gap").exit_code == 0
    refs = deployment.catalog.head().refs
    assert refs["published"] == refs["main"]
    assert deployment.catalog.list_entries(limit=1)[0].message == "Ann: known gap"


@pytest.mark.slow
def test_nothing_is_broken_in_two_at_80_columns(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    head = deployment.catalog.head().refs["main"]
    deployment.catalog.release(head, "x" * 120)
    log = headrace(deployment, "log", deployment.reference).stdout
    assert f"published: - → {head}" in log
    assert "x" * 120 in log
    assert head in headrace(deployment, "show", deployment.reference, head).stdout
    wrong = headrace(deployment, "show", deployment.reference, "0" * 100)
    assert "0" * 100 in wrong.stderr
    run = headrace(deployment, "read", deployment.reference, "--where", f"'{'y' * 100}' != ''")
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_huge_key_is_not_printed_whole_and_breaks_no_line(deployment: Deployment) -> None:
    key = "\x1b[2J\n" + "k" * 3_000_000
    deployment.commit(panes=[pane(key, 3, 7)])
    text = headrace(deployment, "read", deployment.reference, "--at", "main")
    assert text.exit_code == 0
    assert len(text.stdout) < 5_000
    assert "(3,000,005 characters)" in text.stdout
    assert "\x1b" not in text.stdout
    assert len({len(line) for line in text.stdout.splitlines()[:-1]}) == 1, "a row is one line"
    rows = parse_output(headrace(deployment, "read", deployment.reference, "--at", "main", "--format", "json"))
    assert key in [row["user"] for row in rows]


@pytest.mark.slow
def test_plot_sums_up_lateness_and_draws(deployment: Deployment, tmp_path: Path) -> None:
    picture = tmp_path / "lateness.png"
    result = headrace(deployment, "plot", deployment.reference, "--out", str(picture))
    assert result.exit_code == 0, result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "late panes" in result.stdout
    sums = parse_output(headrace(deployment, "plot", deployment.reference, "--format", "json"))
    assert sums["counts"] == {"records": 20, "panes_late": 2, "late_dropped": 0}
    assert (sums["epochs"], sums["picture"]) == (2, None)
    wrong = headrace(deployment, "plot", deployment.reference, "--out", str(tmp_path / "lateness.doc"))
    assert wrong.exit_code == 10
    assert "name a .png, .svg or .pdf file" in wrong.stderr
    for unwritable in (tmp_path / "nowhere" / "x.png", tmp_path / "clicks.py" / "x.png"):
        refused_result = headrace(deployment, "plot", deployment.reference, "--out", str(unwritable))
        assert refused_result.exit_code == 10
        assert f"{unwritable} cannot be written" in refused_result.stderr.replace("\n", "")
    assert headrace(deployment, "plot", deployment.reference, "--out", str(tmp_path)).exit_code == 10


def test_plot_gives_the_quantiles_that_bound_and_allowed_lateness_are_chosen_by(tmp_path: Path) -> None:
    """Behind epoch n the watermark stands at ten minutes before n + 1 o'clock."""
    deployment = Deployment(tmp_path)
    windows = {3: [0, 0, 0, 1], 4: [0]}
    for epoch in range(5):
        rows = [late(raw(n), window=window) for n, window in enumerate(windows.get(epoch, []))]
        deployment.commit(**({"late": rows} if rows else {}))
    result = headrace(deployment, "plot", deployment.reference)
    assert result.exit_code == 0, result.output
    lateness_seconds = parse_output(headrace(deployment, "plot", deployment.reference, "--format", "json"))[
        "lateness_seconds"
    ]
    assert lateness_seconds["behind"] == {"50%": 0, "90%": 0, "99%": 0, "100%": 0}
    # at 2:50 three rows of the window that ended at 1:00 and one of the next were late, at 3:50 one of the first
    rows_of_the_third, row_of_the_fourth = 6600.000001, 10200.000001
    assert lateness_seconds["too_late"]["50%"] == rows_of_the_third
    assert lateness_seconds["too_late"]["90%"] == lateness_seconds["too_late"]["100%"] == row_of_the_fourth
    assert "1:50:00.000001" in result.stdout


def test_how_far_behind_counts_the_elements_of_all_epochs() -> None:
    def epoch(elements: dict[int, int]) -> EpochFigures:
        lags = {Duration(lag): count for lag, count in elements.items()}
        return EpochFigures(0, "s", Instant(0), Instant(0), None, None, counts={}, behind=lags)

    found_by_lag = count_by_lag([epoch({}), epoch({0: 40, 7: 9}), epoch({0: 20, 5: 30, 60: 1})])
    assert found_by_lag == {0: 60, 5: 30, 7: 9, 60: 1}
    assert quantiles_of_counts(found_by_lag) == {50: 0, 90: 5, 99: 7, 100: 60}
    assert quantiles_of_counts({}) == {}


def test_lags_are_counted_by_their_first_two_digits_and_never_too_small() -> None:
    lags = lags_of(np.array([-5, 0, 1, 9, 10, 99, 100, 101, 60_000_000, 60_000_001, 2**62]))
    assert lags.tolist()[:10] == [0, 0, 1, 9, 10, 99, 100, 110, 60_000_000, 61_000_000]
    assert 2**62 <= lags[10] <= 1.1 * 2**62


@pytest.mark.parametrize("mode", ["micro-batch", "replay"])
def test_published_is_no_branch_to_run_on(deployment: Deployment, mode: str) -> None:
    options = ("--branch", "published", "--mode", mode, "--no-publish")
    refused_result = headrace(deployment, "run", deployment.reference, *options)
    assert refused_result.exit_code == 10
    assert "branch 'published' is what readers see" in refused_result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'hr.expect("column_values_to_be_betwen", column="clicks")',
            "did you mean 'expect_column_values_to_be_between'?",
        ),
        ('hr.expect("column_values_to_be_between", column="clicks", minimum=1)', "there is no such argument"),
        ('hr.expect("column_values_to_not_be_null", column="click")', "the view has no column 'click'"),
        ('hr.expect("column_values_to_not_be_null", column="clicks", view="pane")', 'write one of "panes", "current"'),
    ],
)
def test_expectations_that_do_not_exist_stop_a_run_before_it_commits(tmp_path: Path, text: str, message: str) -> None:
    file = write_pipeline(tmp_path, "clicks")
    expectation_text = 'hr.expect("column_values_to_be_between", column="clicks", min_value=1, max_value=100)'
    assert expectation_text in file.read_text()
    file.write_text(file.read_text().replace(expectation_text, text))
    (tmp_path / "landing" / "clicks").mkdir(parents=True)
    (tmp_path / "landing" / "clicks" / "a.json").write_text('{"user": "u", "at": "2026-01-01T00:00:00Z"}')
    refused_result = CliRunner().invoke(app, ["run", str(file), "--root", tmp_path.as_uri(), "--executor", "local"])
    assert refused_result.exit_code == 10, refused_result.output
    assert message in refused_result.stderr
    assert "main" not in Catalog(open_store(tmp_path.as_uri()), "clicks").head().refs, "nothing was committed"


def test_where_there_are_no_pipelines_their_place_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_PIPELINES", str(tmp_path))
    monkeypatch.setattr("headrace.pipeline.loading.registry.SHIPPED_FOLDER", tmp_path / "nowhere")
    assert "HEADRACE_PIPELINES names the folders" in CliRunner().invoke(app, ["pipelines"]).stderr


def test_pipelines_says_how_far_each_is(
    deployment: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_PIPELINES", str(tmp_path))
    rows = {row["name"]: row for row in parse_output(headrace(deployment, "pipelines", "--format", "json"))}
    assert rows["clicks"]["main"] == 1
    assert rows["clicks"]["published"] is None
    assert rows["clicks"]["watermark"] == "2026-03-01T01:50:00Z"
    assert rows["aircraft_sessions"]["main"] is None


def test_an_error_is_one_message_an_exit_code_and_json_for_machines(deployment: Deployment) -> None:
    text = headrace(deployment, "read", deployment.reference, "--view", "states")
    assert text.exit_code == 10
    assert text.stdout == ""
    assert "there is no view 'states'; there are current, panes, late, rejected, state (config.query)" in text.stderr
    assert "Traceback" not in text.stderr
    machine = headrace(deployment, "read", deployment.reference, "--view", "states", "--format", "json")
    assert machine.exit_code == 10
    assert json.loads(machine.stdout)["error"]["code"] == "config.query"


def test_a_snapshot_that_is_not_there_asks_to_restore(deployment: Deployment) -> None:
    result = headrace(deployment, "show", deployment.reference, "0123456789abcdef")
    assert result.exit_code == 40
    assert headrace(deployment, "show", deployment.reference, "0123").exit_code == 10, "that is no id"
    assert "has no snapshot 0123" in result.stderr


def test_the_root_can_come_from_the_environment_and_must_come(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_ROOT", raising=False)
    missing = CliRunner().invoke(app, ["log", deployment.reference])
    assert missing.exit_code == 2
    assert "--root" in missing.stderr
    monkeypatch.setenv("HEADRACE_ROOT", deployment.root)
    assert CliRunner().invoke(app, ["log", deployment.reference]).exit_code == 0


@pytest.mark.slow
def test_the_command_is_installed(deployment: Deployment) -> None:
    command = Path(sys.executable).with_name("headrace")
    result = subprocess.run(
        [command, "read", deployment.reference, "--root", deployment.root, "--at", "nowhere"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 10
    assert "has no branch, tag or snapshot 'nowhere'" in result.stderr
    assert result.stdout == ""
