"""Duplicates that go no further than the first record of an id (semantics 12.10)."""

from dataclasses import dataclass

from headrace.model.arguments import Arguments, Length
from headrace.model.expressions.coercion import Read, read
from headrace.model.expressions.expr import Expr
from headrace.model.suggestions import Suggesting, keywords
from headrace.model.time import Duration
from headrace.model.vocabulary import REQUIRED, word


@word("deduplicate", id=REQUIRED, horizon=REQUIRED)
@keywords
@dataclass(frozen=True, init=False)
class Deduplicate(Suggesting):
    """Counts only the first record of each ``id``, across all keys, windows and inputs (12.10).

    An id is remembered until the watermark passes its event time plus ``horizon``. A record that comes later than that
    cannot be told from a duplicate and is dropped as late. A record without an id goes to the dead letter.

    >>> hr.Deduplicate("order_id", horizon="1d").id.name
    'order_id'
    """

    id: Expr
    horizon: Duration

    def __init__(self, id: Read, horizon: Length) -> None:  # noqa: A002 (the word of the domain)
        given = Arguments("Deduplicate")
        object.__setattr__(self, "id", read(given, "id", id))
        object.__setattr__(self, "horizon", given.duration("horizon", horizon))
