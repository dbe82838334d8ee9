"""Runs neutral expectations with Great Expectations over one DataFrame.

The page shows counts and scalar aggregates, and no value of a row. A failed finding has some rows that are to blame.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.audit.arrow_frames import ArrowFrame
from headrace.audit.gx_library import ExpectationNotEvaluatedError, Library, load_library
from headrace.audit.range import FAILING_ROWS, Frame, ShownRow, shown_value
from headrace.audit.store import Finding
from headrace.errors import PipelineError
from headrace.formats.fields import with_json
from headrace.model.expressions.data_types import Scalar
from headrace.pipeline.quality import Expectation, ExpectationView

_OF_TEXT: Final = frozenset(
    f"expect_column_{name}"
    for name in (
        *("value_lengths_to_be_between", "value_lengths_to_equal"),
        *("values_to_be_dateutil_parseable", "values_to_be_json_parseable", "values_to_match_json_schema"),
        *("values_to_match_like_pattern", "values_to_match_like_pattern_list"),
        *("values_to_match_regex", "values_to_match_regex_list", "values_to_match_strftime_format"),
        *("values_to_not_match_like_pattern", "values_to_not_match_like_pattern_list"),
        *("values_to_not_match_regex", "values_to_not_match_regex_list"),
    )
)
RESULT_FORMAT: Final = {"result_format": "BASIC", "partial_unexpected_count": 0}


@dataclass(frozen=True)
class ExpectationReport:
    """What was found on one view, in the order of the expectations, and the data docs as one HTML page."""

    findings: tuple[Finding, ...]
    page: bytes


def to_gx_expectations(expectations: Sequence[Expectation], using: Library) -> list[Any]:
    """The Great Expectations objects for ``expectations``, each knowing its position.

    Raises PipelineError for a name that Great Expectations does not have, or arguments that do not fit it.
    """
    return [
        _to_gx_expectation(expectation, position, using.registry) for position, expectation in enumerate(expectations)
    ]


def _to_gx_expectation(expectation: Expectation, position: int, registry: Any) -> Any:
    if expectation.name not in registry.list_registered_expectation_implementations():
        raise PipelineError(f"the Great Expectations that is installed has no {expectation.name}; install a newer one")
    try:
        return registry.get_expectation_impl(expectation.name)(**expectation.arguments, meta={"position": position})
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise PipelineError(f"the arguments of {expectation.describe()} do not fit: {reason}") from error


def check(expectations: Sequence[Expectation], columns: Mapping[ExpectationView, Sequence[str]]) -> None:
    """Raise PipelineError for the first that does not exist, has wrong arguments, or names no column of its view."""
    to_gx_expectations(expectations, load_library())
    for expectation in expectations:
        expectation.check_columns(columns[expectation.view])


def evaluate_expectations(
    view: ExpectationView, expectations: Sequence[Expectation], frame: Frame, identity: Sequence[str] = ()
) -> ExpectationReport:
    """Evaluate ``expectations`` on ``frame``, which is scanned many times: persist it before. Rows that fail one are
    named by the columns ``identity`` of the frame.

    Raises PipelineError for a mistake in an expectation, ExpectationNotEvaluatedError when it cannot be evaluated.
    """
    for expectation in expectations:
        expectation.check_columns(frame.columns)
    using = load_library()
    _check_texts(expectations, frame, using)
    result = _validate(view, expectations, frame, RESULT_FORMAT, using)
    for entry in result.results:
        _check_evaluated(expectations[_expectation_position(entry)], entry.exception_info)
        entry.result = _without_values(entry.result)
    entries = sorted(result.results, key=_expectation_position)
    findings = [_finding_from_entry(expectations[_expectation_position(entry)], entry) for entry in entries]
    failed_expectations = [finding.expectation for finding in findings if finding.has_failing_rows]
    failing = _failing_rows(view, failed_expectations, frame, identity, using)
    findings_with_rows = tuple(replace(f, failing=next(failing)) if f.has_failing_rows else f for f in findings)
    return ExpectationReport(findings_with_rows, _render_page(result, using))


def _check_texts(expectations: Sequence[Expectation], frame: Frame, using: Library) -> None:
    """Raise ExpectationNotEvaluatedError for the first that looks at the text of a float, which engines differ on."""
    if not any(expectation.name in _OF_TEXT for expectation in expectations):
        return
    if isinstance(frame, ArrowFrame):
        floats = {field.name for field in frame.table.schema if pa.types.is_floating(field.type)}
    else:
        floats = {*using.metrics.float_columns(frame)}
    for expectation in expectations:
        for name in expectation.columns if expectation.name in _OF_TEXT else ():
            if name in floats:
                raise ExpectationNotEvaluatedError(
                    f"{expectation.describe()} cannot be evaluated: it looks at text, and {name} is a float, which has "
                    "no one text. Expect a range or a set of its values"
                )


def _failing_rows(
    view: ExpectationView,
    expectations: Sequence[Expectation],
    frame: Frame,
    identity: Sequence[str],
    using: Library,
) -> Iterator[tuple[ShownRow, ...]]:
    """For each of ``expectations``, which look at rows and failed, the first rows that fail it."""
    if not expectations:
        return
    shown_columns = {
        "result_format": "SUMMARY",
        "partial_unexpected_count": FAILING_ROWS,
        "include_unexpected_rows": False,
    }
    if not isinstance(frame, ArrowFrame):  # which has them under the number of the row
        shown_columns["unexpected_index_column_names"] = list(identity)
    result = _validate(view, expectations, frame, shown_columns, using)
    for entry in sorted(result.results, key=_expectation_position):
        expectation = expectations[_expectation_position(entry)]
        numbers = entry.result.get("partial_unexpected_index_list")
        if isinstance(frame, ArrowFrame) and numbers is not None:
            yield _rows_at(frame.table, numbers, [*identity, *expectation.columns])
        else:
            yield _rows_of_result(entry.result, expectation, identity)


def _rows_at(table: pa.Table, numbers: Sequence[int], columns: Sequence[str]) -> tuple[ShownRow, ...]:
    """What those rows have in ``columns``."""
    rows = table.select([*dict.fromkeys(columns)]).take(pa.array(numbers[:FAILING_ROWS], pa.int64()))
    return tuple({name: _to_plain_value(value) for name, value in row.items()} for row in with_json(rows).to_pylist())


def _rows_of_result(
    result: Mapping[str, Any], expectation: Expectation, identity: Sequence[str]
) -> tuple[ShownRow, ...]:
    """The rows that ``result`` names: their ``identity``, then the columns that the expectation is about."""
    values = result.get("partial_unexpected_list", [])
    places = result.get("partial_unexpected_index_list") or [{} for _ in values]
    rows = [{**place, **_by_column(value, expectation)} for place, value in zip(places, values, strict=False)]
    names = [*identity, *(name for row in rows[:1] for name in row if name not in identity)]
    return tuple({name: _to_plain_value(row[name]) for name in names if name in row} for row in rows[:FAILING_ROWS])


def _by_column(value: Any, expectation: Expectation) -> Mapping[str, Any]:
    """What a row has in the columns of ``expectation``: Great Expectations gives a value, a pair, or a dict."""
    if isinstance(value, Mapping):
        return value
    column_arguments = (expectation.arguments.get(name) for name in ("column_A", "column_B"))
    pair = [str(name) for name in column_arguments if name is not None]
    if pair:
        return dict(zip(pair, value, strict=False))
    column = expectation.arguments.get("column")
    return {} if column is None else {str(column): value}


def _to_plain_value(value: Any) -> str | int | float | bool | None:
    """A value of a row, which may be numpy's or pandas' own, as it is kept and shown. There is no negative zero."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, np.generic):
        value = value.item()
    return shown_value(value + 0.0 if isinstance(value, float) else value)


