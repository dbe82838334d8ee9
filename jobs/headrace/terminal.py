"""Text that a terminal shows and does not obey; and output that nobody reads."""

import codecs
import os
import sys
from io import TextIOWrapper
from typing import Final

LONGEST_CELL: Final = 300
LONGEST_MESSAGE: Final = 2_000
"""Characters of a value in a table, and of a message, that people are shown."""


def cut(text: str, longest: int) -> str:
    """``text``, or its beginning and how long it is."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def visible(text: str) -> str:
    """``text``, in which what is no character to look at (ESC, NUL, marks that turn the direction of text round, halves
    of surrogate pairs) is written as Python writes it. Ends of lines and tabs stay.
    """
    return _written(text, kept="\n\t")


def in_one_line(text: str) -> str:
    """``visible``, and ends of lines and tabs are written as Python writes them, too."""
    return _written(text, kept="")


def _written(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in kept else repr(character)[1:-1] for character in text
    )


def speak_utf8() -> None:
    """Let stdout and stderr take any text, as UTF-8, whatever the locale or PYTHONIOENCODING says."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def flush_output() -> None:
    """Let stdout and stderr say what they hold; where nobody reads it any more, let them say it to nobody, since Python
    would fail once more when it flushes them at its end.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
