"""One stage of a pipeline in a Spark application: its state, its clocks, and what an epoch makes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import Row
from pyspark.sql import functions as f

from headrace.engine import state as states
from headrace.engine import step as steps
from headrace.engine.delta import Accounting, Fate, account, aggregate, assigned
from headrace.engine.dues import Dues
from headrace.engine.elements import judge
from headrace.engine.layers import Added, expired, put_on_top
from headrace.engine.plan import Plan
from headrace.engine.spark_functions import applied
from headrace.engine.types import DataFrame
from headrace.model.time import MIN_INSTANT, NEVER, Instant
from headrace.model.triggers import Signal
from headrace.pipeline.graph import Stage
from headrace.program import columns as c
from headrace.program.firing import Clocks

NOTHING = Accounting(rows={}, late=0, late_retractions=0, max_event_time=None, min_accepted=None, max_accepted=None)


@dataclass(frozen=True)
class TakenIn:
    """A bundle, aggregated and counted: ``delta`` is None if none of it was accepted."""

    delta: DataFrame | None
    accounting: Accounting


EMPTY = TakenIn(None, NOTHING)


@dataclass(frozen=True)
class Stepped:
    """What one epoch did to a stage."""

    clocks: Clocks
    accounting: Accounting
    step: steps.Step | None
    summary: Row | None
    state: Added

    @property
    def has_panes(self) -> bool:
        """Whether anything was emitted."""
        return self.summary is not None and any(self.summary[name] for name in _EMITTED)

    @property
    def late(self) -> int:
        """Elements dropped because their window had expired (an element in each of its windows)."""
        return self.accounting.late

    @property
    def closed(self) -> int:
        """Elements dropped because their window was closed."""
        return self._counted("dropped_closed") - self._counted("dropped_retractions")

    @property
    def dropped_retractions(self) -> int:
        """Retractions whose window was expired or closed (9.1)."""
        return self.accounting.late_retractions + self._counted("dropped_retractions")

    def _counted(self, name: str) -> int:
        return (self.summary[name] or 0) if self.summary is not None else 0


_EMITTED = ("early", "on_time", "late", "retractions")


@dataclass
class Operator:
    """A stage with its state and clocks. Nothing here is lost between epochs that a restore would not bring back."""

    stage: Stage
    partitions: int
    layers: list[states.StateLayer] = field(default_factory=list)
    watermark: Instant = MIN_INSTANT
    processing_time: Instant = MIN_INSTANT
    published: Instant | None = MIN_INSTANT
    """The output watermark, None while it is not worked out since the last epoch."""
    percentiles: dict[float, Instant] = field(default_factory=dict)
    """The watermarks of the fastest q % of the input that the trigger looks at (semantics 9.2)."""

    def __post_init__(self) -> None:
        self.plan = Plan(self.stage)

    @cached_property
    def _program(self) -> steps.StepProgram:
        return steps.StepProgram(self.plan)

    @cached_property
    def _batch_program(self) -> steps.StepProgram:
        return steps.StepProgram(self.plan, is_batch=True)

    def take_in(self, judged: DataFrame) -> TakenIn:
        """Aggregate and count judged rows under the watermark that the last epoch left. One Spark job."""
        rows = assigned(self.plan, judged, self.watermark)
        behind = self.output_watermark if self.plan.stamps_elements else MIN_INSTANT
        delta = aggregate(self.plan, rows, self.partitions, behind).localCheckpoint(eager=False)
        accounting = account(self.plan, delta)
        return TakenIn(delta if accounting.rows.get(Fate.ACCEPTED) else None, accounting)

    def step(
        self,
        epoch: int,
        taken: TakenIn,
        processing_time: Instant,
        watermark: Instant,
        percentiles: Mapping[float, Instant] | None = None,
        *,
        signals: Sequence[Signal] = (),
        is_batch: bool = False,
    ) -> Stepped:
        """One epoch (semantics 12.1): ``taken`` under the old watermark, due deadlines, ``signals``, then the step to
        ``watermark``. ``is_batch``: it is all there is, and each window gives one pane, in that step.

        Clocks never go back. At most one Spark job, none if nothing is touched or due, and one more when layers merge.
        """
        clocks = self._advance(processing_time, watermark, percentiles or {})
        program = self._batch_program if is_batch else self._program
        step = program.build(epoch, self.layers, taken.delta, clocks, signals=signals)
        summary: Row | None = None
        if step is not None:
            step = replace(step, rows=step.rows.localCheckpoint(eager=False))
            summary = step.summary().collect()[0]
            if not summary["rows"]:
                step = summary = None
        state = self._remember(epoch, step, summary)
        self.layers = states.look_ahead(self.plan, self.layers, clocks)
        self.published = None
        return Stepped(clocks, taken.accounting, step, summary, state)

    def _advance(self, processing_time: Instant, watermark: Instant, percentiles: Mapping[float, Instant]) -> Clocks:
        before = (self.watermark, self.processing_time)
        self.watermark = Instant(max(self.watermark, watermark))
        self.processing_time = Instant(max(self.processing_time, processing_time))
        passed: dict[float, tuple[Instant, Instant]] = {}
        for q in sorted(self.plan.trigger.percentiles):
            old = self.percentiles.get(q, MIN_INSTANT)
            self.percentiles[q] = Instant(max(old, percentiles.get(q, old)))
            passed[q] = (Instant(max(old, before[0])), Instant(max(self.percentiles[q], self.watermark)))
        return Clocks(
            watermark_before=before[0],
            watermark_after=self.watermark,
            previous_processing_time=before[1],
            processing_time=self.processing_time,
            percentiles=passed,
        )

    @property
    def output_watermark(self) -> Instant:
        """O = min(W, every hold) (semantics 7.1); it never goes back, since no new hold may lie behind it (6.2).

        Where each window fires when W passes its end and holds are at the ends, nothing can hold it back; otherwise
        a Spark job may have to look at the state.
        """
        if self.published is None:
            self.published = self.watermark
            if self.plan.stamps_elements or not self.plan.trigger.ready_past_end:
                self.published = states.earliest_hold(self.plan, self.layers, self.watermark)
        return self.published

    def _remember(self, epoch: int, step: steps.Step | None, summary: Row | None) -> Added:
        """Put the epoch's rows on top of the layers that still count; what that means for the stored ones."""
        gone = expired(self.layers, self.watermark)
        self.layers = self.layers[gone:]
        if step is None or summary is None:
            return Added(expired=gone)
        rows, count = step.state(), summary["stay"] + summary["tombstones"]
        if not self.layers:  # there is nothing that a row could say to be gone
            rows, count = rows.where(f.col(c.STATUS) != c.DELETED), summary["stay"]
        if not count:
            return Added(expired=gone)
        top = self._layer(rows.localCheckpoint(eager=False), count, (epoch, epoch), summary)
        self.layers, added = put_on_top(self.layers, top, self._merged)
        return replace(added, expired=gone)

    def _merged(self, layers: Sequence[states.StateLayer], is_lowest: bool) -> states.StateLayer:
        rows = states.merge(self.plan, layers, drop_deleted=is_lowest).localCheckpoint(eager=False)
        found = rows.agg(
            f.count(f.lit(1)).alias("rows"),
            f.min(c.HOLD).alias("hold"),
            f.max(f.when(f.col(c.STATUS) != c.DELETED, f.col(c.WINDOW_END))).alias("latest_end"),
            *states.due_columns(self.plan),
        ).collect()[0]
        return self._layer(rows, found["rows"], (layers[0].first_epoch, layers[-1].last_epoch), found)

    def _layer(self, rows: DataFrame, count: int, epochs: tuple[int, int], found: Row) -> states.StateLayer:
        hold = Instant(NEVER if found["hold"] is None else found["hold"])
        event, time = Dues.of(found["event_dues"], self.plan.grain), Dues.of(found["time_dues"], 1)
        return states.StateLayer(rows, count, *epochs, self.plan.expiry(found["latest_end"]), event, time, hold)


