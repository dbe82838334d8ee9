"""Headrace's own sinks pass the kit that those of others have to pass."""

import secrets
from pathlib import Path

import pytest

from headrace.testing.connectors import ChangeLogConformance, SinkConformance
from scripts.iceberg_rest import IcebergRest
from tests.sinks.warehouse import Warehouse
from tests.sinks.worlds import DeltaWorld, IcebergWorld, PostgresChangesWorld, PostgresWorld

pytestmark = pytest.mark.slow


class TestPostgres(SinkConformance):
    @pytest.fixture
    def world(self, warehouse: Warehouse) -> PostgresWorld:
        return warehouse.world


class WithoutValues:
    """For the second store, catalog or form of a format, whose values are the same wherever they are."""

    test_a_value_arrives_as_it_is_or_is_refused = None
    test_a_list_arrives_as_it_is_or_is_refused = None
    test_a_key_arrives_as_it_is_or_is_refused = None


class OnASecondStore(WithoutValues):
    """Histories are those of the first one too; what stores differ in is how a change is committed."""

    test_after_any_history_holds_what_readers_see = None
    test_rows_known_by_an_id_are_those_that_readers_see = None


class TestPostgresChanges(WithoutValues, ChangeLogConformance):
    @pytest.fixture
    def world(self, warehouse: Warehouse) -> PostgresChangesWorld:
        return PostgresChangesWorld(warehouse.uri, warehouse.schema)


class TestDelta(SinkConformance):
    @pytest.fixture
    def world(self, tmp_path: Path) -> DeltaWorld:
        return DeltaWorld(str(tmp_path / "a lake"))


@pytest.mark.s3
class TestDeltaOnS3(OnASecondStore, SinkConformance):
    @pytest.fixture
    def world(self, minio: str) -> DeltaWorld:
        return DeltaWorld(f"tests/{secrets.token_hex(4)}", minio)


class TestIceberg(SinkConformance):
    """With an SQL catalog."""

    @pytest.fixture
    def world(self, tmp_path: Path) -> IcebergWorld:
        (tmp_path / "lake").mkdir()
        return IcebergWorld(f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'lake').as_uri()}")


class TestIcebergOverRest(OnASecondStore, SinkConformance):
    """With Iceberg's own REST catalog."""

    @pytest.fixture
    def world(self, iceberg_rest: IcebergRest) -> IcebergWorld:
        return IcebergWorld(iceberg_rest.uri, f"n{secrets.token_hex(4)}")
