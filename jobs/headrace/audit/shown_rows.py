"""Rows as they are kept with a finding, and shown to people."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from headrace.model.time import instant, render

FAILING_ROWS: Final = 5
"""As many of the rows that are to blame are kept."""

_LONGEST_VALUE: Final = 200

Row = Mapping[str, str | int | float | bool | None]
"""A row for people: values by column, times as ISO 8601 in UTC."""


def shown_value(value: Any) -> str | int | float | bool | None:
    """One of Python's values as it is kept and shown: times in UTC, long text cut."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return render(instant(value.replace(tzinfo=UTC) if value.tzinfo is None else value))
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
