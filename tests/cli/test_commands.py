"""What all commands have in common: how they start, their help, their exit codes, what they say to wrong input."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import headrace
import headrace_snapshots
from headrace import errors
from headrace.cli.app import COMMANDS as ADDED_COMMANDS
from headrace.cli.app import EXIT_DONE, EXIT_INTERRUPTED, FAILED_CASES, LAB, USAGE, exit_code_meanings
from headrace.cli.main import app
from headrace.errors import HeadraceError
from tests.cli.deployments import Deployment, pane

HEAVY = "pyarrow pandas numpy duckdb pyspark matplotlib minio great_expectations airflow rich pydantic polars yaml"
_VALUES = "headrace.runs.option_values"
LAB_COMMANDS = {name: ADDED_COMMANDS[name] for name in LAB}
COMMANDS = sorted({*app.commands, *LAB_COMMANDS})
ROOTLESS = ("check", "conformance", "new", "pipelines", "simulate", "test")
OF_ALL = "lineage"
UNDER_A_ROOT = [name for name in COMMANDS if name not in (*ROOTLESS, OF_ALL)]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    made_deployment = Deployment(tmp_path_factory.mktemp("deployment"))
    made_deployment.commit(panes=[pane("ann", 1, 2)])
    return made_deployment


def modules_after(*arguments: str) -> set[str]:
    """What is imported once the command has run, in a process of its own."""
    code = (
        "import sys\nfrom headrace.cli.main import app\n"
        f"try:\n    app({list(arguments)!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stderr.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--help",), ("log", "--help"), ("run", "--help")])
def test_help_imports_no_library_that_it_does_not_need(arguments: tuple[str, ...]) -> None:
    modules = modules_after(*arguments)
    assert modules.isdisjoint(HEAVY.split())
    assert modules.isdisjoint({"headrace.model", _VALUES, "headrace_snapshots.store"})
    assert len(modules) < 300, "each module takes time to import"


TABLES = {"rich"}
ROWS = {*TABLES, "duckdb"}
ARROW = {*ROWS, "pyarrow", "numpy"}
LIBRARIES: list[tuple[set[str], str]] = [
    (set(), "plan REFERENCE --root ROOT"),
    (set(), "log REFERENCE --root ROOT --format json"),
    (set(), "log REFERENCE --root ROOT --graph"),
    (set(), "show REFERENCE main --root ROOT --format json"),
    (set(), "files REFERENCE --at main --verify --root ROOT"),
    (set(), "check REFERENCE"),
    (TABLES, "log REFERENCE --root ROOT"),
    (TABLES, "show REFERENCE main --root ROOT"),
    (TABLES, "pipelines --root ROOT"),
    (TABLES, "tag REFERENCE t main --root ROOT"),
    (TABLES, "drop REFERENCE t --root ROOT"),
    (TABLES, "fork REFERENCE main trial --root ROOT"),
    (TABLES, "rollback REFERENCE --branch trial --to beginning --root ROOT"),
    (TABLES, "drop REFERENCE trial --root ROOT"),
    (TABLES, "fsck REFERENCE --root ROOT"),
    (TABLES, "expire REFERENCE --dry-run --root ROOT"),
    (TABLES, "simulate --records 1"),
    (ROWS, "read REFERENCE --at main --where clicks>0 --order clicks --root ROOT"),
    (ARROW, "read REFERENCE --at main --format json --root ROOT"),
    (ARROW, "diff REFERENCE main main --root ROOT"),
    (ARROW, "plot REFERENCE --root ROOT"),
]
"""Commands, and the libraries that have been imported at most when they have run one after another: some take longer
to import than the rest of a command takes.
"""


@pytest.mark.slow
def test_what_looks_at_snapshots_imports_only_libraries_that_it_needs(deployment: Deployment) -> None:
    commands = [
        command.replace("REFERENCE", deployment.reference).replace("ROOT", deployment.root).split()
        for _, command in LIBRARIES
    ]
    code = (
        "import json, sys\nfrom headrace.cli.main import app\n"
        f"for words in {commands!r}:\n"
        "    assert not app(words, standalone_mode=False), words\n"
        "    print('modules', *sys.modules, file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = [{*line.split()[1:]} for line in result.stderr.splitlines() if line.startswith("modules ")]
    for (libraries, command), module_names in zip(LIBRARIES, modules, strict=True):
        assert module_names & {*HEAVY.split()} <= libraries, command
        assert module_names.isdisjoint({"headrace.kernel.keys", "headrace.distribute.tasks", _VALUES}), command
        most = 440 if command.startswith("check") else 400  # it looks for families of DAGs of other packages
        assert libraries or len(module_names) < most, f"{command}: each module takes time to import"


NOT_OF_A_PLAIN_RUN = {
    *HEAVY.split(),
    *(f"headrace.runs.{name}" for name in ("recover", "recovery_target", "backfill.backfill")),
    *(f"headrace.runs.publishing.{name}" for name in ("adoption", "patch", "promotion")),
    "headrace.read.lineage.lineage",
    "headrace.distribute.spark",
    "headrace.formats.parquet",
    "tenacity",
    "zipfile",
}


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "auto"])
def test_a_small_run_imports_what_it_needs(tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of its CPU is imports, and some take as long as all the rest."""
    monkeypatch.chdir(tmp_path)
    modules_after("new", "shop")
    root = (tmp_path / "shop/data").as_uri()
    modules = modules_after("run", "shop/shop.py", "--root", root, "--executor", executor)
    assert modules & NOT_OF_A_PLAIN_RUN == {"numpy", "pyarrow"}
    assert len([name for name in modules if name.startswith("headrace")]) < 213, "each module takes time to import"


