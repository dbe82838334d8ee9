"""The grammar of names: which text can be a branch, a tag, the id of a snapshot, a time, or the beginning.

A text is a name of one kind only, so that nobody is shown another snapshot than was named. Its form tells ids, times,
tags that are written as such, and the beginning; what has such a form cannot name a branch or a tag. A branch and a tag
look alike, so the protocol gives no name to both. A store of before may hold names that are refused now: such a tag is
found as ``tags/NAME``.
"""

import re
from collections.abc import Collection
from enum import Enum

MAIN, PUBLISHED, TAGS = "main", "published", "tags/"
"""The branch that runs are on, what readers of it see, and what the ref of a tag begins with."""

BEGINNING = "beginning"
"""The place before the first snapshot."""

NOTHING = "none"
"""How names of audits, and what is printed, say that there is no snapshot."""

SNAPSHOT = "[0-9a-f]{16}"
"""A regular expression of ids of snapshots."""

NAME = "[A-Za-z0-9][A-Za-z0-9_.-]{0,99}"
"""A regular expression of what can name a branch or a tag, also for forms; ``why_not`` says the rest."""

_RESERVED = frozenset({BEGINNING, NOTHING, PUBLISHED, "tags"})
_SNAPSHOT, _NAME = re.compile(SNAPSHOT), re.compile(NAME)
_TIME = re.compile(r"\d{4}-\d\d-\d\d.*")


class NameKind(Enum):
    """What a text names, by its form. REF: a branch, ``published`` or a tag; TAG: a tag that is written as such."""

    SNAPSHOT = "the id of a snapshot"
    TIME = "a time"
    BEGINNING = "the beginning"
    TAG = "a tag"
    REF = "a branch or a tag"


def kind_of_name(text: str) -> NameKind:
    """What ``text`` is the name of."""
    if text.startswith(TAGS):
        return NameKind.TAG
    if _SNAPSHOT.fullmatch(text.lower()):
        return NameKind.SNAPSHOT
    if _TIME.fullmatch(text):
        return NameKind.TIME
    return NameKind.BEGINNING if text == BEGINNING else NameKind.REF


def ref_of(name: str, refs: Collection[str], branches: Collection[str]) -> str | None:
    """The ref that ``name`` means where a ref is meant: a branch, ``published`` or a tag; None if there is none.

    ``refs`` have a snapshot; ``branches`` need have none.
    """
    if name in refs or name in branches or name in {MAIN, PUBLISHED}:
        return name
    tag = name if name.startswith(TAGS) else f"{TAGS}{name}"
    return tag if tag in refs else None


def why_not(name: str) -> str | None:
    """Why ``name`` cannot name a new branch or tag; None if it can."""
    if not _NAME.fullmatch(name):
        return "use up to 100 letters, digits, _, . and -, beginning with a letter or a digit"
    if name.lower() in _RESERVED:
        return "commands mean something else by that word"
    kind = kind_of_name(name)
    return None if kind is NameKind.REF else f"it would be read as {kind.value}"
