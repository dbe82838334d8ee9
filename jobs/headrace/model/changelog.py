"""What a source's records say of rows (semantics 14): changes of them, or whole versions.

Without a changelog each record adds a row. With one a record has a sign, 1 or -1; an envelope has a row of either sign.
A version says what the row of a key is from then on, or that it is gone (14.10). Nothing is withdrawn by one; who wants
the rows takes the newest of each key.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Final

from headrace.errors import PipelineError
from headrace.model.arguments import REQUIRED, Arguments, check_keywords, register_word
from headrace.model.expressions import columns as expression_columns
from headrace.model.expressions.data_types import DataType, NestedType, Schema, in_words
from headrace.model.expressions.expr import Column, Expr, render
from headrace.model.expressions.typing import columns_of, is_same_expression, type_of

SIGN: Final = "_sign"
"""The column of a change's sign, beside those of its row."""

NO_OLD_VALUES: Final = (
    "an upsert says what a row is, and not what it was, so nothing could be withdrawn. Write "
    'versions=upserts("id") of the source in its place. Keep the newest row of each key in an output, '
    'Rows(key="id", take=newest()), and aggregate the rows of that one by of='
)
"""Why a feed of upserts is no changelog, and what to do."""

_UNWRAPPED_FIELDS = ("__op", "__deleted")
"""Fields by which Debezium's records say what they are once their envelope is gone."""


class Changelog(ABC):
    """How records say which rows they add and withdraw. ``wrong``: why one that does not say it is a dead letter."""

    wrong: ClassVar[str]

    def as_read(self, schema: expression_columns.SourceColumns) -> expression_columns.SourceColumns:
        """The columns that records are read with where rows have those of ``schema``."""
        return schema

    def check(self, arguments: Arguments, schema: expression_columns.SourceColumns) -> None:  # noqa: B027 (most fit any schema)
        """Raise PipelineError if it cannot be that of records with ``schema``."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """What records are, for people."""


WrittenChangelog = Changelog | expression_columns.Read
"""A changelog as users write it."""


class RecordSign(Changelog):
    """Each record is one change, and an expression says its sign."""

    @abstractmethod
    def sign_of(self, schema: expression_columns.SourceColumns) -> Expr:
        """1, -1, or anything else where a record is wrong: over the columns that records are read with."""


@register_word("signed by", sign=REQUIRED)
@dataclass(frozen=True)
class SignedBy(RecordSign):
    """``sign`` is 1 of a record that adds a row, -1 of one that withdraws it: an expression over the source's columns,
    after its ``transform``.
    """

    wrong: ClassVar[str] = "its sign is neither 1 nor -1"

    sign: Expr

    def sign_of(self, schema: expression_columns.SourceColumns) -> Expr:
        del schema
        return self.sign

    def check(self, arguments: Arguments, schema: expression_columns.SourceColumns) -> None:
        if not columns_of(self.sign):
            raise arguments.refusal(
                "changelog",
                self.sign,
                "it is the same for all records; write an expression that is 1 of those that add a row, and -1 of "
                'those that withdraw one: if_else(col("deleted"), -1, 1). If none withdraws any, leave it out',
            )

    @property
    def in_words(self) -> str:
        return f"a record adds a row where {render(self.sign)} is 1, and withdraws one where it is -1"


@register_word("delta change type")
@dataclass(frozen=True)
class DeltaChangeType(RecordSign):
    """Delta's change feed: ``_change_type`` says what a row is."""

    additions: ClassVar = ("insert", "update_postimage")
    withdrawals: ClassVar = ("delete", "update_preimage")
    field: ClassVar = "_change_type"
    wrong: ClassVar[str] = f"{field} is none of {', '.join((*additions, *withdrawals))}"

    def as_read(self, schema: expression_columns.SourceColumns) -> expression_columns.SourceColumns:
        """The field is a column beside the others, unless it is one of them."""
        if (name := self.column_name(schema)) in schema:
            return schema
        return {**schema, name: expression_columns.SourceField((self.field,), DataType.STRING)}

    def sign_of(self, schema: expression_columns.SourceColumns) -> Expr:
        """Inserted rows and those after an update are added, deleted ones and those before it are withdrawn."""
        kind = Column(self.column_name(schema))
        return expression_columns.if_else(
            kind.is_in(self.additions), 1, expression_columns.if_else(kind.is_in(self.withdrawals), -1, 0)
        )

    def check(self, arguments: Arguments, schema: expression_columns.SourceColumns) -> None:
        """Raise PipelineError if the field is declared as no text."""
        declared_field = expression_columns.fields_of(schema).get(self.column_name(schema))
        if declared_field is not None and declared_field.type is not DataType.STRING:
            raise arguments.refusal(
                "changelog", self.in_words, f"the schema has {self.field} as {declared_field.type}; it is str"
            )

    def column_name(self, schema: expression_columns.SourceColumns) -> str:
        """What the field is called as it is read."""
        declared_names = (
            name for name, field in expression_columns.fields_of(schema).items() if field.path == (self.field,)
        )
        return next(declared_names, f"delta {self.field}")

    @property
    def in_words(self) -> str:
        return (
            f"rows of Delta's change feed: {self.field} {' and '.join(self.additions)} add one, "
            f"{' and '.join(self.withdrawals)} withdraw one"
        )


