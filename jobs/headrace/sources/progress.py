"""How far a pipeline has come at a barrier: offsets, splits and clocks of its inputs, and the clocks of its chains.

All of it is stored in the manifest, for people as well as machines, with times that may lie beyond the calendar.
``headrace.read.snapshots.progress`` reads it there. Each ``from_json`` is the inverse of ``to_json``, and raises
MalformedError. ``KnownVersion`` is what is remembered of a file that was read, beside its name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import xxhash

from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.model import time as model_time
from headrace.model.event_time import Split
from headrace_snapshots.format.codec import Fields, MalformedError
from headrace_snapshots.format.manifest import INPUT_WATERMARK, OUTPUTS, UNNAMED


def in_calendar(watermark: model_time.Instant) -> model_time.Instant:
    """``watermark``, or if it is that of a global window that is still open, the lower bound of it that has a name."""
    return min(watermark, model_time.END_OF_CALENDAR) if watermark < model_time.GLOBAL_WINDOW_END else watermark


def instant_of(fields: Fields, name: str) -> model_time.Instant:
    return _parse_instant(fields.text(name), fields, name)


def instants_of(fields: Fields, name: str) -> tuple[model_time.Instant, ...]:
    return tuple(_parse_instant(text, fields, name) for text in fields.array(name))


def optional_instant_of(fields: Fields, name: str) -> model_time.Instant | None:
    return None if fields.json(name) is None else instant_of(fields, name)


def _parse_instant(text: Any, fields: Fields, name: str) -> model_time.Instant:
    try:
        return model_time.parse_instant(text)
    except (ValueError, TypeError, AttributeError) as error:
        raise MalformedError(f"{fields.where}.{name} has {text!r}, which is not a time") from error


T = TypeVar("T")


@dataclass(frozen=True)
class ParkedChain:
    """Why the output of a chain goes no further, an error with its ``code`` and ``message``; and where it is: as the
    ``epoch`` left it, whose snapshot has the id ``snapshot`` (-1 and None: it has not begun). ``since``: the first
    epoch that went on without it.
    """

    epoch: int
    snapshot: str | None
    code: str
    message: str
    since: int

    def to_json(self) -> dict[str, Any]:
        """Fields for those of the chain."""
        reason = {"code": self.code, "message": self.message, "since": self.since}
        return {"epoch": self.epoch, "snapshot": self.snapshot, "parked": reason}

    def describe(self) -> str:
        """For people: since when, and why."""
        return f"since epoch {self.since}: {self.message} ({self.code})"

    @classmethod
    def from_json(cls, fields: Fields) -> "ParkedChain | None":
        """The inverse of ``to_json``; None for a chain that is not parked. Raises MalformedError."""
        reason = fields.optional_fields("parked")
        if reason is None:
            return None
        code, message, since_epoch = reason.text("code"), reason.text("message"), reason.integer("since")
        return cls(fields.integer("epoch"), fields.optional_text("snapshot"), code, message, since_epoch)


@dataclass(frozen=True)
class ChainClocks:
    """The output watermark of each stage; lower bounds of the watermark and of the processing time at which the chain
    wants its next activation, NEVER where it wants none. ``watermark``: the one that comes to its first stage, where
    that takes panes of other outputs, or what a loop makes of records; None: that of the source. ``parked``: the chain
    stands still, and wants none.
    """

    output_watermarks: tuple[model_time.Instant, ...] = ()
    due_event: model_time.Instant = model_time.NEVER
    due_time: model_time.Instant = model_time.NEVER
    watermark: model_time.Instant | None = None
    parked: ParkedChain | None = None

    def to_json(self) -> dict[str, Any]:
        """Instants as ISO 8601 in UTC, or -inf and +inf; a due that never comes is null."""
        own = {} if self.watermark is None else {INPUT_WATERMARK: model_time.render(in_calendar(self.watermark))}
        return {
            **own,
            "output_watermarks": [model_time.render(in_calendar(value)) for value in self.output_watermarks],
            "next_event_time_deadline": _due_to_json(self.due_event),
            "next_processing_time_deadline": _due_to_json(self.due_time),
            **({} if self.parked is None else self.parked.to_json()),
        }

    @classmethod
    def from_json(cls, fields: Fields) -> "ChainClocks":
        return cls(
            output_watermarks=instants_of(fields, "output_watermarks"),
            due_event=_parse_deadline(fields, "next_event_time_deadline"),
            due_time=_parse_deadline(fields, "next_processing_time_deadline"),
            watermark=instant_of(fields, INPUT_WATERMARK) if INPUT_WATERMARK in fields.value else None,
            parked=ParkedChain.from_json(fields),
        )


def by_output_to_json(chains: Mapping[str, T], to_json: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    """What is stored of each of the ``chains``, by output: fields of their own where outputs have names."""
    if UNNAMED.output in chains:
        return to_json(chains[UNNAMED.output])
    return {OUTPUTS: {output: to_json(chain) for output, chain in chains.items()}}


def by_output(fields: Fields, from_json: Callable[[Fields], T]) -> dict[str, T]:
    """The inverse of ``by_output_to_json``. Raises MalformedError."""
    fields_by_output = fields.optional_fields(OUTPUTS)
    if fields_by_output is None:
        return {UNNAMED.output: from_json(fields)}
    return {output: from_json(fields_by_output.fields(output)) for output in fields_by_output.value}


def _due_to_json(due: model_time.Instant) -> str | None:
    """A due beyond the calendar, as at the end of the global window, is +inf."""
    return None if due >= model_time.NEVER else "+inf" if due > model_time.END_OF_CALENDAR else model_time.render(due)


def _parse_deadline(fields: Fields, name: str) -> model_time.Instant:
    """At or below the due that was written: a due is a lower bound."""
    due = optional_instant_of(fields, name)
    return model_time.NEVER if due is None else min(due, model_time.END_OF_CALENDAR)


N = TypeVar("N", int, float)
V = TypeVar("V")

NEWEST_BY_INPUT, BEHIND_BY_FILE = "newest_event_times", "behind_by_file"
"""Fields that manifests of before 0.2.0 do not have."""


@dataclass(frozen=True)
class InputProgress:
    """How far one input has come: offsets, what is known of its splits, its watermark and percentile watermarks."""

    offsets: SourcePosition = field(default_factory=SourcePosition)
    splits: Mapping[str, Split] = field(default_factory=dict)
    watermark: model_time.Instant = model_time.MIN_INSTANT
    percentiles: Mapping[float, model_time.Instant] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A JSON value, without the names of files."""
        return {
            **self.offsets.to_json(),
            "splits": {name: _split_to_json(split) for name, split in self.splits.items()},
            "watermark": model_time.render(self.watermark),
            "percentile_watermarks": {
                str(q): model_time.render(watermark) for q, watermark in self.percentiles.items()
            },
        }

    @classmethod
    def from_json(cls, fields: Fields, recent: Iterable[SourceSplit]) -> "InputProgress":
        """The inverse of ``to_json``, given the ``recent`` files of its offsets. Raises MalformedError."""
        return cls(
            offsets=SourcePosition.from_json(fields, recent),
            splits=fields.mapping("splits", lambda splits, name: split_from_json(splits.fields(name))),
            watermark=instant_of(fields, "watermark"),
            percentiles=_by_number(float, fields.mapping("percentile_watermarks", instant_of)),
        )


