"""Which event times a range of results depends on: those of the elements in windows that touch the range."""

from collections.abc import Collection, Iterable

from headrace.model.windows import ShiftedOutputTime, Window, WindowFn, moved, touching
from headrace.pipeline.pipeline import Pipeline


def reach(pipeline: Pipeline, span: Window, outputs: Collection[str] = ()) -> Window | None:
    """Event times of records, without which no window of a last stage that touches ``span`` is whole; None if nobody
    can say how far windows reach (a window function of a user's own). Of a pipeline with several outputs, for all of
    them, or for those that are named.

    A session that touches the span reaches back by one gap; what it had before that belongs to it as well.
    """
    by_output = pipeline.by_output
    return _spanned(_of_records(by_output[name], span) for name in outputs or by_output)


def _of_records(alone: Pipeline, span: Window) -> Window | None:
    """For one output: the times of records, also where it reads panes of others."""
    reached: Window | None = span
    for number, where in enumerate(stage.aggregation.where for stage in reversed(alone.stages)):
        if reached is None:
            return None
        reached = touching(where, _with_panes(where, reached) if number else reached)
    if reached is None or not alone.upstream:
        return reached
    return _spanned(
        _of_records(one.pipeline, _with_panes(one.stage.aggregation.where, reached)) for one in alone.upstream
    )


def _spanned(windows: Iterable[Window | None]) -> Window | None:
    """From the first beginning to the last end; None where one is not known."""
    starts, ends = [], []
    for window in windows:
        if window is None:
            return None
        starts.append(window.start)
        ends.append(window.end)
    return Window(min(starts), max(ends))


def _with_panes(where: WindowFn, elements: Window) -> Window:
    """Where windows may be whose panes are ``elements`` of the stage after them, at a time in their window or, where it
    is shifted, later.
    """
    return Window(moved(elements.start, -_shift(where)), elements.end)


def _shift(where: WindowFn) -> int:
    return where.shift + _shift(where.inner) if isinstance(where, ShiftedOutputTime) else 0
