"""Sizes, paces and patiences of this process, which a test makes small: what takes a million rows, or a minute, then
takes five. A name goes with what it sizes; users have none of them.

>>> with set_sizes(slice_rows=50, kept_entries=2):
...     deployment.run()
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any, TypedDict, Unpack, get_type_hints

from headrace.model.arguments import no_such_name
from headrace.this_process import Size


class Sizes(TypedDict, total=False):
    """Each size by its name, with the type of its value and the place where it stands, with its default and why."""

    cached_objects: Annotated[int, "headrace_snapshots.datafiles:CACHED_OBJECTS"]
    kept_entries: Annotated[int, "headrace_snapshots.expiry:KEPT_ENTRIES"]
    newest_format: Annotated[int, "headrace_snapshots.format.codec:FORMAT"]
    log_radix: Annotated[int, "headrace_snapshots.format.files:RADIX"]
    fanout: Annotated[int, "headrace_snapshots.format.files:FANOUT"]
    files_in_a_manifest: Annotated[int, "headrace_snapshots.format.manifest:MANY"]
    files_in_a_node: Annotated[int, "headrace_snapshots.format.manifest:LEAF"]
    s3_attempts: Annotated[int, "headrace_snapshots.store.s3:ATTEMPTS"]
    iceberg_rest_seconds: Annotated[tuple[float, float], "headrace.connectors.iceberg.patient_rest:SECONDS"]
    iceberg_connect_seconds: Annotated[int, "headrace.connectors.iceberg.sink:CONNECT_SECONDS"]
    kafka_patience: Annotated[float, "headrace.connectors.kafka.client:PATIENCE"]
    kafka_patience_at_first: Annotated[float, "headrace.connectors.kafka.client:PATIENCE_AT_FIRST"]
    kafka_request_ms: Annotated[int, "headrace.connectors.kafka.client:REQUEST_MS"]
    kafka_message_bytes: Annotated[int, "headrace.connectors.kafka.messages:MESSAGE_BYTES"]
    registry_tries: Annotated[int, "headrace.connectors.kafka.messages:REGISTRY_TRIES"]
    registry_seconds: Annotated[float, "headrace.connectors.kafka.messages:REGISTRY_SECONDS"]
    kafka_batch_bytes: Annotated[int, "headrace.connectors.kafka.offsets:BATCH_BYTES"]
    kafka_split_offsets: Annotated[int, "headrace.connectors.kafka.source:MOST_OFFSETS"]
    kafka_target_patience: Annotated[float, "headrace.connectors.kafka.target:PATIENCE"]
    kafka_end_seconds: Annotated[float, "headrace.connectors.kafka.target:END_SECONDS"]
    kafka_target_offsets: Annotated[int, "headrace.connectors.kafka.target:MOST_OFFSETS"]
    task_bytes: Annotated[int, "headrace.distribute.local:TASK_BYTES"]
    held_bytes: Annotated[int, "headrace.distribute.local:HELD_BYTES"]
    merge_step_rows: Annotated[int, "headrace.distribute.tasks.background:STEP_ROWS"]
    merge_pace: Annotated[int, "headrace.distribute.tasks.background:PACE"]
    merge_slice_rows: Annotated[int, "headrace.distribute.tasks.background:SLICE_ROWS"]
    fold_bytes: Annotated[int, "headrace.distribute.tasks.engine:FOLD_BYTES"]
    blob_bytes: Annotated[int, "headrace.distribute.tasks.exchange:BLOB_BYTES"]
    join_fold_rows: Annotated[int, "headrace.distribute.tasks.joins:FOLD_ROWS"]
    least_of_a_file: Annotated[int, "headrace.distribute.tasks.plan:LEAST_OF_A_FILE"]
    join_part_bytes: Annotated[int, "headrace.distribute.tasks.plan:JOIN_PART_BYTES"]
    most_of_a_share: Annotated[int, "headrace.distribute.tasks.plan:MOST_OF_A_SHARE"]
    most_of_a_part: Annotated[int, "headrace.distribute.tasks.plan:MOST_OF_A_PART"]
    line_window_bytes: Annotated[int, "headrace.formats.lines:WINDOW_BYTES"]
    line_bytes: Annotated[int, "headrace.formats.lines:MOST_BYTES"]
    join_long_part: Annotated[int, "headrace.kernel.joins.sides:LONG_PART"]
    join_shared_by: Annotated[int, "headrace.kernel.joins.sides:SHARED_BY"]
    join_anchor_rows: Annotated[int, "headrace.kernel.joins.step:ANCHOR_ROWS"]
    join_left_rows: Annotated[int, "headrace.kernel.joins.step:LEFT_ROWS"]
    join_right_rows: Annotated[int, "headrace.kernel.joins.step:RIGHT_ROWS"]
    join_piece_rows: Annotated[int, "headrace.kernel.joins.step:PIECE_ROWS"]
    join_samples: Annotated[int, "headrace.kernel.joins.step:SAMPLES"]
    hash_slice_rows: Annotated[int, "headrace.kernel.keys:SLICE_ROWS"]
    hash_bits: Annotated[int, "headrace.kernel.keys:HASH_BITS"]
    numbered_key_rows: Annotated[int, "headrace.kernel.keys:LEAST_ROWS"]
    rows_of_a_key: Annotated[int, "headrace.kernel.keys:ROWS_OF_A_KEY"]
    numbers_of_a_row: Annotated[int, "headrace.kernel.keys:NUMBERS_OF_A_ROW"]
    loop_slice_rows: Annotated[int, "headrace.kernel.loops:SLICE_ROWS"]
    open_part_rows: Annotated[int, "headrace.read.open_windows:PART_ROWS"]
    html_bytes: Annotated[int, "headrace.read.views.lazy_view:HTML_BYTES"]
    small_file_bytes: Annotated[int, "headrace.read.views.row_files:SMALL_BYTES"]
    files_before_names: Annotated[int, "headrace.runs.commits:AT_LEAST"]
    kept_results: Annotated[int, "headrace.runs.maintenance:KEPT_RESULTS"]
    parked_epochs: Annotated[int, "headrace.runs.parking:HOLD"]
    epochs_computed_again: Annotated[int, "headrace.runs.parking:AT_ONCE"]
    postgres_look_seconds: Annotated[float, "headrace.sinks.postgres_watch:LOOK_SECONDS"]
    compared_piece_bytes: Annotated[int, "headrace.sources.content_marks:PIECE_BYTES"]
    names_looked_up: Annotated[int, "headrace.sources.file_planning:AT_ONCE"]
    names_file_rows: Annotated[int, "headrace.sources.names_file:ROWS"]
    listing_page: Annotated[int, "headrace.sources.parallel_listing:PAGE"]
    listing_requests: Annotated[int, "headrace.sources.parallel_listing:AT_ONCE"]
    listing_pages_ahead: Annotated[int, "headrace.sources.parallel_listing:PAGES_AHEAD"]
    listing_pages_before_cut: Annotated[int, "headrace.sources.parallel_listing:PAGES_BEFORE_CUT"]
    listing_few_sought: Annotated[int, "headrace.sources.parallel_listing:FEW_SOUGHT"]
    chunk_rows: Annotated[int, "headrace.state.chunks:CHUNK_ROWS"]
    least_footers: Annotated[int, "headrace.state.chunks:LEAST_FOOTERS"]
    most_of_a_file: Annotated[float, "headrace.state.chunks:MOST_OF_A_FILE"]
    cache_look_seconds: Annotated[int, "headrace.state.file_cache:LOOK_SECONDS"]
    prefix_rows: Annotated[int, "headrace.state.file_cache:PREFIX_ROWS"]
    run_bytes: Annotated[int, "headrace.state.file_cache:RUN_BYTES"]
    file_bytes: Annotated[int, "headrace.state.files:FILE_BYTES"]
    file_batch_rows: Annotated[int, "headrace.state.files:BATCH_ROWS"]
    hold_rows: Annotated[int, "headrace.state.layers:FEW"]
    slice_rows: Annotated[int, "headrace.state.layers:SLICE_ROWS"]
    merge_range_bytes: Annotated[int, "headrace.state.migration:RANGE_BYTES"]
    conformance_line_seconds: Annotated[float, "headrace_lab.conformance.runner:SECONDS_BETWEEN_LINES"]
    merge_samples: Annotated[int, "headrace.state.migration:SAMPLES"]


@cache
def places() -> dict[str, str]:
    """The place of each size (``module:attribute``), by its name."""
    return {name: kind.__metadata__[0] for name, kind in get_type_hints(Sizes, include_extras=True).items()}


def find_size(name: str) -> Size[Any]:
    """The size of a name. Raises AttributeError for none."""
    if name not in places():
        raise no_such_name("headrace_lab.sizes", name, [*places()])
    module, _, attribute = places()[name].partition(":")
    size: Size[Any] = getattr(import_module(module), attribute)
    return size


@contextmanager
def set_sizes(**values: Unpack[Sizes]) -> Iterator[None]:
    """Inside, sizes have these values, for all threads of this process and for those that it forks; then those before.

    A decorator, too. Raises AttributeError for a name of no size, before any is set.
    """
    sizes = {name: find_size(name) for name in values}
    values_by_name_before = {name: size.value for name, size in sizes.items()}
    try:
        for name, value in values.items():
            sizes[name].value = value
        yield
    finally:
        for name, value in values_by_name_before.items():
            sizes[name].value = value