@dataclass(frozen=True)
class InputHold:
    """The watermark and the percentile watermarks that one input does not pass."""

    watermark: model_time.Instant
    percentiles: Mapping[float, model_time.Instant] = field(default_factory=dict)

    def percentile_limit(self, q: float) -> model_time.Instant:
        """What the watermark of the fastest ``q`` % does not pass: where nothing is said of it, what all of it does."""
        return self.percentiles.get(q, self.watermark)

    def to_json(self) -> dict[str, Any]:
        percentiles = {str(q): model_time.render(watermark) for q, watermark in self.percentiles.items()}
        return {"watermark": model_time.render(self.watermark), "percentile_watermarks": percentiles}

    @classmethod
    def from_json(cls, fields: Fields) -> "InputHold":
        """The watermarks of what is stored of an input. Raises MalformedError."""
        return cls(
            instant_of(fields, "watermark"), _by_number(float, fields.mapping("percentile_watermarks", instant_of))
        )


@dataclass(frozen=True)
class WatermarkHold:
    """Watermarks that an epoch does not pass, whatever its records say. They are those of the source, of the inputs,
    and the output watermarks of the stages of each chain, by output. ``given`` are those that chains get from others
    than the source, such as a loop. The watermark of the source limits what is not named.

    A backfill reads again what main has read, and is held to the watermarks that main had: what main accepted is not
    late.
    """

    watermark: model_time.Instant = model_time.MIN_INSTANT
    chains: Mapping[str, tuple[model_time.Instant, ...]] = field(default_factory=lambda: {UNNAMED.output: ()})
    inputs: Mapping[str, InputHold] = field(default_factory=dict)
    given: Mapping[str, model_time.Instant] = field(default_factory=dict)

    def given_to(self, output: str) -> model_time.Instant:
        """What the watermark does not pass that comes to the first stage, in the chain of that ``output``."""
        return self.given.get(output, self.watermark)

    def output_limit(self, stage: int, output: str) -> model_time.Instant:
        """What the output watermark of a stage does not pass, in the chain of that ``output``."""
        stages = self.chains.get(output, ())
        return stages[stage] if stage < len(stages) else self.watermark

    def of_input(self, name: str) -> InputHold:
        """What the watermarks of an input do not pass."""
        return self.inputs.get(name, InputHold(self.watermark))

    def to_json(self) -> dict[str, Any]:
        """A JSON value, in the words of the progress itself; the inverse of ``from_json``."""
        return {
            "watermark": model_time.render(self.watermark),
            **by_output_to_json(self._chains, _chain_to_json),
            "inputs": {name: progress.to_json() for name, progress in self.inputs.items()},
        }

    @property
    def _chains(self) -> dict[str, tuple[tuple[model_time.Instant, ...], model_time.Instant | None]]:
        return {output: (stages, self.given.get(output)) for output, stages in self.chains.items()}

    @classmethod
    def from_json(cls, fields: Fields) -> "WatermarkHold":
        """The watermarks of a stored progress, or of what one was held to. Raises MalformedError."""
        chains = by_output(fields, _chain_from_json)
        return cls(
            instant_of(fields, "watermark"),
            {output: stages for output, (stages, _) in chains.items()},
            fields.mapping("inputs", lambda inputs, name: InputHold.from_json(inputs.fields(name))),
            {output: input_watermark for output, (_, input_watermark) in chains.items() if input_watermark is not None},
        )


