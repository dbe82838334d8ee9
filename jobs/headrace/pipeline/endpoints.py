"""The ends of a pipeline: what all sources have in common, and what all sinks have.

A source has a definition, and an event time makes an input of it. A sink is a system beside the root that follows what
readers see; it is no part of what a pipeline means.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, ClassVar, Final

from headrace.errors import PipelineError
from headrace.model.arguments import (
    REQUIRED,
    Arguments,
    Length,
    Suggesting,
    check_keywords,
    did_you_mean,
    register_word,
)
from headrace.model.changelog import Changelog, RecordSign, Versions
from headrace.model.event_time import EventTime, WatermarkStrategy, arrival_time, event_time
from headrace.model.expressions import columns as expression_columns
from headrace.model.expressions.columns import column_or_expression
from headrace.model.expressions.data_types import (
    ListType,
    NestedType,
    Schema,
    in_words,
    nested_schema,
)
from headrace.model.expressions.expr import Column, Expr, Literal
from headrace.model.expressions.typing import columns_of, is_same_expression, type_of
from headrace.pipeline.loading.modules import current_package

OWN = "source"
"""The name of a pipeline's own input, in snapshots and counts."""

PLACE = {"is_place": True}
"""Metadata of a field that says where something lies, which does not change what it means."""


class OnUnreadable(StrEnum):
    """What a file that cannot be read at all (a torn Parquet footer, say) does to the run."""

    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


class OnMissing(StrEnum):
    """What happens when a file lacks a declared column that the pipeline reads: the run fails, or the column is NULL.
    Where records are JSON, which may leave out NULLs, FAIL gives a warning.
    """

    FAIL = "fail"
    NULL = "null"


FunctionKey = tuple[str, str | None]
"""The name and the package of a user's own function."""


@dataclass(frozen=True)
class OwnFunction:
    """A user's own function over records, named ``module:function``, and the columns that it ``returns``.

    The module lies beside the pipeline's file, or is installed. ``deterministic``: equal rows always give equal rows.
    If not, the outcome of an epoch is kept until the epoch is committed, and a replay may come out otherwise.
    ``package`` says which folder is meant by "beside": that of the file which is being imported.
    """

    noun: ClassVar[str]
    """What messages call it."""

    name: str
    returns: Schema
    deterministic: bool
    package: str | None = field(default_factory=current_package, repr=False, metadata=PLACE)

    def __post_init__(self) -> None:
        arguments = Arguments(type(self).__name__)
        arguments.text("name", self.name, "module:function")
        arguments.flag("deterministic", self.deterministic)
        if self.package is not None:
            arguments.text("package", self.package, "a folder of modules")
        module, _, function = self.name.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), function)):
            raise PipelineError(f"{self.name!r} names no {self.noun}; write module:function")
        object.__setattr__(self, "returns", nested_schema(arguments, "returns", self.returns))

    @property
    def known_by(self) -> FunctionKey:
        """Its name and its package."""
        return self.name, self.package

    @property
    def in_words(self) -> str:
        """What a description calls it: "Spark code parsing:flat"."""
        return f"{self.noun} {self.name}"


@register_word("spark function", name=REQUIRED, returns=REQUIRED, deterministic=REQUIRED)
@check_keywords
@dataclass(frozen=True)
class SparkFunction(OwnFunction):
    """A user's own Spark code over records, named ``module:function``: the function takes a DataFrame and gives one.

    It may add, change, drop and repeat rows (a flat-map is a select with ``explode``), each on its own: no groups, no
    order. Columns that start with ``_`` say where a record is from and must stay. ``returns`` are the columns that it
    gives, also lists, structs and maps, as in a schema. The module lies beside the pipeline's file, or is installed.
    ``deterministic``: equal rows always give equal rows. If not, the outcome of an epoch is kept until the epoch is
    committed, and a replay may come out otherwise. ``package`` says which folder is meant by "beside": that of the
    file which is being imported.

    >>> hr.SparkFunction("cleaning:split_lines", {"word": str}, deterministic=True).name
    'cleaning:split_lines'
    """

    noun: ClassVar[str] = "Spark function"


