"""Runs neutral expectations with Great Expectations over one DataFrame. Importing this takes seconds.

No value of a row leaves: only counts, scalar aggregates, and a page that shows the same.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

os.environ["GX_ANALYTICS_ENABLED"] = "false"
logging.getLogger("great_expectations").setLevel(logging.WARNING)  # before the import: it logs 200 lines

import numpy as np  # noqa: E402

from headrace.audit.later import imported_later  # noqa: E402

with imported_later("altair", "scipy.stats"):  # a third of the import, for a few expectations and a picture
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig
    from great_expectations.expectations import registry
    from great_expectations.render.renderer import ValidationResultsPageRenderer
    from great_expectations.render.view import DefaultJinjaPageView

from headrace.audit.arrow_frames import ArrowFrame  # noqa: E402
from headrace.audit.frames import Frame  # noqa: E402
from headrace.audit.store import Finding  # noqa: E402
from headrace.errors import FixConfigError, PipelineError  # noqa: E402
from headrace.model.expr import Scalar  # noqa: E402
from headrace.pipeline.expectations import Expectation, View  # noqa: E402

logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)  # its import says INFO

RESULT_FORMAT: Final = {"result_format": "BASIC", "partial_unexpected_count": 0}


class ExpectationNotEvaluatedError(FixConfigError):
    """Great Expectations could not say whether an expectation holds: it does not suit the column."""

    code = "config.expectation_not_evaluated"


@dataclass(frozen=True)
class Report:
    """What was found on one view, in the order of the expectations, and the data docs as one HTML page."""

    findings: tuple[Finding, ...]
    page: bytes


def translate(expectations: Sequence[Expectation]) -> list[Any]:
    """The Great Expectations objects for ``expectations``, each knowing its position.

    Raises PipelineError for a name that Great Expectations does not have, or arguments that do not fit it.
    """
    return [_translate(expectation, position) for position, expectation in enumerate(expectations)]


def _translate(expectation: Expectation, position: int) -> Any:
    if expectation.name not in registry.list_registered_expectation_implementations():
        raise PipelineError(f"the Great Expectations that is installed has no {expectation.name}; install a newer one")
    try:
        return registry.get_expectation_impl(expectation.name)(**expectation.arguments, meta={"position": position})
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise PipelineError(f"the arguments of {expectation.describe()} do not fit: {reason}") from error


def check(expectations: Sequence[Expectation], columns: Mapping[View, Sequence[str]]) -> None:
    """Raise PipelineError for the first of ``expectations`` that there is not, or whose arguments do not fit it, or
    that names none of the ``columns`` of its view.
    """
    translate(expectations)
    for expectation in expectations:
        expectation.check_columns(columns[expectation.view])


def evaluate(view: View, expectations: Sequence[Expectation], frame: Frame) -> Report:
    """Evaluate ``expectations`` on ``frame``, which is scanned many times: persist it before.

    Raises PipelineError for a mistake in an expectation, ExpectationNotEvaluatedError when it cannot be evaluated.
    """
    for expectation in expectations:
        expectation.check_columns(frame.columns)
    result = _validate(view, translate(expectations), frame)
    for entry in result.results:
        _check_evaluated(expectations[_position(entry)], entry.exception_info)
        entry.result = _without_values(entry.result)
    ordered = sorted(result.results, key=_position)
    findings = tuple(_finding(expectations[_position(entry)], entry) for entry in ordered)
    return Report(findings, _page(result))


def _validate(view: View, expectations: list[Any], frame: Frame) -> Any:
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False)
    rows: Any = frame
    if isinstance(frame, ArrowFrame):
        rows, source = frame.to_pandas(), context.data_sources.add_pandas(view)
    else:
        source = context.data_sources.add_spark(view, persist=False)
    batch = source.add_dataframe_asset(view).add_batch_definition_whole_dataframe(view)
    suite = context.suites.add(gx.ExpectationSuite(name=view, expectations=expectations))
    validation = context.validation_definitions.add(gx.ValidationDefinition(name=view, data=batch, suite=suite))
    return validation.run(batch_parameters={"dataframe": rows}, result_format=RESULT_FORMAT)


def _position(entry: Any) -> int:
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
    kept: dict[str, Any] = {
        name: value for name, value in result.items() if isinstance(value, int | float) or value is None
    }
    if "observed_value" in result:
        kept["observed_value"] = _scalar(result["observed_value"])
    return kept


def _scalar(value: object) -> Scalar:
    if isinstance(value, np.generic):  # what pandas counts, which is no int and shows its type
        value = value.item()
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, list | set | tuple):
        return f"{len(value)} values"
    return type(value).__name__


def _finding(expectation: Expectation, entry: Any) -> Finding:
    counted = "unexpected_count" in entry.result
    return Finding(
        name=expectation.name,
        arguments=dict(expectation.arguments),
        view=expectation.view,
        success=bool(entry.success),
        observed=entry.result.get("observed_value"),
        unexpected_count=entry.result["unexpected_count"] or 0 if counted else None,  # None on an empty frame
        element_count=entry.result.get("element_count"),
    )


def _page(result: Any) -> bytes:
    for entry in result.results:
        if "unexpected_percent" not in entry.result:  # its template takes for granted that the count has one
            entry.result.pop("unexpected_count", None)
    document = ValidationResultsPageRenderer().render(result)
    html: str = DefaultJinjaPageView().render(document, show_how_to_buttons=False)
    return html.encode()