@pytest.mark.slow
def test_a_small_run_makes_few_dataclasses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes as long to make as a module of medium size takes to import; a struct takes a thirtieth of that."""
    monkeypatch.chdir(tmp_path)
    modules_after("new", "shop")
    command = ["run", "shop/shop.py", "--root", (tmp_path / "shop/data").as_uri(), "--executor", "local"]
    code = (
        "import sys\nfrom headrace.cli.main import app\n"
        f"try:\n    app({command!r})\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "ours = [(name, vars(module)) for name, module in sys.modules.items() if name.startswith('headrace')]\n"
        "made = {kind for name, names in ours for kind in names.values() if isinstance(kind, type)"
        " and kind.__module__ == name and '__dataclass_fields__' in vars(kind)}\n"
        "print(len(made), file=sys.stderr)"
    )
    ended_process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 100 < int(ended_process.stderr.split()[-1]) < 290


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_ends_with_an_example_that_parses(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "--format" in result.stdout, "for machines too"
    example = result.stdout.rstrip().splitlines()[-1]
    assert result.stdout.rstrip().splitlines()[-2].strip() == "Example:"
    program, command, *arguments = shlex.split(example)
    assert (program, command) == ("headrace", name)
    {**app.commands, **LAB_COMMANDS}[command].make_context(command, arguments)


def test_the_list_of_commands_has_whole_sentences() -> None:
    text = " ".join(CliRunner().invoke(app, ["--help"]).stdout.split())
    assert "..." not in text.split("Exit codes")[0].split("Commands:")[1]
    assert "--show-completion" in text


def test_the_exit_codes_that_help_lists_are_those_of_the_tree_of_errors() -> None:
    help_text = CliRunner().invoke(app, ["--help"]).stdout.split("Exit codes:")[1]
    codes = [int(line.split()[0]) for line in help_text.strip().partition("\n\n")[0].splitlines()]
    assert codes == [code for code, _ in exit_code_meanings()]
    branches = [kind for kind in vars(errors).values() if isinstance(kind, type) and "exit_code" in vars(kind)]
    assert set(codes) == {EXIT_DONE, USAGE, EXIT_INTERRUPTED} | {kind.exit_code for kind in branches}
    assert HeadraceError.exit_code == FAILED_CASES, "that of no branch, which nothing raises"


def test_only_the_tree_of_errors_gives_exit_codes() -> None:
    sources = [file for package in (headrace, headrace_snapshots) for file in Path(package.__path__[0]).rglob("*.py")]
    giving = {file.name for file in sources if re.search(r"^    exit_code\b", file.read_text(), re.MULTILINE)}
    assert giving == {"errors.py"}


WRONG: list[tuple[str, ...]] = [
    ("run", "PIPELINE", "--max-epochs", "-1"),
    ("run", "PIPELINE", "--files-per-epoch", "0"),
    ("run", "PIPELINE", "--bytes-per-epoch", "many"),
    ("run", "PIPELINE", "--executor", "flink"),
    ("run", "PIPELINE", "--mode", "stream"),
    ("run", "PIPELINE", "--branch", "a b"),
    ("run", "PIPELINE", "--branch", "published"),
    ("run", "PIPELINE", "--signal", ""),
    ("run", "PIPELINE", "--signal", "go=u1"),
    ("run", "PIPELINE", "--clock", "yesterday", "--clock-step", "5m"),
    ("run", "PIPELINE", "--clock", "2026-01-01T00:00:00Z"),
    ("run", "PIPELINE", "--clock", "2026-01-01T00:00:00Z", "--clock-step", "soon"),
    ("run", "PIPELINE", "--mode", "replay", "--branch", "b", "--clock", "2026-01-01T00:00:00", "--clock-step", "1m"),
    ("run", "PIPELINE", "--mode", "replay", "--branch", "b", "--from-branch", "nowhere"),
    ("backfill", "PIPELINE", "--branch", "published"),
    ("backfill", "PIPELINE", "--branch", "-"),
    ("backfill", "PIPELINE", "--from", "yesterday"),
    ("backfill", "PIPELINE", "--from", "2026-01-01T00:00:00"),
    ("backfill", "PIPELINE", "--from", "2026-01-02", "--to", "2026-01-01"),
    ("recover", "PIPELINE", "nowhere"),
    ("recover", "PIPELINE", "published"),
    ("recover", "PIPELINE", "../../etc/passwd"),
    ("recover", "PIPELINE", ""),
    ("read", "PIPELINE", "--at", "nowhere"),
    ("read", "PIPELINE", "--view", "states"),
    ("read", "PIPELINE", "--at", "main", "--where", "clicks >"),
    ("read", "PIPELINE", "--limit", "-1"),
    ("files", "PIPELINE", "--view", ""),
    ("replay-late", "PIPELINE", "--at", "nowhere"),
    ("files", "PIPELINE", "--view", "state"),
    ("read", "PIPELINE", "--view", "state", "--stage", "2"),
    ("plan", "PIPELINE", "--at", "nowhere"),
    ("explain", "PIPELINE"),
    ("explain", "PIPELINE", "--key", "a", "--key", "b"),
    ("explain", "PIPELINE", "--key", "a", "--window", "soon"),
    ("explain", "PIPELINE", "--key", "a", "--at", "nowhere"),
    ("explain", "PIPELINE", "--key", "a", "--at", "published"),
    ("log", "PIPELINE", "--before", "-1"),
    ("log", "PIPELINE", "--limit", "0"),
    ("show", "PIPELINE", "../../etc/passwd"),
    ("show", "PIPELINE", "a\nb"),
    ("show", "PIPELINE", ""),
    ("show", "PIPELINE", "x" * 5000),
    ("diff", "PIPELINE", "nowhere", "main"),
    ("diff", "PIPELINE", "main", "2020-01-01T00:00:00Z"),
    ("diff", "PIPELINE", "main", "main", "--limit", "-1"),
    ("fork", "PIPELINE", "nowhere", "trial"),
    ("fork", "PIPELINE", "main", "main"),
    ("fork", "PIPELINE", "main", "a b"),
    ("fork", "PIPELINE", "published", "trial"),
    ("promote", "PIPELINE", "nowhere"),
    ("promote", "PIPELINE", "main"),
    ("promote", "PIPELINE", "published", "--dry-run"),
    ("rollback", "PIPELINE"),
    ("rollback", "PIPELINE", "main"),
    ("rollback", "PIPELINE", "--to", "nowhere"),
    ("rollback", "PIPELINE", "--to", "main"),
    ("rollback", "PIPELINE", "--to", "beginning", "--branch", "nowhere"),
    ("release", "PIPELINE", "nowhere", "--message", "because"),
    ("tag", "PIPELINE", "a b"),
    ("tag", "PIPELINE", "published"),
    ("tag", "PIPELINE", "good", "nowhere"),
    ("tag", "PIPELINE", "good", "published"),
    ("drop", "PIPELINE", "main"),
    ("drop", "PIPELINE", "published"),
    ("drop", "PIPELINE", "nowhere"),
    ("drop", "PIPELINE", ""),
    ("plot", "PIPELINE", "--at", "nowhere"),
    ("plot", "PIPELINE", "--epochs", "0"),
    ("conformance", "nowhere.json"),
    ("conformance", "."),
    ("conformance", "PIPELINE"),
    ("conformance", "nowhere.json", "--executor", "flink"),
    ("simulate", "--tasks", "0"),
    ("simulate", "--protocol", "paxos"),
    ("simulate", "--graph", "nowhere.json"),
    ("simulate", "--lost-messages", "1"),
]


@pytest.mark.parametrize("words", WRONG, ids=lambda words: " ".join(words)[:60])
def test_wrong_words_give_one_message_and_an_exit_code(deployment: Deployment, words: tuple[str, ...]) -> None:
    refs = deployment.catalog.head().refs
    arguments = [deployment.reference if word == "PIPELINE" else word for word in words]
    if words[0] not in ROOTLESS:
        arguments += ["--root", deployment.root]
    failure_message(arguments)
    assert deployment.catalog.head().refs == refs


@pytest.mark.parametrize("name", UNDER_A_ROOT)
@pytest.mark.parametrize(
    "pipeline", ["nowhere", "nowhere.py", "", ".", "..py", "/", "broken.py", "empty.py", "binary.py", "clicks.py:no"]
)
def test_a_pipeline_that_is_not_there_is_named(deployment: Deployment, name: str, pipeline: str) -> None:
    folder = Path(deployment.reference).parent
    (folder / "broken.py").write_text("import headrace\n\nheadrace.no_such_thing()\n")
    (folder / "empty.py").write_text("")
    (folder / "binary.py").write_bytes(bytes(range(256)))
    reference = str(folder / pipeline) if pipeline.partition(":")[0].endswith(".py") else pipeline
    message = failure_message([name, reference, *required_arguments(name), "--root", deployment.root])
    if pipeline == "broken.py":
        assert f"{reference}:3: AttributeError" in message


@pytest.mark.parametrize(
    "root", ["", "nowhere", "ftp://host/x", "file://host/x", "file:///nowhere/at/all", "s3://B", "s3://"]
)
@pytest.mark.parametrize("name", UNDER_A_ROOT)
def test_a_root_that_is_not_one_is_named(deployment: Deployment, name: str, root: str) -> None:
    failure_message([name, deployment.reference, *required_arguments(name), "--root", root])
    failure_message([OF_ALL, "--root", root])


def test_a_root_that_is_a_file_is_named(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name in ("run", "log", "read"):
        failure_message([name, deployment.reference, "--root", (tmp_path / "file").as_uri()])


def required_arguments(name: str) -> list[str]:
    """The other arguments that a command cannot do without."""
    words = {
        "show": ["x"],
        "diff": ["x", "y"],
        "fork": ["x", "y"],
        "promote": ["x"],
        "rollback": ["--to", "x"],
        "release": ["x", "--message", "m"],
        "tag": ["x"],
        "drop": ["x"],
        "recover": ["x"],
    }
    return words.get(name, [])


def failure_message(arguments: list[str]) -> str:
    """What a command says that must fail, in one message without a traceback, whose exit code is on the list."""
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "10000"})
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in {code for code, _ in exit_code_meanings()} - {EXIT_DONE, FAILED_CASES}, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.strip()
    return result.stderr


def complete_line(line: str, **environment: str) -> list[str]:
    """What bash is offered for the last word of ``line``."""
    variables = {"_HEADRACE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    result = subprocess.run(
        [Path(sys.executable).with_name("headrace")],
        env={**os.environ, **variables, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return [word.removeprefix("plain,") for word in result.stdout.split()]


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"headrace {version('headrace')}\n"


def test_a_shell_gets_its_script() -> None:
    stdouts_by_shell = {
        shell: CliRunner().invoke(app, ["--show-completion", shell]).stdout for shell in ("zsh", "fish")
    }
    assert stdouts_by_shell["zsh"].startswith("#compdef headrace")
    assert "_HEADRACE_COMPLETE=fish_complete" in stdouts_by_shell["fish"]


@pytest.mark.slow
def test_a_shell_is_offered_names(deployment: Deployment) -> None:
    deployment.catalog.tag("good", deployment.catalog.head().refs["main"])
    environment = {"HEADRACE_PIPELINES": str(Path(deployment.reference).parent), "HEADRACE_ROOT": deployment.root}
    assert "replay-late" in complete_line("headrace re")
    assert complete_line("headrace log cl", **environment) == ["clicks"]
    snapshot = deployment.catalog.head().refs["main"]
    assert complete_line("headrace read clicks --at ", **environment) == sorted(["good", "main", "published", snapshot])
    assert complete_line("headrace run clicks --branch ", **environment) == ["good", "main", "published"]
    assert complete_line("headrace drop clicks ", **environment) == ["good"]
    assert {"good", "main", snapshot} <= {*complete_line("headrace rollback clicks --to ", **environment)}
    assert complete_line("headrace read nowhere --at ", **environment) == []


def test_machines_get_json(deployment: Deployment) -> None:
    result = CliRunner().invoke(
        app, ["tag", deployment.reference, "json", "--root", deployment.root, "--format", "json"]
    )
    entry: Any = json.loads(result.stdout)
    assert entry["moves"] == {"tags/json": [None, deployment.catalog.head().refs["main"]]}
