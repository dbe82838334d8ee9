"""Nothing in flight, or who waits for whom: on real deployments, in one root and in three."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import col
from tests.lineage.test_lineage import chain_in
from tests.process.chains import CLICKS, FINE, Chain
from tests.process.fragile import Fragile

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def waits_of(chain: Chain, *, is_known: bool = True, now: datetime = NOW) -> hr.types.DeploymentWaits:
    return hr.open(chain.folders[2].as_uri()).waits(chain.made if is_known else (), now=now)


def waiting_pairs(waits: hr.types.DeploymentWaits) -> set[tuple[str, str]]:
    """Which pipeline waits for what, as far as it is in flight."""
    return {(wait.pipeline.name, wait.kind.value) for wait in waits.waits if wait.kind.is_in_flight}


@pytest.mark.parametrize("roots", [1, 3])
def test_what_is_in_flight_goes_down_the_chain_until_all_is_quiet(roots: int, tmp_path: Path) -> None:
    chain = chain_in(tmp_path, roots=roots)
    first, second, third = chain.handles
    chain.run_all()
    chain.drain()
    quiet = waits_of(chain)
    assert quiet.is_quiet
    assert quiet.unlooked == (() if roots == 1 else (f"{chain.folders[0].resolve().as_uri()}/first",))
    waits_by_name = {wait.pipeline.name: wait.on.name for wait in quiet.waits}
    assert waits_by_name == {"first": "first", "second": "first", "third": "second"}, "open windows wait for watermarks"
    chain.now += 20
    chain.land()
    if roots == 1:
        assert waiting_pairs(waits_of(chain)) == {("first", "files")}
        assert waiting_pairs(waits_of(chain, is_known=False)) == set()
        assert waits_of(chain, is_known=False).unlooked == ("first",)
    first.run(publish=False)
    assert waiting_pairs(waits_of(chain)) == {("first", "publish")}
    first.publish()
    assert waiting_pairs(waits_of(chain)) == {("second", "published")}
    second.run()
    assert waiting_pairs(waits_of(chain)) == {("third", "published")}
    third.run()
    assert waits_of(chain).is_quiet
    first.rollback(to="beginning")
    moved_waits = waits_of(chain)
    assert ("second", "published") in waiting_pairs(moved_waits)
    assert any("nothing is published any more" in wait.why for wait in moved_waits.waits)
    assert moved_waits.to_json()["is_quiet"] is False


def test_a_schedule_that_is_lacking_is_named(tmp_path: Path) -> None:
    chain = chain_in(tmp_path, roots=1)
    chain.land()
    chain.handles[0].run()
    chain.handles[1].run()
    chain.land()
    chain.handles[0].run()
    (wait,) = [one for one in waits_of(chain).waits if one.kind == "published" and one.pipeline.name == "second"]
    assert "has no schedule" in wait.why
    assert {row["waits for"] for row in waits_of(chain).rows() if row["kind"] == "published"} == {"itself"}


def test_a_parked_output_is_in_flight(tmp_path: Path) -> None:
    own: dict[str, Any] = {"key": "k", "where": hr.FixedWindows("10m"), "when": FINE, "how": hr.retracting("1h")}
    fragile = {"s": col("v").combine(Fragile(str(tmp_path / "mended")))}
    outputs = {"good": hr.Output(what={"n": hr.count()}, **own), "bad": hr.Output(what=fragile, **own)}
    own_pipeline = hr.Pipeline("first", CLICKS, outputs=outputs, executor="local")
    handle = hr.open(tmp_path.as_uri(), create=True)[own_pipeline]
    (tmp_path / "landing" / "clicks").mkdir(parents=True)
    (tmp_path / "landing" / "clicks" / "1.jsonl").write_text('{"k": "a", "v": 3, "at": "2026-01-01T00:01:00Z"}\n')
    handle.run()
    waits = hr.open(tmp_path.as_uri()).waits([own_pipeline], now=NOW)
    assert {wait.kind for wait in waits.waits} >= {"parked", "publish"}
    (parked_wait,) = [wait for wait in waits.waits if wait.kind == "parked"]
    assert "output bad stands" in parked_wait.why
    assert "3 is too much" in parked_wait.why
    (tmp_path / "mended").touch()
    handle.run()
    assert hr.open(tmp_path.as_uri()).waits([own_pipeline], now=NOW).is_quiet


def test_a_timer_is_in_flight_until_it_was_heard(tmp_path: Path) -> None:
    own_pipeline = hr.Pipeline(
        "first",
        CLICKS,
        key="k",
        what={"n": hr.count()},
        where=hr.FixedWindows("10m"),
        when=hr.AfterWatermark(early=hr.AfterProcessingTime("1h"), late=hr.AfterCount(1)),
        how=hr.retracting("1h"),
        executor="local",
    )
    handle = hr.open(tmp_path.as_uri(), create=True)[own_pipeline]
    (tmp_path / "landing" / "clicks").mkdir(parents=True)
    (tmp_path / "landing" / "clicks" / "1.jsonl").write_text('{"k": "a", "v": 3, "at": "2026-01-01T00:01:00Z"}\n')
    handle.run()
    kinds: dict[str, str] = {}
    for name, delay in (("before", timedelta()), ("after", timedelta(hours=2))):
        waits = hr.open(tmp_path.as_uri()).waits([own_pipeline], now=datetime.now(UTC) + delay)
        assert not waits.is_quiet
        kinds[name] = next(wait.why for wait in waits.waits if wait.kind == "timer")
    assert kinds["before"].startswith("for 2")
    assert kinds["after"].startswith("a timer is due since")
