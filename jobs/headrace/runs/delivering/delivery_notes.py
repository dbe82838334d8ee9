"""What deliveries leave in the root: which snapshot each sink held last, for people who do not connect to it.

The sink itself says what it holds, and deliveries ask it. Nothing but pages for people reads these notes; they name no
connection and quote no message, and may be deleted.
"""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from headrace.errors import HeadraceError
from headrace.model.time import whole_seconds
from headrace.pipeline.endpoints import Sink
from headrace.runs.reporting.results import redact_secrets
from headrace_snapshots.format.codec import seal_fields, unseal_fields
from headrace_snapshots.names import ObjectKind, delivery_path, object_folder
from headrace_snapshots.store import ObjectNotFoundError, ObjectStore

FORMAT: Final = 1
_log = logging.getLogger(__name__)


class DeliveryNote(msgspec.Struct, frozen=True):
    """What a ``sink`` of an ``output`` ("": the one without a name) held when it was last seen: the ``snapshot`` of an
    ``epoch`` (None: nothing), since the delivery at ``delivered_at``, which wrote and removed so many rows.

    ``failed_at`` and ``error_code`` tell of a delivery after that which failed. Times are ISO 8601 in UTC. ``entry``:
    the last one of the catalog's log when the delivery looked. One that looked before, and comes late, changes no note:
    the sink has refused it, or it was applied first.
    """

    output: str
    sink: str
    kind: str
    snapshot: str | None = None
    epoch: int | None = None
    delivered_at: str | None = None
    written: int = 0
    removed: int = 0
    failed_at: str | None = None
    error_code: str | None = None
    entry: int = -1

    def with_delivery(
        self, snapshot: str | None, epoch: int | None, written: int, removed: int, entry: int
    ) -> "DeliveryNote":
        """The note after a delivery that looked at ``entry``, and left the sink with ``snapshot``; without rows if it
        held that already.
        """
        if entry < self.entry:
            return self
        if self.delivered_at is not None and self.snapshot == snapshot and not written and not removed:
            return msgspec.structs.replace(self, failed_at=None, error_code=None)
        return DeliveryNote(
            self.output,
            self.sink,
            self.kind,
            snapshot,
            epoch,
            whole_seconds(datetime.now(UTC)),
            written,
            removed,
            entry=entry,
        )

    def with_failure(self, error: HeadraceError, entry: int) -> "DeliveryNote":
        """The note after a delivery that began at ``entry`` and failed: the sink holds what it held."""
        if entry < self.entry:
            return self
        return msgspec.structs.replace(self, failed_at=whole_seconds(datetime.now(UTC)), error_code=error.code)


def update_note(
    store: ObjectStore, pipeline: str, output: str, sink: Sink, renewed: Callable[[DeliveryNote], DeliveryNote]
) -> None:
    """Keep what ``renewed`` makes of the note of a sink, if that is another one.

    A get and a put. What was delivered is delivered: if the store refuses, a warning says so.
    """
    path = delivery_path(pipeline, output, sink.name)
    try:
        old_note = _read_note(store, path) or DeliveryNote(output, sink.name, sink.kind)
        new_note = renewed(old_note)
        if new_note != old_note:
            store.write(path, seal_fields({"format": FORMAT, **msgspec.to_builtins(new_note)}))
    except HeadraceError as error:
        why = f"{error.code}: {redact_secrets(str(error))}"
        _log.warning(
            "what sink %s of %s holds is not noted (%s): Airflow's pages do not show it", sink.name, pipeline, why
        )


def read_notes(store: ObjectStore, pipeline: str) -> list[DeliveryNote]:
    """The notes of all sinks of a pipeline that can be read, by output and sink."""
    paths = [info.path for info in store.list(object_folder(pipeline, ObjectKind.DELIVERIES))]
    read = (_read_note(store, path) for path in paths)
    return sorted((one for one in read if one is not None), key=lambda one: (one.output, one.sink))


def _read_note(store: ObjectStore, path: str) -> DeliveryNote | None:
    """The note at ``path``; None if there is none, or one that is damaged or of another version."""
    try:
        fields = unseal_fields(json.loads(store.read(path)))
        return msgspec.convert(fields, DeliveryNote) if fields.pop("format") == FORMAT else None
    except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
