"""The results of all pipelines under a root, by name, without the files that define them."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.model.arguments import Arguments
from headrace.model.expressions.expr import Expr
from headrace.pipeline.loading.registry import UnknownPipelineError
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.snapshot_refs import At, NoSnapshotError, ResolvedSnapshot, snapshot_at
from headrace.read.views.columns import STATE, View, ViewColumns
from headrace.read.views.lazy_view import LazyView
from headrace.read.views.sources import OutputFiles, SnapshotRows
from headrace.sources.input_diagnostics import children
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.log import has_log
from headrace_snapshots.refs import MAIN, PUBLISHED
from headrace_snapshots.store import ObjectStore

if TYPE_CHECKING:
    from headrace.read.definition_plan import Plan
    from headrace.read.diff.differences import SnapshotDiff
    from headrace.read.explain.explanation import Explanation
    from headrace.read.snapshots.graph import SnapshotGraph

Where = str | Expr
"""A condition in SQL, as DuckDB reads it, or an expression of Headrace."""


class UnknownResultsError(UnknownPipelineError, KeyError):
    """No pipeline of that name has run under the root."""

    def __str__(self) -> str:
        return str(self.args[0])


class Deployment(Mapping[str, "PipelineReader"]):
    """The pipelines that have run under a root, by name. What there is is looked up each time."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getitem__(self, name: str) -> "PipelineReader":
        """The results of pipeline ``name``. Raises UnknownResultsError."""
        return PipelineReader(self._catalog(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.isidentifier() and has_log(self._store, name)

    def __iter__(self) -> Iterator[str]:
        folders = (name.removesuffix("/") for name in children(self._store, "") if name.endswith("/"))
        return (name for name in folders if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<{self._store.uri}: pipelines {', '.join(self) or 'none'}>"

    def _catalog(self, name: str) -> Catalog:
        if name not in self:
            there = ", ".join(self) or "none"
            raise UnknownResultsError(f"no pipeline {name!r} has run under {self._store.uri}; there are {there}")
        return Catalog(self._store, name)


class PipelineReader:
    """The results of one pipeline.

    Every view takes ``at``: a branch, a tag, the id of a snapshot, or a time (an aware datetime, or ISO 8601 text). A
    time means the snapshot that readers saw then: what ``published`` pointed to by the catalog's log. Without it views
    are of ``published``. ``where`` keeps the rows that fulfil a condition, in SQL as DuckDB reads it or as an
    expression of Headrace; ``columns`` names those that are wanted, and only these are read.
    Views raise AtError, UnknownBranchError and NoSnapshotError for ``at``, QueryError for ``where`` and ``columns``.
    """

    def __init__(self, catalog: Catalog, otherwise: ViewColumns | None = None) -> None:
        """``otherwise``: the columns while there is no snapshot at all."""
        self._catalog, self._otherwise = catalog, otherwise

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self._catalog.pipeline

    def current(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """The latest pane of each key and window; none where everything was withdrawn."""
        return self.view(View.CURRENT, at=at, where=where, columns=columns)

    def panes(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """Every pane and every retraction."""
        return self.view(View.PANES, at=at, where=where, columns=columns)

    def late(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """Elements that were dropped because their window had expired."""
        return self.view(View.LATE, at=at, where=where, columns=columns)

    def rejected(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """Dead letters: records that could not be read, or were not allowed."""
        return self.view(View.REJECTED, at=at, where=where, columns=columns)

    def snapshots(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """The snapshot and those before it, a row each, oldest first: clocks, counts, and what points to it."""
        found = snapshot_at(self._catalog, at)
        source = SnapshotRows(self._catalog, found.manifest)
        return LazyView(f"snapshots of {self.name}", source, found.manifest, where=where, columns=columns)

    def state(
        self,
        *,
        pipeline: Pipeline | None = None,
        stage: int | None = None,
        at: At | None = None,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
    ) -> LazyView:
        """The windows that are still open: what each holds so far, has emitted, and waits for (``open_windows``).

        No result: until a pane says it, all of it may still change. State means something only to the definition that
        made it: ``pipeline``, by default the registered one of this name. ``stage`` counts its aggregations from 1;
        without it you read the last, as in all other views. Raises StateDefinitionError.
        """
        from headrace.read.explain.stage_state import StageState, check_number, definition_of
        from headrace.read.views.open_windows import OpenWindows  # with the kernel, which other views do without

        definition = definition_of(self._catalog, pipeline)
        number = len(definition.stages) if stage is None else stage
        check_number(definition, number)
        found = snapshot_at(self._catalog, at)
        manifest = found.manifest
        state = None if manifest is None else StageState(self._catalog, manifest, definition, number)
        source = OpenWindows(self._catalog, definition, number, state, found.ref)
        return LazyView(f"{STATE} of {self.name}", source, manifest, where=where, columns=columns)

    def explain(
        self,
        key: Any = None,
        *,
        window: str | datetime | None = None,
        pipeline: Pipeline | None = None,
        stage: int | None = None,
        at: At = MAIN,
    ) -> "Explanation":
        """Why the windows of ``key`` have fired or not: what each holds, which conditions its trigger waits for, who
        holds the watermark back, what has come of it. ``str`` says it in words.

        ``key`` is a value, or several in the order of the key's columns, or by their names. ``window`` is a time: the
        start of a window, or any time in it; without it all windows are explained that are known of the key.
        ``pipeline`` and ``stage`` are those of ``state``. It reads what it needs of files that say their keys.
        Raises ExplainError, StateDefinitionError, NoSnapshotError.
        """
        from headrace.read.explain.investigation import explain  # with the kernel
        from headrace.read.explain.stage_state import StageState, definition_of

        definition = definition_of(self._catalog, pipeline)
        manifest = snapshot_at(self._catalog, at).manifest
        if manifest is None:
            raise NoSnapshotError(f"pipeline {self.name} has no snapshot yet at {at}: run it (headrace run)")
        number = len(definition.stages) if stage is None else stage
        return explain(StageState(self._catalog, manifest, definition, number), key, window)

    def plan(self, pipeline: Pipeline, *, at: At = MAIN) -> "Plan":
        """What a run of ``pipeline``, as it is written now, would do with the state of a snapshot: keep or migrate it,
        or refuse since it has to be replayed; and which parts have changed. ``str`` says it in words.
        """
        from headrace.read.definition_plan import plan

        return plan(pipeline, snapshot_at(self._catalog, at).manifest)

    def graph(self, *, limit: int = 20, before: int | None = None) -> "SnapshotGraph":
        """The newest ``limit`` snapshots and doings of people in the log (of its entries below number ``before``) as a
        graph; ``str`` draws it.
        """
        from headrace.read.snapshots.graph import snapshot_graph

        return snapshot_graph(self._catalog, limit=Arguments("graph").whole("limit", limit, least=1), before=before)

    def diff(self, before: At, after: At, *, limit: int = 20) -> "SnapshotDiff":
        """What differs between two snapshots, each named as ``at`` is: rows of ``current`` that a reader would see
        change, and what lies under it: input, watermarks, state, late rows and dead letters. All rows are counted, and
        the first ``limit`` given.
        """
        from headrace.read.diff.comparison import diff

        limit = Arguments("diff").whole("limit", limit, least=0)
        sides = (snapshot_at(self._catalog, at).manifest for at in (before, after))
        return diff(self._catalog, *sides, limit=limit)

    def view(
        self, view: View, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """The view of that name."""
        found = snapshot_at(self._catalog, at)
        source = OutputFiles(self._catalog, found.manifest, view, self._definition(found), found.ref)
        return LazyView(f"{view} of {self.name}", source, found.manifest, where=where, columns=columns)

    def __repr__(self) -> str:
        refs = self._catalog.head().refs
        heads = [f"{ref} at {refs[ref]}" for ref in (PUBLISHED, MAIN) if ref in refs]
        return f"<pipeline {self.name}: {', '.join(heads) or 'no snapshot yet'}>"

    def _definition(self, found: ResolvedSnapshot) -> ViewColumns:
        """What says the columns: the snapshot, or the newest one on main for a branch that has none."""
        manifest = found.manifest or snapshot_at(self._catalog, MAIN).manifest
        if manifest is not None:
            return ViewColumns.from_json(manifest.schema)
        if self._otherwise is not None:
            return self._otherwise
        raise NoSnapshotError(
            f"pipeline {self.name} has no snapshot yet, so its columns are not known: run it (headrace run)"
        )
