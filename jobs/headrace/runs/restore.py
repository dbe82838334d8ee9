"""Whether a pipeline can continue from a snapshot, and from which: the newest that is whole.

``check_continues`` asks it of a snapshot that another definition may have made, ``check_code`` of other code.

``input_given_up`` is what a run says whose branch somebody has moved back.

``restore_head`` holds a snapshot's state against its manifest, and falls back to the newest whole snapshot when it is
broken. A fall-back is what ``recover`` does, without a person. The branch moves back by a recorded catalog entry that
names what is broken, and what came after is read again. Three things it does not do by itself:

* **Move ``published`` back.** When no snapshot from ``published`` on is whole, readers would see older results until
  the replay is audited; if that fails, for good. So the run stops with BelowPublishedError, which names the newest
  whole snapshot. A person rolls back to it, or runs a backfill, which leaves readers where they are. While nothing is
  published there is no such floor: the branch may fall back to its beginning.
* **Lose input.** Whatever later epochs had read must still lie there as it was, or the run stops with InputGoneError.
* **Take a store that does not answer for one that has lost something.** Such errors end the run as they always do.

Only what a restore reads is verified: the manifest, the files of state, and the names of input files not to be read
again. The files of views are readers' matter. The executor says how a file of state is verified. One that it has
verified before, and that has not been touched since, it need not read again.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain

import msgspec

from headrace.errors import FixConfigError, FixDataError, RestoreError
from headrace.pipeline.identity import fingerprint
from headrace.pipeline.loading.code_digests import changed_code
from headrace.pipeline.pipeline import Pipeline
from headrace.read.definition_plan import Action, Plan, describe_changes, plan_definition_change
from headrace.read.snapshots.progress import input_file, progress_of
from headrace.read.snapshots.read_names import left_out
from headrace.runs.reporting.listener import number_of
from headrace.sources.landing import Landing
from headrace_snapshots.catalog import Catalog, Claim, Link
from headrace_snapshots.datafiles import check_size, list_objects
from headrace_snapshots.errors import MissingSnapshotError
from headrace_snapshots.format.codec import BrokenObjectError
from headrace_snapshots.format.files import DataFile, InputFile, UnfinishedMerge
from headrace_snapshots.format.manifest import INPUTS, Manifest, is_current
from headrace_snapshots.format.output_view import outputs_of, seen_by
from headrace_snapshots.names import MAIN
from headrace_snapshots.output_catalog import describe_given_up, given_up_warning, how_back, patches_given_up
from headrace_snapshots.protocol.moves import Kind
from headrace_snapshots.store import ObjectInfo, do_all


class ChangedPipelineError(FixConfigError, code="config.changed_pipeline"):
    """The state of the snapshot was made by another definition of the pipeline."""


class ChangedCodeError(FixConfigError, code="config.changed_code"):
    """Code of the user's own has changed since the snapshot, and the run is strict."""


def check_continues(pipeline: Pipeline, manifest: Manifest, *, allow_new_aggregates: bool, parks: bool = False) -> None:
    """Raise ChangedPipelineError unless ``pipeline`` can use the state of ``manifest``. ``allow_new_aggregates``: also
    where aggregates start empty for it, which is for people to say. ``parks``: it is enough if one output can, where
    outputs have names; the others wait.
    """
    had = outputs_of(manifest)
    if parks and pipeline.has_names and had:
        changed_names = changed_outputs(pipeline, manifest, allow_new_aggregates=allow_new_aggregates)
        if any(output in had and output not in changed_names for output in pipeline.outputs):
            return
    check_same_outputs(pipeline, manifest)
    for output, output_pipeline in pipeline.by_output.items():
        _check_output(
            output,
            plan_definition_change(output_pipeline, seen_by(manifest, output)),
            allow_new_aggregates=allow_new_aggregates,
        )


