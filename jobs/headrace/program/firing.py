"""What one (key, window) becomes in one epoch, as a column program (semantics, sections 3 to 5 and 12.1).

The program reads the state of the window (merged already, if windows merged), and the number of elements that the epoch
brings. It reads the clocks: ``W`` before and after, ``P``. It says what is stored, and what the window emits at its two
moments. These are the bundle (with due deadlines) under the old watermark, then the watermark step. A window can fire
at both: coalescing them is wrong. A batch has only the second.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec

from headrace.model.accumulation import Accumulation, Firing, How, TimestampCombiner, Timing
from headrace.model.expressions.columns import coalesce, greatest, least
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Expr, Literal, col
from headrace.model.expressions.typing import columns_of
from headrace.model.time import GLOBAL_WINDOW_END, NEVER, Instant
from headrace.program import columns as c
from headrace.program.columns import FALSE, TRUE, Program, all_of, any_of, choose, negate
from headrace.program.triggers.node import Bundle, Moment, Node, columns, fresh_state, next_deadline


class FiringClocks(msgspec.Struct, frozen=True):
    """The clocks inside one epoch (semantics 12.1), and the processing time of the epoch before. Percentile watermarks
    (9.2) are before and after, and never below the watermark.
    """

    watermark_before: Instant
    watermark_after: Instant
    previous_processing_time: Instant
    processing_time: Instant
    percentiles: Mapping[float, tuple[Instant, Instant]] = msgspec.field(default_factory=dict)


@dataclass(frozen=True)
class PaneColumns:
    """Columns that describe one possible pane. ``is_emitted``: something is emitted, if only the retractions of what
    was before; ``exists``: the pane as well; ``is_empty``: its contents are empty.
    """

    is_emitted: Expr
    exists: Expr
    time: Expr
    timing: Expr
    index: Expr
    nonspeculative_index: Expr
    is_last: Expr
    is_empty: Expr


class FiringStep(NamedTuple):
    """A column of a program, and which columns nothing reads any more behind it."""

    name: str
    expr: Expr
    columns_done: tuple[str, ...]


@dataclass(frozen=True)
class FiringPlan:
    """The program and where its results are. ``panes`` are the possible ones in order: of the bundle or a deadline, of
    signals if the trigger waits for any, of the watermark step. A batch has only the last. The other results are the
    new state, and whether the row changed at all.
    """

    program: Program
    panes: tuple[PaneColumns, ...]
    state: Mapping[str, Expr]
    is_cleared: Expr
    is_touched: Expr
    is_changed: Expr
    dropped_closed: Expr
    dropped_retractions: Expr

    @property
    def outputs(self) -> tuple[Expr, ...]:
        """All results of the program."""
        panes = [expr for pane in self.panes for expr in vars(pane).values()]
        rest = (self.is_cleared, self.is_touched, self.is_changed, self.dropped_closed, self.dropped_retractions)
        return (*panes, *self.state.values(), *rest)

    @cached_property
    def steps_to_run(self) -> tuple[FiringStep, ...]:
        """The steps of the program that some result reads, in order. Worked out once: a plan runs in every task."""
        lets = self.program.lets
        wanted_names = {name for expr in self.outputs for name in columns_of(expr)}
        needed_steps = []
        # from the end, so that what only steps read that nobody needs is not needed either
        for name, expr in reversed(lets.items()):
            if name in wanted_names:
                last_read = columns_of(expr) - wanted_names
                wanted_names |= last_read
                needed_steps.append(FiringStep(name, expr, tuple(sorted(last_read & lets.keys()))))
        return tuple(needed_steps[::-1])


NO_HOLD = Literal(None, DataType.INT)
_NO: Expr = FALSE
_EARLY, _ON_TIME, _LATE = (Literal(t.value) for t in (Timing.EARLY, Timing.ON_TIME, Timing.LATE))


def expiry_watermark(how: How) -> Expr:
    """The watermark that must be exceeded for a window to expire, clamped to the end of time (semantics 5.2)."""
    if how.allowed_lateness is None:
        return Literal(NEVER)
    return least(col(c.WINDOW_END) + (how.allowed_lateness - 1), Literal(GLOBAL_WINDOW_END - 1))


class _Window:
    """The pane bookkeeping of one window while the program is being built."""

    def __init__(self, how: How, program: Program, max_timestamp: Expr) -> None:
        self.how, self.program, self.max_timestamp = how, program, max_timestamp
        self.new: Expr = col(c.NEW)
        self.hold: Expr = col(c.HOLD)
        self.index: Expr = col(c.INDEX)
        self.nonspeculative: Expr = col(c.NONSPECULATIVE)
        self.is_cleared: Expr = FALSE
        self.exists: Expr = TRUE
        self.same: Expr = col(c.SAME) if how.elide_unchanged else FALSE
        self.live_time: Expr = col(c.LIVE_TIME) if how.elide_unchanged else NO_HOLD

    def merge_holds(self, was_merged: Expr) -> None:
        """The hold at the end of a window moves with the end when windows merge (6.4); the others are folded."""
        if self.how.timestamp is TimestampCombiner.END_OF_WINDOW:
            moves = all_of(was_merged, self.hold.is_not_null())
            self.hold = self.program.let("hold", choose(moves, self.max_timestamp, self.hold))

    def take_hold(self, on_time: Expr) -> None:
        """Record the hold of a bundle, where ``on_time`` says that its window is not past (6.2)."""
        match self.how.timestamp:
            case TimestampCombiner.END_OF_WINDOW:
                hold = choose(on_time, self.max_timestamp, self.hold)
            case TimestampCombiner.EARLIEST:
                hold = least(self.hold, choose(on_time, col(c.HELD_TIME), NO_HOLD))
            case TimestampCombiner.LATEST:
                hold = greatest(self.hold, choose(on_time, col(c.HELD_TIME), NO_HOLD))
        self.hold = self.program.let("hold", hold)

    def emit_pane(self, fires: Expr, last: Expr, was_past_end: Expr, is_before_end: Expr) -> PaneColumns:
        """Decide the pane of a firing (4.3, 5.5, 6.1). ``was_past_end``: W was past the end before this step;
        ``is_before_end``: W is not past it.
        """
        let = self.program.let
        late = any_of(self.nonspeculative > 0, all_of(was_past_end, self.hold.is_null()))
        timing = let("timing", choose(late, _LATE, choose(is_before_end, _EARLY, _ON_TIME)))
        reasons = [self.new > 0]
        if self.how.on_time is Firing.ALWAYS:
            reasons.append(timing == _ON_TIME)
        if self.how.closing is Firing.ALWAYS:
            reasons.append(last)
        time = coalesce(self.hold, self.max_timestamp)
        is_unchanged = all_of(self.exists, self.same, self.live_time == time)
        emits = let("emitted", all_of(fires, any_of(*reasons), negate(is_unchanged)))
        exists = let("exists", all_of(emits, self.exists))
        speculative = timing == _EARLY
        pane = PaneColumns(
            is_emitted=emits,
            exists=exists,
            time=time,
            timing=timing,
            index=self.index,
            nonspeculative_index=choose(speculative, -1, self.nonspeculative),
            is_last=let("last", last),
            is_empty=self.is_cleared,
        )
        self.index = let("index", choose(exists, self.index + 1, self.index))
        self.nonspeculative = let(
            "nonspec", choose(all_of(exists, negate(speculative)), self.nonspeculative + 1, self.nonspeculative)
        )
        if self.how.elide_unchanged:  # contents are the same at every moment of an epoch, so is a pane emitted in it
            self.same = let("same", choose(emits, self.exists, self.same))
            self.live_time = let("live_time", choose(emits, time, self.live_time))
        self.new = let("new", choose(fires, 0, self.new))
        self.hold = let("hold", choose(fires, NO_HOLD, self.hold))
        if self.how.accumulation is Accumulation.DISCARDING:
            self.is_cleared = let("cleared", any_of(self.is_cleared, fires))
        return pane


def _evaluation_moments(node: Node, passes: Expr, program: Program) -> tuple[Moment, Moment, Expr]:
    """What evaluations see before and after the watermark step, and whether a watermark crosses the end in it: above
    ``passes`` it has passed the window.
    """
    now = col(c.PROCESSING_TIME)
    passed_flags = {}
    pairs = [(c.WATERMARK_BEFORE, c.WATERMARK_AFTER)]
    pairs += [(f"{c.PERCENTILE_BEFORE}{i}", f"{c.PERCENTILE_AFTER}{i}") for i in range(len(node.percentiles))]
    for name in [name for pair in pairs for name in pair]:
        passed_flags[name] = program.let("passed", col(name) > passes)
    is_crossing = any_of(
        *(all_of(negate(passed_flags[before_name]), passed_flags[after_name]) for before_name, after_name in pairs)
    )
    sides = []
    for side in (0, 1):
        percentiles = {q: passed_flags[pair[side]] for q, pair in zip(sorted(node.percentiles), pairs[1:], strict=True)}
        sides.append(Moment(passed_flags[pairs[0][side]], now, percentiles))
    return sides[0], sides[1], program.let("crossed", is_crossing)


def compile_firing(
    node: Node,
    how: How,
    merging: bool,
    withdrawable: bool = False,
    *,
    counts_net: bool | None = None,
    is_batch: bool = False,
) -> FiringPlan:
    """The program for windows of one aggregation; the program for a batch, if ``is_batch``.

    It reads these columns of the row: ``_has``, ``_was_closed``, ``_n``, and the state columns of an open window
    (initial values where there is none). It also reads the measures of ``node``, the clocks, ``_heard_`` of each signal
    of ``node``, and the window. It reads ``_merged`` when windows can merge, and ``_held`` unless panes are stamped
    with the end of the window. Where unchanged panes are elided it reads ``_same`` (never NULL) and ``_live_time``. If
    elements are ``withdrawable``, it reads ``_nr``, and ``_net`` (delta included) if the row ``counts_net``. The
    default for that is whether the mode is retracting: a window of which every element was withdrawn has no pane (9.1).
    """
    if counts_net is None:
        counts_net = withdrawable and how.accumulation is Accumulation.RETRACTING
    firing = _Firing(node, how, merging, withdrawable, counts_net=counts_net, is_batch=is_batch)
    firing.take_bundle()
    firing.answer_bundle()
    firing.step_watermark()
    return firing.make_plan()


class _Firing:
    """One window in one epoch while its program is being built. The bundle comes, the trigger answers to it, the
    watermark steps, and what is left is stored.
    """

    def __init__(
        self, node: Node, how: How, merging: bool, withdrawable: bool, *, counts_net: bool, is_batch: bool
    ) -> None:
        self.node, self.how = node, how
        self.merging, self.withdrawable, self.is_batch = merging, withdrawable, is_batch
        self.counts_net = counts_net
        self.program = Program()
        self.let = self.program.let
        self.max_timestamp = self.let("max_ts", col(c.WINDOW_END) - 1)
        self.expires = self.let("expiry", expiry_watermark(how))
        # panes of a global window are in windows that end beyond all time, and a watermark of plus infinity passes them
        self.passes = self.let("passes", least(self.max_timestamp, Literal(GLOBAL_WINDOW_END - 1)))
        self.moment_before, self.moment_after, self.is_crossed = _evaluation_moments(node, self.passes, self.program)
        self.is_expired = self.let("expired", col(c.WATERMARK_AFTER) > self.expires)
        self.window = _Window(how, self.program, self.max_timestamp)
        self.state: Mapping[str, Expr] = {**fresh_state(node), **columns(node)}
        self.panes: list[PaneColumns] = []
        self.fires, self.is_signalled, self.is_finished = _NO, _NO, _NO

    def take_bundle(self) -> None:
        """Elements come to the window, merged already, and its trigger, under the old watermark."""
        let, window = self.let, self.window
        # a closed window drops what comes: ``make_plan`` counts it
        count = let("count", choose(col(c.WAS_CLOSED), 0, col(c.COUNT)))
        self.is_touched = let("touched", count > 0)
        self.is_open = let("open", any_of(col(c.HAS_STATE), self.is_touched))
        if self.merging:
            merged_state = self.node.after_merge(self.program, self.state, self.moment_before)
            self.state = {
                name: let("healed", choose(col(c.WAS_MERGED), merged_state[name], value))
                for name, value in self.state.items()
            }
            window.merge_holds(col(c.WAS_MERGED))
        self._pass_bundle(Bundle(count, self.is_touched))
        window.new = let("new", window.new + count)
        window.take_hold(all_of(self.is_touched, negate(self.moment_before.passed_end)))
        if self.counts_net:
            window.exists = let("exists", coalesce(col(c.NET), 0) != 0)
        self.due = let("due", col(c.DUE_TIME) <= col(c.PROCESSING_TIME))

    def answer_bundle(self) -> None:
        """The trigger fires for the bundle and due deadlines, and once more for signals, which come after them (9.3).
        In a batch it only learns of them.
        """
        if not self.is_batch:
            is_asked = any_of(self.is_touched, self.due)
            self.fires = self.let("fires", all_of(self.is_open, is_asked, self._is_ready(self.moment_before)))
            self.is_finished = self._answer_firing(self.fires)
        if self.node.signals:
            self._hear_signals(all_of(self.is_open, negate(self.is_finished)))
            if not self.is_batch:
                has_ended = self._answer_firing(
                    self.let("answers", all_of(self.is_signalled, self._is_ready(self.moment_before)))
                )
                self.is_finished = self.let("finished", any_of(self.is_finished, has_ended))

    def step_watermark(self) -> None:
        """The watermark steps: closing wins over firing, one activation at most (3.2, 5.3, 5.4), in a batch exactly
        one.
        """
        let = self.let
        still_open = let("still_open", all_of(self.is_open, negate(self.is_finished)))
        closes = let("closes", all_of(still_open, self.is_expired))
        is_asked = TRUE if self.is_batch else self.is_crossed
        fires_again = let(
            "fires_again", all_of(still_open, negate(self.is_expired), is_asked, self._is_ready(self.moment_after))
        )
        self.ends = self._fire_trigger(fires_again, self.moment_after)
        self.is_activated = still_open if self.is_batch else let("activated", any_of(fires_again, closes))
        is_early = negate(self.moment_after.passed_end)
        self.panes.append(
            self.window.emit_pane(self.is_activated, any_of(closes, self.ends), self.moment_before.passed_end, is_early)
        )

    def make_plan(self) -> FiringPlan:
        """What is stored of the window, and the whole program."""
        let, window, was_closed = self.let, self.window, col(c.WAS_CLOSED)
        marker = let("marker", any_of(self.is_finished, self.ends, all_of(was_closed, negate(self.is_open))))
        is_gone = any_of(self.is_expired, negate(any_of(self.is_open, marker)))
        status = let("status", choose(is_gone, c.STATUS_GONE, choose(marker, c.STATUS_CLOSED, c.STATUS_OPEN)))
        keeps = let("keeps", status == c.STATUS_OPEN)
        initial = fresh_state(self.node)
        kept_state = {name: let("kept", choose(keeps, value, initial[name])) for name, value in self.state.items()}
        number_dropped = let("dropped", choose(was_closed, col(c.COUNT), 0))
        # an open window waits for its end, and from then on to expire
        due = choose(all_of(keeps, negate(self.moment_after.passed_end)), self.passes, self.expires)
        is_changed = self._changed_condition(number_dropped)
        state = {
            c.STATUS: status,
            c.NEW: choose(keeps, window.new, 0),
            c.HOLD: choose(keeps, window.hold, NO_HOLD),
            c.INDEX: window.index,
            c.NONSPECULATIVE: window.nonspeculative,
            **kept_state,
            c.DUE_EVENT: choose(status == c.STATUS_GONE, NEVER, due),
            c.DUE_TIME: choose(keeps, next_deadline(self.node, kept_state, col(c.PROCESSING_TIME)), NEVER),
        }
        withdrawn = choose(all_of(was_closed, number_dropped > 0), col(c.RETRACTION_COUNT), 0)
        return FiringPlan(
            program=self.program,
            panes=tuple(self.panes),
            state=state,
            is_cleared=let("contents_gone", any_of(negate(keeps), window.is_cleared)),
            is_touched=self.is_touched,
            is_changed=let("changed", is_changed),
            dropped_closed=number_dropped,
            dropped_retractions=withdrawn if self.withdrawable else Literal(0),
        )

    def _changed_condition(self, number_dropped: Expr) -> Expr:
        # the due event time counts also when nothing fires: the row must ask for its next activation
        return any_of(
            self.is_touched,
            self.due,
            self.let("reached", col(c.DUE_EVENT) < col(c.WATERMARK_AFTER)),
            self.fires,
            self.is_signalled,
            self.is_activated,
            number_dropped > 0,
            all_of(col(c.WAS_CLOSED), self.is_expired),
            col(c.WAS_MERGED) if self.merging else FALSE,
        )

    def _is_ready(self, moment: Moment) -> Expr:
        return self.node.is_ready(self.program, self.state, moment)

    def _answer_firing(self, fires: Expr) -> Expr:
        """A firing under the old watermark, with its pane; whether it finished the window."""
        finishes, passed_end = self._fire_trigger(fires, self.moment_before), self.moment_before.passed_end
        self.panes.append(self.window.emit_pane(fires, finishes, passed_end, negate(passed_end)))
        return finishes

    def _fire_trigger(self, fires: Expr, moment: Moment) -> Expr:
        """What a firing does to the trigger (3.4); whether it finished the window."""
        self._name_state(self.node.on_fire(self.program, self.state, fires, moment))
        return self.let("finished", all_of(fires, self.node.is_finished(self.state)))

    def _hear_signals(self, still_open: Expr) -> None:
        """Signals come, after the bundle and the deadlines (9.3); ``is_signalled``: the window received one."""
        flags = {name: col(f"{c.SIGNAL_PREFIX}{i}") for i, name in enumerate(sorted(self.node.signals))}
        signals_received = {name: self.let("heard", all_of(still_open, flag)) for name, flag in flags.items()}
        self.is_signalled = self.let("told", any_of(*signals_received.values()))
        self._pass_bundle(Bundle(Literal(0), FALSE, signals_received))

    def _pass_bundle(self, bundle: Bundle) -> None:
        self._name_state(self.node.on_element(self.program, self.state, bundle, self.moment_before))

    def _name_state(self, state: Mapping[str, Expr]) -> None:
        self.state = {name: self.let("s", value) for name, value in state.items()}
