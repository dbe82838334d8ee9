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
from headrace_lab.fault_plans import seeded
from headrace_snapshots.catalog import Catalog, Claim
from headrace_snapshots.errors import FencedError, PublishConflictError, RefusedError
from headrace_snapshots.format.codec import encode_object
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.store import StoreUnavailableError
from headrace_snapshots.store.local import MemoryStore
from headrace_snapshots.testing import Fault, FaultPlan, FaultyStore, HoldRequest, LandLate, Operation

BRANCHES = st.sampled_from(["main", "main", "backfill", "other"])
WRITERS = st.integers(0, 2)
BACK = st.integers(0, 4)


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

    def behind(self, branch: str, back: int) -> str | None:
        """The snapshot ``back`` epochs before the branch's head; None before its beginning."""
        return dict(enumerate(self.chain(self.refs.get(branch)))).get(back)

    def goes_back_to(self, branch: str, to: str | None) -> bool:
        """Whether the branch may be moved back to ``to``, and readers to something that they could see."""
        chain = self.chain(self.refs.get(branch))
        mains_before = [main for main, _ in self.replaced] if branch == "main" else []
        lines = [*chain, *(snapshot for main in mains_before for snapshot in self.chain(main))]
        if not chain or to == chain[0] or not (to is None or to in lines):
            return False
        return branch != "main" or to is None or all(at != "nothing" for at in self.readers_after(to).values())

    def undone(self, to: str | None) -> list[tuple[str, dict[str, str | None]]]:
        """The oldest promotion that is taken back, if one is."""
        return [pair for pair in self.replaced if to is None or to in self.chain(pair[0])][:1]

    def readers_after(self, to: str) -> dict[str, str | None]:
        """What readers see after main has gone to ``to``: what they see, or saw before the promotions that are taken
        back, if that is not newer; else the newest before it that they could see, or "nothing", which is refused.
        """
        after: dict[str, str | None] = {}
        for _, seen in self.undone(to) or [("", self.seen())]:
            for ref, shown in seen.items():
                is_newer = shown is not None and to in self.chain(shown)[1:]
                could = (each for each in self.chain(to) if each in self.may_see[ref])
                after[ref] = next(could, "nothing") if is_newer else shown
        return after

    def move_back(self, branch: str, to: str | None) -> None:
        """Move the branch to ``to``, and readers with main."""
        moves = {branch: to}
        if branch == "main":
            undone = self.undone(to)
            moves |= dict.fromkeys(self.published) if to is None else self.readers_after(to)
            self.replaced = self.replaced[: self.replaced.index(undone[0])] if undone else self.replaced
        for ref, at in moves.items():
            self.refs.pop(ref, None)
            if at is not None:
                self.refs[ref] = at

    def seen(self) -> dict[str, str | None]:
        """What readers see."""
        return {ref: self.refs.get(ref) for ref in self.published}

    def brings_back(self, snapshot: str) -> list[str]:
        """What main has had, and not any more, of what ``snapshot`` continues from; newest first."""
        main = self.chain(self.refs.get("main"))
        return [each for each in self.chain(snapshot) if each in self.mains and each not in main]


