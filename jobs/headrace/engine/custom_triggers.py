"""A user's own trigger as columns (semantics 9.3)."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import types as t

from headrace.engine.types import SparkColumn
from headrace.engine.vectorised import own_type, vectorised
from headrace.kernel.custom_triggers import TriggerBatches
from headrace.model.custom_triggers import CustomTrigger
from headrace.program.triggers.custom import DEADLINE, FINISHED, state_field


@dataclass(frozen=True)
class TriggerCalls:
    """The methods of ``trigger`` as functions of columns."""

    trigger: CustomTrigger

    def method(self, name: str) -> Callable[..., SparkColumn]:
        """The method ``name`` of ``TriggerBatches``."""
        function = getattr(TriggerBatches(self.trigger), name)
        if name == "ready":
            return vectorised(self.trigger, function, t.BooleanType(), is_read_often=True)
        kinds = self.trigger.state_types.values()
        fields = [t.StructField(state_field(i), own_type(kind)) for i, kind in enumerate(kinds)]
        fields += [t.StructField(FINISHED, t.BooleanType()), t.StructField(DEADLINE, t.LongType())]
        return vectorised(self.trigger, function, t.StructType(fields), is_read_often=True)
