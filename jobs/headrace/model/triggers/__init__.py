"""When in processing time: triggers (semantics, section 4; Dataflow paper, section 2.3).

A trigger is a tree of frozen values. Executors give each node its state; the meaning of every node is the table in
semantics 4.2. ``may_finish`` says whether the node can finish and so close the window for good (4.8); ``continuation``
is the trigger of a second grouping that has none of its own (4.7).

Beside each trigger stand its word (``model.arguments``), what people read of it, and what it reads of elements.
"""

from headrace.model.triggers import composites, custom, data_driven, elementary
from headrace.model.triggers.elementary import Signal, Trigger

__all__ = ["Signal", "Trigger", "composites", "custom", "data_driven", "elementary"]