def changed_outputs(pipeline: Pipeline, manifest: Manifest, *, allow_new_aggregates: bool) -> dict[str, str]:
    """The outputs of ``pipeline`` that mean something else than in ``manifest``, which has them; what to do."""
    reason_by_output: dict[str, str] = {}
    for output in (name for name in outputs_of(manifest) if name in pipeline.outputs):
        difference = plan_definition_change(pipeline.by_output[output], seen_by(manifest, output))
        try:
            _check_output(output, difference, allow_new_aggregates=allow_new_aggregates)
        except ChangedPipelineError as error:
            reason_by_output[output] = str(error)
    return reason_by_output


def check_same_outputs(pipeline: Pipeline, manifest: Manifest) -> None:
    """Raise ChangedPipelineError unless ``manifest`` has the outputs of ``pipeline``, by their names."""
    now, recorded_outputs = set(pipeline.outputs), set(outputs_of(manifest))
    if now == recorded_outputs:
        return
    has, had = (", ".join(sorted(names)) or "one without a name" for names in (now, recorded_outputs))
    raise ChangedPipelineError(
        f"pipeline {pipeline.name} has other outputs since snapshot {manifest.snapshot_id} (epoch {manifest.epoch}): "
        f"now {has}, then {had}. Run `headrace backfill {pipeline.name}` (or the backfill DAG), which computes all of "
        "them of all input in a new branch and cuts over; or take the change back"
    )


def _check_output(output: str, difference: Plan, *, allow_new_aggregates: bool) -> None:
    if difference.action is Action.REPLAY:
        next_step = (
            f"`headrace backfill {difference.pipeline}.{output} --promote`, which computes it again in a branch that "
            "main adopts it from"
            if output
            else f"`headrace backfill {difference.pipeline}` (or the backfill DAG), which replays all input into a new "
            "branch and cuts over"
        )
        means = (
            "Rows that stand are of what it was"
            if difference.are_rows
            else "Its state means something else now (`headrace plan` says of which aggregations)"
        )
        raise ChangedPipelineError(
            f"{definition_change(difference, output)}. {means}. Run {next_step}; or take the change back"
        )
    if difference.starting_empty and not allow_new_aggregates:
        raise ChangedPipelineError(
            f"{definition_change(difference, output)}. Choose for {', '.join(difference.starting_empty)}: "
            f"{difference.choice}"
        )


def definition_change(difference: Plan, output: str = "") -> str:
    """The parts of the definition of an ``output`` that have changed since the snapshot, in a line."""
    snapshot_text = f"snapshot {difference.snapshot} (epoch {difference.epoch})"
    what = f"output {output} of pipeline" if output else "pipeline"
    return f"{what} {difference.pipeline} has changed since {snapshot_text}: {describe_changes(difference.changes)}"


def check_code(pipeline: Pipeline, manifest: Manifest, *, strict: bool) -> str | None:
    """A warning if own code has changed since ``manifest``. Raises ChangedCodeError where it is ``strict``."""
    changed_modules = changed_code(pipeline, manifest.code)
    if not changed_modules:
        return None
    reason = (
        f"the code of {', '.join(changed_modules)} has changed since snapshot {manifest.snapshot_id} (epoch "
        f"{manifest.epoch}): the code as it was made the results so far"
    )
    if strict:
        raise ChangedCodeError(
            f"{reason}. Take the change back, run `headrace backfill {pipeline.name}` (or the backfill DAG), or leave "
            "out --strict"
        )
    return f"{reason}. A backfill computes them all again"


_READERS = 8
_MOST_NAMED = 3
_logger = logging.getLogger(__name__)

Verify = Callable[[Manifest, str, DataFile, ObjectInfo | None], None]
"""Check one file of a table of state, by its snapshot and what a listing says of the file, if one does. It raises
BrokenObjectError unless the file is what was written.
"""

ListMissing = Callable[[Manifest | None, Iterable[InputFile]], list[str]]
"""The paths of those files that a run from a manifest would not find as they were when they were read."""


