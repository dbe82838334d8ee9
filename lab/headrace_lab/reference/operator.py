"""One grouping operator: its state per (key, window) and the steps that change it (semantics 3, 5, 6 and 9.1).

``Operator.step`` is one epoch as in 12.1. The processing-time clock moves, the bundle is dropped and evaluated under
the old watermark, due deadlines of untouched windows are evaluated, then the watermark moves. Any part may be missing,
so the steps of section 3 are calls of it with one argument. A batch, all input in one epoch, is evaluated only when the
watermark moves.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.errors import PipelineError
from headrace.model.accumulation import Accumulation, Firing, How, TimestampCombiner, Timing
from headrace.model.expressions.data_types import Schema
from headrace.model.time import GLOBAL_WINDOW_END, MIN_INSTANT, NEVER, Instant
from headrace.model.triggers import Signal, Trigger
from headrace.model.windows import Window, WindowFn
from headrace_lab.reference import windows as windowing
from headrace_lab.reference.contents import Contents, Extract
from headrace_lab.reference.elements import DropCause, DroppedElement, Element, Key, Output, Pane
from headrace_lab.reference.evaluate import same
from headrace_lab.reference.trigger_node import Arrival, FiringClocks, Moment, Node
from headrace_lab.reference.triggers import start

Place = tuple[Key, Window]
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Grouping:
    """Where, when, how and what of one operator.

    ``schema`` types the records that data-driven triggers read, ``key_types`` names and types the parts of a key.
    ``compute`` makes the values of a row of results of its aggregates (8.4); only panes that ``having`` lets out leave
    (9.10).
    """

    where: WindowFn
    when: Trigger
    how: How
    extract: Extract
    schema: Schema = field(default_factory=dict)
    key_types: Schema = field(default_factory=dict)
    compute: Callable[[Key, Window, Values], Values] = lambda key, window, aggregates: aggregates
    having: Callable[[Pane], bool] = lambda pane: True
    takes_each: bool = False

    def assign(self, element: Element) -> list[Window]:
        """The windows of ``element``."""
        key = dict(zip(self.key_types, element.key, strict=False))
        phase = windowing.phase_of(self.where, key, self.key_types)
        return windowing.assign(self.where, element.timestamp, element.record, phase)

    def expiry(self, window: Window) -> Instant:
        """``window`` is expired once the watermark is above this (5.2)."""
        if self.how.allowed_lateness is None:
            return NEVER
        return Instant(min(window.max_timestamp + self.how.allowed_lateness, GLOBAL_WINDOW_END - 1))


@dataclass
class _Open:
    """State of one open window. ``hold`` is the element hold; None means that no on-time data is pending (6.2)."""

    trigger: Node
    contents: Contents = field(default_factory=Contents)
    new: int = 0
    hold: Instant | None = None
    index: int = 0
    nonspeculative_index: int = 0
    live: list[Pane] = field(default_factory=list)


@dataclass
class _PerKey:
    """The open windows of a key, and the closed markers until their expiry."""

    open: dict[Window, _Open] = field(default_factory=dict)
    closed: set[Window] = field(default_factory=set)


class Operator:
    """A grouping operator, its clocks, and its output watermark (section 7)."""

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping
        self.clocks = FiringClocks()
        self.output_watermark = MIN_INSTANT
        self._keys: dict[Key, _PerKey] = {}

    def step(
        self,
        elements: Iterable[Element] = (),
        *,
        processing_time: Instant | None = None,
        watermark: Instant | None = None,
        percentiles: Mapping[float, Instant] | None = None,
        signals: Sequence[Signal] = (),
        is_batch: bool = False,
    ) -> Output:
        """One epoch. Clocks are monotone: a lower value than before is ignored (1.2).

        ``watermark`` is the one after this epoch, ``percentiles`` the percentile watermarks after it. ``signals`` are
        received after the bundle and the deadlines. ``is_batch``: this epoch is all there is, so that each window gives
        its one pane in the watermark step, whatever its trigger waits for (12.1). Raises PipelineError when a
        retraction reaches merging windows, which would have to split (12.6).
        """
        clocks_before = self.clocks
        if processing_time is not None:
            self.clocks = replace(clocks_before, processing_time=max(clocks_before.processing_time, processing_time))
        touched_places, drops = self._add(elements)
        panes: list[Pane] = []
        if not is_batch:
            panes += self._evaluate(touched_places)
            panes += self._evaluate(self._due(clocks_before.processing_time, set(touched_places)))
        signal_places = self._tell_signals(signals)
        if not is_batch:
            panes += self._evaluate(signal_places)
        if watermark is not None or percentiles:
            panes += self._advance(watermark, percentiles or {}, is_batch=is_batch)
        self._publish_watermark()
        return Output(tuple(panes), tuple(drops))

    # --- bundle (3.1) -------------------------------------------------------------------------------------------------

    def _add(self, elements: Iterable[Element]) -> tuple[list[Place], list[DroppedElement]]:
        """Drop, merge and add; returns the touched open windows in order of evaluation."""
        arrivals_by_key: dict[Key, list[tuple[Element, Window]]] = {}
        touched_places: set[Place] = set()
        drops: list[DroppedElement] = []
        for element in elements:
            self._check_retraction(element)
            for window in self.grouping.assign(element):
                if self._is_expired(window):
                    drops.append(_drop(element, window, DropCause.LATE))
                else:
                    arrivals_by_key.setdefault(element.key, []).append((element, window))
        for key, arrivals in arrivals_by_key.items():
            per_key = self._keys.setdefault(key, _PerKey())
            merged_windows = self._merge(per_key, {window for _, window in arrivals})
            for element, own in arrivals:
                window = merged_windows.get(own, own)
                if window in per_key.closed:
                    drops.append(_drop(element, window, DropCause.CLOSED))
                else:
                    self._add_element(per_key, window, element)
                    touched_places.add((key, window))
        return sorted(touched_places, key=_order), drops

    def _check_retraction(self, element: Element) -> None:
        if element.is_retraction and self.grouping.where.merges:
            raise PipelineError(
                f"a retraction reached {self.grouping.where!r}: sessions never split, so a grouping downstream of "
                "a retracting one needs windows that do not merge"
            )

    def _merge(self, per_key: _PerKey, new: set[Window]) -> dict[Window, Window]:
        """Merge open windows with ``new`` ones (3.5); returns what became of each merged window.

        A merge into a closed window does not happen: what is open stays as it is, what is new is dropped as closed.
        """
        became: dict[Window, Window] = {}
        for sources, result in windowing.merge(self.grouping.where, per_key.open.keys() | new):
            became.update(dict.fromkeys(sources, result))
            states = {window: per_key.open[window] for window in sorted(sources) if window in per_key.open}
            if result in per_key.closed or not states or set(states) == {result}:
                continue
            for window in states:
                del per_key.open[window]
            per_key.open[result] = self._merge_states(states, result)
        return became

    def _merge_states(self, states: dict[Window, _Open], result: Window) -> _Open:
        """The state of ``result``: everything added up, but pane counters only if it is one of the sources."""
        result_state = self._fresh()
        result_state.trigger.on_merge(self._moment(result), [state.trigger for state in states.values()])
        for state in states.values():
            result_state.contents.entries += state.contents.entries
            result_state.new += state.new
            result_state.live += state.live
        holds = [state.hold for state in states.values() if state.hold is not None]
        result_state.hold = self._combine_holds(holds, result)
        if result in states:
            result_state.index, result_state.nonspeculative_index = (
                states[result].index,
                states[result].nonspeculative_index,
            )
        return result_state

    def _fresh(self) -> _Open:
        return _Open(start(self.grouping.when, self.grouping.where.merges))

    def _add_element(self, per_key: _PerKey, window: Window, element: Element) -> None:
        state = per_key.open.setdefault(window, self._fresh())
        state.contents.add(element.value, -1 if element.is_retraction else 1)
        state.contents.keep_last(self.grouping.how.keep_last)
        state.new += 1
        hold = self._hold(window, element)
        if hold is not None:
            state.hold = self._combine_holds([hold] if state.hold is None else [state.hold, hold], window)
        state.trigger.on_element(self._moment(window), Arrival(element.record, element.size, element.timestamp))

    # --- holds and the output watermark (6.1 to 6.4, 7.1) -------------------------------------------------------------

    def _hold(self, window: Window, element: Element) -> Instant | None:
        """Where ``element`` holds the output watermark; None if it is late (6.2)."""
        stamp = window.max_timestamp
        if self.grouping.how.timestamp is not TimestampCombiner.END_OF_WINDOW:
            stamp = windowing.output_time(self.grouping.where, element.timestamp, window)
        on_time = stamp >= self.output_watermark and self.clocks.watermark <= windowing.last_unpassed(window)
        return stamp if on_time else None

    def _combine_holds(self, holds: list[Instant], window: Window) -> Instant | None:
        if not holds:
            return None
        match self.grouping.how.timestamp:
            case TimestampCombiner.EARLIEST:
                return min(holds)
            case TimestampCombiner.LATEST:
                return max(holds)
            case TimestampCombiner.END_OF_WINDOW:
                return window.max_timestamp

    def _publish_watermark(self) -> None:
        """Holds at expiry time (6.2, 6.5) are left out: steps are atomic, so they never lie below the watermark."""
        holds = [
            state.hold for per_key in self._keys.values() for state in per_key.open.values() if state.hold is not None
        ]
        self.output_watermark = max(self.output_watermark, min([self.clocks.watermark, *holds]))

    # --- evaluation and firing (3.1e to 3.4) --------------------------------------------------------------------------

    def _states(self) -> list[tuple[Place, _Open]]:
        """Every open window of every key, in the order of a step: by (end, start), then key (3.2)."""
        states = [((key, w), state) for key, per_key in self._keys.items() for w, state in per_key.open.items()]
        return sorted(states, key=lambda item: _order(item[0]))

    def _due(self, time_before: Instant, evaluated_places: set[Place]) -> list[Place]:
        """Untouched windows with a deadline that the processing-time clock has reached in this step (3.3, 12.1c)."""
        now = self.clocks.processing_time
        return [
            place
            for place, state in self._states()
            if place not in evaluated_places
            and any(time_before < deadline <= now for deadline in state.trigger.deadlines)
        ]

    def _tell_signals(self, signals: Sequence[Signal]) -> list[Place]:
        """Tell windows of signals; windows with a trigger that waits for one are evaluated, once for all (9.3).

        Each name counts once, in the order of names.
        """
        places_heard = []
        for place, state in self._states():
            names = {signal.name for signal in signals if signal.is_for(*place)}
            for name in sorted(names):
                state.trigger.on_signal(self._moment(place[1]), name)
            if not names.isdisjoint(state.trigger.signals):
                places_heard.append(place)
        return places_heard

    def _evaluate(self, places: list[Place]) -> list[Pane]:
        """Ask each of these windows once whether it fires."""
        panes: list[Pane] = []
        for place in places:
            if self._open(place).trigger.ready(self._moment(place[1])):
                panes += self._fire(place, self.clocks.watermark)
        return panes

    def _advance(
        self, watermark: Instant | None, percentiles: Mapping[float, Instant], *, is_batch: bool
    ) -> list[Pane]:
        """The watermark step (3.2): each open window has at most one activation, decided on the new clocks; exactly one
        if it is that of a batch.
        """
        clocks_before = self.clocks
        self.clocks = replace(
            clocks_before,
            watermark=clocks_before.watermark if watermark is None else max(clocks_before.watermark, watermark),
            percentiles={
                **clocks_before.percentiles,
                **{q: max(clocks_before.percentile(q), t) for q, t in percentiles.items()},
            },
        )
        panes: list[Pane] = []
        for place, state in self._states():
            _, window = place
            if self._is_expired(window):
                panes += self._fire(place, clocks_before.watermark, closing=True)
            elif is_batch or (
                self._has_crossed(window, state, clocks_before) and state.trigger.ready(self._moment(window))
            ):
                panes += self._fire(place, clocks_before.watermark)
        for per_key in self._keys.values():
            per_key.closed = {window for window in per_key.closed if not self._is_expired(window)}
        self._keys = {key: per_key for key, per_key in self._keys.items() if per_key.open or per_key.closed}
        return panes

    def _has_crossed(self, window: Window, state: _Open, clocks_before: FiringClocks) -> bool:
        """Whether a watermark that the trigger looks at has passed the end of ``window`` in this step."""
        end, now = windowing.last_unpassed(window), self.clocks
        if clocks_before.watermark <= end < now.watermark:
            return True
        return any(clocks_before.percentile(q) <= end < now.percentile(q) for q in state.trigger.percentiles)

    def _fire(self, place: Place, watermark_before: Instant, *, closing: bool = False) -> list[Pane]:
        """Fire a window, or close it because it expired (3.4, 5.3); what is emitted, retractions first (9.1)."""
        key, window = place
        per_key, state = self._keys[key], self._open(place)
        moment = self._moment(window)
        if not closing and state.trigger.ready(moment):  # it is, but for what a batch leaves open
            state.trigger.on_fire(moment)
        is_last = closing or state.trigger.finished
        pane = self._pane(place, self._timing(window, state, watermark_before), is_last)
        emitted_records = self._emit(state, pane) if self._is_wanted(state, pane) else []
        emitted_records = [record for record in emitted_records if self._leaves(record, pane)]
        state.hold = None
        state.new = 0
        if self.grouping.how.accumulation is Accumulation.DISCARDING:
            state.contents = Contents()
        if is_last:
            del per_key.open[window]
        if is_last and not closing:
            per_key.closed.add(window)
        return emitted_records

    def _leaves(self, record: Pane, pane: Pane) -> bool:
        """Whether a record that ``pane`` came with leaves (9.10). What accumulating windows emitted is withdrawn only
        if what replaces it stays.
        """
        is_replaced = self.grouping.how.accumulation is Accumulation.ACCUMULATING and self.grouping.having(pane)
        return self.grouping.having(record) and not (record.is_retraction and is_replaced)

    def _timing(self, window: Window, state: _Open, watermark_before: Instant) -> Timing:
        """Where the pane stands to the watermark (5.5)."""
        end = windowing.last_unpassed(window)
        if state.nonspeculative_index > 0 or (watermark_before > end and state.hold is None):
            return Timing.LATE
        return Timing.EARLY if self.clocks.watermark <= end else Timing.ON_TIME

    def _pane(self, place: Place, timing: Timing, is_last: bool) -> Pane:
        key, window = place
        state = self._open(place)
        return Pane(
            key=key,
            window=window,
            values=self.grouping.compute(key, window, self.grouping.extract(state.contents)),
            timestamp=window.max_timestamp if state.hold is None else state.hold,
            timing=timing,
            index=state.index,
            nonspeculative_index=-1 if timing is Timing.EARLY else state.nonspeculative_index,
            is_first=state.index == 0,
            is_last=is_last,
        )

    def _is_wanted(self, state: _Open, pane: Pane) -> bool:
        """Whether the pane is emitted although it may hold nothing new (4.3)."""
        how = self.grouping.how
        if pane.timing is Timing.ON_TIME and how.on_time is Firing.ALWAYS:
            return True
        return state.new > 0 or (pane.is_last and how.closing is Firing.ALWAYS)

    def _emit(self, state: _Open, pane: Pane) -> list[Pane]:
        """The pane after the retractions of what it replaces; these alone if every input was withdrawn (9.1)."""
        accumulation = self.grouping.how.accumulation
        if self.grouping.how.elide_unchanged and _is_unchanged(state, pane):
            return []
        withdrawn = [replace(old, is_retraction=True) for old in sorted(state.live, key=lambda old: old.window)]
        state.live = []
        if accumulation is Accumulation.RETRACTING and self._is_empty(state):
            return withdrawn
        state.index += 1
        state.nonspeculative_index += pane.timing is not Timing.EARLY
        if accumulation is not Accumulation.DISCARDING:
            state.live = [pane]
        return [*withdrawn, pane]

    def _is_empty(self, state: _Open) -> bool:
        """Whether it counts as nothing; never where each row leaves by itself (15.2)."""
        return state.contents.is_empty and not self.grouping.takes_each

    def _open(self, place: Place) -> _Open:
        key, window = place
        return self._keys[key].open[window]

    def _moment(self, window: Window) -> Moment:
        return Moment(self.clocks, window, self.grouping.schema)

    def _is_expired(self, window: Window) -> bool:
        return self.clocks.watermark > self.grouping.expiry(window)


def _is_unchanged(state: _Open, pane: Pane) -> bool:
    """Whether ``pane`` would say again what the only live one says; not if it would not exist (9.1)."""
    if len(state.live) != 1 or state.contents.is_empty:
        return False
    (live,) = state.live
    return (live.window, live.timestamp) == (pane.window, pane.timestamp) and same(live.values, pane.values)


def _order(place: Place) -> tuple[Instant, Instant, Key]:
    key, window = place
    return window.end, window.start, tuple((part is None, part) for part in key)


def _drop(element: Element, window: Window, cause: DropCause) -> DroppedElement:
    is_late = cause is DropCause.LATE
    return DroppedElement(element, window, DropCause.RETRACTION if element.is_retraction else cause, is_late)
