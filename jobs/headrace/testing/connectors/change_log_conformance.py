"""What every sink must do that only appends, as tests for classes that inherit them."""

from headrace.ext.sinks import EPOCH, NUMBER, SIGN, ChangeSource
from headrace.runs.delivering.deliver import Delivery
from headrace.testing.connectors.deployment import SinkDeployment, order
from headrace.testing.connectors.sink_conformance import SinkConformance
from headrace.testing.connectors.sink_world import ChangeLogWorld


class ChangeLogConformance(SinkConformance):
    """Inherit it, and define the fixture ``world``, which gives a ChangeLogWorld.

    What the target holds is the sum of its records: so all that holds of sinks with rows holds of that sum. The world
    looks at the numbers of records each time: nothing is there twice, and nothing is lost.
    """

    def test_follows_publish_and_rollback(self, deployment: SinkDeployment) -> None:
        sales, world = deployment.sales(), deployment.world
        assert isinstance(world, ChangeLogWorld)
        handle = deployment.handle(sales)

        def news(known: int) -> list[tuple[object, ...]]:
            shown = (SIGN, EPOCH, "user", "orders", "spent")
            return [tuple(record[name] for name in shown) for record in world.records() if record[NUMBER] > known]

        assert deployment.deliver(sales).source is None  # nothing is published
        deployment.land("1", order("ann", 5, 10), order("bob", 10, 20))
        first = handle.run()
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.ALL_ROWS, 2, 0)
        assert sorted(news(0)) == [(1, None, "ann", 1, 10), (1, None, "bob", 1, 20)]
        assert deployment.deliver(sales).source is None

        # two epochs that one delivery brings, each with what it withdraws and puts in its place
        deployment.land("2", order("bob", 15, 5))
        handle.run()
        deployment.land("3", order("bob", 16, 1), order("cyd", 20, 1))
        handle.run()
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.PANES, 3, 2)
        forward = news(2)
        assert forward[:2] == [(-1, 1, "bob", 1, 20), (1, 1, "bob", 2, 25)]
        of_bob = [record for record in forward[2:] if record[2] == "bob"]
        assert of_bob == [(-1, 2, "bob", 2, 25), (1, 2, "bob", 3, 26)]
        assert [record for record in forward[2:] if record[2] != "bob"] == [(1, 2, "cyd", 1, 1)]
        assert deployment.held(sales) == deployment.published(sales)

        handle.rollback(to=str(first.snapshot), message="wrong files")
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.DIFFERENCE, 1, 2)
        back = news(7)
        assert sorted(back[:2]) == [(-1, None, "bob", 3, 26), (-1, None, "cyd", 1, 1)]
        assert back[2:] == [(1, None, "bob", 1, 20)]
        assert deployment.held(sales) == deployment.published(sales)

        handle.rollback(to="beginning", message="all of it")
        assert deployment.deliver(sales).removed == 2
        assert deployment.held(sales) == []
        assert deployment.deliver(sales).source is None
        handle.run()
        assert deployment.deliver(sales).source is ChangeSource.ALL_ROWS
        assert deployment.held(sales) == deployment.published(sales)
        assert 0 not in {record[SIGN] for record in world.records()}

    def test_what_is_not_known_any_more_is_void(self, deployment: SinkDeployment) -> None:
        """The snapshot that it holds has expired: a record of sign 0 comes before all rows."""
        sales, world = deployment.sales(), deployment.world
        assert isinstance(world, ChangeLogWorld)
        handle = deployment.handle(sales)
        deployment.land("1", order("ann", 5))
        handle.run()
        deployment.deliver(sales)
        for name in "234":
            deployment.land(name, order("bob", 10))
            handle.run()
            handle.expire(keep_last=1)
        assert deployment.deliver(sales).source is ChangeSource.ALL_ROWS
        assert [record[SIGN] for record in world.records()] == [1, 0, 1, 1]
        assert deployment.held(sales) == deployment.published(sales)

    def check_all_again(self, deployment: SinkDeployment, delivery: Delivery) -> None:
        assert isinstance(deployment.world, ChangeLogWorld)
        assert [record[SIGN] for record in deployment.world.records()] == [1, 1, 0, 1, 1]
