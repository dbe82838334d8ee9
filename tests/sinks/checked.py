"""What a check finds in targets that only append."""

from typing import Any

import headrace as hr
from headrace.model.expressions.data_types import DataType
from headrace.testing.connectors.worlds import SinkDeployment
from tests.sinks.delivered import DeliveredSales, deliver_sales

MODES = ("discarding", "accumulating", "retracting")


def how(accumulation: str) -> Any:
    return getattr(hr, accumulation)(allowed_lateness="30d")


def counts(delivery: DeliveredSales) -> dict[str, int]:
    """What differs."""
    comparison = delivery.check().comparison
    names = ("only_ours", "only_theirs", "different", "twice", "unreadable", "overdrawn")
    return {name: getattr(comparison, name) for name in names if getattr(comparison, name)}


def delivered_twice(deployment: SinkDeployment, accumulation: str) -> DeliveredSales:
    """Ann has two changes, and in the end a third."""
    held_delivery = deliver_sales(deployment, how=how(accumulation))
    held_delivery.more()
    deployment.deliver(held_delivery.sales)
    return held_delivery


KINDS = {
    DataType.STRING: ["a", "", 'x"\\,\n', "ø\u2028", None],
    DataType.INT: [2**63 - 1, -(2**63), 0, None],
    DataType.FLOAT: [0.1, 1e300, -1e-300, float("inf"), float("-inf"), None],
    DataType.BYTES: [b"", b"\x00\xff", b"a", None],
}


def values_are_right(deployment: SinkDeployment, kind: DataType) -> None:
    """Each value of a kind comes back as it was."""
    pipeline = deployment.values(kind)
    deployment.land_values(kind, KINDS[kind])
    deployment.handle(pipeline).run()
    deployment.deliver(pipeline)
    (check,) = deployment.handle(pipeline).check_sinks()
    assert check.is_right, check.to_json()
    assert check.comparison is not None
    assert check.comparison.ours == len(KINDS[kind])
