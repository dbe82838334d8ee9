"""What the epochs of a run came to, and warnings about its data.

What the epochs of a run came to, however many they are: no manifest is kept.

Warnings about the data of a run, given when it ends: dates far ahead, missing columns, many dead letters or late
records.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from headrace.model.time import render
from headrace.pipeline.quality import Limits
from headrace.read.snapshots.progress import StoredProgress
from headrace.sources.progress import Ahead, Lacking, Rejects
from headrace_snapshots.format.manifest import Manifest


@dataclass
class Tally:
    """The numbers of the ``epochs`` in their order, their ``counts`` together, and of each input with records ahead of
    the clock how many there were and the first; of each column that files lack, by input and name, too.
    ``rejects``: dead letters of each of several inputs.
    """

    epochs: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    ahead: dict[str, Ahead] = field(default_factory=dict)
    lacking: dict[tuple[str, str], Lacking] = field(default_factory=dict)
    rejects: dict[str, Rejects] = field(default_factory=dict)

    def add(self, manifest: Manifest) -> None:
        """Count an epoch."""
        self.epochs.append(manifest.epoch)
        self.counts.update(manifest.counts)
        stored = StoredProgress.of(manifest)
        for ahead in stored.ahead:
            first = self.ahead.get(ahead.input)
            self.ahead[ahead.input] = ahead if first is None else first.and_more(ahead.records)
        for rejects in stored.rejects:
            earlier = self.rejects.get(rejects.input)
            self.rejects[rejects.input] = rejects if earlier is None else earlier.and_more(rejects)
        for lacking in stored.lacking:
            name = (lacking.input, lacking.column)
            before = self.lacking.get(name)
            self.lacking[name] = lacking if before is None else replace(before, files=before.files + lacking.files)


LATE_SHARE = 0.01
"""A run warns if more late drops than this share of its records were counted, and the pipeline has no limit of them."""

DEAD_LETTER_SHARE = 0.5
"""A run warns if more of the records of an input than this share are dead letters, and the pipeline has no limit of
them: then it is the source that is described wrongly, or a producer that changed.
"""


def noticed(tally: Tally, limits: Limits | None = None) -> Iterator[str]:
    """Warnings about the epochs of a run; lateness comes last."""
    yield from map(_ahead, tally.ahead.values())
    yield from map(_lacking, tally.lacking.values())
    rows = tally.counts
    records, late, dead = (rows.get(name, 0) for name in ("records", "late_dropped", "rejected"))
    if limits is None or limits.rejected is None:
        by_input = [*_mostly_dead(tally)]
        yield from by_input
        if not by_input and dead > DEAD_LETTER_SHARE * records:
            yield _dead_letters(dead, records)
    if (limits is None or limits.late is None) and late > LATE_SHARE * records:
        yield (
            f"{late:,} late drops of {records:,} records, more than {LATE_SHARE:.0%}. Look at how late the data is "
            "(headrace plot), and give the watermark a larger bound or the windows more allowed lateness; what was "
            "dropped can land again (headrace replay-late)"
        )


def _mostly_dead(tally: Tally) -> Iterator[str]:
    """The inputs, of several, whose records are mostly dead letters, however many others have."""
    for name, rejects in sorted(tally.rejects.items()):
        if rejects.dead > DEAD_LETTER_SHARE * rejects.records:
            yield f"input {name}: {_dead_letters(rejects.dead, rejects.records)}"


def _dead_letters(dead: int, records: int) -> str:
    return (
        f"{dead:,} of {records:,} records are dead letters, and what was published lacks them. Look at why "
        "(headrace read --view rejected): correct the source or the files, and let them land again (headrace "
        'replay-rejected). limits=hr.Limits(rejected="1%") holds such a run back'
    )


def _lacking(lacking: Lacking) -> str:
    files = (
        f"file {lacking.file}" if lacking.files == 1 else f"{lacking.files:,} files, the first of them {lacking.file},"
    )
    near = "" if lacking.near is None else f"; its first record has {lacking.near!r}, which is spelled much like it"
    return (
        f"input {lacking.input} has no column {lacking.column!r} in any record of {files} and the pipeline reads it: "
        f'the column is NULL there{near}. Correct the name in the schema of the source, or write missing="null" in it '
        "if files may lack a column"
    )


def _ahead(first: Ahead) -> str:
    count = first.records
    line = "" if first.position is None else f" record {first.position}"
    records = "1 record of" if count == 1 else f"{count:,} records, the first of"
    return (
        f"input {first.input} is ahead of the clock by more than its max_ahead: {records} file {first.file}{line}, "
        f"dated {render(first.at)}. Such records are accepted and move no watermark; correct them, or set max_ahead= "
        "of the event time (None for schedules)"
    )
