"""Expiry beside everything else that happens to a catalog: what is kept is there, and whoever is stopped is fenced."""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

import pytest
from catalog_helpers import data_path, manifest_for
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace_lab.catalog_checks import check_catalog
from headrace_lab.fault_plans import hold_first
from headrace_lab.sizes import set_sizes
from headrace_snapshots import names
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.errors import FencedError, MissingSnapshotError, RefusedError
from headrace_snapshots.expiry import expire
from headrace_snapshots.format.files import DataFile, FileLog, FileRecord, InputFile, Layer
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.fsck import Witness, fsck
from headrace_snapshots.gc_roots import Keep
from headrace_snapshots.store import ObjectStore
from headrace_snapshots.store.local import MemoryStore
from headrace_snapshots.testing import FaultyStore

BRANCHES = st.sampled_from(["main", "main", "main", "backfill"])
LAST = st.integers(1, 3)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Model:
    """Who is whose parent, what each snapshot names, what is gone, and who owns which branch.

    ``replaced``: what main was and readers saw before each promotion that stands, and what was promoted. ``mains``: all
    that main ever had. ``published``: the refs of what readers see. ``may_see``: by such a ref what was published.
    """

    published: tuple[str, ...] = ("published",)
    refs: dict[str, str] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    replaced: list[tuple[str, dict[str, str | None], str]] = field(default_factory=list)
    mains: set[str] = field(default_factory=set)
    named: dict[str, set[str]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    may_see: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def line(self, ref: str) -> list[str]:
        """From the ref back, over what is gone."""
        return self.line_behind(self.refs.get(ref))

    def line_behind(self, snapshot: str | None) -> list[str]:
        """``snapshot`` and what came before it, over what is gone."""
        ancestors, ancestor = [], snapshot
        while ancestor is not None:
            if ancestor not in self.gone:
                ancestors.append(ancestor)
            ancestor = self.parents[ancestor]
        return ancestors

    def seen_refs(self) -> dict[str, str | None]:
        """What readers see."""
        return {ref: self.refs.get(ref) for ref in self.published}

    @staticmethod
    def oldest(line: list[str], snapshots_by_ref: dict[str, str | None]) -> int | None:
        """How many snapshots of ``line`` are newer than what all readers see; None if some see nothing."""
        ages = [None if snapshot is None else line.index(snapshot) for snapshot in snapshots_by_ref.values()]
        return None if None in ages else max(age for age in ages if age is not None)

    def snapshots_to_keep(self, last: int) -> set[str]:
        """The rule, said once more."""
        main = self.line("main")
        position = self.oldest(main, self.seen_refs())
        end = len(main) if position is None else position + last
        kept_snapshots = {*main[:end], *self.refs.values()}
        for _, _, some in self.returns(last):
            kept_snapshots |= {*some}
        for branch in {*self.owners} - {"main"}:
            line = self.line(branch)
            own = next((n for n, snapshot in enumerate(line) if snapshot in self.mains), len(line))
            kept_snapshots |= {*line[: max(own + 1, last)]}
        return kept_snapshots

    def returns(self, last: int) -> list[tuple[int, str, list[str]]]:
        """Of the promotions that can be taken back when so many published snapshots are kept: their number, what main
        was, and what is kept of that.
        """
        returns = []
        newer, line = 0, self.line("main")
        position = self.oldest(line, self.seen_refs())
        for number, (main, old_readers, successor) in reversed([*enumerate(self.replaced)]):
            if successor in line and position is not None:
                newer += line.index(successor) - position + 1
            line = self.line_behind(main)
            position = self.oldest(line, old_readers)
            seen_number = len(line) if position is None else position + 1
            if newer < last and main not in self.line("main"):
                returns.append((number, main, line[: max(seen_number, seen_number - 1 + last - newer)]))
        return returns

    def readers_after(self, target: str, is_gone: Callable[[str], bool]) -> dict[str, str | None]:
        """What readers see once main is at ``target``: "nothing" if they could see nothing of what is kept at or before
        it. A snapshot of which ``is_gone`` is true gets no ref.
        """
        undone = [each for each in self.replaced if target in self.line_behind(each[0])][:1]
        new_refs: dict[str, str | None] = {}
        for _, old_refs, _ in undone or [("", self.seen_refs(), "")]:
            for ref, snapshot in old_refs.items():
                is_newer = snapshot is not None and target in self.line_behind(snapshot)[1:]
                could = (each for each in self.line_behind(target) if each in self.may_see[ref] and not is_gone(each))
                new_refs[ref] = next(could, "nothing") if is_newer else snapshot
        return new_refs

    def go_back(self, target: str, readers: dict[str, str | None]) -> None:
        """Move main to ``target``, and readers to what they see then."""
        undone = [each for each in self.replaced if target in self.line_behind(each[0])][:1]
        self.replaced = self.replaced[: self.replaced.index(undone[0])] if undone else self.replaced
        for ref, snapshot in readers.items():
            self.refs.pop(ref, None)
            if snapshot is not None:
                self.refs[ref] = snapshot
        self.refs["main"] = target
        self.owners["main"] = 0


@dataclass
class HeldClaim:
    """A claim, its number in the model, the head that its writer believes in, and what it is about to commit."""

    claim: Claim
    number: int
    head: str | None
    floor: int = 0
    ready: Manifest | None = None


class ExpiryMachine(RuleBasedStateMachine):
    claims = Bundle("claims")

    @initialize(outputs=st.sampled_from([(), ("x", "y")]))
    def begin(self, outputs: tuple[str, ...] = ()) -> None:
        self.outputs = outputs
        self.store = MemoryStore()
        self.ids = count()
        self.catalogs = [self.catalog() for _ in range(2)]
        self.model = Model(tuple(f"published/{output}" for output in outputs) or ("published",))
        self.claim_count = 0
        self.in_flight = set[str]()
        self.witnesses = list[Witness]()

    def catalog(self, store: ObjectStore | None = None) -> Catalog:
        return Catalog(store or self.store, "p", new_id=lambda: f"{next(self.ids):016x}")

    def needed_paths(self, manifest: Manifest) -> set[str]:
        """What a manifest needs, found out by reading it all."""
        catalog = Catalog(self.store, "p")
        nodes = {ref.id for log in manifest.logs.values() for level in log.levels for ref in level.refs}
        nodes |= {layer.node.id for layer in manifest.tables["current"] if layer.node is not None}
        records = [record for log in manifest.logs.values() for record in catalog.file_records(log)]
        files = [file for record in records for file in record.files if isinstance(file, DataFile)]
        files += [file for layer in manifest.tables["current"] for file in layer.files]
        return {f"p/manifests/{manifest.snapshot_id}.json", *(f.path for f in files)} | {
            f"p/index/{node}.json" for node in nodes
        }

    def prepare_manifest(self, catalog: Catalog, held_claim: HeldClaim) -> Manifest:
        """The next epoch, all of it stored but for the log entry."""
        manifest = manifest_for(catalog, held_claim.claim, held_claim.head, outputs=self.outputs)
        epoch, path = manifest.epoch, f"p/data/{manifest.epoch:08d}-{manifest.snapshot_id}/panes.parquet"
        self.store.write(path, b"rows")
        file = DataFile(path, 1, 4, "0" * 64)
        parent = None if held_claim.head is None else catalog.manifest(held_claim.head)
        layer = Layer.from_files((file,) * (33 if epoch % 2 else 1), epoch, epoch)
        layers = (*(parent.tables["current"] if parent else ()), layer)[-2:]
        panes = catalog.cut(parent.logs["panes"], held_claim.floor) if parent else FileLog.empty()
        inputs = parent.logs["inputs"] if parent else FileLog.empty()
        read = InputFile("landing/a", 1, "e", "source")
        manifest = manifest.replace(
            tables={"current": layers},
            logs={
                "panes": catalog.append_record(panes, FileRecord(epoch, (file,) * 33)),
                "inputs": catalog.append_record(inputs, FileRecord(epoch, (read,) * 33)),
            },
        )
        return catalog.write_manifest(manifest, parent)

    @rule(target=claims, which=st.integers(0, 1), branch=BRANCHES)
    def claim(self, which: int, branch: str) -> HeldClaim:
        self.claim_count += 1
        claim = self.catalogs[which].claim(branch, "run")
        self.model.owners.setdefault("main", 0)
        self.model.owners[branch] = self.claim_count
        return HeldClaim(claim, self.claim_count, claim.snapshot_id, claim.floor)

    def commit(self, catalog: Catalog, held_claim: HeldClaim, manifest: Manifest) -> None:
        branch, model = held_claim.claim.branch, self.model
        mine = model.owners.get(branch) == held_claim.number and model.refs.get(branch) == held_claim.head
        if not mine:
            with pytest.raises(FencedError):
                catalog.commit(held_claim.claim, manifest)
            return
        held_claim.floor = catalog.commit(held_claim.claim, manifest).floor(branch)
        self.note_commit(held_claim, manifest)

    def note_commit(self, held_claim: HeldClaim, manifest: Manifest) -> None:
        model, branch, snapshot = self.model, held_claim.claim.branch, manifest.snapshot_id
        model.parents[snapshot] = held_claim.head
        model.mains |= {snapshot} if branch == "main" else set()
        model.named[snapshot] = self.needed_paths(manifest)
        model.refs[branch] = held_claim.head = snapshot
        self.tell(snapshot)
        catalog = Catalog(self.store, "p")
        panes = {record.epoch for record in catalog.file_records(manifest.logs["panes"])}
        for each in model.line(branch):
            assert catalog.manifest(each).epoch in panes, "what is kept in one piece is still to be seen"
            if model.parents[each] in model.gone:
                break

    @rule(
        which=st.integers(0, 1),
        held_claim=claims,
        epochs=st.integers(1, 5),
        publish=st.sampled_from([(), (0,), (1,), (0, 1)]),
    )
    def run(self, which: int, held_claim: HeldClaim, epochs: int, publish: tuple[int, ...]) -> None:
        """``publish``: which outputs it publishes."""
        catalog = self.catalogs[which]
        for _ in range(epochs):
            if held_claim.head is None or held_claim.head not in self.model.gone:
                self.commit(catalog, held_claim, self.prepare_manifest(catalog, held_claim))
        main = self.model.refs.get("main")
        outputs = {self.output(number) for number in publish}
        refs_behind = [ref for ref in self.model.published if ref in outputs and self.model.refs.get(ref) != main]
        if refs_behind and main is not None:
            self.publish(catalog, refs_behind, main)

    def output(self, number: int) -> str:
        """The ref of what readers of an output see."""
        return self.model.published[number % len(self.model.published)]

    def publish(self, catalog: Catalog, refs: list[str], snapshot: str) -> None:
        name = dict(zip(self.model.published, self.outputs or ("",), strict=True))
        expected = {name[ref]: shown_snapshot for ref, shown_snapshot in self.model.seen_refs().items()}
        for ref in refs:
            begin = frozenset(filter(None, [self.model.refs.get(ref)]))
            self.witnesses.append(Witness(f"the audit of {snapshot}", begin, audited=snapshot))
        catalog.publish_outputs({name[ref]: snapshot for ref in refs}, expected)
        self.model.refs |= dict.fromkeys(refs, snapshot)
        for ref in refs:
            self.model.may_see[ref].add(snapshot)
        self.tell(snapshot)

    def tell(self, snapshot: str) -> None:
        """What the result of a run says that has committed or published it."""
        now, catalog = datetime.now(UTC).isoformat(), Catalog(self.store, "p")
        published_snapshot = catalog.published_by_all(catalog.head().refs)
        names = frozenset(filter(None, [snapshot, published_snapshot]))
        self.witnesses.append(Witness(f"the result about {snapshot}", names, published=published_snapshot, at=now))

    @rule(held_claim=claims)
    def stop_before_the_entry(self, held_claim: HeldClaim) -> None:
        """All is stored, nothing is visible; whether it goes on some day is another matter."""
        if held_claim.head is None or held_claim.head not in self.model.gone:
            held_claim.ready = self.prepare_manifest(self.catalogs[0], held_claim)
            self.in_flight.add(held_claim.ready.snapshot_id)

    @rule(held_claim=claims)
    def go_on(self, held_claim: HeldClaim) -> None:
        if held_claim.ready is not None:
            ready, held_claim.ready = held_claim.ready, None
            if ready.parent == held_claim.head:
                self.commit(self.catalogs[0], held_claim, ready)

    @rule(last=LAST, times=st.integers(1, 2))
    def expire(self, last: int, times: int) -> None:
        for _ in range(times):
            self.note_what_goes(last)
            generations_before = dict(self.catalogs[1].head().generations)
            expire(self.catalogs[1], Keep(last), NOW)
            self.note_who_is_fenced(generations_before)

    def note_what_goes(self, last: int) -> None:
        model, kept_ids = self.model, self.model.snapshots_to_keep(last)
        returns = {number for number, _, _ in model.returns(last)}
        model.gone |= {*model.parents} - kept_ids
        model.replaced = [each for number, each in enumerate(model.replaced) if number in returns]

    def note_who_is_fenced(self, old_generations: dict[str, int]) -> None:
        for branch, generation in Catalog(self.store, "p").head().generations.items():
            if generation != old_generations.get(branch):
                self.model.owners[branch] = 0

    @precondition(lambda self: "main" in self.model.refs)
    @rule(held_claim=claims, last=LAST, takes_over=st.booleans(), tags=st.integers(0, 6))
    def expire_while_a_writer_stands_still(self, held_claim: HeldClaim, last: int, takes_over: bool, tags: int) -> None:
        """Between its look at the log and its entry others go on, and the log is folded over its number."""
        if held_claim.head is not None and held_claim.head in self.model.gone:
            return

        def act_meanwhile() -> None:
            other = self.catalog()
            if takes_over:
                self.claim_count += 1
                other.claim(held_claim.claim.branch, "intruder")
                self.model.owners[held_claim.claim.branch] = self.claim_count
            for number in range(tags):
                other.tag(f"x{number}", self.model.refs["main"])
                other.drop(f"tags/x{number}")
            self.expire(last=last, times=2)

        stopped_catalog = self.catalog(FaultyStore(self.store, hold_first("create", "/log/", act_meanwhile)))
        manifest = self.prepare_manifest(stopped_catalog, held_claim)
        self.in_flight.add(manifest.snapshot_id)
        mine = self.model.owners.get(held_claim.claim.branch) == held_claim.number
        if mine and self.model.refs.get(held_claim.claim.branch) == held_claim.head and not takes_over:
            # Fenced only if it did nothing for as long as the log is kept.
            try:
                held_claim.floor = stopped_catalog.commit(held_claim.claim, manifest).floor(held_claim.claim.branch)
            except FencedError:
                assert self.model.owners[held_claim.claim.branch] == 0
                return
            assert self.model.owners[held_claim.claim.branch] == held_claim.number
            self.note_commit(held_claim, manifest)
        else:
            with pytest.raises(FencedError):
                stopped_catalog.commit(held_claim.claim, manifest)

    @precondition(lambda self: "main" in self.model.refs)
    @rule(held_claim=claims, last=LAST)
    def another_expiry_overtakes_one_that_sweeps(self, held_claim: HeldClaim, last: int) -> None:
        def act_meanwhile() -> None:
            self.note_who_is_fenced(
                generations_before
            )  # what it stands still before may be deleting of what it has marked
            self.expire(last=last, times=2)
            self.run(which=0, held_claim=held_claim, epochs=2, publish=(0, 1))
            self.expire(last=last, times=2)

        generations_before = dict(self.catalogs[0].head().generations)
        slow = self.catalog(FaultyStore(self.store, hold_first("delete", "p/", act_meanwhile)))
        self.note_what_goes(last)
        expire(slow, Keep(last), NOW)
        self.note_what_goes(last)
        self.note_who_is_fenced(generations_before)

    @rule(held_claim=claims, name=st.sampled_from(["data", "manifests", "index"]))
    def die(self, held_claim: HeldClaim, name: str) -> None:
        """What a killed run leaves."""
        self.claim_count += 1
        paths_by_kind = {
            "data": data_path("p", 99, f"{self.claim_count:016x}", "panes", "0"),
            "manifests": names.manifest_path("p", f"{2**63 + self.claim_count:016x}"),
            "index": names.node_path("p", f"{self.claim_count:032x}"),
        }
        self.store.write(paths_by_kind[name], b"?")

    @precondition(lambda self: len(self.model.parents) > 1)
    @rule(number=st.integers(0), what=st.sampled_from(["tag", "fork", "rollback", "publish"]))
    def give_a_ref(self, number: int, what: str) -> None:
        """To any snapshot that ever was. What is gone gets none."""
        model, catalog = self.model, self.catalogs[0]
        snapshot = [*model.parents][number % len(model.parents)]
        ref = {"tag": "tags/t", "fork": "backfill", "rollback": "main", "publish": self.output(number)}[what]
        main = model.line("main")
        published_snapshot = model.refs.get(self.output(number))
        is_possible = {
            "tag": ref not in model.refs,
            "fork": "backfill" not in model.owners,
            "rollback": snapshot in main[1:]
            or (snapshot not in main and any(snapshot in model.line_behind(each[0]) for each in model.replaced)),
            "publish": snapshot in main
            and (published_snapshot is None or main.index(snapshot) < main.index(published_snapshot)),
        }[what]
        actions: dict[str, Callable[[], object]] = {
            "tag": lambda: catalog.tag("t", snapshot),
            "fork": lambda: catalog.fork("backfill", snapshot),
            "rollback": lambda: catalog.rollback("main", snapshot, "back"),
            "publish": lambda: self.publish(catalog, [ref], snapshot),
        }
        is_possible = is_possible and not (what != "publish" and self.was_marked_in_flight(snapshot))
        if snapshot in model.gone or not is_possible or (what == "rollback" and self.blinds(snapshot)):
            with pytest.raises((RefusedError, MissingSnapshotError)):
                actions[what]()
            return
        readers = model.readers_after(snapshot, self.was_marked_in_flight)
        actions[what]()
        if what == "rollback":
            model.go_back(snapshot, readers)
        model.refs[ref] = snapshot
        if what == "fork":
            model.owners[ref] = 0

    def blinds(self, target: str) -> bool:
        """Whether readers could see nothing at or before ``target``: that is refused."""
        return "nothing" in self.model.readers_after(target, self.was_marked_in_flight).values()

    def roll_back(self, target: str, message: str) -> bool:
        """Take main back; whether it went."""
        readers = self.model.readers_after(target, self.was_marked_in_flight)
        if self.blinds(target):
            with pytest.raises(RefusedError, match="would see nothing"):
                self.catalogs[0].rollback("main", target, message)
            return False
        self.catalogs[0].rollback("main", target, message)
        self.model.go_back(target, readers)
        return True

    def was_marked_in_flight(self, snapshot: str) -> bool:
        """It was committed after it had been marked as what a writer may still name: no ref until the next expiry."""
        catalog = Catalog(self.store, "p")
        horizon = catalog.head().horizon
        if horizon is None or snapshot not in self.in_flight or snapshot in self.model.refs.values():
            return False
        return not catalog.marks.is_kept(horizon.mark, snapshot)

    @rule(ref=st.sampled_from(["tags/t", "backfill"]))
    def drop(self, ref: str) -> None:
        with suppress(RefusedError):
            self.catalogs[0].drop(ref)
        self.model.refs.pop(ref, None)
        self.model.owners.pop(ref, None)

    @precondition(lambda self: "backfill" in self.model.refs)
    @rule()
    def promote(self) -> None:
        model = self.model
        main = model.refs.get("main")
        snapshot = model.refs["backfill"]
        self.catalogs[0].promote("backfill", expected_main=main, expected=snapshot)
        del model.refs["backfill"]
        if main is not None:
            model.replaced.append((main, model.seen_refs(), snapshot))
        model.refs |= {"main": snapshot, **dict.fromkeys(model.published, snapshot)}
        for ref in model.published:
            model.may_see[ref].add(snapshot)
        model.mains |= {*model.line("main")}
        del model.owners["backfill"]
        model.owners["main"] = 0

    @precondition(lambda self: bool(self.model.replaced))
    @rule(number=st.integers(0, 3))
    def take_back_a_promotion(self, number: int) -> None:
        main, _, _ = self.model.replaced[number % len(self.model.replaced)]
        if main not in self.model.line("main") and not self.was_marked_in_flight(main):
            self.roll_back(main, "taken back")

    @precondition(lambda self: "backfill" not in self.model.owners and len(self.model.line("main")) > 1)
    @rule(steps=st.integers(1, 3), last=LAST)
    def fork_what_main_gives_up(self, steps: int, last: int) -> None:
        """A branch begins at main's head, main goes back behind that, and all that only main had expires."""
        model, catalog = self.model, self.catalogs[0]
        line = model.line("main")
        target = line[min(steps, len(line) - 1)]
        if not self.was_marked_in_flight(line[0]) and not self.was_marked_in_flight(target):
            catalog.fork("backfill", line[0])
            model.refs["backfill"], model.owners["backfill"] = line[0], 0
            self.roll_back(target, "given up")
            self.expire(last=last, times=2)

    @rule()
    def lose_the_hint(self) -> None:
        self.store.delete("p/log-hint.json")

    @invariant()
    def what_is_kept_is_there(self) -> None:
        if not hasattr(self, "store"):
            return
        catalog = Catalog(self.store, "p")
        head = catalog.head()
        assert head.refs == self.model.refs
        paths_there = {info.path for info in self.store.list("p/")}
        for ref, snapshot in head.refs.items():
            assert [link.snapshot_id for link in catalog.lineage(snapshot)] == self.model.line(ref)
            for each in self.model.line(ref):
                assert self.model.named[each] <= paths_there
        assert [each.main for each in head.past.replaced] == [main for main, _, _ in self.model.replaced]
        for replacement in head.past.replaced:
            assert [link.snapshot_id for link in catalog.lineage(replacement.main)] == self.model.line_behind(
                replacement.main
            )
            for each in self.model.line_behind(replacement.main):
                assert self.model.named[each] <= paths_there

    @invariant()
    def what_must_not_come_back_to_main_is_known(self) -> None:
        if not hasattr(self, "store"):
            return
        catalog, model = Catalog(self.store, "p"), self.model
        past, main = catalog.head().past, model.line("main")
        for snapshot in {*model.refs.values()}:
            lost_snapshot = catalog.given_up(past, snapshot)
            newest = [] if lost_snapshot is None or lost_snapshot.snapshot_id in main else [lost_snapshot.snapshot_id]
            assert (
                newest == [each for each in model.line_behind(snapshot) if each in model.mains and each not in main][:1]
            )

    @invariant()
    def nothing_is_called_lost(self) -> None:
        if hasattr(self, "store"):
            problems = fsck(Catalog(self.store, "p"), witnesses=lambda *_: self.witnesses).problems
            assert not [problem for problem in problems if "are lost" in problem.problem]

    def teardown(self) -> None:
        if not hasattr(self, "store") or not self.model.refs:
            return
        check_catalog(self.store, "p")
        catalog = Catalog(self.store, "p")
        for branch in self.model.owners:
            catalog.claim(branch, "the last")
        for _ in range(3):
            expire(catalog, Keep(1), NOW)
            for branch in self.model.owners:
                catalog.claim(branch, "the last")
        live = set().union(*(self.needed_paths(m) for s in catalog.head().refs.values() for m in catalog.ancestry(s)))
        folders = ("data", "manifests", "index")
        left = {info.path for folder in folders for info in self.store.list(f"p/{folder}/")}
        assert left == live, "nothing is left that nobody needs"


@pytest.fixture(autouse=True)
def short_log() -> Iterator[None]:
    with set_sizes(kept_entries=3):
        yield


TestExpiry = pytest.mark.slow(ExpiryMachine.TestCase)
TestExpiry.settings = settings(max_examples=int(os.environ.get("HEADRACE_EXAMPLES", "40")), stateful_step_count=30)
