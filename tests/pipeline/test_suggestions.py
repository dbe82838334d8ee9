"""Mistyped names say what may have been meant, whole messages."""

from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum

import pytest

import headrace as hr
from headrace import col
from headrace.errors import PipelineError

CLICKS = hr.json("landing/clicks", {"shop": str, "amount": int, "at": datetime})


def pipeline(split: str = "shop", **parts: object) -> hr.Pipeline:
    given_input = CLICKS.event_time("at", bound="1h", split=split)
    made_parts = {"key": "shop", "what": {"n": hr.count()}, "where": hr.FixedWindows("1h"), **parts}
    return hr.Pipeline("sales", given_input, **made_parts)  # type: ignore[arg-type]


TYPOS: dict[str, tuple[Callable[[], object], str]] = {
    "accumulating": (
        lambda: hr.accumulating(alowed_lateness="1h"),  # type: ignore[call-arg]
        "accumulating(alowed_lateness=): there is no such argument; did you mean 'allowed_lateness'? "
        "it takes allowed_lateness, on_time, closing, timestamp, keep_last",
    ),
    "json": (
        lambda: hr.json("landing", {"a": int}, max_file=3),  # type: ignore[call-arg]
        "json(max_file=): there is no such argument; did you mean 'max_files'? it takes path, schema, max_files, "
        "max_bytes, look_back, names, max_rejected, on_unreadable, missing, suffixes, transform, explode, changelog, "
        "versions",
    ),
    "Pipeline": (
        lambda: pipeline(wat=1),
        "Pipeline(wat=): there is no such argument; did you mean 'what'? it takes name, input, key, what, where, when, "
        "how, filter, having, renamed, loop, deduplicate, union, join, outputs, rows, take, id, then, expectations, "
        "limits, usual, sinks, description, schedule, backfill, retention, airflow, executor, null_keys, "
        "allow_finishing, "
        "allow_double_counting",
    ),
    "a function": (lambda: hr.jsn, "headrace has no 'jsn'; did you mean 'json'?"),
    "other case": (lambda: hr.fixed_windows, "headrace has no 'fixed_windows'; did you mean 'FixedWindows'?"),
    "a method as a function": (lambda: hr.sum, "headrace has no 'sum'; write hr.col(\"amount\").sum(...)"),
    "nothing like it": (lambda: hr.xyzzy, "headrace has no 'xyzzy'; dir(headrace) names what it has"),
    "of tests": (lambda: hr.testing.rum, "headrace.testing has no 'rum'; did you mean 'run'?"),
    "of a source": (lambda: CLICKS.eventTime, "FileSource has no 'eventTime'; did you mean 'event_time'?"),
    "of a pipeline": (lambda: pipeline().stagess, "Pipeline has no 'stagess'; did you mean 'stages'?"),
    "of windows": (lambda: hr.FixedWindows("1h").sise, "FixedWindows has no 'sise'; did you mean 'size'?"),
    "of how": (lambda: hr.accumulating().latenes, "How has no 'latenes'; did you mean 'allowed_lateness'?"),
    "of what is open": (
        lambda: hr.open("memory://x", create=True).pipelins,  # type: ignore[attr-defined]
        "OpenDeployment has no 'pipelins'; did you mean 'pipelines'?",
    ),
    "startswith": (lambda: col("a").startswith("b"), "Column has no 'startswith'; did you mean 'starts_with'?"),  # type: ignore[attr-defined]
    "len": (lambda: col("a").len(), "Column has no 'len'; did you mean 'length'?"),  # type: ignore[attr-defined]
    "getField": (lambda: col("a").getField("b"), "Column has no 'getField'; did you mean 'field'?"),  # type: ignore[attr-defined]
    "getItem": (lambda: col("a").getItem("b"), "Column has no 'getItem'; did you mean 'item'?"),  # type: ignore[attr-defined]
    "split": (
        lambda: pipeline(split="shp"),
        "pipeline sales: event_time(split): there is no column 'shp'; did you mean 'shop'? the columns are amount, at, "
        "shop",
    ),
    "deduplicate": (
        lambda: pipeline(deduplicate=hr.Deduplicate("shp", "1d")),
        "pipeline sales: deduplicate: there is no column 'shp'; did you mean 'shop'? the columns are amount, at, shop",
    ),
    "filter": (
        lambda: pipeline(filter="amount > 3"),
        "Pipeline sales(filter='amount > 3'): not an expression; write hr.col(\"amount\") > 3",
    ),
    "filter as in SQL": (
        lambda: pipeline(filter="shop = 'a'"),
        "Pipeline sales(filter=\"shop = 'a'\"): not an expression; write hr.col(\"shop\") == 'a'",
    ),
    "filter of a name": (
        lambda: pipeline(filter="shop"),
        "Pipeline sales(filter='shop'): not an expression; write hr.col(\"shop\")",
    ),
    "key": (
        lambda: pipeline(key=col("shop").lower()),
        "Pipeline sales(key=shop.lower()): an expression in a key needs a name; "
        'write key={"shop": col("shop").lower()}',
    ),
    "key of two": (
        lambda: pipeline(key=(col("shop").lower() == "a") & (col("amount") > 3)),
        "Pipeline sales(key=((shop.lower() == 'a') and (amount > 3))): an expression in a key needs a name; "
        'write key={"amount": ((col("shop").lower() == \'a\') & (col("amount") > 3))}',
    ),
    "col[]": (lambda: col["x"], 'col["x"]: write col("x")'),  # type: ignore[index]
    "col.x": (lambda: col.x, 'col.x: write col("x")'),  # type: ignore[attr-defined]
    "a quotient of aggregates": (
        lambda: col("amount").sum() / hr.count(),  # type: ignore[operator]
        "/ does not work on an aggregate (sum of amount): for a mean write .mean(); otherwise name it in what=, "
        'and write an expression over hr.col("its name") beside it, under a name of its own',
    ),
    "an aggregate in an expression": (
        lambda: col("late") / hr.count(),  # type: ignore[operator]
        "Aggregate(combiner=<Combiner.COUNT: 'count'>, input=None, k=None, q=None, oth... cannot stand in an "
        'expression: name it in what=, and write an expression over hr.col("its name") beside it, under a name of its '
        "own",
    ),
    "an aggregate and a number": (
        lambda: 1 + hr.count(),  # type: ignore[operator]
        "+ does not work on an aggregate (count): name it in what=, and write an expression over "
        'hr.col("its name") beside it, under a name of its own',
    ),
    "a unit": (
        lambda: col("at").plus(minute=1),
        "plus(minute=1): did you mean 'minutes'? write one of the units days, hours, minutes, seconds, milliseconds, "
        "microseconds",
    ),
    "an expectation": (
        lambda: hr.expect("column_values_to_not_be_null", colum="n"),
        "expect expect_column_values_to_not_be_null(colum='n'): there is no such argument; did you mean 'column'? it "
        "takes column, condition_parser, description, mostly, notes, row_condition, severity",
    ),
    "a method's": (
        lambda: col("a").substring(strat=1),  # type: ignore[call-arg]
        "substring(strat=): there is no such argument; did you mean 'start'? it takes start, length",
    ),
    "none at all": (
        lambda: hr.AfterAny(triggers=1),  # type: ignore[call-arg]
        "AfterAny(triggers=): there is no such argument; it takes no argument by name",
    ),
}
# the program makes these for users' own code, one for each row or window; hr.expect judges its own (above)
MADE_BY_HEADRACE = {"MergeGroup", "Progress", "TriggerElement", "TriggerMoment", "Window", "expect"}
TESTING = {"PaneRow", "Panes", "Result", "Step", "StepResults", "TemporaryDeployment", "UnitTestError"}