@register_word("debezium envelope", within=((),), shared=((),))
@dataclass(frozen=True)
class DebeziumEnvelope(Changelog):
    """Debezium's envelope: a record withdraws the row ``before`` and adds the row ``after``, as its ``op`` says.

    ``within``: names that lead to it. ``shared``: columns that it has itself, for both rows.
    """

    wrong: ClassVar[str] = "op is none of c, r, u, d"
    before: ClassVar = "before"
    after: ClassVar = "after"
    op: ClassVar = "op"

    within: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()

    def as_read(self, schema: expression_columns.SourceColumns) -> expression_columns.SourceColumns:
        """Each column of the row before and of the row after; ``op``; the columns that both share."""
        columns = {self.op: expression_columns.SourceField((*self.within, self.op), DataType.STRING)}
        for name, field in expression_columns.fields_of(schema).items():
            if name in self.shared:
                columns[self.shared_name(name)] = field.inside(*self.within)
                continue
            for row in (self.before, self.after):
                columns[f"{row}.{name}"] = field.inside(*self.within, row)
        return columns

    def shared_name(self, name: str) -> str:
        """What a shared column ``name`` is called as it is read."""
        return f"beside.{name}"

    def of_row(self, row: str, name: str) -> str:
        """What column ``name`` of the row ``before`` or ``after`` is called as it is read."""
        return self.shared_name(name) if name in self.shared else f"{row}.{name}"

    def check(self, arguments: Arguments, schema: expression_columns.SourceColumns) -> None:
        """Raise PipelineError for shared columns that are not there, and for records without their envelope."""
        fields = expression_columns.fields_of(schema)
        unwrapped_places = sorted(field.place for field in fields.values() if field.path[-1] in _UNWRAPPED_FIELDS)
        if unwrapped_places:
            raise arguments.refusal(
                "changelog",
                self.in_words,
                f"the schema has {unwrapped_places[0]}, which records have whose envelope is gone "
                f"(ExtractNewRecordState): {NO_OLD_VALUES}",
            )
        if unknown := [name for name in self.shared if name not in fields]:
            raise arguments.refusal(
                "changelog", self.in_words, f"shared names {unknown[0]!r}, which is no column of the records"
            )
        if not {*fields} - {*self.shared}:
            raise arguments.refusal(
                "changelog", self.in_words, "all columns are shared: the schema has none of the rows"
            )

    @property
    def in_words(self) -> str:
        return "Debezium's envelopes: each withdraws the row before, and adds the row after"


def changelog_of(arguments: Arguments, value: object) -> Changelog | None:
    """What users write for ``changelog``: one of the ready ones, or an expression of 1 and -1."""
    if value is None or isinstance(value, Changelog):
        return value
    if isinstance(value, str) and value.lower() in {"upsert", "upserts"}:
        raise arguments.refusal("changelog", value, NO_OLD_VALUES)
    return SignedBy(expression_columns.column_or_expression(arguments, "changelog", value))


@check_keywords
def delta_change_type() -> Changelog:
    """The changelog of Delta's change feed: ``_change_type`` is ``insert``, ``delete``, ``update_preimage`` or
    ``update_postimage``. The field need not be in the schema.

    >>> hr.parquet("landing/orders", {"id": int}, changelog=hr.delta_change_type()).changelog.wrong
    '_change_type is none of insert, update_postimage, delete, update_preimage'
    """
    return DeltaChangeType()


