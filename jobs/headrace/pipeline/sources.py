"""Where elements come from: a landing prefix of files, and what to do with what cannot be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.errors import PipelineError
from headrace.model.expr import DataType


class FileFormat(StrEnum):
    """Formats of landed files."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


class OnUnreadable(StrEnum):
    """What a file that cannot be read at all (a torn Parquet footer, say) does to the run."""

    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


@dataclass(frozen=True)
class FileSource:
    """Files under ``path``, read in the order of their names, each exactly once.

    ``path`` is relative to the root of the run (``landing/flights``) or a whole URI. ``schema`` names the columns to
    read. Files should sort after those landed before them; one that sorts up to ``look_back`` files before the newest
    is still found by the next run, an older straggler by a full sweep. An epoch takes at most ``max_files`` files and
    ``max_bytes`` bytes; a larger file is an epoch of its own.

    Columns: one that the schema does not name is ignored; one that a record lacks is NULL; a narrower type is widened
    (int to float); a value of any other type makes the record a dead letter. CSV files have a header, which gives the
    order.
    ``max_rejected`` is the budget of dead letters per epoch: None means no limit, 0 that one bad record fails the run.
    """

    path: str
    format: FileFormat
    schema: Mapping[str, DataType]
    max_files: int = 100
    max_bytes: int = 512 * 1024 * 1024
    look_back: int = 1000
    max_rejected: int | None = None
    on_unreadable: OnUnreadable = OnUnreadable.FAIL
    suffixes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.schema:
            raise PipelineError(f"the source {self.path} declares no columns; give schema={{name: DataType...}}")
        for name, kind in self.schema.items():
            if not isinstance(kind, DataType):
                raise PipelineError(f"column {name!r} of source {self.path} has type {kind!r}; use one of DataType")
            if name.startswith("_"):
                raise PipelineError(
                    f"column {name!r} of source {self.path}: names that start with _ belong to Headrace"
                )
        for name in ("max_files", "max_bytes"):
            if getattr(self, name) < 1:
                raise PipelineError(f"{name} of source {self.path} must be at least 1, not {getattr(self, name)}")
        if self.look_back < 0:
            raise PipelineError(f"look_back of source {self.path} must not be negative: {self.look_back}")