@dataclass(frozen=True)
class HeldBack:
    """Who holds a watermark back: the input with the least one, its slowest split and the processing time at which that
    one's mark last rose; None where nothing was heard of any split, or all are idle.
    """

    input: str
    split: str | None
    since: model_time.Instant | None

    def to_json(self) -> dict[str, Any]:
        return {
            "input": self.input,
            "split": self.split,
            "since": None if self.since is None else model_time.render(self.since),
        }

    @classmethod
    def from_json(cls, fields: Fields) -> "HeldBack":
        return cls(fields.text("input"), fields.optional_text("split"), optional_instant_of(fields, "since"))


@dataclass(frozen=True)
class RecordsAhead:
    """Records of one input in an epoch that lay too far ahead of processing time to move its watermark (12.14). It has
    how many there are, and the file of the first, its number there (None if it has none) and its time.
    """

    input: str
    records: int
    file: str
    position: int | None
    at: model_time.Instant

    def and_more(self, records: int) -> "RecordsAhead":
        """The same with so many more ``records``."""
        return replace(self, records=self.records + records)

    def to_json(self) -> dict[str, Any]:
        document = {"input": self.input, "records": self.records, "file": self.file, "position": self.position}
        return {**document, "at": model_time.render(self.at)}

    @classmethod
    def from_json(cls, fields: Fields) -> "RecordsAhead":
        return cls(
            input=fields.text("input"),
            records=fields.integer("records"),
            file=fields.text("file"),
            position=fields.optional_integer("position"),
            at=instant_of(fields, "at"),
        )


