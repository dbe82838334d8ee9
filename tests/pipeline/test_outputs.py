"""Pipelines with several outputs: what can be wrong with them, and what identifies them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Aggregation, FixedWindows, Output, Pipeline, SparkFunction, col, count
from headrace.errors import PipelineError
from headrace.pipeline.column_usage import columns_read
from headrace.pipeline.identity.fingerprint import definition, fingerprint
from headrace.pipeline.loading.registry import output_named
from headrace.pipeline.pipeline import SeveralOutputsError
from headrace.sources.required_columns import required_by
from tests.process.clicks import CLICKS
from tests.process.outputs import DAILY, HOURLY, SHOP, VISITS

GOLDEN = Path(__file__).parent / "golden" / "fingerprints-2.json"
AWAY = SparkFunction("parsing:flat", {"user": str}, deterministic=True, package="anywhere")
ALONE: dict[str, Any] = {"key": "user", "what": {"n": count()}, "where": FixedWindows("1h")}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a dot in a name": ({"outputs": {"a.b": HOURLY}}, r"outputs='a\.b'"),
    "a slash in a name": ({"outputs": {"a/b": HOURLY}}, "outputs='a/b'"),
    "the ending of a file": ({"outputs": {"py": HOURLY}}, "outputs='py'"),
    "no output": ({"outputs": {"hourly": 3}}, r"outputs\['hourly'\]=3"),
    **{
        f"{name} of both": ({"outputs": {"hourly": HOURLY}, name: value}, rf"{name}=.*write it into an Output")
        for name, value in {
            **ALONE,
            "when": hr.on_update(),
            "how": hr.retracting(),
            "then": [Aggregation(what={"n": count()}, where=FixedWindows("1h"))],
            "expectations": [hr.expect("column_to_exist", column="n")],
            "allow_finishing": True,
        }.items()
    },
    "history": ({"outputs": {"hourly": HOURLY}, "usual": [hr.usual_volume(within=2)]}, "checks against history"),
    "neither form": ({}, "what="),
    "a mistake in one": (
        {"outputs": {"hourly": HOURLY, "daily": Output(key="usr", what={"n": count()}, where=FixedWindows("1h"))}},
        r"output daily of pipeline shop: key\['usr'\]: there is no column 'usr'; did you mean 'user'",
    ),
    "Spark code between aggregations": (
        {"outputs": {"hourly": replace(HOURLY, then=(Aggregation(**ALONE, transform=AWAY),))}},
        "one output without a name",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_told(mistake: str) -> None:
    parts, why = WRONG[mistake]
    with pytest.raises(PipelineError, match=why):
        Pipeline("shop", CLICKS.input, **parts)


def test_an_output_alone_is_the_pipeline_that_has_only_this_one() -> None:
    filtered = replace(SHOP, filter=col("price") < 9)
    alone = Pipeline(
        "shop", CLICKS.input, what=DAILY.what, where=DAILY.where, then=DAILY.then,
        filter=(col("price") < 9) & (col("price") > 3),
    )  # fmt: skip
    assert fingerprint(filtered.by_output["daily"]) == fingerprint(alone)
    assert fingerprint(SHOP.by_output["hourly"]) == fingerprint(replace(CLICKS, name="other"))
    assert {*CLICKS.by_output} == {""}
    assert CLICKS.by_output[""] is CLICKS
    with pytest.raises(SeveralOutputsError, match=r"hourly, visits, daily: name one of them, such as shop\.hourly"):
        SHOP.key_types  # noqa: B018


def test_fingerprints_of_several_outputs_stay_as_they_are() -> None:
    made = {
        "three": SHOP,
        "one with a name": replace(SHOP, outputs={"hourly": HOURLY}),
        "filtered": replace(SHOP, filter=col("price") > 0),
        "deduplicated": replace(SHOP, deduplicate=hr.Deduplicate("user", "1d")),
    }
    assert {name: fingerprint(pipeline) for name, pipeline in made.items()} == json.loads(GOLDEN.read_text())
    assert len({fingerprint(pipeline) for pipeline in (CLICKS, *made.values())}) == 1 + len(made)
    said = definition(SHOP)
    assert said["format"] == 2
    assert {"format": 1, "inputs": said["inputs"], **said["outputs"]["hourly"]} == definition(SHOP.by_output["hourly"])


def test_a_description_or_an_expectation_of_an_output_changes_no_fingerprint() -> None:
    said = replace(HOURLY, description="per hour", expectations=(hr.expect("column_to_exist", column="spent"),))
    assert fingerprint(replace(SHOP, outputs={**SHOP.outputs, "hourly": said})) == fingerprint(SHOP)


def test_a_file_must_have_what_any_output_reads() -> None:
    counted = Output(what={"n": count()}, where=FixedWindows("1h"))
    only = Pipeline("shop", CLICKS.input, outputs={"a": counted, "b": VISITS})
    assert {*columns_read(only, only.input)} == {"at", "user", "price"}
    assert {*required_by(SHOP, SHOP.input).identities} == {"event time"}, "others take records without a key of one"
    assert {*required_by(CLICKS, CLICKS.input).identities} == {"event time", "key user"}


def test_check_says_each_output() -> None:
    report = hr.check(SHOP)
    assert not report.is_wrong
    lines = [line.strip() for line in report.lines()]
    assert {"what of output hourly", "where of output visits", "what of aggregation 2 of output daily"} <= {*lines}
    assert "├─▶ hourly" in lines
    assert any(line.endswith("filter (price > 3)") for line in lines)


@pytest.mark.parametrize(
    ("reference", "named"),
    [
        ("shop", ("shop", "")),
        ("shop.hourly", ("shop", "hourly")),
        ("shop.py", ("shop.py", "")),
        ("a.b/shop.py:shop.hourly", ("a.b/shop.py:shop", "hourly")),
        ("shop.py:shop", ("shop.py:shop", "")),
    ],
)
def test_a_reference_names_an_output(reference: str, named: tuple[str, str]) -> None:
    assert output_named(reference) == named


def test_an_output_is_tested_as_if_it_were_alone() -> None:
    rows = hr.testing.rows({"user": "ann", "at": "2026-01-01T00:00:00Z", "price": 5})
    for executor in ("local", "reference"):
        result = hr.testing.run(SHOP, [rows, hr.testing.end()], output="hourly", executor=executor)
        assert [pane.values["spent"] for pane in result.current] == [5]
    with pytest.raises(hr.testing.UnitTestError, match="has the outputs hourly, visits, daily"):
        hr.testing.run(SHOP, [rows])
    with pytest.raises(hr.testing.UnitTestError, match="one without a name"):
        hr.testing.run(CLICKS, [rows], output="hourly")
