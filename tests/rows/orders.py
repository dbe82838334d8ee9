"""A root with orders that land, for pipelines that give rows of them."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.read.views.arrow_types import zoneless_rows
from headrace.runs.client.handle import PipelineHandle

SCHEMA = {"id": str, "shop": str, "price": int, "at": datetime}
ORDERS = hr.json("landing/orders", SCHEMA).event_time("at", bound="1h")
CHANGES = hr.json("landing/orders", {**SCHEMA, "sign": int}, changelog=hr.col("sign")).event_time("at", bound="1h")
COLUMNS = {"id": hr.col("id"), "shop": hr.col("shop").upper(), "double": hr.col("price") * 2}


def order(id: str, price: int | None = 1, minute: int = 0, **more: Any) -> dict[str, Any]:  # noqa: A002
    """An order of 1 May 2026, so many minutes after midnight."""
    moment = f"2026-05-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00Z"
    return {"id": id, "shop": "one", "price": price, "at": moment, **more}


def rows(**parts: Any) -> hr.Pipeline:
    """One row of each order."""
    definition = hr.Pipeline("orders", ORDERS, rows=COLUMNS, executor="local")
    return replace(definition, **parts) if parts else definition


def signed_rows(**parts: Any) -> hr.Pipeline:
    """The same of orders that can be withdrawn."""
    return rows(input=CHANGES, **parts)


@dataclass(frozen=True)
class Orders:
    """A root in ``folder``."""

    folder: Path

    @property
    def root(self) -> str:
        return self.folder.as_uri()

    def land(self, name: str, *records: dict[str, Any]) -> None:
        landing = self.folder / "landing/orders"
        landing.mkdir(parents=True, exist_ok=True)
        (landing / f"{name}.json").write_text("".join(json.dumps(record) + "\n" for record in records))

    def handle(self, pipeline: hr.Pipeline) -> PipelineHandle:
        return hr.open(self.root, create=True)[pipeline]

    def run(self, pipeline: hr.Pipeline, *records: dict[str, Any], **options: Any) -> Any:
        """Land ``records`` as a further file, and run."""
        if records:
            landing_folder = self.folder / "landing/orders"
            number = len([*landing_folder.iterdir()]) if landing_folder.exists() else 0
            self.land(f"{number:04}", *records)
        return self.handle(pipeline).run(**options)

    def backfill_corrected(self, pipeline: hr.Pipeline, files: dict[str, list[dict[str, Any]]], **options: Any) -> Any:
        """A backfill, into the branch ``fix``, that reads other content of some files; then they have what they had."""
        landing = self.folder / "landing/orders"
        content_before = {name: (landing / f"{name}.json").read_bytes() for name in files}
        for name, records in files.items():
            self.land(name, *records)
        try:
            return self.handle(pipeline).backfill(**{"branch": "fix", **options})
        finally:
            for name, content in content_before.items():
                (landing / f"{name}.json").write_bytes(content)

    def current(self, pipeline: hr.Pipeline, output: str = "", **options: Any) -> Counter[tuple[Any, ...]]:
        """What stands: columns and event time of each row, and how often."""
        handle = self.handle(pipeline)
        reader = handle[output] if output else handle
        names = [*pipeline.by_output[output].value_types, "event_time"]
        table = reader.current(columns=names, **options).to_arrow()
        return Counter(tuple(row.values()) for row in zoneless_rows(table))


def minute(number: int) -> datetime:
    """The event time of an order of that minute."""
    return datetime(2026, 5, 1 + number // 1440, number // 60 % 24, number % 60)
