"""Records as changes: their signs, envelopes, dead letters, late withdrawals, duplicates (semantics 14)."""

import json
import math
from base64 import b64encode
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import md5
from typing import Any
from uuid import UUID

import pytest

import headrace as hr
from headrace import col
from headrace.model.changelog import DebeziumEnvelope
from headrace.sources.changelogs import with_one_row
from headrace.testing import end, rows, run, watermark
from headrace.testing.pipeline_run import EXECUTORS, Executor

SCHEMA: dict[str, Any] = {"id": int, "shop": str, "amount": int, "at": datetime}


def time_at(minute: int) -> datetime:
    return datetime(2026, 1, 1, 10, minute, tzinfo=UTC)


def row(number: int, shop: str | None, amount: int, minute: int = 1) -> dict[str, Any]:
    return {"id": number, "shop": shop, "amount": amount, "at": time_at(minute)}


def build(changelog: Any, schema: dict[str, Any] = SCHEMA, **parts: Any) -> hr.Pipeline:
    source = hr.json("landing/orders", schema, changelog=changelog).event_time("at", bound="0s")
    parts = {"where": hr.FixedWindows("1h"), "when": hr.on_update(), "how": hr.retracting("1h"), **parts}
    return hr.Pipeline("orders", source, key="shop", what={"n": hr.count(), "total": col("amount").sum()}, **parts)


def current(result: hr.testing.Result) -> dict[str, tuple[int, int]]:
    return {pane.key["shop"]: (pane.values["n"], pane.values["total"]) for pane in result.current}


