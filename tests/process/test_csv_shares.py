"""A run over CSV files that tasks share counts what Python's ``csv`` reads, whatever is in quotes."""

import csv
import gzip
import io
import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Pipeline, col
from headrace_lab.sizes import set_sizes
from tests.process.executors import ExecutorUnderTest, on_both
from tests.reading import read

PIECES = ['"', "\n", "\r\n", ",", ";", "9,99999,paid", "x", "\u00e9", '""', "id,amount,note\n"]
DIALECTS: list[dict[str, Any]] = [{}, {"delimiter": ";", "encoding": "cp1252", "skip_lines": 1, "decimal": ","}]


def pipeline(options: dict[str, Any]) -> Pipeline:
    source = hr.csv("landing", {"id": str, "amount": float, "note": str}, **options)
    return Pipeline(
        "shares",
        source.arrival_time(),
        key="id",
        what={"amount": col("amount").sum(), "letters": col("note").length().sum()},
        where=hr.GlobalWindows(),
        when=hr.on_update(),
        how=hr.accumulating(),
    )


@on_both
@pytest.mark.parametrize("options", DIALECTS, ids=str)
@set_sizes(least_of_a_file=500)
def test_tasks_share_files_with_line_breaks_in_quotes(
    executor: ExecutorUnderTest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.setenv("HEADRACE_TASKS", "3")
    dice, folder = random.Random(1), tmp_path / "landing"
    folder.mkdir()
    amounts, letters = defaultdict[str, float](float), Counter[str]()
    for number in range(3):
        text = io.StringIO()
        text.write('no "record\n' * options.get("skip_lines", 0))
        writer = csv.writer(text, delimiter=options.get("delimiter", ","))
        writer.writerow(["id", "amount", "note"])
        for row in range(300):
            note = "".join(dice.choices(PIECES, k=dice.randrange(6)))
            key, amount = f"k{dice.randrange(20)}", row / 2
            writer.writerow([key, str(amount).replace(".", options.get("decimal", ".")), note])
            amounts[key] += amount
            letters[key] += len(note)
        data = text.getvalue().encode(options.get("encoding", "utf-8"))
        (folder / f"{number}.csv").write_bytes(gzip.compress(data) if number == 2 else data)
    tested_pipeline, root = pipeline(options), tmp_path.as_uri()
    assert executor.run(tested_pipeline, root).counts["accepted"] == 900
    rows = read(tested_pipeline, root, "current", "main").to_pylist()
    counted_rows = {row["id"]: (row["amount"], row["letters"] or 0) for row in rows}
    assert counted_rows == {key: (amount, letters[key]) for key, amount in amounts.items()}