@dataclass(frozen=True)
class Lacking:
    """A column of an input that something reads and that no record of some files of an epoch had. It has how many
    files, the first of them, and the name in it that is most like that of the column.
    """

    input: str
    column: str
    files: int
    file: str
    near: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Fields) -> "Lacking":
        text = {name: fields.text(name) for name in ("input", "column", "file")}
        return cls(**text, files=fields.integer("files"), near=fields.optional_text("near"))


@dataclass(frozen=True)
class Rejects:
    """How many ``dead`` letters an epoch has of an input, and of how many ``records``."""

    input: str
    dead: int
    records: int

    def and_more(self, other: "Rejects") -> "Rejects":
        """The same with those of another epoch."""
        return Rejects(self.input, self.dead + other.dead, self.records + other.records)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Fields) -> "Rejects":
        return cls(fields.text("input"), fields.integer("dead"), fields.integer("records"))


@dataclass(frozen=True, kw_only=True)
class EpochReading:
    """What an epoch says of what it read itself. Nothing of it goes on to the next epoch.

    ``min_event_time`` and ``max_event_time`` are those of the elements that it accepted, None if there were none.
    ``rejects`` is said where there are several inputs. ``behind`` counts elements by how far they lay behind the newest
    of the epochs before, in granules rounded up to two digits; ``behind_by_file`` by how far behind that of their input
    in the files before their own, None in manifests of before 0.2.0.
    """

    min_event_time: model_time.Instant | None = None
    max_event_time: model_time.Instant | None = None
    ahead: tuple[RecordsAhead, ...] = ()
    lacking: tuple[Lacking, ...] = ()
    rejects: tuple[Rejects, ...] = ()
    behind: Mapping[int, int] = field(default_factory=dict)
    behind_by_file: Mapping[int, int] | None = None

    def reading_to_json(self) -> dict[str, Any]:
        """A JSON value, of which ``reading_from_json`` is the inverse."""
        return {
            "min_event_time": None if self.min_event_time is None else model_time.render(self.min_event_time),
            "max_event_time": None if self.max_event_time is None else model_time.render(self.max_event_time),
            "ahead": [record.to_json() for record in self.ahead],
            "behind": _counts_to_json(self.behind),
            **({} if self.behind_by_file is None else {BEHIND_BY_FILE: _counts_to_json(self.behind_by_file)}),
            **({"rejects": [of_input.to_json() for of_input in self.rejects]} if self.rejects else {}),
            **({"lacking": [column.to_json() for column in self.lacking]} if self.lacking else {}),
        }


NO_READING = EpochReading(behind_by_file={})
"""What an epoch says that reads nothing."""


@dataclass(frozen=True, kw_only=True)
class EpochClocks(EpochReading):
    """Clocks after an epoch: the watermark, which is the least of all inputs, who holds it back, processing time; and
    those of the ``chains`` of aggregations, by output. The next epoch continues from them.

    ``newest`` is the latest event time of elements of any epoch, those too far ahead of the clock left out.
    ``newest_read`` is that of all records. ``newest_by_input`` is ``newest`` of each input, None in manifests of before
    0.2.0. ``held_to``: what the epoch was held to where records said more than that; None where nothing was held.
    """

    watermark: model_time.Instant = model_time.MIN_INSTANT
    processing_time: model_time.Instant = model_time.MIN_INSTANT
    chains: Mapping[str, ChainClocks] = field(default_factory=lambda: {UNNAMED.output: ChainClocks()})
    held_back_by: HeldBack | None = None
    held_to: WatermarkHold | None = None
    newest: model_time.Instant | None = None
    newest_read: model_time.Instant | None = None
    newest_by_input: Mapping[str, model_time.Instant] | None = None

    def newest_of(self, inputs: Iterable[str]) -> Mapping[str, model_time.Instant]:
        """The newest event time of elements of each of ``inputs`` that had any; where that was not recorded, of all."""
        if self.newest_by_input is not None:
            return {name: self.newest_by_input[name] for name in inputs if name in self.newest_by_input}
        return {} if self.newest is None else dict.fromkeys(inputs, self.newest)

    @property
    def chain(self) -> ChainClocks:
        """The clocks of the only chain."""
        (clocks,) = self.chains.values()
        return clocks

    def watermark_of(self, chain: ChainClocks | None) -> model_time.Instant:
        """The watermark that comes to the first stage of a ``chain``; None: of one that has not begun."""
        return self.watermark if chain is None or chain.watermark is None else chain.watermark

    @property
    def due_time(self) -> model_time.Instant:
        """A lower bound of the processing time at which some chain wants its next activation, NEVER if none does."""
        return min(
            (clocks.due_time for clocks in self.chains.values() if clocks.parked is None), default=model_time.NEVER
        )

    @property
    def due_event(self) -> model_time.Instant:
        """A lower bound of the event time at which some chain wants its next activation, NEVER if none does."""
        return min(
            (clocks.due_event for clocks in self.chains.values() if clocks.parked is None), default=model_time.NEVER
        )

    @property
    def parked(self) -> dict[str, ParkedChain]:
        """The outputs that stand still."""
        return {output: clocks.parked for output, clocks in self.chains.items() if clocks.parked is not None}


