"""What consumers of a target that only appends make of its records is what readers see, whichever way panes accumulate
and wherever ``published`` moves.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace import Pipeline
from headrace.errors import RefusedError
from headrace.ext.sinks import (
    NUMBER,
    SIGN,
    ChangeRecords,
    ChangeSource,
    FillReason,
    OpenChangeLog,
    Sink,
    SinkState,
    StoredRecords,
)
from headrace.testing.connectors import ChangeLogWorld
from headrace.testing.connectors.worlds import SinkDeployment, order
from headrace_lab.sizes import set_sizes
from tests.sinks.given_target import delivering_to

Sums = Mapping[tuple[Any, ...], int]


def zoneless(rows: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as Python's values, times without their zone, which is UTC."""
    return [
        {name: value.replace(tzinfo=None) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in rows.to_pylist()
    ]


@dataclass
class ListedLog(OpenChangeLog):
    """A list of records."""

    listed: list[dict[str, Any]] = field(default_factory=list)
    last: SinkState | None = None
    types: dict[str, pa.DataType] = field(default_factory=dict)

    def held(self) -> SinkState | None:
        return self.last

    @contextmanager
    def records(self, columns: Mapping[str, Any]) -> Iterator[StoredRecords]:
        names = [NUMBER, SIGN, *columns]
        schema = pa.schema([(name, self.types.get(name, pa.null())) for name in names])
        yield StoredRecords(pa.Table.from_pylist(self.listed, schema).to_reader())

    def append(self, records: ChangeRecords, old_state: SinkState | None, new_state: SinkState) -> None:
        assert old_state == self.last
        for batch in records.batches():
            self.types |= {field.name: field.type for field in batch.schema}
            self.listed += zoneless(batch)
        self.last = new_state


@dataclass(frozen=True)
class ListedWorld(ChangeLogWorld):
    log: ListedLog = field(default_factory=ListedLog)

    @property
    def sink(self) -> Sink:
        return hr.postgres("sales", connection="nowhere", changes=True)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"HEADRACE_CONN_NOWHERE": "postgresql://127.0.0.1:9/none"}

    def records(self) -> list[dict[str, Any]]:
        return self.log.listed


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SinkDeployment]:
    world = ListedWorld()
    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    with delivering_to(world.log):
        yield SinkDeployment(world, tmp_path)


def row_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return record["user"], record["window_start"], record["window_end"]


