"""What can be wrong with a pipeline when it is built, each with what to change (semantics 4.8)."""

from typing import TYPE_CHECKING

from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, TimestampCombiner
from headrace.model.expr import DataType, Expr
from headrace.model.panes import PANE_COLUMNS
from headrace.model.triggers import AfterCount, AfterProcessingTime, AfterWatermark, Default, Repeatedly, Trigger
from headrace.model.typing import type_of
from headrace.model.windows import FixedWindows, GlobalWindows, Sessions, SlidingWindows

if TYPE_CHECKING:
    from headrace.pipeline.graph import Pipeline

_TRIGGERS = (Default, AfterWatermark, AfterCount, AfterProcessingTime, Repeatedly)
_WINDOWS = (FixedWindows, SlidingWindows, Sessions, GlobalWindows)


def check(pipeline: "Pipeline") -> None:
    """Raise PipelineError for the first mistake found in ``pipeline``."""
    try:
        _check_event_time(pipeline)
        _check_columns(pipeline)
        _check_where_when_how(pipeline)
        _check_what(pipeline)
    except PipelineError as error:
        raise PipelineError(f"pipeline {pipeline.name}: {error}") from None


def _expect_type(what: str, expr: Expr, pipeline: "Pipeline", wanted: DataType) -> None:
    found = type_of(expr, pipeline.schema)
    if found is not wanted:
        raise PipelineError(f"{what} is {found}, and must be {wanted}")


def _check_event_time(pipeline: "Pipeline") -> None:
    _expect_type("the event time", pipeline.event_time.expr, pipeline, DataType.TIMESTAMP)
    if pipeline.event_time.split is not None:
        _expect_type("the split", pipeline.event_time.split, pipeline, DataType.STRING)
    if pipeline.filter is not None:
        _expect_type("the filter", pipeline.filter, pipeline, DataType.BOOL)


def _check_columns(pipeline: "Pipeline") -> None:
    if not pipeline.key:
        raise PipelineError(
            'there is no key; give key={"name": expression}, or key={"all": lit("all")} for a single one'
        )
    names = [*pipeline.key, *pipeline.what]
    for name in names:
        if name.startswith("_"):
            raise PipelineError(f"column {name!r}: names that start with _ belong to Headrace")
        if name in PANE_COLUMNS:
            raise PipelineError(f"column {name!r} is a pane column; choose another name than {', '.join(PANE_COLUMNS)}")
        if names.count(name) > 1:
            raise PipelineError(f"column {name!r} is both a key and an aggregate; rename one of them")
    for name, expr in pipeline.key.items():
        if type_of(expr, pipeline.schema) is DataType.FLOAT:
            raise PipelineError(f"key {name!r} is a float, which does not compare exactly; cast it to int or string")


def _check_where_when_how(pipeline: "Pipeline") -> None:
    if not isinstance(pipeline.where, _WINDOWS):
        raise PipelineError(f"where={pipeline.where!r} is no window function")
    for node in _nodes(pipeline.when):
        if not isinstance(node, _TRIGGERS):
            raise PipelineError(f"{node!r} is no trigger")
    if isinstance(pipeline.where, GlobalWindows) and isinstance(pipeline.when, Default):
        raise PipelineError(
            "the global window never ends, so the default trigger never fires; "
            "use when=Repeatedly(AfterCount(n)) or another"
        )
    if pipeline.when.may_finish and not pipeline.allow_finishing and not _finishes_with_the_window(pipeline):
        raise PipelineError(
            f"the trigger {pipeline.when!r} can finish, after which its window drops all data; "
            "wrap it in Repeatedly(...), give AfterWatermark a late trigger, or accept it with allow_finishing=True"
        )
    if pipeline.how.accumulation not in Accumulation:
        raise PipelineError(f"how={pipeline.how!r} is no accumulation")
    if pipeline.how.timestamp is not TimestampCombiner.END_OF_WINDOW:
        raise PipelineError("only TimestampCombiner.END_OF_WINDOW is supported yet")


def _finishes_with_the_window(pipeline: "Pipeline") -> bool:
    return isinstance(pipeline.when, AfterWatermark) and pipeline.how.allowed_lateness == 0


def _nodes(trigger: Trigger) -> list[Trigger]:
    if not isinstance(trigger, Trigger):
        raise PipelineError(f"when={trigger!r} is no trigger")
    return [trigger, *(node for child in trigger.children for node in _nodes(child))]


def _check_what(pipeline: "Pipeline") -> None:
    if not pipeline.what:
        raise PipelineError("nothing is computed; give what={name: count(), ...}")
    for aggregate in pipeline.what.values():
        aggregate.output_type(pipeline.schema)
