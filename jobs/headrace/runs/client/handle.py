"""Pipelines under a root, for Python: by name, and of each its results and a method for each command."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Literal, overload

from headrace.model.arguments import Arguments, check_keywords
from headrace.pipeline.pipeline import Pipeline
from headrace.read.deployment import Deployment
from headrace.read.pipeline_reader import Definition, check_root
from headrace.read.snapshots.snapshot_refs import At
from headrace.runs.client.history import PipelineHistory
from headrace_snapshots.names import MAIN, PUBLISHED
from headrace_snapshots.store import ObjectStore, open_store

if TYPE_CHECKING:
    from headrace.model.triggers import Signal
    from headrace.read.diff.target_comparison import TableComparison
    from headrace.runs.delivering.checking import SinkCheck
    from headrace.runs.delivering.deliver import Delivery
    from headrace.runs.dropped_records import LandedLate, LandedRejected
    from headrace.runs.plan import DryRun
    from headrace.runs.recovery_target import RecoveryCut
    from headrace.runs.reporting.listener import Listener
    from headrace.runs.reporting.results import RunResult
    from headrace_snapshots.catalog import Catalog


class PipelineHandle(PipelineHistory):
    """One pipeline under a root: its results, and a method for each command of ``headrace``.

    A method gives as a value what the command prints, and raises the error that the command reports. It prints nothing:
    what a run does while it lasts is told to its ``listener``, which may be ``print``. Ctrl-C ends it; what was
    committed stays.

    Methods that need the definition take it as ``pipeline``: a Pipeline, its file (``path/to/file.py[:name]``) or a
    registered name. Without it they take the pipeline that the handle was asked for with (``hr.open(root)[pipeline]``),
    else the registered one of this name. All others need no definition.

    >>> handle = hr.open(root)["delays"]
    >>> handle.run().epochs
    (2,)
    >>> handle.current().count()
    4
    """

    def __init__(
        self,
        catalog: "Catalog",
        definition: "Pipeline | None" = None,
        *,
        create: bool = False,
        started_by: str = "python",
    ) -> None:
        """Open the pipeline whose snapshots ``catalog`` holds; ``definition`` is the pipeline as it is written now.

        ``create``: runs make a missing root, even without input. ``started_by`` begins the names of runs.
        """
        super().__init__(catalog, definition, started_by=started_by)
        self._create = create

    @overload
    def run(
        self,
        pipeline: Definition | None = None,
        *,
        max_epochs: int | None = None,
        files_per_epoch: int | None = None,
        bytes_per_epoch: int | None = None,
        executor: str | None = None,
        mode: str = "micro-batch",
        branch: str = MAIN,
        from_branch: str | None = None,
        clock: str | datetime | None = None,
        clock_step: str | None = None,
        signals: "Sequence[str | Signal]" = (),
        publish: bool | None = None,
        full_sweep: bool = False,
        strict: bool = False,
        allow_new_aggregates: bool = False,
        without: Sequence[str] = (),
        dry_run: Literal[False] = False,
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "RunResult": ...

    @overload
    def run(
        self,
        pipeline: Definition | None = None,
        *,
        max_epochs: int | None = None,
        files_per_epoch: int | None = None,
        bytes_per_epoch: int | None = None,
        executor: str | None = None,
        mode: str = "micro-batch",
        branch: str = MAIN,
        from_branch: str | None = None,
        clock: str | datetime | None = None,
        clock_step: str | None = None,
        signals: "Sequence[str | Signal]" = (),
        publish: bool | None = None,
        full_sweep: bool = False,
        strict: bool = False,
        allow_new_aggregates: bool = False,
        without: Sequence[str] = (),
        dry_run: Literal[True],
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "DryRun": ...

    def run(
        self,
        pipeline: Definition | None = None,
        *,
        max_epochs: int | None = None,
        files_per_epoch: int | None = None,
        bytes_per_epoch: int | None = None,
        executor: str | None = None,
        mode: str = "micro-batch",
        branch: str = MAIN,
        from_branch: str | None = None,
        clock: str | datetime | None = None,
        clock_step: str | None = None,
        signals: "Sequence[str | Signal]" = (),
        publish: bool | None = None,
        full_sweep: bool = False,
        strict: bool = False,
        allow_new_aggregates: bool = False,
        without: Sequence[str] = (),
        dry_run: bool = False,
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "RunResult | DryRun":
        """Process what has landed, audit it, publish it. Or replay it on a branch of its own.

        ``pipeline`` is its definition; by default the one that the handle was opened with, else the registered one.
        A run makes at most ``max_epochs`` epochs, each of at most ``files_per_epoch`` files and ``bytes_per_epoch``
        bytes. None means no limit of epochs, and else the limits of the pipeline.

        ``executor`` is "spark", "local" or "auto"; ``mode`` is "micro-batch", "batch" or "replay". ``branch`` is the
        branch to run on. ``publish``: by default on main, unless it replays. Three arguments are for replays alone.
        ``from_branch`` is the branch or tag whose epochs run again. ``clock`` is the time of the first epoch, and
        ``clock_step`` the time from epoch to epoch ("5m").

        The first epoch gets ``signals``: names, or ``Signal`` values. ``full_sweep`` lists the whole landing prefix, to
        find stragglers. ``strict`` refuses if code of your own has changed since the last snapshot. With
        ``allow_new_aggregates`` aggregates that the last snapshot lacks start empty. ``without`` names outputs that
        stay as they are until a later run. ``listener`` is called with each line of progress, or is a ``Listener``.

        ``dry_run`` gives the stages that the run would perform, from which offsets to which, and what it would warn of.
        Nothing moves, starts or lands, and nothing is written. It raises what stands against the run.

        >>> [type(stage).__name__ for stage in handle.run(dry_run=True).stages]
        ['TakeBranch', 'RestoreState', 'ComputeEpochs', 'AuditBranch', 'PublishAudited']
        >>> handle.run(files_per_epoch=1, executor="local")
        <process of delays succeeded: 1 epochs; main at ... (epoch 2); published: ...; 0 warnings>
        """
        from headrace.runs.client.recording import look_ahead_of, run_recorded, told_to
        from headrace.runs.option_values import checked_fields
        from headrace.runs.options import Mode, RunOptions

        fields = checked_fields("run", locals())
        fields.setdefault("publish", fields["branch"] == MAIN and fields["mode"] is not Mode.REPLAY)
        options = RunOptions(self._new_run_id(), **fields, create=self._create)
        definition = self._needed_definition(pipeline, "run")
        if Arguments("run").flag("dry_run", dry_run):
            return look_ahead_of("process", definition, self.root, options)
        return run_recorded("process", definition, self.root, options, told_to(listener))

    @overload
    def backfill(
        self,
        pipeline: Definition | None = None,
        *,
        output: str | None = None,
        start: str | date | None = None,
        end: str | date | None = None,
        branch: str | None = None,
        promote: bool = False,
        patch: bool = False,
        files_per_epoch: int | None = None,
        bytes_per_epoch: int | None = None,
        executor: str | None = None,
        dry_run: Literal[False] = False,
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "RunResult": ...

    @overload
    def backfill(
        self,
        pipeline: Definition | None = None,
        *,
        output: str | None = None,
        start: str | date | None = None,
        end: str | date | None = None,
        branch: str | None = None,
        promote: bool = False,
        patch: bool = False,
        files_per_epoch: int | None = None,
        bytes_per_epoch: int | None = None,
        executor: str | None = None,
        dry_run: Literal[True],
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "DryRun": ...

    def backfill(
        self,
        pipeline: Definition | None = None,
        *,
        output: str | None = None,
        start: str | date | None = None,
        end: str | date | None = None,
        branch: str | None = None,
        promote: bool = False,
        patch: bool = False,
        files_per_epoch: int | None = None,
        bytes_per_epoch: int | None = None,
        executor: str | None = None,
        dry_run: bool = False,
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "RunResult | DryRun":
        """Read input again into a branch with the pipeline as it is now, audit it, and ``promote`` it if asked.

        Windows from ``start`` up to ``end`` are computed: days in UTC, or times with their zone; by default all. The
        result names the ``branch``. A backfill that was stopped goes on with it. ``pipeline``, ``files_per_epoch``,
        ``bytes_per_epoch``, ``executor`` and ``listener`` are those of ``run``.

        ``output``: only this one of several, and what is computed of it, in the epochs that main recorded. Promoted,
        main takes it over, and other outputs stay as they are. Raises UnknownOutputError, NotAdoptableError.

        ``patch``: rows of windows that have expired on main and on the branch replace those of main. Where there are
        several outputs, it patches the given ``output``. Nothing else changes; the branch stays. Raises what
        ``promote`` does of a patch.

        ``dry_run`` gives the stages, as ``run`` does, and nothing is done.

        >>> handle.backfill(branch="corrected", dry_run=True).stages[0].branch
        'corrected'
        >>> handle.backfill(branch="corrected")
        <backfill of delays succeeded: 2 epochs; corrected at ... (epoch 1); published: ...; 0 warnings>
        """
        from headrace.runs.client.recording import backfill_recorded, look_ahead_of, told_to
        from headrace.runs.option_values import checked_fields
        from headrace.runs.options import RunOptions

        options = RunOptions(self._new_run_id(), **checked_fields("backfill", locals()))
        definition = self._needed_definition(pipeline, "backfill")
        if Arguments("backfill").flag("dry_run", dry_run):
            return look_ahead_of("backfill", definition, self.root, options)
        return backfill_recorded(definition, self.root, options, told_to(listener), started_by=self._started_by)

    @overload
    def recover(
        self,
        snapshot: str,
        pipeline: Definition | None = None,
        *,
        executor: str | None = None,
        publish: bool = True,
        give_up_delivered: bool = False,
        with_readers: bool = False,
        leave: Sequence[str] = (),
        reader_roots: Sequence[str] = (),
        dry_run: Literal[False] = False,
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "RunResult": ...

    @overload
    def recover(
        self,
        snapshot: str,
        pipeline: Definition | None = None,
        *,
        executor: str | None = None,
        publish: bool = True,
        give_up_delivered: bool = False,
        with_readers: bool = False,
        leave: Sequence[str] = (),
        reader_roots: Sequence[str] = (),
        dry_run: Literal[True],
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "DryRun": ...

    def recover(
        self,
        snapshot: str,
        pipeline: Definition | None = None,
        *,
        executor: str | None = None,
        publish: bool = True,
        give_up_delivered: bool = False,
        with_readers: bool = False,
        leave: Sequence[str] = (),
        reader_roots: Sequence[str] = (),
        dry_run: bool = False,
        listener: "Listener | Callable[[str], None] | None" = None,
    ) -> "RunResult | DryRun":
        """Move main back to a snapshot, read everything after it again, audit it, and ``publish`` it.

        ``with_readers``: all pipelines that have read what is given up go back first, to one consistent cut, but for
        those to ``leave``; ``recovery_cut`` says where to, and which readers it cannot see. ``reader_roots`` are other
        roots to look for readers in. Their next runs read on from there. Raises ReadersCannotFollowError, before
        anything moves.

        If what readers see is newer than the snapshot, it moves back too, until the new results are published. Below
        what was handed over to a sink that cannot take back (``hr.final_rows``) only with ``give_up_delivered``.

        ``dry_run`` gives the stages, as ``run`` does, and nothing is done. ``pipeline``, ``executor`` and ``listener``
        are those of ``run``.

        >>> before = handle.show("main").parent
        >>> handle.recover(before)
        <recover of delays succeeded: ...>
        """
        from headrace.runs.client.recording import look_ahead_of, run_recorded, told_to
        from headrace.runs.option_values import checked_fields
        from headrace.runs.options import RunOptions

        fields = checked_fields("recover", locals())
        target_id = self._id_of(Arguments("recover").text("snapshot", snapshot, "3f0c9a7be2d14c55"))
        definition = self._needed_definition(pipeline, "recover")
        options = RunOptions(self._new_run_id(), snapshot=target_id, **fields)
        if Arguments("recover").flag("dry_run", dry_run):
            return look_ahead_of("recover", definition, self.root, options)
        return run_recorded("recover", definition, self.root, options, told_to(listener))

    def recovery_cut(
        self,
        snapshot: str,
        *,
        leave: Sequence[str] = (),
        reader_roots: Sequence[str] = (),
        give_up_delivered: bool = False,
    ) -> "RecoveryCut":
        """Where main of this pipeline and of all that read it would go back to with ``recover(with_readers=True)``. It
        says what each gives up, and which cannot go back, and why. Nothing moves.

        ``snapshot``, ``leave`` and ``give_up_delivered`` are those of ``recover``.

        Readers are seen under this root, under ``reader_roots`` and those that HEADRACE_READER_ROOTS and HEADRACE_ROOTS
        name, and wherever one holds something here; ``searched`` says where was looked. Raises RefusedError,
        UpstreamCycleError, MissingRootError.

        >>> before = handle.show("main").parent
        >>> [(str(move.pipeline), move.to) for move in handle.recovery_cut(before).moves]
        [('delays', '...'), ('airports', '...')]
        """
        from headrace.runs.recovery_target import recovery_cut

        target_id = self._id_of(Arguments("recovery_cut").text("snapshot", snapshot, "3f0c9a7be2d14c55"))
        give_up = Arguments("recovery_cut").flag("give_up_delivered", give_up_delivered)
        return recovery_cut(self._catalog, target_id, give_up_delivered=give_up, leave=leave, reader_roots=reader_roots)

    def replay_late(
        self,
        pipeline: Definition | None = None,
        *,
        output: str | None = None,
        to: str | None = None,
        at: At = PUBLISHED,
    ) -> "LandedLate":
        """Land the records that came too late once more, as files of the source's format; each only once. ``output``:
        those that one of several dropped.

        ``pipeline`` is its definition, as for ``run``. ``at`` names the snapshot whose late records land: a branch, a
        tag, an id or a time. ``to`` is the landing prefix: a path below the root, or a URI; by default that of the
        source, below ROOT/late.

        >>> landed = handle.replay_late(to="landing/corrected")
        >>> landed.records, landed.target
        (1, 'file:///.../landing/corrected')
        """
        from headrace.runs.dropped_records import land_late

        return land_late(
            self._needed_definition(pipeline, "replay_late"), self.root, output=output, destination=to, ref=at
        )

    def replay_rejected(
        self,
        pipeline: Definition | None = None,
        *,
        output: str | None = None,
        input: str | None = None,  # noqa: A002 (as --input)
        to: str | None = None,
        at: At = PUBLISHED,
    ) -> "LandedRejected":
        """Land dead letters (of one ``input``, or of all) again as they were, each only once. A pipeline that can read
        them now then reads them. Where there are several outputs, the letters that none could take land; ``output``:
        those that it could not and others could, which land beside what the pipeline reads.

        ``at`` names the snapshot whose dead letters land: a branch, a tag, an id or a time. ``to`` is the landing
        prefix: a path below the root, or a URI; by default that of each input, below ROOT/rejected.

        >>> landed = handle.replay_rejected()
        >>> landed.records, landed.targets
        (1, {'source': 'file:///.../rejected/landing/flights'})
        """
        from headrace.runs.dropped_records import land_rejected

        definition = self._needed_definition(pipeline, "replay_rejected")
        return land_rejected(definition, self.root, output=output, input_name=input, destination=to, ref=at)

    @overload
    def deliver(
        self,
        pipeline: Definition | None = None,
        *,
        output: str | None = None,
        sinks: Sequence[str] = (),
        take_over: bool = False,
        refill: bool = False,
        dry_run: Literal[False] = False,
        listener: "Callable[[Delivery], None] | None" = None,
    ) -> "tuple[Delivery, ...]": ...

    @overload
    def deliver(
        self,
        pipeline: Definition | None = None,
        *,
        output: str | None = None,
        sinks: Sequence[str] = (),
        take_over: bool = False,
        refill: bool = False,
        dry_run: Literal[True],
        listener: "Callable[[Delivery], None] | None" = None,
    ) -> "DryRun": ...

    def deliver(
        self,
        pipeline: Definition | None = None,
        *,
        output: str | None = None,
        sinks: Sequence[str] = (),
        take_over: bool = False,
        refill: bool = False,
        dry_run: bool = False,
        listener: "Callable[[Delivery], None] | None" = None,
    ) -> "tuple[Delivery, ...] | DryRun":
        """Make the sinks of the pipeline (those that are named, of one ``output`` or of all) hold what readers see.

        ``take_over`` replaces what another root or pipeline has delivered there, ``refill`` all that is there, whatever
        others have done to it. ``listener`` is told each delivery.
        Raises UnknownSinkError, MissingConnectionError, SinkTakenError, SinkRefusedError, SinkUnreachableError,
        SinkMovedError, UndeliverableError; a sink that raises holds what it held.

        ``dry_run`` gives the stages, as ``run`` does. It asks no sink, and nothing is done.

        >>> [(delivery.sink, delivery.written) for delivery in handle.deliver()]
        [('reports.delays', 3)]
        """
        from headrace.runs.delivering.deliver import deliver_all, plan_deliveries

        arguments = Arguments("deliver")
        definition = self._needed_definition(pipeline, "deliver")
        names = arguments.tuple_of("sinks", sinks, str, '"reports.sales"')
        takes_over, refills = arguments.flag("take_over", take_over), arguments.flag("refill", refill)
        if arguments.flag("dry_run", dry_run):
            from headrace.runs.plan import DryRun

            catalog = self._catalog
            return DryRun(
                definition.name,
                plan_deliveries(catalog, definition, output, names, take_over=takes_over, refill=refills),
            )
        return deliver_all(
            self._catalog,
            definition,
            output=output,
            names=names,
            take_over=takes_over,
            refill=refills,
            listener=listener or (lambda _: None),
        )

    def check_sinks(
        self,
        pipeline: Definition | None = None,
        *,
        output: str | None = None,
        sinks: Sequence[str] = (),
        limit: int = 20,
    ) -> "tuple[SinkCheck, ...]":
        """Compare what the sinks of the pipeline hold with what was delivered to them, row by row. ``sinks`` and
        ``output`` select some of them. It gives the first ``limit`` rows that differ. Nothing is written.

        Raises UnknownSinkError, MissingConnectionError, SinkRefusedError, SinkUnreachableError.

        >>> _ = handle.deliver()
        >>> comparison = handle.check_sinks()[0].comparison
        >>> comparison.ours, comparison.theirs, comparison.different
        (3, 3, 0)
        """
        from headrace.runs.delivering.checking import check_sinks

        arguments = Arguments("check_sinks")
        return check_sinks(
            self._catalog,
            self._needed_definition(pipeline, "check_sinks"),
            output=output,
            names=arguments.tuple_of("sinks", sinks, str, '"reports.sales"'),
            limit=arguments.whole_number("limit", limit, least=0),
        )

    def compare_with(
        self,
        table: str,
        *,
        connection: str | None = None,
        output: str | None = None,
        at: At = PUBLISHED,
        columns: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
        tolerance: float = 0.0,
        limit: int = 20,
    ) -> "TableComparison":
        """Compare what readers see (or another snapshot, ``at``) with any ``table``: ``postgres:reports.sales``,
        ``delta:reports/sales`` or ``iceberg:reports.sales`` of a ``connection``, or ``parquet:PATH``.

        ``output`` is the name of one of several. ``columns`` says what the table calls ours, ``without`` names columns
        that are not compared, and floats are the same within a relative ``tolerance``. All rows that differ are
        counted, and the first ``limit`` given. Raises ComparedTableError, ComparedColumnsError, MissingConnectionError,
        SinkRefusedError, SinkUnreachableError.

        >>> _ = handle.deliver()
        >>> comparison = handle.compare_with("delta:reports/delays", connection="lake", tolerance=1e-9)
        >>> comparison.only_ours, comparison.only_theirs, comparison.different
        (0, 0, 0)
        """
        from headrace.read.diff.target_comparison import ComparedColumns
        from headrace.runs.delivering.checking import compare_published

        arguments = Arguments("compare_with")
        reader = self if output is None else self[output]
        compared_columns = ComparedColumns(
            arguments.mapping("columns", columns or {}, str, '{"window_start": "hour"}', least=0),
            arguments.tuple_of("without", without, str, '"window_end"'),
            arguments.number("tolerance", tolerance, most=1),
        )
        limit = arguments.whole_number("limit", limit, least=0)
        return compare_published(reader, at, table, connection=connection, columns=compared_columns, limit=limit)


@check_keywords
def open(root: str, *, create: bool = False) -> "OpenDeployment":  # noqa: A001 (read as hr.open)
    """The pipelines under ``root``: ``file:///folder`` or ``s3://bucket/prefix``. A root that does not exist is an
    error, unless a run is to ``create`` it.

    Raises MissingRootError when there is no such root, FixConfigError for a URI that cannot be one.

    >>> list(hr.open(root))
    []
    """
    arguments = Arguments("open")
    store = open_store(arguments.text("root", root, "file:///data/headrace"))
    if not arguments.flag("create", create):
        check_root(store)
    return OpenDeployment(store, create=create)


class OpenDeployment(Deployment):
    """The pipelines under a root, by name or by their definition. What there is is looked up each time.

    >>> deployment = hr.open(root)
    >>> list(deployment)
    ['airports', 'delays', 'traffic']
    >>> deployment["delays"]
    <pipeline delays: published at ..., main at ...>
    """

    def __init__(self, store: ObjectStore, *, create: bool = False) -> None:
        """Open the root in ``store``. ``create``: runs make a root that does not exist, even if there is no input."""
        super().__init__(store)
        self._create = create

    def __getitem__(self, name: str | Pipeline) -> PipelineHandle:
        """The results of pipeline ``name``. Raises UnknownResultsError for a name without any."""
        return PipelineHandle(*self._find_pipeline(name), create=self._create)
