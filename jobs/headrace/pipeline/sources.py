"""Where elements come from: a landing prefix of files, and what to do with what cannot be read.

Users write ``json``, ``csv`` and ``parquet``, and give what comes of them an event time.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict, Unpack

from headrace.entry_points import EntryPointGroup
from headrace.errors import PipelineError
from headrace.model.arguments import Arguments, Length
from headrace.model.changelog import Changelog, WrittenChangelog, changelog_of
from headrace.model.expressions.coercion import Read, read
from headrace.model.expressions.data_types import DataType, Schema
from headrace.model.expressions.expr import Column, Expr, Literal
from headrace.model.expressions.fields import (
    ColumnType,
    SourceColumns,
    SourceField,
    WrittenColumns,
    columns_of_source,
    fields_of,
    types_of,
)
from headrace.model.expressions.identity import same
from headrace.model.expressions.schemas import schema_of
from headrace.model.expressions.typing import type_of
from headrace.model.expressions.value_types import ListType, in_words
from headrace.model.suggestions import Suggesting, keywords
from headrace.model.vocabulary import REQUIRED, word
from headrace.model.watermarks import WatermarkStrategy
from headrace.pipeline.csv_dialect import CsvDialect
from headrace.pipeline.event_time import EventTime, arrival_time, event_time
from headrace.pipeline.file_formats import FORMATS
from headrace.pipeline.loading.folders import current

if TYPE_CHECKING:
    from headrace.sources.connector import SourceConnector
    from headrace.sources.formats.file_format import FileFormat

SOURCES: "Final[EntryPointGroup[SourceConnector]]" = EntryPointGroup(
    "headrace.sources",
    "kind of source",
    provides="headrace.sources.connector:SourceConnector",
    built_in={
        "files": "headrace.sources.files:FILES",
        "kafka": "headrace.sources.kafka.topic:KAFKA",
        "spark": "headrace.distribute.spark.ranges.connector:SPARK",
        "published": "headrace.read.upstream.connector:CONNECTOR",
    },
)
"""The code of sources by their kind; it is imported when a run, or what asks how far one has come, needs it."""

OWN = "source"
"""The name of a pipeline's own input, in snapshots and counts."""

PLACE = {"is_place": True}
"""Metadata of a field that says where something lies, which does not change what it means."""


class OnUnreadable(StrEnum):
    """What a file that cannot be read at all (a torn Parquet footer, say) does to the run."""

    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


class OnMissing(StrEnum):
    """What a declared column that a file lacks, and that the pipeline reads, does: it fails the run (of JSON, whose
    records may leave out what is NULL, it is a warning), or it is NULL.
    """

    FAIL = "fail"
    NULL = "null"


class NameOrder(StrEnum):
    """In which order of their names files land: in any, so that a run looks at all names; or each behind those that
    landed before it.
    """

    ANY = "any"
    ORDERED = "ordered"


@word("spark function", name=REQUIRED, returns=REQUIRED, deterministic=REQUIRED)
@keywords
@dataclass(frozen=True)
class SparkFunction:
    """A user's own Spark code over records, named ``module:function``: the function takes a DataFrame and gives one.

    It may add, change, drop and repeat rows (a flat-map is a select with ``explode``), each on its own: no groups, no
    order. Columns that start with ``_`` say where a record is from and must stay. ``returns`` are the columns that it
    gives. The module lies beside the pipeline's file, or is installed. ``deterministic``: equal rows always give equal
    rows. If not, the outcome of an epoch is kept until the epoch is committed, and a replay may come out otherwise.
    ``package`` says which folder is meant by "beside": that of the file which is being imported.

    >>> hr.SparkFunction("cleaning:split_lines", {"word": str}, deterministic=True).name
    'cleaning:split_lines'
    """

    name: str
    returns: Mapping[str, DataType]
    deterministic: bool
    package: str | None = field(default_factory=current, repr=False, metadata=PLACE)

    def __post_init__(self) -> None:
        given = Arguments("SparkFunction")
        given.text("name", self.name, "module:function")
        given.flag("deterministic", self.deterministic)
        if self.package is not None:
            given.text("package", self.package, "a folder of modules")
        module, _, function = self.name.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), function)):
            raise PipelineError(f"{self.name!r} names no Spark function; write module:function")
        object.__setattr__(self, "returns", schema_of(given, "returns", self.returns))


