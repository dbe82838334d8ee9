"""What one epoch may hold in this process."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from headrace.errors import FixConfigError


class LargeEpochError(FixConfigError, code="config.large_epoch"):
    """An epoch has a column of more than 2 GB, which is as much as Arrow's strings and lists hold in one piece."""


@contextmanager
def columns_fit() -> Iterator[None]:
    """Raises LargeEpochError if a column outgrows Arrow's offsets of 32 bits."""
    try:
        yield
    except (pa.ArrowCapacityError, pa.ArrowInvalid) as error:
        if isinstance(error, pa.ArrowInvalid) and "overflow" not in str(error):
            raise
        raise LargeEpochError(
            f"a column of the epoch, of strings or lists, outgrows 2 GB ({error}): let an epoch take less input "
            "(--files-per-epoch, max_bytes of the source), or run the pipeline with --executor spark"
        ) from error
