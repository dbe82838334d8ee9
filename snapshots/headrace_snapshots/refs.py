"""The grammar of names: which text can be a branch, a tag, a ref, the id of a snapshot, a time, or the beginning.

A text is a name of one kind only, whatever a catalog holds, so that nobody is shown another snapshot than was named:
what is written as an id, a time or a word of commands cannot name a branch or a tag. A tag and a branch look alike, so
the protocol gives no name to both. Stores of before may hold names that this grammar refuses: those tags are read and
dropped as ``tags/NAME``.
"""

import re
from enum import Enum

MAIN, PUBLISHED, TAGS = "main", "published", "tags/"
"""The branch that runs are on, what readers of it see, and what the ref of a tag begins with."""

BEGINNING = "beginning"
"""What commands call the place before the first snapshot."""

WORDS = frozenset({BEGINNING, "none", "head", "tags", PUBLISHED})
"""What commands mean something else by than a branch or a tag, in any case of letters."""

SNAPSHOT = "[0-9a-f]{16}"
"""A regular expression of ids of snapshots."""

NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
"""A regular expression of what can name a branch, a tag or a run, also for forms; besides, see ``why_not``."""

_SNAPSHOT, _NAME = re.compile(SNAPSHOT), re.compile(NAME)
_HEXADECIMAL = re.compile("[0-9A-Fa-f]{16}|[0-9A-Fa-f]{32}")
_TIME = re.compile(r"\d{4}-\d\d-\d\d.*")


class NameKind(Enum):
    """What a text is the name of. REF: a branch, ``published``, or a tag; TAG: a tag that is written as such."""

    SNAPSHOT = "the id of a snapshot"
    TIME = "a time"
    BEGINNING = "the beginning"
    TAG = "a tag"
    REF = "a branch or a tag"


def kind_of_name(text: str) -> NameKind:
    """What ``text`` is the name of, by its form alone."""
    if text.startswith(TAGS):
        return NameKind.TAG
    if _SNAPSHOT.fullmatch(text):
        return NameKind.SNAPSHOT
    if _TIME.fullmatch(text):
        return NameKind.TIME
    return NameKind.BEGINNING if text == BEGINNING else NameKind.REF


def why_not(name: str) -> str | None:
    """Why ``name`` cannot name a new branch or tag; None if it can."""
    if not _NAME.fullmatch(name):
        return "use up to 100 letters, digits, _, . and -, beginning with a letter or digit"
    if name.lower() in WORDS:
        return "commands mean something else by that word"
    if _HEXADECIMAL.fullmatch(name):
        return "ids of snapshots look like that"
    if kind_of_name(name) is NameKind.TIME:
        return "times are written like that"
    return None


def why_not_a_tag(name: str) -> str | None:
    """Why ``name`` cannot name a new tag; None if it can."""
    return "that is the branch that runs are on" if name.lower() == MAIN else why_not(name)
