r"""Regular expressions of text: a subset that means the same to RE2 and to Python, in a form for RE2.

Characters, ``.``, classes (``[a-z]``, ``[^a-z]``, ``\d \w \s \D \W \S`` of ASCII), groups, ``|``, ``* + ? {2,5}`` and
their lazy forms, ``^ $ \b``. A pattern is read to ranges of code points, and its form is written from these. So the
engine's own idea of a class or a newline does not count. ``$`` is the end of the text alone, ``.`` is not a newline,
``\s`` is also ``\v``.

Where it counts which characters match, what is repeated has at least one: engines disagree on how often nothing is
there.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, NoReturn

_LAST_CHARACTER = 0x10FFFF
_MOST_REPEATS = 1000
"""How often RE2 repeats something, and how many ranges of characters a pattern may come to with its repetitions."""
_DEEPEST_GROUP = 50

CharacterRanges = tuple[tuple[int, int], ...]
_DIGITS: CharacterRanges = ((0x30, 0x39),)
_WORD_RANGES: CharacterRanges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: CharacterRanges = ((0x09, 0x0D), (0x20, 0x20))
_CHARACTER_CLASSES = {"d": _DIGITS, "w": _WORD_RANGES, "s": _SPACE}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}


class RegexError(ValueError):
    """What is wrong with a pattern, and what to write."""


@dataclass(frozen=True)
class Regex:
    """A pattern as RE2 is given it, how many ranges of characters it comes to, and whether it matches no character."""

    re2: str
    size: int = 1
    may_be_empty: bool = False


class Captures(NamedTuple):
    """A pattern as RE2 is given it, its groups called g1, g2; how many these are, and whether it matches nothing."""

    re2: str
    groups: int
    may_be_empty: bool


@lru_cache(maxsize=1024)
def to_re2(pattern: str) -> str:
    """``pattern`` as RE2 is given it. Raises RegexError if it is not in the subset."""
    return _RegexReader(pattern).read_pattern().re2


@lru_cache(maxsize=1024)
def to_captures(pattern: str) -> Captures:
    """``pattern`` with its groups, which tell what matched. Raises RegexError if it is not in the subset."""
    reader = _RegexReader(pattern, captures=True)
    regex = reader.read_pattern()
    return Captures(regex.re2, reader.groups, regex.may_be_empty)


_GROUP_REFERENCE = re.compile(r"\\(.?)", re.DOTALL)


def check_replacement(new: str, groups: int) -> None:
    r"""Raise RegexError unless each backslash in ``new`` is ``\\`` or names one of so many groups, ``\0`` the whole."""
    for reference in _GROUP_REFERENCE.finditer(new):
        if reference[1] not in ("\\", *map(str, range(min(groups, 9) + 1))):
            raise RegexError(f"{reference[0]} names no group of the pattern; write \\\\ for a backslash")


def _join_regexes(parts: Iterable[Regex], separator: str = "") -> Regex:
    regexes = list(parts)
    size = max(1, sum(regex.size for regex in regexes))
    may_be_empty = (any if separator else all)(regex.may_be_empty for regex in regexes)
    return Regex(separator.join(regex.re2 for regex in regexes), size, may_be_empty)


def _group_regex(inner: Regex, kind: str = "?:") -> Regex:
    return Regex(f"({kind}{inner.re2})", inner.size, inner.may_be_empty)


def _of_class(ranges: CharacterRanges) -> Regex:
    members = "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in ranges)
    return Regex(f"[{members}]", len(ranges))


def _complement_ranges(ranges: Iterable[tuple[int, int]]) -> CharacterRanges:
    """All characters but these."""
    gaps, start = [], 0
    for low, high in sorted(ranges):
        if low > start:
            gaps.append((start, low - 1))
        start = max(start, high + 1)
    return (*gaps, (start, _LAST_CHARACTER)) if start <= _LAST_CHARACTER else tuple(gaps)


@dataclass
class _RegexReader:
    """Reads a pattern from its start."""

    pattern: str
    captures: bool = False
    position: int = field(default=0, init=False)
    depth: int = field(default=0, init=False)
    groups: int = field(default=0, init=False)

    def read_pattern(self) -> Regex:
        regex = self.read_alternatives()
        if self.position < len(self.pattern):
            self.fail("there is no group that ) closes", r"\)")
        return regex

    def fail(self, why: str, write: str) -> NoReturn:
        raise RegexError(f"{why} (at character {self.position}); write {write}")

    def next_character(self) -> str:
        """The next character, "" at the end."""
        return self.pattern[self.position : self.position + 1]

    def take_if_next(self, text: str) -> bool:
        is_next = self.pattern.startswith(text, self.position)
        self.position += len(text) if is_next else 0
        return is_next

    def read_alternatives(self) -> Regex:
        branches = [self.read_sequence()]
        while self.take_if_next("|"):
            branches.append(self.read_sequence())
        return branches[0] if len(branches) == 1 else _group_regex(_join_regexes(branches, "|"))

    def read_sequence(self) -> Regex:
        regex = _join_regexes(self.read_parts())
        if regex.size > _MOST_REPEATS:
            self.fail("the pattern is too large with all its repetitions", f"one of at most {_MOST_REPEATS} characters")
        return regex

    def read_parts(self) -> Iterator[Regex]:
        while self.next_character() not in ("", "|", ")"):
            if (anchor := self.read_anchor()) is not None:
                if self.next_character() in tuple("*+?{"):
                    self.fail("a place in the text cannot be repeated", "it once")
                yield anchor
            else:
                yield self.read_repetition(self.read_atom())

    def read_anchor(self) -> Regex | None:
        if self.take_if_next("^"):
            return Regex("^", may_be_empty=True)
        if self.take_if_next("$"):
            return Regex(r"\z", may_be_empty=True)
        return Regex(r"\b", may_be_empty=True) if self.take_if_next(r"\b") else None

    def read_atom(self) -> Regex:
        if self.take_if_next("("):
            return self.read_group()
        if self.take_if_next("["):
            return _of_class(self.read_class())
        if self.take_if_next("."):
            return _of_class(_complement_ranges([(0x0A, 0x0A)]))
        if self.next_character() in tuple("*+?"):
            self.fail(
                f"there is nothing before {self.next_character()}", rf"\{self.next_character()} for the character"
            )
        if self.next_character() in tuple("{}]"):
            self.fail(
                f"{self.next_character()} has nothing to close or to repeat",
                rf"\{self.next_character()} for the character",
            )
        return _of_class(self.read_escape() if self.take_if_next("\\") else self.read_character())

    def read_group(self) -> Regex:
        is_plain = not self.take_if_next("?:")
        if is_plain and self.next_character() == "?":
            self.fail(
                "groups that begin with (? are look-around, flags or names, which the executors do not share",
                "(?:...), or .lower().matches(...) for either case",
            )
        self.depth += 1
        self.groups += is_plain
        kind = f"?P<g{self.groups}>" if is_plain and self.captures else "?:"
        if self.depth > _DEEPEST_GROUP:
            self.fail("groups are nested too deep", f"at most {_DEEPEST_GROUP} within each other")
        inner = self.read_alternatives()
        self.depth -= 1
        if not self.take_if_next(")"):
            self.fail("a group is not closed", r") at its end, or \( for the character")
        return _group_regex(inner, kind)

    def read_character(self) -> CharacterRanges:
        code = ord(self.next_character())
        self.position += 1
        return ((code, code),)

    def read_escape(self) -> CharacterRanges:
        r"""What a backslash, already consumed, makes of the next character."""
        letter = self.next_character()
        if letter.lower() in _CHARACTER_CLASSES and letter:
            self.position += 1
            ranges = _CHARACTER_CLASSES[letter.lower()]
            return ranges if letter in _CHARACTER_CLASSES else _complement_ranges(ranges)
        if letter in _CONTROLS:
            self.position += 1
            return ((ord(_CONTROLS[letter]), ord(_CONTROLS[letter])),)
        if not letter or letter.isalnum() or not letter.isascii():
            what = "back-references and" if letter.isdigit() else "the escape"
            self.fail(f"{what} \\{letter} cannot be used" if letter else "a backslash ends the pattern", r"\\ for a \ ")
        return self.read_character()

    def read_class(self) -> CharacterRanges:
        """The characters of a class, whose [ is already consumed."""
        is_negated = self.take_if_next("^")
        ranges: list[tuple[int, int]] = []
        while not self.take_if_next("]"):
            low = self.read_member()
            if self.next_character() == "-" and self.pattern[self.position + 1 : self.position + 2] != "]":
                self.position += 1
                high = self.read_member()
                if len(low) > 1 or len(high) > 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    self.fail("a range of a class is between two characters", r"\- for the character")
                if low[0][0] > high[0][0]:
                    self.fail("a range of a class goes backwards", "the lower character first")
                ranges.append((low[0][0], high[0][0]))
            else:
                ranges.extend(low)
        others = _complement_ranges(ranges)
        members = others if is_negated else _complement_ranges(others)
        if not members:
            self.fail("a class has no character", r"at least one in it, and \] for the character")
        return members

    def read_member(self) -> CharacterRanges:
        if not self.next_character():
            self.fail("a class is not closed", r"] at its end, or \[ for the character")
        if self.next_character() == "[":
            self.fail("[ inside a class is not shared by the executors", r"\[ for the character")
        return self.read_escape() if self.take_if_next("\\") else self.read_character()

    def read_repetition(self, inner: Regex) -> Regex:
        low_high = self.read_times()
        if low_high is None:
            return inner
        low, high = low_high
        is_lazy = self.take_if_next("?")
        if self.next_character() in tuple("*+?{"):
            self.fail("a repetition cannot be repeated", "a group, (?:a*)*")
        if max(low, high or 0) > _MOST_REPEATS or (high is not None and low > high):
            self.fail("the numbers of a repetition are from low to high", f"{{low,high}} up to {_MOST_REPEATS}")
        if self.captures and inner.may_be_empty:
            self.fail("what is repeated may be nothing at all", "at least one character in it: (a+)? for (a*)?")
        repeat = f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"
        times = low + 1 if high is None else max(high, 1)
        lazy = "?" if is_lazy else ""
        return Regex(f"(?:{inner.re2}){repeat}{lazy}", inner.size * times, low == 0 or inner.may_be_empty)

    def read_times(self) -> tuple[int, int | None] | None:
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take_if_next(sign):
                return times
        if not self.take_if_next("{"):
            return None
        low, comma, high = self.read_number(), self.take_if_next(","), self.read_number()
        if low is None or not self.take_if_next("}"):
            self.fail("a repetition is {2}, {2,} or {2,5}", r"one of these, or \{ for the character")
        return low, high if comma else low

    def read_number(self) -> int | None:
        start = self.position
        while self.next_character() and self.next_character() in "0123456789":
            self.position += 1
        # nine digits are too many already, and Python reads no number of thousands
        return int(self.pattern[start : self.position][:9]) if self.position > start else None
