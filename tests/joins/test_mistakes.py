"""Deliberate mistakes in the kernel's join, each of which the random histories against the reference find."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.kernel.joins import merge
from headrace.kernel.joins.sides import CompiledJoin, Times
from headrace.kernel.joins.step import _Epoch, _Matches, _Side
from headrace.model.time import MAX_INSTANT, MIN_INSTANT
from headrace.program import columns as c
from headrace_lab.sizes import set_sizes
from tests.joins.test_step import play

HISTORIES = 400
_INTERVAL, _FIRST_OPEN, _LATE = CompiledJoin.right_interval, CompiledJoin.first_open, CompiledJoin.late_mask
_SETTLE_TIES, _AFFECTED_ROWS, _UNSETTLED_ROWS = (
    _Matches._settle_ties,
    _Epoch._affected_left_rows,
    _Matches.unsettled_left_rows,
)


def open_end(join: CompiledJoin, times: Any) -> Any:
    """The end of an interval does not count."""
    first, last = _INTERVAL(join, times)
    return first, last - 1


def never_standing(join: CompiledJoin, watermark: Any) -> int:
    """What stands for good is corrected as well."""
    return int(MIN_INSTANT)


def standing_early(join: CompiledJoin, watermark: Any) -> int:
    """A second too soon rows stand for good."""
    return _FIRST_OPEN(join, watermark) + 1_000_000


def as_they_came(matches: _Matches, order: Any, codes: Any, times: Any) -> Any:
    """Of versions at one moment the last one that came counts."""
    return order


def without_stored(epoch: _Epoch, first_open: int) -> Times:
    """Late versions correct nothing."""
    return _AFFECTED_ROWS(epoch, int(MAX_INSTANT))


def always_settled(matches: _Matches, bounds_before: Any, bounds_after: Any) -> Any:
    """The few versions that are read first are taken for all."""
    return np.zeros(len(bounds_after), np.bool_)


def without_deleted(matches: _Matches, *args: Any) -> Any:
    """A deleted version counts as any other."""
    matches.is_deleted = None
    return _PAIRS(matches, *args)


_PAIRS = _Matches.matched_pairs
_ADD_UP = _Matches.added_up
_FROM_STORED = _Side.from_stored.__func__  # type: ignore[attr-defined]


def with_twins(matches: _Matches, left: Any, right: Any, number: Any) -> Any:
    """What went and what came are not added up."""
    return left, right, number


def below_zero(cls: Any, stored_rows: Any, delta: Any, *, is_signed: bool) -> Any:
    """A withdrawal of what is not there counts as a row."""
    side = _FROM_STORED(cls, stored_rows, delta, is_signed=is_signed)
    return _Side(
        side.rows, np.abs(side.counts_before), np.abs(side.counts_after) + (is_signed and side.counts_after == 0)
    )


def kept_too_short(join: CompiledJoin, end_time: Any, watermark: Any) -> Any:
    """Rows are let go a lateness too early."""
    if join.lateness is None:
        return _LATE(join, end_time, watermark)
    return end_time < int(watermark)


def without_history(join: CompiledJoin, watermark: Any) -> int:
    """Versions are let go, and can be withdrawn no more, as soon as newer ones hide them."""
    return _FIRST_OPEN(join, watermark) + 1


def withdrawn_for_ever(join: CompiledJoin, times: Any, counts: Any, watermark: Any) -> Any:
    """Versions that may have been let go can be withdrawn."""
    return _LATE(join, join.right_completion(times), watermark)


def keeping_newest(join: CompiledJoin, rows: pa.RecordBatch, *args: Any, **options: Any) -> pa.RecordBatch:
    """A merge keeps the newest row of all keys alone."""
    order = np.argsort(np.asarray(rows.column(c.EVENT_TIME)), kind="stable")
    return rows.take(pa.array(order[-1:]))


MISTAKES: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "the end of an interval does not count": (CompiledJoin, "right_interval", open_end),
    "what stands for good is corrected": (CompiledJoin, "first_open", never_standing),
    "rows stand for good too soon": (CompiledJoin, "first_open", standing_early),
    "order of arrival decides": (_Matches, "_settle_ties", as_they_came),
    "late rows correct nothing": (_Epoch, "_affected_left_rows", without_stored),
    "withdrawn versions hide older ones": (_Matches, "unsettled_left_rows", always_settled),
    "a deleted version holds": (_Matches, "matched_pairs", without_deleted),
    "equal rows leave and come": (_Matches, "added_up", with_twins),
    "what was withdrawn is there": (_Side, "from_stored", classmethod(below_zero)),  # type: ignore[dict-item]
    "rows are let go too early": (CompiledJoin, "late_mask", kept_too_short),
    "versions are let go without history": (CompiledJoin, "held_from", without_history),
    "what was let go is withdrawn": (CompiledJoin, "late_right", withdrawn_for_ever),
    "all but the newest version is forgotten": (merge, "newest_kept", keeping_newest),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, mistake = MISTAKES[name]
    monkeypatch.setattr(owner, attribute, mistake)
    with set_sizes(join_anchor_rows=2):  # histories are short
        if owner is merge:
            monkeypatch.setattr("tests.joins.test_step.newest_kept", mistake)
        with pytest.raises(AssertionError):
            for seed in range(HISTORIES):
                play(seed)
