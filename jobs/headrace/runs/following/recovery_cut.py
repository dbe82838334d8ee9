"""Take a pipeline and all that read it back to one consistent cut.

Of each reader that is the newest snapshot that has consumed nothing but what its upstreams publish after they went
back. Upstreams are asked first, so a reader of two of them fits both. Every move is one entry of a log, and what is
left to do follows from where things are: after a kill the next call does the rest.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.errors import HeadraceError, RestoreError
from headrace.read.lineage.cut import PlacedPipeline, RootStores
from headrace.read.lineage.lineage import PipelineHead, heads_of
from headrace.read.lineage.readers import KnownReaders, known_readers
from headrace.read.roots import pipelines_under
from headrace.read.upstream import GONE, UpstreamPosition, upstreams_of
from headrace.runs.options import RunOptions
from headrace.runs.recovery_target import TargetBrokenError, check_there, with_epochs
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.errors import RefusedError
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.patches import GivenUp, would_give_up
from headrace_snapshots.refs import MAIN, PUBLISHED, published_ref

_TURNS = 5
"""How often what runs committed meanwhile is taken back as well, at most."""


class ReadersCannotFollowError(RestoreError, code="restore.readers_cannot_follow"):
    """Pipelines that read one which is taken back cannot go back with it."""


@dataclass(frozen=True)
class CutMove:
    """What becomes of main of a ``pipeline``: it goes back ``to`` a snapshot and gives something up; or it would have
    to, and the ``problem`` says why it cannot. Neither: what it has consumed stays as it is, and so does it. Or it
    ``is_left`` where it is, as somebody has asked for.
    """

    pipeline: PlacedPipeline
    head: str | None
    to: str | None
    given_up: GivenUp | None = None
    problem: str | None = None
    is_left: bool = False

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        given_up = None if self.given_up is None else self.given_up.to_json()
        return {**vars(self), "pipeline": str(self.pipeline), "given_up": given_up}

    @property
    def in_words(self) -> str:
        """For people."""
        if self.problem is not None:
            return f"cannot follow: {self.problem}"
        if self.is_left:
            return "is left where it is: its next run takes back what it can"
        if self.given_up is None:
            return "stays: it has consumed nothing of what is given up"
        return "; ".join(self.given_up.told)


@dataclass(frozen=True)
class RecoveryCut:
    """The ``moves`` of a pipeline and of its readers, each after those of the pipelines that it reads. ``searched``
    says where readers were looked for: the cut is whole only if there are no others.
    """

    moves: tuple[CutMove, ...]
    searched: KnownReaders

    def to_json(self) -> dict[str, Any]:
        """A JSON value."""
        return {"moves": [move.to_json() for move in self.moves], "searched": self.searched.to_json()}

    def check_all_follow(self) -> None:
        """Raise ReadersCannotFollowError if a reader would have to go back and cannot."""
        if problems := [f"{move.pipeline} {move.in_words}" for move in self.moves if move.problem is not None]:
            raise ReadersCannotFollowError(
                f"{self.moves[0].pipeline}: {'; '.join(problems)}. Nothing has moved. `headrace recover --leave "
                "READER` recovers without one; its next run takes back what it can"
            )

    def rows(self) -> list[dict[str, Any]]:
        """Rows of a table: a pipeline each."""
        return [
            {"pipeline": str(move.pipeline), "from": move.head, "to": move.to, "what": move.in_words}
            for move in self.moves
        ]


def recovery_cut(
    catalog: Catalog,
    snapshot: str | None,
    *,
    give_up_delivered: bool = False,
    leave: Collection[str] = (),
    reader_roots: Iterable[str] = (),
) -> RecoveryCut:
    """Where main of the pipeline of ``catalog`` and of all that read it would be once it went back to ``snapshot``;
    None: it has gone back already. Nothing moves. Readers to ``leave`` (by name) stay where they are.

    Readers are those under the root of ``catalog`` and under ``reader_roots``, and those that hold something
    (``known_readers``). Raises RefusedError if the pipeline itself cannot go back there, UpstreamCycleError,
    MissingRootError.
    """
    stores = RootStores(catalog.store)
    first = PlacedPipeline("", catalog.pipeline)
    searched = known_readers(
        catalog.store, dict.fromkeys([catalog.pipeline, *pipelines_under(catalog.store)]), reader_roots
    )
    heads = heads_of(stores, searched.pipelines)
    head = catalog.head().refs.get(MAIN)
    planned = {first: _first_move(catalog, first, head, snapshot, give_up_delivered)}
    for reader in [*heads][::-1]:
        read = {stores.placed(at.root, at.pipeline) for at in heads[reader].consumed.values()}
        if reader in planned or not read & planned.keys():
            continue
        if reader.name in leave:
            planned[reader] = CutMove(reader, heads[reader].snapshot, heads[reader].snapshot, is_left=True)
        else:
            planned[reader] = _Choice(stores, planned, give_up_delivered).move(reader, heads[reader])
    for hidden in searched.unseen:
        if hidden.upstream in planned:
            is_left = hidden.reader.name in leave
            planned[hidden.reader] = CutMove(
                hidden.reader, None, None, problem=None if is_left else hidden.why, is_left=is_left
            )
    return RecoveryCut(tuple(planned.values()), searched)


def _first_move(
    catalog: Catalog, first: PlacedPipeline, head: str | None, snapshot: str | None, give_up_delivered: bool
) -> CutMove:
    if snapshot is None or snapshot == head:
        return CutMove(first, head, head)
    given_up = would_give_up(catalog, MAIN, snapshot, give_up_delivered=give_up_delivered)
    return CutMove(first, head, snapshot, with_epochs(catalog, given_up))


@dataclass(frozen=True)
class _Choice:
    """Where readers of ``planned`` pipelines go back to."""

    stores: RootStores
    planned: Mapping[PlacedPipeline, CutMove]
    give_up_delivered: bool

    def move(self, reader: PlacedPipeline, head: PipelineHead) -> CutMove:
        catalog = self.stores.catalog(reader)
        assert head.snapshot is not None, "it has consumed something"
        to = next(self._targets(catalog, head.snapshot), None)
        if to == head.snapshot:
            return CutMove(reader, to, to)
        if to is None:
            return CutMove(
                reader,
                head.snapshot,
                head.snapshot,
                problem="no whole snapshot is kept from before it read what is given up; afterwards `headrace backfill "
                f"{reader.name} --promote` computes it again",
            )
        try:
            given_up = would_give_up(catalog, MAIN, to, give_up_delivered=self.give_up_delivered)
        except RefusedError as error:
            return CutMove(reader, head.snapshot, head.snapshot, problem=str(error))
        return CutMove(reader, head.snapshot, to, with_epochs(catalog, given_up))

    def _targets(self, catalog: Catalog, head: str) -> Iterator[str]:
        """Snapshots that fit, newest first."""
        for link in catalog.lineage(head):
            manifest = link.manifest
            if manifest is not None and self._fits(manifest):
                with suppress(TargetBrokenError):  # an older one may be whole
                    if link.snapshot_id != head:
                        check_there(catalog, link.snapshot_id)
                    yield link.snapshot_id

    def _fits(self, manifest: Manifest) -> bool:
        """Whether the snapshot has consumed only what the planned pipelines publish once they have moved."""
        return all(map(self._is_published, upstreams_of(manifest).values()))

    def _is_published(self, position: UpstreamPosition) -> bool:
        upstream = self.stores.placed(position.root, position.pipeline)
        move = self.planned.get(upstream)
        if move is None:
            return True  # it stays as it is
        if position.is_behind:
            return False
        if position.snapshot is None:
            return True
        seen = self.stores.catalog(upstream, position.output)
        ref = published_ref(position.output)
        after = {} if move.given_up is None else move.given_up.moves
        published = after[ref][1] if ref in after else seen.head().refs.get(PUBLISHED)
        if published is None:
            return False
        with suppress(*GONE):
            return seen.is_ancestor(position.snapshot, published)
        return False


def check_can_follow(catalog: Catalog, snapshot: str, options: RunOptions) -> None:
    """Raise ReadersCannotFollowError if a reader cannot go back with a recovery to ``snapshot``."""
    recovery_cut(
        catalog,
        snapshot,
        give_up_delivered=options.give_up_delivered,
        leave=options.left_readers,
        reader_roots=options.reader_roots,
    ).check_all_follow()


def take_readers_back(catalog: Catalog, options: RunOptions) -> tuple[str, ...]:
    """Move the readers of a pipeline that has gone back, upstreams first; for people what that gave up, which could not
    be moved, and where readers may be that nobody has seen. What a run of a reader commits meanwhile goes back, too.
    """
    warnings: dict[str, None] = {}
    stuck = {*options.left_readers}
    for _ in range(_TURNS):
        cut = recovery_cut(
            catalog,
            None,
            give_up_delivered=options.give_up_delivered,
            leave=stuck,
            reader_roots=options.reader_roots,
        )
        warnings |= dict.fromkeys(cut.searched.limits)
        warnings |= {f"reader {move.pipeline} {move.in_words}": None for move in cut.moves if move.problem is not None}
        moves = [move for move in cut.moves if move.given_up is not None]
        if not moves:
            break
        for move in moves:
            if not _moved(RootStores(catalog.store), move, catalog.pipeline, options, warnings):
                stuck.add(move.pipeline.name)
    return tuple(warnings)


def _moved(stores: RootStores, move: CutMove, first: str, options: RunOptions, warnings: dict[str, None]) -> bool:
    assert move.given_up is not None, "only what moves is moved"
    message = f"recovery of {first} with its readers, {options.request or options.run_id}"
    try:
        stores.catalog(move.pipeline).rollback(
            MAIN,
            move.to,
            f"{message}: {options.message}" if options.message else message,
            replayed=True,
            patches=move.given_up.patches,
            give_up_delivered=options.give_up_delivered,
        )
    except HeadraceError as error:
        warnings[f"reader {move.pipeline} could not go back to {move.to} ({error.code}: {error})"] = None
        return False
    warnings[f"reader {move.pipeline} has gone back to {move.to}: {move.in_words}"] = None
    return True
