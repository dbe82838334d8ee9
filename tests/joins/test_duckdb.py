"""A second opinion: after each run of a random history what stands is what DuckDB joins of all that has landed. Rows
are late, tie, are there several times, are withdrawn, and have no key; none is too late.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import Input, col
from tests.joins.trades import RATES, SIGNED_RATES, TRADES, Trades, rate, trade
from tests.reading import zoneless_rows
from tests.reference.strategies import examples

_FOREVER: Final = "30d"
_MINUTES = st.integers(0, 15).map(lambda number: 5 * number)  # few, so that rows tie and stand at ends of intervals
_CURRENCIES = st.sampled_from(["usd", "usd", "usd", "eur", None])
_DELETIONS = st.sampled_from([None, False, False, True])
_TRADE = st.builds(trade, st.sampled_from("abc"), _MINUTES, _CURRENCIES, st.integers(-2, 2))
_RATE = st.builds(
    rate, _MINUTES, st.integers(0, 5), _CURRENCIES, seq=st.none() | st.integers(0, 2), gone=_DELETIONS, sign=st.just(1)
)
_RUN = st.tuples(
    st.lists(_TRADE, min_size=1, max_size=8),
    st.lists(_RATE, min_size=3, max_size=10),
    st.lists(st.integers(0, 99), max_size=2),
)  # and which of the rates that stand are withdrawn
_HISTORY = st.lists(_RUN, min_size=2, max_size=4)


@dataclass(frozen=True)
class Kind:
    """A join as it is written here, and in SQL: what trades ``t`` are joined with, and whether a row ``r`` counts."""

    make: Callable[..., hr.types.Join]
    joined: str
    counts: str


KINDS: Final = {
    "as_of": Kind(
        lambda right, **options: hr.as_of(right, "ccy", order="seq", deleted=col("gone"), **options),
        "ASOF LEFT JOIN versions r ON t.ccy = r.ccy AND r.ts <= t.ts",
        "r.gone IS NOT TRUE",
    ),
    "as_of_max_age": Kind(
        lambda right, **options: hr.as_of(right, "ccy", order="seq", max_age="10m", **options),
        "ASOF LEFT JOIN events r ON t.ccy = r.ccy AND r.ts <= t.ts",
        "r.ts >= t.ts - INTERVAL 10 MINUTES",
    ),
    "next_event": Kind(
        lambda right, **options: hr.next_event(right, "ccy", order="seq", within="10m", **options),
        "ASOF LEFT JOIN events r ON t.ccy = r.ccy AND r.ts >= t.ts",
        "r.ts <= t.ts + INTERVAL 10 MINUTES",
    ),
    "within": Kind(
        lambda right, **options: hr.within(right, "ccy", between=("-5m", "10m"), **options),
        "LEFT JOIN net r ON t.ccy = r.ccy AND r.ts BETWEEN t.ts - INTERVAL 5 MINUTES AND t.ts + INTERVAL 10 MINUTES",
        "TRUE",
    ),
    "same_window": Kind(
        lambda right, **options: hr.same_window(right, "ccy", window=hr.FixedWindows("20m"), **options),
        "LEFT JOIN net r ON t.ccy = r.ccy "
        "AND time_bucket(INTERVAL 20 MINUTES, r.ts) = time_bucket(INTERVAL 20 MINUTES, t.ts)",
        "TRUE",
    ),
}

_JOIN_SQL: Final = """
    CREATE OR REPLACE TEMP VIEW joined AS
    WITH counted AS (
        SELECT ccy, rate, seq, gone, ts, sum(sign)::BIGINT AS number FROM rates GROUP BY ALL HAVING number > 0
    ), net AS (
        SELECT * EXCLUDE number, unnest(range(number)) FROM counted
    ), versions AS (
        FROM net QUALIFY row_number() OVER (
            PARTITION BY ccy, ts ORDER BY seq DESC NULLS LAST, coalesce(gone, FALSE) DESC, rate DESC
        ) = 1
    ), events AS (
        FROM net QUALIFY row_number() OVER (PARTITION BY ccy, ts ORDER BY seq DESC NULLS LAST, rate DESC) = 1
    ), met AS (
        SELECT t.*, r.rate, coalesce(r.ts IS NOT NULL AND {counts}, FALSE) AS counts FROM trades t {joined}
    )
    SELECT id, ccy, ts, amount, if(counts, rate, NULL) AS rate FROM met WHERE counts OR {outer}
