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

from headrace import imported_when_used

_HOMES = {
    "PaneRow": "headrace.testing.results",
    "Panes": "headrace.testing.results",
    "Result": "headrace.testing.results",
    "Step": "headrace.testing.steps",
    "StepResults": "headrace.testing.results",
    "TemporaryDeployment": "headrace.testing.deployment",
    "UnitTestError": "headrace.testing.steps",
    "assert_current": "headrace.testing.results",
    "assert_late": "headrace.testing.results",
    "assert_panes": "headrace.testing.results",
    "assert_rejected": "headrace.testing.results",
    "at": "headrace.testing.steps",
    "end": "headrace.testing.steps",
    "fingerprint": "headrace.testing.pipeline_run",
    "load": "headrace.testing.suite",
    "processing_time": "headrace.testing.steps",
    "rows": "headrace.testing.steps",
    "run": "headrace.testing.pipeline_run",
    "signal": "headrace.testing.steps",
    "together": "headrace.testing.steps",
    "watermark": "headrace.testing.steps",
}

__all__, __getattr__, __dir__ = imported_when_used(__name__, _HOMES)