class BelowPublishedError(RestoreError, code="restore.below_published"):
    """The newest whole snapshot is older than what readers see: going back to it is a person's decision."""


class InputGoneError(FixDataError, code="data.input_gone"):
    """A fall-back, recovery, replay or backfill would read input again that is not there any more, or not as it was."""


class RestoredRun(msgspec.Struct, frozen=True):
    """What a run starts from: its claim and the head of its branch. ``warning``: why that is not the head it found."""

    claim: Claim
    head: Manifest | None
    warning: str | None = None


def restore_head(
    catalog: Catalog,
    claim: Claim,
    check_manifest: Callable[[Manifest], Manifest],
    verify: Verify,
    list_missing: ListMissing,
    *,
    progress: Callable[[Manifest], object] | None = None,
) -> RestoredRun:
    """Continue from the head of ``claim``, or from the newest whole snapshot below it.

    ``check_manifest`` gives a manifest as the pipeline continues from it, or raises. ``progress`` reads how far one has
    come, where the caller remembers that; it raises BrokenObjectError as ``progress_of``. Raises BelowPublishedError,
    InputGoneError, FencedError, and what the callables raise."""
    if claim.snapshot_id is None:
        return RestoredRun(claim, None)
    files = _Restorable(catalog, verify, progress or partial(progress_of, catalog))
    broken_links: list[Link] = []
    whole: Manifest | None = None
    for link in catalog.lineage(claim.snapshot_id):
        if link.manifest is not None and not files.problems(manifest := check_manifest(link.manifest)):
            whole = manifest
            break
        broken_links.append(link)
    if not broken_links:
        return RestoredRun(claim, whole)
    reason = _broken_reason(broken_links, files)
    _check_published(catalog, claim, broken_links, whole, reason)
    warning = f"{catalog.pipeline}: {reason}"
    if not _check_input(catalog, broken_links, whole, list_missing, reason):
        warning += (
            "; the manifest that named its input is broken, so Headrace cannot tell whether all of it is still there"
        )
    if any(link.manifest is None for link in broken_links):
        warning += "; if signals were given to an epoch whose manifest is broken, give them again"
    target_text = "its beginning" if whole is None else f"snapshot {whole.snapshot_id} (epoch {whole.epoch})"
    target_id = None if whole is None else whole.snapshot_id
    patches = patches_given_up(catalog, claim.snapshot_id, target_id)
    lost_patches = [*describe_given_up(catalog, patches, target_id)]
    claim = catalog.step_back(claim, target_id, f"fell back to the newest whole snapshot: {reason}", patches=patches)
    warning += f". Branch {claim.branch} fell back to {target_text}; what came after is read again"
    warning += f". Output patches are lost: {'; '.join(lost_patches)}" if lost_patches else ""
    _logger.warning(warning)
    return RestoredRun(claim, whole, warning)


def input_given_up(catalog: Catalog, pipeline: Pipeline, branch: str, head: Manifest | None) -> str | None:
    """What a run is to say that finds ``branch`` at ``head``: files that a rollback gave up are gone, so no run reads
    them again. None if nobody moved it back, or all files are there. Every run says that of landed records.
    """
    newest_move = catalog.last_move(branch)
    given_up_id = None if newest_move is None else newest_move.moves[branch][0]
    if newest_move is None or newest_move.kind is not Kind.ROLLBACK or given_up_id is None:
        return None
    with suppress(BrokenObjectError, MissingSnapshotError):  # of what cannot be read nobody knows its input
        if head is None or catalog.is_ancestor(head.snapshot_id, given_up_id):
            gone_paths = gone_since(catalog, pipeline, catalog.manifest(given_up_id), head, with_landed=False)
            return _gone_text(branch, given_up_id, gone_paths) if gone_paths else None
    return None


def _gone_text(branch: str, given_up_id: str, gone_paths: Sequence[str]) -> str:
    return (
        f"a rollback of branch {branch} gave up snapshot {given_up_id}, and {number_of(len(gone_paths), 'file')} that "
        f"had been read by then cannot be read again: {name_some(gone_paths)}. Results have their records no more. Put "
        "the files back, and run again"
    )


