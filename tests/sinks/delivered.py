"""Sales that a sink holds, for tests of what somebody else does to it."""

import secrets
from dataclasses import dataclass
from typing import Any

import headrace as hr
from headrace.ext.sinks import ChangeSource, FillReason
from headrace.testing.connectors.worlds import SinkDeployment, order


@dataclass(frozen=True)
class DeliveredSales:
    """Sales of three users that a sink holds."""

    deployment: SinkDeployment
    sales: hr.Pipeline

    def more(self) -> None:
        self.deployment.land(f"more-{secrets.token_hex(2)}", order("ann", 6))
        self.deployment.handle(self.sales).run()

    def is_right(self) -> bool:
        return self.deployment.held(self.sales) == self.deployment.published(self.sales)

    def expect_refill(self, words: str) -> None:
        """The next delivery fills it again, and says why; the one after has nothing to do."""
        delivery = self.deployment.deliver(self.sales)
        assert (delivery.source, delivery.reason) == (ChangeSource.ALL_ROWS, FillReason.CHANGED)
        assert words in delivery.describe()
        assert self.is_right()
        assert self.deployment.deliver(self.sales).source is None

    def check(self) -> Any:
        (one,) = self.deployment.handle(self.sales).check_sinks()
        return one


def deliver_sales(deployment: SinkDeployment, **parts: Any) -> DeliveredSales:
    sales = deployment.sales(**parts)
    deployment.land("1", order("ann", 5, 10), order("bob", 10, 20), order("cyd", 70, 30))
    deployment.handle(sales).run()
    deployment.deliver(sales)
    return DeliveredSales(deployment, sales)
