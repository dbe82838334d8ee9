"""What a source's records say of rows: that one has come, or that one which had come is withdrawn (semantics 14).

Without a changelog each record adds a row. With one a record has a sign, 1 or -1; an envelope has a row of either sign.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from headrace.model.arguments import REQUIRED, Arguments, keywords, word
from headrace.model.expressions import columns as expression_columns
from headrace.model.expressions.data_types import DataType
from headrace.model.expressions.expr import Column, Expr, render
from headrace.model.expressions.typing import columns_of

SIGN: Final = "_sign"
"""The column of a change's sign, beside those of its row."""

NO_OLD_VALUES: Final = (
    "an upsert says what a row is, and not what it was, so nothing could be withdrawn. Read a feed with old values: "
    "Debezium's whole envelope, Delta's change feed. Or keep the last row of each key in a first aggregation, "
    'key="id", what={"amount": col("amount").last()}, where=GlobalWindows(), when=on_update(), how=retracting(None), '
    "and aggregate its rows in then="
)
"""Why a feed of upserts is no changelog, and what to do."""

_UNWRAPPED = ("__op", "__deleted")
"""Fields by which Debezium's records say what they are once their envelope is gone."""


class Changelog(ABC):
    """How records say which rows they add and withdraw. ``wrong``: why one that does not say it is a dead letter."""

    wrong: ClassVar[str]

    def as_read(self, schema: expression_columns.SourceColumns) -> expression_columns.SourceColumns:
        """The columns that records are read with where rows have those of ``schema``."""
        return schema

    def check(self, given: Arguments, schema: expression_columns.SourceColumns) -> None:  # noqa: B027 (most fit any schema)
        """Raise PipelineError if it cannot be that of records with ``schema``."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """What records are, for people."""

    def flat(self, record: Mapping[str, Any], fields: expression_columns.SourceFields) -> dict[str, Any]:
        """A ``record`` of a unit test, which is written as records are, by the columns (``fields``) it is read with."""
        by_path = {source_field.path: name for name, source_field in fields.items()}
        objects = {path[:depth] for path in by_path for depth in range(len(path))}
        values: dict[str, Any] = {}

        def place(path: tuple[str, ...], value: Any) -> None:
            if path in objects and isinstance(value, Mapping | None):
                for name, inside in ({} if value is None else value).items():
                    place((*path, name), inside)
            else:
                values[by_path.get(path, ".".join(path))] = value

        place((), record)
        return values


WrittenChangelog = Changelog | expression_columns.Read
"""A changelog as users write it."""


class RecordSign(Changelog):
    """Each record is one change, and an expression says its sign."""

    @abstractmethod
    def sign_of(self, schema: expression_columns.SourceColumns) -> Expr:
        """1, -1, or anything else where a record is wrong: over the columns that records are read with."""


@word("signed by", sign=REQUIRED)
@dataclass(frozen=True)
class SignedBy(RecordSign):
    """``sign`` is 1 of a record that adds a row, -1 of one that withdraws it: an expression over the source's columns,
    after its ``transform``.
    """

    wrong: ClassVar[str] = "its sign is neither 1 nor -1"

    sign: Expr

    def sign_of(self, schema: expression_columns.SourceColumns) -> Expr:
        """The expression as it is written."""
        del schema
        return self.sign

    def check(self, given: Arguments, schema: expression_columns.SourceColumns) -> None:
        """Raise PipelineError for a constant."""
        if not columns_of(self.sign):
            raise given.wrong(
                "changelog",
                self.sign,
                "it is the same for all records; write an expression that is 1 of those that add a row, and -1 of "
                'those that withdraw one: if_else(col("deleted"), -1, 1). If none withdraws any, leave it out',
            )

    @property
    def in_words(self) -> str:
        """The expression."""
        return f"a record adds a row where {render(self.sign)} is 1, and withdraws one where it is -1"


@word("delta change type")
@dataclass(frozen=True)
class DeltaChangeType(RecordSign):
    """Delta's change feed: ``_change_type`` says what a row is."""

    additions: ClassVar = ("insert", "update_postimage")
    withdrawals: ClassVar = ("delete", "update_preimage")
    field: ClassVar = "_change_type"
    wrong: ClassVar[str] = f"{field} is none of {', '.join((*additions, *withdrawals))}"

    def as_read(self, schema: expression_columns.SourceColumns) -> expression_columns.SourceColumns:
        """The field is a column beside the others, unless it is one of them."""
        name = self.column(schema)
        return (
            schema
            if name in schema
            else {**schema, name: expression_columns.SourceField((self.field,), DataType.STRING)}
        )

    def sign_of(self, schema: expression_columns.SourceColumns) -> Expr:
        """Inserted rows and those after an update are added, deleted ones and those before it are withdrawn."""
        kind = Column(self.column(schema))
        return expression_columns.if_else(
            kind.is_in(self.additions), 1, expression_columns.if_else(kind.is_in(self.withdrawals), -1, 0)
        )

    def check(self, given: Arguments, schema: expression_columns.SourceColumns) -> None:
        """Raise PipelineError if the field is declared as no text."""
        declared = expression_columns.fields_of(schema).get(self.column(schema))
        if declared is not None and declared.type is not DataType.STRING:
            raise given.wrong("changelog", self.in_words, f"the schema has {self.field} as {declared.type}; it is str")

    def column(self, schema: expression_columns.SourceColumns) -> str:
        """What the field is called as it is read."""
        declared = (name for name, known in expression_columns.fields_of(schema).items() if known.path == (self.field,))
        return next(declared, f"delta {self.field}")

    @property
    def in_words(self) -> str:
        """The values of the field."""
        return (
            f"rows of Delta's change feed: {self.field} {' and '.join(self.additions)} add one, "
            f"{' and '.join(self.withdrawals)} withdraw one"
        )


