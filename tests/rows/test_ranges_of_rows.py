"""A range of rows that is computed again gives what a backfill of everything gives."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from tests.rows.orders import CHANGES, ORDERS, Orders, order, rows, signed_rows

WHOLE: dict[str, Any] = {"when": hr.on_update(), "how": hr.retracting(None)}
TOP = hr.Rows(["id", "price"], key="shop", take=hr.top(2, by="price"), where=hr.FixedWindows("2h"), **WHOLE)
OUTPUTS: dict[str, Any] = {
    "dear": hr.Rows(["id", "shop", "price"], filter=col("price") > 1),
    "top": TOP,
    "again": hr.Rows(["id", "event_time"], of="dear"),
    "named": hr.Rows(["id"], of="dear", key="shop", take=hr.distinct(), where=hr.FixedWindows("1h"), **WHOLE),
    "once": hr.Rows(["n", "window_start"], of="hourly"),
    "hourly": hr.Output(key="shop", what={"n": hr.count()}, where=hr.SlidingWindows("2h", "1h"), **WHOLE),
}
PIPELINES = {
    "appended": rows(),
    "signed": signed_rows(),
    "told apart": rows(deduplicate=hr.Deduplicate("id", "30d")),
    "outputs": hr.Pipeline("orders", ORDERS, outputs=OUTPUTS, executor="local"),
    "changes": hr.Pipeline("orders", CHANGES, outputs=OUTPUTS, executor="local"),
}


@pytest.mark.slow
@pytest.mark.hypothesis  # make fuzz turns as many as it turns of others
@pytest.mark.parametrize("seed", range(int(os.environ.get("HEADRACE_EXAMPLES", "1"))))
@pytest.mark.parametrize("kind", PIPELINES)
def test_a_range_is_what_everything_gives(tmp_path: Path, kind: str, seed: int) -> None:
    orders, dice, pipeline = Orders(tmp_path), random.Random(f"{kind} {seed}"), PIPELINES[kind]
    minutes = [90 * number + dice.choice([0, 0, -60]) for number in range(7)]

    def records(number: int) -> list[dict[str, Any]]:
        signs = [1, 1, dice.choice([1, -1])] if pipeline.withdraws_records else [1, 1, 1]
        late = (0, dice.randint(0, 60), dice.randint(0, 300))
        times = [max(0, minutes[number] - record_before) for record_before in late]
        return [
            order(dice.choice("abcd"), dice.randint(1, 4), time, sign=sign)
            for sign, time in zip(signs, times, strict=True)
        ]

    for number in range(7):
        orders.run(pipeline, *records(number))
    number = dice.randrange(1, 7)
    start = order("x", 9, minutes[number])["at"]
    mended_records = {f"{number:04}": [*records(number), order("x", 9, minutes[number], sign=1)]}
    orders.backfill_corrected(pipeline, mended_records, branch="range", start=start)
    orders.backfill_corrected(pipeline, mended_records, branch="whole")
    for output, own_pipeline in pipeline.by_output.items():
        if own_pipeline.rows:
            range_, whole = (orders.current(pipeline, output, at=branch) for branch in ("range", "whole"))
            assert range_ == whole, output
    catalog = orders.handle(pipeline).catalog
    main, *branches = (catalog.head().refs[name] for name in ("main", "range", "whole"))
    begun_snapshot, nothing = (catalog.common_ancestor(main, branch) for branch in branches)
    assert nothing is None
    reach = 3 if pipeline.has_names else 1  # files that windows of the range may have elements of
    assert begun_snapshot is None or begun_snapshot.epoch < number
    assert begun_snapshot is not None or number <= reach