"""
_ROWS: Final = "SELECT id, ts AS event_time, rate FROM joined"
_HOURLY: Final = """
    SELECT
        ccy, time_bucket(INTERVAL 1 HOUR, ts) AS window_start, count(*) AS rows,
        coalesce(sum(amount * rate), 0)::BIGINT AS total
    FROM joined WHERE ccy IS NOT NULL GROUP BY ALL
"""


def trades_with_rates(join: hr.types.Join) -> hr.Pipeline:
    """Trades with what they meet: each, and their sums by the hour."""
    return hr.Pipeline(
        "rated",
        TRADES,
        join=[join],
        outputs={
            "rows": hr.Rows(["id", "rate"]),
            "hourly": hr.Output(
                key="ccy",
                what={"rows": hr.count(), "total": (col("amount") * col("rate")).sum()},
                where=hr.FixedWindows("1h"),
                when=hr.on_update(),
                how=hr.retracting(_FOREVER),
            ),
        },
        executor="local",
    )


@dataclass
class DuckDB:
    """All that has landed, in tables."""

    connection: duckdb.DuckDBPyConnection

    @classmethod
    def empty(cls) -> "DuckDB":
        connection = duckdb.connect()
        connection.execute("CREATE TABLE trades (id VARCHAR, ccy VARCHAR, amount BIGINT, ts TIMESTAMP)")
        connection.execute(
            "CREATE TABLE rates (ccy VARCHAR, rate BIGINT, seq BIGINT, gone BOOLEAN, ts TIMESTAMP, sign BIGINT)"
        )
        return cls(connection)

    def add(self, table: str, records: list[dict[str, Any]]) -> None:
        for record in records:
            names = ["ts" if name == "at" else name for name in record]
            insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
            self.connection.execute(insert, [*record.values()])

    def answer(self, kind: Kind, outer: bool, query: str) -> tuple[list[str], Counter[tuple[Any, ...]]]:
        """The columns of ``query`` over joined trades, and its rows."""
        self.connection.execute(_JOIN_SQL.format(joined=kind.joined, counts=kind.counts, outer=outer))
        result = self.connection.execute(query)
        return [name for name, *_ in result.description], Counter(result.fetchall())


def withdrawn(standing: list[dict[str, Any]], places: list[int]) -> list[dict[str, Any]]:
    """The withdrawals of the rates at ``places``, which stand no more."""
    return [{**standing.pop(place % len(standing)), "sign": -1} for place in places if standing]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(_HISTORY, st.booleans(), st.booleans())
@settings(examples(60, fewest=3), suppress_health_check=list(HealthCheck))
def test_what_stands_is_what_duckdb_joins(
    tmp_path_factory: pytest.TempPathFactory, kind: Kind, history: list[Any], outer: bool, is_signed: bool
) -> None:
    right: Input = SIGNED_RATES if is_signed else RATES
    pipeline = trades_with_rates(kind.make(right, columns=["rate"], outer=outer, lateness=_FOREVER))
    trades, landed_tables = Trades(tmp_path_factory.mktemp("duckdb")), DuckDB.empty()
    standing: list[dict[str, Any]] = []
    for new_trades, new_rates, places in history:
        standing += new_rates
        rates = new_rates + (withdrawn(standing, places) if is_signed else [])
        landed_tables.add("trades", new_trades)
        landed_tables.add("rates", rates)
        trades.run(pipeline, trades=new_trades, rates=rates)
        for output, query in (("rows", _ROWS), ("hourly", _HOURLY)):
            reader = trades.handle(pipeline)[output]
            columns, expected = landed_tables.answer(kind, outer, query)
            table = reader.current(columns=columns).to_arrow()
            assert Counter(tuple(row.values()) for row in zoneless_rows(table)) == expected
            assert reader.late().count() == 0