@dataclass
class Held:
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
        self.claimed = 0

    def manifest_after(self, catalog: Catalog, held: "Held") -> Manifest:
        """The next epoch of a writer."""
        return manifest_for(catalog, held.claim, held.head, outputs=self.outputs)

    def plan(self, seed: int, rate: float) -> FaultPlan:
        """Random faults; and ``interrupt``, if set, is done once before a create, in the middle of the operation."""
        faults = seeded(seed, rate, kinds=("create", "put"))

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
        self.claimed += 1
        self.model.owners.setdefault("main", 0)
        self.model.owners[branch] = self.claimed
        assert claim.snapshot_id == self.model.refs.get(branch)
        self.newest = Held(claim, self.claimed, claim.snapshot_id)
        return self.newest

    @rule(target=claims, writer=WRITERS, branch=BRANCHES, epochs=st.integers(1, 4))
    def run(self, writer: int, branch: str, epochs: int) -> object:
        """What a run of a pipeline does: claim, then commit a few epochs."""
        held_claim = self.claim(writer=writer, branch=branch)
        for _ in range(epochs if isinstance(held_claim, Held) else 0):
            self.commit(writer=writer, held=held_claim, newest=True)
        return held_claim

    @rule(writer=WRITERS, held=claims)
    def twins_commit(self, writer: int, held: Held) -> None:
        """Two processes under one claim: the second does not learn what the first commits."""
        twin = replace(held)
        self.commit(writer=writer, held=held, newest=False)
        self.commit(writer=(writer + 1) % 3, held=twin, newest=False)

    @rule(writer=WRITERS, held=claims)
    def commit_while_another_claims(self, writer: int, held: Held) -> None:
        catalog, branch = self.writers[writer], held.claim.branch

        def claim() -> None:
            self.claimed += 1
            self.model.owners[branch] = self.claimed
            Catalog(self.store, "p").claim(branch, "intruder")

        self.interrupt = claim
        self.outcome(lambda: catalog.commit(held.claim, self.manifest_after(catalog, held)), FencedError)
        self.interrupt = None

    @rule(writer=WRITERS, name=st.sampled_from(["a", "b"]), snapshot=snapshots)
    def tag_while_another_claims(self, writer: int, name: str, snapshot: str) -> None:
        def claim() -> None:
            self.claimed += 1
            self.model.owners["other"] = self.claimed
            Catalog(self.store, "p").claim("other", "somebody")

        self.interrupt = claim
        self.tag(writer=writer, name=name, snapshot=snapshot)
        self.interrupt = None

    @rule(target=snapshots, writer=WRITERS, held=claims, newest=st.booleans())
    def commit(self, writer: int, held: Held, newest: bool) -> object:
        if newest:
            held = self.newest
        catalog, branch = self.writers[writer], held.claim.branch
        manifest = self.manifest_after(catalog, held)
        mine = self.model.owners.get(branch) == held.number and self.model.refs.get(branch) == held.head
        if not self.outcome(lambda: catalog.commit(held.claim, manifest), None if mine else FencedError):
            return multiple()
        self.model.parents[manifest.snapshot_id] = held.head
        self.model.refs[branch] = held.head = manifest.snapshot_id
        return manifest.snapshot_id

    @precondition(lambda self: "main" in self.model.refs)
    @rule(
        writer=WRITERS,
        back=BACK,
        snapshot=st.none() | snapshots,
        informed=st.booleans(),
        release=st.booleans(),
        of=st.sampled_from([(0,), (1,), (0, 1)]),
    )
    def publish(
        self,
        writer: int,
        back: int,
        *,
        snapshot: str | None,
        informed: bool,
        release: bool,
        of: tuple[int, ...] = (0, 1),
    ) -> None:
        """Of one output or of all; what is expected is all that readers see. Releases of what is older move nothing."""
        catalog, model = self.writers[writer], self.model
        names = self.outputs or ("",)
        outputs = list(dict.fromkeys(names[number % len(names)] for number in of))
        refs = [model.published[names.index(output)] for output in outputs]
        main = model.refs["main"]
        target = snapshot or model.behind("main", back) or main
        on_main = target in model.chain(main)
        ahead = [ref for ref in refs if model.refs.get(ref) in [None, *model.chain(target)[1:]]]
        older = [ref for ref in refs if release and target in model.chain(model.refs.get(ref))[1:]]
        may = on_main and len(ahead) + len(older) == len(refs)
        expected: type[HeadraceError] | None = None if may else RefusedError
        if not informed and not release and any(model.seen().values()):
            expected = PublishConflictError
        pairs = dict(zip(names, model.seen().values(), strict=True))
        belief = pairs if informed else dict.fromkeys(names)
        done_outcome = self.outcome(
            lambda: (
                catalog.release(target, "why", outputs)
                if release
                else catalog.publish_outputs(dict.fromkeys(outputs, target), belief)
            ),
            expected,
        )
        if done_outcome:
            model.refs |= dict.fromkeys(ahead, target)
            for ref in refs:
                model.may_see[ref].add(target)

    @precondition(lambda self: bool(self.model.refs))
    @rule(writer=WRITERS, branch=BRANCHES, back=BACK, elsewhere=st.none() | snapshots)
    def rollback(self, writer: int, branch: str, back: int, elsewhere: str | None) -> None:
        catalog, model = self.writers[writer], self.model
        to = elsewhere or model.behind(branch, back)
        allowed = model.goes_back_to(branch, to)
        if not self.outcome(lambda: catalog.rollback(branch, to, "back"), None if allowed else RefusedError):
            return
        model.move_back(branch, to)
        model.owners[branch] = 0

    @precondition(lambda self: bool(self.model.replaced))
    @rule(writer=WRITERS, number=st.integers(0, 3), back=BACK)
    def take_back_a_promotion(self, writer: int, number: int, back: int) -> None:
        main, _ = self.model.replaced[number % len(self.model.replaced)]
        line = self.model.chain(main)
        self.rollback(writer=writer, branch="main", back=0, elsewhere=line[min(back, len(line) - 1)])

    @rule(target=claims, writer=WRITERS, held=claims, back=BACK)
    def step_back(self, writer: int, held: Held, back: int) -> object:
        """What a run does whose snapshot is broken: it moves its own branch back, and goes on."""
        catalog, model, branch = self.writers[writer], self.model, held.claim.branch
        to, at = model.behind(branch, back), model.refs.get(branch)
        expected: type[HeadraceError] | None = None
        if branch in model.owners and model.owners[branch] != held.number:
            expected = FencedError
        elif branch not in model.owners or at is None or to == at or not model.goes_back_to(branch, to):
            expected = RefusedError
        made_claims: list[Claim] = []
        if not self.outcome(lambda: made_claims.append(catalog.step_back(held.claim, to, "broken")), expected):
            return multiple()
        model.move_back(branch, to)
        self.claimed += 1
        model.owners[branch] = self.claimed
        assert made_claims[0].snapshot_id == to
        return Held(made_claims[0], self.claimed, to)

    @rule(writer=WRITERS, branch=BRANCHES, snapshot=st.none() | snapshots)
    def fork(self, writer: int, branch: str, snapshot: str | None) -> None:
        catalog, model = self.writers[writer], self.model
        # main is there from the first entry on, and a fork from a snapshot can never be the first
        taken = branch in model.owners or branch == "main"
        if self.outcome(lambda: catalog.fork(branch, snapshot), RefusedError if taken else None):
            model.owners.setdefault("main", 0)
            model.owners[branch] = 0
            if snapshot is not None:
                model.refs[branch] = snapshot

    @precondition(lambda self: bool({*self.model.refs} & {"backfill", "other"}))
    @rule(writer=WRITERS, branch=st.sampled_from(["backfill", "other", "main"]), informed=st.booleans())
    def promote(self, writer: int, branch: str, informed: bool) -> None:
        catalog, model = self.writers[writer], self.model
        main = model.refs.get("main")
        expected: type[HeadraceError] | None = None
        if branch == "main" or branch not in model.refs:
            expected = RefusedError
        elif not informed:
            expected = PublishConflictError
        belief = main if informed else "elsewhere"
        if self.outcome(lambda: catalog.promote(branch, expected_main=belief), expected):
            snapshot = model.refs.pop(branch)
            if main is not None:
                model.replaced.append((main, model.seen()))
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
        there = ref in {"tags/a", "backfill"} and (ref in self.model.refs or ref in self.model.owners)
        if self.outcome(lambda: self.writers[writer].drop(ref), None if there else RefusedError):
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
                found = catalog.given_up(past, snapshot)
                newest = [] if found is None or found.snapshot_id in main else [found.snapshot_id]
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

    def settled() -> None:
        machine.a_newcomer_sees_what_the_model_says()
        machine.what_main_had_and_has_not_is_known()

    machine.run(writer=0, branch="main", epochs=3)
    first, main_before = machine.model.behind("main", 2), machine.model.refs["main"]
    machine.publish(writer=0, back=1, snapshot=None, informed=True, release=False)
    for _ in range(2):
        machine.fork(writer=1, branch="backfill", snapshot=first)
        machine.run(writer=1, branch="backfill", epochs=2)
        settled()
        machine.promote(writer=1, branch="backfill", informed=True)
        machine.run(writer=0, branch="main", epochs=1)
        settled()
        machine.rollback(writer=2, branch="main", back=0, elsewhere=main_before)
        settled()
        assert machine.model.refs["main"] == main_before
        assert {*machine.model.seen().values()} == {machine.model.behind("main", 1)}
    machine.teardown()
