"""What can stand against a promotion: files that it has not read, and what sinks got that cannot take back.

Which files snapshots have read, by input: what a branch that is to replace main must have read too.

What was handed over to sinks that cannot take back, where a branch is to become main, or an output another one's.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from headrace.errors import FixConfigError
from headrace.read.snapshots.read_names import left_out
from headrace.sources.file_planning import is_unfinished
from headrace.sources.landed.files import landed_as
from headrace_snapshots.catalog import Catalog, Head
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import InputFile
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.table_names import INPUTS
from headrace_snapshots.layout import landed_file
from headrace_snapshots.refs import delivery_of, is_delivery


def lacking(pipeline: str, branch_files: set[str], main_files: set[str]) -> list[str]:
    """The paths of one input that are in ``main_files`` and not in ``branch_files``. Of an input that reads from
    another place now only numbers can be compared; what a pipeline has landed is always in one place. Names of files
    under way, which were input before 0.2.0, count only where the branch reads such.
    """
    if not any(map(is_unfinished, branch_files)):
        main_files = {path for path in main_files if not is_unfinished(path)}
    is_one_place = bool(branch_files & main_files) or all(
        any(landed_file(pipeline, path) is not None for path in files) for files in (branch_files, main_files)
    )
    return sorted(main_files - branch_files) if is_one_place or len(branch_files) < len(main_files) else []


def files_main_read(catalog: Catalog, head: str, begin: Manifest | None) -> Mapping[str, set[str]]:
    """Files that main has read, by input: a branch that begins at ``begin`` must have read them too, or must find them.
    Copies landed again are left out where the branch reads the originals. Broken snapshots of main are skipped: a
    backfill replaces them.
    """
    for manifest in catalog.readable(head):
        with suppress(BrokenObjectError):
            read = files_read(catalog, manifest)
            copies = left_out(catalog, begin, (path for paths in read.values() for path in paths))
            known = {name: {path for path in paths if path not in copies} for name, paths in read.items()}
            return defaultdict(set, known)
    return defaultdict(set)


def files_read(catalog: Catalog, manifest: Manifest | None) -> Mapping[str, set[str]]:
    """The paths of all files that were read up to ``manifest`` (None: none), by input."""
    files: dict[str, set[str]] = defaultdict(set)
    for file in _inputs(catalog, manifest):
        files[file.input].add(landed_as(catalog.pipeline, file))
    return files


def files_as_read(catalog: Catalog, manifest: Manifest | None, name: str) -> Mapping[str, InputFile]:
    """All files of the input ``name`` that were read up to ``manifest`` (None: none), as they were then, by path."""
    return {file.path: file for file in _inputs(catalog, manifest) if file.input == name}


def _inputs(catalog: Catalog, manifest: Manifest | None) -> Iterator[InputFile]:
    for record in () if manifest is None else catalog.files(manifest.logs[INPUTS]):
        yield from (file for file in record.files if isinstance(file, InputFile))


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
