"""A root with trades and rates that land, for pipelines that join them."""

import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import headrace as hr
from headrace import col
from headrace.read.views.arrow_types import zoneless_rows
from headrace.runs.client.handle import PipelineHandle

TRADE = {"id": str, "ccy": str, "amount": int, "at": datetime}
RATE = {"ccy": str, "rate": int, "seq": int, "gone": bool, "at": datetime}
TRADES = hr.json("landing/trades", TRADE).event_time("at", bound="0s")
RATES = hr.json("landing/rates", RATE).event_time("at", bound="0s").named("rates")
SIGNED_RATES = (
    hr.json("landing/rates", {**RATE, "sign": int}, changelog=col("sign")).event_time("at", bound="0s").named("rates")
)


def time_at(minute: int) -> str:
    """A minute after midnight of 1 May 2026."""
    return f"2026-05-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00Z"


def trade(id: str, minute: int, ccy: str | None = "usd", amount: int = 10, **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"id": id, "ccy": ccy, "amount": amount, "at": time_at(minute), **more}


def rate(minute: int, value: int, ccy: str | None = "usd", **more: Any) -> dict[str, Any]:
    return {"ccy": ccy, "rate": value, "at": time_at(minute), **more}


def as_of(**options: Any) -> hr.types.Join:
    """The rate that held."""
    return hr.as_of(options.pop("right", RATES), "ccy", **{"columns": ["rate"], "lateness": "1h", **options})


def rated_pipeline(*joins: hr.types.Join, **options: Any) -> hr.Pipeline:
    """A row of each trade, with its rate."""
    names = {name: col(name) for name in ("id", *(name for join in joins for name in join.columns))}
    parts = {"name": "rated", "input": TRADES, "rows": names, "executor": "local"}
    return hr.Pipeline(join=joins, **{**parts, **options})


@dataclass(frozen=True)
class Trades:
    """A root in ``folder``."""

    folder: Path

    @property
    def root(self) -> str:
        return self.folder.as_uri()

    def land(self, kind: str, *records: dict[str, Any]) -> None:
        """Land ``records`` as a further file."""
        landing = self.folder / "landing" / kind
        landing.mkdir(parents=True, exist_ok=True)
        name = f"{len([*landing.iterdir()]):04}.json"
        (landing / name).write_text("".join(json.dumps(record) + "\n" for record in records))

    def handle(self, pipeline: hr.Pipeline) -> PipelineHandle:
        return hr.open(self.root, create=True)[pipeline]

    def run(self, pipeline: hr.Pipeline, **inputs: list[dict[str, Any]]) -> Any:
        """Land what is given by kind, and run."""
        for kind in {join.name for join in pipeline.joins_of_inputs} | {"trades"}:
            (self.folder / "landing" / kind).mkdir(parents=True, exist_ok=True)
        for kind, records in inputs.items():
            self.land(kind, *records)
        return self.handle(pipeline).run()

    def current(self, pipeline: hr.Pipeline, output: str = "") -> Counter[tuple[Any, ...]]:
        """The values of the rows that stand, and how often."""
        handle = self.handle(pipeline)
        reader = handle[output] if output else handle
        own_pipeline = pipeline.by_output[output]
        table = reader.current(columns=[*own_pipeline.key_types, *own_pipeline.value_types]).to_arrow()
        return Counter(tuple(row.values()) for row in zoneless_rows(table))

    def view(self, pipeline: hr.Pipeline, name: str) -> list[dict[str, Any]]:
        return getattr(self.handle(pipeline), name)().to_arrow().to_pylist()  # type: ignore[no-any-return]