def gone_since(
    catalog: Catalog, pipeline: Pipeline, newest: Manifest, target: Manifest | None, *, with_landed: bool = True
) -> list[str]:
    """The paths of input that ``newest`` and what is between had read after ``target`` (None: ever), and that nobody
    can read again; ``with_landed``: also of inputs that are landed. A file with other content than it had is read as it
    is; nothing is said of files in another place than now.
    """
    records = catalog.file_records(newest.logs[INPUTS], since_epoch=-1 if target is None else target.epoch)
    read = [file for record in records for file in record.files if isinstance(file, InputFile)]
    copies = left_out(catalog, target, (file.path for file in read))
    landing = Landing(pipeline, catalog.store)
    gone_paths: list[str] = []
    for name in filter(landing.is_repeatable, landing.enumerators):
        if name in landing.landers and not with_landed:
            continue
        splits = [input_file(file) for file in read if file.input == name and file.path not in copies]
        if name in landing.files:
            landed_splits = [split for split in splits if split.path.startswith(landing.files[name].prefix)]
            gone_paths += landing.gone_paths(name, landed_splits)
        else:
            gone_paths += [split.path for split, _ in landing.missing_splits(name, splits)]
    return gone_paths


def merges_to_continue(
    catalog: Catalog, pipeline: Pipeline, head: Manifest | None, verify: Verify
) -> Mapping[str, Sequence[UnfinishedMerge]]:
    """The merges of ``head`` that go on, by table. They begin again where the definition has changed, or a file of what
    is done is not there any more. Files that become state are held against their checksums, as those of layers are.
    """
    if head is None or head.fingerprint != fingerprint(pipeline):
        return {}

    def is_whole(table: str, merge: UnfinishedMerge) -> bool:
        def check(file: DataFile) -> None:
            info = infos.get(file.path)
            check_size(catalog.store, file, info) if is_current(table) else verify(head, table, file, info)

        try:
            files = [*chain(*merge.files)]
            infos = list_objects(catalog.store, (file.path for file in files))
            do_all(catalog.store, check, files)
        except BrokenObjectError as error:
            _logger.info("a merge begins again: %s", error)
            return False
        return True

    return {table: [merge for merge in merges if is_whole(table, merge)] for table, merges in head.merges.items()}


class _Restorable:
    """What a restore reads: state files, each verified once however many snapshots name it; offsets."""

    def __init__(self, catalog: Catalog, verify: Verify, progress: Callable[[Manifest], object]) -> None:
        self._catalog, self._verify, self._progress = catalog, verify, progress
        self._error_by_path: dict[str, BrokenObjectError | None] = {}
        self._infos: Mapping[str, ObjectInfo] = {}

    def problems(self, manifest: Manifest) -> list[BrokenObjectError]:
        """What is wrong with what ``manifest`` names; once something is known to be broken nothing else is read."""
        tables = [name for name in manifest.tables if not is_current(name)]
        try:
            self._catalog.layers(manifest, tables)
        except BrokenObjectError as error:
            return [error]
        files_by_path = {
            file.path: (manifest, name, file)
            for name in tables
            for layer in manifest.tables[name]
            for file in layer.files
        }
        if not (broken_files := self._known_problems(files_by_path)):
            unread = [named_file for path, named_file in files_by_path.items() if path not in self._error_by_path]
            self._infos = list_objects(self._catalog.store, (file.path for *_, file in unread))
            with ThreadPoolExecutor(_READERS) as pool:
                results = list(pool.map(self._file_problem, unread))
            self._error_by_path |= dict(zip((file.path for *_, file in unread), results, strict=True))
            broken_files = self._known_problems(files_by_path)
        return broken_files or self._offsets_problem(manifest)

    def _offsets_problem(self, manifest: Manifest) -> list[BrokenObjectError]:
        try:
            self._progress(manifest)
        except BrokenObjectError as error:
            return [error]
        return []

    def _known_problems(self, paths: Iterable[str]) -> list[BrokenObjectError]:
        return [problem for path in paths if (problem := self._error_by_path.get(path)) is not None]

    def _file_problem(self, named_file: tuple[Manifest, str, DataFile]) -> BrokenObjectError | None:
        manifest, table, file = named_file
        try:
            self._verify(manifest, table, file, self._infos.get(file.path))
        except BrokenObjectError as error:
            return error
        return None


