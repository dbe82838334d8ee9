"""Where elements come from: a landing prefix of files, and what to do with what cannot be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.errors import PipelineError
from headrace.model.expr import DataType
from headrace.pipeline.folders import current

PLACE = {"is_place": True}
"""Metadata of a field that says where something lies, which does not change what it means."""


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
class SparkFunction:
    """A user's own Spark code over records, named ``module:function``: the function takes a DataFrame and gives one.

    It may add, change, drop and repeat rows (a flat-map is a select with ``explode``), each on its own: no groups, no
    order. Columns that start with ``_`` say where a record is from and must stay. ``returns`` are the columns that it
    gives. The module lies beside the pipeline's file, or is installed. ``deterministic``: equal rows always give equal
    rows. If not, the outcome of an epoch is kept until the epoch is committed, and a replay may come out otherwise.
    ``package`` says which folder is meant by "beside": that of the file which is being imported.
    """

    name: str
    returns: Mapping[str, DataType]
    deterministic: bool
    package: str | None = field(default_factory=current, repr=False, metadata=PLACE)

    def __post_init__(self) -> None:
        module, _, function = self.name.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), function)):
            raise PipelineError(f"{self.name!r} names no Spark function; write module:function")
        check_columns(f"Spark function {self.name}", self.returns)


def check_columns(what: str, schema: Mapping[str, DataType]) -> None:
    """Raise PipelineError if ``schema`` is not one of columns."""
    if not schema:
        raise PipelineError(f"{what} declares no columns; give {{name: DataType...}}")
    for name, kind in schema.items():
        if not isinstance(kind, DataType):
            raise PipelineError(f"column {name!r} of {what} has type {kind!r}; use one of DataType")
        if name.startswith("_"):
            raise PipelineError(f"column {name!r} of {what}: names that start with _ belong to Headrace")


@dataclass(frozen=True)
class FileSource:
    """Files under ``path``, read in the order of their names, each exactly once.

    ``path`` is relative to the root of the run (``landing/flights``) or a whole URI; a prefix, no pattern. Names
    that start with ``_`` or ``.``, also of folders below it, are no input; with ``suffixes`` only names that end so
    are, and without those that end in ``.tmp`` are not. ``schema`` names the columns to read. Files should sort
    after those landed before them; one that sorts up to ``look_back`` files before the newest is still found by the
    next run, an older straggler by a full sweep. An epoch takes at most ``max_files`` files and ``max_bytes``
    bytes; a larger file is an epoch of its own.

    Columns: one that the schema does not name is ignored; one that a record lacks is NULL; a narrower type is widened
    (int to float); a value of any other type makes the record a dead letter. CSV files have a header, which gives the
    order.
    ``transform`` makes other rows of those that parse; ``columns`` are then what it gives.
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
    transform: SparkFunction | None = None

    def __post_init__(self) -> None:
        check_columns(f"source {self.path}", self.schema)
        if {"*", "?"} & {*self.path}:
            raise PipelineError(
                f"the path of source {self.path} is a pattern, and must be a prefix, under which all files are input; "
                'write path="landing/flights", and suffixes=(".json",) if only those are meant'
            )
        for name in ("max_files", "max_bytes"):
            if getattr(self, name) < 1:
                raise PipelineError(f"{name} of source {self.path} must be at least 1, not {getattr(self, name)}")
        if self.look_back < 0:
            raise PipelineError(f"look_back of source {self.path} must not be negative: {self.look_back}")

    @property
    def columns(self) -> Mapping[str, DataType]:
        """What event time, key and aggregates read."""
        return self.schema if self.transform is None else self.transform.returns
