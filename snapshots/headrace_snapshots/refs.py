"""The grammar of names: which text can be a branch, a tag, the id of a snapshot, a time, or the beginning.

A text is a name of one kind only, so that nobody is shown another snapshot than was named. Its form tells ids, times,
tags that are written as such, and the beginning; what has such a form cannot name a branch or a tag. A branch and a tag
look alike, so the protocol gives no name to both. A store of before may hold names that are refused now: such a tag is
found as ``tags/NAME``.

Where outputs have names, each has a ref ``published/NAME`` in place of ``published``. No name of a branch has a slash.
A sink that cannot take back has two refs: ``delivering/SINK`` says up to where its rows may have been handed over, and
``delivered/SINK`` up to where they were; of an output with a name, ``delivering/NAME/SINK``.
"""

import re
from collections.abc import Collection, Mapping
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

_OF_OUTPUT = f"{PUBLISHED}/"
_DELIVERING, _DELIVERED = "delivering/", "delivered/"
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


def delivering_ref(output: str, sink: str) -> str:
    """The ref up to which rows may have been handed over to a ``sink`` of ``output``; "": the output without a name."""
    return f"{_DELIVERING}{output}/{sink}" if output else f"{_DELIVERING}{sink}"


def delivered_ref(output: str, sink: str) -> str:
    """The ref up to which all rows were handed over to a ``sink`` of ``output``."""
    return _DELIVERED + delivering_ref(output, sink).removeprefix(_DELIVERING)


def is_delivery(ref: str) -> bool:
    """Whether ``ref`` says what was handed over to a sink that cannot take back."""
    return ref.startswith((_DELIVERING, _DELIVERED))


def delivery_of(ref: str) -> tuple[str, str]:
    """The output and the sink of such a ref."""
    output, _, sink = ref.partition("/")[2].rpartition("/")
    return output, sink


def published_ref(output: str) -> str:
    """The ref of what readers of ``output`` see; "": the output without a name."""
    return f"{_OF_OUTPUT}{output}" if output else PUBLISHED


def is_published(ref: str) -> bool:
    """Whether ``ref`` says what readers of some output see."""
    return ref == PUBLISHED or ref.startswith(_OF_OUTPUT)


def output_of(ref: str) -> str:
    """The output whose readers see ``ref``, the inverse of ``published_ref``."""
    return ref.removeprefix(PUBLISHED).removeprefix("/")


def published_of(refs: Mapping[str, str]) -> dict[str, str]:
    """What readers see of each output that has been published: snapshots by output."""
    return {output_of(ref): snapshot for ref, snapshot in refs.items() if is_published(ref)}


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