@register_word("batch function", name=REQUIRED, returns=REQUIRED, deterministic=REQUIRED)
@check_keywords
@dataclass(frozen=True)
class BatchFunction(OwnFunction):
    """A user's own Python over records, named ``module:function``: the function takes an Arrow RecordBatch and gives
    one. It runs where records are read, on every executor.

    It may add, change, drop and repeat rows, each on its own: where batches end is nobody's business. The column
    ``_row`` numbers the rows of a batch; a row that is given says by it which one it was made of. ``returns`` are the
    other columns that it gives, also lists (``list[str]``), structs and maps, as in a schema. The module lies beside
    the pipeline's file, or is installed. ``deterministic``: equal rows always give equal rows, which is looked at for
    some rows of each batch. If not, a replay may come out otherwise. ``package`` says which folder is meant by
    "beside": that of the file which is being imported.

    >>> hr.BatchFunction("cleaning:split_lines", {"word": str}, deterministic=True).name
    'cleaning:split_lines'
    """

    noun: ClassVar[str] = "batch function"


class Source(Suggesting, ABC):
    """Where records come from: a frozen dataclass of what tells its data from others', without any secret.

    ``kind`` names the code that reads it: ``files``, or an entry point of ``headrace.sources``. ``schema`` names the
    columns to read. An epoch takes at most ``max_files`` splits and ``max_bytes`` bytes. ``explode``: a list, of which
    each item gives a record; or a list of objects, in which some of the columns are. ``changelog``: how records say
    whether they add a row or withdraw one (semantics 14); None: they add rows. ``versions``: how they are versions of
    rows (semantics 14.10); None: each is one by itself.
    """

    kind: ClassVar[str]
    schema: expression_columns.SourceColumns
    max_files: int = 100
    max_bytes: int = 512 * 1024 * 1024
    max_rejected: int | None = None
    on_unreadable: OnUnreadable = OnUnreadable.FAIL
    missing: OnMissing = OnMissing.FAIL
    transform: OwnFunction | None = None
    explode: str | None = None
    changelog: Changelog | None = None
    versions: Versions | None = None
    is_upstream: ClassVar[bool] = False
    """Whether it is another pipeline."""
    has_keyed_messages: ClassVar[bool] = False
    """Whether a record may have no value, and a key of its own that says which row it deletes."""
    carried: ClassVar[Schema] = {}
    """Columns that its ``transform`` does not give: what is made of a record has those of the record."""

    def __post_init__(self) -> None:
        arguments = Arguments(type(self).__name__)
        object.__setattr__(self, "schema", expression_columns.columns_of_source(arguments, "schema", self.schema))

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
        """Give what a watcher needs to make the source again.

        :returns: the fields that this kind of sources has beside those of all: text, numbers, booleans, None, and
            tuples and dicts of them.
        :raises PipelineError: one is something else, which a watcher could not be told.
        """
        names = [one.name for one in fields(self) if one.init and one.name not in Source.__annotations__]  # type: ignore[arg-type]
        own = {name: getattr(self, name) for name in names}
        for name, value in own.items():
            if not _is_json(value):
                raise PipelineError(
                    f"{self} says that it is watched, and its field {name} is {type(value).__name__}. A watcher makes "
                    "the source again from text, numbers, booleans, None, and tuples and dicts of them. Keep such "
                    'values in its fields, or write a schedule by times, such as "*/5 * * * *"'
                )
        return own

    @property
    def own_split(self) -> expression_columns.Read | None:
        """The values that each have a watermark if ``event_time`` is given no ``split``; None: all share one."""
        return None

    @property
    def position(self) -> Expr | None:
        """The place of a record among those beside it, such as an offset. Versions of a row go by it unless they have
        an order; None: records have none.
        """
        return None

    @cached_property
    def fields(self) -> Mapping[str, expression_columns.SourceField]:
        """Where each column of the schema is in the records."""
        return expression_columns.fields_of(self.schema)

    @cached_property
    def types(self) -> Schema:
        """The types of the columns of the schema."""
        return expression_columns.types_of(self.schema)

    @cached_property
    def metadata(self) -> Mapping[str, expression_columns.ColumnType]:
        """The columns of the schema that the source says of each record, whatever is in it."""
        return {}

    @property
    def in_records(self) -> expression_columns.SourceColumns:
        """The columns of the schema that are in the records."""
        return {name: column for name, column in self.schema.items() if name not in self.metadata}

    @cached_property
    def as_read(self) -> "Source":
        """The source as it is read: with what its ``changelog``, or its ``versions``, read of records, beside columns
        or in their place.
        """
        own = self.in_records
        reading = self.changelog or self.versions
        read = own if reading is None else reading.as_read(own)
        if read is own:
            return self
        whole = {} if self.explode is None else {"explode": None}
        return replace(self, schema={**read, **self.metadata}, changelog=None, **whole)  # type: ignore[type-var]

    @property
    def is_flat_mapped(self) -> bool:
        """Whether pipelines read other records than it has: none, one or several for each."""
        return self.transform is not None or self.explode is not None

    @cached_property
    def exploded(self) -> tuple[str, ...]:
        """The columns that each have an item of the list that ``explode`` names, or a field of it."""
        if self.explode is None or self.explode in self.schema:
            return () if self.explode is None else (self.explode,)
        return tuple(expression_columns.in_list(self.schema, self.explode))

    @property
    def columns(self) -> Schema:
        """What event time, key and aggregates read."""
        if self.transform is not None:
            return {**self.transform.returns, **self.carried}
        items = {name: kind.item for name in self.exploded if isinstance(kind := self.types[name], ListType)}
        own = {**self.types, **items}
        return own if self.versions is None else {**own, **self.versions.columns}

    @property
    def columns_beside(self) -> frozenset[str]:
        """Names of ``columns`` that say something about a record: rows have them only where they are named."""
        return frozenset({*self.metadata, *(() if self.versions is None else self.versions.columns)})

    @property
    def columns_of_changes(self) -> frozenset[str]:
        """Names of ``columns`` that belong to a change, and to no row. They are what an envelope has for both of its
        rows, and what the source says of each record. None where nothing is withdrawn.
        """
        if self.changelog is None:
            return frozenset()
        return frozenset((*getattr(self.changelog, "shared", ()), *self.metadata))

    @property
    def columns_of_signs(self) -> frozenset[str]:
        """Names of the columns by which a row is told from its withdrawal."""
        changelog = self.changelog
        return columns_of(changelog.sign_of(self.schema)) if isinstance(changelog, RecordSign) else frozenset()

    @property
    def different_in_withdrawals(self) -> frozenset[str]:
        """Names of ``columns`` in which a withdrawal may differ from the row that it withdraws."""
        return self.columns_of_changes | self.columns_of_signs

    @property
    def columns_of_tombstones(self) -> frozenset[str] | None:
        """Names of ``columns`` that a tombstone has; None: there is none, or each record has all of them."""
        if self.versions is None or not (self.versions.are_bare or self.has_keyed_messages):
            return None
        return frozenset({*self.versions.key, *self.columns_beside})

    def __str__(self) -> str:
        return f"{self.kind} {self.place}"

    @check_keywords
    def event_time(
        self,
        at: expression_columns.Read,
        *,
        bound: Length | None = None,
        watermark: WatermarkStrategy | None = None,
        idle: Length | None = None,
        split: expression_columns.Read | None = None,
        max_ahead: Length | None = "1d",
    ) -> "Input":
        """Give this source the event time ``at``, a timestamp: the name of a column, or an expression.

        ``bound`` is how far records may be out of order: the watermark is the largest event time minus it ("0s": they
        are in order). ``watermark`` is another strategy, in its place. With ``split``, text, each of its values has a
        watermark of its own and the least counts. So one quiet producer holds it back. Each partition of a topic of
        Kafka has one, unless another is given. A split that was silent for ``idle`` in processing time is left out
        until it speaks again. A record dated further than ``max_ahead`` after processing time is accepted, but moves no
        watermark. Otherwise one mistaken date would take it past all others (semantics 12.14). None is for schedules,
        whose times lie ahead by nature.
        """
        split = self.own_split if split is None else split
        when = event_time(at, bound=bound, watermark=watermark, idle=idle, split=split, max_ahead=max_ahead)
        return Input(self, when)

    def arrival_time(self) -> "Input":
        """Take the processing time of the epoch that reads a record as its event time: nothing is late."""
        return Input(self, arrival_time())