def _validate(
    view: ExpectationView,
    expectations: Sequence[Expectation],
    frame: Frame,
    result_format: Mapping[str, Any],
    using: Library,
) -> Any:
    gx = using.gx
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = using.progress_bars(globally=False)
    rows: Any = frame
    if isinstance(frame, ArrowFrame):
        rows, source = using.metrics.pandas_frame(frame.table), context.data_sources.add_pandas(view)
        using.metrics.use_engine(source, using.metrics.GxPandasEngine)
    else:
        rows = using.metrics.without_pruning(frame)
        source = context.data_sources.add_spark(view, persist=False)
        using.metrics.use_engine(source, using.metrics.GxSparkEngine)
    batch = source.add_dataframe_asset(view).add_batch_definition_whole_dataframe(view)
    suite = context.suites.add(gx.ExpectationSuite(name=view, expectations=to_gx_expectations(expectations, using)))
    validator = using.validator(batch, result_format, {"dataframe": rows})
    with np.errstate(invalid="ignore", over="ignore"):  # of infinities
        return validator.validate_expectation_suite(suite)


def _expectation_position(entry: Any) -> int:
    position: int = entry.expectation_config.meta["position"]
    return position


def _check_evaluated(expectation: Expectation, exception_info: Mapping[str, Any]) -> None:
    # Either one record, or one per metric that raised.
    flat = "raised_exception" in exception_info
    for record in [exception_info] if flat else exception_info.values():
        if record["raised_exception"]:
            raise ExpectationNotEvaluatedError(
                f"{expectation.describe()} cannot be evaluated: {record['exception_message']}"
            )


def _without_values(result: Mapping[str, Any]) -> dict[str, Any]:
    """``result`` with counts and scalar aggregates only: lists and details hold values of rows."""
    kept_fields: dict[str, Any] = {
        name: value for name, value in result.items() if isinstance(value, int | float) or value is None
    }
    if "observed_value" in result:
        kept_fields["observed_value"] = _to_scalar(result["observed_value"])
    return kept_fields


def _to_scalar(value: object) -> Scalar:
    if isinstance(value, np.generic):  # what pandas counts, which is no int and shows its type
        value = value.item()
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, list | set | tuple):
        return f"{len(value)} values"
    return type(value).__name__


def _finding_from_entry(expectation: Expectation, entry: Any) -> Finding:
    has_count = "unexpected_count" in entry.result
    return Finding(
        name=expectation.name,
        arguments=dict(expectation.arguments),
        view=expectation.view,
        success=bool(entry.success),
        observed=entry.result.get("observed_value"),
        unexpected_count=entry.result["unexpected_count"] or 0 if has_count else None,  # None on an empty frame
        element_count=entry.result.get("element_count"),
    )


def _render_page(result: Any, using: Library) -> bytes:
    for entry in result.results:
        if "unexpected_percent" not in entry.result:  # its template takes for granted that the count has one
            entry.result.pop("unexpected_count", None)
        if entry.result.get("observed_value") == dict.__name__:  # several: the template wants them all, or none
            entry.result.pop("observed_value")
    document = using.page_renderer().render(result)
    html: str = using.page_view.render(document, show_how_to_buttons=False)
    return html.encode()
