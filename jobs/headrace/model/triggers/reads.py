"""What triggers read of elements. Those that look into elements register it where they are defined."""

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import NamedTuple

from headrace.model.expressions.data_types import Schema
from headrace.model.expressions.expr import Expr
from headrace.model.triggers.trigger import Trigger


class TriggerPredicate(NamedTuple):
    """A predicate of a trigger: what errors call it, and the types of the columns that it reads."""

    name: str
    predicate: Expr
    schema: Schema


@singledispatch
def inputs(trigger: Trigger) -> Sequence[Expr]:
    """What ``trigger`` itself computes of each element."""
    return ()


@singledispatch
def predicates(trigger: Trigger, schema: Schema) -> Iterable[TriggerPredicate]:
    """What decides whether ``trigger`` itself is ready, over elements of ``schema``: expressions that must be bool.

    Raises PipelineError if they read what there is not.
    """
    return ()
