"""The ports say what whoever implements them must know: an essay with an example that works, and a sentence for each
parameter, what is returned and what is raised.
"""

import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headrace as hr
from headrace.ext.sinks import SINKS

ROLES = ("stores", "sources", "sinks", "formats", "executors", "airflow")
PARTS = ("**Order of calls", "**What is guaranteed.**", "**What an? [a-z]+ guarantees.**", "Example::")
USERS = {"Input.expressions", "Input.named", "Source.arrival_time", "Source.event_time"}
"""What users of a source call: the reference of ``headrace`` says it."""

_MARKS = {"airflow": [pytest.mark.airflow, pytest.mark.slow]}
roles = pytest.mark.parametrize("role", [pytest.param(role, marks=_MARKS.get(role, [])) for role in ROLES])


def port(role: str) -> ModuleType:
    return import_module(f"headrace.ext.{role}")


def example(role: str) -> str:
    """The Python that the essay shows below ``Example::``."""
    text = str(port(role).__doc__).partition("Example::\n")[2]
    lines = text.splitlines()
    ends = [number for number, line in enumerate(lines) if line.strip() and not line.startswith("    ")]
    return textwrap.dedent("\n".join(lines[: ends[0] if ends else None]))


@roles
def test_an_essay_says_what_a_part_must_know(role: str) -> None:
    essay = str(port(role).__doc__)
    assert essay.splitlines()[2].startswith("What belongs here: ")
    for part in PARTS:
        assert re.search(part.replace("*", r"\*").replace(r"an\?", "an?"), essay), part
    assert re.search(r'^    \[project\.entry-points\."headrace\.\w+"\]$', essay, re.MULTILINE)


@roles
def test_the_example_of_an_essay_works(role: str) -> None:
    exec(compile(example(role), f"headrace.ext.{role}", "exec"), {"__name__": f"example_of_{role}"})


def test_the_example_of_a_sink_holds_what_readers_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "example_of_sinks"}
    exec(example("sinks"), names)
    monkeypatch.setitem(SINKS.built_in, "dict", "example_of_sinks:DICT")  # type: ignore[arg-type]
    module = ModuleType("example_of_sinks")
    vars(module).update(names)
    monkeypatch.setitem(sys.modules, "example_of_sinks", module)
    landing = tmp_path / "landing/sales"
    landing.mkdir(parents=True)
    sales = hr.Pipeline(
        "sales",
        hr.json("landing/sales", {"shop": str, "amount": int}).arrival_time(),
        key="shop",
        what={"amount": hr.col("amount").sum()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        executor="local",
        sinks=[names["DictSink"]("sales", connection="")],
    )
    handle = hr.open(tmp_path.as_uri(), create=True)[sales]
    for number, lines in enumerate(
        ['{"shop": "a", "amount": 1}\n{"shop": "b", "amount": 5}', '{"shop": "a", "amount": 2}']
    ):
        (landing / f"{number}.json").write_text(lines)
        handle.run()
        handle.deliver()
        _, held_sale = names["TARGETS"]["sales"]
        assert sorted((row["shop"], row["amount"]) for row in held_sale.values()) == sorted(
            (row["shop"], row["amount"]) for row in handle.current().to_arrow().to_pylist()
        )
    assert sorted(row["amount"] for row in held_sale.values()) == [3, 5]


def functions(role: str) -> Iterator[tuple[str, Any]]:
    """What a port has to call: functions, and public methods of classes, that Headrace defines."""
    module = port(role)
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    for name in names:
        value = getattr(module, name)
        home = str(getattr(value, "__module__", ""))
        if not home.startswith("headrace") or home.startswith(("headrace.connections", "headrace.installed")):
            continue
        if inspect.isclass(value):
            for method_name, member in vars(value).items():
                plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
                if not method_name.startswith("_") and inspect.isfunction(plain):
                    yield f"{name}.{method_name}", plain
        elif inspect.isfunction(value):
            yield name, value


def unsaid(name: str, function: Any) -> Iterator[str]:
    """What the docstring of a function does not say."""
    text = inspect.getdoc(function) or ""
    for parameter in inspect.signature(function).parameters:
        if parameter not in ("self", "cls") and not re.search(rf"^:param {parameter}: \S", text, re.MULTILINE):
            yield f"{name}: parameter {parameter}"
    return_annotation = inspect.signature(function).return_annotation
    if return_annotation not in (None, "None", inspect.Signature.empty) and not re.search(
        r"^:returns: \S", text, re.MULTILINE
    ):
        yield f"{name}: what is returned"
    if not re.search(r"^:raises \w+: \S", text, re.MULTILINE) and not re.search(r"[Ii]t\s+raises\s+nothing", text):
        yield f"{name}: what is raised"


@roles
def test_every_port_method_says_what_it_takes_gives_and_raises(role: str) -> None:
    known_functions_by_name = {name: function for name, function in functions(role) if name not in USERS}
    assert len(known_functions_by_name) >= 3
    assert [problem for name, function in known_functions_by_name.items() for problem in unsaid(name, function)] == []


def test_what_is_not_said_is_found() -> None:
    def silent(path: str) -> bytes:
        """Read.

        :param other: no.
        """
        return b""

    assert [*unsaid("silent", silent)] == [
        "silent: parameter path",
        "silent: what is returned",
        "silent: what is raised",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("role", ["sources", "sinks", "stores", "executors"])
def test_a_port_brings_no_library_along(role: str) -> None:
    heavy = ("pyarrow", "numpy", "duckdb", "pandas", "pyspark", "msgspec", "headrace_snapshots", "headrace.kernel")
    code = f"import sys, headrace.ext.{role}; print([name for name in {heavy} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("role", ["stores", "sources", "sinks"])
def test_a_port_loads_no_library_and_nothing_that_calls_it(role: str) -> None:
    code = f"import headrace.ext.{role}, sys; print(*sys.modules)"
    loaded_parts = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"pyarrow", "pandas", "numpy", "duckdb", "pyspark", "airflow", "minio", "headrace_snapshots"}
    callers = {"headrace.formats", "headrace.kernel", "headrace.sources", "headrace.sinks"}
    assert not (heavy | callers) & {*loaded_parts}
