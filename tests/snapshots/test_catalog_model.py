"""The catalog against a model of a few lines, with several writers, failing requests, lost answers and late puts."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from catalog_helpers import manifest_for
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from headrace.errors import HeadraceError
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.fault_plans import seeded_plan
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.errors import FencedError, PublishConflictError, RefusedError
from headrace_snapshots.format.codec import encode_object
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import StoreUnavailableError
from headrace_snapshots.store.local import MemoryStore
from headrace_snapshots.testing import Fault, FaultPlan, FaultyStore, HoldRequest, LandLate, Operation

BRANCHES = st.sampled_from(["main", "main", "backfill", "other"])
WRITERS = st.integers(0, 2)
STEPS_BACK = st.integers(0, 4)


@dataclass
class Model:
    """Refs, who owns each branch (a claim's own number, 0 for nobody), and who is whose parent.

    ``replaced``: what main was and what was published before each promotion that stands. ``mains``: all that main ever
    had. ``published``: the refs of what readers see. ``may_see``: by such a ref what was published or released.
    """

    published: tuple[str, ...] = ("published",)
    refs: dict[str, str] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    replaced: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    mains: set[str] = field(default_factory=set)
    may_see: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def chain(self, snapshot: str | None) -> list[str]:
        ancestors = []
        while snapshot is not None:
            ancestors.append(snapshot)
            snapshot = self.parents[snapshot]
        return ancestors

    def snapshot_behind(self, branch: str, steps: int) -> str | None:
        """The snapshot ``steps`` epochs before the branch's head; None before its beginning."""
        return dict(enumerate(self.chain(self.refs.get(branch)))).get(steps)

    def goes_back_to(self, branch: str, target: str | None) -> bool:
        """Whether the branch may be moved back to ``target``, and readers to something that they could see."""
        chain = self.chain(self.refs.get(branch))
        mains_before = [main for main, _ in self.replaced] if branch == "main" else []
        lines = [*chain, *(snapshot for main in mains_before for snapshot in self.chain(main))]
        if not chain or target == chain[0] or not (target is None or target in lines):
            return False
        return (
            branch != "main"
            or target is None
            or all(snapshot != "nothing" for snapshot in self.readers_after(target).values())
        )

    def undone(self, target: str | None) -> list[tuple[str, dict[str, str | None]]]:
        """The oldest promotion that is taken back, if one is."""
        return [pair for pair in self.replaced if target is None or target in self.chain(pair[0])][:1]

    def readers_after(self, target: str) -> dict[str, str | None]:
        """What readers see after main has gone to ``target``: what they see, or saw before the promotions that are
        taken back, if that is not newer; else the newest before it that they could see, or "nothing", which is refused.
        """
        new_refs: dict[str, str | None] = {}
        for _, old_refs in self.undone(target) or [("", self.seen_refs())]:
            for ref, snapshot in old_refs.items():
                is_newer = snapshot is not None and target in self.chain(snapshot)[1:]
                could = (each for each in self.chain(target) if each in self.may_see[ref])
                new_refs[ref] = next(could, "nothing") if is_newer else snapshot
        return new_refs

    def move_back(self, branch: str, target: str | None) -> None:
        """Move the branch to ``target``, and readers with main."""
        moves = {branch: target}
        if branch == "main":
            undone = self.undone(target)
            moves |= dict.fromkeys(self.published) if target is None else self.readers_after(target)
            self.replaced = self.replaced[: self.replaced.index(undone[0])] if undone else self.replaced
        for ref, snapshot in moves.items():
            self.refs.pop(ref, None)
            if snapshot is not None:
                self.refs[ref] = snapshot

    def seen_refs(self) -> dict[str, str | None]:
        """What readers see."""
        return {ref: self.refs.get(ref) for ref in self.published}

    def brings_back(self, snapshot: str) -> list[str]:
        """What main has had, and not any more, of what ``snapshot`` continues from; newest first."""
        main = self.chain(self.refs.get("main"))
        return [each for each in self.chain(snapshot) if each in self.mains and each not in main]


@dataclass
class HeldClaim:
    """A claim, its number in the model, and the head that its writer believes in."""

    claim: Claim
    number: int
    head: str | None


class CatalogMachine(RuleBasedStateMachine):
    claims = Bundle("claims")
    snapshots = Bundle("snapshots")

    @initialize(
        seed=st.integers(0, 2**32), rate=st.sampled_from([0.0, 0.2, 0.6]), outputs=st.sampled_from([(), ("x", "y")])
    )
    def begin(self, seed: int, rate: float, outputs: tuple[str, ...] = ()) -> None:
        self.outputs = outputs
        self.store = MemoryStore()
        self.interrupt: Callable[[], None] | None = None
        self.writers = [Catalog(FaultyStore(self.store, self.plan(seed + n, rate)), "p") for n in range(3)]
        self.model = Model(tuple(f"published/{output}" for output in outputs) or ("published",))
        self.claim_count = 0

    def manifest_after(self, catalog: Catalog, held_claim: "HeldClaim") -> Manifest:
        """The next epoch of a writer."""
        return manifest_for(catalog, held_claim.claim, held_claim.head, outputs=self.outputs)

    def plan(self, seed: int, rate: float) -> FaultPlan:
        """Random faults; and ``interrupt``, if set, is done once before a create, in the middle of the operation."""
        faults = seeded_plan(seed, rate, kinds=("create", "put"))

        def plan(operation: Operation) -> Fault | LandLate | HoldRequest | None:
            interrupt = self.interrupt
            if interrupt is None or operation.kind != "create":
                return faults(operation)
            self.interrupt = None
            return HoldRequest(interrupt)

        return plan

    def outcome(self, action: object, expected: type[HeadraceError] | None) -> bool:
        """Run ``action``; True if it took effect. A failed request may replace any outcome; then nothing happened."""
        assert callable(action)
        try:
            action()
        except StoreUnavailableError:
            return False
        except HeadraceError as error:
            assert type(error) is expected, f"expected {expected}, got {error!r}"
            return False
        assert expected is None, f"expected {expected}, and it was done"
        return True

    @rule(target=claims, writer=WRITERS, branch=BRANCHES)
    def claim(self, writer: int, branch: str) -> object:
        try:
            claim = self.writers[writer].claim(branch, f"writer {writer}")
        except StoreUnavailableError:
            return multiple()
        self.claim_count += 1
        self.model.owners.setdefault("main", 0)
        self.model.owners[branch] = self.claim_count
        assert claim.snapshot_id == self.model.refs.get(branch)
        self.newest = HeldClaim(claim, self.claim_count, claim.snapshot_id)
        return self.newest

    @rule(target=claims, writer=WRITERS, branch=BRANCHES, epochs=st.integers(1, 4))
    def run(self, writer: int, branch: str, epochs: int) -> object:
        """What a run of a pipeline does: claim, then commit a few epochs."""
        held_claim = self.claim(writer=writer, branch=branch)
        for _ in range(epochs if isinstance(held_claim, HeldClaim) else 0):
            self.commit(writer=writer, held_claim=held_claim, newest=True)
        return held_claim

    @rule(writer=WRITERS, held_claim=claims)
    def twins_commit(self, writer: int, held_claim: HeldClaim) -> None:
        """Two processes under one claim: the second does not learn what the first commits."""
        twin = replace(held_claim)
        self.commit(writer=writer, held_claim=held_claim, newest=False)
        self.commit(writer=(writer + 1) % 3, held_claim=twin, newest=False)

    @rule(writer=WRITERS, held_claim=claims)
    def commit_while_another_claims(self, writer: int, held_claim: HeldClaim) -> None:
        catalog, branch = self.writers[writer], held_claim.claim.branch

        def claim() -> None:
            self.claim_count += 1
            self.model.owners[branch] = self.claim_count
            Catalog(self.store, "p").claim(branch, "intruder")

        self.interrupt = claim
        self.outcome(lambda: catalog.commit(held_claim.claim, self.manifest_after(catalog, held_claim)), FencedError)
        self.interrupt = None

    @rule(writer=WRITERS, name=st.sampled_from(["a", "b"]), snapshot=snapshots)
    def tag_while_another_claims(self, writer: int, name: str, snapshot: str) -> None:
        def claim() -> None:
            self.claim_count += 1
            self.model.owners["other"] = self.claim_count
            Catalog(self.store, "p").claim("other", "somebody")

        self.interrupt = claim
        self.tag(writer=writer, name=name, snapshot=snapshot)
        self.interrupt = None

    @rule(target=snapshots, writer=WRITERS, held_claim=claims, newest=st.booleans())
    def commit(self, writer: int, held_claim: HeldClaim, newest: bool) -> object:
        if newest:
            held_claim = self.newest
        catalog, branch = self.writers[writer], held_claim.claim.branch
        manifest = self.manifest_after(catalog, held_claim)
        mine = self.model.owners.get(branch) == held_claim.number and self.model.refs.get(branch) == held_claim.head
        if not self.outcome(lambda: catalog.commit(held_claim.claim, manifest), None if mine else FencedError):
            return multiple()
        self.model.parents[manifest.snapshot_id] = held_claim.head
        self.model.refs[branch] = held_claim.head = manifest.snapshot_id
        return manifest.snapshot_id

    @precondition(lambda self: "main" in self.model.refs)
    @rule(
        writer=WRITERS,
        steps=STEPS_BACK,
        snapshot=st.none() | snapshots,
        is_informed=st.booleans(),
        release=st.booleans(),
        output_numbers=st.sampled_from([(0,), (1,), (0, 1)]),
    )
    def publish(
        self,
        writer: int,
        steps: int,
        *,
        snapshot: str | None,
        is_informed: bool,
        release: bool,
        output_numbers: tuple[int, ...] = (0, 1),
    ) -> None:
        """Of one output or of all; what is expected is all that readers see. Releases of what is older move nothing."""
        catalog, model = self.writers[writer], self.model
        names = self.outputs or ("",)
        outputs = list(dict.fromkeys(names[number % len(names)] for number in output_numbers))
        refs = [model.published[names.index(output)] for output in outputs]
        main = model.refs["main"]
        target = snapshot or model.snapshot_behind("main", steps) or main
        on_main = target in model.chain(main)
        refs_ahead = [ref for ref in refs if model.refs.get(ref) in [None, *model.chain(target)[1:]]]
        older = [ref for ref in refs if release and target in model.chain(model.refs.get(ref))[1:]]
        may = on_main and len(refs_ahead) + len(older) == len(refs)
        expected: type[HeadraceError] | None = None if may else RefusedError
        if not is_informed and not release and any(model.seen_refs().values()):
            expected = PublishConflictError
        pairs = dict(zip(names, model.seen_refs().values(), strict=True))
        belief = pairs if is_informed else dict.fromkeys(names)
        done_outcome = self.outcome(
            lambda: (
                catalog.release(target, "why", outputs)
                if release
                else catalog.publish_outputs(dict.fromkeys(outputs, target), belief)
            ),
            expected,
        )
        if done_outcome:
            model.refs |= dict.fromkeys(refs_ahead, target)
            for ref in refs:
                model.may_see[ref].add(target)

    @precondition(lambda self: bool(self.model.refs))
    @rule(writer=WRITERS, branch=BRANCHES, steps=STEPS_BACK, elsewhere=st.none() | snapshots)
    def rollback(self, writer: int, branch: str, steps: int, elsewhere: str | None) -> None:
        catalog, model = self.writers[writer], self.model
        target = elsewhere or model.snapshot_behind(branch, steps)
        is_allowed = model.goes_back_to(branch, target)
        if not self.outcome(lambda: catalog.rollback(branch, target, "back"), None if is_allowed else RefusedError):
            return
        model.move_back(branch, target)
        model.owners[branch] = 0

    @precondition(lambda self: bool(self.model.replaced))
    @rule(writer=WRITERS, number=st.integers(0, 3), steps=STEPS_BACK)
    def take_back_a_promotion(self, writer: int, number: int, steps: int) -> None:
        main, _ = self.model.replaced[number % len(self.model.replaced)]
        line = self.model.chain(main)
        self.rollback(writer=writer, branch="main", steps=0, elsewhere=line[min(steps, len(line) - 1)])

    @rule(target=claims, writer=WRITERS, held_claim=claims, steps=STEPS_BACK)
    def step_back(self, writer: int, held_claim: HeldClaim, steps: int) -> object:
        """What a run does whose snapshot is broken: it moves its own branch back, and goes on."""
        catalog, model, branch = self.writers[writer], self.model, held_claim.claim.branch
        target, head = model.snapshot_behind(branch, steps), model.refs.get(branch)
        expected: type[HeadraceError] | None = None
        if branch in model.owners and model.owners[branch] != held_claim.number:
            expected = FencedError
        elif branch not in model.owners or head is None or target == head or not model.goes_back_to(branch, target):
            expected = RefusedError
        made_claims: list[Claim] = []
        if not self.outcome(
            lambda: made_claims.append(catalog.step_back(held_claim.claim, target, "broken")), expected
        ):
            return multiple()
        model.move_back(branch, target)
        self.claim_count += 1
        model.owners[branch] = self.claim_count
        assert made_claims[0].snapshot_id == target
        return HeldClaim(made_claims[0], self.claim_count, target)

    @rule(writer=WRITERS, branch=BRANCHES, snapshot=st.none() | snapshots)
    def fork(self, writer: int, branch: str, snapshot: str | None) -> None:
        catalog, model = self.writers[writer], self.model
        # main is there from the first entry on, and a fork from a snapshot can never be the first
        is_taken = branch in model.owners or branch == "main"
        if self.outcome(lambda: catalog.fork(branch, snapshot), RefusedError if is_taken else None):
            model.owners.setdefault("main", 0)
            model.owners[branch] = 0
            if snapshot is not None:
                model.refs[branch] = snapshot

    @precondition(lambda self: bool({*self.model.refs} & {"backfill", "other"}))
    @rule(writer=WRITERS, branch=st.sampled_from(["backfill", "other", "main"]), is_informed=st.booleans())
    def promote(self, writer: int, branch: str, is_informed: bool) -> None:
        catalog, model = self.writers[writer], self.model
        main = model.refs.get("main")
        expected: type[HeadraceError] | None = None
        if branch == "main" or branch not in model.refs:
            expected = RefusedError
        elif not is_informed:
            expected = PublishConflictError
        belief = main if is_informed else "elsewhere"
        if self.outcome(lambda: catalog.promote(branch, expected_main=belief), expected):
            snapshot = model.refs.pop(branch)
            if main is not None:
                model.replaced.append((main, model.seen_refs()))
            model.refs |= {"main": snapshot, **dict.fromkeys(model.published, snapshot)}
            for ref in model.published:
                model.may_see[ref].add(snapshot)
            model.owners["main"] = 0
            del model.owners[branch]

    @rule(writer=WRITERS, name=st.sampled_from(["a", "b"]), snapshot=snapshots)
    def tag(self, writer: int, name: str, snapshot: str) -> None:
        ref = f"tags/{name}"
        expected = RefusedError if ref in self.model.refs else None
        if self.outcome(lambda: self.writers[writer].tag(name, snapshot), expected):
            self.model.refs[ref] = snapshot

    @rule(writer=WRITERS, ref=st.sampled_from(["tags/a", "backfill", "main", "published", "published/x", "nothing"]))
    def drop(self, writer: int, ref: str) -> None:
        is_there = ref in {"tags/a", "backfill"} and (ref in self.model.refs or ref in self.model.owners)
        if self.outcome(lambda: self.writers[writer].drop(ref), None if is_there else RefusedError):
            self.model.refs.pop(ref, None)
            self.model.owners.pop(ref, None)

    @rule(content=st.sampled_from([b"", b'{"entry": 999}', encode_object("log-hint", {"entry": 0})]))
    def spoil_the_hint(self, content: bytes) -> None:
        self.store.write("p/log-hint.json", content)

    @invariant()
    def a_newcomer_sees_what_the_model_says(self) -> None:
        if hasattr(self, "store"):
            head = Catalog(self.store, "p").head()
            assert head.refs == self.model.refs
            self.model.mains |= {*self.model.chain(head.refs.get("main"))}
            assert set(head.generations) - {"main"} == set(self.model.owners) - {"main"}

    @invariant()
    def what_main_had_and_has_not_is_known(self) -> None:
        if hasattr(self, "store"):
            catalog = Catalog(self.store, "p")
            past, main = catalog.head().past, self.model.chain(self.model.refs.get("main"))
            for snapshot in {*self.model.refs.values()}:
                lost_snapshot = catalog.given_up(past, snapshot)
                newest = (
                    [] if lost_snapshot is None or lost_snapshot.snapshot_id in main else [lost_snapshot.snapshot_id]
                )
                assert newest == self.model.brings_back(snapshot)[:1]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            check_catalog(self.store, "p")


TestCatalog = pytest.mark.slow(CatalogMachine.TestCase)
TestCatalog.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [(), ("x", "y")])
def test_a_rollback_over_a_promotion_and_a_name_that_is_used_again(outputs: tuple[str, ...]) -> None:
    """The history that the machine must be able to come to, in one piece."""
    machine = CatalogMachine()
    machine.begin(seed=0, rate=0.0, outputs=outputs)

    def check_settled() -> None:
        machine.a_newcomer_sees_what_the_model_says()
        machine.what_main_had_and_has_not_is_known()

    machine.run(writer=0, branch="main", epochs=3)
    first, main_before = machine.model.snapshot_behind("main", 2), machine.model.refs["main"]
    machine.publish(writer=0, steps=1, snapshot=None, is_informed=True, release=False)
    for _ in range(2):
        machine.fork(writer=1, branch="backfill", snapshot=first)
        machine.run(writer=1, branch="backfill", epochs=2)
        check_settled()
        machine.promote(writer=1, branch="backfill", is_informed=True)
        machine.run(writer=0, branch="main", epochs=1)
        check_settled()
        machine.rollback(writer=2, branch="main", steps=0, elsewhere=main_before)
        check_settled()
        assert machine.model.refs["main"] == main_before
        assert {*machine.model.seen_refs().values()} == {machine.model.snapshot_behind("main", 1)}
    machine.teardown()


@pytest.mark.parametrize("outputs", [(), ("x", "y")])
def test_a_rollback_behind_a_release_of_an_older_snapshot_shows_the_newest_that_readers_could_see(
    outputs: tuple[str, ...],
) -> None:
    machine = CatalogMachine()
    machine.begin(seed=0, rate=0.0, outputs=outputs)
    machine.run(writer=0, branch="main", epochs=3)
    published_id = machine.model.snapshot_behind("main", 1)
    for steps, release in ((1, False), (2, True), (0, False)):
        machine.publish(writer=0, steps=steps, snapshot=None, is_informed=True, release=release, output_numbers=(0, 1))
    machine.rollback(writer=0, branch="main", steps=1, elsewhere=None)
    machine.a_newcomer_sees_what_the_model_says()
    assert {*machine.model.seen_refs().values()} == {published_id}
    machine.teardown()
