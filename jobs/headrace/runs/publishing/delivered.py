"""What was handed over to sinks that cannot take back, where a branch is to become main, or an output another one's."""

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.errors import FixConfigError
from headrace_snapshots.catalog import Catalog, Head
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.refs import delivery_of, is_delivery


@dataclass(frozen=True)
class HandedOver:
    """Rows of an ``output`` ("": the one without a name) up to a ``snapshot``, which a ``sink`` has got."""

    output: str
    sink: str
    snapshot: str

    def __str__(self) -> str:
        of = f" of output {self.output}" if self.output else ""
        return f"rows{of} up to {self.snapshot} were handed over to sink {self.sink}, which cannot take them back"


def handed_over(head: Head) -> Iterator[HandedOver]:
    """What the log says at ``head`` that sinks have got."""
    for ref in sorted(filter(is_delivery, head.refs)):
        yield HandedOver(*delivery_of(ref), head.refs[ref])


class DeliveredError(FixConfigError, code="config.delivered"):
    """The branch lacks what was handed over to a sink that cannot take it back."""


def check_begins_with(catalog: Catalog, now: Head, branch: str, begin: Manifest | None) -> None:
    """Raise DeliveredError if ``branch`` begins before what was handed over."""
    for rows in _lacking(catalog, now, begin):
        raise DeliveredError(
            f"{rows}, and branch {branch} would begin before them. Run the backfill without "
            f"--promote, then `headrace promote {catalog.pipeline} {branch} --give-up-delivered`, or --patch, "
            "which replaces rows"
        )


def check_has(catalog: Catalog, now: Head, branch: str, newest: Manifest) -> None:
    """Raise DeliveredError if ``branch``, whose snapshot is the ``newest``, lacks what was handed over."""
    for rows in _lacking(catalog, now, newest):
        raise DeliveredError(
            f"{rows}, and branch {branch} lacks them: promote it with --give-up-delivered (in Airflow: *Give up what "
            "was delivered*), or as a patch, which replaces rows"
        )


def _lacking(catalog: Catalog, now: Head, manifest: Manifest | None) -> Iterator[HandedOver]:
    """What was handed over and is not in ``manifest``."""
    for rows in handed_over(now):
        if manifest is None or not catalog.is_ancestor(rows.snapshot, manifest.snapshot_id):
            yield rows
