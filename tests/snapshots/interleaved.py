"""What is interleaved: runs, people and upkeep as programs over a store; and what holds in each state they reach."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import combinations, count

from catalog_helpers import commit_some, data_path, manifest_for
from exploring import Explorer, Objects, Program, ProgramState, contents, store_with

from headrace_lab.catalog_checks import violations
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.errors import (
    FencedAfterCommitError,
    FencedError,
    MissingSnapshotError,
    PublishConflictError,
    RefusedError,
)
from headrace_snapshots.expiry import expire
from headrace_snapshots.format.codec import checksum
from headrace_snapshots.format.files import DataFile, Layer
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.gc_roots import Keep, files_of
from headrace_snapshots.holds import DeletionList
from headrace_snapshots.log import Entry
from headrace_snapshots.names import is_published, manifest_path, output_of, published_ref
from headrace_snapshots.protocol.moves import BeginDelivery, EndDelivery, Horizon, Kind
from headrace_snapshots.store import ObjectStore, StoreUnavailableError, UnknownOutcomeError
from headrace_snapshots.store.local import MemoryStore

WHEN = datetime(2026, 1, 1, tzinfo=UTC)
EMPTY: Objects = frozenset()
_UNCLEAR_ERRORS = (StoreUnavailableError, UnknownOutcomeError)

Say = Callable[[Hashable], None]

CLAIM_SAID, EXPIRY_SAID = "claimed", "expired"
"""What programs say of what is no entry of theirs that others could deny."""


@dataclass(frozen=True)
class Statement:
    """What a program knows of what it did: ``done`` as entry ``number``, ``counts`` (done, as an entry that has been
    folded away, by a writer who was fenced after that), ``failed``, or ``unknown``.

    ``what``: the id of the snapshot that it committed, or else ``action_of`` its entry.
    """

    outcome: str
    what: str
    number: int = -1


TAKEN_BACK = "taken back"
"""What a rollback of ``promoted_epochs`` to what main was before the promotion is."""


def action_of(entry: Entry) -> str:
    """What an entry did; no program does the same twice."""
    if entry.kind is Kind.COMMIT:
        return entry.refs[entry.branch or ""]
    if entry.kind is Kind.ROLLBACK and entry.refs.get("main") == snapshot("first-2"):
        return TAKEN_BACK
    if entry.kind is Kind.FORK:
        return f"fork {entry.branch}"
    return published_name({**entry.moves}) if entry.kind is Kind.PUBLISH else entry.kind.value


def published_name(moves: Mapping[str, tuple[str | None, str | None]]) -> str:
    """What a publish is called, by what it shows and the refs that it moved."""
    shown_snapshots = sorted({str(target) for _, target in moves.values()})
    outputs = sorted(name for ref in moves if (name := output_of(ref)))
    return " ".join(("published", *shown_snapshots, *outputs))


def catalog_over(store: ObjectStore, writer: str, *, looks_once: bool = False) -> Catalog:
    """A catalog whose ids are the same each time."""
    numbers = count()

    def new_id() -> str:
        return checksum(f"{writer}{next(numbers)}".encode())[:32]

    return Catalog(store, "p", now=lambda: WHEN, new_id=new_id, looks_once=looks_once)


def snapshot(name: str) -> str:
    """The id of the snapshot that is called ``name`` here."""
    return checksum(name.encode())[:16]


def attempt(say: Say, what: str, action: Callable[[], Entry]) -> bool:
    """Do something, and say what came of it; whether it was done."""
    try:
        say(Statement("done", what, action().number))
    except UnknownOutcomeError:
        say(Statement("unknown", what))
        return False
    except FencedAfterCommitError:
        say(Statement("counts", what))
        return False
    except (FencedError, StoreUnavailableError, PublishConflictError, RefusedError, MissingSnapshotError):
        say(Statement("failed", what))
        return False
    return True


# Programs


def committer(
    writer: str, epochs: int, *, publishes: bool = False, files: bool = False, outputs: tuple[str, ...] = ()
) -> Program:
    """A run: it claims main, commits so many epochs (``outputs``: their names), and publishes what it committed.

    With ``files`` each epoch stores a data file, and its snapshot names those of the snapshot before it too.
    """

    def program(store: ObjectStore, say: Say) -> None:
        catalog = catalog_over(store, writer, looks_once=True)
        try:
            claim = catalog.claim("main", writer)
        except _UNCLEAR_ERRORS:
            return
        say(CLAIM_SAID)
        parent, published_snapshot = claim.snapshot_id, catalog.head().refs.get("published") if publishes else None
        for number in range(epochs):
            manifest = manifest_for(catalog, claim, parent, snapshot(f"{writer}-{number}"), outputs)
            if files:
                manifest = with_file(catalog, manifest)
            if not attempt(
                say, manifest.snapshot_id, lambda new_manifest=manifest: catalog.commit(claim, new_manifest)
            ):
                return
            parent = manifest.snapshot_id
        if publishes and parent is not None:
            attempt(say, f"published {parent}", lambda: catalog.publish(parent, published_snapshot))

    return program


def folds(branch: str, epochs: int = 0) -> Program:
    """Claims a branch, commits so many epochs to it, gives up all of the log but what says so, and deletes it."""

    def program(store: ObjectStore, say: Say) -> None:
        catalog = catalog_over(store, "folder", looks_once=True)
        try:
            claim = catalog.claim(branch, "folder")
        except _UNCLEAR_ERRORS:
            return
        parent = claim.snapshot_id
        for number in range(epochs):
            manifest = manifest_for(catalog, claim, parent, snapshot(f"folder-{number}"))
            if not attempt(
                say, manifest.snapshot_id, lambda new_manifest=manifest: catalog.commit(claim, new_manifest)
            ):
                return
            parent = manifest.snapshot_id
        head = catalog.head()
        mark = DeletionList(catalog.marks.new_id(head.entry + 1, catalog.new_snapshot_id()), ())
        catalog.marks.write(mark)
        horizon = Horizon(mark.id, folded=head.entry + 1)
        if attempt(say, "expire", lambda: catalog.expire(head.entry, horizon, tags=(), idle=(), message="expired")):
            catalog.fold()

    return program


def expirer(name: str, times: int = 2) -> Program:
    """Keeps the newest published snapshot: marks the others, and deletes them the next time."""

    def program(store: ObjectStore, say: Say) -> None:
        catalog = catalog_over(store, name)
        try:
            for _ in range(times):
                expire(catalog, Keep(1), WHEN)
            say(EXPIRY_SAID)
        except _UNCLEAR_ERRORS:
            return

    return program


def rolls_back(target: str) -> Program:
    """A person who moves main back."""
    return lambda store, say: _at_once(
        store, say, "rollback", lambda catalog: catalog.rollback("main", snapshot(target), "back")
    )


def takes_back(store: ObjectStore, say: Say) -> None:
    """A person who moves main back to what it was before the promotion."""
    _at_once(store, say, TAKEN_BACK, lambda catalog: catalog.rollback("main", snapshot("first-2"), "taken back"))


def publishes(name: str) -> Program:
    """Somebody who publishes what an audit has found good."""
    target = snapshot(name)

    def publish(catalog: Catalog) -> Entry:
        return catalog.publish(target, snapshot("first-1"))

    return lambda store, say: _at_once(store, say, f"published {target}", publish)


def publishes_outputs(name: str, expected: Mapping[str, str | None]) -> Program:
    """Somebody who publishes a snapshot of some outputs. ``expected``: what is published of each, None: nothing yet."""
    target = snapshot(name)
    seen_by_output = {output: None if name is None else snapshot(name) for output, name in expected.items()}

    def publish(catalog: Catalog) -> Entry:
        return catalog.publish_outputs(dict.fromkeys(seen_by_output, target), seen_by_output)

    what = published_name({published_ref(output): (None, target) for output in seen_by_output})
    return lambda store, say: _at_once(store, say, what, publish)


def forks(name: str) -> Program:
    """A person who makes a branch."""
    target = snapshot(name)
    return lambda store, say: _at_once(store, say, "fork fix", lambda catalog: catalog.fork("fix", target))


def drops(branch: str) -> Program:
    """A person who drops a branch."""
    return lambda store, say: _at_once(store, say, "drop", lambda catalog: catalog.drop(branch))


HANDED_OVER = "handed over"


def hands_over(store: ObjectStore, say: Say) -> None:
    """A delivery of what readers see to a sink that cannot take back: the entry before it, the rows, the one after."""
    catalog = catalog_over(store, HANDED_OVER)
    try:
        published_snapshot = catalog.head().refs["published"]
    except _UNCLEAR_ERRORS:
        return
    if attempt(
        say, Kind.DELIVERING.value, lambda: catalog.record_delivery(BeginDelivery("", "mail", published_snapshot))
    ):
        say((HANDED_OVER, published_snapshot))
        attempt(say, Kind.DELIVERED.value, lambda: catalog.record_delivery(EndDelivery("", "mail", published_snapshot)))


def promoter(store: ObjectStore, say: Say) -> None:
    """A person who makes the branch ``other`` main, whatever main is at."""
    _at_once(
        store,
        say,
        "promote",
        lambda catalog: catalog.promote("other", expected_main=catalog.head().refs.get("main")),
    )


def tagger(name: str) -> Program:
    """A person who gives a tag, and drops it again."""

    def program(store: ObjectStore, say: Say) -> None:
        catalog = catalog_over(store, "tagger")
        if attempt(say, "tag", lambda: catalog.tag("t", snapshot(name))):
            attempt(say, "drop", lambda: catalog.drop("tags/t"))

    return program


def _at_once(store: ObjectStore, say: Say, what: str, action: Callable[[Catalog], Entry]) -> None:
    catalog = catalog_over(store, what)
    try:
        attempt(say, what, lambda: action(catalog))
    except _UNCLEAR_ERRORS:
        return


def with_file(catalog: Catalog, manifest: Manifest) -> Manifest:
    """``manifest`` with a layer of its own, stored, on those of its parent."""
    data = manifest.snapshot_id.encode()
    file = DataFile(data_path("p", manifest.epoch, manifest.snapshot_id, "state", "0"), 1, len(data), checksum(data))
    catalog.store.write(file.path, data)
    state_below = catalog.manifest(manifest.parent).tables["state"] if manifest.parent else ()
    return manifest.replace(tables={"state": (*state_below, Layer.from_files((file,), manifest.epoch, manifest.epoch))})


# What is there at first


def begun_catalog(epochs: int = 0) -> Objects:
    """A catalog that has begun, with so many epochs on main."""
    store = MemoryStore()
    catalog = catalog_over(store, "first")
    commit_some(catalog, catalog.claim("main", "first"), epochs)
    return contents(store)


@cache
def published_epochs(epochs: int) -> Objects:
    """Epochs with files on main, ``first-0`` and so on, all published but the last; one more on the branch ``other``,
    which was forked from what is published. So an expiry lets ``first-0`` go, if there are three.
    """
    text = f"first-{epochs - 2}"
    return _main_and_other(epochs, text, {"": text})


@cache
def published_since(epochs: int) -> Objects:
    """As ``published_epochs``, but that ``other`` was forked before what readers see."""
    return _main_and_other(epochs, f"first-{epochs - 3}", {"": f"first-{epochs - 2}"})


@cache
def published_outputs(epochs: int, new: tuple[str, ...] = ()) -> Objects:
    """As ``published_epochs``, with two outputs. Readers of x see the last epoch but one, readers of y the one before,
    and readers of ``new`` ones nothing.
    """
    text = f"first-{epochs - 2}"
    return _main_and_other(epochs, text, {"x": text, "y": f"first-{epochs - 3}"}, new)


def _main_and_other(
    epochs: int, forked_text: str, names_by_output: Mapping[str, str], new: tuple[str, ...] = ()
) -> Objects:
    store = MemoryStore()
    catalog = catalog_over(store, "first")
    outputs = (*(output for output in names_by_output if output), *new)

    def commit(claim: Claim, parent: str | None, name: str) -> str:
        manifest = manifest_for(catalog, claim, parent, snapshot(name), outputs)
        catalog.commit(claim, with_file(catalog, manifest))
        return snapshot(name)

    claim, parent = catalog.claim("main", "first"), None
    for number in range(epochs):
        parent = commit(claim, parent, f"first-{number}")
    now = {output: snapshot(name) for output, name in names_by_output.items()}
    snapshots_by_output_before = {
        output: snapshot(f"first-{number}") for output, number in _epochs_before(names_by_output) if number >= 0
    }
    catalog.publish_outputs(snapshots_by_output_before, dict.fromkeys(names_by_output))
    catalog.publish_outputs(now, {**dict.fromkeys(names_by_output), **snapshots_by_output_before})
    catalog.fork("other", snapshot(forked_text))
    commit(catalog.claim("other", "first"), snapshot(forked_text), "other-0")
    return contents(store)


def _epochs_before(names_by_output: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """The epoch before that which readers of each output see: what they saw then, so a rollback may take them back."""
    return ((output, int(name.removeprefix("first-")) - 1) for output, name in names_by_output.items())


def marked_epochs(epochs: int) -> Objects:
    """As ``published_epochs``, and what is not kept is marked."""
    store = store_with(published_epochs(epochs))
    expire(catalog_over(store, "before"), Keep(1), WHEN)
    return contents(store)


def promoted_epochs(epochs: int) -> Objects:
    """As ``published_epochs``, and then ``other`` was promoted: a rollback may go back to the last epoch of main."""
    store = store_with(published_epochs(epochs))
    catalog = catalog_over(store, "promoted")
    catalog.promote("other", expected_main=catalog.head().refs["main"])
    return contents(store)


# What holds


@dataclass(frozen=True)
class CatalogFacts:
    """What the store leads to. ``numbers``: of the entries that count, by what they did. ``main``: its line."""

    base: int
    numbers: Mapping[str, int]
    main: frozenset[str]
    fulfilled_requests: frozenset[str]
    """What people ask for, as far as the refs say that it is so, by any hand."""

    @classmethod
    def from_objects(cls, objects: Objects) -> "CatalogFacts":
        """Raises AssertionError for what must not be."""
        store = store_with(objects)
        assert list(violations(store, "p")) == []
        catalog = Catalog(store, "p")
        head = catalog.head()
        lines = {ref: [*_line(catalog, snapshot)] for ref, snapshot in head.refs.items()}
        paths_there = {path for path, _ in objects}
        for manifest in (manifest for line in lines.values() for manifest in line):
            assert {file.path for file in files_of(manifest)} <= paths_there, f"{manifest.snapshot_id} lacks files"
        counting = [entry for entry in catalog.entries() if entry.number >= head.base]
        main = frozenset(manifest.snapshot_id for manifest in lines.get("main", ()))
        seen_by_ref = {
            ref: {manifest.snapshot_id for manifest in line} for ref, line in lines.items() if is_published(ref)
        }
        published_names = [
            published_name(dict.fromkeys(refs, (None, each)))
            for number in range(len(seen_by_ref))
            for refs in combinations(seen_by_ref, number + 1)
            for each in set.intersection(*(seen_by_ref[ref] for ref in refs))
        ]
        facts = {
            **dict.fromkeys(published_names, True),
            "rollback": manifest_path("p", snapshot("first-2")) in paths_there and snapshot("first-2") not in main,
            "fork fix": "fix" in head.generations,
            "promote": snapshot("other-0") in main,
            TAKEN_BACK: snapshot("first-2") in main and bool(head.past.given_up),
            "tag": "tags/t" in head.refs,
            Kind.DELIVERING.value: "delivering/mail" in head.refs,
            Kind.DELIVERED.value: "delivered/mail" in head.refs,
            "drop": not {"other", "tags/t"} <= {*head.generations, *head.refs} and "other" not in head.generations,
        }
        fulfilled_requests = frozenset(what for what, holds in facts.items() if holds)
        return cls(head.base, {action_of(entry): entry.number for entry in counting}, main, fulfilled_requests)

    def has(self, one: Statement, *, has_moved: bool) -> bool:
        """Whether it is there, as that entry; of those that were folded away commits are known, unless main moved."""
        if one.number >= self.base:
            return self.numbers.get(one.what) == one.number
        is_persons = " " in one.what or one.what in {kind.value for kind in Kind}
        return has_moved or one.what in self.main or is_persons


def _line(catalog: Catalog, snapshot: str) -> Iterator[Manifest]:
    """The kept snapshots from there back. Raises AssertionError if one is gone."""
    try:
        for link in catalog.lineage(snapshot):
            assert link.manifest is not None, link.problem
            yield link.manifest
    except MissingSnapshotError as error:
        raise AssertionError(f"{snapshot} has lost what came before it") from error


MOVES = frozenset({"rollback", "promote", TAKEN_BACK})
"""What moves main to another line, or back."""


def check(explorer: Explorer) -> int:
    """What holds in each state; how many there are.

    Nobody was told of what is not there, or that something failed which is there, also of a writer that stood still
    while its entry was folded away. No number was given twice. Nothing that a ref leads to is gone. What was handed
    over and cannot be taken back stays on main.

    Each program comes to what it is there for in some of them: one that is always refused proves nothing.
    """
    facts_by_objects: dict[Objects, CatalogFacts] = {}
    states = 0
    idle = {*range(len(explorer.programs))}
    for state in explorer.states():
        states += 1
        if state.objects not in facts_by_objects:
            facts_by_objects[state.objects] = CatalogFacts.from_objects(state.objects)
        facts = facts_by_objects[state.objects]
        programs = explorer.program_states(state)
        idle -= {number for number in idle if _has_ended_well(programs[number])}
        statements = [one for each in programs for one in each.said if isinstance(one, Statement)]
        done_statements = [one for one in statements if one.outcome == "done"]
        counts = [one for one in statements if one.outcome == "counts"]
        has_moved = any(one.what in MOVES for one in statements) or bool(MOVES & facts.fulfilled_requests)
        assert all(facts.has(one, has_moved=has_moved) for one in done_statements), (done_statements, facts)
        assert has_moved or all(one.what in facts.main for one in counts), (counts, facts)
        facts_there = {*facts.numbers, *facts.main, *facts.fulfilled_requests}
        assert not [one for one in statements if one.outcome == "failed" and one.what in facts_there]
        assert len({one.number for one in done_statements}) == len(done_statements)
        handed_snapshots = {one[1] for each in programs for one in each.said if isinstance(one, tuple)}
        assert handed_snapshots <= facts.main, (handed_snapshots, facts)
    assert not idle, f"programs {sorted(idle)} never come to what they are there for"
    return states


def _has_ended_well(program: ProgramState) -> bool:
    """Whether a program has ended, and what it said last is that it did it."""
    last = program.said[-1] if program.said and program.next is None else None
    return last in (CLAIM_SAID, EXPIRY_SAID) or (isinstance(last, Statement) and last.outcome == "done")