def _public() -> Iterator[tuple[str, Callable[..., object]]]:
    """Public functions, and public classes that users make objects of."""
    for module, excused_names in ((hr, MADE_BY_HEADRACE), (hr.testing, TESTING)):
        for name in module.__all__:
            public = getattr(module, name)
            is_made = callable(public) and not (isinstance(public, type) and issubclass(public, Enum))
            if is_made and name not in excused_names and getattr(public, "__init__", None) is not object.__init__:
                yield name, public


@pytest.mark.parametrize(("name", "public"), list(_public()))
def test_every_public_name_refuses_a_keyword_that_it_does_not_have(name: str, public: Callable[..., object]) -> None:
    with pytest.raises(PipelineError) as plain:
        public(wholly_unknown=1)
    takes = str(plain.value).partition("it takes ")[2]
    assert takes
    if takes == "no argument by name":
        return
    for known_part in takes.split(", "):
        with pytest.raises(PipelineError, match=rf"^{name}\({known_part}x=\): .* did you mean '\w+'\? it takes "):
            public(**{f"{known_part}x": 1})


def test_what_the_message_about_aggregates_says_can_be_written() -> None:
    mean = {"mean": (col("total") / col("n")).last()}
    further = hr.Aggregation(key="shop", what=mean, where=hr.FixedWindows("1h"))
    totals = {"total": col("amount").sum(), "n": hr.count()}
    assert pipeline(what=totals, then=[further]).value_types == {"mean": hr.DataType.FLOAT}


@pytest.mark.parametrize("name", TYPOS)
def test_the_whole_message(name: str) -> None:
    call, message = TYPOS[name]
    with pytest.raises((PipelineError, AttributeError)) as error:
        call()
    assert str(error.value) == message
