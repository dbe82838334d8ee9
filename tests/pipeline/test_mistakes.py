"""Every wrong argument of everything public is one error that names it: generated from the public signatures.

For each parameter of each class, function and method of ``headrace``, values of every wrong kind are given in its
place. What its annotation does not allow must be refused, and whatever is refused is a HeadraceError that names the
argument.
"""

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import pytest

import headrace as hr
from headrace import col
from headrace.errors import HeadraceError
from headrace.model.arguments import short_repr
from headrace.model.time import Duration
from tests.own_combiners import Longest

FLIGHTS = hr.json("landing/flights", {"origin": str, "at": datetime, "delay": int, "end": bool})
INPUT = FLIGHTS.event_time("at", bound="1h")
WHAT = {"flights": hr.count()}
HOURLY = hr.FixedWindows("1h")
COUNT = hr.AfterCount(1)
RIGHT = FLIGHTS.event_time("at", bound="1h").named("right")
ARRIVING = FLIGHTS.arrival_time().named("right")
N, S, T = col("delay"), col("origin"), col("at")

GOOD: dict[str, dict[str, Any]] = {
    "AfterAll": {"triggers": COUNT},
    "AfterAny": {"triggers": COUNT},
    "AfterEach": {"triggers": COUNT},
    "AfterBytes": {"size": 10},
    "AfterCount": {"count": 1},
    "AfterPattern": {"pattern": "ab*", "predicates": {"a": N > 9, "b": N > 5}},
    "AfterPercentileWatermark": {"percentile": 95},
    "AfterProcessingTime": {"delay": "1m", "align": "1h", "align_offset": "5m"},
    "AfterPunctuation": {"predicate": col("end")},
    "AfterSignal": {"name": "go"},
    "AfterWatermark": {"early": COUNT, "late": COUNT},
    "Aggregation": {"key": "origin", "what": WHAT, "where": HOURLY, "when": COUNT, "how": hr.retracting(),
                    "filter": N > 3, "transform": None},
    "Backfill": {"schedule": "0 3 * * *", "last": "7d"},
    "CalendarWindows": {
        "unit": "day", "zone": "UTC", "count": 1, "day_begins": "06:00", "week_begins": "monday", "year_begins": 1,
    },
    "DataDriven": {"what": {"n": hr.count()}, "ready_if": col("n") > 3},
    "Deduplicate": {"id": "origin", "horizon": "1d"},
    "field": {"path": "user.id", "type": str},
    "FixedWindows": {"size": "1h", "offset": "0s", "phase": None},
    "Limits": {"rejected": "1%", "late": 5, "watermark_age": "2h", "newest_file": "1h"},
    "ListType": {"item": int},
    "OrFinally": {"main": COUNT, "until": COUNT},
    "Loop": {"start": hr.col("vertex"), "step": hr.col("value"), "combine": "least", "both_ways": True, "rounds": 8},
    "Output": {
        "key": "origin", "what": WHAT, "where": HOURLY, "when": hr.Default(), "how": hr.retracting(), "filter": None,
        "then": (), "expectations": (), "description": "", "null_keys": False,
        "allow_finishing": False, "allow_double_counting": False,
    },
    "Pipeline": {
        "name": "p", "input": INPUT, "key": "origin", "what": WHAT, "where": HOURLY, "when": hr.Default(),
        "how": hr.retracting(), "filter": None, "deduplicate": None, "union": (), "join": (), "then": (),
        "expectations": (),
        "limits": None, "usual": (), "sinks": (), "description": "", "schedule": None, "backfill": None,
        "retention": None,
        "airflow": None, "executor": "local", "null_keys": False,
        "allow_finishing": False, "allow_double_counting": False,
    },
    "Rows": {
        "rows": ["n"], "of": (), "columns": None, "key": None, "take": None, "where": None, "when": hr.Default(),
        "how": None, "id": "n", "filter": None, "renamed": None, "expectations": (),
        "usual": (), "sinks": (), "limits": None, "description": "", "formerly": None, "null_keys": False,
    },
    "as_of": {
        "right": RIGHT, "on": "origin", "columns": ["delay"], "max_age": "1d", "order": "at", "deleted": N > 3,
        "where": N > 0, "outer": True, "lateness": "1h", "spread": 4,
        "history": None,
    },
    "within": {
        "right": RIGHT, "on": "origin", "between": ("0s", "1h"), "columns": ["delay"], "where": N > 0, "outer": True,
        "lateness": "1h", "spread": 4,
    },
    "same_window": {
        "right": RIGHT, "on": "origin", "window": HOURLY, "columns": ["delay"], "where": N > 0, "outer": True,
        "lateness": "1h", "spread": 4,
    },
    "next_event": {
        "right": RIGHT, "on": "origin", "within": "1h", "columns": ["delay"], "order": "at", "where": N > 0,
        "outer": True, "lateness": "1h", "spread": 4,
    },
    "lookup": {
        "right": ARRIVING, "on": "origin", "columns": ["delay"], "order": "at", "deleted": N > 3, "where": N > 0,
        "outer": True, "lateness": "1h", "spread": 4,
    },
    "newest": {"order": "n", "deleted": hr.col("n") > 1},
    "top": {"number": 3, "by": "n"},
    "distinct": {},
    "function": {"name": "module:function", "returns": {"a": int}},
    "query": {"sql": "select * from rows"},
    "Punctuated": {"asserted": "at", "idle_timeout": "1h"},
    "Repeatedly": {"trigger": COUNT},
    "Retention": {"keep_last": 5, "keep_for": "30d", "keep_tags": True, "schedule": "@daily"},
    "Sessions": {"gap": "1h", "touching_merges": False},
    "ShiftedOutputTime": {"inner": HOURLY, "shift": "1h"},
    "Signal": {"name": "go", "key": ("a",), "window": None},
    "SlidingWindows": {"size": "1h", "period": "1h", "offset": "0s"},
    "BatchFunction": {"name": "module:function", "returns": {"a": int}, "deterministic": True, "package": None},
    "SparkFunction": {"name": "module:function", "returns": {"a": int}, "deterministic": True, "package": None},
    "merge_distinct_sketches": {"sketches": ()},
    "merge_quantile_sketches": {"sketches": (), "qs": [0.5]},
    "accumulating": {"allowed_lateness": "1h"},
    "airflow": {
        "owner": "sales", "tags": (), "start_date": None, "retries": 1, "retry_delay": "1m", "execution_timeout": "1h",
        "default_args": None, "on_failure": "m:f", "on_warning": "m:f", "deadline": "1h", "on_deadline": "m:f",
        "pool": "p", "queue": "q", "conn_id": "c", "env": None,
    },
    "cron": {"expression": "0 6 * * *", "zone": "UTC"},
    "on_assets": {"uris": ["s3://a/b"], "or_at": None},
    "on_files": {"poll_interval": "1m", "or_at": None},
    "discarding": {"allowed_lateness": "1h"},
    "retracting": {"allowed_lateness": "1h", "elide_unchanged": False},
    "coalesce": {"args": N},
    "concat": {"args": S},
    "case": {"branches": (N > 3, 1)},
    "greatest": {"args": N},
    "least": {"args": N},
    "col": {"name": "a"},
    "lit": {"value": 1},
    "limit": {"warn": "1%", "fail": "5%"},
    "usual_volume": {"within": 2, "severity": "warn", "versions": 20, "min_versions": 5},
    "usual_nulls": {
        "column": "n", "points": 5, "view": "panes", "severity": "fail", "versions": 20, "min_versions": 5,
        "min_rows": 1,
    },
    "usual_distribution": {
        "column": "n", "distance": 0.2, "view": "current", "severity": "fail", "versions": 20, "min_versions": 5,
        "min_rows": 1,
    },
    "count": {},
    "count_windows": {"n": 3},
    "sliding_count_windows": {"size": 3, "period": 3},
    "csv": {"path": "landing", "schema": {"a": str}},
    "json": {"path": "landing", "schema": {"a": str}},
    "parquet": {"path": "landing", "schema": {"a": str}},
    "postgres": {"table": "reports.sales", "connection": "warehouse", "changes": False, "name": None},
    "final_rows": {"function": "billing:send", "connection": None, "name": None},
    "spark_sink": {"function": "targets:Reports", "connection": "oracle", "name": None},
    "spark_source": {"function": "orders:Orders", "schema": {"user": str}, "connection": "oracle", "name": None},
    "kafka": {"topic": "orders", "schema": {"a": str}, "connection": "broker"},
    "avro": {"registry": "schemas"},
    "kafka_sink": {"topic": "orders", "connection": "broker", "name": None},
    "published": {"upstream": "delays.hourly", "schema": {"a": str}, "root": None},
    "debezium_envelope": {"within": "payload", "shared": ["lsn"]},
    "delta_change_type": {},
    "upserts": {"key": "id", "order": "n", "deleted": hr.col("n") > 1},
    "debezium_versions": {"at": "source.ts_ms", "key": "id", "order": "source.lsn", "within": "payload"},
    "delta": {"path": "reports/sales", "connection": "lake", "name": None},
    "iceberg": {"table": "reports.sales", "connection": "lake", "partition_by": "day", "name": None},
    "expect": {"name": "column_to_exist", "view": "panes"},
    "if_else": {"condition": N > 3, "then": 1, "otherwise": 2},
    "Always": {}, "Default": {},
    "on_update": {}, "on_window_close": {}, "Never": {}, "GlobalWindows": {}, "AfterSynchronizedProcessingTime": {},
}  # fmt: skip
FURTHER_PARTS = {"expect": {"column": "a"}}
READING = {
    "max_files": 1, "max_bytes": 1, "look_back": 1, "names": "any", "max_rejected": 1, "on_unreadable": "fail",
    "suffixes": [".json"], "transform": None, "explode": None, "changelog": None,
    "versions": None,
}  # fmt: skip
BEHAVIOUR = {"on_time": "always", "closing": "always", "timestamp": "latest", "keep_last": 3}

METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "top": (N, {"k": 3}),
    "where": (hr.count(), {"condition": N > 3}),
    "quantile": (N, {"q": 0.5}),
    "quantiles": (N, {"qs": [0.5, 0.9]}),
    "max_by": (N, {"by": S}),
    "min_by": (N, {"by": S}),
    "map_agg": (N, {"value": S}),
    "list_agg": (N, {"k": 3, "by": S}),
    "pairs": (N, {"other": S, "outer": "left"}),
    "combine": (S, {"combiner": Longest()}),
    "cast": (N, {"to": int}),
    "is_in": (N, {"values": [1]}),
    "substring": (S, {"start": 1, "length": 2}),
    "contains": (S, {"text": "a"}),
    "starts_with": (S, {"text": "a"}),
    "ends_with": (S, {"text": "a"}),
    "matches": (S, {"regex": "a+"}),
    "regexp_extract": (S, {"regex": "a+", "group": 0}),
    "regexp_replace": (S, {"regex": "a+", "new": "b"}),
    "power": (N, {"exponent": 2}),
    "log": (N, {"base": 2}),
    "bit_and": (N, {"other": 2}),
    "shift_left": (N, {"bits": 2}),
    "json_field": (S, {"path": "a.b", "type": int}),
    "split": (S, {"separator": ","}),
    "item": (S, {"place": 1}),
    "slice": (S, {"start": 1, "length": 2}),
    "replace": (S, {"old": "a", "new": "b"}),
    "local_to_utc": (T, {"zone": "Europe/Berlin", "twice": "first", "skipped": "later"}),
    "strftime": (T, {"format": "%Y", "zone": "UTC"}),
    "strptime": (S, {"format": "%Y"}),
    "truncate": (T, {"unit": "week", "zone": "UTC", "day_begins": "06:00", "week_begins": "sunday", "year_begins": 1}),
    "hour": (T, {"zone": "UTC"}),
    "event_time": (FLIGHTS, {"at": "at", "bound": "1h", "idle": "1h", "split": "origin", "max_ahead": "1h"}),
    "named": (INPUT, {"name": "weather", "columns": {"origin": S}}),
}