@check_keywords
def debezium_envelope(*, within: expression_columns.Path = (), shared: Sequence[str] = ()) -> Changelog:
    """The changelog of Debezium's envelope, of which a record withdraws ``before`` and adds ``after``.

    The schema has the columns of the row; columns that the envelope has itself, such as a position in the database's
    log, ``field("source.lsn", int)``, are named in ``shared``. ``within``: where the envelope is, "payload" where
    records carry their schema. The database must send whole rows before a change: in PostgreSQL ``REPLICA IDENTITY
    FULL``.

    >>> hr.json("landing/orders", {"id": int, "amount": int}, changelog=hr.debezium_envelope()).types["id"].value
    'int'
    """
    arguments = Arguments("debezium_envelope")
    names = within.split(".") if isinstance(within, str) else within
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise arguments.refusal("within", within, 'write the names that lead to the envelope, such as "payload"')
    write = '["lsn"], names of columns of the schema'
    return DebeziumEnvelope(tuple(names), arguments.tuple_of("shared", shared, str, write))


IS_TOMBSTONE: Final = "is_tombstone"
CHANGED_AT: Final = "changed_at"
CHANGE_ORDER: Final = "change_order"
"""Columns that such a source adds to those of its schema."""

TOMBSTONE_AT: Final = "tombstone at"
"""The column of the time of a message that has no value, and so deletes a row; NULL of all others."""

_TIME_UNITS: Final = {"ts_ms": 1000, "ts_us": 1, "ts_ns": -1000}
"""Names of Debezium's times, and how many microseconds one of each has; below zero: how many a microsecond has."""


@dataclass(frozen=True, eq=False)
class Versions(ABC):
    """How records are versions of the row that the columns ``key`` tell. The greatest ``order`` counts; None: the
    latest event time.
    """

    are_bare: ClassVar[bool] = False
    """Whether a record that deletes a row has no more of it than its key."""

    key: tuple[str, ...]
    order: Expr | None

    @property
    def deleted(self) -> Expr:
        """Whether a version says that its row is gone."""
        return Column(IS_TOMBSTONE)

    @property
    def columns(self) -> Schema:
        """The columns that a source has for them beside its schema."""
        return {IS_TOMBSTONE: DataType.BOOL}

    @property
    def take_messages_without_value(self) -> bool:
        """Whether a message without a value is one, which deletes a row."""
        return True

    @property
    def said_by(self) -> Sequence[tuple[str, Expr]]:
        """What is computed of each record, with its purpose."""
        return [("the key of versions", Column(name)) for name in self.key]

    def ordered_by(self, position: Expr | None) -> "Versions":
        """The same for a source whose records have a ``position``, by which they go unless they name an order."""
        return self if position is None or self.order is not None else replace(self, order=position)

    def order_beside(self, own: Expr | None) -> Expr | None:
        """By what to take versions where a user may have given an order of their ``own``. Raises PipelineError if that
        is another one.
        """
        if own is None or self.order is None or is_same_expression(own, self.order):
            return own if self.order is None else self.order
        raise PipelineError(
            f"it goes by {render(own)}, and of the versions of its source {self.ordered_in_words} counts; leave that "
            "out, or write it in versions="
        )

    def deleted_beside(self, own: Expr | None) -> Expr:
        """Which versions say that there is nothing: tombstones, and those that a user's ``own`` condition names. A
        condition that reads the tombstone column is taken as it is.
        """
        if own is None:
            return self.deleted
        return own if IS_TOMBSTONE in columns_of(own) else own | self.deleted

    def __eq__(self, other: object) -> bool:
        """Whether ``other`` are told in the same way, by the same key and in the same order."""
        if type(other) is not type(self):
            return False
        return all(_are_alike(getattr(self, part.name), getattr(other, part.name)) for part in fields(self))

    def __hash__(self) -> int:
        return hash(self.key)

    def as_read(self, schema: expression_columns.SourceColumns) -> expression_columns.SourceColumns:
        """The columns that records are read with where versions have those of ``schema``."""
        return schema

    def of_key(self, name: str) -> str:
        """What the column ``name`` of the key is called as a tombstone is read."""
        return name

    def check(self, schema: expression_columns.SourceColumns) -> None:
        """Raise PipelineError if it cannot be that of records with ``schema``."""
        types = expression_columns.types_of(schema)
        for name in self.key:
            if name not in types:
                raise PipelineError(f"the key is {name!r}, and the schema has {', '.join(types)}")
            if isinstance(kind := types[name], NestedType):
                raise PipelineError(f"the key is {name!r}, which is a {in_words(kind)}; name columns of one value each")
        for name in (*self.columns, TOMBSTONE_AT):
            if name in types:
                raise PipelineError(
                    f"it adds a column {name!r}, which the schema has, too: give that another name, "
                    f'{{"own_{name}": field({name!r}, ...)}}'
                )

    @property
    @abstractmethod
    def in_words(self) -> str:
        """What records are, for people."""

    @property
    def ordered_in_words(self) -> str:
        """Which version of a row counts, for people."""
        return "the latest event time" if self.order is None else f"the greatest {render(self.order)}"


