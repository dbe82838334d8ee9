"""The snapshot catalog of one pipeline: branches, tags and ``published`` over manifests. Git for dataflows.

``Catalog`` is the imperative shell around the protocol: it reads the head, asks what may follow, and tries to append
that. It writes manifests and index nodes before the entry that makes them visible.

``has_taken_effect`` tells the outcome of an entry that its writer finds folded away: whether the head shows its effect.
The entry was stored before the log was folded, and counts; or after that, and is void. Nothing in the log tells which,
but the head does: a commit counts if its branch leads to its snapshot, which no other entry names. What people ask for
can be so by another's hand as well, and then there is nothing left to do either.

``renamed_refs`` and ``published_message`` are what entries say of what readers see: of outputs that have other names
now, and to people.
"""

import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headrace.errors import HeadraceError
from headrace_snapshots import errors
from headrace_snapshots.catalog_reader import RELEASED_KEY, CatalogReader, Link, names_in, newest_seen
from headrace_snapshots.format.codec import JSON, BrokenObjectError
from headrace_snapshots.format.manifest import Manifest, Patch, Skip, skips_after
from headrace_snapshots.format.output_view import all_names_before, called_before, called_on, output_names, outputs_of
from headrace_snapshots.log import AppendResult, Entry, LostEntry
from headrace_snapshots.names import MAIN, TAGS, delivered_ref, delivering_ref, published_ref
from headrace_snapshots.protocol import moves as protocol
from headrace_snapshots.protocol.transitions import decide
from headrace_snapshots.store import ObjectStore


def has_taken_effect(catalog: CatalogReader, head: protocol.Head, intent: protocol.Intent, entry: Entry) -> bool:
    """Whether ``entry``, the one of ``intent`` that was folded away, has done at ``head`` what it was to do.

    Raises what ends a writer that was fenced: see ``_is_committed``.
    """
    match intent:
        case protocol.Commit():
            is_done = _is_committed(catalog, head, intent, entry)
        case protocol.Publish(snapshots):
            is_done = all(
                _is_seen_by_readers(catalog, head.refs.get(ref), snapshot) for ref, snapshot in snapshots.items()
            )
        case protocol.Rollback() | protocol.Fork():
            is_done = head.generations.get(intent.branch, -1) >= entry.number and _has_moved(
                catalog, head, intent, entry
            )
        case protocol.Promote(branch):
            is_done = branch not in head.generations and _leads_to(catalog, head.refs.get(MAIN), entry.moves[MAIN][1])
        case protocol.Tag(name, snapshot):
            is_done = head.refs.get(TAGS + name) == snapshot
        case protocol.Drop(ref):
            is_done = ref not in head.refs and ref not in head.generations
        case protocol.BeginDelivery(output, sink, snapshot):
            is_done = _leads_to(catalog, head.refs.get(delivering_ref(output, sink)), snapshot)
        case protocol.EndDelivery(output, sink, snapshot):
            is_done = _leads_to(catalog, head.refs.get(delivered_ref(output, sink)), snapshot)
        case _:
            is_done = False  # a claim and an expiry are done once more
    return is_done


def _has_moved(
    catalog: CatalogReader, head: protocol.Head, intent: protocol.Rollback | protocol.Fork, entry: Entry
) -> bool:
    """Whether the branch leads to where it was to be, and no longer to what a rollback was to give up."""
    old_snapshot, new_snapshot = entry.moves.get(intent.branch, (None, None))
    now = head.refs.get(intent.branch)
    if new_snapshot is not None and not _leads_to(catalog, now, new_snapshot):
        return False
    return old_snapshot == new_snapshot or not _leads_to(catalog, now, old_snapshot)


def _is_seen_by_readers(catalog: CatalogReader, now: str | None, snapshot: str | None) -> bool:
    """Whether readers see ``snapshot``, or a later one; or nothing more, if there is none."""
    return now is None if snapshot is None else _leads_to(catalog, now, snapshot)


