"""Names of tables and logs are spelled in one place: the rest of the product asks there."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from headrace_snapshots.format.manifest import IDS, INPUTS, REJECTED, UNNAMED, OutputTables, is_current

ROOT = Path(__file__).parents[2]
PRODUCT = (
    "jobs/headrace",
    "snapshots/headrace_snapshots",
    "lab/headrace_lab",
    "plugins/headrace_airflow",
    "benchmarks",
)
HOME = "snapshots/headrace_snapshots/format/manifest.py"
NAMES = {IDS, INPUTS, REJECTED, UNNAMED.state_table(0), UNNAMED.current, UNNAMED.panes, UNNAMED.late}
HOLDERS = {"tables", "logs"}
FILE_NAMERS = {"put", "putting", "run_writer", "put_batches", "open_table", "file_name", "data_path"}
"""Functions that are given the name of a table or a log, for the names of its files."""


def spelling_lines(tree: ast.Module, constants: Mapping[str, str]) -> Iterator[int]:
    """The lines of ``tree`` that spell a name of a table or a log. ``constants``: texts that have a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.keyword | ast.comprehension | ast.Assign | ast.For):
            yield from (literal.lineno for literal in names_given(node) if _text(literal, constants) in NAMES)


def names_given(node: ast.AST) -> list[ast.expr]:
    """What stands in ``node`` for names of tables and logs: keys of mappings by name, parts of names of files."""
    name_nodes: list[ast.expr] = []
    match node:
        case ast.Subscript(value=holder, slice=key) if _last(holder) in HOLDERS:
            name_nodes = [key]
        case ast.Call(func=ast.Attribute(value=holder, attr="get" | "pop"), args=[key, *_]) if _last(holder) in HOLDERS:
            name_nodes = [key]
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[holder]) if _last(holder) in HOLDERS:
            name_nodes = [key]
        case ast.comprehension(iter=ast.Call(func=ast.Attribute(value=holder)), ifs=ifs) if _last(holder) in HOLDERS:
            name_nodes = [side for condition in ifs for side in ast.walk(condition) if isinstance(side, ast.expr)]
        case ast.Compare(left=left, comparators=others) if _last(left) in {"table", "log"}:
            name_nodes = others
        case ast.Call(func=function, args=given) if _last(function) in FILE_NAMERS:
            name_nodes = given
        case ast.keyword(arg=name, value=ast.Dict(keys=keys)) if name in HOLDERS:
            name_nodes = [key for key in keys if key is not None]
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys)) if name in HOLDERS:
            name_nodes = [key for key in keys if key is not None]
        case (
            ast.For(iter=ast.Tuple(elts=some) | ast.List(elts=some))
            | ast.comprehension(iter=ast.Tuple(elts=some) | ast.List(elts=some))
        ) if len(some) > 1 and all(_text(name, {}) in NAMES for name in some):
            name_nodes = some
        case ast.Assign(value=value):
            name_nodes = [value] if isinstance(value, ast.JoinedStr) else []
    return name_nodes


def _last(node: ast.expr) -> str:
    """The last name of ``a.b.c``, without underscores in front."""
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lstrip("_")


def _text(node: ast.expr, constants: Mapping[str, str]) -> str:
    """What ``node`` says, "" if nobody knows; what an f-string begins with, without what parts a number from it."""
    match node:
        case ast.JoinedStr(values=[ast.Constant(value=str(begin)), *_]):
            return begin.rstrip("-_")
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return constants.get(name, "")
    return ""


def places(texts: Mapping[str, str]) -> list[str]:
    """Where modules spell a name."""
    trees = {file: ast.parse(text) for file, text in texts.items()}
    constants = {}
    for node in (node for tree in trees.values() for node in tree.body):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                constants[name] = text
    return sorted({f"{file}:{line}" for file, tree in trees.items() for line in spelling_lines(tree, constants)})


@pytest.mark.slow
def test_nobody_else_spells_a_name() -> None:
    files = [file for folder in PRODUCT for file in (ROOT / folder).rglob("*.py")]
    texts = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    assert texts.pop(HOME)
    assert places(texts) == [], f"{HOME} has a name for each"


@pytest.mark.parametrize(
    "line",
    [
        'manifest.tables["current"]',
        'self.head.logs.get("inputs", ())',
        '"ids" in tables',
        '[each for name, each in head.tables.items() if name != "current"]',
        'table = f"state_{number}"',
        'if table == "ids":\n    return',
        'task.put("late", rows)',
        'file_name(prefix, f"rejected-{number}", 0)',
        'self.task.putting("panes")',
        'Manifest(tables={**before, "current": layers})',
        'logs = {"panes": one, "late": other}',
        'for name in ("panes", "late"):\n    print(name)',
        'logs={name: FileLog.empty() for name in ("panes", "late")}',
        'PANES = "panes"\nmanifest.logs[PANES]',
    ],
)
def test_each_way_to_spell_one_is_found(line: str) -> None:
    assert places({"a.py": line})


@pytest.mark.parametrize(
    "line", ['mapping("inputs", read)', 'counts["panes"]', 'view == "current"', 'name != "inputs"']
)
def test_the_same_words_mean_other_things_elsewhere(line: str) -> None:
    assert not places({"a.py": line})


def test_tables_of_an_output_with_a_name_begin_with_it() -> None:
    hourly = OutputTables("hourly")
    assert hourly.state_tables(2) == ("hourly/state", "hourly/state_1")
    assert (hourly.current, hourly.panes, hourly.late) == ("hourly/current", "hourly/panes", "hourly/late")
    assert UNNAMED.state_tables(3) == ("state", "state_1", "state_2")
    names = ["current", "hourly/current", "state", "hourly/state_1", IDS]
    assert [is_current(name) for name in names] == [True, True, False, False, False]
