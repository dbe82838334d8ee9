"""What every expression can be asked for that is a string."""

from typing import TYPE_CHECKING

from headrace.model.arguments import Arguments
from headrace.model.expressions.regex import RegexError, to_re2
from headrace.model.suggestions import method_keywords

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.model.expressions.data_types import Scalar
    from headrace.model.expressions.expr import Expr


@method_keywords
class TextMethods:
    """Functions of a string. Lengths and places count characters (Unicode code points), places from 0."""

    if TYPE_CHECKING:

        def _apply(self, name: str, *constants: Scalar) -> Expr: ...

    def lower(self) -> "Expr":
        """This string in lower case, as Python's ``str.lower`` has it."""
        return self._apply("lower")

    def upper(self) -> "Expr":
        """This string in upper case, as Python's ``str.upper`` has it: "ß" becomes "SS"."""
        return self._apply("upper")

    def strip(self) -> "Expr":
        """This string without the white space around it."""
        return self._apply("strip")

    def to_timestamp(self) -> "Expr":
        """The moment that this string says as sources read columns of timestamps: ISO 8601, RFC 3339, and what tools
        write for them (``2013-01-01 05:00:00,123 +0100``, ``20130101T050000Z``); NULL if it says none.

        ``cast(datetime)`` reads less: ISO 8601 with dashes and colons.
        """
        return self._apply("to_timestamp")

    def length(self) -> "Expr":
        """How many characters this string has, or items this list."""
        return self._apply("length")

    def substring(self, start: int, length: int | None = None) -> "Expr":
        """``length`` characters from place ``start`` on, or all; fewer where the string ends before.

        Places count from 0, so ``substring(0, 2)`` is the first two characters. A negative ``start`` counts from the
        end: ``substring(-3)`` is the last three, or all if there are fewer.
        """
        given = Arguments("substring")
        if isinstance(start, bool) or not isinstance(start, int) or not -(2**63) <= start < 2**63:
            raise given.wrong("start", start, "write a whole number: 0 is the first character, -1 the last")
        if length is not None:
            given.whole("length", length, least=0)
        return self._apply("substring", start, *([] if length is None else [length]))

    def contains(self, text: "Scalar | datetime") -> "Expr":
        """Whether ``text`` is anywhere in this string; or whether an item of this list equals it, then of any type.

        Items that are NULL equal nothing.
        """
        if text is None or isinstance(text, str):
            Arguments("contains").text("text", text, "delayed")
        return self._apply("contains", text)

    def starts_with(self, text: str) -> "Expr":
        """Whether this string begins with ``text``."""
        return self._apply("starts_with", Arguments("starts_with").text("text", text, "UA"))

    def ends_with(self, text: str) -> "Expr":
        """Whether this string ends with ``text``."""
        return self._apply("ends_with", Arguments("ends_with").text("text", text, ".html"))

    def matches(self, regex: str) -> "Expr":
        r"""Whether ``regex`` matches anywhere in this string; ``^`` and ``$`` stand for its ends.

        It may have characters, ``.``, classes (``[a-z]``, ``\d \w \s`` of ASCII), groups, ``|``, ``* + ? {2,5}`` and
        ``\b``; not look-around, back-references or flags. Case counts: ``.lower().matches(...)`` ignores it.
        """
        Arguments("matches").text("regex", regex, "^[A-Z]{2}[0-9]+$")
        try:
            to_re2(regex)
        except RegexError as error:
            raise Arguments("matches").wrong("regex", regex, str(error)) from None
        return self._apply("matches", regex)

    def replace(self, old: str, new: str) -> "Expr":
        """This string with ``new`` wherever ``old`` is in it, from left to right."""
        Arguments("replace").text("old", old, "-")
        if not isinstance(new, str) or new:
            Arguments("replace").text("new", new, "-")
        return self._apply("replace", old, new)

    def crc32(self) -> "Expr":
        """CRC-32 of this string in UTF-8, an int from 0 to 2^32 - 1: a hash that every executor computes alike."""
        return self._apply("crc32")
