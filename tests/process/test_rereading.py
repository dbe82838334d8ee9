"""How a backfill puts recorded epochs together: in their order, within bounds, each with its clock and its signals."""

from collections.abc import Sequence
from dataclasses import replace

from headrace import Deduplicate, accumulating
from headrace.ext.sources import SourceSplit
from headrace.model.event_time import arrival_time
from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.pipeline.endpoints import OWN
from headrace.read.snapshots.epoch_history import RecordedEpoch
from headrace.runs.backfill.replay import ReplayProgress, Rereading, plan_rereading
from headrace.sources.progress import WatermarkHold
from tests.building import change_pipeline
from tests.process.clicks import CLICKS

Summary = list[tuple[str, int, int]]


def file(name: str, size: int = 1) -> SourceSplit:
    return SourceSplit(name, size, f"etag of {name}")


def epoch(names: str, clock: int, *signals: str) -> RecordedEpoch:
    """An epoch that read files of one letter each."""
    files = {OWN: [file(name) for name in names]} if names else {}
    return RecordedEpoch(files, Instant(clock), tuple(map(Signal, signals)))


def summary(rereading: Rereading) -> Summary:
    """Of each epoch its files, clock and number of signals; and the rest, at no time."""
    epochs = [
        ("".join(f.path for f in e.files.get(OWN, ())), e.processing_time, len(e.signals)) for e in rereading.epochs
    ]
    return [*epochs, ("".join(f.path for f in rereading.rest.get(OWN, ())), -1, 0)]


def unread(names: str) -> dict[str, Sequence[SourceSplit]]:
    return {OWN: [file(name) for name in names]}


def test_epochs_come_together_in_their_order_at_the_time_of_the_last() -> None:
    recorded_epochs = [epoch("ca", 10), epoch("", 15), epoch("b", 20), epoch("d", 30)]
    assert summary(plan_rereading(CLICKS, recorded_epochs, unread("abcdef"), max_files=3)) == [
        ("cab", 20, 0), ("d", 30, 0), ("ef", -1, 0)
    ]  # fmt: skip


def test_an_epoch_that_is_larger_than_asked_for_is_never_divided() -> None:
    recorded_epochs = [epoch("abc", 10), epoch("d", 20)]
    for limits in ({"max_files": 1}, {"max_bytes": 1}):
        assert summary(plan_rereading(CLICKS, recorded_epochs, unread("abcd"), **limits)) == [
            ("abc", 10, 0), ("d", 20, 0), ("", -1, 0)
        ]  # fmt: skip


def test_bytes_are_bounded_too_and_an_epoch_that_is_larger_stays_alone() -> None:
    recorded_epochs = [epoch("a", 10), epoch("bcd", 20), epoch("e", 30), epoch("f", 40)]
    assert summary(plan_rereading(CLICKS, recorded_epochs, unread("abcdef"), max_files=9, max_bytes=2)) == [
        ("a", 10, 0), ("bcd", 20, 0), ("ef", 40, 0), ("", -1, 0)
    ]  # fmt: skip


def test_an_epoch_that_takes_back_what_was_counted_stays_alone() -> None:
    recorded_epochs = [epoch("a", 10), epoch("b", 20), epoch("c", 30), epoch("d", 40), epoch("e", 50)]
    rereading = plan_rereading(
        CLICKS,
        recorded_epochs,
        unread("abcde"),
        max_files=9,
        counts_again=lambda files: any(f.path == "c" for f in files[OWN]),
    )
    assert summary(rereading) == [("ab", 20, 0), ("c", 30, 0), ("de", 50, 0), ("", -1, 0)]


def test_signals_end_an_epoch() -> None:
    recorded_epochs = [epoch("a", 10), epoch("b", 20, "go"), epoch("", 25, "go", "stop"), epoch("c", 30)]
    assert summary(plan_rereading(CLICKS, recorded_epochs, unread("abc"), max_files=9)) == [
        ("ab", 20, 1), ("", 25, 2), ("c", 30, 0), ("", -1, 0)
    ]  # fmt: skip


def test_what_was_read_already_is_left_out_and_content_is_that_of_now() -> None:
    corrected_split = SourceSplit("b", 7, "another")
    rereading = plan_rereading(CLICKS, [epoch("a", 10), epoch("b", 20)], {OWN: [corrected_split]})
    assert summary(rereading) == [("b", 20, 0), ("", -1, 0)]
    assert rereading.epochs[0].files[OWN] == [corrected_split]


