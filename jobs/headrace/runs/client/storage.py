"""What a pipeline has stored: what of it is let go, whether it is whole, and how late its data was."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.model.arguments import Arguments
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.roots import Definition
from headrace.read.snapshots.snapshot_refs import At
from headrace_snapshots.refs import MAIN

if TYPE_CHECKING:
    from headrace.observe.plot import LatenessPlot
    from headrace_snapshots.fsck import FsckReport
    from headrace_snapshots.gc.expiry import Expired
    from headrace_snapshots.gc.gc_roots import Keep


class PipelineStorage(PipelineReader):
    """A pipeline's results, and a method for each command that looks after what it has stored."""

    def keeping(
        self,
        pipeline: Definition | None = None,
        *,
        keep_last: int | None = None,
        keep_for: str | timedelta | None = None,
        keep_tags: bool | None = None,
    ) -> "Keep":
        """What ``expire`` keeps: each as given, else as the retention of the pipeline says, else the last 100 published
        snapshots, and tags.

        Raises KeepError without ``keep_last`` where nobody knows the retention, since no definition is known.
        """
        from headrace.runs.maintenance import rule_of

        arguments = Arguments("expire")
        if keep_last is not None:
            keep_last = arguments.whole("keep_last", keep_last, least=1)
        if keep_tags is not None:
            keep_tags = arguments.flag("keep_tags", keep_tags)
        if not (keep_for is None or isinstance(keep_for, str | timedelta)):
            raise arguments.wrong("keep_for", keep_for, 'write a length of time, such as "30d"')
        definition = self.definition() if pipeline is None else self._needed_definition(pipeline, "expire")
        return rule_of(self.name, definition, last=keep_last, younger=keep_for, tags=keep_tags)

    def expire(
        self,
        pipeline: Definition | None = None,
        *,
        keep_last: int | None = None,
        keep_for: str | timedelta | None = None,
        keep_tags: bool | None = None,
        dry_run: bool = False,
    ) -> "Expired":
        """Let old snapshots go, with all that only they need, and what killed runs left behind. What this marks, the
        next call deletes.

        Kept are branches and tags, all of main that is not published, the ``keep_last`` newest published snapshots, and
        those younger than ``keep_for``, such as "30d"; what is left out is as the pipeline's retention says. Without
        ``keep_tags`` tags of what is not kept are dropped. ``dry_run`` only says what would happen. Raises KeepError,
        and RestoreError when something kept is damaged.
        """
        from headrace.runs.maintenance import expire

        keep = self.keeping(pipeline, keep_last=keep_last, keep_for=keep_for, keep_tags=keep_tags)
        return expire(self._catalog, keep, dry_run=Arguments("expire").flag("dry_run", dry_run))

    def drop_reader(self, name: str) -> list[str]:
        """Keep nothing any more for a reader, a pipeline that reads this one, which is gone for good; the names of what
        ended. If it is not gone, its next run says again what it needs. Raises UnknownReaderError.
        """
        from headrace.runs.following.reading import drop_reader

        return drop_reader(self._catalog, name)

    def fsck(self, *, deep: bool = False, repair: bool = False) -> "FsckReport":
        """Check that everything is there that snapshots, readers and runs need. What is not is in the answer, no error.

        ``deep`` reads data files too, and compares their checksums. ``repair`` makes again what can be: files of state
        from the local cache of this machine, the hint, the list of what is to be deleted; and has what no snapshot ever
        named deleted once its writers are gone. It moves no branch.
        """
        from headrace.runs.maintenance import check

        arguments = Arguments("fsck")
        return check(self._catalog, deep=arguments.flag("deep", deep), repair=arguments.flag("repair", repair))

    def plot(
        self, *, out: str | Path | None = None, at: At = MAIN, epochs: int = 200, output: str | None = None
    ) -> "LatenessPlot":
        """How late the data of the newest ``epochs`` was, with quantiles for choosing bound and allowed lateness; drawn
        into the file ``out`` (PNG, SVG or PDF) if there is one. ``output``: which of several. Raises NotInstalledError
        without matplotlib.
        """
        from headrace.observe.plot import plot

        epochs = Arguments("plot").whole("epochs", epochs, least=1)
        catalog = self._catalog if output is None else self[output].catalog
        return plot(catalog, at, epochs, None if out is None else Path(out))
