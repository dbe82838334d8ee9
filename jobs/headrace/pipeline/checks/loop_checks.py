"""What an output with a loop may not say of where, when and how (semantics 13)."""

from typing import TYPE_CHECKING

from headrace.model.accumulation import Accumulation, TimestampCombiner
from headrace.model.calendar import CalendarWindows
from headrace.model.triggers.custom import CustomTrigger
from headrace.model.triggers.data_driven import AfterPattern
from headrace.model.windows import FixedWindows, GlobalWindows
from headrace.pipeline.checks.trigger_checks import nodes
from headrace.pipeline.loops.loop import OF_PANES, element_schema
from headrace.pipeline.loops.step import LoopError

if TYPE_CHECKING:
    from headrace.pipeline.pipeline import Pipeline


def check_loop(pipeline: "Pipeline") -> None:
    """Raise LoopError if the loop of a ``pipeline`` has no result, or one that depends on how input is cut."""
    assert pipeline.loop is not None
    if pipeline.upstream:
        raise LoopError(f"loop: {OF_PANES}")
    element_schema(pipeline.loop, pipeline.key, pipeline.schema)
    for why in (_wrong_windows(pipeline), _wrong_how(pipeline), _wrong_trigger(pipeline)):
        if why is not None:
            raise LoopError(why)


def _wrong_windows(pipeline: "Pipeline") -> str | None:
    where = pipeline.first.where
    if isinstance(where, GlobalWindows | CalendarWindows) or (isinstance(where, FixedWindows) and where.phase is None):
        return None
    return (
        f"where={where!r}: the ends of an edge must be in the same window, and in one: a loop takes GlobalWindows(), "
        "FixedWindows without a phase, or CalendarWindows"
    )


def _wrong_how(pipeline: "Pipeline") -> str | None:
    how = pipeline.first.how
    if how.accumulation is Accumulation.DISCARDING:
        return (
            "how: discarding forgets the value of a vertex with each pane, and edges that come later need it; use "
            "how=retracting() or how=accumulating()"
        )
    if how.keep_last is not None:
        return "how: keep_last needs an order of arrival, which the values of a loop do not have; leave it out"
    if how.timestamp is not TimestampCombiner.END_OF_WINDOW:
        return "how: the values of a loop are of the whole window, at its end; leave timestamp out"
    return None


def _wrong_trigger(pipeline: "Pipeline") -> str | None:
    if pipeline.allow_finishing:
        return (
            "allow_finishing=True: a window that has finished forgets its values, and edges that come later need them; "
            "leave it out"
        )
    ordered = [node for node in nodes(pipeline.stages[0].when) if isinstance(node, AfterPattern | CustomTrigger)]
    if ordered:
        return (
            f"when: {type(ordered[0]).__name__} looks at elements in their order of arrival, which the values of a "
            "loop do not have; use another trigger"
        )
    return None
