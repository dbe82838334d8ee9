"""Sources that are more than sources to runs, lineage and checks: landed files, and other pipelines.

A source of files says which ones, in which format, and how CSV is written where it is not as RFC 4180 says. Users write
``json``, ``csv`` and ``parquet``. A source of another pipeline says which one, and the columns of its panes.
"""

import codecs
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Final

from headrace.installed import EntryPointGroup
from headrace.model.accumulation import WINDOW_END, WINDOW_START
from headrace.model.arguments import Arguments, check_keywords
from headrace.model.expressions.data_types import DataType
from headrace.moved import redirect_names
from headrace.pipeline import endpoints
from headrace.pipeline.endpoints import Input

_GROUPS: Final = (".", ",", " ", "'", "_", "\u00a0", "\u202f", "\u2019")


@check_keywords
@dataclass(frozen=True)
class CsvDialect:
    """How CSV files are written. ``delimiter`` parts fields; ``quote`` encloses them, and is doubled in them (None: no
    character does); ``escape`` takes the meaning of the character behind it. ``encoding`` is one that Python knows.
    ``skip_lines``: so many lines before the header are no records. ``nulls``: texts that are NULL, beside the empty
    field. ``decimal`` parts the fraction of numbers ("," or "."), ``thousands`` groups of three digits.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    encoding: str = "utf-8"
    skip_lines: int = 0
    nulls: Sequence[str] = ()
    decimal: str = "."
    thousands: str | None = None

    def __post_init__(self) -> None:
        arguments, set_ = Arguments("csv"), object.__setattr__
        self._check_characters(arguments)
        set_(self, "encoding", _encoding_name(arguments, self.encoding))
        set_(self, "skip_lines", arguments.whole_number("skip_lines", self.skip_lines, least=0))
        set_(self, "nulls", arguments.tuple_of("nulls", self.nulls, str, '"NA"'))
        for null in self.nulls:
            if self.escape is not None and self.escape in null:
                raise arguments.refusal(
                    "nulls", null, "no field is that: escape takes its character away. Leave one of them out"
                )
        if self.decimal not in (".", ","):
            raise arguments.refusal("decimal", self.decimal, 'write "." or ","')
        if self.thousands is not None and (self.thousands not in _GROUPS or self.thousands == self.decimal):
            others = ", ".join(repr(group) for group in _GROUPS if group != self.decimal)
            raise arguments.refusal("thousands", self.thousands, f"write one of {others}")

    def _check_characters(self, arguments: Arguments) -> None:
        """Raise PipelineError for characters that cannot part, enclose or escape, or that two of them are."""
        roles: dict[str, str] = {}
        for name in ("delimiter", "quote", "escape"):
            character = getattr(self, name)
            if character is None and name != "delimiter":
                continue
            if (
                not isinstance(character, str)
                or len(character) != 1
                or (not " " <= character <= "~" and character != "\t")
            ):
                raise arguments.refusal(name, character, 'write one character of ASCII, such as ";"')
            if character.isalnum() or character in "+-.":
                raise arguments.refusal(
                    name, character, "numbers and words are written with it; write another character"
                )
            if character in roles:
                raise arguments.refusal(name, character, f"{roles[character]} is that already; write another character")
            roles[character] = name
        if self.quote is None and self.escape is not None:
            raise arguments.refusal(
                "escape", self.escape, "without quotes nothing is escaped; leave it out, or name a quote"
            )

    @property
    def options(self) -> dict[str, Any]:
        """What is not as RFC 4180 says, by name."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, usual) in values.items() if value != usual}


def _encoding_name(arguments: Arguments, name: object) -> str:
    """The name of an encoding of text as Python spells it."""
    text = arguments.text("encoding", name, "cp1252")
    try:
        codec = codecs.lookup(text)
        "a".encode(codec.name)
    except (LookupError, TypeError, ValueError):
        raise arguments.refusal(
            "encoding", name, 'Python knows no such encoding; write one such as "cp1252" or "utf-16"'
        ) from None
    return "utf-8" if codec.name == "utf-8-sig" else codec.name


__getattr__ = redirect_names(__name__)

FORMAT_NAMES: Final[EntryPointGroup[Any]] = EntryPointGroup("headrace.formats", "file format")
"""The formats of files; ``headrace.ext.formats`` has them with their type."""


class NameOrder(StrEnum):
    """In which order of their names files land: in any, so that a run looks at all names; or each behind those that
    landed before it.
    """

    ANY = "any"
    ORDERED = "ordered"


class FilesSource(endpoints.Source):
    """A source of files below ``path`` in one ``format``, in a ``dialect`` if they are CSV that is written otherwise.

    Only names that end in one of ``suffixes`` are input, if any are given. ``names`` says in which order they land, and
    ``look_back`` how many of the newest are listed again where that is their order.
    """

    kind: ClassVar[str] = "files"
    is_watched = True

    path: str
    format: str
    names: NameOrder
    suffixes: tuple[str, ...]
    look_back: int
    dialect: CsvDialect | None

    @property
    def place(self) -> str:
        return self.path

    @property
    def file_format(self) -> Any:
        """What reads its files, and writes those of late records, dead letters and unit tests: a ``FileFormat``."""
        form = FORMAT_NAMES[self.format]
        return form if self.dialect is None else form.in_dialect(self.dialect)

    def __str__(self) -> str:
        return f"{self.format} files under {self.path}"


PUBLISHED_KIND: Final = "published"
"""The kind of such sources."""

PANE_TIME: Final = "pane_time"
IS_RETRACTION: Final = "is_retraction"

OF_PANES: Mapping[str, DataType] = {
    WINDOW_START: DataType.TIMESTAMP,
    WINDOW_END: DataType.TIMESTAMP,
    PANE_TIME: DataType.TIMESTAMP,
    IS_RETRACTION: DataType.BOOL,
}
"""Columns that every pane has beside its key and values."""


class UpstreamSource(endpoints.Source):
    """A source that is another pipeline, or one of its outputs: a run holds what it reads of it, and goes back with it.

    ``upstream`` is what users call it, ``delays.hourly``; ``root`` is the root that it lies under, None: that of the
    reader.
    """

    is_upstream: ClassVar[bool] = True

    upstream: str
    root: str | None

    @property
    @abstractmethod
    def pipeline(self) -> str:
        """The pipeline that is read."""

    @property
    @abstractmethod
    def output(self) -> str:
        """Its output that is read; "" for the only one, which has no name."""


def upstream_sources(inputs: Iterable[Input]) -> dict[str, UpstreamSource]:
    """The sources of ``inputs`` that are other pipelines, by the name of the input."""
    return {one.name: one.source for one in inputs if isinstance(one.source, UpstreamSource)}
