"""Random histories of a pipeline whose outputs are rows, with and without state, joined or not, of records that can be
withdrawn: runs, forks, backfills, promotions, patches, rollbacks, recoveries, expiries, renamings, replays, and a
reader. What stands in a snapshot is what DuckDB gives of all records that it has read.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import headrace as hr
from headrace import col
from headrace.errors import HeadraceError
from headrace.read.snapshots.epoch_history import recorded_epochs
from headrace.read.snapshots.progress import complete_until
from headrace_lab.catalog_checks import check_catalog
from headrace_snapshots.format.output_view import output_names, seen_by
from headrace_snapshots.fsck import fsck
from headrace_snapshots.names import published_of

BEGIN = datetime(2026, 5, 1)
SCHEMA = {"id": int, "shop": str, "price": int, "version": int, "gone": bool, "at": datetime}
NAMES = {"lines": ("lines",), "newest": ("newest", "latest"), "best": ("best", "top", "dearest"), "kinds": ("kinds",)}
NAMES |= {"totals": ("totals",), "last": ("last",), "rated": ("rated",), "settled": ("settled",)}
"""The outputs, and what each may be called."""

_FACTORS = (
    hr.json("landing/factors", {"shop": str, "factor": int, "seq": int, "at": datetime}, max_files=1)
    .event_time("at", bound="30d")
    .named("factors")
)
EVERY_UPDATE: dict[str, Any] = {"when": hr.on_update(), "how": hr.retracting(None)}
ACTIONS = (
    "land_orders",
    "land_orders",
    "land_orders",
    "several",
    "several",
    "run_unpublished",
    "fork_main",
    "went_on",
    "fill_branch",
    "promote_branch",
)
ACTIONS = (
    *ACTIONS,
    "filled_and_promoted",
    "patch_output",
    "drop_branch",
    "roll_back",
    "recover_snapshot",
    "expire_snapshots",
    "expire_snapshots",
    "replay_branch",
)
ACTIONS = (*ACTIONS, "rename_outputs", "column_renamed", "read")
REFUSABLE = (
    "promote_branch",
    "patch_output",
    "roll_back",
    "recover_snapshot",
    "drop_branch",
    "fill_branch",
    "filled_and_promoted",
    "replay_branch",
)
"""What may be refused, where there is no branch, or nothing that fits; nothing has changed then."""

_NET = "select {columns}, moment, sum(sign) as n from records where {only} group by all"
_BY_PRICE = "price desc nulls last, moment desc, id desc"
ORACLES: Mapping[str, str] = {
    "lines": f"""
        select id, shop, price, moment, n
        from ({_NET.format(columns="id, shop, price", only="price is not null")})""",
    "newest": f"""
        with net as ({_NET.format(columns="id, shop, price, version, gone", only="true")}),
        there as (select id from net group by id having sum(n) <> 0)
        select id, shop, price, moment, 1 from (
            select * from net where n > 0 and id in (from there) qualify row_number() over (
                partition by id order by version desc nulls last, moment desc, gone desc nulls last, shop desc,
                price desc nulls last) = 1
        ) where gone is not true""",
    "best": f"""
        with net as ({_NET.format(columns="shop, id, price", only="true")}),
        hours as (select *, date_trunc('hour', moment) as hour from net),
        there as (select shop, hour from hours group by all having sum(n) <> 0),
        ranked as (
            select *, sum(n) over (partition by shop, hour order by {_BY_PRICE} rows unbounded preceding) - n as before
            from hours semi join there using (shop, hour) where n > 0
        )
        select shop, id, price, moment, least(n, 2 - before) from ranked where before < 2""",
    "rated": f"""
        with net as ({_NET.format(columns="id, shop, price, version, gone", only="true")} having sum(sign) > 0),
        held as (select * from factors qualify row_number() over (partition by shop, moment order by seq desc) = 1)
        select net.id, net.shop, net.price, held.factor, net.moment, sum(net.n)
        from net asof left join held on net.shop = held.shop and net.moment >= held.moment group by all""",
    "kinds": f"""
        with net as ({_NET.format(columns="shop, price", only="true")}),
        there as (select shop from net group by shop having sum(n) <> 0)
        select shop, price, min(moment), 1 from net where n > 0 and shop in (from there) group by all""",
    "totals": """
        with days as (
            select shop, sum(price * sign) as total, sum(sign) as n from records where price is not null
            group by shop, date_trunc('day', moment) having sum(sign) <> 0
        )
        select shop, total, n, count(*) from days group by all""",
    "settled": f"""
        select id, shop, price, moment, n
        from ({_NET.format(columns="id, shop, price", only="true")}) where epoch_us(moment) < {{watermark}}""",
    "reader": """
        select sum(price * sign), sum(sign), 1 from records where price is not null having sum(sign) <> 0""",
    "last": f"""
        with net as ({_NET.format(columns="shop, id, price", only="price is not null")}),
        there as (select shop from net group by shop having sum(n) <> 0)
        select shop, id, price, moment, 1 from net where n > 0 and shop in (from there)
        qualify row_number() over (partition by shop order by {_BY_PRICE}) = 1""",
}
"""What stands of each output, and how often; ``records`` are those that were read, with their signs, ``factors`` those
that are joined to them.
"""

Rows = Counter[tuple[Any, ...]]


class History:
    """One root, with a pipeline and its reader."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.choice, self.steps_done = folder, random.Random(seed), list[str]()
        for kind in ("orders", "factors"):
            (folder / "landing" / kind).mkdir(parents=True)
        self.root = hr.open(folder.as_uri(), create=True)
        self.names_now = {output: names[0] for output, names in NAMES.items()}
        self.amount = "price"  # what the newest rows call it
        self.standing_orders: list[dict[str, Any]] = []
        self.owed: list[dict[str, Any]] = []
        self.files: dict[str, tuple[str, ...]] = {}
        self.checked_pairs: set[tuple[str, str]] = set()
        self.branches, self.landings, self.factors = 0, 0, 0

    # What there is

    def pipeline(self, ref: str = "main") -> hr.Pipeline:
        """Its outputs say what they are called in the snapshot ``ref``, where that is another name."""
        names, amount = self._names_at(ref)
        formerly = {
            output: {"formerly": name} for output, name in names.items() if name not in {None, self.names_now[output]}
        }
        renamed_columns = {amount: self.amount} if amount not in {None, self.amount} else None
        source = hr.json("landing/orders", {**SCHEMA, "sign": int}, changelog=col("sign"), max_files=1)
        newest = {"shop": col("shop"), self.amount: col("price")}
        own: dict[str, Any] = {
            "lines": hr.Rows(["id", "shop", "price"], filter=col("price").is_not_null()),
            "newest": hr.Rows(
                newest,
                key="id",
                take=hr.newest("version", deleted=col("gone")),
                renamed=renamed_columns,
                **EVERY_UPDATE,
                **formerly.get("newest", {}),
            ),
            "best": hr.Rows(
                ["id", "price"],
                key="shop",
                take=hr.top(2, by="price"),
                where=hr.FixedWindows("1h"),
                **EVERY_UPDATE,
                **formerly.get("best", {}),
            ),
            "kinds": hr.Rows(["price"], key="shop", take=hr.distinct()),
            "totals": hr.Output(
                of="lines",
                key="shop",
                what={"total": col("price").sum(), "n": hr.count()},
                where=hr.FixedWindows("1d"),
                **EVERY_UPDATE,
            ),
            "last": hr.Rows(["id", "price"], of="lines", key="shop", take=hr.newest("price")),
            "rated": hr.Rows(
                ["id", "shop", "price", "factor"],
                join=[hr.as_of(_FACTORS, "shop", columns=["factor"], order="seq", outer=True, lateness="99d")],
            ),
            "settled": hr.Rows(["id", "shop", "price"], when=hr.on_window_close(), how=hr.retracting(None)),
        }
        outputs = {self.names_now[output]: definition for output, definition in own.items()}
        return hr.Pipeline("shop", source.event_time("at", bound="30d"), outputs=outputs, executor="local")

    def _names_at(self, ref: str) -> tuple[dict[str, str], str | None]:
        """What outputs are called at a branch or in a snapshot, and what the newest rows call a price there."""
        if "shop" not in self.root:
            return {}, None
        catalog = self.root["shop"].catalog
        snapshot = catalog.head().refs.get(ref, ref)
        if snapshot in {"main", "beginning"}:
            return {}, None
        other_names = output_names(catalog.manifest(snapshot))
        names = {
            output: next(name for name in known_name if name in other_names) for output, known_name in NAMES.items()
        }
        columns = self.root["shop"][names["newest"]].current(at=snapshot).to_arrow().column_names
        return names, next(name for name in ("price", "amount") if name in columns)

    @property
    def handle(self) -> Any:
        return self.root[self.pipeline()]

    def reader(self) -> hr.Pipeline:
        """It sums what readers see of lines."""
        return hr.Pipeline(
            "reader",
            hr.published("shop.lines", {"id": int, "price": int}),
            key=None,
            what={"total": col("price").sum(), "n": hr.count()},
            where=hr.GlobalWindows(),
            executor="local",
            **EVERY_UPDATE,
        )

    # What is done

    def act(self, action: str) -> None:
        """Do it. What is refused changes nothing."""
        refs_before = None if "shop" not in self.root else dict(self.root["shop"].catalog.head().refs)
        self.steps_done.append(action)
        try:
            getattr(self, action)()
        except HeadraceError as error:
            if action not in REFUSABLE:
                raise
            self.steps_done[-1] += f": {error.code}"
            if action not in (
                "fill_branch",
                "filled_and_promoted",
                "recover_snapshot",
            ):  # which have a part that may stay
                assert dict(self.root["shop"].catalog.head().refs) == refs_before, self.steps_done

    def land(self) -> None:
        """A file of orders and withdrawals of orders, of which some come before their orders."""
        choice = self.choice
        lines: list[dict[str, Any]] = []
        for _ in range(choice.randrange(1, 5)):
            if self.standing_orders and choice.random() < 0.3:
                lines.append({**self.standing_orders.pop(choice.randrange(len(self.standing_orders))), "sign": -1})
            elif self.owed and choice.random() < 0.5:
                lines.append({**self.owed.pop(), "sign": 1})
            else:
                order = self._order()
                is_early = choice.random() < 0.1
                (self.owed if is_early else self.standing_orders).append(order)
                lines.append({**order, "sign": -1 if is_early else 1})
        self.landings += 1
        path = self.folder / f"landing/orders/{self.landings:04}.json"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        if choice.random() < 0.5:
            path = self.folder / f"landing/factors/{self.landings:04}.json"
            path.write_text("".join(f"{json.dumps(self._factor())}\n" for _ in range(choice.randrange(1, 3))))

    def _factor(self) -> dict[str, Any]:
        self.factors += 1
        moment = BEGIN + timedelta(minutes=self.choice.randrange(0, 180, 10))
        return {
            "shop": self.choice.choice("ab"),
            "factor": self.choice.choice([None, 1, 2, 3]),
            "seq": self.factors,
            "at": moment.isoformat() + "Z",
        }

    def _order(self) -> dict[str, Any]:
        choice = self.choice
        if self.standing_orders and choice.random() < 0.15:
            return {**choice.choice(self.standing_orders)}
        return {
            "id": choice.randrange(4),
            "shop": choice.choice("ab"),
            "price": choice.choice([None, 0, 1, 1, 2]),
            "version": choice.choice([None, 1, 2, 3]),
            "gone": choice.choice([None, False, False, True]),
            "at": (BEGIN + timedelta(choice.choice((0, 0, 0, 0, 30)), minutes=choice.randrange(0, 180, 10))).isoformat()
            + "Z",
        }

    def land_orders(self) -> None:
        self.land()
        self.handle.run()

    def several(self) -> None:
        for _ in range(3):
            self.land()
        self.handle.run(files_per_epoch=self.choice.choice([1, 2]))

    def run_unpublished(self) -> None:
        self.land()
        self.handle.run(publish=False)

    def _branch(self) -> str:
        known_branches = sorted(_branches(self.handle.catalog.head().refs) - {"main"})
        return self.choice.choice([*known_branches, "nobody"])

    def _new_branch(self) -> str:
        self.branches += 1
        return f"b{self.branches}"

    def fork_main(self) -> None:
        self.handle.fork("main", self._new_branch())

    def went_on(self) -> None:
        """A branch reads what has landed, or what is new."""
        if (branch := self._branch()) in self.handle.catalog.head().refs:
            self.land()
            self.root[self.pipeline(branch)].run(branch=branch)

    def fill_branch(self) -> None:
        self.handle.backfill(branch=self._new_branch())

    def filled_and_promoted(self) -> None:
        self.handle.backfill(branch=self._new_branch(), promote=True)

    def promote_branch(self) -> None:
        self.handle.promote(self._branch())

    def patch_output(self) -> None:
        self.handle.promote(self._branch(), patch=True, output=self.names_now[self.choice.choice([*NAMES])])

    def drop_branch(self) -> None:
        self.handle.drop(self._branch())

    def roll_back(self) -> None:
        self.handle.rollback(to=self._earlier_snapshot(), message="back")

    def recover_snapshot(self) -> None:
        target = self._earlier_snapshot()
        self.root[self.pipeline(target)].recover(target)

    def _earlier_snapshot(self) -> str:
        catalog = self.handle.catalog
        line = [link.snapshot_id for link in catalog.lineage(catalog.head().refs["main"])]
        return self.choice.choice([*line[1:4], line[0]])

    def expire_snapshots(self) -> None:
        self.handle.expire(keep_last=self.choice.randrange(1, 4))
        self.checked_pairs.clear()

    def replay_branch(self) -> None:
        branch = self._new_branch()
        self.handle.run(mode="replay", from_branch="main", branch=branch)
        refs = self.handle.catalog.head().refs
        for output in NAMES:
            assert self.standing(output, refs[branch]) == self.standing(output, refs["main"]), (output, self.steps_done)

    def rename_outputs(self) -> None:
        output = self.choice.choice(("newest", "best"))
        self.names_now[output] = self.choice.choice(NAMES[output])
        self.land_orders()

    def column_renamed(self) -> None:
        self.amount = self.choice.choice(("price", "amount"))
        self.land_orders()

    def read(self) -> None:
        """The reader reads on, and has summed what readers see, and what was withdrawn of what is yet to come."""
        seen_snapshot = published_of(self.handle.catalog.head().refs).get("lines")
        if seen_snapshot is None:
            return
        self.root[self.reader()].run()
        read = self.root["reader"].current(columns=["total", "n"]).to_arrow().to_pylist()
        assert Counter(tuple(row.values()) for row in read) == self.expected("reader", seen_snapshot), self.steps_done

    # What holds

    def check(self) -> None:
        """What stands wherever a name points is what was read there."""
        catalog = self.root["shop"].catalog
        refs = catalog.head().refs
        seen_refs = published_of(refs)
        pairs = {(output, refs[branch]) for branch in _branches(refs) for output in NAMES}
        pairs |= {(output, ref) for name, ref in seen_refs.items() for output, names in NAMES.items() if name in names}
        for output, snapshot in sorted(pairs - self.checked_pairs):
            assert self.standing(output, snapshot) == self.expected(output, snapshot), (
                output,
                snapshot,
                self.steps_done,
            )
        self.checked_pairs |= pairs
        check_catalog(catalog.store, "shop")

    def standing(self, output: str, ref: str) -> Rows:
        """What readers see of an output in a snapshot."""
        names, amount = self._names_at(ref)
        ends = ["total", "n"] if output == "totals" else ["event_time"]
        middle = {"lines": ["id", "shop", "price"], "newest": ["id", "shop", amount], "kinds": ["shop", "price"]}
        middle |= {
            "rated": ["id", "shop", "price", "factor"],
            "totals": ["shop"],
            "best": ["shop", "id", "price"],
            "last": ["shop", "id", "price"],
            "settled": ["id", "shop", "price"],
        }
        columns = [*middle[output], *ends]
        rows = self.root["shop"][names[output]].current(columns=columns, at=ref).to_arrow()
        return Counter(tuple(row[name] for name in columns) for row in _zoneless(rows).to_pylist())

    def expected(self, output: str, ref: str) -> Rows:
        """What DuckDB gives of all records that a snapshot has read."""
        with duckdb.connect() as connection:
            for name, kind, schema in (("records", "orders", _RECORDS), ("factors", "factors", _OF_FACTORS)):
                texts = [(self.folder / path).read_text() for path in self._files_of(ref) if f"landing/{kind}/" in path]
                lines = [json.loads(line) for text in texts for line in text.splitlines()]
                read = [{**line, "moment": datetime.fromisoformat(line["at"].removesuffix("Z"))} for line in lines]
                connection.register(name, pa.Table.from_pylist(read, schema))
            found_rows = connection.execute(ORACLES[output].format(watermark=self._watermark(ref))).fetchall()
        return Counter({tuple(row): int(n) for *row, n in found_rows if n > 0})

    def _watermark(self, ref: str) -> int:
        """What rows that wait have waited for, in a snapshot."""
        return complete_until(seen_by(self.root["shop"].catalog.manifest(ref), "settled"))

    def _files_of(self, ref: str) -> tuple[str, ...]:
        """What a snapshot and those below it have read; of the latter it may have been noted before they expired."""
        if ref not in self.files:
            catalog = self.root["shop"].catalog
            parent = catalog.manifest(ref).parent
            files_below = () if parent is None else self._files_of(parent)
            (epoch,) = recorded_epochs(catalog, ref, parent)
            self.files[ref] = (*files_below, *(file.path for files in epoch.files.values() for file in files))
        return self.files[ref]

    def finish(self) -> None:
        """In the end readers see everything that was landed."""
        self.land_orders()
        self.handle.run()
        catalog = self.root["shop"].catalog
        refs = catalog.head().refs
        assert {*published_of(refs).values()} == {refs["main"]}
        self.checked_pairs.clear()
        self.check()
        self.read()
        for name in ("shop", "reader"):
            assert fsck(self.root[name].catalog, deep=True).damage == (), self.steps_done


def _branches(refs: Mapping[str, str]) -> set[str]:
    return {name for name in refs if name == "main" or name[0] == "b"}


_RECORDS = pa.schema(
    [
        *(("id", pa.int64()), ("shop", pa.string()), ("price", pa.int64()), ("version", pa.int64())),
        *(("gone", pa.bool_()), ("moment", pa.timestamp("us")), ("sign", pa.int64())),
    ]
)


_OF_FACTORS = pa.schema(
    [
        *(("shop", pa.string()), ("factor", pa.int64()), ("seq", pa.int64()), ("moment", pa.timestamp("us"))),
    ]
)


def _zoneless(rows: pa.Table) -> pa.Table:
    for place, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type):
            rows = rows.set_column(place, column.name, rows.column(place).cast(pa.timestamp("us")))
    return rows
