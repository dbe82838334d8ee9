"""Dead letters land again where the pipeline reads, or beside it: once it can read them, each counts once."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import DataType, Pipeline, col, count
from headrace.pipeline.sources import FileFormat
from headrace.runs.modes import Mode
from headrace.runs.options import RunOptions
from headrace.runs.rejected import land_rejected
from tests.building import changed
from tests.process.clicks import CLICKS, START
from tests.process.executors import Executed
from tests.reading import read

CLICKS_ALONE = replace(CLICKS, what={"clicks": count()})
"""It reads prices, which no result needs."""
GOOD = [("ann", 0, "1"), ("bob", 5, "2"), ("bob", 200, "3")]
BAD = [("ann", 7, "4 EUR"), ("cid", 8, "five")]

LINES = {
    FileFormat.JSON: lambda user, at, price: f'{{"user": "{user}", "at": "{at}", "price": {price}}}\n',
    FileFormat.CSV: lambda user, at, price: f"{price},{user},{at}\n",
}
HEADS = {FileFormat.JSON: "", FileFormat.CSV: "price,user,at\n"}
QUOTED = {FileFormat.JSON: '"', FileFormat.CSV: ""}


def land(root: Path, kind: FileFormat) -> None:
    folder = root / "landing" / "clicks"
    folder.mkdir(parents=True)
    quote = QUOTED[kind]
    for number, some in enumerate(([GOOD[0], BAD[0], GOOD[1]], [BAD[1], GOOD[2]])):
        lines = [(user, minute, price if price.isdigit() else quote + price + quote) for user, minute, price in some]
        text = "".join(LINES[kind](u, (START + timedelta(minutes=m)).isoformat(), p) for u, m, p in lines)
        (folder / f"{number}.txt").write_text(HEADS[kind] + text)


def counted(pipeline: Pipeline, root: str) -> dict[tuple[str, int], int]:
    rows = read(pipeline, root, "current", "main").to_pylist()
    return {(row["user"], row["window_start"].hour): row["clicks"] for row in rows}


TRUTH = {("ann", 0): 2, ("bob", 0): 1, ("bob", 3): 1, ("cid", 0): 1}


@pytest.mark.parametrize("kind", list(LINES))
def test_a_schema_that_is_mended_reads_what_was_rejected(executor: Executed, tmp_path: Path, kind: FileFormat) -> None:
    """The column of the prices was declared as one of numbers, and no result needs it."""
    root = tmp_path.as_uri()
    broken = changed(CLICKS_ALONE, source=replace(CLICKS.source, format=kind))
    schema = {name: found for name, found in CLICKS.source.schema.items() if name != "price"}
    mended = changed(broken, source=replace(broken.source, schema=schema))
    land(tmp_path, kind)
    assert executor.process(broken, root, RunOptions("first", publish=True)).rows["rejected"] == 2

    found = land_rejected(mended, root, to=CLICKS.source.path)
    assert (found.records, found.left) == (2, {})
    assert executor.process(mended, root, RunOptions("second", publish=True)).rows["accepted"] == 2
    assert counted(mended, root) == TRUTH
    assert land_rejected(mended, root, to=CLICKS.source.path).records == 0
    assert not executor.process(mended, root, RunOptions("third", publish=True)).epochs
    assert counted(mended, root) == TRUTH


def test_another_definition_reads_them_under_a_root_of_their_own(executor: Executed, tmp_path: Path) -> None:
    """Prices are text now, and a result needs them: the rest would have to be computed anew."""
    root = tmp_path.as_uri()
    land(tmp_path, FileFormat.JSON)
    executor.process(CLICKS, root, RunOptions("first", publish=True))
    text = replace(CLICKS.source, schema={**CLICKS.source.schema, "price": DataType.STRING})
    mended = changed(CLICKS, source=text, what={"clicks": count(), "longest": col("price").max()})
    assert land_rejected(mended, root).records == 2
    assert land_rejected(mended, root).records == 0
    beside = executor.process(mended, f"{root}/rejected", RunOptions("beside", mode=Mode.BATCH))
    assert (beside.rows["accepted"], beside.rows["rejected"]) == (2, 0)
    part, rest = counted(mended, f"{root}/rejected"), counted(CLICKS, root)
    assert {key: part.get(key, 0) + rest.get(key, 0) for key in {**part, **rest}} == TRUTH


def test_where_names_have_gone_on_a_full_sweep_finds_them(executor: Executed, tmp_path: Path) -> None:
    root = tmp_path.as_uri()
    schema = {name: found for name, found in CLICKS.source.schema.items() if name != "price"}
    broken = changed(CLICKS_ALONE, source=replace(CLICKS.source, look_back=0))
    mended = changed(broken, source=replace(broken.source, schema=schema))
    land(tmp_path, FileFormat.JSON)
    for file in (tmp_path / "landing" / "clicks").iterdir():
        file.rename(file.with_name(f"visits-{file.name}"))
    executor.process(broken, root, RunOptions("first", publish=True))
    found = land_rejected(mended, root, to=CLICKS.source.path)
    assert (found.records, found.needs_sweep) == (2, True)
    assert not executor.process(mended, root, RunOptions("second")).epochs
    executor.process(mended, root, RunOptions("third", full_sweep=True))
    assert counted(mended, root) == TRUTH
