"""Conformance cases as values: what a case configures, the steps of its script, and what they expect.

All instants and durations are integer ticks, whatever a tick is. ``conformance_schema`` reads cases from neutral JSON.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.model.accumulation import How
from headrace.model.combiners import Combiner
from headrace.model.expressions.data_types import ColumnType, DataType, Schema
from headrace.model.expressions.expr import Expr
from headrace.model.expressions.typing import columns_of
from headrace.model.time import Duration, Instant
from headrace.model.triggers import Trigger
from headrace.model.triggers.data_driven import AfterPunctuation
from headrace.model.windows import Window, WindowFn
from headrace.pipeline.endpoints import OWN
from headrace.pipeline.loops import Loop
from headrace.pipeline.rows import Take

Json = Mapping[str, Any]

DEFAULT_KEY = "k"
MOST_STAGES = 6
"""How many stages, or outputs, a case may ask for their output watermarks."""
RESULT = "result"
"""The value of a pane, as conditions over it call it."""
MET_COLUMN = "met"
"""The value of what a joined row has met, as panes call it."""


@dataclass(frozen=True)
class CaseRows:
    """What leaves as rows (semantics 15): what ``take`` says of each group, or each element if it is None; it says so
    for elements whose attribute ``only`` is true, for all if it is None. ``horizon``: how long ids are remembered that
    tell duplicates; None: none are told. ``join``: what elements meet of those of the right side, as the case says it
    (``rows``). ``value_type``: that of values; None: they are text or integers. ``condition``: without which an element
    gives no row. ``are_ids``: whether values are the ids.
    """

    take: Take | None = None
    only: str | None = None
    horizon: Duration | None = None
    join: Json | None = None
    value_type: ColumnType | None = None
    condition: Expr | None = None
    are_ids: bool = False


@dataclass(frozen=True)
class CaseStage:
    """One grouping operator of a case. ``combine`` None means collect. ``columns`` are further aggregates of its values
    and what is computed of a row of results (8.4); ``having`` reads these and ``RESULT``. With a ``loop`` its elements
    are edges, and its results are of the vertices. With ``rows`` its panes are rows, and ``columns`` are computed of
    elements.
    """

    where: WindowFn
    when: Trigger
    how: How
    combine: Combiner | None
    having: Expr | None = None
    loop: Loop | None = None
    columns: Mapping[str, Combiner | Expr] = field(default_factory=dict)
    rows: CaseRows | None = None

    @property
    def aggregates(self) -> dict[str, Combiner]:
        """The columns that are aggregates."""
        return {name: combiner for name, combiner in self.columns.items() if isinstance(combiner, Combiner)}

    @property
    def computed_columns(self) -> dict[str, Expr]:
        """The columns that are computed of a row of results."""
        return {name: expr for name, expr in self.columns.items() if isinstance(expr, Expr)}

    @property
    def names(self) -> tuple[str, ...]:
        """The values of its panes, in their order."""
        met_columns = [] if self.rows is None or self.rows.join is None else [MET_COLUMN]
        return (RESULT, *self.aggregates, *self.computed_columns, *met_columns)

    @property
    def schema(self) -> Schema:
        """Attributes that data-driven triggers read, all booleans."""
        nodes = _nodes(self.when)
        predicates = [node.predicate for node in nodes if isinstance(node, AfterPunctuation)]
        return dict.fromkeys(frozenset().union(*map(columns_of, predicates)), DataType.BOOL)


@dataclass(frozen=True)
class CaseOutput:
    """What an output of a case reads: of the outputs ``of``, by number, panes, the results of those ``minus`` negated
    (semantics 12.18); without ``of``, the elements whose attribute ``only`` is true, all if it is None.
    """

    name: str
    of: tuple[int, ...] = ()
    minus: frozenset[int] = frozenset()
    only: str | None = None


@dataclass(frozen=True)
class StageLink:
    """How a pane of the first stage becomes an element of the second: its key and its value, which is that of a
    ``column``.
    """

    key_is_value: bool
    value_is_one: bool
    column: str = RESULT


@dataclass(frozen=True)
class CaseElement:
    """One element of an input step; ``attributes`` are what triggers may read, as booleans. ``edge``: the columns of an
    edge of a loop. ``id``: by which duplicates are told. ``input``: which one it is of; for its right elements
    ``order`` says which of several at one moment counts.
    """

    key: str | None
    value: Any
    timestamp: Instant
    is_retraction: bool = False
    size: int = 0
    attributes: Mapping[str, bool] = field(default_factory=dict)
    edge: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    input: str = OWN
    order: int | None = None


@dataclass(frozen=True)
class BundleStep:
    """One bundle; ``is_batch``: it is all input, after which the watermark goes to +inf in the same epoch (12.1)."""

    elements: tuple[CaseElement, ...]
    is_batch: bool = False


@dataclass(frozen=True)
class AdvanceWatermark:
    """The input watermark, and percentile watermarks by percentile."""

    to: Instant
    percentiles: Mapping[float, Instant] = field(default_factory=dict)


@dataclass(frozen=True)
class AdvanceProcessingTime:
    """The processing-time clock."""

    to: Instant


@dataclass(frozen=True)
class Expect:
    """Exactly the panes since the last such step; only the listed attributes of each are compared."""

    panes: tuple[Json, ...]
    ordered: bool = False
    ordered_per_window: bool = False


@dataclass(frozen=True)
class ExpectDropped:
    """Drop counters from the beginning, by cause."""

    counts: Mapping[str, int]


@dataclass(frozen=True)
class ExpectOutputWatermark:
    """Output watermarks by stage, or output (0, 1, ...)."""

    stages: Mapping[int, Instant]


@dataclass(frozen=True)
class ExpectState:
    """Which windows have state: optional in the schema, and not compared here."""


@dataclass(frozen=True)
class ExpectAssigned:
    """The windows of a timestamp."""

    timestamp: Instant
    windows: frozenset[Window]


@dataclass(frozen=True)
class ExpectMerged:
    """What the windows of some timestamps become when merged together."""

    timestamps: tuple[Instant, ...]
    windows: frozenset[Window]


@dataclass(frozen=True)
class ExpectCombined:
    """What a combiner gives for values in groups, less the uncombined ones."""

    combiner: Combiner
    groups: tuple[tuple[Any, ...], ...]
    uncombine: tuple[Any, ...]
    equals: Any


Step = (
    BundleStep
    | AdvanceWatermark
    | AdvanceProcessingTime
    | Expect
    | ExpectDropped
    | ExpectOutputWatermark
    | ExpectState
    | ExpectAssigned
    | ExpectMerged
    | ExpectCombined
)


@dataclass(frozen=True)
class Case:
    """A case. Its ``stages`` are a chain; or, where it has ``outputs``, one for each of these. An output comes after
    those that it reads, and the panes are those of the last one.

    ``strict``: output may appear only directly before an ``Expect``.
    ``expect_failure``: the replay must fail, with this text in its message. ``unknown_fields`` of the file, for people:
    nothing reads them.
    """

    name: str
    stages: tuple[CaseStage, ...]
    between: StageLink | None
    steps: tuple[Step, ...]
    initial_watermark: Instant
    initial_processing_time: Instant
    strict: bool
    expect_failure: str | None
    unknown_fields: tuple[str, ...] = ()
    outputs: tuple[CaseOutput, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The values of its panes, in their order."""
        return self.stages[-1].names


def _nodes(trigger: Trigger) -> list[Trigger]:
    return [trigger, *(node for child in trigger.children for node in _nodes(child))]
