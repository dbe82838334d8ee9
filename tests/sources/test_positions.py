"""Sources that are not files: what they know of the watermark, splits that count again, positions of other kinds."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import pytest

import headrace as hr
from headrace.distribute.watermark_inputs import InputObservations
from headrace.ext.sources import (
    SOURCES,
    OpenSource,
    SourceConnector,
    SourcePosition,
    SourceSplit,
    SplitEnumerator,
    UnknownPositionError,
)
from headrace.model.event_time import EventTime, FromSource, Split, SplitFacts
from headrace.model.time import Instant
from headrace.pipeline.endpoints import Source
from headrace.sources.landing import Landing
from headrace.sources.source_clock import SourceClock
from headrace_snapshots.format.codec import Fields
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.store import ObjectStore
from headrace_snapshots.store.local import MemoryStore


@dataclass(frozen=True)
class Numbers(Source):
    """Splits by number; one whose name ends in ! counts again, and each knows the watermark by its number."""

    kind: ClassVar[str] = "numbers"
    splits: tuple[str, ...] = ()
    schema: Mapping[str, type] = None  # type: ignore[assignment]
    max_files: int = 10

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", {"at": datetime, "k": str})
        super().__post_init__()

    @property
    def place(self) -> str:
        return "numbers"


@dataclass(frozen=True)
class NumberSplits(SplitEnumerator):
    source: Numbers

    def unread(self, position: SourcePosition, read: Collection[str] | None = None) -> Iterator[SourceSplit]:
        return (SourceSplit(name, 1, "") for name in self.source.splits if name > position.mark)

    def after(self, position: SourcePosition, splits: Sequence[SourceSplit]) -> SourcePosition:
        return position.passed(splits[-1].path, splits) if splits else position

    def missing(self, splits: Iterable[SourceSplit]) -> Iterator[tuple[SourceSplit, str]]:
        return iter(())

    def explain(self) -> str:
        return "no numbers"

    def watermarks(self, split: SourceSplit) -> Mapping[str, Instant]:
        return {"": Instant(int(split.path.rstrip("!")))}

    def is_correction(self, split: SourceSplit) -> bool:
        return split.path.endswith("!")


class NumberConnector(SourceConnector):
    format = 2

    def open(self, source: Source, root: ObjectStore) -> OpenSource:
        assert isinstance(source, Numbers)
        return OpenSource(NumberSplits(source), None)  # type: ignore[arg-type] # nothing is read


@pytest.fixture(autouse=True)
def numbers_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES.built_in, "numbers", f"{__name__}:CONNECTOR")  # type: ignore[arg-type] # a dict


CONNECTOR = NumberConnector()


def landing(*splits: str, more: Sequence[str] = ()) -> Landing:
    given_input = hr.Input(Numbers(splits), EventTime(hr.col("at"), FromSource(), max_ahead=None))
    union = [hr.Input(Numbers(tuple(more)), given_input.event_time).named("more")] if more else []
    pipeline = hr.Pipeline(
        "p", given_input, key="k", what={"n": hr.count()}, where=hr.FixedWindows("1h"), union=union, executor="local"
    )
    return Landing(pipeline, MemoryStore())


def epochs(made_landing: Landing) -> list[dict[str, list[str]]]:
    cut, files = [], dict[str, Sequence[SourceSplit]](made_landing.new_files({}))
    while files:
        batch, rest = made_landing.next_epoch(files)
        cut.append({name: [split.path for split in splits] for name, splits in batch.items()})
        files = dict(rest)
    return cut


def test_a_split_that_counts_again_is_an_epoch_of_its_own() -> None:
    assert epochs(landing("1", "2", "3!", "4!", "5", "6")) == [
        {"source": ["1", "2"]}, {"source": ["3!"]}, {"source": ["4!"]}, {"source": ["5", "6"]},
    ]  # fmt: skip
    assert epochs(landing("1!", "2", more=["5", "6!", "7"])) == [
        {"source": ["1!"]}, {"source": ["2"], "more": ["5"]}, {"more": ["6!"]}, {"more": ["7"]},
    ]  # fmt: skip


def test_what_a_source_knows_moves_the_watermark_without_a_record() -> None:
    made_landing = landing("1", "2", "30")
    (splits,) = made_landing.new_files({}).values()
    marks = made_landing.watermarks({"source": splits})
    assert marks == {"source": {"": 30}}
    facts = InputObservations(facts={"source": {"": SplitFacts(None)}}).and_known(marks).facts["source"]
    clock = SourceClock(EventTime(hr.col("at"), FromSource(), max_ahead=None)).after_epoch(facts, Instant(5), ())
    assert (clock.watermark, clock.splits[""]) == (30, Split(Instant(30), Instant(5), Instant(5)))
    assert clock.after_epoch({}, Instant(6), ()).watermark == 30


def test_a_part_that_is_said_to_be_complete_does_not_hold_the_others_back() -> None:
    clock = SourceClock(hr.json("x", {"at": datetime, "p": str}).event_time("at", bound="0s", split="p").event_time)
    input_observations = InputObservations(facts={"source": {"a": SplitFacts(Instant(90))}})
    assert (
        clock.after_epoch(
            input_observations.and_known({"source": {"b": Instant(40)}}).facts["source"], Instant(5), ()
        ).watermark
        == 40
    )
    assert (
        clock.after_epoch(
            input_observations.and_known({"source": {"a": Instant(40)}}).facts["source"], Instant(5), ()
        ).watermark
        == 90
    )


def test_a_position_is_of_the_kind_and_format_of_its_source() -> None:
    made_landing = landing("1", "2")
    (splits,) = made_landing.new_files({}).values()
    position = made_landing.position_after("source", SourcePosition(), splits)
    assert (position.kind, position.format, position.files) == ("numbers", 2, 2)
    assert made_landing.new_files({"source": position}) == {}
    for other in (SourcePosition("2", (), 2, 2, "tables", 1), SourcePosition("2", (), 2, 2, "numbers", 3)):
        with pytest.raises(UnknownPositionError, match=rf"kind '{other.kind}', format {other.format}\. It is num"):
            made_landing.new_files({"source": other})


def test_only_who_is_lost_is_missed() -> None:
    one, two = SourceSplit("1", 1, "a"), SourceSplit("1", 1, "b")
    finder: SplitEnumerator = NumberSplits(Numbers())
    assert (finder.is_lost(one, {}), finder.is_lost(one, {"1": two}), finder.is_lost(one, {"1": one})) == (
        True, True, False,
    )  # fmt: skip


@pytest.mark.parametrize("mark", ["", "7", '{"a":1}', '{"b": 1, "a": 2}', '{"a":1.0,"b":1e400}', "{2026}", '"{}"', "{"])
def test_a_mark_comes_back_to_the_letter(mark: str) -> None:
    position = SourcePosition(mark, (), 3, 4, "numbers", 2)
    written_document = json.loads(json.dumps(position.to_json(), allow_nan=False))
    assert SourcePosition.from_json(Fields(written_document, "input")) == position


def test_a_position_from_before_it_said_its_kind_and_an_input_that_is_gone() -> None:
    made_landing = landing("1", "2", "3")
    assert [split.path for split in made_landing.new_files({"source": SourcePosition("2", (), 2, 2)})["source"]] == [
        "3"
    ]
    was = InputFile("1", 1, "", "weather")
    assert made_landing.missing_paths([was], {}) == ["1"]