def _leads_to(catalog: CatalogReader, now: str | None, snapshot: str | None) -> bool:
    """Whether ``snapshot`` is ``now`` or came before it; not, as far as anybody can tell, if it has expired."""
    if now is None or snapshot is None:
        return False
    if now == snapshot:
        return True
    try:
        return catalog.is_ancestor(snapshot, now)
    except (errors.MissingSnapshotError, BrokenObjectError):
        return False


def _is_committed(catalog: CatalogReader, head: protocol.Head, intent: protocol.Commit, entry: Entry) -> bool:
    """Whether the branch leads to the snapshot, and the writer has the branch still. If the branch was promoted, main
    may lead to it (another branch may have the name since).

    Raises FencedAfterCommitError if it was committed, and the writer was fenced since; FencedError if snapshots that
    would tell have expired.
    """
    branch, epoch = intent.branch, entry.detail["epoch"]
    branch_head = head.refs.get(branch)
    ends = {head.refs[ref] for ref in (branch, MAIN) if ref in head.refs}
    ancestors = {end: catalog.ancestor_at(end, epoch) for end in ends}
    where = f"pipeline {catalog.pipeline}: epoch {epoch} (snapshot {intent.snapshot})"
    if intent.snapshot not in ancestors.values():
        if branch_head is not None and ancestors[branch_head] is None and catalog.link(branch_head).epoch > epoch:
            raise errors.FencedError(
                f"{where} of a writer that stood still may have been committed to branch {branch}, and has expired "
                "since if it was; this writer was replaced and must stop. There is nothing to repeat"
            )
        return False
    if branch_head == intent.snapshot and head.generations.get(branch) == intent.generation:
        return True
    raise errors.FencedAfterCommitError(
        f"{where} was committed to branch {branch} and counts: there is nothing to repeat. After that, "
        "others went on with the branch, or promoted it, while this writer stood still. So this writer must stop"
    )


def renamed_refs(catalog: CatalogReader, manifest: Manifest) -> dict[str, list[str]]:
    """The refs of what readers see of outputs that had other names, and the former refs of each."""
    names = {output: called_before(manifest, output) for output in outputs_of(manifest)}
    for output, old_names in names.items():
        (newest,) = all_names_before(manifest, output)[:1] or (None,)
        if newest in names and _was_called(
            catalog, newest, output, manifest
        ):  # another output has the name from now on
            names[output] = (newest, *old_names)
    return {
        published_ref(name): [published_ref(old) for old in old_names] for name, old_names in names.items() if old_names
    }


def renamed_by_promotion(catalog: CatalogReader, branch: Manifest | None, main: str | None) -> dict[str, list[str]]:
    """The ``renamed_refs`` of outputs of a ``branch`` that takes the place of ``main``: by what main calls them."""
    if branch is None:
        return {}
    renames, main_names = renamed_refs(catalog, branch), dict[str, str | None]()
    with suppress(BrokenObjectError, errors.MissingSnapshotError):
        main_names = {} if main is None else called_on(catalog.manifest(main), branch)
    for output, main_name in main_names.items():
        if main_name == output:
            renames.pop(published_ref(output), None)
        elif main_name is not None:
            renames[published_ref(output)] = [published_ref(main_name)]
    return renames


def _was_called(catalog: CatalogReader, former: str, output: str, manifest: Manifest) -> bool:
    """Whether an ``output`` of ``manifest`` had its ``former`` name until then."""
    had = () if manifest.parent is None else output_names(catalog.manifest(manifest.parent))
    return output not in had and former in had


