"""What data, names and arguments hold is shown by a terminal, not obeyed, and not drawn."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from rich.console import Console

from headrace.application.submit import main as submit
from headrace.cli.display import Bar
from headrace.cli.main import app
from headrace.model.expressions.data_types import DataType
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.views.columns import View, ViewColumns
from headrace.this_process import escape_invisible, in_one_line
from headrace_snapshots.format.codec import checksum
from headrace_snapshots.format.files import DataFile, Layer
from tests.cli.deployments import PIPELINE_FILE, Deployment, hour, pane

ODD = "\x1b]0;owned\x07\x9b31m\u202e:smile: [bold]x[/bold]"
VISIBLE_TEXT = r"\x1b]0;owned\x07\x9b31m\u202e:smile: [bold]x[/bold]"
ODD_FILE = PIPELINE_FILE.replace('"amount": col(', f"{ODD!r}: col(").replace("Clicks per", f"{ODD} per")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """One whose column, key, message and description are odd."""
    made_deployment = Deployment(tmp_path_factory.mktemp("odd"), file_text=ODD_FILE.replace("\x1b", "\\x1b"))
    for number in range(2):
        row = pane(ODD, 1, 2 + number, index=number)
        made_deployment.commit(panes=[{**row, ODD: 7} | {"amount": None}])
        made_deployment.catalog.tag(f"t{number}", made_deployment.head.snapshot_id)  # type: ignore[union-attr]
    made_deployment.catalog.drop("tags/t0", ODD)
    made_deployment.catalog.fork("trial", made_deployment.head.snapshot_id)  # type: ignore[union-attr]
    made_deployment.catalog.rollback("trial", None, ODD)
    return made_deployment


COMMANDS = {
    "rows": ["read", "FILE", "--at", "main"],
    "panes": ["read", "FILE", "--at", "main", "--view", "panes"],
    "json": ["read", "FILE", "--at", "main", "--format", "json"],
    "nothing": ["read", "FILE", "--at", "main", "--where", f"user = '{ODD}!'"],
    "an order": ["read", "FILE", "--at", "main", "--order", f'"{ODD}" desc'],
    "a wrong condition": ["read", "FILE", "--at", "main", "--where", ODD],
    "a wrong order": ["read", "FILE", "--at", "main", "--order", ODD],
    "a wrong view": ["read", "FILE", "--view", ODD],
    "a wrong snapshot": ["read", "FILE", "--at", ODD],
    "a wrong file": ["read", f"{ODD}.py"],
    "a wrong pipeline": ["read", ODD],
    "a wrong root": ["read", "FILE", "--root", f"file:///{ODD}"],
    "no root at all": ["read", "FILE", "--root", ODD],
    "a wrong number": ["read", "FILE", "--limit", ODD],
    "a wrong option": ["read", f"--{ODD}"],
    "a wrong command": [ODD],
    "a wrong word": ["read", "FILE", "--format", ODD],
    "too many words": ["read", "FILE", ODD],
    "files": ["files", "FILE", "--at", "main"],
    "the log": ["log", "FILE"],
    "its graph": ["log", "FILE", "--graph"],
    "a snapshot": ["show", "FILE", "main"],
    "no snapshot": ["show", "FILE", ODD],
    "a difference": ["diff", "FILE", "t1", "main"],
    "a tag": ["tag", "FILE", ODD, "main"],
    "a fork": ["fork", "FILE", "main", ODD],
    "a drop": ["drop", "FILE", "nothing", "--message", ODD],
    "a rollback": ["rollback", "FILE", "--to", ODD],
    "a promotion": ["promote", "FILE", ODD, "--dry-run"],
    "two keys": ["explain", "FILE", "--key", ODD, "--key", ODD],
    "a window": ["explain", "FILE", "--key", "x", "--window", ODD],
    "a plan": ["plan", "FILE"],
    "a check": ["check", "FILE"],
    "an expiry": ["expire", "FILE", "--dry-run", "--keep-for", ODD],
    "fsck": ["fsck", "FILE"],
    "a picture": ["plot", "FILE", "--out", f"{ODD}.doc"],
    "a new pipeline": ["new", ODD],
    "a run": ["run", "FILE", "--branch", ODD, "--executor", "local"],
    "a signal": ["run", "FILE", "--signal", ODD, "--executor", "local"],
    "a range": ["backfill", "FILE", "--from", ODD, "--to", ODD, "--executor", "local"],
    "cases": ["conformance", f"{ODD}.json"],
    "an executor": ["conformance", "FILE", "--executor", ODD],
    "tests": ["test", ODD],
    "pipelines": ["pipelines"],
    "lineage": ["lineage"],
    "a simulation": ["simulate", "--records", "1", "--graph", ODD],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_has_a_terminal_do_what_its_text_says(
    deployment: Deployment, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_ROOT", deployment.root)
    monkeypatch.setenv("HEADRACE_PIPELINES", str(Path(deployment.reference).parent))
    words = [word.replace("FILE", deployment.reference) for word in COMMANDS[name]]
    result = CliRunner().invoke(app, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    text = result.output
    assert not [each for each in text if not each.isprintable() and each != "\n"]
    assert "😄" not in text
    assert "owned" not in text or any(form in text for form in (VISIBLE_TEXT, json.dumps(ODD)[1:-1], "%1B%5D0%3Bowned"))


@pytest.mark.slow
@pytest.mark.parametrize("words", [("read", "FILE", "--at", "main"), ("read", f"{ODD}.py"), ("files", "FILE")])
def test_a_real_terminal_gets_colours_of_ours_and_nothing_else(deployment: Deployment, words: tuple[str, ...]) -> None:
    controller, terminal = pty.openpty()
    arguments = [word.replace("FILE", deployment.reference) for word in words]
    code = "from headrace.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--root", deployment.root],
        stdout=terminal,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
    ) as running:
        os.close(terminal)
        text = _all_of(controller).decode()
    assert running.returncode in (0, 10)
    if "FILE" not in words or "main" in words:
        assert "\x1b[" in text, "it is a terminal"
        assert VISIBLE_TEXT in text
    assert not {"\x1b]", "\x07", "\x9b", "\u202e", "😄"} & {
        *text,
        *(text[index : index + 2] for index in range(len(text))),
    }


def _all_of(terminal: int) -> bytes:
    """What comes until nobody has its other end open."""
    content = b""
    try:
        while some := os.read(terminal, 65_536):
            content += some
    except OSError:
        pass
    os.close(terminal)
    return content


def test_the_bar_shows_what_it_is_told() -> None:
    written_stream = io.StringIO()
    console = Console(file=written_stream, force_terminal=True, width=300, highlight=False)
    with Bar.show_on_console(console) as bar:
        bar.noted(f"reading {ODD}\n!")
        bar.warned(ODD)
    text = written_stream.getvalue()
    assert text.count(VISIBLE_TEXT) >= 2
    assert rf"reading {VISIBLE_TEXT}\n!" in text
    assert not {"\x1b]", "\x07"} & {*text, *(text[index : index + 2] for index in range(len(text)))}


def test_what_a_task_of_airflow_says_is_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    submit(["process", "--pipeline", f"{ODD}.py", "--root", root, "--run-id", "r", "--executor", "local"])
    text = capsys.readouterr().out
    assert VISIBLE_TEXT in text
    assert not [each for each in text if not each.isprintable() and each not in "\n\t"]


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("a\nb\tc", "a\nb\tc"),
        ("\r\x00\x7f\x85", r"\r\x00\x7f\x85"),
        ("\udc80\u2066\ufeff", r"\udc80\u2066\ufeff"),
        ("é 漢 😄 \\x1b", "é 漢 😄 \\x1b"),
    ],
)
def test_what_is_visible_stays(text: str, visible: str) -> None:
    assert escape_invisible(text) == visible
    assert in_one_line(text) == visible.replace("\n", r"\n").replace("\t", r"\t")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("--format", "json"), ("--order", '"n\0m" desc'), ("--where", '"n\0m" = 2')])
def test_a_column_with_nul_in_its_name_that_is_there_already_is_read(
    tmp_path: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment(tmp_path)
    deployment.commit(panes=[pane("ann", 1, 2)])
    columns = ViewColumns({"user": DataType.STRING}, {"n\0m": DataType.INT, "n\0o": DataType.INT}, {})
    row = {**pane("ann", 1, 2), "n\0m": 2, "n\0o": 3, "epoch": 1}
    rows = pa.Table.from_pylist([row], columns.arrow_schema(View.CURRENT))
    written_stream = io.BytesIO()
    pq.write_table(rows, written_stream)
    data = written_stream.getvalue()
    deployment.store.write("clicks/data/x.parquet", data)
    file = DataFile("clicks/data/x.parquet", 1, len(data), checksum(data))
    head = deployment.head
    assert head is not None
    assert deployment.claim is not None
    new_head = head.replace(
        snapshot_id=deployment.catalog.new_snapshot_id(),
        parent=head.snapshot_id,
        epoch=1,
        schema=columns.to_json(),
        tables={**head.tables, "current": (Layer.from_files((file,), 1, 1),)},
    )
    deployment.catalog.commit(deployment.claim, new_head)
    (found_row,) = PipelineReader(deployment.catalog).current(at="main").to_arrow().to_pylist()
    assert (found_row["n\0m"], found_row["n\0o"]) == (2, 3)
    assert found_row["window_start"] == hour(1)
    monkeypatch.setenv("HEADRACE_ROOT", deployment.root)
    result = CliRunner().invoke(app, ["read", deployment.reference, "--at", "main", *arguments])
    assert result.exit_code == 0, result.output
    assert "\0" not in result.output