@dataclass(frozen=True)
class PipelineProgress(EpochClocks):
    """What a pipeline continues from: its clocks, and its inputs by name. ``epoch_bytes``: those that the last epoch
    read, 0 if that is not known; the counts of its snapshot have them.
    """

    inputs: Mapping[str, InputProgress] = field(default_factory=dict)
    epoch_bytes: int = field(default=0, compare=False)

    def is_due(self, processing_time: model_time.Instant, hold: WatermarkHold | None = None) -> bool:
        """Whether some window may want an activation at ``processing_time`` without new input. ``hold``: what the
        epoch would be held to. Another one than held the last lets watermarks go on.
        """
        return self.due_time <= processing_time or self.held_to not in (None, hold)

    @property
    def offsets(self) -> dict[str, SourcePosition]:
        return {name: progress.offsets for name, progress in self.inputs.items()}

    @property
    def files(self) -> int:
        """Files read since the beginning, of all inputs."""
        return sum(offsets.files for offsets in self.offsets.values())

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return sum(offsets.bytes for offsets in self.offsets.values())

    def to_json(self) -> dict[str, Any]:
        """What goes on to the next epoch. Instants as ISO 8601 in UTC, or -inf and +inf."""
        return {
            "inputs": {name: progress.to_json() for name, progress in self.inputs.items()},
            "watermark": model_time.render(self.watermark),
            "held_back_by": None if self.held_back_by is None else self.held_back_by.to_json(),
            "processing_time": model_time.render(self.processing_time),
            **by_output_to_json(self.chains, ChainClocks.to_json),
            "newest_event_time": None if self.newest is None else model_time.render(self.newest),
            "newest_event_time_read": None if self.newest_read is None else model_time.render(self.newest_read),
            **({} if self.newest_by_input is None else {NEWEST_BY_INPUT: _times_to_json(self.newest_by_input)}),
            **({} if self.held_to is None else {"held_to": self.held_to.to_json()}),
        }

    @classmethod
    def from_json(cls, fields: Fields, recent: Mapping[str, Iterable[SourceSplit]]) -> "PipelineProgress":
        """The inverse of ``to_json`` beside ``reading_to_json``, given the ``recent`` files of the offsets by input.
        Raises MalformedError.
        """

        def read_input(inputs: Fields, name: str) -> InputProgress:
            return InputProgress.from_json(inputs.fields(name), recent[name])

        return cls(inputs=fields.mapping("inputs", read_input), **clocks_from_json(fields))


def reading_from_json(fields: Fields) -> dict[str, Any]:
    """The fields of EpochReading, as ``reading_to_json`` wrote them. Raises MalformedError."""
    return {
        "min_event_time": optional_instant_of(fields, "min_event_time"),
        "max_event_time": optional_instant_of(fields, "max_event_time"),
        "ahead": fields.items("ahead", RecordsAhead.from_json),
        "rejects": fields.items("rejects", Rejects.from_json) if "rejects" in fields.value else (),
        "lacking": fields.items("lacking", Lacking.from_json) if "lacking" in fields.value else (),
        "behind": _by_number(int, fields.mapping("behind", Fields.integer)),
        "behind_by_file": (
            _by_number(int, fields.mapping(BEHIND_BY_FILE, Fields.integer)) if BEHIND_BY_FILE in fields.value else None
        ),
    }


