"""What type checkers know of the public names is what is there: stubs, which a script writes."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Unpack, get_origin

import pytest

import headrace as hr
from scripts.errors import ROOT
from scripts.stubs import LAZY, stale_stubs, stubs

RIGHT = """
from datetime import datetime

import headrace as hr
from headrace import col
from headrace.errors import MissingRootError
from headrace.types import LazyView, PipelineHandle, RunResult

clicks = hr.json("landing/clicks", {"shop": str, "amount": int, "at": datetime}).event_time("at", bound="1h")
sales = hr.Pipeline(
    "sales", clicks, key="shop", what={"amount": col("amount").sum()}, where=hr.FixedWindows("1h"), when=hr.on_update()
)


def committed(result: RunResult) -> list[int]:
    return [*result.epochs]


def daily(handle: PipelineHandle) -> LazyView:
    committed(handle.run())
    return handle.current(columns=["shop"])


def test_daily() -> None:
    result = hr.testing.run(sales, [hr.testing.rows({"shop": "a", "at": "09:00", "amount": 1})])
    hr.testing.assert_panes(result, [])


try:
    daily(hr.open("memory://none")["sales"])
except (MissingRootError, hr.errors.FencedError) as error:
    code: str = error.code
except hr.errors.UnreadableFileError as error:
    path: str = error.path
"""

WRONG = {
    'hr.FixedWindow("1h")': 'Module has no attribute "FixedWindow"',
    'hr.sum("amount")': 'Module has no attribute "sum"',
    'hr.FixedWindows(hours="1h")': 'Unexpected keyword argument "hours" for "FixedWindows"',
    "hr.errors.FencedEror": 'Module has no attribute "FencedEror"; maybe "FencedError"?',
    "hr.testing.rum": 'Module has no attribute "rum"',
    "from headrace import jsn": 'Module "headrace" has no attribute "jsn"; maybe "json"?',
    "from headrace.types import RunResults": 'has no attribute "RunResults"; maybe "RunResult"?',
    'hr.open("file:///x")["sales"].runn()': '"PipelineHandle" has no attribute "runn"; maybe "run"?',
    'result: hr.types.RunResult = hr.open("file:///x")["sales"].current()': "Incompatible types in assignment",
}


@pytest.mark.slow
def test_a_users_file_is_checked_by_mypy(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text("import headrace as hr\n" + "\n".join(WRONG) + "\n")
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "right.py", "wrong.py"]
    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    result = subprocess.run([*mypy, *options], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    lines = result.stdout.splitlines()
    assert [line for line in lines if not line.startswith("wrong.py:")] == [], result.stderr
    for number, message in enumerate(WRONG.values(), start=2):
        (said_line,) = (line for line in lines if line.startswith(f"wrong.py:{number}:") and ": error:" in line)
        assert message in said_line


def test_every_stub_is_as_it_would_be_written() -> None:
    assert stale_stubs() == []


def test_a_stale_or_missing_stub_is_named(tmp_path: Path) -> None:
    texts = dict(stubs())
    (stale, missing), rest = [*texts][:2], [*texts][2:]
    for name in (stale, *rest):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(texts[name])
    (tmp_path / stale).write_text(texts[stale].replace("FixedWindows", "FixedWindow"))
    assert stale_stubs(tmp_path) == [f"{name}: stale: python -m scripts.stubs --write" for name in (stale, missing)]


@pytest.mark.parametrize("package", LAZY)
def test_a_name_stands_once_in_order_and_is_there(package: str) -> None:
    module = importlib.import_module(package)
    assert [*vars(module)["_HOMES"]] == sorted(vars(module)["_HOMES"])
    body = ast.parse(stubs()[LAZY[package]]).body
    imports = [name for node in body if isinstance(node, ast.ImportFrom) for name in node.names]
    exported_names = [name.name for name in imports if name.asname == name.name]  # others are for annotations alone
    functions = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    assert sorted([*exported_names, *functions]) == module.__all__ == dir(module)
    for name in module.__all__:
        assert getattr(module, name) is not None


OPTIONS = {
    "json": hr.FileSource,
    "csv": hr.FileSource,
    "parquet": hr.FileSource,
    "retracting": hr.How,
    "accumulating": hr.How,
    "discarding": hr.How,
    "kafka": type(hr.kafka("orders", {"user": str}, connection="events")),
    "spark_source": type(hr.spark_source("orders:Orders", {"shop": str})),
}
"""Functions that pass options on to a class."""


@pytest.mark.parametrize("name", OPTIONS)
def test_editors_and_help_know_each_option_and_its_default(name: str) -> None:
    of_class = inspect.signature(OPTIONS[name]).parameters
    written_parameters = inspect.signature(getattr(hr, name)).parameters
    assert len(written_parameters.keys() & of_class.keys()) > 4
    assert {one.kind for one in written_parameters.values()} <= {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }
    for shared_name in written_parameters.keys() & of_class.keys() - {"schema", "connection", "name"}:
        assert written_parameters[shared_name].default == of_class[shared_name].default, shared_name
    text = (ROOT / LAZY["headrace"]).read_text(encoding="utf-8")
    (stub,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name)
    assert [one.arg for one in (*stub.args.args, *stub.args.kwonlyargs)] == [*written_parameters]
    assert ast.get_docstring(stub) == inspect.getdoc(getattr(hr, name))


def test_options_are_all_written_out() -> None:
    public = [value for name in hr.__all__ if inspect.isfunction(value := getattr(hr, name))]
    names_with_options = [
        one.__name__
        for one in public
        for parameter in inspect.signature(inspect.unwrap(one), follow_wrapped=False).parameters.values()
        if get_origin(parameter.annotation) is Unpack
    ]
    assert sorted(names_with_options) == sorted(OPTIONS)


def returned_names(owner: type) -> Iterator[tuple[str, str]]:
    """Each public method of ``owner``, with each name in what it is said to return."""
    for name, member in inspect.getmembers(owner):
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function := inspect.unwrap(function)):
            annotation = function.__annotations__.get("return")
            text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
            yield from ((name, word) for word in re.findall(r"(?<![.\w])[A-Z]\w+", text))


OTHERS = {"Any", "Iterator", "None", "DataFrame", "Table", "Self", "ItemsView", "KeysView", "ValuesView", "Catalog"}
"""What other libraries return; and the catalog, which is not for users."""


@pytest.mark.parametrize("owner", ["OpenDeployment", "PipelineHandle", "OutputReader", "LazyView", "SnapshotDiff"])
def test_what_methods_return_can_be_named(owner: str) -> None:
    words = {word: name for name, word in returned_names(getattr(hr.types, owner)) if word not in OTHERS}
    assert words or owner == "SnapshotDiff"
    for word, method in words.items():
        assert hasattr(hr.types, word) or hasattr(hr, word), f"{owner}.{method} returns {word}: hr.types lacks it"