WRONG: list[Any] = [
    None, "", "no such thing", "1 parsec", "-3h", 0, -1, 3600, 10**30, 2.5, -0.5, float("nan"), float("inf"), True,
    b"bytes", [], [None], ["a", 3], (), {}, {"a": None}, {3: "a"}, {"": 1}, {"_a": str}, {"a": "b"}, object(), object,
    timedelta(0), timedelta(hours=-1), timedelta.max, date(2026, 1, 1), datetime(2026, 1, 1), hr.Default,
    hr.AfterCount, hr.FixedWindows, len, col("nowhere"), hr.lit(None), hr.count(), hr.Never(), HOURLY, INPUT, FLIGHTS,
]  # fmt: skip

OPERANDS = {"coalesce", "bit_and", "case", "concat", "contains", "greatest", "least", "if_else", "lit", "log", "power"}
"""Their arguments are parts of an expression like those of operators, which have no names: an error shows the value."""


@dataclass(frozen=True)
class Case:
    """One parameter, and the others as they are right."""

    call: Callable[..., Any]
    name: str
    parameter: str
    annotation: Any
    good: Mapping[str, Any]
    is_several: bool

    def __call__(self, value: Any) -> Any:
        arguments = {**self.good, self.parameter: value}
        if self.is_several:
            return self.call(arguments.pop(self.parameter), **arguments)
        return self.call(**arguments)

    def __str__(self) -> str:
        return f"{self.name}.{self.parameter}"


