"""Each method of handles and views shows in its docstring how it is called, over a small deployment of three pipelines.

Each example finds the root as it was before any of them.
"""

import inspect
from datetime import UTC, datetime
from doctest import ELLIPSIS, DocTestParser, DocTestRunner
from pathlib import Path
from runpy import run_path
from shutil import copytree, rmtree
from typing import Any

import pytest

import headrace as hr

PIPELINES = """
from datetime import datetime
import headrace as hr

flights = hr.json("landing/flights", {"airport": str, "delay": int, "at": datetime}).event_time("at", bound="30m")
number = {"flights": hr.count()}
hour, day = hr.FixedWindows("1h"), hr.CalendarWindows("day")

delays = hr.Pipeline(
    "delays",
    flights,
    key="airport",
    what={**number, "delay": hr.col("delay").sum()},
    where=hour,
    executor="local",
    sinks=[hr.delta("reports/delays", connection="lake")],
)
traffic = hr.Pipeline(
    "traffic",
    flights,
    outputs={
        "hourly": hr.Output(key="airport", what=number, where=hour),
        "daily": hr.Output(key="airport", what=number, where=day),
    },
    executor="local",
)
airports = hr.Pipeline(
    "airports",
    hr.published("delays", {"airport": str, "flights": int}),
    key="airport",
    what={"flights": hr.col("flights").sum()},
    where=day,
    executor="local",
)
"""
RECORDS = (
    '{"airport": "ATL", "delay": 5, "at": "2026-03-01T09:05:00Z"}\n'
    '{"airport": "ATL", "delay": 25, "at": "2026-03-01T09:40:00Z"}\n'
    '{"airport": "JFK", "delay": 10, "at": "2026-03-01T09:20:00Z"}\n'
    '{"airport": "JFK", "delay": "unknown", "at": "2026-03-01T09:30:00Z"}\n',
    '{"airport": "JFK", "delay": 90, "at": "2026-03-01T07:10:00Z"}\n'
    '{"airport": "ATL", "delay": 8, "at": "2026-03-01T10:20:00Z"}\n'
    '{"airport": "ATL", "delay": 3, "at": "2026-03-01T11:30:00Z"}\n',
)
LANDED_SINCE = '{"airport": "JFK", "delay": 7, "at": "2026-03-01T13:00:00Z"}\n'
"""Input that no run has read."""

KINDS = (hr.types.LazyView, hr.types.PipelineHandle, hr.types.OpenDeployment, hr.types.OutputReader)


def _list_documented() -> dict[str, object]:
    """The classes, and each public method and property that they have from modules of Headrace, by name."""
    documented_by_name: dict[str, object] = {kind.__name__: kind for kind in KINDS}
    for kind in KINDS:
        for base in kind.__mro__:
            if base.__module__.startswith("headrace."):
                methods = {name: each for name, each in vars(base).items() if _is_method(name, each)}
                documented_by_name |= {f"{base.__name__}.{name}": each for name, each in methods.items()}
    return documented_by_name


def _is_method(name: str, member: object) -> bool:
    return not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))


DOCUMENTED_OBJECTS = _list_documented()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the definitions, and a root where each pipeline has run."""
    folder = tmp_path_factory.mktemp("deployment")
    (folder / "pipelines").mkdir()
    (folder / "pipelines" / "flights.py").write_text(PIPELINES)
    landing = folder / "root" / "landing" / "flights"
    landing.mkdir(parents=True)
    defined_path = run_path(str(folder / "pipelines" / "flights.py"))
    root_handle = hr.open((folder / "root").as_uri())
    for number, records in enumerate(RECORDS):
        (landing / f"{number}.json").write_text(records)
        root_handle[defined_path["delays"]].run()
        root_handle[defined_path["traffic"]].run()
    root_handle[defined_path["airports"]].run()
    (landing / "2.json").write_text(LANDED_SINCE)
    (folder / "root").rename(folder / "before")
    return folder


@pytest.mark.parametrize("name", [name for name in DOCUMENTED_OBJECTS if name != "LazyView.to_spark"])
def test_the_example_of_a_method_runs(name: str, deployment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run_example(name, _restore_root(deployment, monkeypatch))


@pytest.mark.spark
def test_the_example_of_a_method_runs_on_spark(
    spark: object, deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run_example("LazyView.to_spark", _restore_root(deployment, monkeypatch) | {"spark": spark})


def _restore_root(deployment: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Names that examples use, once the root is as it was before any example.

    It keeps its place, since what ``airports`` has read says under which root that lay.
    """
    for changed_text in ("root", "lake"):
        rmtree(deployment / changed_text, ignore_errors=True)
    copytree(deployment / "before", deployment / "root")
    monkeypatch.setenv("HEADRACE_PIPELINES", str(deployment / "pipelines"))
    monkeypatch.setenv("HEADRACE_CONN_LAKE", (deployment / "lake").as_uri())
    root_handle = hr.open(root := (deployment / "root").as_uri())
    handle = root_handle["delays"]
    return {
        **{"hr": hr, "datetime": datetime, "UTC": UTC, "root": root},
        **{"deployment": root_handle, "handle": handle, "output": root_handle["traffic"]["daily"]},
        "view": handle.current(columns=["airport", "flights"]),
    }


def _run_example(name: str, names: dict[str, Any]) -> None:
    examples = DocTestParser().get_doctest(DOCUMENTED_OBJECTS[name].__doc__ or "", names, name, None, 0)
    assert examples.examples, f"{name}: its docstring has no example; write one that begins with >>>"
    texts: list[str] = []
    DocTestRunner(verbose=False, optionflags=ELLIPSIS).run(examples, out=texts.append)
    assert not texts, "".join(texts)