def published_message(catalog: CatalogReader, snapshots: Mapping[str, str | None]) -> str:
    """For people: the epoch that readers see, and of which outputs where they have names."""
    outputs: dict[str, list[str]] = {}
    for output, snapshot in snapshots.items():
        if snapshot is not None:
            outputs.setdefault(snapshot, []).append(output)
    epochs = {snapshot: catalog.manifest(snapshot).epoch for snapshot in outputs}
    parts = (
        f"epoch {epochs[snapshot]}" + (f" of {', '.join(names)}" if any(names) else "")
        for snapshot, names in outputs.items()
    )
    return f"published {' and '.join(parts)}"


__all__ = ["Catalog", "Claim", "Link", "LostEntry"]

_FENCE_SEARCH = 20
_REPLAY_DETAIL: dict[str, JSON] = {"replayed": True}
_NEVER_LAST = frozenset({protocol.Kind.INIT, protocol.Kind.CLAIM, protocol.Kind.COMMIT})
"""Entries that others of the same command follow: the command that stores them calls ``settle_hint`` at its end."""


@dataclass(frozen=True)
class Claim:
    """The right to commit to ``branch`` until its generation changes; ``snapshot_id`` was its head at the claim.

    ``floor``: the first epoch whose output the next snapshot needs to name.
    """

    branch: str
    generation: int
    snapshot_id: str | None
    floor: int = 0


