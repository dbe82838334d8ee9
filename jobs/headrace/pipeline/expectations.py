"""What must hold of the output before readers see it: neutral data, run by Great Expectations in the audit."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import PipelineError
from headrace.model.expr import Scalar


class View(StrEnum):
    """Which rows an expectation is about: the panes of the audited epochs, or the ``current`` rows that they change."""

    PANES = "panes"
    CURRENT = "current"


Argument = Scalar | list[Scalar]


@dataclass(frozen=True)
class Expectation:
    """``name`` is a Great Expectations expectation in snake case (``expect_column_values_to_be_between``).

    ``arguments`` are kept with every audit, as JSON gives them back: that tells whether the audit was of this.
    """

    name: str
    arguments: Mapping[str, Argument]
    view: View = View.CURRENT

    def __post_init__(self) -> None:
        if not re.fullmatch(r"expect_[a-z0-9_]+", self.name):
            raise PipelineError(
                f"{self.name!r} is no expectation: give its snake_case name, "
                "such as expect_column_values_to_not_be_null"
            )
        try:
            kept = json.loads(json.dumps(dict(self.arguments)))
        except (TypeError, ValueError) as error:
            raise PipelineError(
                f"the arguments of {self.describe()} must be text, numbers, booleans, None, or lists of these (a time "
                f"as text): {error}"
            ) from error
        object.__setattr__(self, "arguments", kept)

    def describe(self) -> str:
        """For people: name, arguments and view on one line."""
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.arguments.items())}) on {self.view}"


def expect(name: str, view: View | str = View.CURRENT, **arguments: Argument) -> Expectation:
    """``expect("column_values_to_be_between", column="flights", min_value=0)``; ``expect_`` may be left out."""
    full = name if name.startswith("expect_") else f"expect_{name}"
    if view not in list(View):
        raise PipelineError(f"{full} is about the view {view!r}; there are {', '.join(View)}")
    return Expectation(full, arguments, View(view))
