"""Patches of joined rows: those that stand for good on main and on the branch are the branch's, and main goes on with
others as if there had been no patch.
"""

import json
import os
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import ChangedFileError, RefusedError, UnpatchableError
from tests.joins.test_lookups import ARRIVING
from tests.joins.trades import RATES, SIGNED_RATES, TRADE, TRADES, Trades, as_of, rate, rated_pipeline, trade
from tests.joins.trades import time_at as minute
from tests.reading import zoneless_rows

pytestmark = pytest.mark.slow  # whole runs

CHANGES = hr.json("landing/trades", {**TRADE, "sign": int}, changelog=col("sign")).event_time("at", bound="0s")
MORE = hr.json("landing/more", {"ccy": str, "rate": int, "at": datetime}).event_time("at", bound="0s").named("more")
LATENESS = timedelta(minutes=30)
_LATE: dict[str, Any] = {"columns": ["rate"], "lateness": "30m"}
_SECOND = hr.as_of(MORE, "ccy", columns={"more": "rate"}, outer=True, max_age="2h")
PIPELINES = {
    "as_of": rated_pipeline(as_of(outer=True, lateness="30m", order="seq")),
    "signed": rated_pipeline(as_of(right=SIGNED_RATES, lateness="30m", history="1h"), input=CHANGES),
    "within": rated_pipeline(hr.within(RATES, "ccy", between=("-30m", "20m"), **_LATE)),
    "window": rated_pipeline(hr.same_window(RATES, "ccy", window=hr.FixedWindows("1h"), outer=True, **_LATE)),
    "two": rated_pipeline(hr.next_event(RATES, "ccy", within="30m", **_LATE), _SECOND),
    "lookup": rated_pipeline(hr.lookup(ARRIVING, "ccy", outer=True, order="seq", **_LATE)),
    "outputs": hr.Pipeline(
        "rated",
        TRADES,
        outputs={
            "trades": hr.Rows(["id", "ccy", "amount"], filter=col("amount") > 3),
            "rates": hr.Rows(key="ccy", rows=["amount"], take=hr.newest(), where=hr.FixedWindows("1h"),
                             how=hr.retracting("30m")),
            "rated": hr.Rows({"id": col("id"), "rate": col("rate")}, of="trades",
                             join=[hr.as_of("rates", "ccy", columns={"rate": "amount"}, outer=True)]),
        },
        executor="local",
    ),
}  # fmt: skip
Rows = Counter[tuple[Any, ...]]


def moment(row: tuple[Any, ...]) -> datetime:
    """The event time of a row."""
    event_time: datetime = row[-1]
    return event_time


