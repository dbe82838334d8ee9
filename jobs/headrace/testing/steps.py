"""What a test gives a pipeline, epoch by epoch, and times as tests write them.

Times are aware datetimes, ISO text (UTC unless it says otherwise), or short times such as "13:00", which are of one
day, 1970-01-01 UTC. ``UnitTestError`` is a mistake in a test itself, as opposed to a test that fails.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

from headrace.errors import FixConfigError
from headrace.model import time as model_time
from headrace.model.arguments import Arguments, check_keywords, short_repr
from headrace.model.triggers import Signal
from headrace.pipeline.endpoints import OWN


class UnitTestError(FixConfigError, code="config.unit_test"):
    """A test that makes no sense as it is written; ``step`` is the number of the step that is wrong, if one is."""

    step: int | None = None


def all_of(mistakes: Sequence[UnitTestError]) -> UnitTestError:
    """One error that says all ``mistakes``, each once and on a line of its own."""
    return UnitTestError("\n".join(dict.fromkeys(map(str, mistakes))))


BASE_DAY = date(1970, 1, 1)
"""The day of short times."""

_SHORT_TIME = re.compile(r"([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,6})?)?")
_TIME_ADVICE = (
    'write a time such as "13:00" (of 1970-01-01, UTC), ISO text such as "2013-01-01T13:00:00Z", or an aware datetime'
)

BEGINNING, END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
"""A watermark of -inf, and of +inf."""


def with_base_day(text: str) -> str:
    """``text`` with its day, if it is a short time."""
    if not _SHORT_TIME.fullmatch(text):
        return text
    return f"{BASE_DAY.isoformat()}T{text.zfill(len(text) + (text.index(':') == 1))}Z"


def instant_of_value(value: object, what: str) -> model_time.Instant:
    """The instant that ``value`` says. Raises UnitTestError, naming ``what`` it is of."""
    try:
        if isinstance(value, datetime):
            return model_time.to_instant(value)
        if isinstance(value, str):
            read = datetime.fromisoformat(with_base_day(value.strip()))
            return model_time.to_instant(read if read.tzinfo else read.replace(tzinfo=UTC))
    except ValueError as error:
        raise UnitTestError(f"{what} is {short_repr(value)}: {error}; {_TIME_ADVICE}") from None
    raise UnitTestError(f"{what} is {short_repr(value)}; {_TIME_ADVICE}")


@check_keywords
def at(value: str | datetime) -> datetime:
    """A time of a test, ``value``, as an aware datetime: ``at("13:00")`` is 13:00 UTC on 1970-01-01."""
    time = model_time.to_datetime(instant_of_value(value, "at(...)"))
    assert time is not None
    return time


def watermark_time(value: model_time.Instant) -> datetime:
    """A watermark as results show it: ``BEGINNING`` for -inf, ``END`` for +inf."""
    if value <= model_time.MIN_INSTANT:
        return BEGINNING
    return END if value > model_time.END_OF_CALENDAR else model_time.to_datetime(value) or END


def expected_watermark(value: object) -> datetime:
    """The inverse, of what a test writes: a time, "-inf" or "+inf". Raises UnitTestError."""
    if value in ("-inf", "+inf", "inf"):
        return watermark_time(model_time.MIN_INSTANT if value == "-inf" else model_time.MAX_INSTANT)
    return watermark_time(instant_of_value(value, "the expected watermark"))


def text_of(value: datetime | None) -> str:
    """``value`` as tests write it: short on their day."""
    if value is None:
        return "∞"
    if value in (BEGINNING, END):
        return "-inf" if value == BEGINNING else "+inf"
    time = value.astimezone(UTC)
    if time.date() == BASE_DAY:
        return time.strftime("%H:%M") if not (time.second or time.microsecond) else time.time().isoformat()
    return time.isoformat().replace("+00:00", "Z")


def datetime_or_none(value: model_time.Instant) -> datetime | None:
    """``value`` for people, None where there is no end, or none that Python has a datetime for."""
    return (
        model_time.to_datetime(value) if model_time.BEGIN_OF_CALENDAR <= value <= model_time.END_OF_CALENDAR else None
    )


Record = Mapping[str, Any] | str
"""A record: values by column, or a line as a file would hold it."""


@dataclass(frozen=True)
class Step:
    """One epoch: the records that it reads by input (``rows``), and what happens to the clocks.

    ``signals`` are given to it. ``is_last``: input ends with it. ``watermarks`` by input, None for all of them;
    ``processing_time`` None: the clock stays, or follows event time.
    """

    rows: Mapping[str, tuple[Record, ...]] = field(default_factory=dict)
    watermarks: Mapping[str | None, model_time.Instant] = field(default_factory=dict)
    processing_time: model_time.Instant | None = None
    signals: tuple[Signal, ...] = ()
    is_last: bool = False


@check_keywords
def rows(*records: Record, of: str = OWN) -> Step:
    """An epoch that reads ``records`` in this order, of the input named ``of``, by default the pipeline's own.

    A record is a dict of values by column. A column that it lacks is NULL. A short time such as "13:00" in a column of
    timestamps is on 1970-01-01 UTC. They are written in the format of the source, and judged as its files are. A text
    is a line as a file would hold it (of CSV: the columns in the order of the schema).
    """
    Arguments("rows", UnitTestError).text("of", of, "weather")
    for number, record in enumerate(records, 1):
        if not isinstance(record, Mapping | str):
            raise UnitTestError(f"rows(...): record {number} is {short_repr(record)}; write a dict of values by column")
    return Step(rows={of: records})


@check_keywords
def watermark(to: str | datetime, of: str | None = None) -> Step:
    """An epoch without records in which the watermark passes to ``to``, as if the source had said so. It is the
    watermark of the input that is named ``of``, or of all. It does not go back. The watermark of the records that are
    read counts too, as always.
    """
    if of is not None:
        Arguments("watermark", UnitTestError).text("of", of, "weather")
    return Step(watermarks={of: instant_of_value(to, "watermark(...)")})


@check_keywords
def processing_time(to: str | datetime) -> Step:
    """An epoch without records at ``to``. The clock stands there from then on.

    A run makes such an epoch if a trigger or an idle split waits for that time, and none for nothing.
    """
    return Step(processing_time=instant_of_value(to, "processing_time(...)"))


@check_keywords
def signal(name: str, key: Sequence[Any] | str | int | None = None) -> Step:
    """An epoch without records in which signal ``name`` is given, to all open windows or to those of one ``key``."""
    if not isinstance(name, str) or not name:
        raise UnitTestError(f"signal(...): {short_repr(name)} is not the name of a signal")
    if isinstance(key, str | int) and not isinstance(key, bool):
        key = (key,)
    if key is not None and not isinstance(key, list | tuple):
        raise Arguments("signal", UnitTestError).refusal("key", key, 'write the values of a key, such as ["EWR"]')
    return Step(signals=(Signal(name, None if key is None else tuple(key)),))


@check_keywords
def end() -> Step:
    """An epoch in which the input ends: the watermark goes to +inf, and every window closes."""
    return Step(is_last=True)


@check_keywords
def together(*steps: Step) -> Step:
    """All of ``steps`` as one epoch: records, signals, watermark. ``together(rows(...), end())`` first is a batch."""
    joined_step = Step()
    for step in steps:
        if not isinstance(step, Step):
            raise UnitTestError(
                f"together(...): {short_repr(step)} is not a step; write rows(...), watermark(...) or such"
            )
        if None not in (joined_step.processing_time, step.processing_time):
            raise UnitTestError("together(...): an epoch has one processing_time(...)")
        joined_rows = {
            name: (*joined_step.rows.get(name, ()), *step.rows.get(name, ()))
            for name in {**joined_step.rows, **step.rows}
        }
        step_time = step.processing_time if joined_step.processing_time is None else joined_step.processing_time
        watermarks = {**joined_step.watermarks, **step.watermarks}
        joined_step = Step(
            joined_rows,
            watermarks,
            step_time,
            (*joined_step.signals, *step.signals),
            joined_step.is_last or step.is_last,
        )
    return joined_step