def _is_json(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(one) for key, one in value.items())
    return value is None or type(value) in (str, int, float, bool)


@check_keywords
@dataclass(frozen=True)
class Input(Suggesting):
    """A source with its event time: what a pipeline reads, alone or beside others (12.9). Written
    ``json(...).event_time(...)``. ``name`` tells it from other inputs; ``columns`` are expressions by name.

    >>> clicks = hr.json("landing/clicks", {"shop": str, "amount": int, "at": datetime})
    >>> clicks.event_time("at", bound="1h").named("web").name
    'web'
    """

    source: Source
    event_time: EventTime
    name: str = OWN
    columns: Mapping[str, Expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arguments = Arguments("Input")
        if not isinstance(self.source, Source):
            raise arguments.refusal("source", self.source, 'write a source such as json("landing/flights", {...})')
        arguments.instance("event_time", self.event_time, EventTime, ".event_time(...) of a source in its place")

    @property
    def has_own_split(self) -> bool:
        """Whether its splits are those that the source itself tells apart."""
        own, split = self.source.own_split, self.event_time.split
        if own is None or split is None:
            return own is split
        return is_same_expression(split, column_or_expression(Arguments("own_split"), "split", own))

    @check_keywords
    def named(self, name: str, columns: Mapping[str, Expr] | None = None) -> "Input":
        """Name this input for ``union=`` of a pipeline. Its records join those of the pipeline's own input; the
        watermark is the minimum over all inputs (12.9).

        Its records take the form of the pipeline's own: ``columns`` gives columns of the pipeline's schema as
        expressions over this input's; if it leaves one out, this input's column of that name counts, or NULL. A column
        that says which input a record is from is a literal: ``{"side": lit("bid")}``.
        """
        arguments = Arguments("named")
        text = arguments.text("name", name, "weather")
        if text == OWN:
            raise arguments.refusal("name", name, "that is the name of every pipeline's own input; choose another")
        write = '{"name": expression}, such as {"origin": col("airport")}'
        return replace(
            self,
            name=text,
            columns=arguments.mapping("columns", {} if columns is None else columns, Expr, write, least=0),
        )

    def expressions(self, schema: Schema) -> dict[str, Expr]:
        """Every column of ``schema``, the pipeline's, over this input's. Raises PipelineError if one does not fit."""
        unknown = self.columns.keys() - schema.keys()
        if unknown:
            raise PipelineError(
                f"input {self.name} gives {', '.join(sorted(unknown))}, which the pipeline does not read"
            )
        return {name: self._column_expression(name, kind) for name, kind in schema.items()}

    def _column_expression(self, name: str, kind: expression_columns.ColumnType) -> Expr:
        expr = self.columns.get(name)
        if isinstance(kind, NestedType):
            return self._nested_column(name, kind, expr)
        if expr is None:
            expr = Column(name) if name in self.source.columns else Literal(None, kind)
        own_kind = type_of(expr, self.source.columns)
        if own_kind is not kind:
            raise PipelineError(
                f"input {self.name} gives {name!r} as {own_kind}, and the pipeline reads {kind}; cast it"
            )
        return expr

    def _nested_column(self, name: str, kind: NestedType, expr: Expr | None) -> Column:
        """A list, struct or map of the pipeline's schema: one of this input's own."""
        own = Column(name) if expr is None else expr
        if not isinstance(own, Column) or self.source.columns.get(own.name) != kind:
            raise PipelineError(
                f"input {self.name} has no column {name!r} that is a {in_words(kind)}: declare it in the schema, or "
                f'name a column of that type, columns={{"{name}": col(...)}}'
            )
        return own


def own_function(arguments: Arguments, transform: object) -> OwnFunction | None:
    """The argument ``transform`` of a source. Raises the error of ``arguments``."""
    write = 'BatchFunction("module:function", ...), or SparkFunction("module:function", ...)'
    return arguments.optional_instance("transform", transform, OwnFunction, write)


def exploded_column(
    arguments: Arguments, explode: object, schema: expression_columns.SourceColumns, transform: OwnFunction | None
) -> str | None:
    """The argument ``explode`` of a source, a column of its ``schema``, or a list of objects in which some of them lie.
    Raises the error of ``arguments``.
    """
    if explode is None:
        return None
    types = expression_columns.types_of(schema)
    name = arguments.text("explode", explode, "tags")
    if transform is not None:
        raise arguments.refusal("explode", name, f"{transform.name} makes records of its own: let it do this, too")
    if name not in types and expression_columns.in_list(schema, name):
        return name
    if name not in types:
        suggestion = did_you_mean(name, types)
        raise arguments.refusal(
            "explode", name, f"the schema has no such column; {suggestion}its columns are {', '.join(types)}"
        )
    if not isinstance(types[name], ListType):
        raise arguments.refusal(
            "explode", name, f"it is {in_words(types[name])}, and only a list of values has items: list[str], list[int]"
        )
    return name


def with_objects(
    arguments: Arguments, explode: str | None, schema: expression_columns.SourceColumns, advice: str = ""
) -> expression_columns.SourceColumns:
    """``schema`` where ``explode`` may name a list of objects: what lies in it is read as lists. Raises the error of
    ``arguments`` where such are not read, which says what to do ``advice``.
    """
    list_columns = {} if explode is None or explode in schema else expression_columns.in_list(schema, explode)
    if list_columns and advice:
        raise arguments.refusal(
            "explode", explode, f"{min(list_columns)!r} lies in it, and lists of objects are not read; {advice}"
        )
    return {**schema, **list_columns}


CONNECTION_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_NO_NAME = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True)
class Sink(Suggesting):
    """A target of some ``kind`` that holds what readers see, called ``name``. ``connection`` names how it is reached,
    "" if by none.
    """

    kind: ClassVar[str]

    gets_final_rows: ClassVar[bool] = False
    """Whether it gets rows once they are final, and cannot take one back."""

    name: str
    connection: str

    @property
    def table_of_rows(self) -> str | None:
        """What comparisons call the table that it fills; None if it fills none."""
        return None

    def refuses_column(self, name: str) -> str | None:
        """Say why the target cannot have a column; asked when a pipeline is defined. It raises nothing.

        :param name: the column's name.
        :returns: words for a person; None, as by default, if it can, or if that shows at a delivery.
        """
        del name
        return None


