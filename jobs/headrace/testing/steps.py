"""What a test gives a pipeline, epoch by epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.model.arguments import Arguments, shown
from headrace.model.suggestions import keywords
from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.pipeline.source import OWN
from headrace.testing.errors import UnitTestError
from headrace.testing.times import moment

Record = Mapping[str, Any] | str
"""A record: values by column, or a line as a file would hold it."""


@dataclass(frozen=True)
class Step:
    """One epoch: the records that it reads by input, and what happens to the clocks.

    ``watermarks`` by input, None for all of them; ``processing_time`` None: the clock stays, or follows event time.
    """

    rows: Mapping[str, tuple[Record, ...]] = field(default_factory=dict)
    watermarks: Mapping[str | None, Instant] = field(default_factory=dict)
    processing_time: Instant | None = None
    signals: tuple[Signal, ...] = ()
    is_last: bool = False


@keywords
def rows(*records: Record, of: str = OWN) -> Step:
    """An epoch that reads ``records`` in this order, of the input named ``of``, by default the pipeline's own.

    A record is a dict of values by column: a column that it lacks is NULL, a short time such as "13:00" in a column of
    timestamps is on 1970-01-01 UTC. They are written in the format of the source, and judged as its files are. A text
    is a line as a file would hold it (of CSV: the columns in the order of the schema).
    """
    Arguments("rows", UnitTestError).text("of", of, "weather")
    for number, record in enumerate(records, 1):
        if not isinstance(record, Mapping | str):
            raise UnitTestError(f"rows(...): record {number} is {shown(record)}; write a dict of values by column")
    return Step(rows={of: records})


@keywords
def watermark(to: str | datetime, of: str | None = None) -> Step:
    """An epoch without records in which the watermark passes to ``to``, as if the source had said so: of the input that
    is named ``of``, or of all. It does not go back. The watermark of the records that are read counts too, as always.
    """
    if of is not None:
        Arguments("watermark", UnitTestError).text("of", of, "weather")
    return Step(watermarks={of: moment(to, "watermark(...)")})


@keywords
def processing_time(to: str | datetime) -> Step:
    """An epoch without records at ``to``. The clock stands there from then on.

    A run makes such an epoch if a trigger or an idle split waits for that time, and none for nothing.
    """
    return Step(processing_time=moment(to, "processing_time(...)"))


@keywords
def signal(name: str, key: Sequence[Any] | str | int | None = None) -> Step:
    """An epoch without records in which a signal is given: to all open windows, or to those of one ``key``."""
    if not isinstance(name, str) or not name:
        raise UnitTestError(f"signal(...): {shown(name)} is not the name of a signal")
    if isinstance(key, str | int) and not isinstance(key, bool):
        key = (key,)
    if key is not None and not isinstance(key, list | tuple):
        raise Arguments("signal", UnitTestError).wrong("key", key, 'write the values of a key, such as ["EWR"]')
    return Step(signals=(Signal(name, None if key is None else tuple(key)),))


@keywords
def end() -> Step:
    """An epoch in which the input ends: the watermark goes to +inf, and every window closes."""
    return Step(is_last=True)


@keywords
def together(*steps: Step) -> Step:
    """All of ``steps`` in one epoch: its records, then signals, then the watermark. ``together(rows(...), end())`` as
    the first step is a batch.
    """
    joined = Step()
    for step in steps:
        if not isinstance(step, Step):
            raise UnitTestError(f"together(...): {shown(step)} is not a step; write rows(...), watermark(...) or such")
        if None not in (joined.processing_time, step.processing_time):
            raise UnitTestError("together(...): an epoch has one processing_time(...)")
        given = {name: (*joined.rows.get(name, ()), *step.rows.get(name, ())) for name in {**joined.rows, **step.rows}}
        at = step.processing_time if joined.processing_time is None else joined.processing_time
        watermarks = {**joined.watermarks, **step.watermarks}
        joined = Step(given, watermarks, at, (*joined.signals, *step.signals), joined.is_last or step.is_last)
    return joined
