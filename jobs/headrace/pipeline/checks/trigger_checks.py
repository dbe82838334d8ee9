"""Static checks of triggers (semantics 4.8): which nodes there are, and which roots can lose data by finishing."""

from collections.abc import Iterator

from headrace.errors import PipelineError
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.typing import type_of
from headrace.model.triggers import Trigger
from headrace.model.triggers.custom import CustomTrigger, check_trigger
from headrace.model.triggers.data_driven import AfterPattern, AfterPunctuation, DataDriven
from headrace.model.triggers.trigger import predicates
from headrace.model.vocabulary import words

VOCABULARY: tuple[type[Trigger], ...] = (*words(Trigger).values(), CustomTrigger)
"""What may stand in a pipeline: what fingerprints have words for, and triggers of a user's own."""

_OF_VALUES = (AfterPattern, AfterPunctuation, CustomTrigger, DataDriven)


def nodes(trigger: Trigger) -> Iterator[Trigger]:
    """``trigger`` and everything below it. Raises PipelineError for what is not a trigger."""
    if not isinstance(trigger, VOCABULARY):
        raise PipelineError(
            f"{trigger!r} is not a trigger; use one of {', '.join(sorted(t.__name__ for t in VOCABULARY))}"
        )
    yield trigger
    for child in trigger.children:
        yield from nodes(child)


def looks_at_values(trigger: Trigger) -> str | None:
    """The first node of ``trigger`` that looks at what elements hold, for which a withdrawn one counts as one more."""
    return next((type(node).__name__ for node in nodes(trigger) if isinstance(node, _OF_VALUES)), None)


def check_reads(trigger: Trigger, schema: Schema) -> None:
    """Raise PipelineError if a node of ``trigger`` reads what elements of ``schema`` do not have."""
    for node in nodes(trigger):
        for name, predicate, columns in predicates(node, schema):
            kind = type_of(predicate, columns)
            if kind is not DataType.BOOL:
                raise PipelineError(f"the predicate of {name} is {kind}, not bool")


def check_own(trigger: Trigger, merging: bool) -> None:
    """Raise PipelineError if a user's own node of ``trigger`` cannot run; ``merging``: over windows that merge."""
    for node in nodes(trigger):
        if isinstance(node, CustomTrigger):
            check_trigger(node, merging)


def check_finishing(trigger: Trigger, lateness: int | None) -> None:
    """Raise PipelineError if ``trigger`` can finish, and so close its window, before the window expires."""
    if trigger.may_finish_early:
        raise PipelineError(
            f"the trigger {trigger!r} can finish, after which its window drops all data; "
            "wrap it in Repeatedly(...), or accept it with allow_finishing=True"
        )
    if trigger.may_finish and lateness != 0:
        raise PipelineError(
            f"the trigger {trigger!r} finishes at the end of the window, so data within the allowed lateness is "
            "dropped; give AfterWatermark a late trigger, or accept it with allow_finishing=True"
        )
