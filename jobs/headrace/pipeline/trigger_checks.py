"""Static checks of triggers (semantics 4.8): which nodes there are, and which roots can lose data by finishing."""

from collections.abc import Iterator

from headrace.errors import PipelineError
from headrace.model.combiners import readable_types
from headrace.model.custom_triggers import CustomTrigger, check_trigger
from headrace.model.expressions.expr import DataType, Expr, Schema
from headrace.model.expressions.typing import type_of
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterEach,
    AfterPattern,
    AfterPunctuation,
    AfterWatermark,
    DataDriven,
    Default,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from headrace.pipeline.identity.encoding import TRIGGERS

VOCABULARY: tuple[type[Trigger], ...] = (*TRIGGERS, CustomTrigger)
"""What may stand in a pipeline: what fingerprints have words for, and triggers of a user's own."""


def nodes(trigger: Trigger) -> Iterator[Trigger]:
    """``trigger`` and everything below it. Raises PipelineError for what is not a trigger."""
    if not isinstance(trigger, VOCABULARY):
        raise PipelineError(
            f"{trigger!r} is not a trigger; use one of {', '.join(sorted(t.__name__ for t in VOCABULARY))}"
        )
    yield trigger
    for child in trigger.children:
        yield from nodes(child)


def check_reads(trigger: Trigger, schema: Schema) -> None:
    """Raise PipelineError if a node of ``trigger`` reads what elements of ``schema`` do not have."""
    for node in nodes(trigger):
        match node:
            case AfterPunctuation(predicate):
                _check_predicate("AfterPunctuation", predicate, schema)
            case AfterPattern(_, predicates):
                for name, predicate in predicates.items():
                    _check_predicate(f"AfterPattern, {name!r},", predicate, schema)
            case DataDriven(what, ready_if):
                _check_predicate("DataDriven", ready_if, readable_types(what, schema))


def _check_predicate(what: str, predicate: Expr, schema: Schema) -> None:
    kind = type_of(predicate, schema)
    if kind is not DataType.BOOL:
        raise PipelineError(f"the predicate of {what} is {kind}, not bool")


def check_own(trigger: Trigger, merging: bool) -> None:
    """Raise PipelineError if a user's own node of ``trigger`` cannot run; ``merging``: over windows that merge."""
    for node in nodes(trigger):
        if isinstance(node, CustomTrigger):
            check_trigger(node, merging)


def check_finishing(trigger: Trigger, lateness: int | None) -> None:
    """Raise PipelineError if ``trigger`` can finish, and so close its window, before the window expires."""
    if may_finish_early(trigger):
        raise PipelineError(
            f"the trigger {trigger!r} can finish, after which its window drops all data; "
            "wrap it in Repeatedly(...), or accept it with allow_finishing=True"
        )
    if trigger.may_finish and lateness != 0:
        raise PipelineError(
            f"the trigger {trigger!r} finishes at the end of the window, so data within the allowed lateness is "
            "dropped; give AfterWatermark a late trigger, or accept it with allow_finishing=True"
        )


def waits_for_the_end(trigger: Trigger) -> bool:
    """Whether ``trigger`` can be ready only once the watermark has passed the end of the window."""
    match trigger:
        case Default() | Never():
            return True
        case AfterWatermark(early, _):
            return early is None or waits_for_the_end(early)
        case AfterAll(triggers):
            return any(map(waits_for_the_end, triggers))
        case AfterEach(triggers):
            return waits_for_the_end(triggers[0])
        case AfterAny() | OrFinally() | Repeatedly():
            return all(map(waits_for_the_end, trigger.children))
    return False


def may_finish_early(trigger: Trigger) -> bool:
    """Whether ``trigger`` can finish before the watermark has passed the end of the window."""
    match trigger:
        case AfterWatermark():
            return False
        case AfterAny() | AfterAll():
            return not waits_for_the_end(trigger)
        case AfterEach(triggers):
            return all(map(may_finish_early, triggers))
        case OrFinally(main, until):
            return may_finish_early(main) or may_finish_early(until)
    return trigger.may_finish
