"""What can be wrong with a source that Spark reads, by what the caller does."""

from headrace.errors import FixConfigError, RetryError
from headrace.formats.errors import FileColumnsError


class RangeFunctionError(FixConfigError, code="config.range_function"):
    """The function of a source that Spark reads cannot be imported, or gives what Headrace or Spark cannot use."""


class RangeColumnsError(FixConfigError, code="config.range_columns"):
    """A source that Spark reads gives other columns than its schema says. Nothing was landed."""


class RangeRefusedError(FixConfigError, code="config.range_refused"):
    """The database that a source reads through Spark refuses the login, or what it is asked for. Nothing was landed."""


class RangeFailedError(RetryError, code="retry.range_failed"):
    """The code of a source that Spark reads, or what it reads from, failed. Nothing was landed."""


class LandedColumnsError(FileColumnsError, code="data.landed_columns"):
    """A schema says otherwise of columns than what was landed of a source that Spark reads."""

    what_to_do = (
        "The schema has changed since it was landed: write the types that it had; of a column that is new, "
        'missing="null" makes it NULL in what was landed before'
    )