def run_stages(
    operators: Sequence[Operator],
    epoch: int,
    taken: TakenIn,
    *,
    processing_time: Instant,
    watermark: Instant,
    percentiles: Mapping[float, Instant] | None = None,
    signals: Sequence[Signal] = (),
    is_batch: bool = False,
) -> tuple[Stepped, ...]:
    """One epoch of a chain: each operator gets the panes above it as one bundle under its old watermark, then the
    output watermark above it (semantics 7.2, 12.1). ``taken``, ``watermark``, ``percentiles`` are those of the first;
    ``signals`` are heard by all, and a batch is one to all.
    """
    done: list[Stepped] = []
    for operator in operators:
        if done:
            above = done[-1]
            bundle = entering(operator.plan, above)
            taken = EMPTY if bundle is None else operator.take_in(judge(operator.plan, bundle))
            watermark = operators[len(done) - 1].output_watermark
        source = None if done else percentiles
        stepped = operator.step(epoch, taken, processing_time, watermark, source, signals=signals, is_batch=is_batch)
        done.append(stepped)
    return tuple(done)


def entering(plan: Plan, above: Stepped) -> DataFrame | None:
    """What an epoch of the stage above brings to the stage of ``plan``; None if it emitted nothing."""
    if above.step is None or not above.has_panes:
        return None
    panes, transform = above.step.elements(), plan.stage.aggregation.transform
    return panes if transform is None else applied(transform, panes)


def due_after(operators: Sequence[Operator]) -> tuple[Instant, Instant]:
    """Lower bounds of the next watermark and the next processing time at which some window wants an activation."""
    found = [states.next_due(o.layers, o.watermark, o.processing_time) for o in operators]
    return Instant(min(event for event, _ in found)), Instant(min(time for _, time in found))
