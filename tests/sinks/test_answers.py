"""What servers say for good and what passes, kind by kind: the error says whether to try again."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from aiokafka import errors as kafka_errors
from psycopg import errors as pg

import headrace as hr
from headrace.connections import SqlAnswer, answer_of, connection
from headrace.connectors.kafka.sink import translate_errors
from headrace.errors import HeadraceError
from headrace.ext.sinks import SinkMovedError, SinkRefusedError, SinkUnreachableError, UndeliverableError
from headrace.testing.connectors.worlds import SinkDeployment, order
from tests.sinks.delivered import DeliveredSales, deliver_sales
from tests.sinks.warehouse import Warehouse
from tests.sinks.worlds import DeltaWorld, IcebergWorld

Kind = type[HeadraceError]

STATES: dict[str, Kind] = {
    "08006": SinkUnreachableError,
    "0A000": SinkRefusedError,
    "21000": SinkRefusedError,
    "22003": UndeliverableError,
    "23505": UndeliverableError,
    "23514": UndeliverableError,
    "25006": SinkRefusedError,
    "25P03": SinkUnreachableError,
    "28000": SinkRefusedError,
    "2BP01": SinkRefusedError,
    "3D000": SinkRefusedError,
    "3F000": SinkRefusedError,
    "40001": SinkUnreachableError,
    "40P01": SinkUnreachableError,
    "42501": SinkRefusedError,
    "42703": SinkRefusedError,
    "44000": UndeliverableError,
    "53100": SinkUnreachableError,
    "53300": SinkUnreachableError,
    "53400": SinkRefusedError,
    "54000": UndeliverableError,
    "54001": SinkRefusedError,
    "54011": SinkRefusedError,
    "55000": SinkRefusedError,
    "55006": SinkUnreachableError,
    "55P03": SinkUnreachableError,
    "57014": SinkUnreachableError,
    "57P01": SinkUnreachableError,
    "57P04": SinkRefusedError,
    "58030": SinkUnreachableError,
    "58P01": SinkRefusedError,
    "72000": SinkUnreachableError,
    "P0001": SinkRefusedError,
    "XX000": SinkRefusedError,
    "XX001": SinkRefusedError,
}
"""What a delivery ends with where PostgreSQL says that."""


@pytest.fixture
def delivery(warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeliveredSales:
    monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", warehouse.uri)
    return deliver_sales(SinkDeployment(warehouse.world, tmp_path))


@pytest.mark.slow
def test_each_class_of_sqlstate_says_whether_to_try_again(warehouse: Warehouse, delivery: DeliveredSales) -> None:
    """As a server says it: a trigger raises each of them."""
    schema = warehouse.schema
    delivery.more()
    rows_before = delivery.deployment.held(delivery.sales)
    for state, kind in STATES.items():
        warehouse.server.rows(
            f"create or replace function {schema}.no() returns trigger language plpgsql as "
            f"$$ begin raise exception 'no' using errcode = '{state}'; end $$; "
            f"create or replace trigger no before insert on {schema}.sales for each row execute function {schema}.no()"
        )
        with pytest.raises(HeadraceError) as error:
            delivery.deployment.deliver(delivery.sales)
        assert type(error.value) is kind, state
        assert delivery.deployment.held(delivery.sales) == rows_before
    warehouse.server.rows(f"drop trigger no on {schema}.sales")
    delivery.deployment.deliver(delivery.sales)
    assert delivery.is_right()


def test_every_sqlstate_has_an_answer() -> None:
    codes = {code for code in pg._sqlcodes if len(code) == 5 and code == code.upper() and code[:2] not in ("00", "01")}
    codes = {code for code in codes if any(character.isdigit() for character in code)}
    assert len(codes) > 200
    passing = {code[:2] for code in codes if answer_of(code, "") is SqlAnswer.PASSING}
    assert passing == {"08", "25", "40", "53", "55", "57", "58", "72"}
    by_class = {code[:2] for code in codes}
    untested_codes = {code for code in by_class if code not in {state[:2] for state in STATES}}
    assert all(answer_of(f"{one}000", "") is SqlAnswer.REFUSED for one in untested_codes), untested_codes


@contextmanager
def publication(warehouse: Warehouse) -> Iterator[None]:
    warehouse.server.rows("create publication everything for all tables")
    try:
        yield
    finally:
        warehouse.server.rows("drop publication everything")


@pytest.mark.slow
def test_rows_of_a_table_that_is_published_to_replicas_change(warehouse: Warehouse, tmp_path: Path) -> None:
    """Debezium makes a publication for all tables, unless it is told otherwise."""
    with publication(warehouse):
        held_delivery = deliver_sales(SinkDeployment(warehouse.world, tmp_path))
        held_delivery.more()
        held_delivery.deployment.deliver(held_delivery.sales)
        assert held_delivery.is_right()
        # as an older version has made it
        warehouse.server.rows(f"alter table {warehouse.schema}.sales replica identity default")
        held_delivery.more()
        held_delivery.deployment.deliver(held_delivery.sales)
        assert held_delivery.is_right()
        held_delivery.deployment.handle(held_delivery.sales).rollback(to="beginning", message="all of it")
        held_delivery.deployment.deliver(held_delivery.sales)
        assert held_delivery.is_right()
        held_delivery.more()
        held_delivery.deployment.deliver(held_delivery.sales)
        warehouse.server.rows(f"alter table {warehouse.schema}.sales replica identity nothing")
        held_delivery.more()
        with pytest.raises(SinkRefusedError, match="replica identity"):
            held_delivery.deployment.deliver(held_delivery.sales)


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [True, False])
def test_a_key_that_is_too_long_for_an_index_is_named(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    deployment = SinkDeployment(warehouse.world, tmp_path)
    sales = deployment.sales()
    long = secrets.token_hex(4000)
    if not is_new:
        deployment.land("0", order("ann", 5))
        deployment.handle(sales).run()
        deployment.deliver(sales)
    deployment.land("1", order("x" * 5000, 5), order(long, 5), order("bob", 6))  # the first one can be compressed
    deployment.handle(sales).run()
    rows_before = deployment.held(sales)
    for refill in (False, True):
        with pytest.raises(UndeliverableError, match=r"column 'user' has a key of 8,000 bytes.*2,704"):
            deployment.deliver(sales, refill=refill)
        assert deployment.held(sales) == rows_before
    changes = deployment.sales(
        sinks=(hr.postgres(f"{warehouse.schema}.happened", connection="warehouse", changes=True),)
    )
    deployment.deliver(changes)
    assert (long,) in warehouse.rows('"user"', "happened")


@pytest.mark.slow
def test_a_key_of_columns_that_are_too_long_together_is_named(warehouse: Warehouse, tmp_path: Path) -> None:
    """Not the longest column, if that can be compressed."""
    deployment = SinkDeployment(warehouse.world, tmp_path)
    sales = replace(
        deployment.sales(),
        input=hr.json("landing/sales", {"user": str, "page": str, "price": int, "at": datetime}).event_time(
            "at", bound="10m"
        ),
        key=["user", "page"],
    )
    half = secrets.token_hex(1000)
    deployment.land(
        "1",
        {**order("y" * 9000, 5), "page": "z" * 9000},
        {**order(half, 5), "page": half},
        {**order("bob", 6), "page": "p"},
    )
    deployment.handle(sales).run()
    with pytest.raises(UndeliverableError) as error:
        deployment.deliver(sales)
    text = str(error.value)
    assert "columns 'user' (2,000) and 'page' (2,000) have a key of 4,000 bytes together" in text
    assert half[:40] in text
    assert "2 rows that are to be delivered have keys as long" in text


@pytest.mark.slow
def test_what_stands_against_a_connection_says_whether_to_try_again(
    warehouse: Warehouse, delivery: DeliveredSales, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, _, name = warehouse.uri.rpartition("/")
    role, password, full = f"r{secrets.token_hex(4)}", secrets.token_hex(8), f"d{secrets.token_hex(4)}"
    warehouse.server.rows(f"create role {role} nologin password '{password}'")
    warehouse.server.rows(f"create database {full} connection limit 0")
    other = f"r{secrets.token_hex(4)}"
    warehouse.server.rows(f"create role {other} login password '{password}'")
    place = base.partition("@")[2]
    catalog = f"postgresql://{other}:{password}@{place}/{full}?warehouse=file:///tmp/none"
    cases: list[tuple[str, Kind]] = [
        (f"{base}/nosuchdatabase", SinkRefusedError),
        (f"postgresql://nobody:x@{place}/{name}", SinkRefusedError),
        (f"postgresql://{role}:{password}@{place}/{name}", SinkRefusedError),
        (f"postgresql://{other}:{password}@{place}/{full}", SinkUnreachableError),
        (f"postgresql://{place}/{name}", SinkRefusedError),
        (f"{warehouse.uri}?sslmode=require", SinkRefusedError),
        (f"{warehouse.uri}?sslmode=perhaps", SinkRefusedError),
        (f"postgresql://{other}:{password}@127.0.0.1:1/{name}", SinkUnreachableError),
        (f"postgresql://{other}:{password}@no.such.host.invalid/{name}", SinkUnreachableError),
    ]
    for uri, kind in cases:
        monkeypatch.setenv("HEADRACE_CONN_WAREHOUSE", uri)
        with pytest.raises(HeadraceError) as error:
            delivery.deployment.deliver(delivery.sales)
        assert type(error.value) is kind, (uri, str(error.value))
    # the same servers as catalogs of Iceberg
    lake = IcebergWorld("", "reports")
    on_iceberg = delivery.deployment.sales(sinks=(lake.sink,))
    for uri, kind in (
        (catalog, SinkUnreachableError),
        (f"{base}/nosuchdatabase?warehouse=file:///tmp/none", SinkRefusedError),
    ):
        monkeypatch.setenv("HEADRACE_CONN_LAKE", uri)
        with pytest.raises(HeadraceError) as error:
            delivery.deployment.deliver(on_iceberg)
        assert type(error.value) is kind, (uri, str(error.value))
    warehouse.server.rows(f"drop database {full}")
    for one in (role, other):
        warehouse.server.rows(f"drop role {one}")


@pytest.mark.slow
@pytest.mark.s3
def test_a_store_that_says_no_for_good(minio: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DeltaWorld(f"nosuchbucket{secrets.token_hex(4)}", minio)
    deployment = SinkDeployment(world, tmp_path)
    sales = deployment.sales()
    deployment.land("1", order("ann", 5))
    deployment.handle(sales).run()
    (tmp_path / "file").write_text("no folder")
    for uri in (world.environment["HEADRACE_CONN_LAKE"], (tmp_path / "file").as_uri()):
        monkeypatch.setenv("HEADRACE_CONN_LAKE", uri)
        with pytest.raises(SinkRefusedError):
            deployment.deliver(sales)
    lake = deployment.sales(sinks=(IcebergWorld("", "reports").sink,))
    for uri in (
        f"sqlite://{tmp_path}/no/such/folder/catalog.db?warehouse={tmp_path.as_uri()}",
        f"sqlite://{tmp_path}/catalog.db?warehouse={(tmp_path / 'file').as_uri()}",
    ):
        monkeypatch.setenv("HEADRACE_CONN_LAKE", uri)
        with pytest.raises(SinkRefusedError):
            deployment.deliver(lake)


def kafka_kinds() -> list[type[kafka_errors.KafkaError]]:
    values_there = vars(kafka_errors).values()
    kinds = [one for one in values_there if isinstance(one, type) and issubclass(one, kafka_errors.KafkaError)]
    return [one for one in kinds if one is not kafka_errors.BrokerResponseError]  # what the others derive from


FOR_GOOD = (
    *("AuthenticationFailedError", "AuthenticationMethodNotSupported", "BrokerResponseError"),
    *("ClusterAuthorizationFailedError", "CommitFailedError", "DelegationTokenAuthDisabled"),
    *("DelegationTokenAuthorizationFailed", "DelegationTokenExpired", "DelegationTokenNotFound"),
    *("DelegationTokenOwnerMismatch", "DelegationTokenRequestNotAllowed", "FetchSessionIdNotFound"),
    *("GroupAuthorizationFailedError", "GroupIdNotFound", "IllegalArgumentError", "IllegalGenerationError"),
    *("IllegalSaslStateError", "IllegalStateError", "IncompatibleBrokerVersion"),
    *("InconsistentGroupProtocolError", "InvalidCommitOffsetSizeError", "InvalidConfigurationError"),
    *("InvalidFetchRequestError", "InvalidFetchSessionEpoch", "InvalidGroupIdError", "InvalidPartitionsError"),
    *("InvalidPrincipalType", "InvalidReplicationAssignmentError", "InvalidReplicationFactorError"),
    *("InvalidRequestError", "InvalidRequiredAcksError", "InvalidSessionTimeoutError"),
    *("InvalidTimestampError", "InvalidTopicError", "InvalidTransactionTimeout", "KafkaConfigurationError"),
    *("MemberIdRequired", "NoError", "NoOffsetForPartitionError", "NonEmptyGroup"),
    *("OffsetMetadataTooLargeError", "OffsetOutOfRangeError", "PolicyViolationError", "QuotaViolationError"),
    *("SaslAuthenticationFailed", "SecurityDisabled", "TopicAlreadyExistsError"),
    *("TopicAuthorizationFailedError", "TransactionalIdAuthorizationFailed", "UnknownMemberIdError"),
    *("UnrecognizedBrokerVersion", "UnsupportedCodecError", "UnsupportedForMessageFormatError"),
    *("UnsupportedSaslMechanismError", "UnsupportedVersionError"),
)
MOVED_ERRORS = ("InvalidProducerEpoch", "ProducerFenced", "TransactionCoordinatorFenced", "UnknownError")
TOO_LARGE = ("MessageSizeTooLargeError", "RecordListTooLargeError", "RecordTooLargeError")


@pytest.mark.parametrize("kind", kafka_kinds(), ids=lambda kind: kind.__name__)
def test_each_error_of_kafka_says_whether_to_try_again(kind: type[kafka_errors.KafkaError]) -> None:
    """All that the client knows: a new one of its is passing or for good by what the client says."""
    expected: Kind = SinkUnreachableError
    for names, error in ((FOR_GOOD, SinkRefusedError), (MOVED_ERRORS, SinkMovedError), (TOO_LARGE, UndeliverableError)):
        expected = error if kind.__name__ in names else expected
    kafka_connection = connection("events", {"HEADRACE_CONN_EVENTS": "kafka://127.0.0.1"})
    with pytest.raises(HeadraceError) as error_info, translate_errors(kafka_connection):
        raise kind.__new__(kind)
    assert type(error_info.value) is expected
