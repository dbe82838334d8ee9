"""What epochs make of a source, as tests for classes that inherit them: how much each reads, how far time has come."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.ext.formats import WHOLE_FILE, RequiredColumns
from headrace.ext.sources import Instant, SourcePosition, SourceSplit
from headrace.kernel.expressions.evaluation import evaluate
from headrace.kernel.types import TIMESTAMP
from headrace.model.time import MIN_INSTANT
from headrace.testing.connectors.source_reading import (
    enumerator_of,
    landing_of,
    read_whole,
    reader_of,
    records,
    stored,
)
from headrace.testing.connectors.source_world import SourceWorld

_SIZES = 10
"""A split has no more bytes of records than so many times what it says."""


class SourceEpochConformance:
    """Limits of epochs hold, and no watermark passes a record that has not been read."""

    def test_an_epoch_takes_no_more_than_its_limits(self, world: SourceWorld) -> None:
        """A split that is larger, or counts again, is an epoch of its own. The size of a split is about that of its
        records: by it epochs are cut, so that one fits into memory.
        """
        for first in range(0, 9, 3):
            world.append(records(first, 3))
        landing = landing_of(world)
        unread = landing.new_files({})
        ((name, splits),) = unread.items()
        for split in splits:
            assert sum(len(row["raw"]) for row in read_whole(reader_of(world), [split])) <= _SIZES * split.size
        most = max(split.size for split in splits)
        for max_files, max_bytes in ((1, None), (2, None), (None, most), (2, 2 * most), (None, 1)):
            waiting, taken = unread, list[SourceSplit]()
            while waiting:
                epoch, waiting = landing.next_epoch(waiting, max_files, max_bytes)
                batch = epoch[name]
                assert 1 <= len(batch) <= (max_files or world.source.max_files)
                assert len(batch) == 1 or sum(split.size for split in batch) <= (max_bytes or world.source.max_bytes)
                taken += batch
            assert [split.path for split in taken] == [split.path for split in splits]

    def test_a_watermark_is_never_ahead_of_what_is_unread(self, world: SourceWorld) -> None:
        """What the source says of a split, it says each time, and no later record of that part is before it."""
        position, known, added = SourcePosition(), dict[str, Instant](), 0
        for many in (3, 1, 2):
            world.append(records(added, many))
            added += many
            splits = [*enumerator_of(world).unread(position)]
            for split in splits:
                for part, at in _times(world, split):
                    assert known.get(part, MIN_INSTANT) <= at, f"a record of part {part!r} in {split.path}"
                watermarks = enumerator_of(world).watermarks(split)
                assert watermarks == enumerator_of(world).watermarks(split)
                known |= {part: max(mark, known.get(part, mark)) for part, mark in watermarks.items()}
            position = stored(enumerator_of(world).after(position, splits))


def _times(world: SourceWorld, split: SourceSplit) -> Sequence[tuple[str, Instant]]:
    """The event time of each record of a split, with the part of the input that it is of."""
    scanned = reader_of(world).read(split, WHOLE_FILE, RequiredColumns())
    columns: Mapping[str, Any] = scanned.columns
    event_time = world.input.event_time
    assert event_time.expr is not None, "the input of a world has an event time"
    times = evaluate(event_time.expr, columns).cast(TIMESTAMP).cast(pa.int64()).to_pylist()
    parts = [""] * len(times) if event_time.split is None else evaluate(event_time.split, columns).to_pylist()
    return [*zip(parts, map(Instant, times), strict=True)]