class Source(Suggesting, ABC):
    """Where records come from: a frozen dataclass of what tells its data from others', without any secret.

    ``kind`` names the code that reads it: ``files``, or an entry point of ``headrace.sources``. ``schema`` names the
    columns to read. An epoch takes at most ``max_files`` splits and ``max_bytes`` bytes. ``changelog``: how records say
    whether they add a row or withdraw one (semantics 14); None: they add rows.
    """

    kind: ClassVar[str]
    schema: SourceColumns
    max_files: int = 100
    max_bytes: int = 512 * 1024 * 1024
    max_rejected: int | None = None
    on_unreadable: OnUnreadable = OnUnreadable.FAIL
    missing: OnMissing = OnMissing.FAIL
    transform: SparkFunction | None = None
    changelog: Changelog | None = None
    is_upstream: ClassVar[bool] = False
    """Whether it is another pipeline."""

    def __post_init__(self) -> None:
        given = Arguments(type(self).__name__)
        object.__setattr__(self, "schema", columns_of_source(given, "schema", self.schema))

    @property
    @abstractmethod
    def place(self) -> str:
        """Where its data is, as text: with another place a pipeline has another definition."""

    @property
    def is_durable(self) -> bool:
        """Whether what was planned once can be read again for as long as snapshots live. If not, each run first lands
        what is new, as files in the folder of its pipeline; the reader of such a source is a ``FetchingReader``, or a
        ``WritingReader``.
        """
        return True

    @property
    def connections(self) -> tuple[str, ...]:
        """The names of the connections that reach it, which the process of a run must know."""
        return ()

    @property
    def plans_alike(self) -> bool:
        """Whether it plans the same splits again from an older position. If not, each run first notes in the folder of
        its pipeline which splits it has found; what is landed is noted anyway.
        """
        return True

    @property
    def is_watched(self) -> bool:
        """Whether a watcher, which loads no pipeline, can look for what is new: ``schedule=on_files(...)``. It makes
        the source again from its ``watched_fields``, with a schema of one column, and opens it as a run does.
        """
        return False

    def watched_fields(self) -> dict[str, Any]:
        """The fields that this kind of sources has beside those of all: text, numbers, booleans, None, and tuples and
        dicts of them. Raises PipelineError where one is something else, which a watcher could not be told.
        """
        names = [one.name for one in fields(self) if one.init and one.name not in Source.__annotations__]  # type: ignore[arg-type]
        own = {name: getattr(self, name) for name in names}
        for name, value in own.items():
            if not _is_json(value):
                raise PipelineError(
                    f"{self} says that it is watched, and its field {name} is {type(value).__name__}: a watcher makes "
                    "the source again from text, numbers, booleans, None, and tuples and dicts of them. Keep such "
                    'values in its fields, or write a schedule by times, such as "*/5 * * * *"'
                )
        return own

    @property
    def own_split(self) -> Read | None:
        """Whose values each have a watermark if ``event_time`` is given no ``split``; None: all share one."""
        return None

    @cached_property
    def fields(self) -> Mapping[str, SourceField]:
        """Where each column of the schema is in the records."""
        return fields_of(self.schema)

    @cached_property
    def types(self) -> Schema:
        """The types of the columns of the schema."""
        return types_of(self.schema)

    @cached_property
    def metadata(self) -> Mapping[str, ColumnType]:
        """The columns of the schema that the source says of each record, whatever is in it."""
        return {}

    @property
    def in_records(self) -> SourceColumns:
        """The columns of the schema that are in the records."""
        return {name: column for name, column in self.schema.items() if name not in self.metadata}

    @cached_property
    def as_read(self) -> "Source":
        """The source as it is read: with what its ``changelog`` reads of records, beside columns or in their place."""
        own = self.in_records
        read = own if self.changelog is None else self.changelog.as_read(own)
        return self if read is own else replace(self, schema={**read, **self.metadata}, changelog=None)  # type: ignore[type-var]

    @property
    def columns(self) -> Schema:
        """What event time, key and aggregates read."""
        return self.types if self.transform is None else self.transform.returns

    def __str__(self) -> str:
        return f"{self.kind} {self.place}"

    @keywords
    def event_time(
        self,
        at: Read,
        *,
        bound: Length | None = None,
        watermark: WatermarkStrategy | None = None,
        idle: Length | None = None,
        split: Read | None = None,
        max_ahead: Length | None = "1d",
    ) -> "Input":
        """Give this source the event time ``at``, a timestamp: the name of a column, or an expression.

        ``bound`` is how far records may be out of order: the watermark is the largest event time minus it ("0s": they
        are in order). ``watermark`` is another strategy, in its place. With ``split``, text, each of its values has a
        watermark of its own and the least counts, so that one quiet producer holds it back (of a topic of Kafka each
        partition has one, unless another is given). A split that was silent for
        ``idle`` in processing time is left out until it speaks again. A record dated further than ``max_ahead`` after
        processing time is accepted, but moves no watermark: one mistaken date would take it past all others (semantics
        12.14). None is for schedules, whose times lie ahead by nature.
        """
        split = self.own_split if split is None else split
        when = event_time(at, bound=bound, watermark=watermark, idle=idle, split=split, max_ahead=max_ahead)
        return Input(self, when)

    def arrival_time(self) -> "Input":
        """Take the processing time of the epoch that reads a record as its event time: nothing is late."""
        return Input(self, arrival_time())