def _are_alike(one: object, other: object) -> bool:
    """Whether parts are equal; two expressions have no truth."""
    if isinstance(one, Expr) or isinstance(other, Expr):
        return isinstance(one, Expr) and isinstance(other, Expr) and is_same_expression(one, other)
    return one == other


@register_word("upserts", key=REQUIRED, order=None, says_deleted=None)
@dataclass(frozen=True, eq=False)
class Upserts(Versions):
    """Records that are rows as they are from then on. ``says_deleted`` is TRUE of one that says that its row is gone;
    a message without a value says so by itself.
    """

    says_deleted: Expr | None = None

    @property
    def said_by(self) -> Sequence[tuple[str, Expr]]:
        """The key, and what says that a row is gone."""
        says = () if self.says_deleted is None else (("whether a version is deleted", self.says_deleted),)
        return [*super().said_by, *says]

    def check(self, schema: expression_columns.SourceColumns) -> None:
        super().check(schema)
        types = expression_columns.types_of(schema)
        if self.says_deleted is not None and (kind := type_of(self.says_deleted, types)) is not DataType.BOOL:
            raise PipelineError(f"deleted is {kind}, and must be bool: TRUE of a record that says that its row is gone")
        if self.order is not None and not isinstance(type_of(self.order, types), DataType):
            raise PipelineError(f"order is {render(self.order)}, which has no order; name a column of one value")

    @property
    def in_words(self) -> str:
        says = "" if self.says_deleted is None else f"; it is gone where {render(self.says_deleted)}"
        return f"each record is a version of the row of {', '.join(self.key)}{says}; {self.ordered_in_words} counts"


@register_word("debezium versions", key=REQUIRED, at=REQUIRED, position=None, order=None, within=((),))
@dataclass(frozen=True, eq=False)
class DebeziumVersions(Versions):
    """Debezium's envelopes: each is what the row is ``after`` it, from the time that the path ``at`` leads to; a
    deletion has the key of the row ``before``. ``position``: the field that orders changes, if the source does not.
    ``within``: names that lead to the envelope.
    """

    are_bare: ClassVar[bool] = True
    op: ClassVar = "op"
    before: ClassVar = "before"
    after: ClassVar = "after"
    wrong: ClassVar[str] = "op is none of c, r, u, d"

    at: tuple[str, ...]
    position: expression_columns.SourceField | None = None
    within: tuple[str, ...] = ()

    @property
    def columns(self) -> Schema:
        """When the row changed, and in which order, beside whether it is gone."""
        order = {} if self.position is None else {CHANGE_ORDER: self.position.type}
        return {**super().columns, CHANGED_AT: DataType.TIMESTAMP, **order}

    @property
    def take_messages_without_value(self) -> bool:
        """Unless they go by a field of the envelope: one stands behind that of the deletion, and says nothing more."""
        return self.position is None

    def ordered_by(self, position: Expr | None) -> Versions:
        """Where the source has no position, the database's own one, unless another was named."""
        if self.order is not None or position is not None:
            return super().ordered_by(position)
        own = expression_columns.SourceField(("source", "lsn"), DataType.INT)
        return replace(self, position=own, order=Column(CHANGE_ORDER))

    def as_read(self, schema: expression_columns.SourceColumns) -> expression_columns.SourceColumns:
        """Each column of the row before and of the row after; ``op``, and when and in which order it happened."""
        columns = {
            self.op: expression_columns.SourceField((*self.within, self.op), DataType.STRING),
            CHANGED_AT: expression_columns.SourceField((*self.within, *self.at), DataType.INT),
        }
        if self.position is not None:
            path = (*self.within, *self.position.path)
            columns[CHANGE_ORDER] = expression_columns.SourceField(path, self.position.type)
        for name, field in expression_columns.fields_of(schema).items():
            for row in (self.before, self.after):
                path = (*self.within, row, *field.path)
                columns[self.of_row(row, name)] = expression_columns.SourceField(path, field.type)
        return columns

    def of_row(self, row: str, name: str) -> str:
        """What column ``name`` of the row ``before`` or ``after`` is called as it is read."""
        return f"{row}.{name}"

    def of_key(self, name: str) -> str:
        """What it is called in the row before the deletion."""
        return self.of_row(self.before, name)

    @property
    def units(self) -> int:
        """How many microseconds one unit of its time has; below zero: how many units a microsecond has."""
        return _TIME_UNITS[self.at[-1]]

    @property
    def in_words(self) -> str:
        return (
            f"Debezium's envelopes: each is a version of the row of {', '.join(self.key)} from {'.'.join(self.at)} on; "
            f"{self.ordered_in_words} counts"
        )


