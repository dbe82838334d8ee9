"""This process: its garbage, what stays in it, what its terminal shows and how it ends. Sizes, too: as people write
them, and those of code that a test sets.
"""

import atexit
import codecs
import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from typing import Final, Generic, NoReturn, TypeVar

from headrace.errors import FixConfigError

_NEW_OBJECTS = 200_000

Number = TypeVar("Number")


class Size(Generic[Number]):
    """A size, a pace or a patience: code asks for its ``value`` when it needs it, and tests set it (``headrace_lab``).
    All threads have the same one: an epoch is computed by many.
    """

    __slots__ = ("value",)

    def __init__(self, value: Number) -> None:
        self.value = value


def collect_seldom() -> None:
    """Have Python look once in 200,000 new objects, in place of 700 to 2,000: a quarter of the CPU of a short run."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])


@contextmanager
def without_collection() -> Iterator[None]:
    """The garbage collector rests inside. What an import makes stays, and looking through it again and again takes a
    fifth of the time of a large one.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Staying:
    """What is to end once nothing lasts any more that may need it. For all threads of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._exit_stack = ExitStack()

    @contextmanager
    def keep_open(self) -> Iterator[None]:
        """While this lasts, somewhere, what was ``shared_exit_stack`` stays; then it ends. Begins nothing itself."""
        with self._lock:
            self._users += 1
        try:
            yield
        except BaseException as error:
            try:
                self._end_use()
            except Exception as left:
                error.add_note(f"and it did not end well: {left}")  # what ends the run may be why
            raise
        else:
            self._end_use()

    def _end_use(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                exit_stack, self._exit_stack = self._exit_stack, ExitStack()
                exit_stack.close()

    @contextmanager
    def shared_exit_stack(self) -> Iterator[ExitStack | None]:
        """What ends with the last that lasts; None where nothing does. One thread at a time is in here."""
        with self._lock:
            yield self._exit_stack if self._users else None


LONGEST_CELL: Final = 300
LONGEST_MESSAGE: Final = 2_000
"""Characters of a value in a table, and of a message, that people are shown."""


def shorten_text(text: str, longest: int) -> str:
    """``text``, or its beginning and how long it is."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


def escape_invisible(text: str) -> str:
    """``text`` with all characters that cannot be seen written as Python writes them. They are ESC, NUL, marks that
    turn the direction of text round, halves of surrogate pairs. Ends of lines and tabs stay.
    """
    return _escape_unprintable(text, kept_characters="\n\t")


def in_one_line(text: str) -> str:
    """``escape_invisible``, and ends of lines and tabs are written as Python writes them, too."""
    return _escape_unprintable(text, kept_characters="")


def _escape_unprintable(text: str, kept_characters: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in kept_characters else repr(character)[1:-1]
        for character in text
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


_exit_codes: list[int] = []


def exit_with(code: int) -> NoReturn:
    """End this process as ``sys.exit`` does: its threads end, and what was registered with ``atexit`` is done. Nothing
    takes down, object by object, what was imported: that takes up to a second of CPU.
    """
    _exit_codes.append(code)
    sys.exit(code)


@atexit.register  # before libraries do: Python does these things in reverse order, so the end comes last
def _end() -> None:
    if _exit_codes:
        flush_output()
        os._exit(_exit_codes[-1])


def end_with_input() -> None:
    """End the whole group of processes from now on when the standard input ends, because the process that started this
    one has ended.
    """
    threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.killpg(0, signal.SIGKILL)


_SIZE = re.compile(r"([0-9]{1,18})([kmgt]?)b?", re.IGNORECASE)
_BYTE_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class SizeError(FixConfigError, code="config.size"):
    """A setting that should be a size and is not one."""


def size_in(variable: str) -> int | None:
    """The size in bytes that an environment variable states; None if it states none. Raises SizeError."""
    setting = os.environ.get(variable, "")
    if not setting:
        return None
    size_match = _SIZE.fullmatch(setting.strip())
    if size_match is None:
        raise SizeError(f"{variable}={setting}: write a number of bytes, or one with k, m, g or t, such as 512m")
    return int(size_match[1]) * _BYTE_UNITS[size_match[2].lower()]


def shown_size(size: int) -> str:
    """``3 bytes``, ``1.5 MB``, ``256 MB``; 1,024 of a unit make the next."""
    if size < 2**10:
        return f"{size} bytes"
    unit, name = next((2**shift, name) for shift, name in ((30, "GB"), (20, "MB"), (10, "KB")) if size >= 2**shift)
    return f"{size / unit:,.3g} {name}" if size < 1000 * unit else f"{size // unit:,} {name}"