def _broken_reason(broken_links: list[Link], files: _Restorable) -> str:
    """Which snapshot cannot be restored, and what is broken: of it, or of those below it."""
    problems = list(
        dict.fromkeys(
            str(problem)
            for link in broken_links
            for problem in (files.problems(link.manifest) if link.manifest is not None else [link.problem])
        )
    )
    snapshot = f"snapshot {broken_links[0].snapshot_id} (epoch {broken_links[0].epoch})"
    return f"{snapshot} cannot be restored: {name_some(problems)}"


def _check_published(
    catalog: Catalog, claim: Claim, broken_links: list[Link], whole: Manifest | None, reason: str
) -> None:
    catalog.look_again()  # a publish of what is broken may have come while it was verified: it fences nobody
    published_id = catalog.published_by_any(catalog.head().refs) if claim.branch == MAIN else None
    if published_id not in {link.snapshot_id for link in broken_links}:
        return
    name = catalog.pipeline
    target = "there is no whole one before it" if whole is None else f"the newest whole one is {whole.snapshot_id}"
    target_id = None if whole is None else whole.snapshot_id
    losses = given_up_warning(catalog, claim.snapshot_id, target_id)
    raise BelowPublishedError(
        f"{name}: {reason}. Readers see snapshot {published_id}, which is not whole either, and {target}. Bring the "
        f"file back from a backup; or {how_back(catalog, target_id)} and run "
        f"again (readers go back too, until the replay is audited){losses}; or run `headrace backfill {name}` (or the "
        "backfill DAG), which leaves readers where they are"
    )


def _check_input(
    catalog: Catalog,
    broken_links: list[Link],
    whole: Manifest | None,
    list_missing: ListMissing,
    reason: str,
) -> bool:
    """Raise InputGoneError if input of the broken epochs is gone; False if it is not known what all of them had read.

    File logs only grow, so the newest that can be read names the input of all before it.
    """
    newest, read = next(_inputs_since(catalog, broken_links, -1 if whole is None else whole.epoch), (None, []))
    if newest is None:
        return False
    lost_paths = list_missing(whole, read)
    if lost_paths:
        raise InputGoneError(
            f"{catalog.pipeline}: {reason}. A run that goes back to an older snapshot reads again what came after it, "
            f"and {len(lost_paths)} of these files are gone or changed: {name_some(lost_paths)}. Put them back "
            "as they were, or bring the broken object back from a backup; or give their records up with `headrace "
            "rollback`"
            + given_up_warning(catalog, broken_links[0].snapshot_id, None if whole is None else whole.snapshot_id)
        )
    return newest.epoch == broken_links[0].epoch


def _inputs_since(catalog: Catalog, links: list[Link], epoch: int) -> Iterator[tuple[Manifest | None, list[InputFile]]]:
    """The manifests of ``links`` whose log of inputs can be read, and the files that it names after ``epoch``."""
    for link in links:
        if link.manifest is not None:
            with suppress(BrokenObjectError):
                records = [*catalog.file_records(link.manifest.logs[INPUTS], since_epoch=epoch)]
                yield link.manifest, [f for record in records for f in record.files if isinstance(f, InputFile)]


def name_some(names: Sequence[str]) -> str:
    """The first few of ``names``, and how many more there are."""
    more = f"; and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return "; ".join(names[:_MOST_NAMED]) + more
