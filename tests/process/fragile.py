"""Outputs that fail by themselves, until somebody mends what they read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from headrace import CustomCombiner, DataType, Deduplicate, Expr, FileSource, Input, Output, Pipeline, col
from headrace.model.combiners import Accumulator
from headrace.model.event_time import BoundedOutOfOrderness, EventTime
from headrace.model.time import to_instant
from tests.process.clicks import START, records
from tests.process.outputs import DAILY, HOURLY, VISITS

INT, STRING = DataType.INT, DataType.STRING


@dataclass(frozen=True)
class Fragile(CustomCombiner):
    """The sum of values. Of those between ``least`` and ``most`` it fails to ``step``, until there is the file
    ``mended``.
    """

    mended: str
    step: str = "add"
    least: int = 0
    most: int = 2**62
    accumulator_types = {"sum": INT}
    result_type = INT

    def _check(self, step: str, value: int) -> None:
        if step == self.step and self.least <= value <= self.most and not Path(self.mended).exists():
            raise ValueError(f"{value} is too much to {step}")

    def create(self) -> Accumulator:
        return {"sum": 0}

    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        self._check("add", value)
        return {"sum": accumulator["sum"] + value}

    def remove(self, accumulator: Accumulator, value: Any) -> Accumulator:
        return {"sum": accumulator["sum"] - value}

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        self._check("merge", right["sum"])
        return {"sum": left["sum"] + right["sum"]}

    def extract(self, accumulator: Accumulator) -> Any:
        self._check("extract", accumulator["sum"])
        return accumulator["sum"]


def fragile(combiner: Fragile, value: Expr | None = None) -> Output:
    """Visits, with a ``combiner`` that fails."""
    return replace(
        VISITS, what={**VISITS.what, "fragile": (col("price") if value is None else value).combine(combiner)}
    )


def minute(number: int) -> int:
    """The event time of that minute."""
    return int(to_instant(START + timedelta(minutes=number)))


def breaking(mended_file: Path, *, telling: bool = False) -> Pipeline:
    """A shop whose output "visits" fails in epochs 5 to 9, each of which reads a file, until there is a file
    ``mended_file``. ``telling``: duplicates are told.
    """
    combiner = Fragile(str(mended_file), "add", least=minute(330), most=minute(599))
    schema = {"id": STRING, "user": STRING, "at": DataType.TIMESTAMP, "price": INT}
    return Pipeline(
        "shop",
        Input(
            FileSource("landing/clicks", "json", schema, max_files=1),
            EventTime(col("at"), BoundedOutOfOrderness(timedelta(minutes=10))),
        ),
        outputs={"hourly": HOURLY, "visits": fragile(combiner, col("at")), "daily": DAILY},
        deduplicate=Deduplicate("id", "2d") if telling else None,
        executor="local",
    )


def land_with_ids(root: Path, first: int, last: int) -> None:
    """Land files ``first`` to ``last`` (exclusive): each holds some records of the files before it once more, and one
    that no output with a key can take.
    """
    folder = root / "landing" / "clicks"
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(first, last):
        lines = [
            *_number_records(file),
            *(line for n in (1, 4) if file >= n for line in _number_records(file - n)[n::3]),
        ]
        lines.append({**_number_records(file)[0], "user": None, "id": f"{file}-none"})
        (folder / f"part-{file:05d}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _number_records(file: int) -> Sequence[dict[str, object]]:
    return [{"id": f"{file}-{number}", **record} for number, record in enumerate(records(file))]