@dataclass
class History:
    """A root with a pipeline that is patched, and its ``shadow``, which reads the same files and is not. ``frozen``:
    before which time rows were patched, and which these are.
    """

    trades: Trades
    pipeline: hr.Pipeline
    dice: random.Random
    minute: int = 0
    frozen: tuple[datetime, Rows] = (datetime(1900, 1, 1), Counter())
    patches: dict[int, set[datetime]] = field(default_factory=dict)
    branches: int = 0

    @property
    def shadow(self) -> hr.Pipeline:
        return replace(self.pipeline, name="shadow")

    @property
    def output(self) -> str:
        return "rated" if self.pipeline.outputs else ""

    def handle(self) -> Any:
        return self.trades.handle(self.pipeline)

    def current(self, pipeline: hr.Pipeline, ref: str = "main") -> Rows:
        handle = self.trades.handle(pipeline)
        reader = handle[self.output] if self.output else handle
        names = [*pipeline.by_output[self.output].value_types, "event_time"]
        rows = reader.current(columns=names, at=ref).to_arrow()
        return Counter(tuple(row.values()) for row in zoneless_rows(rows))

    def some_minute(self) -> int:
        return max(0, self.minute - self.dice.choice([0, 0, 20, 60, 200]))

    def files(self) -> dict[str, list[dict[str, Any]]]:
        ids, rates = "abcd", [rate(self.some_minute(), self.dice.randrange(4), seq=1, sign=1) for _ in range(2)]
        return {
            "trades": [trade(self.dice.choice(ids), self.some_minute(), sign=1, amount=self.dice.randrange(9))
                       for _ in range(3)],
            "rates": rates,
            "more": [rate(self.some_minute(), self.dice.randrange(9))],
        }  # fmt: skip

    def step(self) -> None:
        """Some land, and both run."""
        self.minute += self.dice.choice([10, 30, 100])
        for kind, records in self.files().items():
            more = self._withdrawn() if kind == "trades" and self.dice.random() < 0.3 else []
            self.trades.land(kind, *records, *more)
        self.handle().run()
        self.trades.handle(self.shadow).run()
        self.check()

    def _withdrawn(self) -> list[dict[str, Any]]:
        files = sorted((self.trades.folder / "landing/trades").iterdir())
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [{**self.dice.choice(lines), "sign": -1}] if lines else []

    def check(self) -> None:
        """What was patched stays, and all else is as if there had been no patch."""
        bound, rows = self.frozen
        stands = self.current(self.pipeline)
        assert Counter({row: n for row, n in stands.items() if moment(row) < bound}) == rows
        others = {row: n for row, n in self.current(self.shadow).items() if moment(row) >= bound}
        assert Counter({row: n for row, n in stands.items() if moment(row) >= bound}) == Counter(others)
        assert self.handle().fsck().damage == ()

    def over_until(self, ref: str) -> datetime:
        """Before which event time rows stand for good: by the watermark behind the joins that a snapshot has."""
        catalog = self.handle().catalog
        progress = catalog.manifest(catalog.head().refs[ref]).progress
        own = progress["outputs"]["rated"] if self.output else progress
        return (
            datetime.fromisoformat(own["input_watermark"].replace("-inf", "1900-01-01")).replace(tzinfo=None) - LATENESS
        )

    def patch(self) -> None:
        """Some file has other content for a while, which a branch reads; main takes of it what is over."""
        kind = self.dice.choice(["trades", "rates", "more"])
        file = self.dice.choice(sorted((self.trades.folder / "landing" / kind).iterdir()))
        self.branches += 1
        branch, content = f"fix{self.branches}", file.read_text()
        file.write_text("".join(json.dumps(record) + "\n" for record in self.files()[kind]))
        start = {"start": minute(max(0, self.minute - 100))} if self.dice.random() < 0.4 else {}
        try:
            self.handle().backfill(branch=branch, **start)
        finally:
            file.write_text(content)
        catalog = self.handle().catalog
        refs = catalog.head().refs
        fork = catalog.common_ancestor(refs["main"], refs[branch])
        newer = [moments for epoch, moments in self.patches.items() if fork and epoch > fork.epoch]
        patched_moments = set[datetime]().union(*newer)
        bound = min(self.over_until("main"), self.over_until(branch))
        old_rows, others = self.current(self.pipeline), self.current(self.pipeline, branch)

        def is_replaced(row: tuple[Any, ...]) -> bool:
            return moment(row) < bound and moment(row) not in patched_moments

        expected_rows = Counter({row: n for row, n in old_rows.items() if not is_replaced(row)})
        expected_rows += Counter({row: n for row, n in others.items() if is_replaced(row)})
        options: dict[str, Any] = {"patch": True, "output": self.output or None}
        rehearsal = self.handle().promote(branch, dry_run=True, **options)
        result = self.handle().promote(branch, **options)
        stands = self.current(self.pipeline)
        assert stands == expected_rows, (kind, branch, bound)
        assert rehearsal.output.rows.after == stands.total()
        changes = {moment(row) for row in ((old_rows - stands) + (stands - old_rows))}
        assert bool(result.epochs) == bool(changes)
        if changes:
            self.patches[catalog.manifest(catalog.head().refs["main"]).epoch] = changes
            bound = max(self.frozen[0], bound)
            self.frozen = bound, Counter({row: n for row, n in stands.items() if moment(row) < bound})
        self.check()


