"""The plan of an adoption: what main would take over of a branch, and every reason against it.

Why an output of a branch cannot become that of main.

Which outputs a branch computes that is to be adopted for one of them.

The dead letters of main once it has adopted outputs: those that these outputs refused as they are computed now.

All outputs share one log, whose files each have the letters of one output, or those that no output could take. So the
log gets other files, and none is written.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from headrace.errors import FixConfigError
from headrace.pipeline.identity import definition
from headrace.pipeline.pipeline import Pipeline
from headrace.read.snapshots.epoch_history import RecordedEpoch, epochs_since
from headrace.runs.publishing.promotion import BranchFacts
from headrace.runs.publishing.promotion_checks import DeliveredError, handed_over
from headrace.runs.publishing.refusals import RefusalCheck
from headrace_snapshots.catalog import Catalog, Head
from headrace_snapshots.format.filelog import FileLog, FileRecord
from headrace_snapshots.format.files import DataFile, LoggedFile
from headrace_snapshots.format.manifest import OUTPUTS, Manifest
from headrace_snapshots.format.output_view import (
    UnknownOutputError,
    as_called_in,
    called_before,
    outputs_of,
    parked_in,
    seen_by,
    upstream_of,
)
from headrace_snapshots.format.table_names import IDS, REJECTED
from headrace_snapshots.output_catalog import seen_catalog

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class AdoptedOutputs:
    """``adopted``: an ``output``, and those that are computed of it, whose panes change with its own. ``read``: others
    whose panes these need. ``others``: all else.
    """

    output: str
    adopted: tuple[str, ...]
    read: tuple[str, ...]
    others: tuple[str, ...]

    @classmethod
    def of(cls, pipeline: str, upstream: Mapping[str, Sequence[str]], output: str) -> Self:
        """For an ``output`` of ``pipeline``, whose outputs are computed of those in ``upstream`` (none: of records).
        Raises UnknownOutputError.
        """
        if output not in upstream:
            has = f"it has {', '.join(sorted(upstream))}" if upstream else "it has one output, which has no name"
            raise UnknownOutputError(f"pipeline {pipeline} has no output {output!r}: {has}")
        below = {name: [reader for reader, above in upstream.items() if name in above] for name in upstream}
        adopted = _reached({output}, below)
        needed = _reached(adopted, upstream)
        rest = needed - adopted, upstream.keys() - needed
        return cls(output, *(tuple(sorted(names)) for names in (adopted, *rest)))


def _reached(names: Collection[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    """The ``names``, and all that they lead to."""
    reached, waiting = {*names}, [*names]
    while waiting:
        further = {*edges.get(waiting.pop(), ())} - reached
        reached |= further
        waiting += further
    return reached


Letter = tuple[str | None, str | None, int | None]
"""Where a dead letter is from: its input, file and position."""


def taken_by_none(catalog: Catalog, manifest: Manifest, until: int | None = None) -> set[Letter]:
    """The dead letters, up to epoch ``until``, that no output took. Raises BrokenObjectError."""
    letters: set[Letter] = set()
    for record in catalog.files(manifest.logs[REJECTED]):
        for file in record.files:
            rows = _rows(catalog, file)
            if _output(rows) is None and (until is None or record.epoch <= until):
                columns = (rows[name].to_pylist() for name in ("input", "file", "position"))
                letters.update(zip(*columns, strict=True))
    return letters


def adopted_letters(catalog: Catalog, main: Manifest, branch: Manifest, outputs: Collection[str]) -> FileLog:
    """The log of ``main`` in its next epoch, with the letters of ``outputs`` that ``branch`` has in place of its
    own.
    """
    log, replaced = FileLog.empty(), {name for output in outputs for name in (output, *called_before(main, output))}
    for record in catalog.files(main.logs[REJECTED]):
        if kept := tuple(file for file in record.files if _output(_rows(catalog, file)) not in replaced):
            log = catalog.append_record(log, FileRecord(record.epoch, kept))
    files = (file for record in catalog.files(branch.logs[REJECTED]) for file in record.files)
    own = tuple(file for file in files if _output(_rows(catalog, file)) in outputs)
    return catalog.append_record(log, FileRecord(main.epoch + 1, own)) if own else log


def _rows(catalog: Catalog, file: LoggedFile) -> "pa.Table":
    from headrace.state.datafiles.files import stored  # with Arrow
    from headrace_snapshots.datafiles import verify

    assert isinstance(file, DataFile)
    return stored(verify(catalog.store, file))


def _output(rows: "pa.Table") -> str | None:
    """The output that could not take the records of a file; None: no output could."""
    if "output" not in rows.column_names:  # from before outputs had names
        return None
    (output,) = rows["output"].unique().to_pylist()
    return None if output is None else str(output)


class NotAdoptableError(FixConfigError, code="config.not_adoptable"):
    """What a branch has computed of an output is not what main would have, had it computed that."""


def check_before(pipeline: Pipeline, main: Manifest, scope: AdoptedOutputs, head: Head) -> None:
    """Raise what stands against the adoption of outputs of ``pipeline`` by ``main``, whatever a branch computes, as the
    log stands at ``head``.
    """
    _check_definition(definition(pipeline), main, scope)
    former = {pipeline.outputs[output].formerly for output in scope.adopted}
    _check_delivered(head, pipeline.name, scope, {*scope.adopted, *former})


@dataclass(frozen=True)
class AdoptOutput:
    """Let ``main`` adopt the outputs of ``scope`` from the branch that the ``facts`` are of. ``give_up_delivered``:
    what sinks have got that cannot take back is not against it.
    """

    facts: BranchFacts
    main: Manifest
    scope: AdoptedOutputs
    give_up_delivered: bool = False

    def __str__(self) -> str:
        adopted, branch = ", ".join(self.scope.adopted), self.facts.branch
        return f"let main adopt {adopted} of branch {branch}, as epoch {self.main.epoch + 1}; the branch ends"

    @classmethod
    def of(cls, catalog: Catalog, now: Head, branch: str, output: str, give_up: bool) -> "AdoptOutput":
        """Raises UnknownBranchError, UnknownOutputError, NotAdoptableError where main has nothing."""
        facts = BranchFacts.of(catalog, now, branch)
        scope = AdoptedOutputs.of(catalog.pipeline, upstream_of(facts.head), output)
        if facts.main is None:
            raise NotAdoptableError(f"main of {catalog.pipeline} has no snapshot: promote the whole branch {branch}")
        return cls(facts, catalog.manifest(facts.main), scope, give_up)

    @property
    def catalog(self) -> Catalog:
        """The pipeline's catalog."""
        return self.facts.catalog

    @property
    def branch(self) -> Manifest:
        """The newest snapshot of the branch."""
        return self.facts.head

    def checks(self) -> Iterator[RefusalCheck]:
        """What may stand against it, the first that is to be said first; those that read rows come last. Each relies on
        those before.
        """
        if not self.give_up_delivered:
            yield RefusalCheck(self._check_delivered, (DeliveredError,), is_relied_on=True)
        yield self._own(self._check_computed)
        yield self.facts.audit_check(self.scope.adopted, is_relied_on=True)
        yield self._own(lambda: _check_definition(self.branch.definition, self.main, self.scope))
        yield self._own(self._check_reading)
        yield self._own(self._check_records)
        yield self._own(self._check_what_they_read)

    def _own(self, look: Callable[[], None]) -> RefusalCheck:
        return RefusalCheck(look, (NotAdoptableError,), is_relied_on=True)

    def _check_delivered(self) -> None:
        former = {self.facts.called[output] for output in self.scope.adopted}
        _check_delivered(self.facts.now, self.catalog.pipeline, self.scope, {*self.scope.adopted, *former})

    @cached_property
    def stands_at(self) -> Manifest:
        """The snapshot of main of the branch's last epoch. Raises NotAdoptableError if main has recorded other epochs
        than those of the branch.
        """
        catalog, name = self.catalog, self.facts.branch
        ours = epochs_since(catalog, self.branch.snapshot_id, None)
        theirs = epochs_since(catalog, self.main.snapshot_id, None)[: len(ours)]
        for (own, epoch), (of_main, recorded) in zip(ours, theirs, strict=False):
            if own.epoch != of_main.epoch or _what_was_read(epoch) != _what_was_read(recorded):
                raise NotAdoptableError(
                    f"branch {name} of {catalog.pipeline} has not read what main has read: epoch {own.epoch} differs. "
                    f"Drop it (`headrace drop {catalog.pipeline} {name}`), and backfill again"
                )
            if _watermarks(epoch) != _watermarks(recorded):
                raise NotAdoptableError(
                    f"in epoch {own.epoch} branch {name} of {catalog.pipeline} has other watermarks than main: outputs "
                    f"take other records now. {self._all_again}"
                )
        if len(ours) > len(theirs):
            raise NotAdoptableError(
                f"branch {name} of {catalog.pipeline} has read more than main, which has gone back since. Drop it "
                f"(`headrace drop {catalog.pipeline} {name}`), and backfill again"
            )
        return theirs[-1][0]

    @property
    def _all_again(self) -> str:
        return f"`headrace backfill {self.catalog.pipeline} --promote` computes all outputs again"

    def _check_computed(self) -> None:
        missing = sorted({*self.scope.adopted, *self.scope.read} & parked_in(self.branch).keys())
        if missing:
            raise NotAdoptableError(
                f"branch {self.facts.branch} of {self.catalog.pipeline} has not computed {', '.join(missing)}: "
                f"`headrace backfill {self.catalog.pipeline}.{self.scope.output}` does, in a branch of its own"
            )

    def _check_reading(self) -> None:
        _ = self.stands_at

    def _check_records(self) -> None:
        """Raise NotAdoptableError if some output takes records now that none took before, or the other way round."""
        if taken_by_none(self.catalog, self.branch) != taken_by_none(self.catalog, self.main, self.branch.epoch):
            raise NotAdoptableError(
                f"branch {self.facts.branch} of {self.catalog.pipeline} takes other records than main: some that no "
                f"output took before, or none takes now. {self._all_again}"
            )

    def _check_what_they_read(self) -> None:
        """Raise NotAdoptableError if panes that are read, or remembered ids, are not on main what they are on the
        branch.
        """
        from headrace.read.diff.comparison import diff  # with DuckDB

        remembers = IDS in self.main.tables
        for output in self.scope.read or self.scope.adopted[: int(remembers)]:
            catalog = seen_catalog(self.catalog, output)
            before, after = seen_by(as_called_in(self.stands_at, self.main), output), seen_by(self.branch, output)
            if output not in self.scope.read:  # only ids are looked at
                before, after = (side.seen_as(tables={IDS: side.tables[IDS]}) for side in (before, after))
            difference = diff(catalog, before, after, limit=0)
            if remembers and difference.ids.differing:
                raise NotAdoptableError(
                    f"branch {self.facts.branch} of {self.catalog.pipeline} remembers other ids than main "
                    f"({difference.ids.differing} differ): outputs take other records now. {self._all_again}"
                )
            rows = difference.output.rows.differing + sum(stage.state.differing for stage in difference.stages)
            if output in self.scope.read and rows:
                raise NotAdoptableError(
                    f"{', '.join(self.scope.adopted)} of {self.catalog.pipeline} read output {output}, of which main "
                    f"has other rows than its records give now ({rows} differ): it continued from another definition, "
                    f"or other code. `headrace backfill {self.catalog.pipeline}.{output} --promote` computes it again, "
                    "with what reads it"
                )