class Catalog(CatalogReader):
    """All that can be asked of, and done to, the snapshots of ``pipeline``. Usable from many threads.

    Any method may raise what the store raises, BrokenObjectError for a control object that is damaged, and
    DamagedLogError when entries of the log are lost; then only ``rollback`` goes on.

    ``looks_once``: the log is looked at once, and again where an entry of this catalog finds that others have stored
    some, or could not be. So all answers in between are of one moment. For a run, or one command.
    """

    def __init__(
        self,
        store: ObjectStore,
        pipeline: str,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        looks_once: bool = False,
    ) -> None:
        super().__init__(store, pipeline, new_id, looks_once=looks_once)
        self._now = now

    def claim(self, branch: str, owner: str) -> Claim:
        """Become the only writer of ``branch`` and fence every other; makes the branch when there is none."""
        entry = self._append_entry(protocol.ClaimBranch(branch), f"claimed by {owner}", {"owner": owner}, begin=True)
        return Claim(branch, entry.generations[branch], entry.refs.get(branch), entry.floor(branch))

    def commit(self, claim: Claim, manifest: Manifest, message: str = "") -> Entry:
        """Store ``manifest`` and make it the head of the branch. Its data and the nodes of its logs must be stored
        already. ``message`` says in the log who decided it, and why.

        What is stored has the skips that follow from its parent's, and many files of a layer in nodes.
        Raises FencedError when another writer claimed or moved the branch (FencedAfterCommitError: after this), and
        RefusedError when it does not fit the claim.
        """
        parent = self._checked_parent(claim, manifest)
        skips = () if parent is None else skips_after(Skip(parent.snapshot_id, parent.epoch), parent.skips)
        manifest = self.write_manifest(manifest.with_skips(skips), parent)
        patch_text = ""
        if manifest.patch and manifest.is_patch:
            output_text = f" of {manifest.patch.output}" if manifest.patch.output else ""
            patch_text = f", a patch{output_text} by branch {manifest.patch.branch}"
        entry = self._append_entry(
            protocol.Commit(
                claim.branch, claim.generation, manifest.parent, manifest.snapshot_id, renamed_refs(self, manifest)
            ),
            f"epoch {manifest.epoch}{patch_text}" + (f": {message}" if message else ""),
            {"epoch": manifest.epoch},
        )
        self._remember(manifest)
        return entry

    def publish(
        self,
        snapshot_id: str,
        expected_published: str | None,
        detail: Mapping[str, JSON] | None = None,
        owner: str = "",
    ) -> Entry:
        """Let readers see ``snapshot_id``, which is on main and ahead of ``expected_published``, of the output without
        a name. ``owner`` is the run that does so, for the log.

        Raises PublishConflictError when ``published`` is not what the caller expected, RefusedError.
        """
        return self.publish_outputs({"": snapshot_id}, {"": expected_published}, detail, owner)

    def publish_outputs(
        self,
        snapshots: Mapping[str, str | None],
        expected: Mapping[str, str | None],
        detail: Mapping[str, JSON] | None = None,
        owner: str = "",
    ) -> Entry:
        """Let readers of each output see its snapshot, in one entry; None: the output is gone. All snapshots are on
        main and ahead of what is ``expected`` to be published, also of outputs that stay where they are.

        Raises PublishConflictError when anything else is published than the caller expected, RefusedError.
        """
        text = published_message(self, snapshots)
        entry_detail = {**(detail or {}), **({"owner": owner} if owner else {})}
        message = f"{text} by {owner}" if owner else text
        return self._append_entry(
            protocol.Publish(_by_ref(snapshots), _by_ref(expected)), message, entry_detail or None
        )

    def release(self, snapshot_id: str, message: str, outputs: Collection[str] = ("",)) -> Entry:
        """A person's decision, recorded with its reason, to publish what an audit of ``outputs`` did not pass. Where
        readers see what came after it nothing moves, and a rollback may take them there. Raises RefusedError.
        """
        if not message.strip():
            raise errors.RefusedError("a release needs a message that says who decided it and why")
        refs = self.head().refs
        moves = {published_ref(output): snapshot_id for output in outputs}
        intent = protocol.Publish(moves, {ref: refs.get(ref) for ref in moves}, protocol.Kind.RELEASE)
        return self._append_entry(intent, message, {RELEASED_KEY: moves})

    def rollback(
        self,
        branch: str,
        to: str | None,
        message: str,
        *,
        replayed: bool = False,
        patches: Collection[Patch] = (),
        give_up_delivered: bool = False,
    ) -> Entry:
        """Move ``branch`` back to ``to`` (None: its beginning), fencing its writer; ``published`` too if it is newer.
        That goes to the newest snapshot at or before ``to`` that readers could see, or that was released.

        Main may also go back to what it was before a promotion, or before that; then ``published`` is what it was then.
        ``replayed``: what is given up is computed again, so decisions about it stand. ``patches`` are those that are
        given up, for the log. ``give_up_delivered``: also below what was handed over to sinks that cannot take back.

        Also the way out of a damaged log: continues from the newest entry that can be read, and gives up what is lost.
        Raises RefusedError when ``to`` is not an ancestor of the branch's head, or readers would be left with nothing.
        """
        detail = {**(_REPLAY_DETAIL if replayed else {}), **_given_up(patches)}
        intent = protocol.Rollback(branch, to, give_up_delivered=give_up_delivered)
        return self._append_entry(intent, message, detail or None, head=self.known_head)

    def would_roll_back(
        self, branch: str, to: str | None, *, give_up_delivered: bool = False
    ) -> Mapping[str, tuple[str | None, str | None]]:
        """The moves that ``rollback`` would make, from where to where; nothing is done. Raises what that does."""
        facts: dict[tuple[str, str], bool] = {}
        # also where the log looks once: what it says is for a person who decides now
        self.look_again()
        last = self.known_head()
        intent: protocol.Intent = protocol.Rollback(branch, to, give_up_delivered=give_up_delivered)
        # Ends: another turn means a new fact.
        while True:
            decision, intent = self._decide(last, intent, facts)
            match decision:
                case protocol.NeedKept(mark, snapshot):
                    facts[mark, snapshot] = self.marks.is_kept(mark, snapshot)
                case protocol.Append(moves=moves):
                    return moves
                case protocol.Unseen():
                    raise self._unseen_error(decision)
                case protocol.Fenced(reason=reason) | protocol.Conflict(reason) | protocol.Refused(reason):
                    raise errors.RefusedError(f"pipeline {self.pipeline}: {reason}")

    def step_back(self, claim: Claim, to: str | None, message: str, *, patches: Collection[Patch] = ()) -> Claim:
        """``rollback`` by the branch's own writer, who goes on under the claim that this returns.

        Raises FencedError when another writer claimed or moved the branch, RefusedError as ``rollback`` does.
        """
        detail = {**_REPLAY_DETAIL, **_given_up(patches)}
        entry = self._append_entry(protocol.Rollback(claim.branch, to, claim.generation), message, detail)
        return Claim(claim.branch, entry.generations[claim.branch], to)

    def fork(self, branch: str, from_snapshot: str | None, message: str = "") -> Entry:
        """Make ``branch`` at a snapshot, or empty. Raises RefusedError when there is such a branch."""
        place_text = "empty" if from_snapshot is None else f"at epoch {self.manifest(from_snapshot).epoch}"
        text = f"forked {branch} {place_text}"
        intent = protocol.Fork(branch, from_snapshot)
        return self._append_entry(intent, f"{text}: {message}" if message else text, begin=from_snapshot is None)

    def promote(
        self,
        branch: str,
        *,
        expected_main: str | None,
        expected: str | None = None,
        message: str = "",
        give_up_delivered: bool = False,
    ) -> Entry:
        """Make ``branch`` main and published in one entry; the branch ends, the writers of both are fenced. ``message``
        says who decided it, and why. ``give_up_delivered``: also if it does not have what was handed over to sinks that
        cannot take back.

        Raises PublishConflictError when main is not at ``expected_main``, or the branch not at ``expected``, if that is
        given; RefusedError.
        """
        text = f"promoted {branch}: {message}" if message else f"promoted {branch}"
        # by its id: the name may be another branch's by the time that the entry is stored
        promoted_id = expected or self.head().refs.get(branch)
        manifest = None if promoted_id is None else self.manifest(promoted_id)
        intent = protocol.Promote(
            branch,
            expected_main,
            expected or promoted_id,
            ("",) if manifest is None else output_names(manifest),
            renamed_by_promotion(self, manifest, expected_main),
            give_up_delivered,
        )
        return self._append_entry(intent, text, {"branch": branch})

    def record_delivery(self, intent: protocol.BeginDelivery | protocol.EndDelivery) -> Entry:
        """Begin or end a delivery to a sink that cannot take back: from its begin on main goes nowhere without it.
        Raises PublishConflictError if readers see another snapshot, or another delivery has begun since.
        """
        kind = protocol.Kind.DELIVERING if isinstance(intent, protocol.BeginDelivery) else protocol.Kind.DELIVERED
        return self._append_entry(intent, f"{kind} to {intent.sink} up to {intent.snapshot}", {"sink": intent.sink})

    def tag(self, name: str, snapshot_id: str, message: str = "") -> Entry:
        """Keep ``snapshot_id`` under the ref ``tags/{name}``. Raises RefusedError when there is such a tag."""
        text = f"tagged epoch {self.manifest(snapshot_id).epoch} as {name}"
        return self._append_entry(protocol.Tag(name, snapshot_id), f"{text}: {message}" if message else text)

    def drop(
        self, ref: str, message: str = "", *, expected: int | None = None, detail: Mapping[str, JSON] | None = None
    ) -> Entry:
        """Remove a branch, or a tag (``tags/{name}``). Raises RefusedError for main, published and unknown ones, and
        PublishConflictError when ``expected`` is given, and another entry than that number is the last one.
        """
        return self._append_entry(protocol.Drop(ref, expected), message or f"dropped {ref}", detail)

    def expire(
        self,
        expected: int,
        horizon: protocol.Horizon,
        *,
        tags: Collection[str],
        idle: Collection[str],
        message: str,
        past: protocol.Past | None = None,
    ) -> Entry:
        """Keep what ``horizon`` says from now on; its mark must be stored already. Removes ``tags``, fences ``idle``.

        ``past``: what is left of main's, None: all. Raises PublishConflictError when entry ``expected`` is not the last
        one any more.
        """
        return self._append_entry(protocol.Expire(expected, horizon, tags, idle, past), message)

    def fold(self) -> int:
        """Delete the entries that the newest expiry gave up; how many there were."""
        horizon = self.head().horizon
        return 0 if horizon is None else self._log.fold(horizon.folded)

    def settle_hint(self) -> None:
        """Let the hint name the last entry, at the end of a command that has claimed a branch. So who looks for the end
        misses that entry if it is lost. It is no error if the store refuses.
        """
        self._log.settle_hint()

    def mend_hint(self) -> None:
        """Let it name the newest entry. Raises DamagedLogError."""
        self._log.write_hint(self.head().entry)

    def _append_entry(
        self,
        intent: protocol.Intent,
        message: str,
        detail: JSON = None,
        *,
        begin: bool = False,
        head: Callable[[], protocol.Head] | None = None,
    ) -> Entry:
        """Append the entry of ``intent`` after whatever is last; ``begin`` begins the log when it is empty.

        ``head``: how to look for what is last; by default it must be whole.
        """
        look = head or self.head
        facts: dict[tuple[str, str], bool] = {}
        last = look()
        # Ends: another turn means a new fact (few per head), or that somebody else's entry was stored.
        while True:
            # an empty log begins with an entry of its own, and the next turn appends the intent
            beginning = begin and last.entry < 0
            decision, answered_intent = self._decide(last, protocol.Init() if beginning else intent, facts)
            intent = intent if beginning else answered_intent
            match decision:
                case protocol.NeedKept(mark, snapshot):
                    try:
                        facts[mark, snapshot] = self.marks.is_kept(mark, snapshot)
                    except BrokenObjectError:
                        last_seen, last = last, self._look_again(look)
                        if last.entry == last_seen.entry:  # else an expiry has made another mark, and deleted this one
                            raise
                case protocol.Append() as next_:
                    text = f"began {self.pipeline}" if beginning else message
                    time_text = self._now().astimezone(UTC).isoformat().replace("+00:00", "Z")
                    entry_detail = None if beginning else detail
                    entry = Entry.from_append(
                        next_, last.entry + 1, self._new_id(), time_text, message=text, detail=entry_detail
                    )
                    result = self._log.append(entry, is_last=next_.kind not in _NEVER_LAST)
                    if result is AppendResult.APPENDED and not beginning:
                        return entry
                    last = look()
                    if (
                        result is AppendResult.FOLDED_AWAY
                        and not beginning
                        and has_taken_effect(self, last, intent, entry)
                    ):
                        return entry
                case _:
                    last_seen = last
                    if self.looks_once:  # what it goes by may be old
                        last = self._look_again(look)
                    if last.entry == last_seen.entry:
                        raise self._refusal_error(decision)

    def _look_again(self, look: Callable[[], protocol.Head]) -> protocol.Head:
        self.look_again()
        return look()

    def _refusal_error(self, decision: protocol.Decision) -> HeadraceError:
        """Why nothing may follow, as an error."""
        match decision:
            case protocol.Fenced():
                return self._fenced_error(decision)
            case protocol.Conflict(reason):
                return errors.PublishConflictError(
                    f"pipeline {self.pipeline}: {reason}; look at the new state, then decide again"
                )
            case protocol.Unseen():
                return self._unseen_error(decision)
            case protocol.Refused(reason):
                return errors.RefusedError(f"pipeline {self.pipeline}: {reason}")
            case _:
                raise AssertionError(f"{decision} refuses nothing")

    def _decide(
        self, last: protocol.Head, intent: protocol.Intent, facts: dict[tuple[str, str], bool]
    ) -> tuple[protocol.Decision, protocol.Intent]:
        """What may follow ``last``, and ``intent`` with what it was asked on the way. ``facts`` grow; what is asked of
        the log stays right, as it only grows, too.
        """
        # Ends: another turn means a new fact or answer.
        while True:
            match decision := decide(last, intent, facts):
                case protocol.Need(ancestor, descendant, or_broken):
                    facts[ancestor, descendant] = self._is_ancestor(ancestor, descendant, or_broken)
                case protocol.NeedNames() | protocol.NeedSeen():
                    intent = self._answer_question(intent, decision)
                case _:
                    return decision, intent

    def _answer_question(
        self, intent: protocol.Intent, question: protocol.NeedNames | protocol.NeedSeen
    ) -> protocol.Rollback:
        """``intent`` with the answer to what the protocol asks about its target."""
        assert isinstance(intent, protocol.Rollback), "only a rollback takes readers back"
        assert intent.to is not None, "readers see nothing before the beginning"
        if isinstance(question, protocol.NeedNames):
            names = names_in(self, intent.to, question.snapshot)
            return replace(intent, called={**intent.called, question.snapshot: names})
        newest = newest_seen(self, intent.to, question.output, question.main)
        return replace(intent, seen={**intent.seen, question.output: newest})

    def _unseen_error(self, unseen: protocol.Unseen) -> errors.RefusedError:
        """The error, with what lets readers see the target after all."""
        name, target_id = self.pipeline, unseen.to
        ways = [f"`headrace release {name}.{output} {target_id}`" for output in unseen.outputs if output]
        outputs_text = f" of {' and '.join(unseen.outputs)}" if ways else ""
        way = " and ".join(ways) or f"`headrace release {name} {target_id}`"
        return errors.RefusedError(
            f"pipeline {name}: readers{outputs_text} would see nothing: {target_id} was never published, and nothing "
            f"that is kept of what came before it was. If they may see it, say so first: {way}, with --message WHY. Or "
            "go back to a snapshot that was published (`headrace log` lists them), or to 'beginning'"
        )

    def _is_ancestor(self, ancestor: str, descendant: str, or_broken: bool) -> bool:
        try:
            return self.is_ancestor(ancestor, descendant)
        except (BrokenObjectError, errors.MissingSnapshotError):
            if not or_broken:
                raise
            return False

    def _fenced_error(self, fence: protocol.Fenced) -> errors.FencedError:
        """The error, saying who took the branch and when."""
        entries = self.list_entries(limit=_FENCE_SEARCH) if fence.by is None else self.list_entries(fence.by + 1, 1)
        fencer = next((e for e in entries if e.number == fence.by or fence.branch in {e.branch, *e.moves}), None)
        who = f" since entry {fencer.number} ({fencer.kind}: {fencer.message}) at {fencer.at}" if fencer else ""
        return errors.FencedError(
            f"pipeline {self.pipeline}: {fence.reason}{who}. This writer was replaced and must stop; "
            "nothing that it has not committed is visible"
        )

    def _checked_parent(self, claim: Claim, manifest: Manifest) -> Manifest | None:
        """The parent of ``manifest``, which must be of this pipeline, under this claim, and follow it."""
        owner = (manifest.pipeline, manifest.branch, manifest.generation)
        if owner != (self.pipeline, claim.branch, claim.generation):
            raise errors.RefusedError(
                f"manifest {manifest.snapshot_id} is of {owner}, not of {self.pipeline} under {claim}"
            )
        if manifest.parent is None:
            return None
        parent = self.manifest(manifest.parent)
        if manifest.epoch != parent.epoch + 1:
            raise errors.RefusedError(f"epoch {manifest.epoch} does not follow that of {manifest.parent}")
        return parent


def _by_ref(snapshots: Mapping[str, str | None]) -> dict[str, str | None]:
    return {published_ref(output): snapshot for output, snapshot in snapshots.items()}


def _given_up(patches: Collection[Patch]) -> dict[str, JSON]:
    return {"patches": [patch.to_json() for patch in patches]} if patches else {}