@pytest.mark.hypothesis  # make fuzz turns as many as it turns of others
@pytest.mark.parametrize("seed", range(int(os.environ.get("HEADRACE_EXAMPLES", "1"))))
@pytest.mark.parametrize("kind", PIPELINES)
def test_after_random_patches_what_is_over_is_the_branchs_and_main_goes_on(
    tmp_path: Path, kind: str, seed: int
) -> None:
    for name in ("trades", "rates", "more"):
        (tmp_path / "landing" / name).mkdir(parents=True)
    history = History(Trades(tmp_path), PIPELINES[kind], random.Random(f"{kind} {seed}"))
    for _ in range(3):
        history.step()
    for _ in range(7):
        action = history.dice.choice([history.step, history.patch])
        try:
            action()
        except ChangedFileError:  # a range begins behind the file that has other content
            history.check()
        except RefusedError as error:
            assert "has not read" in str(error), error


def late_rate(folder: Path, pipeline: hr.Pipeline) -> Trades:
    """A rate came too late for main, and the branch ``fix`` has it."""
    trades = Trades(folder)
    trades.run(pipeline, trades=[trade("a", 5), trade("b", 20)], rates=[rate(0, 1)])
    trades.run(pipeline, trades=[trade("open", 290), trade("end", 300)], rates=[rate(300, 7)])
    trades.run(pipeline, rates=[rate(10, 2), rate(280, 3)])
    trades.handle(pipeline).backfill(branch="fix")
    return trades


@pytest.mark.parametrize("outer", [False, True])
def test_joined_rows_that_stand_for_good_are_patched(tmp_path: Path, outer: bool) -> None:
    pipeline = rated_pipeline(as_of(outer=outer))
    trades = late_rate(tmp_path, pipeline)
    handle = trades.handle(pipeline)
    assert "where they stand for good on both" in str(handle.promote("fix", patch=True, dry_run=True))
    handle.promote("fix", patch=True)
    expected_rows = Counter({("a", 1): 1, ("b", 2): 1, ("open", 3): 1, ("end", 7): 1})
    assert trades.current(pipeline) == expected_rows
    trades.run(pipeline, rates=[rate(12, 9), rate(285, 4)])
    assert trades.current(pipeline) == expected_rows - Counter([("open", 3)]) + Counter([("open", 4)])


def test_joined_rows_that_are_never_over_are_not_patched(tmp_path: Path) -> None:
    outputs = {
        "trades": hr.Rows(key="ccy", rows=["id"], take=hr.newest(), how=hr.retracting(None)),
        "rated": hr.Rows(["id", "other"], of="trades", join=[hr.as_of("trades", "ccy", columns={"other": "id"})]),
    }
    pipeline = hr.Pipeline("rated", TRADES, outputs=outputs, executor="local")
    trades = Trades(tmp_path)
    trades.run(pipeline, trades=[trade("a", 5)])
    handle = trades.handle(pipeline)
    handle.backfill(branch="fix")
    with pytest.raises(UnpatchableError, match="a join of rated has no limit of lateness"):
        handle.promote("fix", patch=True, output="rated")


@pytest.mark.parametrize("parts", [{}, {"when": hr.on_window_close()}], ids=["at once", "on close"])
def test_two_patches_leave_one_version_of_a_joined_row(tmp_path: Path, parts: dict[str, Any]) -> None:
    trades, pipeline = Trades(tmp_path), rated_pipeline(as_of(lateness=None), **parts)
    trades.run(pipeline, trades=[trade("z", 1)], rates=[rate(0, 1)])
    trades.run(pipeline, trades=[trade("a", 100)], rates=[rate(90, 1)])
    trades.run(pipeline, trades=[trade("end", 300)], rates=[rate(300, 9)])
    file = tmp_path / "landing/rates/0001.json"
    content, handle = file.read_text(), trades.handle(pipeline)
    for value in (2, 3):
        file.write_text(json.dumps(rate(90, value)) + "\n")
        handle.backfill(branch=f"fix{value}", start=minute(100))
    file.write_text(content)
    for value in (2, 3):
        handle.promote(f"fix{value}", patch=True)
    assert [row for row in trades.current(pipeline) if row[0] == "a"] == [("a", 2)]