DEBEZIUM = build(hr.debezium_envelope())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_update_is_two_changes_each_judged_by_itself(executor: Executor) -> None:
    steps = [
        rows({"op": "c", "before": None, "after": row(1, "a", 5)}, {"op": "r", "after": row(2, "a", 7)}),
        rows({"op": "u", "before": row(2, "a", 7), "after": row(2, None, 8)}),
        rows({"op": "u", "before": row(2, None, 8), "after": row(2, "b", 9)}),
    ]
    result = run(DEBEZIUM, steps, executor=executor)
    assert current(result) == {"a": (1, 5), "b": (1, 9)}
    texts = [(letter["position"], letter["reason"], json.loads(letter["raw"])) for letter in result.rejected]
    of_nobody = json.loads(json.dumps(row(2, None, 8), default=str).replace(" 10:", "T10:"))
    assert texts == [
        (0, "key is null: shop", {"op": "c", "before": None, "after": of_nobody}),
        (0, "key is null: shop", {"op": "d", "before": of_nobody, "after": None}),
    ]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_envelopes_that_say_nothing_are_dead_letters(executor: Executor) -> None:
    old = ": the database must send old rows (in PostgreSQL ALTER TABLE ... REPLICA IDENTITY FULL)"
    wrong = {
        '{"op": "t"}': "op is none of c, r, u, d",
        '{"before": null}': "op is none of c, r, u, d",
        '{"op": "u", "before": null, "after": {"id": 1}}': f"before is null, which op u and d need{old}",
        '{"op": "d", "before": {"id": null}, "after": null}': f"before is null, which op u and d need{old}",
        '{"op": "c", "before": null}': "after is null, which op c and r and u need",
        '{"op": "c", "after": {"id": "x"}}': "column after.id: not an int",
        '{"op": "c", "after": 3}': "column after.id: after is not an object",
        "null": "not a JSON object",
    }
    result = run(DEBEZIUM, [rows(*wrong)], executor=executor)
    assert {letter["raw"]: letter["reason"] for letter in result.rejected} == wrong
    assert current(result) == {}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_signs_of_an_expression(executor: Executor) -> None:
    signed_pipeline = build("sign", {**SCHEMA, "sign": int})
    changes = [{**row(1, "a", number), "sign": sign} for number, sign in enumerate([1, 1, -1, None, 0, 2])]
    result = run(signed_pipeline, [rows(*changes)], executor=executor)
    assert current(result) == {"a": (1, -1)}
    assert [(letter["position"], letter["reason"]) for letter in result.rejected] == [
        (position, "its sign is neither 1 nor -1") for position in (3, 4, 5)
    ]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_late_changes_are_dropped_and_shown_whatever_their_sign(executor: Executor) -> None:
    delta = build(hr.delta_change_type())
    steps = [
        rows({"_change_type": "insert", **row(1, "a", 5)}),
        watermark("2026-01-01T12:00:00Z"),
        watermark("2026-01-01T12:00:00.000001Z"),
        rows({"_change_type": "update_preimage", **row(1, "a", 5)}, {"_change_type": "insert", **row(2, "a", 1)}),
    ]
    result = run(delta, steps, executor=executor)
    assert current(result) == {"a": (1, 5)}
    assert [late["reason"] for late in result.late] == ["withdrawal: window expired", "window expired"]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_infinity_is_taken_back_by_a_record_whose_other_values_differ(executor: Executor) -> None:
    schema = {"shop": str, "n": int, "x": str, "sign": int, "at": datetime}
    x = col("x").cast(float)
    what = {"n": col("n").sum(), "sum": x.sum(), "mean": x.mean(), "spread": x.variance()}
    source = hr.json("landing/orders", schema, changelog=col("sign")).event_time("at", bound="0s")
    orders = hr.Pipeline(
        "orders", source, key="shop", what=what, when=hr.on_update(), how=hr.retracting("1h"), where=hr.GlobalWindows()
    )

    def change(sign: int, n: int, x: str, shop: str = "a") -> dict[str, Any]:
        return {"shop": shop, "n": n, "x": x, "sign": sign, "at": time_at(1)}

    changes = [change(1, 8, "inf"), change(1, 8, "inf"), change(1, 1, "2"), change(-1, 3, "inf")]
    finite = [change(1, 8, "inf", "b"), change(1, 1, "2", "b"), change(1, 1, "4", "b"), change(-1, 3, "inf", "b")]
    values = {
        pane.key["shop"]: pane.values for pane in run(orders, [rows(*changes, *finite)], executor=executor).current
    }
    assert [values["a"][name] for name in ("n", "sum", "mean")] == [14, math.inf, math.inf]
    assert math.isnan(values["a"]["spread"])
    assert values["b"] == {"n": 7, "sum": 6.0, "mean": 3.0, "spread": 1.0}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_ids_are_told_apart_by_sign(executor: Executor) -> None:
    schema = {**SCHEMA, "lsn": hr.field("source.lsn", int)}
    deduplicated_pipeline = build(hr.debezium_envelope(shared=["lsn"]), schema, deduplicate=hr.Deduplicate("lsn", "1d"))
    steps = [
        rows({"op": "c", "after": row(1, "a", 5), "source": {"lsn": 1}}),
        rows(*[{"op": "u", "before": row(1, "a", 5), "after": row(1, "a", 6), "source": {"lsn": 2}}] * 2),
        rows({"op": "c", "after": row(1, "a", 5), "source": {"lsn": 1}}),
    ]
    assert current(run(deduplicated_pipeline, steps, executor=executor)) == {"a": (1, 6)}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_rows_of_a_snapshot_share_a_position_and_are_told_apart_by_their_key(executor: Executor) -> None:
    schema = {**SCHEMA, "lsn": hr.field("source.lsn", int)}
    change_id = hr.concat(col("lsn").cast(str), "/", col("id").cast(str))
    deduplicated_pipeline = build(
        hr.debezium_envelope(shared=["lsn"]), schema, deduplicate=hr.Deduplicate(change_id, "1d")
    )
    snapshot = [{"op": "r", "after": row(number, "a", number), "source": {"lsn": 7}} for number in (1, 2, 3)]
    changes: list[dict[str, Any]] = [
        {"op": "d", "before": row(2, "a", 2), "after": None, "source": {"lsn": 8}},
        {"op": "c", "before": None, "after": row(9, "a", 20), "source": {"lsn": 8}},  # its key has changed
        {"op": "u", "before": row(3, "a", 3), "after": row(3, "b", 4), "source": {"lsn": 9}},
    ]
    steps = [rows(*snapshot), rows(*changes, *snapshot), rows(*changes)]
    assert current(run(deduplicated_pipeline, steps, executor=executor)) == {"a": (2, 21), "b": (1, 4)}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_input_without_a_changelog_adds(executor: Executor) -> None:
    more = hr.json("landing/more", SCHEMA).event_time("at", bound="0s").named("more")
    both = build(hr.delta_change_type(), union=[more])
    steps = [
        rows({"_change_type": "insert", **row(1, "a", 5)}),
        rows(row(2, "a", 3), of="more"),
        rows({"_change_type": "delete", **row(1, "a", 5)}),
        end(),
    ]
    assert current(run(both, steps, executor=executor)) == {"a": (1, 3)}


