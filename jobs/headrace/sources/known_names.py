"""The names of one input's files that were read, and what of a listing is not among them.

A listing is in the order of names, and so is what is stored of names, so both are read side by side: of a million names
a part is in memory at a time.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from headrace.ext.sources import SourceSplit
from headrace.sources.progress import KnownVersion
from headrace.this_process import Size
from headrace_snapshots.store import ObjectInfo

if TYPE_CHECKING:  # with Arrow, which an input of few files does without
    from headrace.sources.names_file import NamesLookup

AT_ONCE: Final = Size(10_000)
"""So many names of a listing are looked up together."""


class KnownNames(msgspec.Struct, frozen=True):
    """``recent`` files, as they were read, by name; and many more that are ``stored``, as contents of names files,
    oldest first.

    ``confirmed`` takes files in that have another ETag and the content that they had, as they are now.
    """

    recent: Mapping[str, SourceSplit] = msgspec.field(default_factory=dict)
    stored: Sequence[bytes] = ()
    confirmed: MutableMapping[str, SourceSplit] = msgspec.field(default_factory=dict)

    def find_news(self, listing: Iterable[ObjectInfo]) -> Iterator[tuple[ObjectInfo, KnownVersion | None]]:
        """What in a ``listing`` was never read, with None; and what is listed otherwise than it was, with that."""
        lookup = self._open_lookup()
        remaining = iter(listing)
        while infos := [*islice(remaining, AT_ONCE.value)]:
            left = [info for info in infos if info.path not in self.recent]
            old = (info for info in infos if info.path in self.recent) if len(left) < len(infos) else ()
            changed_versions = {info.path: was for info in old if (was := self._version_if_changed(info)) is not None}
            unknown = {info.path for info in left}
            if lookup is not None and left:
                unknown, others = lookup.find_news(left)
                changed_versions |= others
            for info in infos:
                if info.path in unknown:
                    yield info, None
                elif info.path in changed_versions:
                    yield info, changed_versions[info.path]

    def listing_bounds(self) -> list[str]:
        """Names that cut a listing into ranges of similar size, ascending; none where few are stored."""
        if not self.stored:
            return []
        from headrace.sources.names_file import group_bounds

        return group_bounds(max(self.stored, key=len))

    def _version_if_changed(self, info: ObjectInfo) -> KnownVersion | None:
        was = self.recent[info.path]
        return None if (was.size, was.etag) == (info.size, info.etag) else KnownVersion.of(was)

    def _open_lookup(self) -> "NamesLookup | None":
        if not self.stored:
            return None
        from headrace.sources.names_file import NamesLookup

        return NamesLookup(self.stored)
