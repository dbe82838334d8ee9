"""Pipelines with several outputs: what can be wrong with them, and what identifies them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import Aggregation, FixedWindows, Output, Pipeline, col, count
from headrace.errors import PipelineError
from headrace.pipeline.identity import fingerprint, recorded_definition
from headrace.pipeline.loading.registry import output_named
from headrace.pipeline.parts import SeveralOutputsError
from headrace.sources.validation import columns_read, required_by
from tests.process.clicks import CLICKS
from tests.process.outputs import DAILY, HOURLY, SHOP, VISITS

GOLDEN = Path(__file__).parent / "golden" / "fingerprints-2.json"
OUTPUT_PARTS: dict[str, Any] = {"key": "user", "what": {"n": count()}, "where": FixedWindows("1h")}

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a dot in a name": ({"outputs": {"a.b": HOURLY}}, r"outputs='a\.b'"),
    "a slash in a name": ({"outputs": {"a/b": HOURLY}}, "outputs='a/b'"),
    "the ending of a file": ({"outputs": {"py": HOURLY}}, "outputs='py'"),
    "no output": ({"outputs": {"hourly": 3}}, r"outputs\['hourly'\]=3"),
    **{
        f"{name} of both": ({"outputs": {"hourly": HOURLY}, name: value}, rf"{name}=.*write it into an Output")
        for name, value in {
            **OUTPUT_PARTS,
            "when": hr.on_update(),
            "how": hr.retracting(),
            "then": [Aggregation(what={"n": count()}, where=FixedWindows("1h"))],
            "expectations": [hr.expect("column_to_exist", column="n")],
            "allow_finishing": True,
        }.items()
    },
    "history": ({"outputs": {"hourly": HOURLY}, "usual": [hr.usual_volume(within=2)]}, "has it in each of them"),
    "neither form": ({}, "what="),
    "a mistake in one": (
        {"outputs": {"hourly": HOURLY, "daily": Output(key="usr", what={"n": count()}, where=FixedWindows("1h"))}},
        r"output daily of pipeline shop: key\['usr'\]: there is no column 'usr'; did you mean 'user'",
    ),
}


PER_DAY: dict[str, Any] = {"what": {"n": col("clicks").sum()}, "where": FixedWindows("1d")}
ACCUMULATING_OUTPUT = replace(HOURLY, how=hr.accumulating("1d"))
WRONG_GRAPHS: dict[str, tuple[dict[str, Any], str]] = {
    "of an output that is not there": (
        {"hourly": HOURLY, "daily": Output(of="hourli", **PER_DAY)},
        r"output daily is of 'hourli', and there is no such output; did you mean 'hourly'\? there are hourly, daily",
    ),
    "a circle": (
        {"hourly": HOURLY, "a": Output(of="b", **PER_DAY), "b": Output(of=("hourly", "a"), **PER_DAY)},
        "output a reads b reads a: outputs cannot read each other in a circle",
    ),
    "of itself": ({"a": Output(of="a", **PER_DAY)}, "output a reads a"),
    "a column that no pane has": (
        {"hourly": HOURLY, "daily": Output(of="hourly", what={"n": col("price").sum()}, where=FixedWindows("1d"))},
        "output daily of pipeline shop: .*there is no column 'price'",
    ),
    "a column of an expression that no pane has": (
        {"hourly": HOURLY, "daily": Output(of="hourly", columns={"hourly": {"clicks": col("click")}}, **PER_DAY)},
        "there is no column 'click'; did you mean 'clicks'",
    ),
    "two types of one column": (
        {
            "hourly": HOURLY,
            "named": Output(of="hourly", what={"clicks": col("user").max()}, where=FixedWindows("1h")),
            "both": Output(of=("hourly", "named"), **PER_DAY),
        },
        "output named gives 'clicks' as string, and the first of the outputs that are united as int: cast it",
    ),
    "sessions below retractions": (
        {"hourly": HOURLY, "visits": Output(of="hourly", what=PER_DAY["what"], where=hr.Sessions("1h"))},
        "output visits of pipeline shop: output hourly withdraws panes from windows that merge",
    ),
    "sessions below a union of which one retracts": (
        {
            "hourly": HOURLY,
            "once": replace(HOURLY, how=hr.discarding("1d")),
            "visits": Output(of=("once", "hourly"), what=PER_DAY["what"], where=hr.Sessions("1h")),
        },
        "output hourly withdraws panes from windows that merge",
    ),
    "panes that count twice": (
        {"hourly": HOURLY, "totals": ACCUMULATING_OUTPUT, "daily": Output(of=("hourly", "totals"), **PER_DAY)},
        "output totals accumulates, so the next aggregation would count a pane and its refinements",
    ),
}


@pytest.mark.parametrize("mistake", WRONG_GRAPHS)
def test_mistakes_in_what_outputs_read_are_told(mistake: str) -> None:
    outputs, why = WRONG_GRAPHS[mistake]
    with pytest.raises(PipelineError, match=why):
        Pipeline("shop", CLICKS.input, outputs=outputs)


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"of": ("a", "a")}, "an output counts once"),
        ({"of": ("a", "b"), "when": None}, "several outputs have several triggers"),
        ({"when": None}, "no trigger before it"),
        ({"of": "a", "columns": {"b": {"n": col("n")}}}, "columns of 'b', and the output reads a"),
        ({"columns": {"b": {"n": col("n")}}}, "reads records; name outputs in of="),
        ({"of": "a", "columns": {"a": {"n": 3}}}, r"columns\['a'\]"),
    ],
)
def test_mistakes_of_one_output_are_told_where_it_is_written(parts: dict[str, Any], why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        Output(**PER_DAY, **parts)


def test_an_output_of_another_is_the_next_aggregation_of_its_chain() -> None:
    last = Aggregation(key="user", what={"n": col("clicks").sum()}, where=FixedWindows("1d"), how=hr.discarding("1h"))
    output_below = Output(of="hourly", key="user", what=last.what, where=last.where, when=None, how=last.how)
    chain = Pipeline("shop", CLICKS.input, outputs={"daily": replace(HOURLY, then=(last,))})
    cut = Pipeline("shop", CLICKS.input, filter=col("price") > 0, outputs={"daily": output_below, "hourly": HOURLY})
    (stage,), (_, second) = cut.by_output["daily"].stages, chain.by_output["daily"].stages
    assert (stage.when, stage.aggregation.how, stage.schema) == (second.when, second.aggregation.how, second.schema)
    assert stage.withdrawable is second.withdrawable is True
    assert [*cut.of_records] == ["hourly"]
    assert cut.by_output["daily"].filter is None, "the filter of the pipeline is for records"


def test_a_union_has_the_columns_of_its_first_output_and_those_that_are_named() -> None:
    discarding_output = replace(HOURLY, how=hr.discarding("3d"))
    net = Output(
        of=("kept", "hourly"),
        columns={"hourly": {"clicks": -col("clicks"), "side": hr.lit("back")}},
        key=["user", "side"],
        **PER_DAY,
    )
    shop = Pipeline("shop", CLICKS.input, outputs={"net": net, "kept": discarding_output, "hourly": HOURLY})
    (stage,) = shop.by_output["net"].stages
    assert [*stage.schema] == ["user", "clicks", "spent", "window_start", "window_end", "side"]
    assert stage.withdrawable, "since one of the outputs withdraws panes"
    assert stage.aggregation.how.allowed_lateness == discarding_output.how.allowed_lateness, "the longest"


def test_the_fingerprint_of_an_output_goes_by_what_it_reads_not_by_its_name() -> None:
    daily = Output(of="hourly", **PER_DAY)

    def shop_with(upstream: Output, name: str = "hourly", **parts: Any) -> Pipeline:
        daily_below = replace(daily, of=(name,), **parts)
        return Pipeline("shop", CLICKS.input, outputs={name: upstream, "daily": daily_below}).by_output["daily"]

    own = shop_with(HOURLY)
    assert fingerprint(own) == fingerprint(shop_with(HOURLY, "per_hour"))
    assert recorded_definition(own)["of"][0]["output"] == "hourly"
    differing = [
        shop_with(replace(HOURLY, filter=col("price") > 1)),
        shop_with(replace(HOURLY, where=FixedWindows("2h"))),
        shop_with(HOURLY, columns={"hourly": {"clicks": -col("clicks")}}),
    ]
    assert len({fingerprint(pipeline) for pipeline in (own, *differing)}) == 1 + len(differing)
    shop = Pipeline("shop", CLICKS.input, outputs={"hourly": HOURLY, "daily": daily})
    definition = recorded_definition(shop)
    assert {"format": 1, "inputs": definition["inputs"], **definition["outputs"]["daily"]} == recorded_definition(own)
    assert definition["outputs"]["hourly"] == recorded_definition(SHOP)["outputs"]["hourly"]


def test_check_draws_which_output_reads_which() -> None:
    daily, both = Output(of="hourly", **PER_DAY), Output(of=("hourly", "daily"), what={"n": count()}, **AN_HOUR)
    shop = Pipeline("shop", CLICKS.input, outputs={"both": both, "daily": daily, "hourly": HOURLY})
    lines = [line.strip() for line in hr.check(shop).lines()]
    drawn_lines = [line for line in lines if line.startswith(("├─▶", "panes of"))]
    index = drawn_lines.index("├─▶ hourly")
    assert drawn_lines[index : index + 5] == [
        "├─▶ hourly",
        "panes of hourly",
        "├─▶ daily",
        "panes of hourly and daily",
        "├─▶ both",
    ]
    assert "watermark: the least of the output watermarks of hourly, daily" in lines


AN_HOUR: dict[str, Any] = {"where": FixedWindows("1h")}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_told(mistake: str) -> None:
    parts, why = WRONG[mistake]
    with pytest.raises(PipelineError, match=why):
        Pipeline("shop", CLICKS.input, **parts)


def test_an_output_alone_is_the_pipeline_that_has_only_this_one() -> None:
    filtered_shop = replace(SHOP, filter=col("price") < 9)
    pipeline_alone = Pipeline(
        "shop", CLICKS.input, what=DAILY.what, where=DAILY.where, then=DAILY.then,
        filter=(col("price") < 9) & (col("price") > 3),
    )  # fmt: skip
    assert fingerprint(filtered_shop.by_output["daily"]) == fingerprint(pipeline_alone)
    assert fingerprint(SHOP.by_output["hourly"]) == fingerprint(replace(CLICKS, name="other"))
    assert {*CLICKS.by_output} == {""}
    assert CLICKS.by_output[""] is CLICKS
    with pytest.raises(SeveralOutputsError, match=r"hourly, visits, daily: name one of them, such as shop\.hourly"):
        SHOP.key_types  # noqa: B018


def test_fingerprints_of_several_outputs_stay_as_they_are() -> None:
    parts = {
        "three": SHOP,
        "one with a name": replace(SHOP, outputs={"hourly": HOURLY}),
        "filtered": replace(SHOP, filter=col("price") > 0),
        "deduplicated": replace(SHOP, deduplicate=hr.Deduplicate("user", "1d")),
    }
    assert {name: fingerprint(pipeline) for name, pipeline in parts.items()} == json.loads(GOLDEN.read_text())
    assert len({fingerprint(pipeline) for pipeline in (CLICKS, *parts.values())}) == 1 + len(parts)
    definition = recorded_definition(SHOP)
    assert definition["format"] == 2
    assert {"format": 1, "inputs": definition["inputs"], **definition["outputs"]["hourly"]} == recorded_definition(
        SHOP.by_output["hourly"]
    )


def test_a_description_or_an_expectation_of_an_output_changes_no_fingerprint() -> None:
    hourly_output = replace(
        HOURLY, description="per hour", expectations=(hr.expect("column_to_exist", column="spent"),)
    )
    assert fingerprint(replace(SHOP, outputs={**SHOP.outputs, "hourly": hourly_output})) == fingerprint(SHOP)


def test_a_file_must_have_what_any_output_reads() -> None:
    counted_output = Output(what={"n": count()}, where=FixedWindows("1h"))
    only_pipeline = Pipeline("shop", CLICKS.input, outputs={"a": counted_output, "b": VISITS})
    assert {*columns_read(only_pipeline, only_pipeline.input)} == {"at", "user", "price"}
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
    ("reference", "names"),
    [
        ("shop", ("shop", "")),
        ("shop.hourly", ("shop", "hourly")),
        ("shop.py", ("shop.py", "")),
        ("a.b/shop.py:shop.hourly", ("a.b/shop.py:shop", "hourly")),
        ("shop.py:shop", ("shop.py:shop", "")),
    ],
)
def test_a_reference_names_an_output(reference: str, names: tuple[str, str]) -> None:
    assert output_named(reference) == names


def test_an_output_is_tested_as_if_it_were_alone() -> None:
    rows = hr.testing.rows({"user": "ann", "at": "2026-01-01T00:00:00Z", "price": 5})
    for executor in ("local", "reference"):
        result = hr.testing.run(SHOP, [rows, hr.testing.end()], output="hourly", executor=executor)
        assert [pane.values["spent"] for pane in result.current] == [5]
    with pytest.raises(hr.testing.UnitTestError, match="has the outputs hourly, visits, daily"):
        hr.testing.run(SHOP, [rows])
    with pytest.raises(hr.testing.UnitTestError, match="one without a name"):
        hr.testing.run(CLICKS, [rows], output="hourly")
