"""What things of a pipeline are called, for good: classes of the model, and objects of users.

The words of the model: what each class that may stand in a pipeline is called, for good.

A class says its word where it is defined::

    @word("after count", count=REQUIRED)
    @dataclass(frozen=True)
    class AfterCount(Trigger): ...

Fingerprints and recorded definitions are made of words (``pipeline.identity.encoding``), checks know by them what may
stand in a pipeline, and conformance cases are read by them. So neither names in the code nor defaults count: a class
may be renamed and a default may change, its word and its parts never do.

What users' own objects in a pipeline have in common: how they are told apart, and what becomes of their errors.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from headrace.errors import PipelineError

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


@contextmanager
def user_code(owner: object, doing: str) -> Iterator[None]:
    """Raise what ``owner``, a user's own object, raises inside the block as a PipelineError that names it."""
    try:
        yield
    except PipelineError:
        raise
    except Exception as error:
        raise PipelineError(f"{owner!r} could not {doing}: {error!r}") from error


def check_frozen(owner: object) -> None:
    """Raise PipelineError unless ``owner`` is a frozen dataclass: its fields are part of the pipeline's fingerprint."""
    params = getattr(type(owner), "__dataclass_params__", None)
    if params is None or not params.frozen:
        raise PipelineError(f"{owner!r} must be a frozen dataclass: put @dataclass(frozen=True) on its class")


def check_fields(owner: object, what: str, made: Collection[str], declared: Collection[str]) -> None:
    """Raise PipelineError unless ``what``, which ``owner`` made, has exactly the declared fields."""
    if set(made) != set(declared):
        raise PipelineError(
            f"{owner!r} made {what} with the fields {', '.join(sorted(made)) or 'of nothing'}; "
            f"it declares {', '.join(sorted(declared))}"
        )
