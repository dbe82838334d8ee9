"""What must hold of the output before readers see it: neutral data, run by Great Expectations in the audit, and checked
here against what that library knows (``expectations.json``), which is not imported.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, did_you_mean, keywords
from headrace.model.expressions.data_types import Scalar

COLUMN_ARGUMENTS = ("column", "column_A", "column_B", "column_list")
"""The arguments that name columns of the view."""


class ExpectationView(StrEnum):
    """Which rows an expectation is about: the panes of the audited epochs, or the ``current`` rows that they change."""

    PANES = "panes"
    CURRENT = "current"


Argument = Scalar | list[Any] | dict[str, Any]


@keywords
@dataclass(frozen=True)
class Expectation:
    """``name`` is a Great Expectations expectation in snake case (``expect_column_values_to_be_between``).

    Every audit keeps the ``arguments`` in the form of JSON, which tells whether it was an audit of this expectation. A
    time is written as text. Raises PipelineError if there is no such expectation, or the arguments do not fit it.

    >>> print(hr.expect("column_values_to_not_be_null", column="n").describe())
    expect_column_values_to_not_be_null(column='n') on current
    """

    name: str
    arguments: Mapping[str, Argument]
    view: ExpectationView = ExpectationView.CURRENT

    def __post_init__(self) -> None:
        try:
            kept = json.loads(json.dumps(dict(self.arguments), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise PipelineError(
                f"the arguments of {self.describe()} must be text, numbers, booleans, None, or lists of these (a time "
                f"as text): {error}"
            ) from error
        object.__setattr__(self, "arguments", kept)
        object.__setattr__(self, "view", Arguments("expect").choice("view", self.view, ExpectationView))
        _check_arguments(Arguments(f"expect {self.name}"), _known(self.name), kept)

    def describe(self) -> str:
        """For people: name, arguments and view on one line."""
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())}) on {self.view}"

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise PipelineError if it names a column that is not among its view's ``columns``."""
        for argument in COLUMN_ARGUMENTS:
            value = self.arguments.get(argument)
            for name in value if isinstance(value, list) else [value]:
                if name is not None and name not in columns:
                    raise PipelineError(
                        f"{self.describe()}: the view has no column {name!r}; it has {', '.join(columns)}"
                    )


def expect(name: str, view: ExpectationView | str = ExpectationView.CURRENT, **arguments: Argument) -> Expectation:
    """``expect("column_values_to_be_between", column="flights", min_value=0)``; ``expect_`` may be left out.

    >>> print(hr.expect("column_values_to_be_between", column="n", min_value=0).describe())
    expect_column_values_to_be_between(column='n', min_value=0) on current
    """
    text = Arguments("expect").text("name", name, "column_values_to_not_be_null")
    full = text if text.startswith("expect_") else f"expect_{text}"
    return Expectation(full, arguments, Arguments("expect").choice("view", view, ExpectationView))


@cache
def _table() -> Mapping[str, Mapping[str, str]]:
    from importlib.resources import files  # of a pipeline with expectations alone

    table: Mapping[str, Mapping[str, str]] = json.loads(
        (files("headrace.pipeline") / "expectations.json").read_text(encoding="utf-8")
    )
    return table


def _known(name: str) -> Mapping[str, str]:
    if name in _table():
        return _table()[name]
    hint = did_you_mean(str(name), _table()).strip() or "see https://greatexpectations.io/expectations for the names"
    raise PipelineError(f"Great Expectations has no {name}; {hint}")


def _check_arguments(given: Arguments, known: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    kinds = {name.removesuffix("?"): kind for name, kind in known.items()}
    for name, value in arguments.items():
        if name not in kinds:
            hint = did_you_mean(name, [*kinds, "view"])
            raise given.wrong(name, value, f"there is no such argument; {hint}it takes {', '.join(kinds)}")
        if value is not None and not any(_fits(kind, value) for kind in kinds[name].split(" | ")):
            raise given.wrong(name, value, f"write {' or '.join(_named(kinds[name]))}")
    for name in known:
        if not name.endswith("?") and arguments.get(name) is None:
            raise PipelineError(
                f"{given.owner}: the argument {name} is missing; write {' or '.join(_named(known[name]))}"
            )
    is_bounded = given.owner.endswith("_between") and "min_value?" in known
    if is_bounded and arguments.get("min_value") is None and arguments.get("max_value") is None:
        raise PipelineError(f"{given.owner}: it has no bounds; give min_value, max_value or both")


_CLASSES: Mapping[str, type | tuple[type, ...]] = {
    "text": str,
    "number": (int, float),
    "whole number": int,
    "flag": bool,
    "list": list,
    "mapping": dict,
    "anything": object,
}


def _fits(kind: str, value: object) -> bool:
    if kind not in _CLASSES:
        return kind == f"={value}"
    return isinstance(value, _CLASSES[kind]) and (not isinstance(value, bool) or kind in ("flag", "anything"))


def _named(kinds: str) -> Iterator[str]:
    words = {"text": "text", "number": "a number", "whole number": "a whole number", "flag": "True or False"}
    words |= {"list": "a list", "mapping": "a mapping", "anything": "a value"}
    return (words.get(kind, repr(kind.removeprefix("="))) for kind in kinds.split(" | "))
