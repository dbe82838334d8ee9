"""The results of all pipelines under a root, by name, without the files that define them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.model.suggestions import Suggesting
from headrace.model.time import instant
from headrace.pipeline.loading.registry import UnknownPipelineError
from headrace.pipeline.pipeline import Pipeline
from headrace.read.pipeline_reader import PipelineReader
from headrace.read.roots import has_run, pipelines_under
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.refs import PUBLISHED
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    from headrace.read.lineage.lineage import Dependents, Lineage
    from headrace.read.lineage.waits import DeploymentWaits
    from headrace.read.pipeline_list import PipelineList
    from headrace.read.snapshots.snapshot_refs import At


class UnknownResultsError(UnknownPipelineError, KeyError):
    """No pipeline of that name has run under the root."""

    def __str__(self) -> str:
        return str(self.args[0])


class Deployment(Suggesting, Mapping[str, PipelineReader]):
    """The pipelines that have run under a root, by name. What there is is looked up each time.

    A pipeline itself may stand for its name. It is then the definition that methods take which need one, and need not
    have run yet.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getitem__(self, name: str | Pipeline) -> "PipelineReader":
        """The results of pipeline ``name``. Raises UnknownResultsError for a name without any."""
        return PipelineReader(*self._found(name))

    def pipelines(self) -> "PipelineList":
        """The registered pipelines and those that have run here, each with how far it has come."""
        from headrace.read.pipeline_list import pipeline_list

        return pipeline_list(self._store, self)

    def lineage(self, pipelines: Collection[Pipeline] = (), *, reader_roots: Sequence[str] = ()) -> "Lineage":
        """Which pipelines read which, in a consistent cut over all of them, and how far behind each is. What
        ``pipelines`` read is what they say, also before they have run; what others read, their newest snapshots say.
        Readers under other roots are seen by what they hold, or if the roots are named: here, or in
        HEADRACE_READER_ROOTS.
        """
        from headrace.read.lineage.lineage import lineage

        return lineage(self._store, self, reader_roots, pipelines)

    def waits(
        self, pipelines: Collection[Pipeline] = (), *, now: datetime, reader_roots: Sequence[str] = ()
    ) -> "DeploymentWaits":
        """What is still in flight at the time ``now`` (with its zone), and who waits for whom, in a consistent cut over
        all pipelines. Of ``pipelines`` files are looked for which no run has read. Both arguments are otherwise as
        ``lineage`` has them.
        """
        from headrace.read.lineage.waits import waits

        return waits(self._store, self, pipelines, instant(now), reader_roots)

    def dependents(self, of: str, at: "At" = PUBLISHED, *, reader_roots: Sequence[str] = ()) -> "Dependents":
        """The readers of pipeline ``of`` that have consumed the snapshot ``at``, or what came of it. ``reader_roots``
        as ``lineage`` has them.
        """
        from headrace.read.lineage.lineage import dependents

        catalog, _ = self._found(of)
        return dependents(self._store, self, catalog, at, reader_roots)

    def __contains__(self, name: object) -> bool:
        if isinstance(name, Pipeline):
            name = name.name
        return isinstance(name, str) and has_run(self._store, name)

    def __iter__(self) -> Iterator[str]:
        return pipelines_under(self._store)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<{self._store.uri}: pipelines {', '.join(self) or 'none'}>"

    def _found(self, name: str | Pipeline) -> tuple[Catalog, Pipeline | None]:
        """The catalog of a pipeline, and its definition if that was given."""
        if isinstance(name, Pipeline):
            return Catalog(self._store, name.name), name
        if name not in self:
            there = ", ".join(self) or "none"
            raise UnknownResultsError(
                f"no pipeline {name!r} has run under {self._store.uri}; there are {there}. For a first run give the "
                "pipeline itself instead of its name"
            )
        return Catalog(self._store, name), None
