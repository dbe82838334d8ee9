"""The model interpreted element by element in plain Python: the oracle that the Spark engine must equal, pane for pane.

It is written to be read beside the specification, not to be fast, and shares no step, merge or drop code with the
engine.

Run a real pipeline::

    results = run_pipeline(pipeline, [Epoch(Instant(0), records), Epoch(Instant(60_000_000), more, is_last=True)])
    results[0].panes        # Pane values of the last aggregation in order of emission, retractions included
    results[0].drops        # elements of expired or closed windows, and duplicates; .cause says which
    results[0].rejected     # records without event time, key or id, panes without the key of the next aggregation
    results[0].watermark    # after the epoch; .output_watermarks has one for each aggregation
    fold_current(pane for result in results for pane in result.panes)   # {(key, window): Pane}

An epoch may bring signals (``signals=``) and records of further inputs (``union={name: records}``).
``PipelineRun(pipeline).run(epoch)`` does the same one epoch at a time. Below that: ``Operator`` (one grouping, driven
by ``step``), ``Chain`` (several), ``Grouping`` (where, when, how, what), ``evaluate`` (expressions), ``windows``
(assign and merge). The input of everything is values; nothing here has a clock, does I/O or draws random numbers.
"""

from headrace.errors import IntegerOverflowError
from headrace_lab.reference.chain import Chain, PaneToElements
from headrace_lab.reference.contents import Contents, Extract, collect, combine, extract_with, read
from headrace_lab.reference.elements import DropCause, DroppedElement, Element, Output
from headrace_lab.reference.evaluate import Record, evaluate
from headrace_lab.reference.intake import RejectedRecord
from headrace_lab.reference.operator import Grouping, Operator
from headrace_lab.reference.pipeline import (
    Epoch,
    EpochResult,
    OutputsRun,
    PipelineRun,
    fold_current,
    run_outputs,
    run_pipeline,
)
from headrace_lab.reference.stages import element_size, pane_record

__all__ = [
    "Chain",
    "Contents",
    "DropCause",
    "DroppedElement",
    "Element",
    "Epoch",
    "EpochResult",
    "Extract",
    "Grouping",
    "IntegerOverflowError",
    "Operator",
    "Output",
    "OutputsRun",
    "PaneToElements",
    "PipelineRun",
    "Record",
    "RejectedRecord",
    "collect",
    "combine",
    "element_size",
    "evaluate",
    "extract_with",
    "fold_current",
    "pane_record",
    "read",
    "run_outputs",
    "run_pipeline",
]
