"""Tests of pipelines without files, without a JVM, without Airflow.

>>> from headrace.testing import assert_panes, rows, run, watermark
>>> given = hr.json("landing/flights", {"origin": str, "at": datetime, "delay": int}).event_time("at", bound="0s")
>>> what = {"worst": hr.col("delay").max()}
>>> delays = hr.Pipeline("delays", given, key="origin", what=what, where=hr.FixedWindows("1h"))
>>> result = run(delays, [rows({"origin": "JFK", "at": "13:05", "delay": 5}), watermark("14:00")])
>>> assert_panes(result, [{"origin": "JFK", "window": ["13:00", "14:00"], "timing": "ON_TIME", "worst": 5}])

``deployment`` is a fixture of pytest's, over files in a temporary folder. ``headrace test PATH`` runs the tests beside
pipelines, these and those written in YAML.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.comparison import assert_current, assert_late, assert_panes, assert_rejected
    from headrace.testing.deployment import TemporaryDeployment
    from headrace.testing.errors import UnitTestError
    from headrace.testing.pipeline_run import run
    from headrace.testing.results import PaneRow, Panes, Result, StepResults
    from headrace.testing.steps import Step, end, processing_time, rows, signal, together, watermark
    from headrace.testing.times import at
    from headrace.testing.yaml.loading import load

_MODULES = {
    "comparison": ("assert_current", "assert_late", "assert_panes", "assert_rejected"),
    "deployment": ("TemporaryDeployment",),
    "errors": ("UnitTestError",),
    "yaml.loading": ("load",),
    "results": ("StepResults", "PaneRow", "Panes", "Result"),
    "pipeline_run": ("run",),
    "steps": ("Step", "end", "processing_time", "rows", "signal", "together", "watermark"),
    "times": ("at",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "PaneRow",
    "Panes",
    "Result",
    "Step",
    "StepResults",
    "TemporaryDeployment",
    "UnitTestError",
    "assert_current",
    "assert_late",
    "assert_panes",
    "assert_rejected",
    "at",
    "end",
    "load",
    "processing_time",
    "rows",
    "run",
    "signal",
    "together",
    "watermark",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        from headrace.model.suggestions import no_such_name

        raise no_such_name("headrace.testing", name, __all__)
    value = getattr(import_module(f"headrace.testing.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
