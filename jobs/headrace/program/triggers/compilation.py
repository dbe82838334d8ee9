"""From a trigger to its node: each node registers how its triggers compile where it is defined."""

from collections.abc import Sequence
from functools import singledispatch
from typing import NamedTuple

from headrace.errors import PipelineError
from headrace.model.expressions.data_types import Schema
from headrace.model.triggers import Trigger
from headrace.program.triggers.node import Node


class TriggerPlace(NamedTuple):
    """Where a trigger stands: whether the windows merge (semantics, below table 4.2), the types of the elements'
    columns, and its ``path`` from the root, with which its state columns begin.
    """

    merging: bool
    schema: Schema
    path: str = "_t"

    def below(self, step: str) -> "TriggerPlace":
        """The place of a child."""
        return self._replace(path=self.path + step)


@singledispatch
def compile_trigger(trigger: Trigger, at: TriggerPlace) -> Node:
    """The node of ``trigger``. Raises PipelineError if it has none."""
    raise PipelineError(f"{trigger!r} is not a trigger that has a program")


def compile_children(triggers: Sequence[Trigger], at: TriggerPlace) -> tuple[Node, ...]:
    """The nodes of the children of a trigger, which are numbered."""
    return tuple(compile_trigger(trigger, at.below(str(i))) for i, trigger in enumerate(triggers))
