"""Fingerprints of format 1 stay as they are: state that is stored under one must be found under it for ever.

If a test fails here, stored state of users would be lost to them: mend the code, not ``golden/fingerprints-1.json``.
New pipelines may be added to it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.model.arguments import WORDS
from headrace.model.event_time import EventTime, FromSource, Monotonic
from headrace.pipeline.identity import fingerprint, pipeline_meaning
from headrace.pipeline.loading.registry import resolve_pipeline
from tests.own_combiners import Longest
from tests.own_triggers import Jump
from tests.own_windows import Validity

GOLDEN = Path(__file__).parent / "golden" / "fingerprints-1.json"
SHIPPED_FOLDER = Path(__file__).resolve().parents[2] / "jobs" / "pipelines"
SOURCE = hr.json("landing/clicks", {"user": str, "at": datetime, "amount": int, "share": float, "end": bool})
CLICKS = SOURCE.event_time("at", bound="5m")
HOURLY = hr.FixedWindows("1h")
MORE = hr.csv("landing/more", {"who": str, "at": datetime}).event_time("at", watermark=hr.Punctuated("at", "1h"))
BY_WORDS = hr.BatchFunction("parsing:words", {"user": str, "tags": list[str], "at": datetime}, deterministic=True)
FLAT = hr.SparkFunction("parsing:flat", {"user": str, "at": datetime}, deterministic=True, package="anywhere")


def build(source: hr.Input = CLICKS, **parts: Any) -> hr.Pipeline:
    return hr.Pipeline("clicks", source, **{"key": "user", "what": {"n": hr.count()}, "where": HOURLY, **parts})


def when(trigger: hr.Trigger) -> hr.Pipeline:
    return build(when=hr.Repeatedly(trigger))


def pipeline_of(aggregate: hr.Aggregate) -> hr.Pipeline:
    return build(what={"found": aggregate})


def loop(given_loop: hr.Loop, **parts: Any) -> hr.Pipeline:
    links = hr.json("landing/links", {"a": int, "b": int, "w": int, "at": datetime}).event_time("at", bound="5m")
    return hr.Pipeline("links", links, **{"key": ["a", "b"], "loop": given_loop, "where": HOURLY, **parts})


def changes(changelog: Any) -> hr.Pipeline:
    return build(replace(CLICKS, source=replace(SOURCE, changelog=changelog)))


RATES = hr.json("landing/rates", {"name": str, "rate": int, "seq": int, "on": datetime}).event_time("on", bound="1m")
RATES = RATES.named("rates")


def joining(*joins: hr.types.Join) -> hr.Pipeline:
    return build(join=joins, how=hr.retracting("1h"))


def versions(versioning: Any, column: str = "at") -> hr.Pipeline:
    source = replace(SOURCE, versions=versioning.ordered_by(None))
    return hr.Pipeline("clicks", source.event_time(column, bound="5m"), key="user", take=hr.newest())


def taking(take: Any, **parts: Any) -> hr.Pipeline:
    return hr.Pipeline("clicks", CLICKS, key="user", take=take, **parts)


NUMBER, TEXT = col("amount"), col("user")
PIPELINES: dict[str, Callable[[], hr.Pipeline]] = {
    **{
        file.stem: (lambda file=file: resolve_pipeline(str(file)))
        for file in sorted([*SHIPPED_FOLDER.glob("[!_]*.py"), *SHIPPED_FOLDER.glob("scenarios/[!_]*.py")])
    },
    "plain": build,
    "no key": lambda: build(key=None),
    "two keys": lambda: build(key=["user", "amount"]),
    "NULL as a key": lambda: build(null_keys=True),
    "rows of a group whose key may be NULL": lambda: taking(hr.newest(), null_keys=True),
    "filtered": lambda: build(filter=(NUMBER > 3) & ~col("end")),
    "fixed, shifted, phased": lambda: build(where=hr.FixedWindows("1h", "5m", NUMBER % 60) , key="amount"),
    "sliding": lambda: build(where=hr.SlidingWindows("1h", "10m", "1m")),
    "sessions": lambda: build(where=hr.Sessions("30m")),
    "sessions that touch": lambda: build(where=hr.Sessions("30m", touching_merges=True)),
    "quarters": lambda: build(where=hr.CalendarWindows("month", "Europe/Berlin", 3)),
    "global": lambda: build(where=hr.GlobalWindows(), when=hr.Repeatedly(hr.AfterCount(10))),
    "shifted output time": lambda: build(where=hr.ShiftedOutputTime(HOURLY, "2h")),
    "own windows": lambda: build(where=Validity(8)),
    "early and late": lambda: build(when=hr.AfterWatermark(early=hr.AfterCount(3), late=hr.AfterCount(1))),
    "bytes": lambda: when(hr.AfterBytes(1000)),
    "processing time": lambda: when(hr.AfterProcessingTime("5m", align="1h", align_offset="10m")),
    "synchronized": lambda: when(hr.AfterSynchronizedProcessingTime()),
    "punctuation": lambda: when(hr.AfterPunctuation(col("end"))),
    "pattern": lambda: when(hr.AfterPattern("ab*", {"a": NUMBER > 9, "b": NUMBER > 5})),
    "percentile": lambda: when(hr.AfterPercentileWatermark(95)),
    "signal": lambda: when(hr.AfterSignal("go")),
    "data driven": lambda: when(hr.DataDriven({"total": NUMBER.sum()}, col("total") > 100)),
    "always": lambda: build(when=hr.Always()),
    "never": lambda: build(when=hr.Never()),
    "composed": lambda: build(
        when=hr.AfterEach(hr.AfterAny(hr.AfterCount(1), hr.AfterCount(2)), hr.AfterAll(hr.AfterCount(3), hr.Always()),
                          hr.OrFinally(hr.Repeatedly(hr.AfterCount(1)), hr.AfterWatermark()), hr.Default())
    ),
    "own trigger": lambda: when(Jump(3, "amount")),
    "discarding": lambda: build(how=hr.discarding("1d", on_time="if_non_empty", closing="always", timestamp="latest")),
    "accumulating": lambda: build(how=hr.accumulating(None)),
    "the last ones": lambda: build(how=hr.accumulating("0s", keep_last=5)),
    "elided": lambda: build(how=hr.retracting("1d", elide_unchanged=True)),
    **{name: (lambda name=name: pipeline_of(getattr(NUMBER, name)())) for name in (
        "count", "sum", "min", "max", "mean", "variance", "first", "last", "collect", "distinct", "approx_distinct",
    )},
    "top": lambda: pipeline_of(NUMBER.top(3)),
    "quantile": lambda: pipeline_of(NUMBER.quantile(0.9)),
    "quantiles": lambda: pipeline_of(NUMBER.quantiles([0.5, 0.9])),
    "distinct sketch": lambda: pipeline_of(TEXT.distinct_sketch()),
    "quantile sketch": lambda: pipeline_of(NUMBER.quantile_sketch()),
    "max by": lambda: pipeline_of(TEXT.max_by(NUMBER)),
    "min by": lambda: pipeline_of(TEXT.min_by(NUMBER)),
    "list by": lambda: pipeline_of(TEXT.list_agg(3, NUMBER)),
    "map": lambda: pipeline_of(TEXT.map_agg(NUMBER)),
    "all": lambda: pipeline_of((NUMBER > 3).bool_and()),
    "one": lambda: pipeline_of((NUMBER > 3).bool_or()),
    "mode": lambda: pipeline_of(TEXT.mode()),
    "pairs": lambda: pipeline_of(NUMBER.pairs(TEXT)),
    "outer pairs": lambda: pipeline_of(NUMBER.pairs(TEXT, outer="both")),
    "own combiner": lambda: pipeline_of(TEXT.combine(Longest())),
    "splits": lambda: build(SOURCE.event_time("at", bound="5m", idle="10m", split="user", max_ahead=None)),
    "monotonic": lambda: build(hr.Input(SOURCE, EventTime(col("at"), Monotonic()))),
    "another pipeline": lambda: build(
        hr.published("delays.hourly", {"user": str, "amount": int}, root="s3://other/root/"), what={"n": hr.count()}
    ),
    "from source": lambda: build(hr.Input(SOURCE, EventTime(col("at"), FromSource()))),
    "arrival": lambda: build(SOURCE.arrival_time()),
    "several inputs": lambda: build(union=[MORE.named("more", columns={"user": col("who")})]),
    "deduplicated": lambda: build(deduplicate=hr.Deduplicate("user", "1d")),
    "Spark code": lambda: build(replace(CLICKS, source=replace(SOURCE, transform=FLAT))),
    "Python over batches": lambda: build(replace(CLICKS, source=replace(SOURCE, transform=BY_WORDS))),
    "Python over panes": lambda: build(then=[hr.Aggregation(
        key="user", what={"users": hr.count()}, where=hr.FixedWindows("1d"), transform=BY_WORDS,
    )]),
    "Python over another pipeline": lambda: build(
        hr.published("delays.hourly", {"amount": int}, transform=BY_WORDS), what={"n": hr.count()}
    ),
    "exploded": lambda: build(hr.json(
        "landing/clicks", {"user": list[str], "at": datetime}, explode="user",
    ).event_time("at", bound="5m")),
    "exploded objects": lambda: build(hr.json(
        "landing/clicks", {"user": hr.field("visits.user", str), "at": datetime}, explode="visits",
    ).event_time("at", bound="5m")),
    "structs and maps": lambda: hr.Pipeline("clicks", hr.json(
        "landing/clicks", {"user": str, "at": datetime, "where": {"city": str, "tags": dict[str, list[int]]}},
    ).event_time("at", bound="5m"), rows=["user", "where"]),
    "parts of structs and maps": lambda: hr.Pipeline("clicks", hr.json(
        "landing/clicks", {"user": str, "at": datetime, "where": {"city": str, "tags": dict[str, int]}},
    ).event_time("at", bound="5m"), rows={"n": col("where").field("tags").item("a")},
        filter=col("where").field("city") == "Oslo"),
    "columns of results": lambda: build(what={"n": hr.count(), "total": NUMBER.sum(), "each": col("total") / col("n")}),
    "having": lambda: build(having=(col("n") > 3) & col("window_start").is_not_null()),
    "fields": lambda: build(hr.json("landing/clicks", {
        "user": hr.field("who.name", str), "at": hr.field("_at", datetime), "tags": list[str],
    }).event_time("at", bound="5m"), filter=col("tags").contains("x")),
    "dialect of CSV": lambda: build(hr.csv(
        "landing/clicks", {"user": str, "at": datetime}, delimiter=";", quote=None, encoding="latin-1", skip_lines=2,
        nulls=["NA", "-"], decimal=",", thousands=".",
    ).event_time("at", bound="5m")),
    "components": lambda: loop(hr.Loop(start=col("vertex"), step=col("value"), combine="least", both_ways=True)),
    "distances": lambda: loop(
        hr.Loop(start=hr.if_else(col("vertex") == 0, 0, None), step=col("value") + col("w"), combine="least",
                rounds=None),
        filter=col("w") > 0, what={"far": col("value") * 2},
    ),
    "signed": lambda: changes(hr.if_else(col("end"), -1, 1)),
    "Delta's changes": lambda: changes(hr.delta_change_type()),
    "Debezium's changes": lambda: changes(hr.debezium_envelope()),
    "Debezium's changes with a position": lambda: changes(hr.debezium_envelope(within="payload", shared=["amount"])),
    "versions": lambda: versions(hr.upserts("user", "amount", deleted=col("end"))),
    "versions in files": lambda: versions(hr.upserts(["user"])),
    "Debezium's versions": lambda: versions(hr.debezium_versions("ts_ms", key="user", within="payload"), "changed_at"),
    "Debezium's versions in another order": lambda: versions(
        hr.debezium_versions("source.ts_us", key="user", order=hr.field("source.scn", str)), "changed_at"
    ),
    "versions of a topic": lambda: hr.Pipeline(
        "clicks",
        hr.kafka("clicks", {"user": str, "at": datetime}, connection="events", versions=hr.upserts("user")).event_time(
            "at", bound="5m"
        ),
        key="user",
        take=hr.newest(),
    ),
    "newest rows": lambda: taking(hr.newest("amount", deleted=col("end"))),
    "top rows": lambda: taking(hr.top(3, by=-NUMBER), where=hr.FixedWindows("1d"), rows=["amount"]),
    "rows that wait": lambda: hr.Pipeline("clicks", build().input, rows=["amount"], when=hr.on_window_close()),
    "distinct rows": lambda: taking(hr.distinct(), how=hr.discarding()),
    "the version that held": lambda: joining(hr.as_of(
        RATES, {"user": "name"}, columns={"price": "rate"}, max_age="2d", order="seq", deleted=col("rate") < 0,
        where=col("rate") != 7, outer=True, lateness="1h",
    )),
    "all versions": lambda: joining(hr.as_of(RATES, {"user": "name"})),
    "a join that is spread": lambda: joining(hr.as_of(RATES, {"user": "name"}, spread=16)),
    "an interval, then a window": lambda: joining(
        hr.within(RATES, {"user": "name"}, between=("-1h", "1h"), columns=["rate"]),
        hr.same_window(replace(RATES, name="more"), {"user": "name"}, window=hr.FixedWindows("1h"), columns=["seq"]),
    ),
    "the next event": lambda: joining(hr.next_event(RATES, {"user": "name"}, within="1d", columns=["rate"])),
    "a lookup": lambda: joining(hr.lookup(RATES.source.arrival_time().named("rates"), {"user": "name"}, order="seq")),
    "outputs that are joined": lambda: hr.Pipeline("clicks", CLICKS, outputs={
        "all": hr.Rows(["user", "amount"]), "ends": hr.Rows(["user", "share"], filter=col("end")),
        "ended": hr.Rows(["user", "share"], of="all", join=[hr.as_of("ends", "user", lateness="1h", outer=True)]),
    }),
    "rows of a function": lambda: taking(hr.function("scoring:visits", {"score": int, "event_time": datetime})),
    "structs and maps of a function": lambda: taking(hr.function(
        "scoring:visits", {"tags": dict[str, int], "place": {"city": str}, "words": list[str], "event_time": datetime},
    )),
    "rows of a query": lambda: taking(hr.query("select amount, event_time from rows"), rows=["amount"]),
    "a chain": lambda: build(then=[hr.Aggregation(key="n", what={"users": hr.count()}, where=hr.FixedWindows("1d"))]),
}  # fmt: skip


@pytest.mark.parametrize("name", PIPELINES)
def test_fingerprints_of_format_1_stay(name: str) -> None:
    golden = json.loads(GOLDEN.read_text())[name]
    pipeline = PIPELINES[name]()
    assert json.loads(json.dumps(pipeline_meaning(pipeline))) == golden["meaning"]
    assert fingerprint(pipeline) == golden["fingerprint"]


def test_every_word_is_held_by_one_of_them() -> None:
    text = GOLDEN.read_text()
    left = [word.name for word in WORDS.values() if f'"is": "{word.name}"' not in text]
    assert left == []


def test_what_is_computed_otherwise_has_another_fingerprint() -> None:
    digests = [entry["fingerprint"] for entry in json.loads(GOLDEN.read_text()).values()]
    assert len({*digests}) == len(digests)


@dataclass(frozen=True)
class Longest2(Longest):
    """Another name: another computation."""


def test_own_objects_go_by_their_class() -> None:
    assert fingerprint(pipeline_of(TEXT.combine(Longest2()))) != fingerprint(pipeline_of(TEXT.combine(Longest())))


@pytest.mark.parametrize(
    "same",
    [
        lambda: build(description="x", schedule="@daily", executor="local"),
        lambda: build(backfill=hr.Backfill("@daily", last="7d"), retention=hr.Retention(keep_last=5)),
        lambda: build(expectations=[hr.expect("column_values_to_not_be_null", column="n")]),
        lambda: build(key={"user": col("user")}),
        lambda: build(when=hr.Default(), how=hr.retracting("0s")),
        lambda: build(where=hr.FixedWindows("60 minutes", offset="0s")),
        lambda: build(replace(CLICKS, source=replace(SOURCE, max_files=3, max_rejected=0, suffixes=(".json",)))),
    ],
)
def test_what_decides_nothing_counts_nothing(same: Callable[[], hr.Pipeline]) -> None:
    assert fingerprint(same()) == fingerprint(build())


def test_short_triggers_are_the_long_ones() -> None:
    long = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
    assert hr.on_update() == long
    assert hr.on_window_close() == hr.Default()
    assert fingerprint(build(when=hr.on_update())) == fingerprint(build(when=long))
    assert fingerprint(build(when=hr.on_window_close())) == fingerprint(build())
