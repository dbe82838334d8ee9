"""The pipeline of ``tests/golden/format-6-rows``: rows with and without state, of orders that can be withdrawn.
``python -m tests.process.golden_stalls FOLDER`` writes such a root.
"""

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import headrace as hr
from headrace import col

_COLUMNS = {"id": int, "stall": str, "price": int, "at": datetime, "gone": bool, "sign": int}

STALLS: Final = hr.Pipeline(
    "stalls",
    hr.json("landing/orders", _COLUMNS, changelog=col("sign")).event_time("at", bound="10m"),
    outputs={
        "lines": hr.Rows({"id": col("id"), "stall": col("stall").upper(), "double": col("price") * 2}, id="id"),
        "newest": hr.Rows(["stall", "price"], key="id", take=hr.newest(deleted=col("gone")), id="id"),
        "dearest": hr.Rows(
            ["id", "price"],
            key="stall",
            take=hr.top(2, by="price"),
            where=hr.FixedWindows("1h"),
            when=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
            how=hr.retracting(allowed_lateness="1d"),
        ),
        "prices": hr.Rows(["price"], of="newest", key="stall", take=hr.distinct()),
    },
    executor="local",
)


def order(
    number: int, stall: str, price: int | None, time: str, *, sign: int = 1, is_gone: bool = False
) -> dict[str, Any]:
    """An order of 1 January 2026; without a price it is NULL."""
    time = f"2026-01-01T{time}:00Z"
    return {"id": number, "stall": stall, "price": price, "at": time, "gone": is_gone, "sign": sign}


def land(root: Path, name: str, *orders: dict[str, Any]) -> None:
    """A landing file of ``orders``."""
    folder = root / "landing" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(f"{json.dumps(one)}\n" for one in orders))


def write(root: Path) -> None:
    """Three epochs: orders, two of which are equal; withdrawals, a late order and a dead letter; a deletion, and a
    withdrawal that comes before its order.
    """
    stalls = hr.open(root.as_uri(), create=True)[STALLS]
    land(
        root,
        "a.jsonl",
        *(order(1, "fish", 5, "09:05"), order(2, "fish", 7, "09:10"), order(3, "fish", 6, "09:20")),
        *(order(4, "fruit", None, "09:30"), order(5, "fruit", 1, "09:40"), order(6, "fruit", 1, "09:40")),
    )
    stalls.run()
    land(
        root,
        "b.jsonl",
        *(order(2, "fish", 7, "09:10", sign=-1), order(7, "fish", 9, "11:00"), order(8, "fruit", 4, "09:50")),
        *(order(5, "fruit", 1, "09:40", sign=-1), order(5, "bread", 2, "11:30"), order(9, "fish", 2**62, "11:30")),
    )
    stalls.run()
    land(
        root,
        "c.jsonl",
        *(order(3, "fish", 6, "11:40", is_gone=True, sign=-1), order(1, "fish", 5, "09:05", sign=-1)),
        *(order(6, "fruit", 3, "11:45"), order(6, "fruit", 1, "09:40", sign=-1)),
        *(order(4, "fruit", None, "11:50", is_gone=True), order(4, "fruit", None, "09:30", sign=-1)),
    )
    stalls.run()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