def versions_of(
    arguments: Arguments, value: object, changelog: Changelog | None, position: Expr | None
) -> Versions | None:
    """What users write for ``versions``, for a source whose records have that ``position`` (None: none). Raises the
    error of ``arguments``.
    """
    if value is None:
        return None
    write = 'upserts("id") or debezium_versions("source.ts_ms", key="id")'
    versions = arguments.instance("versions", value, Versions, write)  # type: ignore[type-abstract] # any of them
    if changelog is not None:
        raise arguments.refusal(
            "versions", value, "a changelog withdraws rows, and versions replace them; a source has one of the two"
        )
    return versions.ordered_by(position)


@check_keywords
def upserts(
    key: str | Sequence[str], order: expression_columns.Read | None = None, *, deleted: Expr | None = None
) -> Versions:
    """The versions of a feed of upserts, of which each record is what the row of the columns ``key`` is from then on.

    The version with the greatest ``order`` counts, a column or an expression; NULL is below all. Without it the offset
    of a topic decides, and the event time where there is no topic. A record of which ``deleted`` is TRUE is a
    tombstone: its row is gone. A message of Kafka without a value is one, too; its key says which row. The source has
    a column ``is_tombstone`` more.

    >>> customers = hr.json("landing/customers", {"id": int, "at": datetime}, versions=hr.upserts("id"))
    >>> customers.columns["is_tombstone"].value
    'bool'
    """
    arguments = Arguments("upserts")
    order_expression = None if order is None else expression_columns.column_or_expression(arguments, "order", order)
    says = None if deleted is None else expression_columns.require_expression(arguments, "deleted", deleted)
    return Upserts(_key_names(arguments, key), order_expression, says)


@check_keywords
def debezium_versions(
    at: expression_columns.Path,
    *,
    key: str | Sequence[str],
    order: expression_columns.Path | expression_columns.SourceField | None = None,
    within: expression_columns.Path = (),
) -> Versions:
    """The versions of a table that Debezium's envelopes tell: each change is one from the time ``at`` on, and a
    deletion is a tombstone. Rows before a change are not needed.

    The schema has the columns of the row, and ``key`` names its primary key. ``at``: where the envelope has the time,
    "source.ts_ms" or "ts_ms" (also "ts_us", "ts_ns"). The source has columns more: ``changed_at``, which that time is,
    and ``is_tombstone``. The offset says which version of a row of a topic counts; in files the field ``order`` of the
    envelope does, by default "source.lsn" of PostgreSQL. A field of another type than int is written as ``field``.
    ``within``: where the envelope is, "payload" where records carry their schema.

    >>> versions = hr.debezium_versions("source.ts_ms", key="id")
    >>> customers = hr.json("landing/customers", {"id": int, "city": str}, versions=versions)
    >>> [*customers.columns]
    ['id', 'city', 'is_tombstone', 'changed_at', 'change_order']
    """
    arguments = Arguments("debezium_versions")
    time = expression_columns.path_of(arguments, "at", at)
    if time[-1] not in _TIME_UNITS:
        raise arguments.refusal(
            "at", at, f'write where the envelope has its time: "source.ts_ms"; {", ".join(_TIME_UNITS)} are known'
        )
    position = order
    if order is not None and not isinstance(order, expression_columns.SourceField):
        position = expression_columns.SourceField(expression_columns.path_of(arguments, "order", order), DataType.INT)
    if isinstance(position, expression_columns.SourceField) and isinstance(position.type, NestedType):
        raise arguments.refusal("order", order, f"a {in_words(position.type)} has no order; name a field of one value")
    outer_path = (
        () if isinstance(within, tuple) and not within else expression_columns.path_of(arguments, "within", within)
    )
    change_order = None if position is None else Column(CHANGE_ORDER)
    return DebeziumVersions(_key_names(arguments, key), change_order, time, position, outer_path)  # type: ignore[arg-type] # a field by now


def _key_names(arguments: Arguments, key: object) -> tuple[str, ...]:
    names = (key,) if isinstance(key, str) else arguments.tuple_of("key", key, str, '"id", or ["shop", "id"]')
    if not names or not all(names):
        raise arguments.refusal("key", key, 'name the columns that tell rows apart: "id", or ["shop", "id"]')
    return names
