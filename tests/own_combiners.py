"""Combiners as users write them, for the tests of both executors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from headrace import CustomCombiner, DataType, ListType
from headrace.model.combiners import Accumulator

INT, FLOAT, STRING, TIMESTAMP = DataType.INT, DataType.FLOAT, DataType.STRING, DataType.TIMESTAMP
Types = Mapping[str, DataType | ListType]


@dataclass(frozen=True)
class Span(CustomCombiner):
    """How far the largest value lies above the smallest; it cannot take a value back."""

    result_type = INT

    @property
    def accumulator_types(self) -> Types:
        return {"low": INT, "high": INT}

    def create(self) -> Accumulator:
        return {"low": None, "high": None}

    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        return self.merge(accumulator, {"low": value, "high": value})

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        if left["low"] is None or right["low"] is None:
            return right if left["low"] is None else left
        return {"low": min(left["low"], right["low"]), "high": max(left["high"], right["high"])}

    def extract(self, accumulator: Accumulator) -> Any:
        return None if accumulator["low"] is None else accumulator["high"] - accumulator["low"]


@dataclass(frozen=True)
class Bins(CustomCombiner):
    """How many values have each remainder: a list, and values can be taken back before they came."""

    number: int
    accumulator_types = {"counts": list[int], "values": int}
    result_type = list[int]

    def create(self) -> Accumulator:
        return {"counts": [0] * self.number, "values": 0}

    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        return self._add_value(accumulator, value, 1)

    def remove(self, accumulator: Accumulator, value: Any) -> Accumulator:
        return self._add_value(accumulator, value, -1)

    def _add_value(self, accumulator: Accumulator, value: Any, step: int) -> Accumulator:
        counts = [n + step * (i == value % self.number) for i, n in enumerate(accumulator["counts"])]
        return {"counts": counts, "values": accumulator["values"] + step}

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        counts = [a + b for a, b in zip(left["counts"], right["counts"], strict=True)]
        return {"counts": counts, "values": left["values"] + right["values"]}

    def extract(self, accumulator: Accumulator) -> Any:
        return [*accumulator["counts"], accumulator["values"]]


@dataclass(frozen=True)
class Nearness(CustomCombiner):
    """How near to zero floats are in the mean, 1 at zero; values of a bundle are added at once."""

    accumulator_types = {"n": INT, "total": FLOAT}
    result_type = FLOAT

    def create(self) -> Accumulator:
        return {"n": 0, "total": 0.0}

    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        return {"n": accumulator["n"] + 1, "total": accumulator["total"] + 1 / (1 + abs(value))}

    def add_all(self, accumulator: Accumulator, values: Any) -> Accumulator:
        total = pc.sum(pc.divide(1.0, pc.add(1.0, pc.abs(values)))).as_py()
        return {"n": accumulator["n"] + len(values), "total": accumulator["total"] + total}

    def remove(self, accumulator: Accumulator, value: Any) -> Accumulator:
        return {"n": accumulator["n"] - 1, "total": accumulator["total"] - 1 / (1 + abs(value))}

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        return {"n": left["n"] + right["n"], "total": left["total"] + right["total"]}

    def extract(self, accumulator: Accumulator) -> Any:
        return accumulator["total"] / accumulator["n"] if accumulator["n"] else None


@dataclass(frozen=True)
class Longest(CustomCombiner):
    """The longest strings, in order."""

    accumulator_types = {"words": ListType(STRING)}
    result_type = ListType(STRING)

    def create(self) -> Accumulator:
        return {"words": []}

    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        return self.merge(accumulator, {"words": [value]})

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        words = {*left["words"], *right["words"]}
        return {"words": sorted(word for word in words if len(word) == max(map(len, words)))}

    def extract(self, accumulator: Accumulator) -> Any:
        return accumulator["words"]


@dataclass(frozen=True)
class UntilCombiner(CustomCombiner):
    """How many microseconds before ``end`` the last timestamp lies; both are Instants to it."""

    end: int
    accumulator_types = {"last": TIMESTAMP}
    result_type = INT

    def create(self) -> Accumulator:
        return {"last": None}

    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        return self.merge(accumulator, {"last": value})

    def merge(self, left: Accumulator, right: Accumulator) -> Accumulator:
        last_values = [one["last"] for one in (left, right) if one["last"] is not None]
        return {"last": max(last_values, default=None)}

    def extract(self, accumulator: Accumulator) -> Any:
        return None if accumulator["last"] is None else self.end - accumulator["last"]


@dataclass(frozen=True)
class Refusing(Span):
    """Its code fails on the value 13, in ``add`` or, behind it, in ``extract``."""

    late: bool = False

    def add(self, accumulator: Accumulator, value: Any) -> Accumulator:
        if value == 13 and not self.late:
            raise ValueError("bad luck")
        return super().add(accumulator, value)

    def extract(self, accumulator: Accumulator) -> Any:
        if accumulator["high"] == 13:
            raise ValueError("bad luck")
        return super().extract(accumulator)
