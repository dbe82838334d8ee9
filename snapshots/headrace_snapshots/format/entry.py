"""One entry of a catalog log: which refs it moved, and every ref and generation after it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from headrace_snapshots.format.codec import JSON, Fields, MalformedError, decode, encode
from headrace_snapshots.protocol import Append, Head, Horizon, Kind, Past, Replaced
from headrace_snapshots.refs import MAIN

KIND = "entry"


@dataclass(frozen=True)
class Entry:
    """Entry ``number``, written at ``at`` (ISO 8601, UTC). ``write_id`` tells its writer that it is its own.

    ``branch`` and ``generation``: whose move it was, None for tags and expiries. ``moves``: ref -> (before, after),
    None where there was or is no such ref. No entry below ``base`` is needed any more. ``message`` is for people;
    ``detail`` is the caller's. ``horizon``: what is kept, None if nothing ever expired. ``past``: what main had and has
    not any more; older entries do not say, so from them on nothing is known.
    """

    number: int
    write_id: str
    at: str
    kind: Kind
    branch: str | None
    generation: int | None
    moves: Mapping[str, tuple[str | None, str | None]]
    refs: Mapping[str, str]
    generations: Mapping[str, int]
    base: int = 0
    message: str = ""
    detail: JSON = None
    horizon: Horizon | None = None
    past: Past = field(default_factory=Past)

    @classmethod
    def of(cls, decided: Append, number: int, write_id: str, at: str, *, message: str, detail: JSON) -> "Entry":
        """Entry ``number``, as the protocol decided it."""
        return cls(number, write_id, at, message=message, detail=detail, **vars(decided))

    @property
    def head(self) -> Head:
        """The head of the catalog when this is its last entry."""
        return Head(self.number, self.refs, self.generations, self.base, horizon=self.horizon, past=self.past)

    def floor(self, branch: str) -> int:
        """The first epoch whose output the next snapshots of ``branch`` need to name."""
        return self.horizon.floor if self.horizon is not None and branch == MAIN else 0

    def to_json(self) -> JSON:
        """A JSON object."""
        content = {
            "number": self.number,
            "write_id": self.write_id,
            "at": self.at,
            "kind": self.kind.value,
            "branch": self.branch,
            "generation": self.generation,
            "moves": {ref: list(move) for ref, move in self.moves.items()},
            "refs": dict(self.refs),
            "generations": dict(self.generations),
            "base": self.base,
            "message": self.message,
            "detail": self.detail,
            "past": asdict(self.past),
        }
        return content if self.horizon is None else {**content, "horizon": asdict(self.horizon)}

    @classmethod
    def from_json(cls, fields: Fields) -> "Entry":
        """Read what ``to_json`` wrote. Raises MalformedError."""
        return cls(
            number=fields.integer("number"),
            write_id=fields.text("write_id"),
            at=fields.text("at"),
            kind=Kind(fields.text("kind")),
            branch=fields.optional_text("branch"),
            generation=fields.optional_integer("generation"),
            moves=fields.mapping("moves", _move),
            refs=fields.mapping("refs", Fields.text),
            generations=fields.mapping("generations", Fields.integer),
            base=fields.integer("base"),
            message=fields.text("message"),
            detail=fields.json("detail"),
            horizon=None if (horizon := fields.optional_fields("horizon")) is None else _horizon(horizon),
            past=_past(fields),
        )

    def to_bytes(self) -> bytes:
        """The object to store."""
        return encode(KIND, self.to_json(), 1 if self.horizon is None else 2)

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "Entry":
        """The entry in object ``name``. Raises BrokenObjectError or NewerFormatError."""
        return decode(KIND, data, name, cls.from_json)


def _horizon(fields: Fields) -> Horizon:
    return Horizon(
        fields.text("mark"),
        fields.integer("folded"),
        fields.integer("floor"),
        fields.mapping("grafts", Fields.optional_text),
    )


def _past(fields: Fields) -> Past:
    past = fields.optional_fields("past")
    if past is None:
        return Past(since=fields.integer("number") + 1)
    return Past(past.integer("since"), past.items("replaced", _replaced), past.texts("given_up"))


def _replaced(fields: Fields) -> Replaced:
    return Replaced(fields.integer("entry"), fields.text("main"), fields.optional_text("published"), fields.text("by"))


def _move(moves: Fields, ref: str) -> tuple[str | None, str | None]:
    match moves.array(ref):
        case [str() | None as before, str() | None as after]:
            return before, after
    raise MalformedError(f"{moves.where}.{ref} is not a pair of snapshot ids")
