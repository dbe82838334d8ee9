"""How lines of a text file are told apart: its encoding, what comes before the first, and where a break ends none."""

import codecs
from dataclasses import dataclass
from functools import cache
from typing import Final

from headrace.formats.errors import UnreadableFileError
from headrace.formats.quotes import Quotes

UTF8: Final = "utf-8"


@dataclass(frozen=True)
class TextLayout:
    """``quotes`` hold line breaks; None: each line break ends a line. ``skip_lines`` before the first are no lines.
    A line of nothing but ``blanks`` is none either.
    """

    quotes: Quotes | None = None
    encoding: str = UTF8
    skip_lines: int = 0
    blanks: str = " \t"

    @property
    def is_divisible(self) -> bool:
        """Whether pieces of a file can be cut before they are decoded."""
        return self.encoding == UTF8 or is_like_ascii(self.encoding)

    def whole(self, data: bytes, path: str) -> bytes:
        """A file as a text that can be cut. Raises UnreadableFileError if it ends within a character."""
        if self.is_divisible:
            return data.removeprefix(codecs.BOM_UTF8)
        try:
            return self._recoded(data).removeprefix(codecs.BOM_UTF8)
        except UnicodeError as error:
            raise UnreadableFileError(path, f"it is not {self.encoding} ({error})") from error

    def piece(self, text: bytes) -> bytes:
        """A piece of what ``whole`` gave, as UTF-8. A character that is none in the encoding is no UTF-8 either."""
        return self._recoded(text) if self.is_divisible and self.encoding != UTF8 else text

    def begin(self, text: bytes) -> int:
        """Where the first line begins."""
        at = 0
        for _ in range(self.skip_lines):
            newline, carriage = text.find(b"\n", at), text.find(b"\r", at)
            if newline < 0 and carriage < 0:
                return len(text)
            if carriage < 0 or 0 <= newline < carriage:
                at = newline + 1
            else:
                at = carriage + 1 + text.startswith(b"\n", carriage + 1)
        return at

    def stored(self, text: bytes) -> bytes:
        """The content of a file with the lines ``text``, which are in UTF-8 but for characters of which ``piece`` made
        none. Raises ValueError for a character that the encoding does not have.
        """
        text = b"\n" * self.skip_lines + text
        if self.encoding == UTF8:
            return text
        errors = _errors(self.encoding)
        return text.decode(UTF8, errors).encode(self.encoding, errors)

    def can_store(self, line: bytes) -> bool:
        """Whether the encoding has what is in a ``line`` that ``stored`` is to hold."""
        try:
            self.stored(line)
        except UnicodeError:
            return False
        return True

    def _recoded(self, data: bytes) -> bytes:
        """``data`` as UTF-8; what is no character stays what it is, which is no UTF-8."""
        errors = _errors(self.encoding)
        encoding = self.encoding
        if encoding in ("utf-16", "utf-32") and not data.startswith(_MARKS[encoding]):
            encoding = f"{encoding}-le"  # as most write it
        return data.decode(encoding, errors).encode(UTF8, errors)


_MARKS: Final = {
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}


def _errors(encoding: str) -> str:
    return "surrogatepass" if encoding.startswith(("utf-16", "utf-32")) else "surrogateescape"


@cache
def is_like_ascii(encoding: str) -> bool:
    """Whether each byte is a character of its own, those of ASCII what they are there."""
    ascii_ = bytes(range(128))
    try:
        if ascii_.decode(encoding) != ascii_.decode("ascii"):
            return False
    except UnicodeDecodeError:
        return False
    if not any(_is_character(byte, encoding) for byte in range(128, 256)):  # others switch by what stands before
        return False
    pairs = (bytes([first, second]) for first in range(256) for second in (0x41, 0x7C, 0xA1))
    return all(len(pair.decode(encoding, "replace")) == 2 for pair in pairs)


def _is_character(byte: int, encoding: str) -> bool:
    try:
        return len(bytes([byte]).decode(encoding)) == 1
    except UnicodeDecodeError:
        return False
