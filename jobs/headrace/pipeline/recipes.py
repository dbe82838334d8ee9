"""Well-known shapes, written in the model's own words."""

from typing import TypedDict

from headrace.model.accumulation import How, accumulating, discarding
from headrace.model.arguments import Arguments, keywords
from headrace.model.triggers import Trigger
from headrace.model.triggers.composites import Repeatedly
from headrace.model.triggers.leaves import AfterCount
from headrace.model.windows import GlobalWindows, WindowFn


class WhereWhenHow(TypedDict):
    """Three arguments of a pipeline, to be given with ``**``."""

    where: WindowFn
    when: Trigger
    how: How


@keywords
def count_windows(n: int) -> WhereWhenHow:
    """Windows of ``n`` elements of a key in their order of arrival: ``Pipeline(..., **count_windows(100))``.

    They are panes of the global window (semantics 9.9): pane_index counts them. Bundles are atomic, so a pane holds all
    that came up to the epoch in which the count was reached: ``n`` elements or more. A remainder below ``n`` is
    emitted when the input ends.

    >>> sorted(hr.count_windows(100))
    ['how', 'when', 'where']
    """
    Arguments("count_windows").whole("n", n, least=1)
    return WhereWhenHow(where=GlobalWindows(), when=Repeatedly(AfterCount(n)), how=discarding())


@keywords
def sliding_count_windows(size: int, period: int) -> WhereWhenHow:
    """The last ``size`` elements of a key whenever ``period`` more have come, in their order of arrival.

    As with ``count_windows``, what comes in one epoch makes one pane: of its last ``size`` elements.

    >>> hr.sliding_count_windows(size=100, period=10)["how"].keep_last
    100
    """
    given = Arguments("sliding_count_windows")
    given.whole("size", size, least=1)
    given.whole("period", period, least=1)
    return WhereWhenHow(where=GlobalWindows(), when=Repeatedly(AfterCount(period)), how=accumulating(keep_last=size))
