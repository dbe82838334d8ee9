"""A pipeline whose inputs are another pipeline and files: rows are those of both, whatever the other one takes back."""

import json
import os
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import UnknownBranchError
from tests.process.chains import BEGIN, CLICKS, FINE, FIRST, UPSTREAM, Chain

SEEDS = int(os.environ.get("HEADRACE_CHAINS", "0"))
"""Random deployments of each kind, as in ``test_published``."""

KINDS = ("retracting", "discarding", "accumulating")
KINDS_AND_SEEDS = [
    ("retracting", 0),
    ("discarding", 1),
    *[(kind, 100 + seed) for kind in KINDS for seed in range(SEEDS)],
]

Place = tuple[str, datetime]
"""A key, and the hour."""

GIFTS = hr.json("landing/gifts", {"k": str, "s": int, "at": datetime}).event_time("at", bound="20m")


def mixed_pipeline(*, is_first: bool) -> hr.Pipeline:
    """What another pipeline gives, and gifts, of which nobody knows upstream; either may be the first input."""
    sales = hr.published("first", {"k": str, "s": int})
    one, other = (sales, GIFTS.named("other")) if is_first else (GIFTS, sales.named("other"))
    return hr.Pipeline(
        "mixed",
        one,
        union=[other],
        key="k",
        what={"s": col("s").sum(), "n": hr.count(), "top": col("s").max()},
        where=hr.FixedWindows("1h"),
        when=FINE,
        how=hr.retracting(None),
        executor="local",
    )


@dataclass
class Mixture:
    """A deployment of the two under one root; what is done to it next is ``random``."""

    root: Path
    kind: str
    random: random.Random
    landed: int = 0

    def __post_init__(self) -> None:
        when, how = UPSTREAM[self.kind]
        options: dict[str, Any] = {"when": when, "how": how, "executor": "local"}
        first = hr.Pipeline("first", CLICKS, key="k", what=FIRST, where=hr.FixedWindows("10m"), **options)
        is_first = self.random.random() < 0.5
        self.chain = Chain([self.root] * 2, [first, mixed_pipeline(is_first=is_first)], self.random)

    @property
    def handles(self) -> list[hr.types.PipelineHandle]:
        return self.chain.handles

    def land_gifts(self) -> None:
        self.landed += 1
        folder = self.root / "landing" / "gifts"
        folder.mkdir(parents=True, exist_ok=True)
        gifts = [
            {"k": self.random.choice("abd"), "s": self.random.randint(-5, 50), "at": self._moment()}
            for _ in range(self.random.randint(1, 4))
        ]
        (folder / f"{self.landed:05}.jsonl").write_text("".join(f"{json.dumps(gift)}\n" for gift in gifts))

    def _moment(self) -> str:
        return (BEGIN + timedelta(minutes=self.chain.now + self.random.randint(-15, 40))).isoformat()

    def backfill(self) -> None:
        with suppress(UnknownBranchError):  # nothing is there yet
            self.handles[1].backfill(promote=True)

    def step(self) -> None:
        number = self.random.randrange(2)
        acts = [self.chain.land, self.land_gifts, lambda: self.run(number), lambda: self.chain.roll_back(number)]
        self.random.choice([*acts, *acts, self.backfill])()

    def run(self, number: int) -> None:
        self.handles[number].run(max_epochs=self.random.choice([None, None, 1]))

    def drain(self) -> None:
        for handle in self.handles:
            handle.run()

    def input_values(self) -> list[tuple[str, int, datetime]]:
        """Key, value and time of what was published of the first, as it adds up, and of all gifts."""
        if self.kind == "discarding":  # a row is the last pane of several, which all count
            panes = self.handles[0].panes().to_arrow().to_pylist()
        else:
            panes = [row | {"is_retraction": False} for row in self.handles[0].current().to_arrow().to_pylist()]
        given_rows = [
            (pane["k"], pane["s"] * (-1 if pane["is_retraction"] else 1), pane["pane_time"]) for pane in panes
        ]
        for file in (self.root / "landing" / "gifts").glob("*.jsonl"):
            for line in file.read_text().splitlines():
                gift = json.loads(line)
                given_rows.append((gift["k"], gift["s"], datetime.fromisoformat(gift["at"])))
        return given_rows

    def expected(self) -> tuple[dict[Place, int], dict[Place, int]]:
        """Sum and number of that by key and hour."""
        sums, numbers = Counter[Place](), Counter[Place]()
        for key, value, moment in self.input_values():
            place = key, moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            sums[place] += value
            numbers[place] += 1
        return dict(sums), dict(numbers)


@pytest.mark.parametrize(("kind", "seed"), KINDS_AND_SEEDS)
def test_rows_are_those_of_both_inputs(kind: str, seed: int, tmp_path: Path) -> None:
    mixture = Mixture(tmp_path, kind, random.Random(f"{kind}{seed}"))
    mixture.chain.land()
    mixture.land_gifts()
    for _ in range(20 if SEEDS else 8):
        mixture.step()
    mixture.chain.land()
    mixture.land_gifts()
    mixture.drain()
    rows = mixture.handles[1].current().to_arrow().to_pylist()
    shown_rows = [{(row["k"], row["window_start"]): row[name] for row in rows} for name in ("s", "n")]
    assert shown_rows == [*mixture.expected()], mixture.chain.done


def test_a_backfill_is_promoted_though_nothing_is_published_any_more(tmp_path: Path) -> None:
    """What main had read of the other pipeline was taken back, so the branch has no place in it."""
    mixture = Mixture(tmp_path, "retracting", random.Random(1))
    mixture.chain.land()
    mixture.land_gifts()
    mixture.drain()
    both = mixture.handles[1].current().to_arrow().num_rows
    mixture.handles[0].rollback(to="beginning")
    mixture.handles[1].backfill(promote=True)
    shown_rows = {
        (row["k"], row["window_start"]): row["s"] for row in mixture.handles[1].current().to_arrow().to_pylist()
    }
    assert 0 < len(shown_rows) <= both
    assert shown_rows == mixture.expected()[0]
    mixture.drain()
    shown_rows = {
        (row["k"], row["window_start"]): row["s"] for row in mixture.handles[1].current().to_arrow().to_pylist()
    }
    assert shown_rows == mixture.expected()[0]
