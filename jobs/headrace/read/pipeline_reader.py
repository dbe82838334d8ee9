"""Roots, and the results of one pipeline under one: what its snapshots and its log say of it.

Roots: what has run under one; and those that are not there, since a typing mistake makes none.

The definition of a pipeline that has results: given, by its file, or registered under its name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import compress, islice
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import FixConfigError
from headrace.model.arguments import Arguments, Suggesting, did_you_mean, shown
from headrace.model.expressions.expr import Expr
from headrace.pipeline.loading.registry import UnknownPipelineError, resolve
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.catalog_log import LogEntries
from headrace.read.snapshots.snapshot_refs import At, NoSnapshotError, ResolvedSnapshot, named_id, snapshot_at
from headrace.read.views.columns import STATE, View, ViewColumns
from headrace.read.views.conditions import QueryError
from headrace.read.views.lazy_view import LazyView
from headrace.read.views.sources import OutputFiles, SnapshotRows
from headrace.sources.file_planning import around, exists
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import UNNAMED, Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, outputs_of, seen_by
from headrace_snapshots.log import has_log
from headrace_snapshots.names import MAIN, is_published
from headrace_snapshots.output_catalog import OutputCatalog
from headrace_snapshots.store import ObjectStore, do_all, folders_in

if TYPE_CHECKING:
    from headrace.read.definition_plan import Plan
    from headrace.read.diff.comparison import SnapshotDiff
    from headrace.read.explanation import Explanation
    from headrace.read.snapshots.catalog_log import SnapshotGraph
    from headrace.read.snapshots.progress import OutputPosition


PIPELINES_AT_ONCE: Final = 64
"""So many pipelines are looked at together, where their store is far."""


class MissingRootError(FixConfigError, code="config.missing_root"):
    """There is no such root, and nothing to make it for."""


def check_root(store: ObjectStore) -> None:
    """Raise MissingRootError, with what there is instead, unless the root of ``store`` exists."""
    if not exists(store):
        raise MissingRootError(
            f"the root {store.uri} does not exist: {around(store)}. A run that finds input makes it, and so does "
            "`headrace run --create`"
        )


def has_run(store: ObjectStore, name: str) -> bool:
    """Whether a pipeline of that name has run under the root of ``store``."""
    return name.isidentifier() and has_log(store, name)


def pipelines_under(store: ObjectStore) -> Iterator[str]:
    """The names of the pipelines that have run under the root of ``store``."""
    folders = folders_in(store)
    have_run = do_all(store, lambda name: has_run(store, name), folders, PIPELINES_AT_ONCE)
    return compress(folders, have_run)


Definition = Pipeline | str | PathLike[str]
"""A pipeline, a registered name, or ``path/to/file.py[:name]``."""

_WRITE = "give a Pipeline, a registered name, or path/to/file.py[:name]"


def definition_of(given: Definition, call: str, name: str | None = None) -> Pipeline:
    """The pipeline that argument ``pipeline`` of ``call`` gives; it must be called ``name`` unless that is None.

    Raises UnknownPipelineError, and PipelineFileError for a file that is named.
    """
    if isinstance(given, Pipeline):
        pipeline = given
    elif isinstance(given, str | PathLike) and isinstance(path := fspath(given), str):
        pipeline = resolve(path)
    else:
        raise Arguments(call).wrong("pipeline", given, _WRITE)
    if name is not None and pipeline.name != name:
        raise UnknownPipelineError(
            f"{call}(...): the given pipeline is {pipeline.name!r}, and these are the results of {name!r}: take the "
            f"results of {pipeline.name!r}, hr.open(root)[{pipeline.name!r}]"
        )
    return pipeline


def registered_definition(name: str) -> Pipeline | None:
    """The registered pipeline of that name; None if there is none."""
    try:
        return resolve(name)
    except UnknownPipelineError:
        return None


Where = str | Expr
"""A condition in SQL, as DuckDB reads it, or an expression of Headrace."""


class PipelineReader(Suggesting):
    """The results of one pipeline.

    Every view takes ``at``: a branch, a tag, the id of a snapshot, or a time (an aware datetime, or ISO 8601 text). A
    time means the snapshot that readers saw then: what ``published`` pointed to by the catalog's log. Without it views
    are of ``published``. ``where`` keeps the rows that fulfil a condition, in SQL as DuckDB reads it or as an
    expression of Headrace; ``columns`` names those that are wanted, and only these are read.
    Views raise AtError, UnknownBranchError and NoSnapshotError for ``at``, QueryError for ``where`` and ``columns``.
    """

    def __init__(self, catalog: Catalog, definition: Pipeline | None = None) -> None:
        """``definition`` is that of the pipeline as it is written now; by default the registered one of its name."""
        self._catalog, self._definition = catalog, definition

    @property
    def name(self) -> str:
        """The name of the pipeline."""
        return self._catalog.pipeline

    @property
    def catalog(self) -> Catalog:
        """The catalog of its snapshots: branches, tags and the log, as they are stored."""
        return self._catalog

    def definition(self) -> Pipeline | None:
        """The pipeline as it is written now: the one that was given, else the registered one of this name, as its
        file is now; None if there is none.
        """
        return registered_definition(self.name) if self._definition is None else self._definition

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs, by its newest snapshot, else by its definition; none if it has one without a
        name.
        """
        refs = self._catalog.head().refs
        if MAIN in refs:
            return outputs_of(self._catalog.manifest(refs[MAIN]))
        definition = self.definition()
        return () if definition is None else tuple(definition.outputs)

    def output_positions(self) -> dict[str, "OutputPosition"]:
        """For each output with a name: what its readers see, how far that is behind main, since when and why it is
        parked if it is.
        """
        from headrace.read.snapshots.progress import output_positions

        refs = self._catalog.head().refs
        if MAIN not in refs:
            return {}
        positions = output_positions(self._catalog, refs, self._catalog.manifest(refs[MAIN]))
        return {position.name: position for position in positions}

    def __getitem__(self, output: str) -> "OutputReader":
        """The results of one of its outputs, by name; also of one that only a branch has yet, or that older snapshots
        have, for ``at`` these. Raises UnknownOutputError.
        """
        there = self.outputs
        if output not in there and not self._has_had(output):
            has = f"the outputs {', '.join(there)}" if there else "one output without a name: leave out the brackets"
            if not there and MAIN not in self._catalog.head().refs and self.definition() is None:
                has = "no snapshot now, which would say which outputs it has"
            raise UnknownOutputError(
                f"pipeline {self.name} has no output {output!r}; {did_you_mean(str(output), there)}it has {has}"
            )
        return OutputReader(self._catalog, output, self._definition)

    def _has_had(self, output: str) -> bool:
        """Whether some branch, tag or older snapshot has an ``output`` that main has not."""
        from headrace.read.snapshots.progress import has_had

        return has_had(self._catalog, output)

    def current(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """The latest pane of each key and window; none where everything was withdrawn."""
        return self._rows(View.CURRENT, at=at, where=where, columns=columns)

    def panes(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """Every pane and every retraction."""
        return self._rows(View.PANES, at=at, where=where, columns=columns)

    def late(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """Elements that were dropped because their window had expired."""
        return self._rows(View.LATE, at=at, where=where, columns=columns)

    def rejected(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """Dead letters: records that could not be read, or were not allowed."""
        return self._rows(View.REJECTED, at=at, where=where, columns=columns)

    def snapshots(
        self, *, at: At | None = None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        """The snapshot and those before it, a row each, oldest first: clocks, counts, and what points to it."""
        resolved = snapshot_at(self._catalog, at)
        source = SnapshotRows(self._catalog, resolved.manifest)
        return LazyView(f"snapshots of {self.name}", source, resolved.manifest, where=where, columns=columns)

    def state(
        self,
        *,
        pipeline: Definition | None = None,
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
        from headrace.read.open_windows import (
            OpenWindows,  # with the kernel, which other views do without
            StageState,
            check_number,
        )

        definition = self._state_definition(pipeline, "state")
        number = len(definition.stages) if stage is None else stage
        check_number(definition, number)
        resolved = self._snapshot_of_output(at)
        manifest = resolved.manifest
        state = None if manifest is None else StageState(self._catalog, manifest, definition, number)
        source = OpenWindows(self._catalog, definition, number, state, resolved.ref)
        return LazyView(f"{STATE} of {self.name}", source, manifest, where=where, columns=columns)

    def explain(
        self,
        key: Any = None,
        *,
        window: str | datetime | None = None,
        pipeline: Definition | None = None,
        stage: int | None = None,
        at: At = MAIN,
        epochs: int | None = None,
    ) -> "Explanation":
        """Why the windows of ``key`` have fired or not: what each holds, which conditions its trigger waits for, who
        holds the watermark back, what has come of it. ``str`` says it in words.

        ``key`` is a value, or several in the order of the key's columns, or by their names. ``window`` is a time: the
        start of a window, or any time in it; without it all windows are explained that are known of the key.
        ``pipeline`` and ``stage`` are those of ``state``. It reads what it needs of files that say their keys; of
        panes and late rows those of the newest ``epochs``, by default all.
        Raises ExplainError, StateDefinitionError, NoSnapshotError.
        """
        from headrace.read.explanation import explain  # with the kernel
        from headrace.read.open_windows import StageState, check_number

        definition = self._state_definition(pipeline, "explain")
        manifest = self._snapshot_of_output(at).manifest
        if manifest is None:
            raise NoSnapshotError(f"pipeline {self.name} has no snapshot yet at {at}: run it (headrace run)")
        number = len(definition.stages) if stage is None else stage
        check_number(definition, number)
        return explain(StageState(self._catalog, manifest, definition, number), key, window, epochs)

    def plan(self, pipeline: Definition | None = None, *, at: At = MAIN) -> "Plan":
        """What a run of ``pipeline``, as it is written now, would do with the state of a snapshot: keep or migrate it,
        or refuse since it has to be replayed; and which parts have changed. ``str`` says it in words.

        By default it is the pipeline that the results were asked for with, else the registered one. Raises
        UnknownPipelineError.
        """
        from headrace.read.definition_plan import plan

        return plan(self._needed_definition(pipeline, "plan"), self._snapshot_of_output(at).manifest)

    def plans(self, pipeline: Definition | None = None, *, at: At = MAIN) -> dict[str, "Plan"]:
        """The ``plan`` of each output with a name, as they are written now; none where the only output has no name."""
        from headrace.read.definition_plan import plans_of_outputs

        whole = self._needed_definition(pipeline, "plans")
        return plans_of_outputs(whole, snapshot_at(self._catalog, at).manifest) if whole.has_names else {}

    def graph(self, *, limit: int = 20, before: int | None = None) -> "SnapshotGraph":
        """The newest ``limit`` snapshots and doings of people in the log (of its entries below number ``before``) as a
        graph; ``str`` draws it.
        """
        from headrace.read.snapshots.catalog_log import snapshot_graph

        limit, before = _counted("graph", limit, before)
        return snapshot_graph(self._catalog, limit=limit, before=before)

    def diff(self, before: At, after: At, *, limit: int = 20) -> "SnapshotDiff":
        """What differs between two snapshots, each named as ``at`` is: rows of ``current`` that a reader would see
        change, and what lies under it: input, watermarks, state, late rows and dead letters. All rows are counted, and
        the first ``limit`` given. An output that has another name in one of them is found by the names that the other
        has recorded.
        """
        from headrace.read.diff.comparison import compared_sides, diff

        limit = Arguments("diff").whole("limit", limit, least=0)
        return diff(self._catalog, *compared_sides(self._catalog, before, after), limit=limit)

    def read(
        self,
        view: str = View.CURRENT,
        *,
        at: At | None = None,
        where: Where | None = None,
        columns: Sequence[str] | None = None,
        stage: int | None = None,
    ) -> LazyView:
        """The view of that name: "current", "panes", "late", "rejected", or "state", which alone has a ``stage``.

        Raises QueryError for a view that there is not.
        """
        view = Arguments("read", QueryError).text("view", view, View.CURRENT)
        if view == STATE:
            return self.state(stage=stage, at=at, where=where, columns=columns)
        if view not in {*View}:
            raise QueryError(f"there is no view {shown(view)}; there are {', '.join((*View, STATE))}")
        if stage is not None:
            raise QueryError(f"stage={stage} is for the view {STATE}: {view} is of the last aggregation")
        return self._rows(View(view), at=at, where=where, columns=columns)

    def files(self, view: str = View.CURRENT, *, at: At | None = None, verify: bool = False) -> list[str]:
        """Paths or URIs of the Parquet files of a view, for readers of your own; see ``LazyView.files``."""
        return self.read(view, at=at).files(verify=Arguments("files").flag("verify", verify))

    def show(self, snapshot: str = MAIN) -> Manifest:
        """The snapshot that an id, a branch or a tag names: clocks, counts, tables, timings and storage requests."""
        catalog = self._catalog
        return catalog.manifest(named_id(catalog, catalog.head(), snapshot))

    def log(self, *, limit: int = 20, before: int | None = None) -> LogEntries:
        """The newest ``limit`` entries of the catalog's log (of those below number ``before``), newest first."""
        limit, before = _counted("log", limit, before)
        return LogEntries(islice(self._catalog.history(before, at_once=limit), limit))

    def _rows(
        self, view: View, *, at: At | None, where: Where | None = None, columns: Sequence[str] | None = None
    ) -> LazyView:
        resolved = self._snapshot_of_output(at)
        source = OutputFiles(self._catalog, resolved.manifest, view, self._view_columns(resolved), resolved.ref)
        return LazyView(f"{view} of {self.name}", source, resolved.manifest, where=where, columns=columns)

    def _snapshot_of_output(self, at: At | None) -> ResolvedSnapshot:
        """The snapshot that ``at`` means, for what is of one output. Raises UnknownOutputError if it has several."""
        resolved = snapshot_at(self._catalog, at)
        if resolved.manifest is not None:
            seen_by(resolved.manifest, UNNAMED.output)
        return resolved

    def __repr__(self) -> str:
        refs = self._catalog.head().refs
        heads = [f"{ref} at {refs[ref]}" for ref in (*sorted(filter(is_published, refs)), MAIN) if ref in refs]
        return f"<pipeline {self.name}: {', '.join(heads) or 'no snapshot yet'}>"

    def _needed_definition(self, given: Definition | None, call: str) -> Pipeline:
        """The definition that is ``given`` to ``call``, else the one that is known. Raises UnknownPipelineError."""
        if given is None:
            given = self.name if self._definition is None else self._definition
        return definition_of(given, call, self.name)

    def _state_definition(self, given: Definition | None, call: str) -> Pipeline:
        """The same, for what reads state. Raises StateDefinitionError."""
        from headrace.read.open_windows import StateDefinitionError

        try:
            return self._needed_definition(given, call)
        except UnknownPipelineError as error:
            if given is not None:
                raise
            raise StateDefinitionError(
                f"state is read with the definition of its pipeline, and {self.name} is not registered: name its "
                f"folder in HEADRACE_PIPELINES, or give the pipeline itself (pipeline=...). {error}"
            ) from error

    def _view_columns(self, resolved: ResolvedSnapshot) -> ViewColumns:
        """What says the columns: the snapshot, the newest one on main for a branch that has none, or the definition."""
        manifest = resolved.manifest or self._snapshot_of_output(MAIN).manifest
        if manifest is not None:
            return ViewColumns.from_json(manifest.schema)
        definition = self.definition()
        if definition is not None:
            return ViewColumns.of(definition)
        raise NoSnapshotError(
            f"pipeline {self.name} has no snapshot yet, so its columns are not known: run it (headrace run)"
        )


def _counted(call: str, limit: int, before: int | None) -> tuple[int, int | None]:
    """How many entries of the log ``call`` is to give, and below which number."""
    arguments = Arguments(call)
    below = None if before is None else arguments.whole("before", before, least=0)
    return arguments.whole("limit", limit, least=1), below


class OutputReader(PipelineReader):
    """The results of one output of a pipeline that has several."""

    def __init__(self, catalog: Catalog, output: str, definition: Pipeline | None = None) -> None:
        """``definition`` is that of the pipeline, with all its outputs."""
        super().__init__(OutputCatalog(catalog, output), definition)
        self._output = output

    @property
    def name(self) -> str:
        """The name of the pipeline and that of the output."""
        return f"{self._catalog.pipeline}.{self._output}"

    def definition(self) -> Pipeline | None:
        """The pipeline as it is written now, as the output alone has it; None if there is none that has the output."""
        whole = registered_definition(self._catalog.pipeline) if self._definition is None else self._definition
        return None if whole is None else whole.by_output.get(self._output)

    def plan(self, pipeline: Definition | None = None, *, at: At = MAIN) -> "Plan":
        """What a run would do with the state of the output, as it is written now."""
        return replace(super().plan(pipeline, at=at), output=self._output)

    def _needed_definition(self, given: Definition | None, call: str) -> Pipeline:
        if given is None:
            given = self._catalog.pipeline if self._definition is None else self._definition
        whole = definition_of(given, call, self._catalog.pipeline)
        if self._output not in whole.by_output:
            raise UnknownOutputError(
                f"pipeline {whole.name} as it is written now has no output {self._output!r}; it has "
                f"{', '.join(whole.outputs) or 'one without a name'}"
            )
        return whole.by_output[self._output]