@pytest.mark.parametrize(
    ("path_within", "text", "sign", "expected"),
    [
        ((), b'{"op":"u","before":{"a":1.10},"after":{"a":2e400}}', -1, b'{"op":"d","before":{"a":1.10},"after":null}'),
        (
            (),
            b'{ "after" : {"op":"x"} ,\t"before":null,"op" : "u"}',
            1,
            b'{ "after" : {"op":"x"} ,\t"before":null,"op" : "c"}',
        ),
        (
            ("payload",),
            '{"before":1,"payload":{"o\\u0070":"u","before":{"ä":[{"op":1}]},"after":{}},"op":"u"}'.encode(),
            1,
            b'{"before":1,"payload":{"o\\u0070":"c","before":null,"after":{}},"op":"u"}',
        ),
        (("payload",), b'{"before":1}', 1, b'{"before":1}'),
        ((), b'{"op":"d","op":"u","before":{},"after":{}}', -1, b'{"op":"d","op":"d","before":{},"after":null}'),
        ((), b"{}", 1, b"{}"),
    ],
)
def test_one_row_of_an_envelope_keeps_its_bytes(
    path_within: tuple[str, ...], text: bytes, sign: int, expected: bytes
) -> None:
    assert with_one_row(DebeziumEnvelope(path_within), text, sign) == expected


@pytest.mark.parametrize("executor", EXECUTORS)
def test_versions_go_by_a_number_in_text_as_a_number_if_its_type_is_one(executor: Executor) -> None:
    """Oracle's position in its log, which Debezium writes as text, gets another digit."""
    versions = hr.debezium_versions("source.ts_ms", key="id", order=hr.field("source.scn", Decimal))
    source = hr.json("landing/customers", {"id": int, "shop": str}, versions=versions)
    newest = hr.Pipeline(
        "customers", source.event_time("changed_at", bound="1h"), key="id", take=hr.newest(), rows=["shop"]
    )
    envelopes = [
        {"op": "u", "before": None, "after": {"id": 1, "shop": shop}, "source": {"scn": scn, "ts_ms": 1777626000000}}
        for scn, shop in (("12345678901234567890", "c"), ("999", "a"), ("1000", "b"))
    ]
    result = run(newest, [rows(*envelopes)], executor=executor)
    assert [pane.values["shop"] for pane in result.current] == ["c"]
    result = run(newest, [rows(*envelopes[1:])], executor=executor)
    assert [pane.values["shop"] for pane in result.current] == ["b"]


PLACEHOLDER = "__debezium_unavailable_value"
LARGE_VALUES: dict[str, tuple[Any, Any, Any]] = {
    "a text": (str, "large", PLACEHOLDER),
    "bytes": (bytes, "bGFyZ2U=", b64encode(PLACEHOLDER.encode()).decode()),
    "a list": (list[str], ["large", PLACEHOLDER], [PLACEHOLDER]),
    "a list of bytes": (list[bytes], ["bGFyZ2U="], [b64encode(PLACEHOLDER.encode()).decode()]),
    "a list of UUIDs": (list[str], ["large"], [str(UUID(bytes=md5(PLACEHOLDER.encode()).digest(), version=3))]),
    "a list of numbers": (list[int], [*range(len(PLACEHOLDER))], [*PLACEHOLDER.encode()]),
    "a map": (dict[str, str], {"a": PLACEHOLDER}, {PLACEHOLDER: PLACEHOLDER}),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("name", LARGE_VALUES)
def test_a_large_value_that_the_database_did_not_send_makes_a_dead_letter(name: str, executor: Executor) -> None:
    kind, large_value, placeholder = LARGE_VALUES[name]
    schema: dict[str, Any] = {"id": int, "note": kind, "at": datetime}

    def envelope(op: str, old_note: Any, new_note: Any) -> dict[str, Any]:
        notes = {"before": old_note, "after": new_note}
        images = {row: note and {"id": 1, "note": note, "at": time_at(1)} for row, note in notes.items()}
        return {"op": op, **images}

    changes = hr.json("landing/orders", schema, changelog=hr.debezium_envelope()).event_time("at", bound="1h")
    versions = hr.json("landing/orders", schema, versions=hr.debezium_versions("source.ts_ms", key="id"))
    rows_pipeline = hr.Pipeline("orders", changes, rows=["note"])
    newest = hr.Pipeline(
        "orders", versions.event_time("changed_at", bound="1h"), key="id", take=hr.newest(), rows=["note"]
    )
    creation, update = envelope("c", None, large_value), envelope("u", placeholder, placeholder)
    position = {"source": {"lsn": 1, "ts_ms": 1777626000000}}
    for pipeline, more, column in ((rows_pipeline, {}, "before.note"), (newest, position, "note")):
        result = run(pipeline, [rows({**creation, **more}, {**update, **more})], executor=executor)
        assert len(result.current) == 1
        (letter,) = result.rejected
        assert letter["reason"].startswith(f"column {column} is {PLACEHOLDER}: ")