@keywords
@dataclass(frozen=True, init=False)
class FileSource(Source):
    """Files under ``path``, read in the order of their names, each exactly once.

    Written as ``json(...)``, ``csv(...)`` or ``parquet(...)``, and followed by ``event_time`` or ``arrival_time``;
    ``FileSource(path, "name", schema)`` if another package brings the ``format`` (an entry point of
    ``headrace.formats``).
    ``path`` is relative to the root of the run (``landing/flights``) or a whole URI; a prefix, not a pattern. Files and
    folders whose names start with ``_`` or ``.`` are not input, but for folders ``column=value``. With ``suffixes``
    only names that end in one of them are input; without, all but those of files under way (``.tmp``, ``.part``,
    ``.filepart``, ``.crdownload``, ``.inprogress``). ``schema`` names the columns to read. An epoch takes at most
    ``max_files`` files and ``max_bytes`` bytes; a larger file is an epoch of its own.

    What is new is what has no name that was ever read, wherever it sorts. ``names="ordered"`` promises that each file
    sorts after those landed before it: a run lists the newest ``look_back`` files and what sorts after them; an older
    straggler is found by a full sweep, as the first run of a day is, which warns of it.

    A column whose name in the records is another, or begins with ``_``, or which lies in an object there, is a
    ``field``; ``list[str]`` is a list of strings, which ``length``, ``contains``, ``is_null`` and a ``transform`` read.

    Columns: one that the schema does not name is ignored; one that a record lacks is NULL; a narrower type is widened
    (int to float); a value of any other type makes the record a dead letter. CSV files have a header, which gives the
    order. ``missing``: a column that the pipeline reads and that the header of a CSV file, or the schema of a Parquet
    file, lacks fails the run; "null": it is NULL in all records of the file. The run warns of a JSON file that has it
    in no record, unless ``missing`` is "null". ``transform`` makes other rows of the records that parse; ``columns``
    are then those that it returns. ``max_rejected`` is the budget of dead letters per epoch: None means no limit, 0
    that one bad record fails the run. ``changelog``: an expression that is 1 of a record which adds a row and -1 of one
    which withdraws it, ``delta_change_type()``, or ``debezium_envelope()``, whose rows then have the ``schema``.

    >>> hr.json("landing/clicks", {"shop": str}, max_files=10).max_files
    10
    """

    kind: ClassVar[str] = "files"

    path: str
    format: str
    schema: SourceColumns
    max_files: int
    max_bytes: int
    look_back: int
    names: NameOrder
    max_rejected: int | None
    on_unreadable: OnUnreadable
    missing: OnMissing
    suffixes: tuple[str, ...]
    transform: SparkFunction | None
    changelog: Changelog | None
    dialect: CsvDialect | None

    def __init__(
        self,
        path: str,
        format: str,  # noqa: A002 (the word of the domain)
        schema: WrittenColumns,
        *,
        max_files: int = 100,
        max_bytes: int = 512 * 1024 * 1024,
        look_back: int = 1000,
        names: NameOrder | str = NameOrder.ANY,
        max_rejected: int | None = None,
        on_unreadable: OnUnreadable | str = OnUnreadable.FAIL,
        missing: OnMissing | str = OnMissing.FAIL,
        suffixes: Sequence[str] = (),
        transform: SparkFunction | None = None,
        changelog: WrittenChangelog | None = None,
        dialect: CsvDialect | None = None,
    ) -> None:
        kind = Arguments("FileSource").registered("format", format, FORMATS)
        given = Arguments(kind if kind in FORMATS.built_in else "FileSource")  # the function that users write
        set_ = object.__setattr__
        set_(self, "path", given.text("path", path, "landing/flights"))
        set_(self, "format", kind)
        set_(self, "schema", columns_of_source(given, "schema", schema))
        set_(self, "max_files", given.whole("max_files", max_files, least=1))
        set_(self, "max_bytes", given.whole("max_bytes", max_bytes, least=1))
        set_(self, "look_back", given.whole("look_back", look_back, least=0))
        set_(self, "names", given.choice("names", names, NameOrder))
        limit = None if max_rejected is None else given.whole("max_rejected", max_rejected, least=0)
        set_(self, "max_rejected", limit)
        set_(self, "on_unreadable", given.choice("on_unreadable", on_unreadable, OnUnreadable))
        set_(self, "missing", given.choice("missing", missing, OnMissing))
        set_(self, "suffixes", given.several("suffixes", suffixes, str, '".json"'))
        function = 'SparkFunction("module:function", ...)'
        made = None if transform is None else given.instance("transform", transform, SparkFunction, function)
        set_(self, "transform", made)
        signed = changelog_of(given, changelog)
        set_(self, "changelog", signed)
        if signed is not None:
            signed.check(given, self.schema)
        set_(self, "dialect", _dialect(given, kind, dialect))
        if {"*", "?"} & {*self.path}:
            raise given.wrong(
                "path",
                path,
                "that is a pattern, and a path is a prefix, under which all files are input; "
                'write "landing/flights", and suffixes=[".json"] if only those are meant',
            )

    @property
    def place(self) -> str:
        """The path."""
        return self.path

    @property
    def file_format(self) -> "FileFormat":
        """What reads its files, and writes those of late records, dead letters and unit tests."""
        form = FORMATS[self.format]
        return form if self.dialect is None else form.in_dialect(self.dialect)

    @property
    def is_watched(self) -> bool:
        """A watcher lists the path."""
        return True

    def __str__(self) -> str:
        return f"{self.format} files under {self.path}"


