"""Random histories of a pipeline that joins what another one publishes: rollbacks, promotions, corrections, expiries of
either, forks, replays. Whatever became of the dimension, what stands is what DuckDB joins of what its readers see.
"""

import json
import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import col
from headrace.errors import HeadraceError
from headrace_lab.catalog_checks import check_catalog
from tests.reading import zoneless_rows
from tests.reference.strategies import examples

BEGIN: Final = datetime(2026, 5, 1)
_EVERY_UPDATE: dict[str, Any] = {"when": hr.on_update(), "how": hr.retracting(None)}
FACTOR = {"shop": str, "factor": int, "seq": int}
FACTORS = hr.Pipeline(
    "factors",
    hr.json("landing/factors", {**FACTOR, "sign": int, "at": datetime}, changelog=col("sign"), max_files=1).event_time(
        "at", bound="30d"
    ),
    rows=[*FACTOR],
    executor="local",
)
_FACTORS_INPUT = hr.published("factors", FACTOR).named("factors")
_AS_OF_JOIN = hr.as_of(_FACTORS_INPUT, "shop", columns=["factor"], order="seq", outer=True)
_WITHIN_JOIN = hr.within(_FACTORS_INPUT, "shop", between=("-20m", "10m"), columns=["factor"])
RATED_PIPELINE = hr.Pipeline(
    "rated",
    hr.json("landing/orders", {"id": int, "shop": str, "sign": int, "at": datetime}, changelog=col("sign"), max_files=1)
    .event_time("at", bound="30d"),
    outputs={
        "held": hr.Rows(["id", "shop", "factor"], join=[_AS_OF_JOIN]),
        "near": hr.Rows(["id", "factor"], join=[_WITHIN_JOIN]),
        "sums": hr.Output(
            join=[_AS_OF_JOIN],
            key="factor",
            null_keys=True,
            what={"n": hr.count(), "ids": col("id").sum()},
            where=hr.FixedWindows("1d"),
            **_EVERY_UPDATE,
        ),
    },
    executor="local",
)  # fmt: skip
_JOIN_SQL: Final = """
    select o.id, o.shop, f.factor, o.moment, o.n from orders o
    asof left join (select * from factors qualify row_number() over (partition by shop, moment order by seq desc) = 1) f
    on o.shop = f.shop and o.moment >= f.moment"""
ORACLES: Final = {
    "held": _JOIN_SQL,
    "near": """
        select o.id, f.factor, o.moment, o.n from orders o join factors f on o.shop = f.shop
        and f.moment between o.moment - interval 20 minutes and o.moment + interval 10 minutes""",
    "sums": f"select factor, sum(n), sum(id * n), 1 from ({_JOIN_SQL}) group by factor",
}
COLUMNS: Final = {
    "held": ["id", "shop", "factor", "event_time"],
    "near": ["id", "factor", "event_time"],
    "sums": ["factor", "n", "ids"],
}
_OF_ORDERS = pa.schema([("id", pa.int64()), ("shop", pa.string()), ("moment", pa.timestamp("us")), ("n", pa.int64())])
ACTIONS = (
    "add_orders",
    "add_orders",
    "change_prices",
    "change_prices",
    "both",
    "run_unpublished",
    "correct_factors",
    "backfill_whole",
    "promote_branch",
)
ACTIONS = (*ACTIONS, "roll_back", "dimension_back", "expire_snapshots", "dimension_expired", "replay_all", "fill_range")


