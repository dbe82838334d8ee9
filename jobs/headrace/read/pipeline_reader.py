"""Roots, and the results of one pipeline under one: what its snapshots and its log say of it.

A root that does not exist is an error (``check_root``), since a typing mistake makes none. The definition of a pipeline
that has results is given, by its file, or registered under its name (``definition_of``).
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import compress, islice
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import FixConfigError
from headrace.model.arguments import Arguments, Suggesting, did_you_mean, short_repr
from headrace.model.expressions.expr import Expr
from headrace.pipeline.loading.registry import UnknownPipelineError, resolve_pipeline
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.snapshot_refs import At, NoSnapshotError, ResolvedSnapshot, named_id, snapshot_at
from headrace.read.views.columns import STATE, View, ViewColumns
from headrace.sources.file_planning import describe_surroundings, root_exists
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
    from headrace.read.snapshots.catalog_log import LogEntries, SnapshotGraph
    from headrace.read.snapshots.progress import OutputPosition
    from headrace.read.views.lazy_view import LazyView


PIPELINES_AT_ONCE: Final = 64
"""So many pipelines are looked at together, where their store is far."""


class MissingRootError(FixConfigError, code="config.missing_root"):
    """There is no such root, and nothing to make it for."""


def check_root(store: ObjectStore) -> None:
    """Raise MissingRootError, with what there is instead, unless the root of ``store`` exists."""
    if not root_exists(store):
        raise MissingRootError(
            f"the root {store.uri} does not exist: {describe_surroundings(store)}. A run that finds input makes it, "
            "and so does `headrace run --create`"
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

_PIPELINE_FORM = "give a Pipeline, a registered name, or path/to/file.py[:name]"


def definition_of(definition: Definition, call: str, name: str | None = None) -> Pipeline:
    """The pipeline that argument ``pipeline`` of ``call`` gives; it must be called ``name`` unless that is None.

    Raises UnknownPipelineError, and PipelineFileError for a file that is named.
    """
    if isinstance(definition, Pipeline):
        pipeline = definition
    elif isinstance(definition, str | PathLike) and isinstance(path := fspath(definition), str):
        pipeline = resolve_pipeline(path)
    else:
        raise Arguments(call).refusal("pipeline", definition, _PIPELINE_FORM)
    if name is not None and pipeline.name != name:
        raise UnknownPipelineError(
            f"{call}(...): the given pipeline is {pipeline.name!r}, and these are the results of {name!r}: take the "
            f"results of {pipeline.name!r}, hr.open(root)[{pipeline.name!r}]"
        )
    return pipeline


def registered_definition(name: str) -> Pipeline | None:
    """The registered pipeline of that name; None if there is none."""
    with suppress(UnknownPipelineError):
        return resolve_pipeline(name)
    return None


WhereCondition = str | Expr
"""A condition in SQL, as DuckDB reads it, or an expression of Headrace."""


class PipelineReader(Suggesting):
    """The results of one pipeline.

    Every view takes ``at``: a branch, a tag, the id of a snapshot, or a time (an aware datetime, or ISO 8601 text). A
    time means the snapshot that readers saw then: what ``published`` pointed to by the catalog's log. Without it views
    are of ``published``. ``where`` keeps the rows that fulfil a condition, in SQL as DuckDB reads it or as an
    expression of Headrace; ``columns`` names those that are wanted, and only these are read.
    Views raise AtError, UnknownBranchError and NoSnapshotError for ``at``, QueryError for ``where`` and ``columns``.
    In examples ``handle`` is ``hr.open(root)["delays"]``.
    """

    def __init__(self, catalog: Catalog, definition: Pipeline | None = None) -> None:
        """``definition`` is that of the pipeline as it is written now; by default the registered one of its name."""
        self._catalog, self._definition = catalog, definition

    @property
    def name(self) -> str:
        """The name of the pipeline.

        >>> handle.name
        'delays'
        """
        return self._catalog.pipeline

    @property
    def catalog(self) -> Catalog:
        """The catalog of its snapshots: branches, tags and the log, as they are stored.

        >>> sorted(handle.catalog.head().refs)
        ['main', 'published']
        """
        return self._catalog

    def definition(self) -> Pipeline | None:
        """The pipeline as it is written now: the one that was given, else the registered one of this name, as its
        file is now; None if there is none.

        >>> list(handle.definition().value_types)
        ['flights', 'delay']
        """
        return registered_definition(self.name) if self._definition is None else self._definition

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs, by its newest snapshot, else by its definition; none if it has one without a
        name.

        >>> hr.open(root)["traffic"].outputs
        ('daily', 'hourly')
        """
        refs = self._catalog.head().refs
        if MAIN in refs:
            return outputs_of(self._catalog.manifest(refs[MAIN]))
        definition = self.definition()
        return () if definition is None else tuple(definition.outputs)

    def output_positions(self) -> dict[str, "OutputPosition"]:
        """For each output with a name: what its readers see, and how far that is behind main. It says since when and
        why the output is parked, if it is.

        >>> hr.open(root)["traffic"].output_positions()["daily"].unpublished
        0
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
        outputs = self.outputs
        if output not in outputs and not self._has_had(output):
            has = (
                f"the outputs {', '.join(outputs)}" if outputs else "one output without a name: leave out the brackets"
            )
            if not outputs and MAIN not in self._catalog.head().refs and self.definition() is None:
                has = "no snapshot now, which would say which outputs it has"
            raise UnknownOutputError(
                f"pipeline {self.name} has no output {output!r}; {did_you_mean(str(output), outputs)}it has {has}"
            )
        return OutputReader(self._catalog, output, self._definition)

    def _has_had(self, output: str) -> bool:
        """Whether some branch, tag or older snapshot has an ``output`` that main has not."""
        from headrace.read.snapshots.progress import has_had

        return has_had(self._catalog, output)

    def current(
        self, *, at: At | None = None, where: WhereCondition | None = None, columns: Sequence[str] | None = None
    ) -> "LazyView":
        """The latest pane of each key and window; none where everything was withdrawn.

        ``at``, ``where`` and ``columns``: see ``PipelineReader``.

        >>> handle.current(where="delay > 5", columns=["airport", "delay"]).to_json()
        [{'airport': 'ATL', 'delay': 30}, {'airport': 'JFK', 'delay': 10}, {'airport': 'ATL', 'delay': 8}]
        """
        return self._lazy_view(View.CURRENT, ref=at, where=where, columns=columns)

    def panes(
        self, *, at: At | None = None, where: WhereCondition | None = None, columns: Sequence[str] | None = None
    ) -> "LazyView":
        """Every pane and every retraction.

        ``at``, ``where`` and ``columns``: see ``PipelineReader``.

        >>> handle.panes(at="main", where=hr.col("airport") == "ATL", columns=["delay", "timing"]).to_json()
        [{'delay': 30, 'timing': 'ON_TIME'}, {'delay': 8, 'timing': 'ON_TIME'}]
        """
        return self._lazy_view(View.PANES, ref=at, where=where, columns=columns)

    def late(
        self, *, at: At | None = None, where: WhereCondition | None = None, columns: Sequence[str] | None = None
    ) -> "LazyView":
        """Elements that were dropped because their window had expired.

        ``at``, ``where`` and ``columns``: see ``PipelineReader``.

        >>> handle.late(columns=["airport", "event_time", "reason"]).to_json()
        [{'airport': 'JFK', 'event_time': '2026-03-01T07:10:00Z', 'reason': 'window expired'}]
        """
        return self._lazy_view(View.LATE, ref=at, where=where, columns=columns)

    def rejected(
        self, *, at: At | None = None, where: WhereCondition | None = None, columns: Sequence[str] | None = None
    ) -> "LazyView":
        """Dead letters: records that could not be read, or were not allowed.

        ``at``, ``where`` and ``columns``: see ``PipelineReader``.

        >>> handle.rejected(columns=["file", "reason"]).to_json()
        [{'file': 'landing/flights/0.json', 'reason': 'column delay: not an int'}]
        """
        return self._lazy_view(View.REJECTED, ref=at, where=where, columns=columns)

    def snapshots(
        self, *, at: At | None = None, where: WhereCondition | None = None, columns: Sequence[str] | None = None
    ) -> "LazyView":
        """The snapshot and those before it, a row each, oldest first: clocks, counts, and what points to it.

        ``at``, ``where`` and ``columns``: see ``PipelineReader``.

        >>> handle.snapshots(columns=["epoch", "watermark"]).to_json()
        [{'epoch': 0, 'watermark': '2026-03-01T09:10:00Z'}, {'epoch': 1, 'watermark': '2026-03-01T11:00:00Z'}]
        """
        from headrace.read.views.lazy_view import LazyView
        from headrace.read.views.sources import SnapshotRows

        resolved_snapshot = snapshot_at(self._catalog, at)
        source = SnapshotRows(self._catalog, resolved_snapshot.manifest)
        return LazyView(f"snapshots of {self.name}", source, resolved_snapshot.manifest, where=where, columns=columns)

    def state(
        self,
        *,
        pipeline: Definition | None = None,
        stage: int | None = None,
        at: At | None = None,
        where: WhereCondition | None = None,
        columns: Sequence[str] | None = None,
    ) -> "LazyView":
        """The windows that are still open: what each holds so far, has emitted, and waits for (``open_windows``).

        No result: until a pane says it, all of it may still change. State means something only to the definition that
        made it: ``pipeline``, by default the registered one of this name. ``stage`` counts its aggregations from 1;
        without it you read the last, as in all other views. ``at``, ``where`` and ``columns``: see ``PipelineReader``.
        Raises StateDefinitionError.

        >>> handle.state(columns=["airport", "flights", "window_start"]).to_json()
        [{'airport': 'ATL', 'flights': 1, 'window_start': '2026-03-01T11:00:00Z'}]
        """
        from headrace.read.open_windows import (
            OpenWindows,  # with the kernel, which other views do without
            StageState,
            check_number,
            check_windows,
        )
        from headrace.read.views.lazy_view import LazyView

        definition = self._state_definition(pipeline, "state")
        number = len(definition.stages) if stage is None else stage
        check_windows(definition)
        check_number(definition, number)
        resolved_snapshot = self._snapshot_of_output(at)
        manifest = resolved_snapshot.manifest
        state = None if manifest is None else StageState(self._catalog, manifest, definition, number)
        source = OpenWindows(self._catalog, definition, number, state, resolved_snapshot.ref)
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
        holds the watermark back. It says what has come of it. ``str`` says it in words.

        ``key`` is a value, or several in the order of the key's columns, or by their names; NULL is ``[None]``.
        ``window`` is a time: the start of a window, or any time in it; without it all windows are explained that are
        known of the key. Behind joins it also says which rows these met, and for how long that may change. For joined
        rows that leave as they are, ``key`` is columns of them by name, or values of ``id=``; ``window`` their time.
        ``pipeline`` and ``stage`` are those of ``state``. It reads what it needs of files that say their keys; it reads
        panes and late rows of the newest ``epochs``, by default of all. Raises ExplainError, StateDefinitionError,
        NoSnapshotError.

        >>> print(handle.explain("ATL", window="2026-03-01T11:30:00Z"))
        delays at snapshot ... (epoch 1), aggregation 1: airport = ATL
        ...
        window [2026-03-01T11:00:00Z, 2026-03-01T12:00:00Z): open, has not fired
        ...
        """
        from headrace.read.explanation import explain_windows  # with the kernel
        from headrace.read.open_windows import StageState, check_number, check_windows

        definition = self._state_definition(pipeline, "explain")
        if not definition.join:
            check_windows(definition)
        manifest = self._snapshot_of_output(at).manifest
        if manifest is None:
            raise NoSnapshotError(f"pipeline {self.name} has no snapshot yet at {at}: run it (headrace run)")
        number = len(definition.stages) if stage is None else stage
        check_number(definition, number)
        return explain_windows(StageState(self._catalog, manifest, definition, number), key, window, epochs)

    def plan(self, pipeline: Definition | None = None, *, at: At = MAIN) -> "Plan":
        """What a run of ``pipeline``, as it is written now, would do with the state of a snapshot: keep it, migrate it,
        or refuse. It refuses if the state has to be replayed. It says which parts have changed. ``str`` says it in
        words.

        By default it is the pipeline that the results were asked for with, else the registered one. ``at`` names the
        snapshot: a branch, a tag, an id or a time. Where outputs have names, each has a plan: ``plans`` gives them all,
        as the command prints them. Raises UnknownPipelineError, and UnknownOutputError where outputs have names.

        >>> print(handle.plan())
        delays as it is written now, against snapshot ... (epoch 1)
        aggregation 1: keep
        headrace run continues from this snapshot
        """
        from headrace.read.definition_plan import plan_definition_change

        definition = self._needed_definition(pipeline, "plan")
        if definition.has_names:
            names = ", ".join(definition.outputs)
            raise UnknownOutputError(
                f"pipeline {definition.name} has a plan for each of its outputs {names}: plans() gives them all, "
                f"[{next(iter(definition.outputs))!r}].plan() that of one"
            )
        return plan_definition_change(definition, self._snapshot_of_output(at).manifest)

    def plans(self, pipeline: Definition | None = None, *, at: At = MAIN) -> dict[str, "Plan"]:
        """The ``plan`` of each output with a name, as they are written now; none where the only output has no name.

        ``pipeline`` and ``at`` are those of ``plan``.

        >>> sorted(hr.open(root)["traffic"].plans())
        ['daily', 'hourly']
        """
        from headrace.read.definition_plan import plans_of_outputs

        whole = self._needed_definition(pipeline, "plans")
        return plans_of_outputs(whole, snapshot_at(self._catalog, at).manifest) if whole.has_names else {}

    def graph(self, *, limit: int = 20, before: int | None = None) -> "SnapshotGraph":
        """The newest ``limit`` snapshots and doings of people in the log (of its entries below number ``before``) as a
        graph; ``str`` draws it.

        >>> print(handle.graph(limit=2))
        * ... (main, published) ... epoch 1 on main
        * ... epoch 0 on main
        """
        from headrace.read.snapshots.catalog_log import snapshot_graph

        limit, before = _log_bounds("graph", limit, before)
        return snapshot_graph(self._catalog, limit=limit, before_entry=before)

    def diff(self, before: At, after: At, *, limit: int = 20) -> "SnapshotDiff":
        """What differs between two snapshots, each named as ``at`` is. It has the rows of ``current`` that change for a
        reader, and what lies under it: input, watermarks, state, late rows and dead letters. All rows are counted, and
        the first ``limit`` given. An output that has another name in one of them is found by the names that the other
        has recorded.

        >>> before = handle.show("main").parent
        >>> handle.diff(before, "main")
        <diff of delays from ... to ...; rows of current: 0 before, 3 after, 3 added, 0 removed, 0 changed, 0 reissued>
        """
        from headrace.read.diff.comparison import compared_sides, diff_snapshots

        limit = Arguments("diff").whole_number("limit", limit, least=0)
        return diff_snapshots(self._catalog, *compared_sides(self._catalog, before, after), limit=limit)

    def read(
        self,
        view: str = View.CURRENT,
        *,
        at: At | None = None,
        where: WhereCondition | None = None,
        columns: Sequence[str] | None = None,
        stage: int | None = None,
    ) -> "LazyView":
        """The view of that name: "current", "panes", "late", "rejected", or "state", which alone has a ``stage``.

        ``at``, ``where`` and ``columns``: see ``PipelineReader``. Raises QueryError for a view that there is not.

        >>> handle.read("late").count()
        1
        """
        from headrace.read.views.conditions import QueryError

        view = Arguments("read", QueryError).text("view", view, View.CURRENT)
        if view == STATE:
            return self.state(stage=stage, at=at, where=where, columns=columns)
        if view not in {*View}:
            raise QueryError(f"there is no view {short_repr(view)}; there are {', '.join((*View, STATE))}")
        if stage is not None:
            raise QueryError(f"stage={stage} is for the view {STATE}: {view} is of the last aggregation")
        return self._lazy_view(View(view), ref=at, where=where, columns=columns)

    def files(self, view: str = View.CURRENT, *, at: At | None = None, verify: bool = False) -> list[str]:
        """Paths or URIs of the Parquet files of a view, for readers of your own; see ``LazyView.files``.

        ``at`` names the snapshot: a branch, a tag, an id or a time. ``verify`` compares each file with its length and
        checksum first.

        >>> handle.files("panes")
        ['.../delays/data/....parquet']
        """
        return self.read(view, at=at).files(verify=Arguments("files").flag("verify", verify))

    def show(self, snapshot: str = MAIN) -> Manifest:
        """The snapshot that an id, a branch or a tag names: clocks, counts, tables, timings and storage requests.

        >>> handle.show("published").epoch
        1
        """
        catalog = self._catalog
        return catalog.manifest(named_id(catalog, catalog.head(), snapshot))

    def log(self, *, limit: int = 20, before: int | None = None) -> "LogEntries":
        """The newest ``limit`` entries of the catalog's log (of those below number ``before``), newest first.

        >>> [entry.message for entry in handle.log(limit=2)]
        ['published epoch 1 by ...', 'epoch 1']
        """
        from headrace.read.snapshots.catalog_log import LogEntries

        limit, before = _log_bounds("log", limit, before)
        return LogEntries(islice(self._catalog.history(before, at_once=limit), limit))

    def _lazy_view(
        self, view: View, *, ref: At | None, where: WhereCondition | None = None, columns: Sequence[str] | None = None
    ) -> "LazyView":
        from headrace.read.views.lazy_view import LazyView
        from headrace.read.views.sources import OutputFiles

        resolved_snapshot = self._snapshot_of_output(ref)
        source = OutputFiles(
            self._catalog,
            resolved_snapshot.manifest,
            view,
            self._view_columns(resolved_snapshot),
            resolved_snapshot.ref,
        )
        return LazyView(f"{view} of {self.name}", source, resolved_snapshot.manifest, where=where, columns=columns)

    def _snapshot_of_output(self, snapshot_ref: At | None) -> ResolvedSnapshot:
        """The snapshot that ``snapshot_ref`` means, for one output. Raises UnknownOutputError if it has several."""
        resolved_snapshot = snapshot_at(self._catalog, snapshot_ref)
        if resolved_snapshot.manifest is not None:
            seen_by(resolved_snapshot.manifest, UNNAMED.output)
        return resolved_snapshot

    def __repr__(self) -> str:
        refs = self._catalog.head().refs
        heads = [f"{ref} at {refs[ref]}" for ref in (*sorted(filter(is_published, refs)), MAIN) if ref in refs]
        return f"<pipeline {self.name}: {', '.join(heads) or 'no snapshot yet'}>"

    def _needed_definition(self, definition: Definition | None, call: str) -> Pipeline:
        """The ``definition`` that ``call`` was given, else the one that is known. Raises UnknownPipelineError."""
        if definition is None:
            definition = self.name if self._definition is None else self._definition
        return definition_of(definition, call, self.name)

    def _state_definition(self, definition: Definition | None, call: str) -> Pipeline:
        """The same, for what reads state. Raises StateDefinitionError."""
        from headrace.read.open_windows import StateDefinitionError

        try:
            return self._needed_definition(definition, call)
        except UnknownPipelineError as error:
            if definition is not None:
                raise
            raise StateDefinitionError(
                f"state is read with the definition of its pipeline, and {self.name} is not registered: name its "
                f"folder in HEADRACE_PIPELINES, or give the pipeline itself (pipeline=...). {error}"
            ) from error

    def _view_columns(self, resolved_snapshot: ResolvedSnapshot) -> ViewColumns:
        """What says the columns: the snapshot, the newest one on main for a branch that has none, or the definition."""
        manifest = resolved_snapshot.manifest or self._snapshot_of_output(MAIN).manifest
        if manifest is not None:
            return ViewColumns.from_json(manifest.schema)
        definition = self.definition()
        if definition is not None:
            return ViewColumns.from_pipeline(definition)
        raise NoSnapshotError(
            f"pipeline {self.name} has no snapshot yet, so its columns are not known: run it (headrace run)"
        )


