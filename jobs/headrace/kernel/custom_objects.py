"""Users' own windows and triggers over Arrow batches: their methods are called, and what they give becomes columns.

A user's own window function (semantics 2.6) is called row by row, or key by key (``assigned_windows``,
``merged_custom``).

A user's own trigger (semantics 9.3) has a row for each window (``TriggerBatches``). Columns of a call are whether there
is to be one, start and end of the window, and the processing time. The next ones are whether the end is passed, whether
the trigger has finished, the fields of its state, and perhaps arguments. What comes back is a struct of the new state,
``HAS_FINISHED`` and ``DEADLINE``, NULL where there was no call; ``ready`` gives a bool.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import compress, pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import PipelineError
from headrace.kernel.columns import Ints, own_arrow_type
from headrace.model.arguments import user_code
from headrace.model.time import Instant
from headrace.model.triggers import custom
from headrace.model.windows import CustomWindows, MergeGroup, Window, require_instant, require_interval
from headrace.program.triggers.leaves import DEADLINE, HAS_FINISHED, RECORD, TIME_FIELD, state_field


def assigned_windows(where: CustomWindows, times: pa.Array, records: pa.Array | None) -> tuple[Ints, Ints, Ints, Ints]:
    """How many windows each row has, none where its time is NULL; then of all of them, in order, start, end and the
    timestamp that the row gives its pane there.
    """
    records_or_empty = [{}] * len(times) if records is None else records.to_pylist()
    with user_code(where, "assign windows to an element"):
        windows_by_row = [
            [] if instant is None else _windows_of(where, Instant(instant), record)
            for instant, record in zip(times.to_pylist(), records_or_empty, strict=True)
        ]
    counts = np.array([len(windows) for windows in windows_by_row], np.int64)
    rows = np.array([window for windows in windows_by_row for window in windows], np.int64).reshape(-1, 3)
    return counts, rows[:, 0], rows[:, 1], rows[:, 2]


def _windows_of(where: CustomWindows, instant: Instant, record: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    windows = sorted({require_interval(where, window) for window in where.assign(instant, record)})
    return [(*window, require_instant(where, where.output_time(instant, window))) for window in windows]


def custom_output_times(where: CustomWindows, times: Ints, start: Ints, end: Ints) -> Ints:
    """The timestamps that elements at ``times`` give the panes of their windows."""
    if type(where).output_time is CustomWindows.output_time:
        return times
    with user_code(where, "give the output times of elements"):
        several = zip(times.tolist(), start.tolist(), end.tolist(), strict=True)
        output_times = [where.output_time(Instant(instant), _make_window(a, b)) for instant, a, b in several]
        return np.array([require_instant(where, timestamp) for timestamp in output_times], np.int64)


def merged_custom(where: CustomWindows, key: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """What the window of each row becomes among those of its ``key``; rows stand in the order of (key, window)."""
    result = start.copy(), end.copy()
    bounds = [0, *(np.flatnonzero(np.diff(key)) + 1).tolist(), len(key)]
    for a, b in pairwise(bounds) if len(key) else ():
        windows = [_make_window(*ends) for ends in zip(start[a:b].tolist(), end[a:b].tolist(), strict=True)]
        results = _merge_results(where, list(dict.fromkeys(windows)))
        if results:
            merged_windows = np.array([results.get(window, window) for window in windows], np.int64)
            result[0][a:b], result[1][a:b] = merged_windows[:, 0], merged_windows[:, 1]
    return result


def _merge_results(where: CustomWindows, windows: Collection[Window]) -> Mapping[Window, Window]:
    """What became of each window that merged. Raises PipelineError if the function breaks its contract (2.6)."""
    with user_code(where, "merge windows of a key"):
        groups = [
            MergeGroup(frozenset(sources), require_interval(where, result)) for sources, result in where.merge(windows)
        ]
    results: dict[Window, Window] = {}
    for sources, result in groups:
        if not sources.isdisjoint(results) or not sources <= set(windows):
            raise PipelineError(f"{where!r} merged a window twice, or one that it was not given: {sorted(sources)}")
        if result in windows and result not in sources:
            raise PipelineError(f"{where!r} merged {sorted(sources)} into {result}, another window of the key")
        results.update(dict.fromkeys(sources, result))
    return results


def _make_window(start: int, end: int) -> Window:
    return Window(Instant(start), Instant(end))


class TriggerBatches(msgspec.Struct, frozen=True):
    """The methods of ``trigger``. Arguments after the columns of a call: of ``on_element`` the elements of a bundle in
    order of arrival, structs of ``TIME_FIELD`` and ``RECORD``; ``on_signals`` gets whether each of its signals came;
    ``on_merge`` gets the progress in each merged window, in order of windows, structs of state and ``HAS_FINISHED``.
    """

    trigger: custom.CustomTrigger

    def on_element(self, *columns: pa.Array) -> pa.Array:
        def progress_after_elements(
            progress: custom.Progress, moment: custom.TriggerMoment, elements: list[dict[str, Any]]
        ) -> custom.Progress:
            state, has_finished = progress
            for element in elements:
                trigger_element = custom.TriggerElement(element[RECORD], Instant(element[TIME_FIELD]))
                state = self.trigger.on_element(state, trigger_element, moment)
            return custom.Progress(custom.checked_state(self.trigger, state), has_finished)

        return self._change_states("look at an element", progress_after_elements, columns)

    def on_signals(self, *columns: pa.Array) -> pa.Array:
        names = sorted({*self.trigger.signals})

        def after_signals(progress: custom.Progress, moment: custom.TriggerMoment, *has_come: bool) -> custom.Progress:
            state, has_finished = progress
            for name in compress(names, has_come):
                state = self.trigger.on_signal(state, name, moment)
            return custom.Progress(custom.checked_state(self.trigger, state), has_finished)

        return self._change_states("take a signal", after_signals, columns)

    def on_fire(self, *columns: pa.Array) -> pa.Array:
        def progress_after_fire(progress: custom.Progress, moment: custom.TriggerMoment) -> custom.Progress:
            return custom.checked_progress(self.trigger, self.trigger.on_fire(progress.state, moment))

        return self._change_states("fire", progress_after_fire, columns)

    def clear(self, *columns: pa.Array) -> pa.Array:
        def progress_after_clear(progress: custom.Progress, moment: custom.TriggerMoment) -> custom.Progress:
            return custom.Progress(
                custom.checked_state(self.trigger, self.trigger.clear(progress.state)), progress.finished
            )

        return self._change_states("clear its state", progress_after_clear, columns)

    def on_merge(self, *columns: pa.Array) -> pa.Array:
        def progress_after_merge(
            progress: custom.Progress, moment: custom.TriggerMoment, sources: list[dict[str, Any]]
        ) -> custom.Progress:
            progresses = [
                custom.Progress(self._named_state([s[n] for n in self._fields]), s[HAS_FINISHED]) for s in sources
            ]
            return custom.checked_progress(self.trigger, self.trigger.on_merge(progresses, moment))

        return self._change_states("merge", progress_after_merge, columns)

    def ready(self, *columns: pa.Array) -> pa.Array:
        with user_code(self.trigger, "say whether it is ready"):
            answers = [
                bool(self.trigger.ready(call[0].state, call[1])) if call else False
                for call in self._call_arguments(columns)
            ]
            return pa.array(answers, pa.bool_())

    def _change_states(
        self, doing: str, change: Callable[..., custom.Progress], columns: tuple[pa.Array, ...]
    ) -> pa.Array:
        with user_code(self.trigger, doing):
            states = [self._state_row(change(*call)) if call else None for call in self._call_arguments(columns)]
            kinds = [own_arrow_type(kind) for kind in custom.state_types(self.trigger).values()]
            fields = list(zip(self._fields, kinds, strict=True))
            return pa.array(states, pa.struct([*fields, (HAS_FINISHED, pa.bool_()), (DEADLINE, pa.int64())]))

    def _state_row(self, progress: custom.Progress) -> dict[str, Any]:
        values = {state_field(i): progress.state[name] for i, name in enumerate(self.trigger.state_types)}
        return {**values, HAS_FINISHED: progress.finished, DEADLINE: self.trigger.deadline(progress.state)}

    def _call_arguments(self, columns: tuple[pa.Array, ...]) -> Iterator[tuple[Any, ...]]:
        """The arguments of the call for each row; nothing where there is none."""
        size = len(self.trigger.state_types)
        for is_wanted, start, end, now, watermark_passed, has_finished, *values in zip(
            *(c.to_pylist() for c in columns), strict=True
        ):
            if not is_wanted:
                yield ()
                continue
            moment = custom.TriggerMoment(Window(Instant(start), Instant(end)), Instant(now), watermark_passed)
            yield custom.Progress(self._named_state(values[:size]), has_finished), moment, *values[size:]

    def _named_state(self, values: list[Any]) -> dict[str, Any]:
        return dict(zip(self.trigger.state_types, values, strict=True))

    @property
    def _fields(self) -> list[str]:
        return [state_field(i) for i in range(len(self.trigger.state_types))]