class History:
    """One root with both pipelines."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.choice, self.steps_done = folder, random.Random(seed), list[str]()
        self.standing_by_kind: dict[str, list[dict[str, Any]]] = {"orders": [], "factors": []}
        self.net: Counter[tuple[Any, ...]] = Counter()
        self.landings, self.branches, self.seq = 0, 0, 0
        for kind in self.standing_by_kind:
            (folder / "landing" / kind).mkdir(parents=True)
        root = hr.open(folder.as_uri(), create=True)
        self.rated_handle, self.factors = root[RATED_PIPELINE], root[FACTORS]

    def act(self, action: str) -> None:
        """Do it; a rollback or an expiry that there is nothing for changes nothing."""
        self.steps_done.append(action)
        try:
            getattr(self, action)()
        except HeadraceError as error:
            if action not in ("roll_back", "dimension_back"):
                raise
            self.steps_done[-1] += f": {error.code}"

    def land(self, kind: str) -> None:
        """A file of records and withdrawals."""
        standing_records, lines = self.standing_by_kind[kind], list[dict[str, Any]]()
        for _ in range(self.choice.randrange(1, 4)):
            if standing_records and self.choice.random() < 0.3:
                lines.append({**standing_records.pop(self.choice.randrange(len(standing_records))), "sign": -1})
            else:
                standing_records.append(self._record(kind))
                lines.append({**standing_records[-1], "sign": 1})
        if kind == "orders":
            for line in lines:
                moment = datetime.fromisoformat(line["at"].removesuffix("Z"))
                self.net[line["id"], line["shop"], moment] += line["sign"]
        self.landings += 1
        self._write(self.folder / f"landing/{kind}/{self.landings:04}.json", lines)

    def _record(self, kind: str) -> dict[str, Any]:
        moment = (BEGIN + timedelta(minutes=self.choice.randrange(0, 120, 10))).isoformat() + "Z"
        if kind == "orders":
            return {"id": self.choice.randrange(5), "shop": self.choice.choice("ab"), "at": moment}
        self.seq += 1
        return {"shop": self.choice.choice("ab"), "factor": self.choice.randrange(3), "seq": self.seq, "at": moment}

    def _write(self, file: Path, lines: list[dict[str, Any]]) -> None:
        file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def add_orders(self) -> None:
        self.land("orders")
        self.rated_handle.run()

    def change_prices(self) -> None:
        self.land("factors")
        self.factors.run()

    def both(self) -> None:
        self.land("factors")
        self.factors.run()
        self.add_orders()

    def run_unpublished(self) -> None:
        self.land("factors")
        self.factors.run(publish=False)
        self.rated_handle.run()

    def correct_factors(self) -> None:
        """Another factor in a file that was read long ago: a backfill of the dimension takes the place of main."""
        files = sorted((self.folder / "landing/factors").iterdir())
        if not files or "factors" not in hr.open(self.folder.as_uri()):
            return
        file = self.choice.choice(files)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        chosen_line = self.choice.choice(lines)
        if chosen_line["sign"] > 0 and chosen_line["seq"] in {
            factor["seq"] for factor in self.standing_by_kind["factors"]
        }:
            for record in (
                chosen_line,
                *(factor for factor in self.standing_by_kind["factors"] if factor["seq"] == chosen_line["seq"]),
            ):
                record["factor"] = 7
            self._write(file, lines)
        self.branches += 1
        self.factors.backfill(branch=f"fix{self.branches}", promote=True)

    def backfill_whole(self) -> None:
        self.branches += 1
        self.rated_handle.backfill(branch=f"whole{self.branches}", promote=True)

    def promote_branch(self) -> None:
        """A branch reads on, and becomes main."""
        self.branches += 1
        branch = f"fork{self.branches}"
        self.rated_handle.fork("main", branch)
        self.land("orders")
        self.rated_handle.run(branch=branch)
        self.rated_handle.promote(branch)

    def fill_range(self) -> None:
        self.branches += 1
        begin = BEGIN + timedelta(minutes=self.choice.randrange(0, 120, 10))
        self.rated_handle.backfill(branch=f"range{self.branches}", start=begin.isoformat() + "Z", promote=True)

    def roll_back(self) -> None:
        self.rated_handle.rollback(to=self._earlier_snapshot(self.rated_handle), message="back")

    def dimension_back(self) -> None:
        self.factors.rollback(to=self._earlier_snapshot(self.factors), message="back")

    def _earlier_snapshot(self, handle: Any) -> str:
        line = [link.snapshot_id for link in handle.catalog.lineage(handle.catalog.head().refs["main"])]
        return self.choice.choice([*line[1:4], line[0]])

    def expire_snapshots(self) -> None:
        self.rated_handle.expire(keep_last=self.choice.randrange(1, 4))

    def dimension_expired(self) -> None:
        self.factors.expire(keep_last=self.choice.randrange(1, 4))

    def replay_all(self) -> None:
        self.branches += 1
        branch = f"again{self.branches}"
        self.rated_handle.run(mode="replay", from_branch="main", branch=branch)
        for output in ORACLES:
            assert self._standing(output, branch) == self._standing(output, "main"), (output, self.steps_done)

    def check(self) -> None:
        """Once everything has been read, what stands is what is joined of what readers see of the dimension."""
        self.rated_handle.run()
        for output in ORACLES:
            assert self._standing(output, "main") == self._expected(output), (output, self.steps_done)
        check_catalog(self.rated_handle.catalog.store, "rated")

    def _standing(self, output: str, ref: str) -> Counter[tuple[Any, ...]]:
        table = self.rated_handle[output].current(columns=COLUMNS[output], at=ref).to_arrow()
        return Counter(tuple(row.values()) for row in zoneless_rows(table))

    def _expected(self, output: str) -> Counter[tuple[Any, ...]]:
        seen_rows = self.factors.current(columns=[*FACTOR, "event_time"]).to_arrow().rename_columns([*FACTOR, "moment"])
        seen_rows = seen_rows.set_column(3, "moment", seen_rows.column("moment").cast(pa.timestamp("us")))
        names = _OF_ORDERS.names
        orders = [dict(zip(names, (*row, n), strict=True)) for row, n in self.net.items() if n]
        with duckdb.connect() as connection:
            connection.register("factors", seen_rows)
            connection.register("orders", pa.Table.from_pylist(orders, _OF_ORDERS))
            found_rows = connection.execute(ORACLES[output]).fetchall()
        counts: Counter[tuple[Any, ...]] = Counter()
        for *row, n in found_rows:
            counts[tuple(row)] += n
        return counts

    def finish(self) -> None:
        """In the end both are read whole, and nothing of either is damaged."""
        self.both()
        self.check()
        for handle in (self.rated_handle, self.factors):
            assert handle.fsck(deep=True).damage == (), self.steps_done


@pytest.mark.slow
@given(st.integers(0, 2**32), st.lists(st.tuples(st.sampled_from(ACTIONS), st.booleans()), min_size=4, max_size=9))
@settings(examples(20, fewest=2), suppress_health_check=list(HealthCheck))
def test_rows_are_joined_with_what_readers_see_of_a_dimension(seed: int, actions: list[tuple[str, bool]]) -> None:
    with TemporaryDirectory() as folder:
        history = History(Path(folder), seed)
        for action, looks in (("both", True), *actions):
            note(action)
            history.act(action)
            if looks:
                history.check()
        history.finish()