def _check_definition(defined: Mapping[str, Any], main: Manifest, scope: AdoptedOutputs) -> None:
    """Raise NotAdoptableError unless outputs as they are ``defined`` fit beside the others of ``main``."""
    name, adopted = main.pipeline, ", ".join(scope.adopted)
    if not outputs_of(main):
        raise NotAdoptableError(
            f"main of {name} has one output without a name: run the pipeline once, which names it, then adopt {adopted}"
        )
    shared = [{part: value for part, value in side.items() if part != OUTPUTS} for side in (defined, main.definition)]
    if shared[0] != shared[1]:
        raise NotAdoptableError(
            f"the inputs of {name} have changed since snapshot {main.snapshot_id} (epoch {main.epoch}), for all "
            f"outputs: `headrace backfill {name} --promote` computes all of them again"
        )
    parked, there = parked_in(main), main.definition[OUTPUTS]
    for output in scope.read:
        if there.get(output) != defined[OUTPUTS][output]:
            raise NotAdoptableError(
                f"{adopted} of {name} reads output {output}, which is new or has changed since snapshot "
                f"{main.snapshot_id} (epoch {main.epoch}): `headrace backfill {name}.{output} --promote` computes it, "
                "with what reads it"
            )
        if output in parked:
            raise NotAdoptableError(
                f"{adopted} of {name} reads output {output}, which is parked at epoch {parked[output]}: `headrace run "
                f"{name}` says why; mend that first"
            )


def _check_delivered(head: Head, pipeline: str, scope: AdoptedOutputs, names: Collection[str | None]) -> None:
    """Raise DeliveredError if a sink that cannot take back has rows of an output that would get others; ``names``: what
    those are, or were, called.
    """
    for rows in handed_over(head):
        if rows.output in names:
            raise DeliveredError(
                f"{rows}, and main would have others in their place. Run the backfill without --promote, then "
                f"`headrace promote {pipeline}.{scope.output} BRANCH --give-up-delivered`"
            )


def _what_was_read(epoch: RecordedEpoch) -> tuple[object, ...]:
    files = {name: [(file.path, file.size) for file in read] for name, read in epoch.files.items() if read}
    return files, epoch.processing_time, epoch.signals, epoch.is_last


def _watermarks(epoch: RecordedEpoch) -> tuple[object, ...] | None:
    return None if epoch.reached is None else (epoch.reached.watermark, epoch.reached.inputs)
