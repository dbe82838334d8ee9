"""Uses an addition to the vocabulary in a process that imports the patched copy, and prints what came of it as JSON.

The argument is JSON: ``kind`` (of addition), ``sample`` (Python that makes one), ``parts`` of a pipeline (Python, in
which ``sample`` is that object), and ``stage``, fields of a conformance case, or null.
"""

import json
import sys
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import headrace as hr
from headrace.describe.pipeline import pipeline_sections
from headrace.pipeline.identity import fingerprint, recorded_definition
from headrace.testing import end, rows, run
from headrace_lab.conformance.runner import EXECUTORS, run_file
from tests.model.test_vocabulary import forgot_combiner, forgot_functions, forgot_trigger, forgot_windows

NOTES = [("a", 0, "ab"), ("a", 3, "a note of many more than thirty-two characters"), ("a", 8, "x"), ("b", 11, "yz")]
ELEMENTS = [{"value": value, "ts": ts, "bytes": size} for value, ts, size in [(5, 1, 3), (2, 2, 50), (9, 4, 1)]]
FORGOT = {
    "trigger": forgot_trigger,
    "windows": forgot_windows,
    "combiner": forgot_combiner,
    "function": lambda addition: forgot_functions([addition.name]),
}


def build_pipeline(sample: Any, parts: dict[str, str]) -> hr.Pipeline:
    """A pipeline over notes with these ``parts``."""
    given_input = hr.json("landing/notes", {"shop": str, "at": datetime, "n": int, "note": str}).event_time(
        "at", bound="0s"
    )
    names = {"hr": hr, "sample": sample}
    usual = {"key": "'shop'", "what": "{'n': hr.count()}", "where": "hr.FixedWindows('1d')"}
    found_by_name = {name: eval(text, names) for name, text in (usual | parts).items()}
    return hr.Pipeline("added", given_input, **found_by_name)


def panes(pipeline: hr.Pipeline, executor: Any) -> list[Any]:
    """The panes of ``NOTES``, each of which comes alone."""
    steps = [rows({"shop": a, "at": f"2026-01-01T{h:02}:00Z", "n": h, "note": text}) for a, h, text in NOTES]
    return [str(pane) for pane in run(pipeline, [*steps, end()], executor=executor).panes]


def case_of(stage: dict[str, Any]) -> dict[str, Any]:
    """A case that brings ``ELEMENTS`` one by one, without what it expects."""
    usual = {"window": {"type": "fixed", "size": 10}, "trigger": {"type": "default"}, "accumulation": "ACCUMULATING"}
    expected = stage.pop("panes")
    steps = [*({"op": "input", "elements": [each]} for each in ELEMENTS), {"op": "watermark", "to": "+inf"}]
    return {
        "name": "added",
        "collect": "at_end",
        **usual,
        **stage,
        "steps": [*steps, {"op": "expect", "panes": expected}],
    }


def conforms(case: dict[str, Any]) -> dict[str, list[Any]]:
    """The results of ``case`` on both executors."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "cases.json")
        file.write_text(json.dumps({"schema_version": 1, "cases": [case]}))
        return {name: [*map(asdict, run_file(file, EXECUTORS[name]()))] for name in ("local", "reference")}


def main(kind: str, sample: str, parts: dict[str, str], stage: dict[str, Any] | None) -> None:
    addition = eval(sample, {"hr": hr})
    pipeline = build_pipeline(addition, parts)
    report = {
        "place": hr.__file__,
        "local": panes(pipeline, "local"),
        "reference": panes(pipeline, "reference"),
        "fingerprint": fingerprint(pipeline),
        "definition": recorded_definition(pipeline),
        "description": [line for section in pipeline_sections(pipeline) for line in section.lines],
        "cases": {} if stage is None else conforms(case_of(stage)),
        "forgotten": [*FORGOT[kind](addition)],
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
