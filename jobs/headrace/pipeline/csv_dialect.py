"""How CSV files are written where it is not as RFC 4180 says: what parts fields, what encloses them, the encoding."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from headrace.model.arguments import Arguments, keywords

_GROUPS: Final = (".", ",", " ", "'", "_", "\u00a0", "\u202f", "\u2019")


@keywords
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
        given, set_ = Arguments("csv"), object.__setattr__
        self._check_characters(given)
        set_(self, "encoding", _encoding(given, self.encoding))
        set_(self, "skip_lines", given.whole("skip_lines", self.skip_lines, least=0))
        set_(self, "nulls", given.several("nulls", self.nulls, str, '"NA"'))
        for null in self.nulls:
            if self.escape is not None and self.escape in null:
                raise given.wrong(
                    "nulls", null, "no field is that: escape takes its character away. Leave one of them out"
                )
        if self.decimal not in (".", ","):
            raise given.wrong("decimal", self.decimal, 'write "." or ","')
        if self.thousands is not None and (self.thousands not in _GROUPS or self.thousands == self.decimal):
            others = ", ".join(repr(group) for group in _GROUPS if group != self.decimal)
            raise given.wrong("thousands", self.thousands, f"write one of {others}")

    def _check_characters(self, given: Arguments) -> None:
        """Raise PipelineError for characters that cannot part, enclose or escape, or that two of them are."""
        known: dict[str, str] = {}
        for name in ("delimiter", "quote", "escape"):
            character = getattr(self, name)
            if character is None and name != "delimiter":
                continue
            if (
                not isinstance(character, str)
                or len(character) != 1
                or (not " " <= character <= "~" and character != "\t")
            ):
                raise given.wrong(name, character, 'write one character of ASCII, such as ";"')
            if character.isalnum() or character in "+-.":
                raise given.wrong(name, character, "numbers and words are written with it; write another character")
            if character in known:
                raise given.wrong(name, character, f"{known[character]} is that already; write another character")
            known[character] = name
        if self.quote is None and self.escape is not None:
            raise given.wrong("escape", self.escape, "without quotes nothing is escaped; leave it out, or name a quote")

    @property
    def options(self) -> dict[str, Any]:
        """What is not as RFC 4180 says, by name."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, usual) in values.items() if value != usual}


def _encoding(given: Arguments, name: object) -> str:
    """The name of an encoding of text as Python spells it."""
    text = given.text("encoding", name, "cp1252")
    try:
        known = codecs.lookup(text)
        "a".encode(known.name)
    except (LookupError, TypeError, ValueError):
        raise given.wrong(
            "encoding", name, 'Python knows no such encoding; write one such as "cp1252" or "utf-16"'
        ) from None
    return "utf-8" if known.name == "utf-8-sig" else known.name
