"""How many dead letters a source allows in one epoch."""

from collections.abc import Mapping, Sequence

from headrace.errors import FixDataError
from headrace.pipeline.pipeline import Pipeline

SHOWN = 3
"""How many dead letters an error names."""


class DeadLetterBudgetError(FixDataError, code="data.dead_letter_budget"):
    """More records of one epoch were rejected than a source allows."""


def check_budgets(
    pipeline: Pipeline, epoch: int, rejected: Mapping[str, int], sample: Mapping[str, Sequence[str]]
) -> None:
    """Raise DeadLetterBudgetError if more records of an input are ``rejected`` than its source allows; ``sample`` shows
    some of them.
    """
    for given in pipeline.inputs:
        budget, count = given.source.max_rejected, rejected.get(given.name, 0)
        if budget is not None and count > budget:
            raise DeadLetterBudgetError(
                f"epoch {epoch} rejects {count} records of input {given.name} and max_rejected is {budget}: "
                f"{'; '.join(sample.get(given.name, ()))}. Correct the files, or raise max_rejected of the source"
            )