@word("debezium envelope", within=((),), shared=((),))
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
        """Each column of the row before and of the row after; ``op``; those that both share."""
        columns = {self.op: expression_columns.SourceField((*self.within, self.op), DataType.STRING)}
        for name, known in expression_columns.fields_of(schema).items():
            if name in self.shared:
                columns[self.beside(name)] = expression_columns.SourceField((*self.within, *known.path), known.type)
                continue
            for row in (self.before, self.after):
                columns[f"{row}.{name}"] = expression_columns.SourceField((*self.within, row, *known.path), known.type)
        return columns

    def beside(self, name: str) -> str:
        """What a shared column ``name`` is called as it is read."""
        return f"beside.{name}"

    def of_row(self, row: str, name: str) -> str:
        """What column ``name`` of the row ``before`` or ``after`` is called as it is read."""
        return self.beside(name) if name in self.shared else f"{row}.{name}"

    def check(self, given: Arguments, schema: expression_columns.SourceColumns) -> None:
        """Raise PipelineError for shared columns that are not there, and for records without their envelope."""
        fields = expression_columns.fields_of(schema)
        unwrapped = sorted(known.place for known in fields.values() if known.path[-1] in _UNWRAPPED)
        if unwrapped:
            raise given.wrong(
                "changelog",
                self.in_words,
                f"the schema has {unwrapped[0]}, which records have whose envelope is gone "
                f"(ExtractNewRecordState): {NO_OLD_VALUES}",
            )
        if unknown := [name for name in self.shared if name not in fields]:
            raise given.wrong(
                "changelog", self.in_words, f"shared names {unknown[0]!r}, which is no column of the records"
            )
        if not {*fields} - {*self.shared}:
            raise given.wrong("changelog", self.in_words, "all columns are shared: the schema has none of the rows")

    @property
    def in_words(self) -> str:
        """The two rows."""
        return "Debezium's envelopes: each withdraws the row before, and adds the row after"


def changelog_of(given: Arguments, value: object) -> Changelog | None:
    """What users write for ``changelog``: one of the ready ones, or an expression of 1 and -1."""
    if value is None or isinstance(value, Changelog):
        return value
    if isinstance(value, str) and value.lower() in {"upsert", "upserts"}:
        raise given.wrong("changelog", value, NO_OLD_VALUES)
    return SignedBy(expression_columns.read(given, "changelog", value))


@keywords
def delta_change_type() -> Changelog:
    """The changelog of Delta's change feed: ``_change_type`` is ``insert``, ``delete``, ``update_preimage`` or
    ``update_postimage``. The field need not be in the schema.

    >>> hr.parquet("landing/orders", {"id": int}, changelog=hr.delta_change_type()).changelog.wrong
    '_change_type is none of insert, update_postimage, delete, update_preimage'
    """
    return DeltaChangeType()


@keywords
def debezium_envelope(*, within: expression_columns.Path = (), shared: Sequence[str] = ()) -> Changelog:
    """The changelog of Debezium's envelope, of which a record withdraws ``before`` and adds ``after``.

    The schema has the columns of the row; those that the envelope has itself, such as a position in the log of the
    database, ``field("source.lsn", int)``, are named in ``shared``. ``within``: where the envelope is, "payload" where
    records carry their schema. The database must send whole rows before a change: in PostgreSQL ``REPLICA IDENTITY
    FULL``.

    >>> hr.json("landing/orders", {"id": int, "amount": int}, changelog=hr.debezium_envelope()).types["id"].value
    'int'
    """
    given = Arguments("debezium_envelope")
    names = within.split(".") if isinstance(within, str) else within
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise given.wrong("within", within, 'write the names that lead to the envelope, such as "payload"')
    write = '["lsn"], names of columns of the schema'
    return DebeziumEnvelope(tuple(names), given.several("shared", shared, str, write))
