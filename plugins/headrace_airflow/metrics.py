"""What epochs did, as metrics in Airflow's own channel: StatsD, Datadog or OpenTelemetry, as ``[metrics]`` says.

Every metric has the tags ``pipeline`` and ``branch``, and ``root`` where that has a name. Names are in
docs/how-to/airflow.md.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import takewhile

from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats

from headrace.model.time import MIN_INSTANT, UNITS
from headrace_airflow.roots.root import Root, RootedPipeline
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest

_CHANNELS = ("statsd_on", "statsd_datadog_enabled", "otel_on")
_COUNTS = {"records": "records", "rejected": "rejected", "late": "late_dropped"}
_log = logging.getLogger("airflow.task")


@contextmanager
def epochs_measured(rooted: RootedPipeline, branch: str) -> Iterator[None]:
    """Send the metrics of each epoch that was committed to a branch inside, also if what is inside fails then.

    It asks the catalog and each new manifest, and only if Airflow has a channel. What goes wrong with that is in the
    task's log, and fails nothing.
    """
    if not any(conf.getboolean("metrics", channel, fallback=False) for channel in _CHANNELS):
        yield
        return
    catalog = rooted.catalog()
    before = _generation(catalog, branch)
    try:
        yield
    finally:
        try:
            for manifest in _since(catalog, branch, before):
                _send(manifest, rooted.root)
        except Exception:  # whatever it is, the run is what it is
            _log.exception("no metrics of these epochs were sent")


def _generation(catalog: Catalog, branch: str) -> int:
    return catalog.head().generations.get(branch, 0)


def _since(catalog: Catalog, branch: str, before: int) -> list[Manifest]:
    """The epochs of writers that have claimed the branch since ``before``, oldest first."""
    head = catalog.head().refs.get(branch)
    if head is None:
        return []
    newer = takewhile(lambda link: link.branch == branch and link.generation > before, catalog.ancestry(head))
    return [manifest for manifest in newer if not manifest.is_patch][::-1]


def _send(manifest: Manifest, root: Root) -> None:
    from headrace.observe.history import EpochFigures
    from headrace.runs.reporting.summary import written_bytes

    tags = {"pipeline": manifest.pipeline, "branch": manifest.branch, **({"root": root.name} if root.name else {})}
    stats.incr("headrace.epochs", tags=tags)
    for name, counted in _COUNTS.items():
        stats.incr(f"headrace.{name}", manifest.counts.get(counted, 0), tags=tags)
    stats.incr("headrace.written_bytes", written_bytes(manifest), tags=tags)
    stats.incr("headrace.requests", sum(manifest.requests.values()), tags=tags)
    stats.timing("headrace.epoch_duration", timedelta(seconds=sum(manifest.timings.values())), tags=tags)
    figures = EpochFigures.of(manifest)
    if figures.watermark > MIN_INSTANT:
        lag = (figures.processing_time - figures.watermark) / UNITS["seconds"]
        stats.gauge("headrace.watermark_lag_seconds", lag, tags=tags)