def sum_records(deployment: SinkDeployment) -> Sums:
    """What all records of the target come to, by key and window."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for number, record in enumerate(deployment.world.records(), start=1):
        assert record["_change"] == number
        if record["_sign"] == 0:
            sums.clear()
        else:
            sums[row_of(record)] += record["_sign"] * record["spent"]
    return {row: total for row, total in sums.items() if total}


def newest(deployment: SinkDeployment) -> Sums:
    """What the newest record of each key and window says."""
    rows: dict[tuple[Any, ...], int | None] = {}
    for record in deployment.world.records():
        if record["_sign"] == 0:
            rows.clear()
        else:
            rows[row_of(record)] = record["spent"] if record["_sign"] > 0 else None
    return {row: total for row, total in rows.items() if total}


def seen_sums(deployment: SinkDeployment, sales: Pipeline) -> Sums:
    """What readers see by key and window: rows, or the sum of panes that discard."""
    handle = deployment.handle(sales)
    if sales.how.accumulation != "DISCARDING":
        return {row_of(row): row["spent"] for row in zoneless(handle.current().to_arrow()) if row["spent"]}
    sums: Counter[tuple[Any, ...]] = Counter()
    for pane in zoneless(handle.panes().to_arrow()):
        sums[row_of(pane)] += -pane["spent"] if pane["is_retraction"] else pane["spent"]
    return {row: total for row, total in sums.items() if total}


def sales_of(deployment: SinkDeployment, accumulation: str) -> Pipeline:
    return deployment.sales(how=getattr(hr, accumulation)(allowed_lateness="30d"))


MODES = {"discarding": [sum_records], "accumulating": [newest], "retracting": [sum_records, newest]}


@pytest.mark.parametrize(
    ("accumulation", "seed"), [*(("discarding", seed) for seed in range(3)), ("accumulating", 0), ("retracting", 0)]
)
def test_records_lead_to_what_readers_see(deployment: SinkDeployment, accumulation: str, seed: int) -> None:
    """After any history of publishes, rollbacks and promotions."""
    choice = random.Random(f"{accumulation} {seed}")
    sales = sales_of(deployment, accumulation)
    handle = deployment.handle(sales)
    checks: list[bool | None] = []
    for step in range(12):
        heads = handle.snapshots().to_json() if step > 1 else []
        match choice.randrange(6) if heads else 0:
            case 0 | 1 | 2:
                users = choice.choices("abc", k=4)
                deployment.land(f"{step:02}", *(order(user, choice.randrange(180), 1 + step) for user in users))
                handle.run()
            case 3 | 4:
                target = choice.choice(["beginning", *(head["snapshot"] for head in heads)])
                with contextlib.suppress(RefusedError):  # it is of a line that was given up, or where main is
                    handle.rollback(to=target, message="back")
            case 5:
                handle.backfill(promote=True, branch=f"again{step}")
        if choice.random() < 0.7 or step == 11:
            deployment.deliver(sales)
            for consume in MODES[accumulation]:
                assert consume(deployment) == seen_sums(deployment, sales), step
            (check,) = handle.check_sinks()
            assert check.is_right is not False, check.to_json()
            checks.append(check.is_right)
    assert 0 not in {record["_sign"] for record in deployment.world.records()}
    assert True in checks  # it is None where nothing is published
    deployment.world.log.listed.pop()  # type: ignore[attr-defined]
    assert handle.check_sinks()[0].is_right is not True


def shown_records(deployment: SinkDeployment, start: int = 0) -> list[tuple[Any, ...]]:
    """Sign, epoch, user and sum of the records after that many."""
    records = deployment.world.records()[start:]
    return [tuple(record.get(name) for name in ("_sign", "_epoch", "user", "spent")) for record in records]


def test_a_move_takes_back_the_panes_that_are_given_up_and_no_others(deployment: SinkDeployment) -> None:
    sales = sales_of(deployment, "discarding")
    handle = deployment.handle(sales)
    deployment.land("1", order("a", 5, 1))
    first = handle.run()
    assert deployment.deliver(sales).source is ChangeSource.ALL_PANES
    for number in (2, 3):
        deployment.land(str(number), order("a", 5 + number, number))
        handle.run()
    assert deployment.deliver(sales).source is ChangeSource.PANES
    assert shown_records(deployment) == [(1, 0, "a", 1), (1, 1, "a", 2), (1, 2, "a", 3)]

    handle.rollback(to=str(first.snapshot), message="wrong files")
    delivery = deployment.deliver(sales)
    assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.PANES, 0, 2)
    assert shown_records(deployment, 3) == [(-1, None, "a", 3), (-1, None, "a", 2)]

    deployment.land("4", order("b", 5, 4))
    handle.run()  # reads files 2 to 4 in one epoch
    deployment.deliver(sales)
    assert shown_records(deployment, 5) == [(1, 1, "a", 5), (1, 1, "b", 4)]
    handle.rollback(to=str(first.snapshot), message="and again")
    handle.run(files_per_epoch=1)
    deployment.deliver(sales)  # to another line, in one step
    assert [record[0] for record in shown_records(deployment, 7)] == [-1, -1, 1, 1, 1]
    assert sum_records(deployment) == seen_sums(deployment, sales)

    handle.rollback(to="beginning", message="all of it")
    delivery = deployment.deliver(sales)
    assert (delivery.written, delivery.removed) == (0, 4)
    assert sum_records(deployment) == {}
    assert 0 not in {record[0] for record in shown_records(deployment)}


@set_sizes(log_radix=2)  # panes of epochs that have expired are left out by leaves
def test_a_target_of_which_panes_have_expired_gets_those_that_are_left(deployment: SinkDeployment) -> None:
    sales = sales_of(deployment, "discarding")
    handle = deployment.handle(sales)
    for number in range(4):
        deployment.land(str(number), order("a", number, 1))
        handle.run()
        deployment.deliver(sales)
    handle.tag("held")
    for number in range(4, 16):
        deployment.land(f"{number:02}", order("a", number, 1))
    for _ in range(2):
        handle.run(files_per_epoch=1, max_epochs=6)
        for _ in range(2):  # what one expiry marks the next deletes
            handle.expire(keep_last=1)
    delivery = deployment.deliver(sales)
    assert (delivery.source, delivery.reason) == (ChangeSource.ALL_PANES, FillReason.EXPIRED)
    assert shown_records(deployment, 4)[0] == (0, None, None, None)
    assert 0 < delivery.written < 16
    assert sum_records(deployment) == seen_sums(deployment, sales)

    handle.rollback(to="beginning", message="all of it")
    delivery = deployment.deliver(sales)
    assert (delivery.written, delivery.reason) == (0, FillReason.UNPUBLISHED)
    assert shown_records(deployment)[-1][0] == 0
    assert sum_records(deployment) == {}


def test_columns_that_change_and_panes_that_accumulate_otherwise(deployment: SinkDeployment) -> None:
    sales = sales_of(deployment, "discarding")
    for number in (1, 2):
        deployment.land(str(number), order("a", number, number))
        deployment.handle(sales).run()
    deployment.deliver(sales)
    orders, spent_total = hr.count(), hr.col("price").sum()
    how = sales.how
    sales_between = deployment.sales(
        what={"x": orders, "y": spent_total}, renamed={"orders": "x", "spent": "y"}, how=how
    )
    swapped_sales = deployment.sales(
        what={"spent": orders, "orders": spent_total}, renamed={"x": "spent", "y": "orders"}, how=how
    )
    for number, pipeline in enumerate((sales_between, swapped_sales), 3):
        deployment.land(str(number), order("a", number, number))
        deployment.handle(pipeline).run()
    delivery = deployment.deliver(swapped_sales)  # all that came under the other names goes, and comes again
    assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.PANES, 4, 2)
    assert sum_records(deployment) == seen_sums(deployment, swapped_sales) != {}

    retracting = deployment.sales(what={"spent": orders, "orders": spent_total})
    deployment.handle(retracting).backfill(promote=True)
    delivery = deployment.deliver(retracting)
    assert (delivery.source, delivery.reason) == (ChangeSource.ALL_ROWS, FillReason.ACCUMULATION)
    assert sum_records(deployment) == newest(deployment) == seen_sums(deployment, retracting)
    deployment.handle(swapped_sales).backfill(promote=True)
    delivery = deployment.deliver(swapped_sales)
    assert (delivery.source, delivery.reason) == (ChangeSource.ALL_PANES, FillReason.ACCUMULATION)
    assert sum_records(deployment) == seen_sums(deployment, swapped_sales)


def test_an_output_that_main_takes_over_from_a_branch(deployment: SinkDeployment) -> None:
    """Its panes are computed again, in a line that goes on: the old ones are taken back, all of them."""
    hourly = hr.Output(
        key="user",
        what={"spent": hr.col("price").sum()},
        where=hr.FixedWindows("1h"),
        when=hr.on_update(),
        how=hr.discarding(allowed_lateness="30d"),
        sinks=[deployment.world.sink],
    )
    outputs = {"hourly": hourly, "all": replace(hourly, where=hr.GlobalWindows(), sinks=())}
    sales = hr.Pipeline("sales", deployment.sales().input, outputs=outputs, executor="local")
    handle = deployment.handle(sales)
    for number in (1, 2):
        deployment.land(str(number), order("a", number, number))
        handle.run()
    deployment.deliver(sales)
    doubled_hourly = replace(hourly, what={"spent": (2 * hr.col("price")).sum()})
    changed_sales = replace(sales, outputs={**outputs, "hourly": doubled_hourly})
    deployment.handle(changed_sales).backfill(output="hourly", promote=True)
    delivery = deployment.deliver(changed_sales)
    assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.PANES, 2, 2)
    assert [record[::3] for record in shown_records(deployment, 2)] == [(-1, 2), (-1, 1), (1, 2), (1, 4)]
