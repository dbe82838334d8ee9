"""A pipeline with three outputs over landed clicks, and what each must be."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headrace import (
    Aggregation,
    CalendarWindows,
    Expectation,
    FixedWindows,
    Output,
    Pipeline,
    Sessions,
    col,
    count,
    on_update,
    retracting,
)
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.files import DataFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import open_store
from tests.process.clicks import CLICKS

WHAT = {"clicks": count(), "spent": col("price").sum()}
HOURLY = Output(key="user", what=WHAT, where=FixedWindows("1h"), when=on_update(), how=retracting("1d"))
VISITS = Output(key="user", what=WHAT, where=Sessions("30m"), when=on_update(), how=retracting("1d"))
DAILY = Output(
    what={"spent": col("price").sum()},
    where=FixedWindows("1h"),
    filter=col("price") > 3,
    then=[Aggregation(what={"most": col("spent").max()}, where=CalendarWindows("day"))],
)
SHOP = Pipeline("shop", CLICKS.input, outputs={"hourly": HOURLY, "visits": VISITS, "daily": DAILY}, executor="local")


def expecting(output: str, *expectations: Expectation) -> Pipeline:
    """The pipeline, of whose ``output`` something is expected."""
    return replace(SHOP, outputs={**SHOP.outputs, output: replace(SHOP.outputs[output], expectations=expectations)})


def catalog_of(root: Path, name: str = SHOP.name) -> Catalog:
    """The catalog of a pipeline under ``root``."""
    return Catalog(open_store(root.as_uri()), name)


def line(catalog: Catalog, ref: str = "main") -> Sequence[Manifest]:
    """All snapshots up to ``ref``, oldest first."""
    return [*catalog.ancestry(catalog.head().refs[ref])][::-1]


def digests(catalog: Catalog, log: str) -> list[list[str]]:
    """The digests of the files in ``log`` of each epoch of main."""
    records = {record.epoch: record for record in catalog.file_records(line(catalog)[-1].logs[log])}
    files = [records[manifest.epoch].files if manifest.epoch in records else () for manifest in line(catalog)]
    return [[file.sha256 for file in some if isinstance(file, DataFile)] for some in files]
