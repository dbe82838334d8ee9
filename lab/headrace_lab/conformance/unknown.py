"""Fields of cases that nobody reads: neither of the schema nor ours (``elide_unchanged``, ``columns``, ``having``,
``batch``, ``loop``, ``outputs``, ``rows``).
"""

from collections.abc import Iterable, Mapping

from headrace_lab.conformance.cases import MOST_STAGES, Json
from headrace_lab.conformance.loops import EDGE_FIELDS, LOOP_FIELDS
from headrace_lab.conformance.rows import JOIN_FIELDS, ROWS_FIELDS, TAKE_FIELDS
from headrace_lab.conformance.words import TRIGGER_FIELDS, WINDOW_FIELDS

_STAGE_FIELDS = frozenset(
    {
        "window",
        "trigger",
        "accumulation",
        "timestamp_combiner",
        "allowed_lateness",
        "closing_behavior",
        "on_time_behavior",
        "combine",
        "columns",
        "elide_unchanged",
        "having",
        "loop",
    }
)
_CASE_FIELDS = _STAGE_FIELDS | frozenset(
    {
        "name",
        "source",
        "features",
        "kind",
        "tick",
        "initial",
        "collect",
        "expect_failure",
        "steps",
        "broken_on",
        "notes",
        "stages",
        "between",
        "outputs",
    }
)
_OUTPUT_FIELDS = _STAGE_FIELDS | frozenset({"name", "of", "minus", "only"})
_STEP_FIELDS: Mapping[str, frozenset[str]] = {
    "input": frozenset({"elements"}),
    "batch": frozenset({"elements"}),
    "watermark": frozenset({"to", "percentiles"}),
    "processing_time": frozenset({"to"}),
    "expect": frozenset({"panes", "ordered", "ordered_per_window"}),
    "dropped": frozenset({"late", "closed", "retraction", "dropped_retraction"}),
    "output_watermark": frozenset({"equals", *(f"stage{number + 1}" for number in range(MOST_STAGES))}),
    "state": frozenset({"present", "absent", "tombstone"}),
    "assign": frozenset({"ts", "windows"}),
    "merge": frozenset({"timestamps", "windows"}),
    "combine": frozenset({"fn", "groups", "uncombine", "equals"}),
}


def unknown_fields(case: Json) -> list[str]:
    """Fields that the schema does not have: they mean nothing here, so a slip of the pen would go unnoticed."""
    kind = case.get("kind")
    fields = _CASE_FIELDS | ROWS_FIELDS if kind == "rows" else _CASE_FIELDS
    unknown = [f"{name!r} of the case" for name in case if name not in fields]
    unknown += [f"{name!r} of what is taken" for name in case.get("take") or () if name not in TAKE_FIELDS]
    join = case.get("join") or {}
    unknown += [f"{name!r} of a join" for name in join if name not in JOIN_FIELDS]
    unknown += [f"{name!r} of the window of a join" for name in join.get("window") or () if name not in WINDOW_FIELDS]
    parts = {"pipeline": "stages", "outputs": "outputs"}
    stages = case[parts[kind]] if kind in parts else ()
    known_fields = _OUTPUT_FIELDS if kind == "outputs" else _STAGE_FIELDS
    for stage in stages or (case,):
        unknown += [f"{name!r} of a loop" for name in stage.get("loop") or () if name not in LOOP_FIELDS]
        unknown += [f"{name!r} of a window" for name in stage.get("window", ()) if name not in WINDOW_FIELDS]
        trigger_fields = _trigger_fields(stage.get("trigger", {}))
        unknown += [f"{name!r} of a trigger" for name in sorted(trigger_fields - TRIGGER_FIELDS)]
    for stage in stages:
        unknown += [f"{name!r} of a stage" for name in stage if name not in known_fields]
    for place, step in enumerate(case["steps"], start=1):
        field_names = _STEP_FIELDS[step["op"]] | {"op", "notes"}
        unknown += [f"{name!r} of step {place} ({step['op']})" for name in step if name not in field_names]
        if case.get("loop"):
            edges = step.get("elements", ())
            unknown += [f"{name!r} of an edge of step {place}" for name in _names_of(edges) if name not in EDGE_FIELDS]
    return unknown


def _names_of(objects: Iterable[Json]) -> list[str]:
    return sorted(set[str]().union(*objects))


def _trigger_fields(trigger: Json) -> set[str]:
    children = [child for child in trigger.values() if isinstance(child, dict) and "type" in child]
    return set(trigger).union(*map(_trigger_fields, [*children, *trigger.get("triggers", ())]))
