"""``deliver --check`` of tables of changes: what consumers make of them beside what readers see."""

from pathlib import Path

import pytest

from headrace import DataType
from headrace.testing.connectors.worlds import SinkDeployment
from headrace_lab.sizes import set_sizes
from tests.sinks.checked import MODES, counts, delivered_twice, how, values_are_right
from tests.sinks.delivered import deliver_sales
from tests.sinks.warehouse import Warehouse
from tests.sinks.worlds import PostgresChangesWorld

pytestmark = pytest.mark.slow


@pytest.fixture
def changes(warehouse: Warehouse, tmp_path: Path) -> SinkDeployment:
    return SinkDeployment(PostgresChangesWorld(warehouse.uri, warehouse.schema), tmp_path)


@pytest.mark.parametrize("accumulation", MODES)
def test_a_table_of_changes_leads_to_what_readers_see(changes: SinkDeployment, accumulation: str) -> None:
    held_delivery = delivered_twice(changes, accumulation)
    check = held_delivery.check()
    assert check.is_right, check.describe()
    assert "it holds these" in check.describe()
    changes.handle(held_delivery.sales).rollback(to="beginning", message="all of it")
    changes.deliver(held_delivery.sales)
    assert held_delivery.check().is_right is None  # nothing is published
    changes.handle(held_delivery.sales).run()
    held_delivery.more()
    changes.deliver(held_delivery.sales, refill=True)
    assert held_delivery.check().is_right
    held_delivery.more()
    assert held_delivery.check().is_right  # it is behind, and holds what was delivered


@pytest.mark.parametrize(
    ("accumulation", "statement", "differs"),
    [
        ("retracting", "delete from {0}.sales where \"user\" = 'bob'", {"only_ours": 1}),
        ("retracting", "delete from {0}.sales where _sign = -1", {"only_theirs": 1}),
        ("retracting", "delete from {0}.sales where _change = 1", {"overdrawn": 1}),
        ("retracting", "update {0}.sales set spent = 7 where \"user\" = 'bob'", {"only_ours": 1, "only_theirs": 1}),
        ("accumulating", "delete from {0}.sales where \"user\" = 'bob'", {"only_ours": 1}),
        ("accumulating", "delete from {0}.sales where _change = 4", {"different": 1}),
        ("accumulating", "delete from {0}.sales where _change = 1", {}),
        ("accumulating", "update {0}.sales set _sign = -1 where \"user\" = 'cyd'", {"only_ours": 1}),
        ("discarding", "delete from {0}.sales where _change = 1", {"only_ours": 1}),
        ("discarding", "update {0}.sales set _sign = -1 where _change = 2", {"only_ours": 1, "overdrawn": 1}),
    ],
)
def test_what_others_did_to_changes_is_found(
    warehouse: Warehouse, changes: SinkDeployment, accumulation: str, statement: str, differs: dict[str, int]
) -> None:
    held_delivery = delivered_twice(changes, accumulation)
    warehouse.server.rows(statement.format(warehouse.schema))
    assert counts(held_delivery) == differs
    assert held_delivery.check().is_right is not bool(differs)
    changes.deliver(held_delivery.sales, refill=True)
    assert held_delivery.check().is_right


@pytest.mark.parametrize(("accumulation", "differs"), [("retracting", {"twice": 1}), ("discarding", {"twice": 1})])
def test_a_change_that_is_there_twice_is_named(
    warehouse: Warehouse, changes: SinkDeployment, accumulation: str, differs: dict[str, int]
) -> None:
    held_delivery = delivered_twice(changes, accumulation)
    columns = '_sign, "user", window_start, window_end, orders, spent'
    table = f"{warehouse.schema}.sales"
    warehouse.server.rows(
        f"""insert into {table} (_change, {columns}) select 100, {columns} from {table} where _change = 2"""
    )
    assert counts(held_delivery) == differs
    (row,) = held_delivery.check().comparison.first
    assert (row["ours"]["user"], row["ours"], row["ours_times"], row["theirs_times"]) == ("bob", row["theirs"], 1, 2)


def test_panes_that_have_expired_are_said_to_be_unknown(changes: SinkDeployment) -> None:

    with set_sizes(log_radix=2):
        held_delivery = deliver_sales(changes, how=how("discarding"))
        for _ in range(8):
            held_delivery.more()
            for _ in range(2):
                changes.handle(held_delivery.sales).expire(keep_last=1)
        changes.deliver(held_delivery.sales)
        check = held_delivery.check()
        assert (check.is_right, check.comparison) == (None, None)
        assert "have expired" in check.describe()


def test_values_are_what_they_were(changes: SinkDeployment) -> None:
    values_are_right(changes, DataType.STRING)
