"""The words of the model: what each class that may stand in a pipeline is called, for good.

A class says its word where it is defined::

    @word("after count", count=REQUIRED)
    @dataclass(frozen=True)
    class AfterCount(Trigger): ...

Fingerprints and recorded definitions are made of words (``pipeline.identity.encoding``), checks know by them what may
stand in a pipeline, and conformance cases are read by them. So neither names in the code nor defaults count: a class
may be renamed and a default may change, its word and its parts never do.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

REQUIRED: Any = object()
"""In the place of a value: the part is never left out."""


class Word(NamedTuple):
    """What a class is called, and its parts, each with the value that counts as left out (a tuple: one of these).

    A new part has the value that means "as before": then it changes nothing for pipelines that do not use it.
    """

    name: str
    parts: Mapping[str, Any]


WORDS: dict[type, Word] = {}
"""The words of all classes that have been imported."""


def word(name: str, /, **parts: Any) -> Callable[[type[T]], type[T]]:
    """Call the decorated class ``name``; ``parts`` are fields of it."""

    def called(kind: type[T]) -> type[T]:
        WORDS[kind] = Word(name, parts)
        return kind

    return called


def words(kind: type[T]) -> dict[str, type[T]]:
    """The subclasses of ``kind`` that have a word, by it."""
    return {known.name: subclass for subclass, known in WORDS.items() if issubclass(subclass, kind)}