def clocks_from_json(fields: Fields) -> dict[str, Any]:
    """The fields of EpochClocks, as ``PipelineProgress`` wrote them. Raises MalformedError."""
    held_back = fields.json("held_back_by") is not None
    return {
        **reading_from_json(fields),
        "watermark": instant_of(fields, "watermark"),
        "processing_time": instant_of(fields, "processing_time"),
        "chains": by_output(fields, ChainClocks.from_json),
        "held_back_by": HeldBack.from_json(fields.fields("held_back_by")) if held_back else None,
        "newest": optional_instant_of(fields, "newest_event_time"),
        "newest_read": (
            optional_instant_of(fields, "newest_event_time_read")
            if "newest_event_time_read" in fields.value
            else model_time.MAX_INSTANT  # nobody knows: it was not recorded
        ),
        "newest_by_input": fields.mapping(NEWEST_BY_INPUT, instant_of) if NEWEST_BY_INPUT in fields.value else None,
        "held_to": None if (held_to := fields.optional_fields("held_to")) is None else WatermarkHold.from_json(held_to),
    }


def _counts_to_json(counts: Mapping[int, int]) -> dict[str, int]:
    return {str(number): count for number, count in sorted(counts.items())}


def _times_to_json(times: Mapping[str, model_time.Instant]) -> dict[str, str]:
    return {name: model_time.render(time) for name, time in sorted(times.items())}


def _chain_to_json(clocks: tuple[tuple[model_time.Instant, ...], model_time.Instant | None]) -> dict[str, Any]:
    outputs, input_watermark = clocks
    own = {} if input_watermark is None else {INPUT_WATERMARK: model_time.render(in_calendar(input_watermark))}
    return {**own, "output_watermarks": [model_time.render(in_calendar(watermark)) for watermark in outputs]}


def _chain_from_json(fields: Fields) -> tuple[tuple[model_time.Instant, ...], model_time.Instant | None]:
    input_watermark = instant_of(fields, INPUT_WATERMARK) if INPUT_WATERMARK in fields.value else None
    return instants_of(fields, "output_watermarks"), input_watermark


def later_of(one: model_time.Instant | None, other: model_time.Instant | None) -> model_time.Instant | None:
    """The later of two times, either of which may not be known."""
    return max((time for time in (one, other) if time is not None), default=None)


def _split_to_json(split: Split) -> dict[str, Any]:
    return {
        "mark": None if split.mark is None else model_time.render(split.mark),
        "heard": model_time.render(split.heard),
        "since": model_time.render(split.since),
        "lags": {str(bucket): count for bucket, count in split.lags.items()},
    }


def split_from_json(fields: Fields) -> Split:
    """What is stored of a split. Raises MalformedError."""
    lags = _by_number(int, fields.mapping("lags", Fields.integer))
    return Split(optional_instant_of(fields, "mark"), instant_of(fields, "heard"), instant_of(fields, "since"), lags)


def _by_number(number: Callable[[str], N], values: Mapping[str, V]) -> dict[N, V]:
    try:
        return {number(name): value for name, value in values.items()}
    except ValueError as error:
        raise MalformedError(f"a name that should be a number: {error}") from error


class KnownVersion(NamedTuple):
    """What tells the content that a file had when it was read: its size, and hashes of its ETag and of its digest."""

    size: int
    etag: int
    digest: int | None

    @classmethod
    def from_file(cls, file: SourceSplit) -> "KnownVersion":
        return cls(file.size, hash_text(file.etag), None if file.digest is None else hash_text(file.digest))


def hash_text(text: str) -> int:
    """64 bits of ``text``: enough to tell one version of one file from another."""
    return xxhash.xxh3_64_intdigest(text.encode())