def _is_json(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(one) for key, one in value.items())
    return value is None or type(value) in (str, int, float, bool)


@keywords
@dataclass(frozen=True)
class Input(Suggesting):
    """A source with its event time: what a pipeline reads, alone or beside others (12.9). Written
    ``json(...).event_time(...)``.

    >>> clicks = hr.json("landing/clicks", {"shop": str, "amount": int, "at": datetime})
    >>> clicks.event_time("at", bound="1h").named("web").name
    'web'
    """

    source: Source
    event_time: EventTime
    name: str = OWN
    columns: Mapping[str, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = Arguments("Input")
        if not isinstance(self.source, Source):
            raise given.wrong("source", self.source, 'write a source such as json("landing/flights", {...})')
        given.instance("event_time", self.event_time, EventTime, ".event_time(...) of a source in its place")

    @property
    def has_own_split(self) -> bool:
        """Whether its splits are those that the source itself tells apart."""
        own, split = self.source.own_split, self.event_time.split
        if own is None or split is None:
            return own is split
        return same(split, read(Arguments("own_split"), "split", own))

    @keywords
    def named(self, name: str, columns: Mapping[str, Expr] | None = None) -> "Input":
        """Name this input for ``union=`` of a pipeline: its records join those of the pipeline's own input, and the
        watermark is the minimum over all inputs (12.9).

        Its records take the form of the pipeline's own: ``columns`` gives columns of the pipeline's schema as
        expressions over this input's; if it leaves one out, this input's column of that name counts, or NULL. A column
        that says which input a record is from is a literal: ``{"side": lit("bid")}``.
        """
        given = Arguments("named")
        text = given.text("name", name, "weather")
        if text == OWN:
            raise given.wrong("name", name, "that is the name of every pipeline's own input; choose another")
        write = '{"name": expression}, such as {"origin": col("airport")}'
        return replace(
            self, name=text, columns=given.mapping("columns", {} if columns is None else columns, Expr, write, least=0)
        )

    def expressions(self, schema: Schema) -> dict[str, Expr]:
        """Every column of ``schema``, the pipeline's, over this input's. Raises PipelineError if one does not fit."""
        unknown = self.columns.keys() - schema.keys()
        if unknown:
            raise PipelineError(
                f"input {self.name} gives {', '.join(sorted(unknown))}, which the pipeline does not read"
            )
        return {name: self._expression(name, kind) for name, kind in schema.items()}

    def _expression(self, name: str, kind: DataType | ListType) -> Expr:
        expr = self.columns.get(name)
        if isinstance(kind, ListType):
            return self._list(name, kind, expr)
        if expr is None:
            expr = Column(name) if name in self.source.columns else Literal(None, kind)
        own_kind = type_of(expr, self.source.columns)
        if own_kind is not kind:
            raise PipelineError(
                f"input {self.name} gives {name!r} as {own_kind}, and the pipeline reads {kind}; cast it"
            )
        return expr

    def _list(self, name: str, kind: ListType, expr: Expr | None) -> Column:
        """A list of the pipeline's schema: one of this input's own."""
        own = Column(name) if expr is None else expr
        if not isinstance(own, Column) or self.source.columns.get(own.name) != kind:
            raise PipelineError(
                f"input {self.name} has no column {name!r} that is a {in_words(kind)}: declare it in the schema, or "
                f'name a column of that type, columns={{"{name}": col(...)}}'
            )
        return own


def _dialect(given: Arguments, kind: str, dialect: CsvDialect | None) -> CsvDialect | None:
    """How files of format ``kind`` are written; None: as RFC 4180 says."""
    if dialect is None:
        return None
    written = given.instance("dialect", dialect, CsvDialect, "nothing: csv(...) has options for it")
    if kind != "csv":
        raise given.wrong("dialect", dialect, f"files of format {kind} have none; only CSV has")
    return written if written.options else None


class Reading(TypedDict, total=False):
    """How files are read: the arguments of ``FileSource`` beside path, format and schema."""

    max_files: int
    max_bytes: int
    look_back: int
    names: NameOrder | str
    max_rejected: int | None
    on_unreadable: OnUnreadable | str
    missing: OnMissing | str
    suffixes: Sequence[str]
    transform: SparkFunction | None
    changelog: WrittenChangelog | None


@keywords
def json(path: str, schema: WrittenColumns, **reading: Unpack[Reading]) -> FileSource:
    """Files of JSON lines, one object each, under ``path``.

    >>> hr.json("landing/flights", {"origin": str, "delay": int}).format
    'json'
    """
    return FileSource(path, "json", schema, **reading)


@keywords
def csv(
    path: str,
    schema: WrittenColumns,
    *,
    delimiter: str = ",",
    quote: str | None = '"',
    escape: str | None = None,
    encoding: str = "utf-8",
    skip_lines: int = 0,
    nulls: Sequence[str] = (),
    decimal: str = ".",
    thousands: str | None = None,
    **reading: Unpack[Reading],
) -> FileSource:
    """CSV files under ``path``, each with a header.

    Files that are written otherwise than with commas, quotes and in UTF-8: ``delimiter`` parts fields (";", "\\t");
    ``quote`` encloses them, and is doubled in them (None: nothing does); ``escape``, such as a backslash, takes the
    meaning of the character behind it; ``encoding`` is one that Python knows ("cp1252", "utf-16"); ``skip_lines``
    before the header are left out; ``nulls`` are NULL, beside the empty field ("NA"); numbers have a ``decimal`` comma,
    and ``thousands`` between groups of three digits.

    >>> hr.csv("landing/flights", {"origin": str, "delay": int}).format
    'csv'
    >>> hr.csv("landing/sales", {"shop": str, "amount": float}, delimiter=";", decimal=",").dialect.decimal
    ','
    """
    dialect = CsvDialect(
        delimiter=delimiter,
        quote=quote,
        escape=escape,
        encoding=encoding,
        skip_lines=skip_lines,
        nulls=nulls,
        decimal=decimal,
        thousands=thousands,
    )
    return FileSource(path, "csv", schema, **reading, dialect=dialect)


@keywords
def parquet(path: str, schema: WrittenColumns, **reading: Unpack[Reading]) -> FileSource:
    """Parquet files under ``path``.

    >>> hr.parquet("landing/flights", {"origin": str, "delay": int}).format
    'parquet'
    """
    return FileSource(path, "parquet", schema, **reading)
