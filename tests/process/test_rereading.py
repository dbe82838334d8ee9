"""How a backfill puts recorded epochs together: in their order, within bounds, each with its clock and its signals."""

from collections.abc import Sequence

from headrace.model.time import Instant
from headrace.model.triggers import Signal
from headrace.pipeline.inputs import OWN, arrival_time
from headrace.read.recorded import RecordedEpoch
from headrace.runs.rereading import Rereading, reread
from headrace.sources.planning import InputFile
from tests.building import changed
from tests.process.clicks import CLICKS

Summary = list[tuple[str, int, int]]


def file(name: str, size: int = 1) -> InputFile:
    return InputFile(name, size, f"etag of {name}")


def epoch(names: str, clock: int, *signals: str) -> RecordedEpoch:
    """An epoch that read files of one letter each."""
    files = {OWN: [file(name) for name in names]} if names else {}
    return RecordedEpoch(files, Instant(clock), tuple(map(Signal, signals)))


def summary(found: Rereading) -> Summary:
    """Of each epoch its files, clock and number of signals; and the rest, at no time."""
    epochs = [("".join(f.path for f in e.files.get(OWN, ())), e.processing_time, len(e.signals)) for e in found.epochs]
    return [*epochs, ("".join(f.path for f in found.rest.get(OWN, ())), -1, 0)]


def unread(names: str) -> dict[str, Sequence[InputFile]]:
    return {OWN: [file(name) for name in names]}


def test_epochs_come_together_in_their_order_at_the_time_of_the_last() -> None:
    recorded = [epoch("ca", 10), epoch("", 15), epoch("b", 20), epoch("d", 30)]
    assert summary(reread(CLICKS, recorded, unread("abcdef"), max_files=3)) == [
        ("cab", 20, 0), ("d", 30, 0), ("ef", -1, 0)
    ]  # fmt: skip


def test_bytes_are_bounded_too_and_an_epoch_that_is_larger_stays_alone() -> None:
    recorded = [epoch("a", 10), epoch("bcd", 20), epoch("e", 30), epoch("f", 40)]
    assert summary(reread(CLICKS, recorded, unread("abcdef"), max_files=9, max_bytes=2)) == [
        ("a", 10, 0), ("bcd", 20, 0), ("ef", 40, 0), ("", -1, 0)
    ]  # fmt: skip


def test_signals_end_an_epoch() -> None:
    recorded = [epoch("a", 10), epoch("b", 20, "go"), epoch("", 25, "go", "stop"), epoch("c", 30)]
    assert summary(reread(CLICKS, recorded, unread("abc"), max_files=9)) == [
        ("ab", 20, 1), ("", 25, 2), ("c", 30, 0), ("", -1, 0)
    ]  # fmt: skip


def test_what_was_read_already_is_left_out_and_content_is_that_of_now() -> None:
    corrected = InputFile("b", 7, "another")
    found = reread(CLICKS, [epoch("a", 10), epoch("b", 20)], {OWN: [corrected]})
    assert summary(found) == [("b", 20, 0), ("", -1, 0)]
    assert found.epochs[0].files[OWN] == [corrected]


def test_where_event_time_is_the_time_of_arrival_epochs_stay_as_they_are() -> None:
    arriving = changed(CLICKS, event_time=arrival_time())
    recorded = [epoch("a", 10), epoch("b", 20)]
    assert summary(reread(arriving, recorded, unread("ab"), max_files=9)) == [("a", 10, 0), ("b", 20, 0), ("", -1, 0)]
