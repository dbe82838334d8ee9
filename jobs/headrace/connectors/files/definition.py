"""Files under a prefix as a source: what a definition says of them.

Users write ``json``, ``csv`` and ``parquet``, and give what comes of them an event time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict, Unpack

from headrace.model.arguments import Arguments, check_keywords
from headrace.model.changelog import Changelog, Versions, WrittenChangelog, changelog_of, versions_of
from headrace.model.expressions.columns import SourceColumns, WrittenColumns, columns_of_source
from headrace.pipeline.endpoints import (
    OnMissing,
    OnUnreadable,
    OwnFunction,
    exploded_column,
    own_function,
    with_objects,
)
from headrace.pipeline.sources import FORMAT_NAMES, CsvDialect, FilesSource, NameOrder


@check_keywords
@dataclass(frozen=True, init=False)
class FileSource(FilesSource):
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
    order. ``missing`` is about a column that the pipeline reads and that the header of a file, or its Parquet schema,
    lacks: it fails the run; "null": it is NULL in all records of the file. The run warns of a JSON file that has it in
    no record, unless ``missing`` is "null". ``transform`` makes other rows of the records that parse; ``columns`` are
    then those that it returns. ``explode`` names a column that is a list. Each item gives a record, with the item in
    that column; a list without items, or NULL, gives none. It may be a list of objects, "items", in which columns are
    (``field("items.sku", str)``). ``on_unreadable``: a file that cannot be read at all fails the run; "dead_letter": it
    is one. ``dialect`` is how CSV files are written, as ``csv`` gives it. ``max_rejected`` is the budget of dead
    letters per epoch: None means no limit, 0 that one bad record fails the run. ``changelog`` is
    ``delta_change_type()``, ``debezium_envelope()``, whose rows then have the ``schema``, or an expression. The
    expression is 1 for a record that adds a row and -1 for one that withdraws it. ``versions``: records are versions of
    rows, ``upserts("id")`` or ``debezium_versions()``.

    >>> hr.json("landing/clicks", {"shop": str}, max_files=10).max_files
    10
    """

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
    transform: OwnFunction | None
    explode: str | None
    changelog: Changelog | None
    versions: Versions | None
    dialect: CsvDialect | None

    def __init__(
        self,
        path: str,
        format: str,  # noqa: A002 (the word of the domain)
        schema: WrittenColumns,
        *,
        max_files: int = 10_000,
        max_bytes: int = 512 * 1024 * 1024,
        look_back: int = 1000,
        names: NameOrder | str = NameOrder.ANY,
        max_rejected: int | None = None,
        on_unreadable: OnUnreadable | str = OnUnreadable.FAIL,
        missing: OnMissing | str = OnMissing.FAIL,
        suffixes: Sequence[str] = (),
        transform: OwnFunction | None = None,
        explode: str | None = None,
        changelog: WrittenChangelog | None = None,
        versions: Versions | None = None,
        dialect: CsvDialect | None = None,
    ) -> None:
        kind = Arguments("FileSource").registered_name("format", format, FORMAT_NAMES)
        arguments = Arguments(kind if kind in FORMAT_NAMES.built_in else "FileSource")  # the function that users write
        set_ = object.__setattr__
        set_(self, "path", arguments.text("path", path, "landing/flights"))
        set_(self, "format", kind)
        set_(self, "schema", columns_of_source(arguments, "schema", schema))
        set_(self, "max_files", arguments.whole_number("max_files", max_files, least=1))
        set_(self, "max_bytes", arguments.whole_number("max_bytes", max_bytes, least=1))
        set_(self, "look_back", arguments.whole_number("look_back", look_back, least=0))
        set_(self, "names", arguments.choice("names", names, NameOrder))
        limit = None if max_rejected is None else arguments.whole_number("max_rejected", max_rejected, least=0)
        set_(self, "max_rejected", limit)
        set_(self, "on_unreadable", arguments.choice("on_unreadable", on_unreadable, OnUnreadable))
        set_(self, "missing", arguments.choice("missing", missing, OnMissing))
        set_(self, "suffixes", arguments.tuple_of("suffixes", suffixes, str, '".json"'))
        set_(self, "transform", own_function(arguments, transform))
        set_(self, "explode", exploded_column(arguments, explode, self.schema, self.transform))
        instead_hint = "" if kind in ("json", "parquet") else "land JSON or Parquet"
        set_(self, "schema", with_objects(arguments, self.explode, self.schema, instead_hint))
        checked_changelog = changelog_of(arguments, changelog)
        set_(self, "changelog", checked_changelog)
        if checked_changelog is not None:
            checked_changelog.check(arguments, self.schema)
        set_(self, "versions", versions_of(arguments, versions, checked_changelog, self.position))
        set_(self, "dialect", _dialect_for_format(arguments, kind, dialect))
        if {"*", "?"} & {*self.path}:
            raise arguments.refusal(
                "path",
                path,
                "that is a pattern, and a path is a prefix, under which all files are input; "
                'write "landing/flights", and suffixes=[".json"] if only those are meant',
            )


def _dialect_for_format(arguments: Arguments, kind: str, dialect: CsvDialect | None) -> CsvDialect | None:
    """How files of format ``kind`` are written; None: as RFC 4180 says."""
    if dialect is None:
        return None
    checked_dialect = arguments.instance("dialect", dialect, CsvDialect, "nothing: csv(...) has options for it")
    if kind != "csv":
        raise arguments.refusal("dialect", dialect, f"files of format {kind} have none; only CSV has")
    return checked_dialect if checked_dialect.options else None


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
    transform: OwnFunction | None
    explode: str | None
    changelog: WrittenChangelog | None
    versions: Versions | None


@check_keywords
def json(path: str, schema: WrittenColumns, **reading: Unpack[Reading]) -> FileSource:
    """Files of JSON lines, one object each, under ``path``. ``schema`` gives the columns to read with their types; the
    further arguments (``reading``) are those of ``FileSource``.

    >>> hr.json("landing/flights", {"origin": str, "delay": int}).format
    'json'
    """
    return FileSource(path, "json", schema, **reading)


@check_keywords
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
    """CSV files under ``path``, each with a header. ``schema`` gives the columns to read with their types; the further
    arguments (``reading``) are those of ``FileSource``.

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


@check_keywords
def parquet(path: str, schema: WrittenColumns, **reading: Unpack[Reading]) -> FileSource:
    """Parquet files under ``path``. ``schema`` gives the columns to read with their types; the further arguments
    (``reading``) are those of ``FileSource``.

    >>> hr.parquet("landing/flights", {"origin": str, "delay": int}).format
    'parquet'
    """
    return FileSource(path, "parquet", schema, **reading)
