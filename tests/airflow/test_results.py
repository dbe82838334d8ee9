"""The result object of a run: written, read back, and what submit.py leaves when things go wrong."""

import json
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import GiveUpError
from headrace.runs.client.recording import PREPARERS
from headrace.runs.option_kinds import RunOptionsError
from headrace.runs.options import RunOptions
from headrace.runs.reporting.results import (
    AuditReference,
    ResultDamagedError,
    ResultFormatError,
    RunError,
    RunResult,
    from_json,
    read_run_result,
    to_json,
    write_run_result,
)
from headrace_snapshots.format.codec import seal_fields
from headrace_snapshots.store import ObjectNotFoundError, open_store
from tests.airflow.subprocesses import REPOSITORY

RESULT = RunResult(
    run_id="r1",
    pipeline="clicks",
    action="process",
    status="succeeded",
    started_at="2026-11-21T01:00:00Z",
    finished_at="2026-11-21T01:00:09Z",
    epochs=(3, 4),
    snapshot="s4",
    epoch=4,
    published="s2",
    audit=AuditReference(success=False, from_snapshot=None, to_snapshot="s4", path="clicks/audits/x"),
    counts={"panes": 7},
    watermark="2026-11-20T00:00:00Z",
)


def test_a_result_survives_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri())
    write_run_result(store, RESULT)
    assert read_run_result(store, "clicks", "r1") == RESULT
    with pytest.raises(ObjectNotFoundError):
        read_run_result(store, "clicks", "r2")


def test_the_object_has_the_documented_names() -> None:
    document = json.loads(to_json(RESULT))
    assert document["format"] == 1
    assert document["error"] is None
    assert document["audit"] == {"success": False, "from": None, "to": "s4", "path": "clicks/audits/x"}
    assert {"run_id", "action", "status", "epochs", "snapshot", "epoch", "published", "counts", "watermark"} <= set(
        document
    )


def test_an_older_result_says_rows() -> None:
    written_fields = json.loads(to_json(replace(RESULT, audit=None, counts={"panes": 3})))
    del written_fields["sha256"]
    written_fields["rows"] = written_fields.pop("counts")
    assert from_json(seal_fields(written_fields)).counts == {"panes": 3}


def test_other_formats_and_damage_are_told_apart() -> None:
    newer = {**json.loads(to_json(RESULT)), "format": 2}
    with pytest.raises(ResultFormatError, match="format 2"):
        from_json(json.dumps(newer).encode())
    for damaged_content in (b"", b"{", b"[]", b'{"format": 1}'):
        with pytest.raises(ResultDamagedError):
            from_json(damaged_content)


def test_a_result_with_any_bit_flipped_is_not_believed() -> None:
    written_result = to_json(RESULT)
    for place in range(len(written_result) * 8):
        data = bytearray(written_result)
        data[place // 8] ^= 1 << place % 8
        with pytest.raises((ResultDamagedError, ResultFormatError)):
            from_json(bytes(data))


def test_errors_as_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
    assert RunError.of(GiveUpError("another writer")) == RunError("give_up", "give_up", "another writer")
    unexpected_error = RunError.of(ValueError("GET https://x?sig=hunter2hunter2 failed"))
    assert (unexpected_error.code, unexpected_error.remedy) == ("unexpected", "retry")
    assert unexpected_error.message == "ValueError: GET https://x?sig=<AWS_SECRET_ACCESS_KEY> failed"


@pytest.mark.parametrize(
    "wrong", [{"run_id": "a/b"}, {"run_id": "../x"}, {"branch": "a b"}, {"max_epochs": 0}, {"files_per_epoch": -1}]
)
def test_options_that_cannot_be_meant(wrong: dict[str, object]) -> None:
    with pytest.raises(RunOptionsError):
        RunOptions(**{"run_id": "r1", **wrong})  # type: ignore[arg-type]


def submit(root: Path, *arguments: str) -> tuple[int, str]:
    completed_process = subprocess.run(
        [
            sys.executable,
            str(REPOSITORY / "jobs/headrace/application/submit.py"),
            *arguments,
            "--root",
            root.as_uri(),
            "--run-id",
            "r1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed_process.stderr == "", "it is told on the standard output, in one order"
    return completed_process.returncode, completed_process.stdout


@pytest.mark.slow
def test_submit_leaves_a_result_of_a_typed_error(tmp_path: Path) -> None:
    exit_code, output_text = submit(tmp_path, "process", "--pipeline", "no_such_pipeline")
    result = read_run_result(open_store(tmp_path.as_uri()), "no_such_pipeline", "r1")
    assert exit_code == 10
    assert (result.status, result.action) == ("failed", "process")
    assert result.error is not None
    assert (result.error.code, result.error.remedy) == ("config.unknown_pipeline", "fix_config")
    text_before, _, message = output_text.partition("\n::endgroup::\nconfig.unknown_pipeline: ")
    assert text_before.startswith("::endgroup::\n::group::Details of the error\nTraceback")
    assert message == f"{result.error.message}\n", "one message at the end"


def test_submit_leaves_a_result_of_an_error_nobody_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")

    def breaks(*_: object, **options: object) -> RunResult:
        raise ValueError("GET https://x?sig=hunter2hunter2 failed")

    monkeypatch.setitem(PREPARERS, "process", breaks)
    program = runpy.run_path(str(REPOSITORY / "jobs/headrace/application/submit.py"))
    name = "busy_aircraft"
    exit_code = program["main"](["process", "--pipeline", name, "--root", tmp_path.as_uri(), "--run-id", "r1"])
    result = read_run_result(open_store(tmp_path.as_uri()), name, "r1")
    assert exit_code == 1
    assert result.error is not None
    message = "ValueError: GET https://x?sig=<AWS_SECRET_ACCESS_KEY> failed"
    assert (result.error.code, result.error.message) == ("unexpected", message)
    output_text = capsys.readouterr().out
    assert "Traceback" in output_text
    assert output_text.splitlines()[-1] == f"unexpected: {message}"
    assert "hunter2" not in output_text


def test_what_a_task_raises_moves_no_cursor_of_a_terminal() -> None:
    """Messages quote what users named, and files; logs are read in terminals, too."""
    from headrace_airflow.failures import TypedTaskError

    error = TypedTaskError(RunError("data.unreadable_file", "fix data", "file a\x1b[2K\rb.json\nis broken"))
    assert str(error).startswith("data.unreadable_file: file a\\x1b[2K\\rb.json\nis broken")