def _log_bounds(call: str, limit: int, before_entry: int | None) -> tuple[int, int | None]:
    """How many entries of the log ``call`` is to give, and below which number."""
    arguments = Arguments(call)
    first_above = None if before_entry is None else arguments.whole_number("before", before_entry, least=0)
    return arguments.whole_number("limit", limit, least=1), first_above


class OutputReader(PipelineReader):
    """The results of one output of a pipeline that has several.

    >>> output = hr.open(root)["traffic"]["daily"]
    >>> output.state(columns=["airport", "flights"]).to_json()
    [{'airport': 'ATL', 'flights': 4}, {'airport': 'JFK', 'flights': 2}]
    """

    def __init__(self, catalog: Catalog, output: str, definition: Pipeline | None = None) -> None:
        """Read ``output`` from ``catalog``. ``definition`` is that of the pipeline, with all its outputs."""
        super().__init__(OutputCatalog(catalog, output), definition)
        self._output = output

    @property
    def name(self) -> str:
        """The name of the pipeline and that of the output.

        >>> output.name
        'traffic.daily'
        """
        return f"{self._catalog.pipeline}.{self._output}"

    def definition(self) -> Pipeline | None:
        """The pipeline as it is written now, as the output alone has it; None if there is none that has the output.

        >>> output.definition().where
        CalendarWindows(unit=<CalendarUnit.DAY: 'day'>, ...)
        """
        whole = registered_definition(self._catalog.pipeline) if self._definition is None else self._definition
        return None if whole is None else whole.by_output.get(self._output)

    def plan(self, pipeline: Definition | None = None, *, at: At = MAIN) -> "Plan":
        """What a run would do with the state of the output, as it is written now.

        ``pipeline`` and ``at`` are those of ``PipelineReader.plan``.

        >>> print(output.plan())
        output daily of traffic as it is written now, against snapshot ... (epoch 1)
        aggregation 1: keep
        headrace run continues output daily from this snapshot
        """
        return replace(super().plan(pipeline, at=at), output=self._output)

    def _needed_definition(self, definition: Definition | None, call: str) -> Pipeline:
        if definition is None:
            definition = self._catalog.pipeline if self._definition is None else self._definition
        whole = definition_of(definition, call, self._catalog.pipeline)
        if self._output not in whole.by_output:
            raise UnknownOutputError(
                f"pipeline {whole.name} as it is written now has no output {self._output!r}; it has "
                f"{', '.join(whole.outputs) or 'one without a name'}"
            )
        return whole.by_output[self._output]
