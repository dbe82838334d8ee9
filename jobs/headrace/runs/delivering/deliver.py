"""Deliver: make a sink hold what readers see, from whatever it says that it holds.

Publishing, releases, rollbacks, promotions and patches are one case, and need nothing undone. The target says which
snapshot it holds, and gets what lies between that one and ``published``.

``hand_over`` hands final rows over to a sink that cannot take them back. Before the first row an entry of the log says
up to which snapshot rows may be handed over; main goes nowhere without it from then on. After the last one another
entry says that they all were. Who dies between leaves the first alone, so all rows since the last that is known come
again. So each row comes at least once, with an id by which it is known.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final
from urllib.parse import unquote

import tenacity

from headrace.connections import Connection, connection
from headrace.errors import FixConfigError, HeadraceError
from headrace.ext import sinks as sink_ports
from headrace.model.expressions.data_types import in_words
from headrace.model.time import whole_seconds
from headrace.pipeline.endpoints import Sink
from headrace.pipeline.pipeline import Pipeline
from headrace.read.diff.appended_rows import final_rows_between, records_between
from headrace.read.diff.changes import changes_between, delivered_columns, table_columns
from headrace.read.shown_values import JsonFields
from headrace.read.views.columns import ViewColumns
from headrace.runs.plan import DeliverOutput
from headrace.runs.reporting.results import DeliveryNote, update_note
from headrace.sinks.failures import SinkTakenError, named_failures
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import UnknownOutputError
from headrace_snapshots.names import PUBLISHED, delivered_ref, delivering_ref, published_of
from headrace_snapshots.output_catalog import OutputCatalog
from headrace_snapshots.protocol.moves import BeginDelivery, EndDelivery, Head


def handed_over(head: Head, output: str, sink: Sink) -> str | None:
    """The snapshot up to which all final rows were handed over."""
    return head.refs.get(delivered_ref(output, sink.name))


def hand_over(
    catalog: Catalog,
    head: Head,
    output: str,
    sink: Sink,
    *,
    target: sink_ports.OpenReceiver,
    connection: Connection | None,
) -> int:
    """Hand the rows over that are final in what readers see at ``head``, and were not in what was handed over last. How
    many these are; without any, nothing is said in the log.

    Raises PublishConflictError if something moves meanwhile: the next delivery goes on.
    """
    published_id, last_handed = head.refs.get(PUBLISHED), handed_over(head, output, sink)
    if published_id is None or published_id == last_handed:
        return 0
    with final_rows_between(catalog, last_handed, catalog.manifest(published_id), sink.name, connection) as rows:
        if not rows.number:
            return 0
        log = Catalog(catalog.store, catalog.pipeline)
        if head.refs.get(delivering_ref(output, sink.name)) != published_id:
            log.record_delivery(BeginDelivery(output, sink.name, published_id))
        target.receive(rows)
        log.record_delivery(EndDelivery(output, sink.name, published_id))
        return rows.number


class UnknownSinkError(FixConfigError, code="config.unknown_sink"):
    """The pipeline has no sink of that name."""


_logger = logging.getLogger(__name__)

_FILE: Final = "file://"
_DELIVERY_ATTEMPTS: Final = 5
"""So often a delivery that another one came before looks again."""

_REASONS: Final = {
    sink_ports.FillReason.FIRST: "it had none",
    sink_ports.FillReason.OWNER: "what it held has another owner, or had another name",
    sink_ports.FillReason.COLUMNS: "what it held has other columns",
    sink_ports.FillReason.ACCUMULATION: "panes of what it held accumulate otherwise",
    sink_ports.FillReason.EXPIRED: "what it held has expired",
    sink_ports.FillReason.CHANGED: "others have changed it",
    sink_ports.FillReason.REFILL: "a person wants it",
    sink_ports.FillReason.UNPUBLISHED: "nothing is published",
}


@dataclass(frozen=True)
class Delivery(JsonFields):
    """What a delivery did to one sink. ``before`` and ``after`` are the snapshots that it held then and holds now;
    ``source`` is None if ``after`` was delivered already. ``reason``: why it got all rows or all panes, if it did.
    ``entry``: the last one of the log, by which this was decided.

    ``at``: when it was last written by us, in ISO 8601, None if that is not known. What others have done to it since,
    and can be seen, is in ``others``; they may have done more.
    """

    pipeline: str
    output: str
    sink: str
    before: str | None
    after: str | None
    source: sink_ports.ChangeSource | None
    reason: sink_ports.FillReason | None
    removed: int
    written: int
    seconds: float
    entry: int
    at: str | None = None
    others: str | None = None

    def describe(self) -> str:
        """What happened, in a line."""
        if self.source is None:
            return self._nothing_to_do()
        read = {
            sink_ports.ChangeSource.PANES: "the panes between",
            sink_ports.ChangeSource.DIFFERENCE: "the difference, since no panes lead from one to the other",
            sink_ports.ChangeSource.ALL_ROWS: "all rows",
            sink_ports.ChangeSource.ALL_PANES: "all panes that are kept",
            sink_ports.ChangeSource.FINAL_ROWS: "final rows, which it cannot take back",
        }[self.source]
        why = "" if self.reason is None else f", since {_REASONS[self.reason]}"
        if self.reason is sink_ports.FillReason.CHANGED:
            why = f", since it {self.others}"
        rows = f"{self.written:,} rows written, {self.removed:,} removed"
        others_text = self._others_text() if self.reason is None else ""
        return (
            f"sink {self.sink} held {self.before or 'nothing'}, holds {self.after or 'nothing'} ({read}{why}): {rows}"
            f"{others_text}"
        )

    def _nothing_to_do(self) -> str:
        if self.after is None and self.at is None:
            return f"sink {self.sink} holds nothing, which is what readers see: nothing to do"
        when = "" if self.at is None else f" at {self.at}"
        what = f"{self.after or 'nothing'}, which is what readers see"
        return f"sink {self.sink} was last written by us{when} with {what}: nothing to do{self._others_text()}"

    def _others_text(self) -> str:
        """What others have done, where it stays as it is."""
        if self.others is None:
            return ""
        return f". It {self.others} since: see headrace deliver --check, and --refill"


def deliver(catalog: Catalog, output: str, sink: Sink, *, take_over: bool = False, refill: bool = False) -> Delivery:
    """Make ``sink`` hold what readers see of ``output`` ("" of a pipeline without names), whose ``catalog`` it is.

    ``take_over`` replaces what another root, pipeline or output has delivered there; ``refill`` replaces all that is
    there with what readers see, whatever was delivered. Raises SinkTakenError,
    SinkMovedError, SinkRefusedError, SinkUnreachableError, UndeliverableError, MissingConnectionError; nothing has
    changed then. Raises SinkFailedError for what the code of a sink raises beside these.
    """
    began = time.monotonic()
    sink_connection = connection(sink.connection, kind=sink.kind) if sink.connection else Connection("", "")
    with named_failures(sink, sink_connection), sink_ports.SINKS[sink.kind].open(sink, sink_connection) as target:
        if isinstance(target, sink_ports.OpenReceiver):
            return _handed_over(catalog, output, sink, target, sink_connection if sink.connection else None)
        sink_state = target.held()
        others = None if sink_state is None else target.intervention(sink_state)
        head = catalog.head()
        published_id = head.refs.get(PUBLISHED)
        manifest = None if published_id is None else catalog.manifest(published_id)
        own = sink_ports.SinkState(
            catalog.store.uri,
            catalog.pipeline,
            output,
            published_id,
            _columns_in_words(manifest, sink_state, target),
            _last_record_number(target, sink_state),
            at=whole_seconds(datetime.now(UTC)),
        )
        if sink_state is not None and is_same_place(sink_state.root, own.root):
            own = replace(own, root=sink_state.root)  # whichever way somebody went there
        if sink_state is not None and (sink_state.number is None) is not (own.number is None):
            kinds = ("changes", "rows") if own.number is None else ("rows", "changes")
            raise sink_ports.SinkRefusedError(
                f"sink {sink.name} holds {kinds[0]}, and is to hold {kinds[1]}: name another table, or drop this one"
            )
        is_own = sink_state is not None and (sink_state.owner == own.owner or _is_former(catalog, sink_state, own))
        if sink_state is not None and not is_own and not take_over:
            rename_hint = (
                "if that was this output's name, let a run of the pipeline read something first; else "
                if sink_state.is_beside(own)
                else ""
            )
            raise SinkTakenError(
                f"sink {sink.name} holds rows of {_owner_text(sink_state)}, not of {_owner_text(own)}: "
                f"{rename_hint}name another table, or replace them with --take-over"
            )
        start_before = sink_state.snapshot if sink_state is not None and is_own else None
        is_changed = others is not None and others.is_mended
        delivery = Delivery(
            *own.owner[1:],
            sink.name,
            start_before,
            published_id,
            source=None,
            reason=None,
            removed=0,
            written=0,
            seconds=0.0,
            entry=head.entry,
            at=None if sink_state is None else sink_state.at,
            others=None if others is None else others.words,
        )
        has_nothing = sink_state is None and manifest is None
        if has_nothing or (sink_state == own and not is_changed and not refill):
            return replace(delivery, seconds=time.monotonic() - began)
        # what another root, or other columns, left there is of no use; whose rows these are is said with all of them
        is_alike = sink_state is not None and sink_state.columns == own.columns
        says_owner = isinstance(target, sink_ports.OpenChangeLog) or (
            sink_state is not None and sink_state.owner == own.owner
        )
        start = start_before if is_alike and says_owner and not is_changed and not refill else None
        if isinstance(target, sink_ports.OpenChangeLog):
            with _change_records(catalog, sink_state, own, start, manifest) as records:
                target.append(records, sink_state, replace(own, number=records.first + records.number - 1))
                applied_counts = sink_ports.AppliedCounts(records.withdrawn, records.added)
                source, reason = records.source, records.reason
        else:
            assert isinstance(target, sink_ports.OpenSink)
            with changes_between(catalog, start, manifest) as changes:
                applied_counts = target.apply(changes, sink_state, own)
                source, reason = changes.source, changes.reason
    if reason is sink_ports.FillReason.FIRST:
        reason = _of_no_use(sink_state, own, is_changed=is_changed, refill=refill)
    return replace(
        delivery,
        source=source,
        reason=reason,
        removed=applied_counts.removed,
        written=applied_counts.written,
        seconds=time.monotonic() - began,
        at=own.at,
    )


def _of_no_use(
    sink_state: sink_ports.SinkState | None, own: sink_ports.SinkState, *, is_changed: bool, refill: bool
) -> sink_ports.FillReason:
    """Why a delivery did not go out from ``sink_state``."""
    if sink_state is None:
        return sink_ports.FillReason.FIRST
    if is_changed:
        return sink_ports.FillReason.CHANGED
    if refill:
        return sink_ports.FillReason.REFILL
    if sink_state.snapshot is None:
        return sink_ports.FillReason.FIRST
    return sink_ports.FillReason.COLUMNS if sink_state.owner == own.owner else sink_ports.FillReason.OWNER


def _handed_over(
    catalog: Catalog, output: str, sink: Sink, target: sink_ports.OpenReceiver, sink_connection: Connection | None
) -> Delivery:
    began, head = time.monotonic(), catalog.head()
    old_snapshot, new_snapshot = handed_over(head, output, sink), head.refs.get(PUBLISHED)
    number = hand_over(catalog, head, output, sink, target=target, connection=sink_connection)
    source = sink_ports.ChangeSource.FINAL_ROWS if number else None
    seconds = time.monotonic() - began
    return Delivery(
        catalog.pipeline, output, sink.name, old_snapshot, new_snapshot, source, None, 0, number, seconds, head.entry
    )


def is_same_place(root: str, other: str) -> bool:
    """Whether two addresses lead to one folder: by a link, or as a folder was called before it was moved behind one."""
    paths = [unquote(one.removeprefix(_FILE)) for one in (root, other) if one.startswith(_FILE)]
    return root == other or (len(paths) == 2 and os.path.realpath(paths[0]) == os.path.realpath(paths[1]))


def _owner_text(sink_state: sink_ports.SinkState) -> str:
    return f"{sink_state.pipeline}{sink_state.output and '.' + sink_state.output} under {sink_state.root}"


def _is_former(catalog: Catalog, sink_state: sink_ports.SinkState, own: sink_ports.SinkState) -> bool:
    """Whether ``sink_state`` is of the output under a name that it had then."""
    if not isinstance(catalog, OutputCatalog) or sink_state.snapshot is None:
        return False
    return sink_state.is_beside(own) and catalog.was_called(sink_state.output, sink_state.snapshot)


def _last_record_number(target: sink_ports.OpenTarget, sink_state: sink_ports.SinkState | None) -> int | None:
    """The number of the last record; None of a target that holds rows."""
    if not isinstance(target, sink_ports.OpenChangeLog):
        return None
    return target.unknown_records() if sink_state is None else sink_state.number or 0


def _change_records(
    catalog: Catalog,
    sink_state: sink_ports.SinkState | None,
    own: sink_ports.SinkState,
    start: str | None,
    manifest: Manifest | None,
) -> AbstractContextManager[sink_ports.ChangeRecords]:
    """What leads a target that appends from ``start`` to ``manifest``. A target may have held rows of which nothing is
    known any more, or records of which it does not say what they led to. If ``sink_state`` says so, the first record
    says that these are void.
    """
    restarts = bool(own.number) if sink_state is None else sink_state.snapshot is not None
    return records_between(catalog, start, manifest, after_number=own.number or 0, restarts=restarts)


def _columns_in_words(
    manifest: Manifest | None, sink_state: sink_ports.SinkState | None, target: sink_ports.OpenTarget
) -> Mapping[str, str]:
    """Columns with their types in words; the columns of ``sink_state`` where nothing is published."""
    if manifest is None:
        return {} if sink_state is None else sink_state.columns
    view_columns = ViewColumns.from_json(manifest.schema)
    columns = (
        delivered_columns(view_columns) if isinstance(target, sink_ports.OpenChangeLog) else table_columns(view_columns)
    )
    return {name: in_words(kind) for name, kind in columns.items()}


def deliver_all(
    catalog: Catalog,
    pipeline: Pipeline,
    *,
    output: str | None = None,
    names: Sequence[str] = (),
    take_over: bool = False,
    refill: bool = False,
    listener: Callable[[Delivery], None] = lambda _: None,
) -> tuple[Delivery, ...]:
    """Deliver to the sinks that ``names`` name (none: to all) of an ``output`` (None: of all), one after another, and
    tell each delivery. A sink that fails does not keep others from theirs: what it raised is raised at the end.

    Raises UnknownSinkError, UnknownOutputError before anything is delivered.
    """
    deliveries, errors = [], []
    for stage in plan_deliveries(catalog, pipeline, output, names, take_over=take_over, refill=refill):
        _logger.info("%s", stage)
        name, sink = stage.output, stage.sink
        output_catalog = OutputCatalog(catalog, name) if name else catalog
        change_note = partial(update_note, catalog.store, catalog.pipeline, name, sink)
        first_entry = catalog.head().entry
        try:
            delivery = _deliver_with_retries(output_catalog, name, sink, take_over=take_over, refill=refill)
        except HeadraceError as error:
            errors.append(error)
            change_note(partial(DeliveryNote.with_failure, error=error, entry=first_entry))
        else:
            deliveries.append(delivery)
            change_note(_as_noted(output_catalog, delivery))
            listener(delivery)
    if errors:
        first, *others = errors
        for other in others:
            first.add_note(f"and another sink failed: {other}")
        raise first
    return tuple(deliveries)


def plan_deliveries(
    catalog: Catalog,
    pipeline: Pipeline,
    output: str | None,
    names: Sequence[str],
    *,
    take_over: bool = False,
    refill: bool = False,
) -> tuple[DeliverOutput, ...]:
    """A stage for each sink that ``deliver_all`` delivers to. Raises UnknownSinkError, UnknownOutputError."""
    published_ids = published_of(catalog.head().refs)
    return tuple(
        DeliverOutput(name, sink, published_ids.get(name), take_over, refill)
        for name, sink in chosen_sinks(pipeline, output, names)
    )


def _deliver_with_retries(catalog: Catalog, output: str, sink: Sink, *, take_over: bool, refill: bool) -> Delivery:
    """A delivery, which looks again where another one came before it: that one may have done all there was to do. The
    later one of two looks first, and not both at the same time.
    """
    attempts = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(_DELIVERY_ATTEMPTS),
        wait=tenacity.wait_random_exponential(0.2, max=5),
        retry=tenacity.retry_if_exception_type(sink_ports.SinkMovedError),
        reraise=True,
    )
    return attempts(deliver, catalog, output, sink, take_over=take_over, refill=refill)


def _as_noted(catalog: Catalog, delivery: Delivery) -> Callable[[DeliveryNote], DeliveryNote]:
    """What the note of its sink becomes by ``delivery``."""
    epoch = None if delivery.after is None else catalog.manifest(delivery.after).epoch
    return lambda note: note.with_delivery(delivery.after, epoch, delivery.written, delivery.removed, delivery.entry)


def chosen_sinks(pipeline: Pipeline, output: str | None, names: Sequence[str]) -> list[tuple[str, Sink]]:
    """Sinks that ``names`` name (none: all) of an ``output`` (None: of all), each with its output's name. Raises
    UnknownSinkError, UnknownOutputError.
    """
    outputs = pipeline.by_output
    if output is not None and output not in outputs:
        raise UnknownOutputError(
            f"pipeline {pipeline.name} has no output {output!r}; it has "
            f"{', '.join(filter(None, outputs)) or 'one without a name'}"
        )
    wanted_outputs = {output: outputs[output]} if output is not None else outputs
    sinks_by_output = [
        (output_name, sink) for output_name, output_pipeline in wanted_outputs.items() for sink in output_pipeline.sinks
    ]
    known_names = [sink.name for _, sink in sinks_by_output]
    for name in names:
        if name not in known_names:
            has = (
                f"it has {', '.join(known_names)}"
                if known_names
                else "it has none: write sinks=[...] into its definition"
            )
            owner = pipeline.name if output is None else f"{pipeline.name}.{output}"
            raise UnknownSinkError(f"{owner} has no sink {name!r}; {has}")
    return [(output_name, sink) for output_name, sink in sinks_by_output if not names or sink.name in names]