def cases() -> Iterator[Case]:
    for name, good in GOOD.items():
        extra = READING if name in ("csv", "json", "parquet") else BEHAVIOUR if name.endswith("ing") else {}
        yield from _cases_of(getattr(hr, name), name, {**good, **extra}, FURTHER_PARTS.get(name, {}))
    for name, (owner, good) in METHODS.items():
        yield from _cases_of(getattr(owner, name), name, good, {})


def _cases_of(
    call: Callable[..., Any], name: str, good: dict[str, Any], further_arguments: dict[str, Any]
) -> Iterator[Case]:
    parameters = inspect.signature(call).parameters
    hints = _hints(call)
    for each in good:
        kind = parameters[each].kind if each in parameters else inspect.Parameter.KEYWORD_ONLY
        several = kind is inspect.Parameter.VAR_POSITIONAL
        others = {other: value for other, value in good.items() if other != each and not several}
        yield Case(call, name, each, hints.get(each, Any), {**others, **further_arguments}, several)


def _hints(call: Callable[..., Any]) -> dict[str, Any]:
    function = call.__init__ if inspect.isclass(call) else call
    try:
        return typing.get_type_hints(function)
    except NameError:  # of names that only a type checker imports
        return {}


CASES = list(cases())


def test_everything_public_is_here() -> None:
    """Classes that users subclass, enums and types of results are made by nobody's call."""
    left_out = {
        "Aggregate", "CustomCombiner", "CustomTrigger", "CustomWindows", "DataType", "Expectation", "Expr",
        "FileSource", "How", "Input", "MergeGroup", "Progress", "SplitStrategy", "Trigger", "TriggerElement",
        "TriggerMoment", "Window", "WindowFn",
    }  # fmt: skip
    assert {*hr.__all__} - left_out - {*GOOD} - {"check", "errors", "open", "testing", "types"} == set()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_right_is_taken(case: Case) -> None:
    right = {**READING, **BEHAVIOUR, **GOOD.get(case.name, {}), **METHODS.get(case.name, (None, {}))[1]}
    case(right[case.parameter])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_wrong_is_one_error_that_names_the_argument(case: Case) -> None:
    for value in WRONG:
        written_text = f"{case}={value!r}"
        try:
            case(value)
        except HeadraceError as error:
            text = str(error)
            names = {case.parameter, f"{case.name}(", *([short_repr(value)] if case.name in OPERANDS else [])}
            assert any(name in text for name in names), f"{written_text} is refused without naming it: {text}"
            assert "\n" not in text, written_text
        except Exception as error:
            raise AssertionError(f"{written_text} raises {error!r} from the inside") from error
        else:
            assert is_allowed(case.annotation, value), (
                f"{written_text} is taken, which {case.annotation} does not allow"
            )


def is_allowed(annotation: Any, value: Any) -> bool:  # noqa: PLR0911
    """Whether ``annotation`` allows ``value``."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or isinstance(annotation, typing.TypeVar):
        return True
    if origin in (typing.Union, types.UnionType):
        return any(is_allowed(each, value) for each in inner)
    if annotation is None or annotation is type(None):
        return value is None
    if origin is type:
        return isinstance(value, type)
    if origin in (collections.abc.Mapping, dict):
        return isinstance(value, Mapping) and all(
            is_allowed(inner[0], key) and is_allowed(inner[1], each) for key, each in value.items()
        )
    if origin is tuple:
        return isinstance(value, tuple)
    if isinstance(origin, type) and issubclass(origin, collections.abc.Collection | collections.abc.Iterable):
        items = isinstance(value, origin) and not isinstance(value, str | bytes)
        return items and all(is_allowed(inner[0], each) for each in value)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if annotation is Duration:
        return isinstance(value, Duration)
    return isinstance(value, origin or annotation)
