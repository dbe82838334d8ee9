"""Which event times a range of results depends on: those of the elements in windows that touch the range."""

from headrace.model.windows import ShiftedOutputTime, Window, WindowFn, moved, touching
from headrace.pipeline.pipeline import Pipeline


def reach(pipeline: Pipeline, span: Window) -> Window | None:
    """Event times of records, without which no window of the last stage that touches ``span`` is whole; None if nobody
    can say how far windows reach (a window function of a user's own).

    A session that touches the span reaches back by one gap; what it had before that belongs to it as well.
    """
    last, *others = (stage.aggregation.where for stage in reversed(pipeline.stages))
    reached = touching(last, span)
    for where in others:
        if reached is None:
            return None
        # its panes are elements of the stage after it, at a time in their window or, where it is shifted, later
        reached = touching(where, Window(moved(reached.start, -_shift(where)), reached.end))
    return reached


def _shift(where: WindowFn) -> int:
    return where.shift + _shift(where.inner) if isinstance(where, ShiftedOutputTime) else 0
