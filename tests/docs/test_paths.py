"""Paths that documents name are there: files, folders and modules in backticks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

# Where a path in a document may begin: `tests/docs`, `kernel/step`, `tasks/plan`, `protocol/transitions`
BASES = [
    ROOT / base
    for base in (
        "",
        "jobs",
        "jobs/headrace",
        "jobs/headrace/distribute",
        "lab",
        "lab/headrace_lab",
        "snapshots",
        "snapshots/headrace_snapshots",
        "plugins",
        "plugins/headrace_airflow",
    )
]
ROOMS = {
    each.name for base in BASES for each in base.iterdir() if each.is_dir() and not each.name.startswith((".", "__"))
}
_PATH = re.compile(r"`([a-z_]+(?:/[A-Za-z0-9_.-]+)+)/?`")
# Files that users write, or that a command makes
_OF_USERS = {"docker/.env", "docker/pipelines", "docker/dags", "tests/NAME.yaml", "tests/delays.yaml"}


def named_paths(text: str) -> list[str]:
    """The paths in backticks that begin with a room of the repository."""
    return [path for path in _PATH.findall(text) if path.split("/")[0] in ROOMS and path not in _OF_USERS]


def _is_there(path: str) -> bool:
    module, _, _ = path.rpartition(".")
    candidates = [path, f"{path}.py", *([f"{module}.py"] if module else [])]
    return any((base / each).exists() for base in BASES for each in candidates)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_that_documents_name_are_there(document: Path) -> None:
    missing = [path for path in named_paths(document.read_text()) if not _is_there(path)]
    assert not missing


def test_the_tree_of_the_architecture_draws_what_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    tree = text.partition("## The tree")[2].partition("```text\n")[2].partition("```")[0]
    folders_above: list[tuple[int, str]] = []
    missing = []
    for line in tree.splitlines():
        indent = len(line) - len(line.lstrip())
        folders_above = [(depth, folder) for depth, folder in folders_above if depth < indent]
        folder = folders_above[-1][1] if folders_above else ""
        drawn_parts = re.split(r"  +", line.strip())[0].split()
        names_there = [name for name in drawn_parts if name.endswith(("/", ".py"))]
        assert names_there, f"nothing is drawn in {line!r}"
        missing += [f"{folder}{name}" for name in names_there if not (ROOT / f"{folder}{name}").exists()]
        if names_there[0].endswith("/"):
            folders_above.append((indent, f"{folder}{names_there[0]}"))
    assert not missing


def test_a_path_that_is_not_there_is_found() -> None:
    assert [
        _is_there(path) for path in named_paths("`kernel/step`, `kernel/nothing`, `tests/docs/`, `docs/none.md`")
    ] == [
        True,
        False,
        True,
        False,
    ]


def test_the_documents_name_many_paths() -> None:
    assert sum(len(named_paths(document.read_text())) for document in DOCUMENTS) > 100


def test_the_map_is_short() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.encode()) <= 12_000
    assert len(text.splitlines()) <= 120
