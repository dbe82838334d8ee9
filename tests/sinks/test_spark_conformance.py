"""A sink through Spark, by a class of a user's, passes the kit that Headrace's own have to pass."""

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headrace import DataType
from headrace.testing.connectors import SinkConformance
from headrace.testing.connectors.worlds import SinkDeployment
from tests.sinks.delivered import deliver_sales
from tests.sinks.worlds import SparkWorld, state_of

pytestmark = pytest.mark.slow


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
class TestSpark(SinkConformance):
    """But for what is the same for all sinks, and slow here: each process that is killed would start a JVM."""

    counts_replaced = False
    test_after_any_history_holds_what_readers_see = None
    test_a_delivery_that_is_killed_at_any_step = None
    test_columns_that_get_the_names_of_others_and_a_key_that_gets_a_column = None
    test_columns_that_are_renamed_and_added = None
    test_a_list_arrives_as_it_is_or_is_refused = None

    @pytest.fixture
    def world(self, tmp_path: Path) -> SparkWorld:
        (tmp_path / "files").mkdir()
        return SparkWorld(tmp_path / "files")

    @pytest.mark.parametrize("kind", [DataType.FLOAT, DataType.TIMESTAMP, DataType.BYTES, DataType.DECIMAL])
    def test_a_value_arrives_as_it_is_or_is_refused(self, deployment: SinkDeployment, kind: DataType) -> None:
        super().test_a_value_arrives_as_it_is_or_is_refused(deployment, kind)

    def test_a_key_arrives_as_it_is_or_is_refused(self, deployment: SinkDeployment) -> None:
        super().test_a_key_arrives_as_it_is_or_is_refused(deployment, DataType.STRING)

    def test_rows_that_the_class_reads_are_checked(self, deployment: SinkDeployment, world: SparkWorld) -> None:
        held_delivery = deliver_sales(deployment)
        assert held_delivery.check().is_right
        state = state_of(world.folder)
        assert state is not None
        (file,) = (world.folder / state["version"]).glob("*.parquet")
        rows = pq.read_table(file, coerce_int96_timestamp_unit="us")
        (world.folder / state["version"] / f".{file.name}.crc").unlink()  # of the file as Spark wrote it
        pq.write_table(rows.filter(pc.field("user") != "bob"), file)
        check = held_delivery.check()
        assert (check.is_right, check.comparison.only_ours) == (False, 1)