def test_where_event_time_is_the_time_of_arrival_epochs_stay_as_they_are() -> None:
    arriving = change_pipeline(CLICKS, event_time=arrival_time())
    recorded_epochs = [epoch("a", 10), epoch("b", 20)]
    assert summary(plan_rereading(arriving, recorded_epochs, unread("ab"), max_files=9)) == [
        ("a", 10, 0),
        ("b", 20, 0),
        ("", -1, 0),
    ]


def reaching(names: str, clock: int, watermark: int | None, *, is_ahead: bool = False) -> RecordedEpoch:
    """An epoch that left a watermark, None where nobody knows."""
    reached_hold = None if watermark is None else WatermarkHold(Instant(watermark))
    return replace(epoch(names, clock), reached=reached_hold, is_ahead=is_ahead)


def held_epochs(rereading: Rereading) -> list[tuple[str, int | None]]:
    return [
        ("".join(f.path for f in e.files.get(OWN, ())), None if e.held_to is None else e.held_to.watermark)
        for e in rereading.epochs
    ]


def test_epochs_are_held_to_what_main_left_after_the_last_of_them() -> None:
    recorded_epochs = [reaching("a", 10, 1), reaching("b", 20, 2), reaching("c", 30, 3)]
    assert held_epochs(plan_rereading(CLICKS, recorded_epochs, unread("abc"), max_files=2)) == [("ab", 2), ("c", 3)]


def test_what_has_expired_is_held_to_what_was_known_before() -> None:
    recorded_epochs = [reaching("a", 10, None), reaching("b", 10, None), reaching("c", 10, 3), reaching("d", 20, None)]
    begun_progress = ReplayProgress(Instant(5), WatermarkHold(Instant(-7)))
    rereading = plan_rereading(CLICKS, recorded_epochs, unread("abcd"), begun_progress, max_files=1)
    assert held_epochs(rereading) == [("a", -7), ("b", -7), ("c", 3), ("d", 3)]
    assert held_epochs(plan_rereading(CLICKS, recorded_epochs, unread("ab"), max_files=1)) == [("a", None), ("b", None)]


def test_one_with_records_ahead_of_the_clock_is_the_last_of_its_own() -> None:
    recorded_epochs = [reaching("a", 10, 1), reaching("b", 20, 2, is_ahead=True), reaching("c", 30, 3)]
    assert summary(plan_rereading(CLICKS, recorded_epochs, unread("abc"), max_files=9)) == [
        ("ab", 20, 0), ("c", 30, 0), ("", -1, 0)
    ]  # fmt: skip


def test_where_duplicates_are_told_epochs_stay_as_they_are_also_those_without_input() -> None:
    deduplicated_pipeline = change_pipeline(CLICKS, deduplicate=Deduplicate("user", "1h"))
    recorded_epochs = [epoch("a", 10), epoch("", 15), epoch("b", 20), epoch("", 25)]
    assert summary(plan_rereading(deduplicated_pipeline, recorded_epochs, unread("abc"), max_files=9)) == [
        ("a", 10, 0), ("", 15, 0), ("b", 20, 0), ("", 25, 0), ("c", -1, 0)
    ]  # fmt: skip
    begun_progress = ReplayProgress(Instant(20))
    assert summary(plan_rereading(deduplicated_pipeline, recorded_epochs, unread("c"), begun_progress)) == [
        ("", 25, 0),
        ("c", -1, 0),
    ]


def test_where_the_order_of_arrival_counts_it_stays() -> None:
    last = change_pipeline(CLICKS, how=accumulating("1d", keep_last=2))
    recorded_epochs = [epoch("a", 10), epoch("c", 20), epoch("b", 30), epoch("d", 40)]
    assert summary(plan_rereading(last, recorded_epochs, unread("abcd"), max_files=9)) == [
        ("ac", 20, 0), ("bd", 40, 0), ("", -1, 0)
    ]  # fmt: skip


def test_signals_that_the_branch_has_heard_are_not_given_again() -> None:
    recorded_epochs = [epoch("a", 10, "go"), epoch("b", 20, "go"), epoch("", 30, "stop")]
    begun_progress = ReplayProgress(Instant(10), signals=((Signal("go"),),))
    assert summary(plan_rereading(CLICKS, recorded_epochs, unread("b"), begun_progress)) == [
        ("b", 20, 1),
        ("", 30, 1),
        ("", -1, 0),
    ]
    begun_progress = ReplayProgress(Instant(30), signals=((Signal("go"),), (Signal("go"),), (Signal("stop"),)))
    assert summary(plan_rereading(CLICKS, recorded_epochs, unread(""), begun_progress)) == [("", -1, 0)]