@dataclass(frozen=True)
class FunctionSink(Sink):
    """A ``function`` (``module:function``) of the user's. ``package`` says which folder the module lies in, if it lies
    beside the pipeline's file.
    """

    function: str
    package: str | None = field(default=None, repr=False, compare=False)


def function_name(arguments: Arguments, function: object, example: str) -> str:
    """The name of ``module:function`` in its module."""
    module, _, attribute = arguments.text("function", function, example).partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise arguments.refusal("function", function, f"write module:function, as in {example}")
    return attribute


def sink_name(arguments: Arguments, name: object, table: str) -> str:
    checked_name = _NO_NAME.sub("_", table)[:100] if name is None else arguments.text("name", name, "reports.sales")
    if not _NAME.fullmatch(checked_name):
        raise arguments.refusal("name", checked_name, "write letters, digits, ., - and _, at most 100")
    return checked_name


def connection_name(arguments: Arguments, value: object) -> str:
    """The argument ``connection``. Raises the error of ``arguments``."""
    if not isinstance(value, str) or not CONNECTION_NAME.fullmatch(value):
        # not quoted: it may be a URI with a password
        raise arguments.refusal(
            "connection", "...", "write the name of a connection (lower case letters, digits and _), never its URI"
        )
    return value


def named_sinks(arguments: Arguments, sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """The argument ``sinks``, each with a name of its own. Raises the error of ``arguments``."""
    several = arguments.tuple_of("sinks", sinks, Sink, 'postgres("reports.sales", connection="warehouse")')
    names = [sink.name for sink in several]
    for name in names:
        if names.count(name) > 1:
            raise arguments.refusal("sinks", name, "two sinks have this name; give one of them a name= of its own")
    return several
