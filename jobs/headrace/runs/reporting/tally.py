"""What the epochs of a run came to, however many they are: no manifest is kept."""

from collections import Counter
from dataclasses import dataclass, field, replace

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
