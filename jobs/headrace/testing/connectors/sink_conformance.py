"""What every sink must do, as tests for classes that inherit them.

Whatever happens to ``published`` and to deliveries, a delivery that comes to its end leaves the target with the rows
that readers see. Until then the target holds one published state or another.

Deliveries are also stopped in their middle: killed at a step (``killed_at``), or held up while another one passes them
(``at_each_step``).
"""

import contextlib
import multiprocessing
import os
import pickle
import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Self, TypeVar

import pytest

from headrace import DataType, FixedWindows, GlobalWindows, Limits, Pipeline, Sessions, WindowFn, col, count, retracting
from headrace.errors import FixDataError, RefusedError, RetryError, SinkTakenError
from headrace.ext import sinks as sink_ports
from headrace.ext.sinks import ChangeSource, FillReason
from headrace.pipeline.identity import fingerprint
from headrace.testing.connectors.worlds import VALUES, ChangeLogWorld, SinkDeployment, SinkWorld, order, plain
from headrace.types import Delivery

if TYPE_CHECKING:
    import pyarrow as pa


Act = Callable[[], None]
Whole = TypeVar("Whole", sink_ports.Changes, sink_ports.ChangeRecords)
_JOIN_SECONDS: Final = 120
_PRELOAD: Final = ("headrace.runs.delivering.deliver", "headrace.testing.connectors.worlds", "duckdb")


@dataclass(frozen=True, kw_only=True)
class _SteppedDelivery(Generic[Whole]):
    """What goes to a sink, and calls ``act`` before each batch of ``whole``."""

    whole: Whole
    act: Act

    @classmethod
    def from_whole(cls, whole: Whole, act: Act) -> Self:
        """The same as ``whole``, by steps."""
        own = {part.name: getattr(whole, part.name) for part in fields(cls) if part.name not in ("whole", "act")}
        return cls(whole=whole, act=act, **own)

    def act_before(self, batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Each of ``batches``, after ``act``."""
        for batch in batches:
            self.act()
            yield batch


@dataclass(frozen=True)
class _SteppedChanges(_SteppedDelivery[sink_ports.Changes], sink_ports.Changes):
    def removed(self) -> "Iterator[pa.RecordBatch]":
        return self.act_before(self.whole.removed())

    def rows(self, ordered_by: Sequence[str] = ()) -> "Iterator[pa.RecordBatch]":
        return self.act_before(self.whole.rows(ordered_by))

    def days(self) -> list[int | None]:
        return self.whole.days()

    def met_by(self, copied: "pa.Table") -> tuple[int, int]:
        return self.whole.met_by(copied)

    def untouched(self, copied: "pa.Table") -> "pa.Table":
        return self.whole.untouched(copied)


@dataclass(frozen=True)
class _SteppedRecords(_SteppedDelivery[sink_ports.ChangeRecords], sink_ports.ChangeRecords):
    def batches(self) -> "Iterator[pa.RecordBatch]":
        return self.act_before(self.whole.batches())


@dataclass(frozen=True)
class _SteppedTarget(sink_ports.OpenTarget):
    """A ``target`` for whose every change ``act`` is called, before it, at each batch of it, and after it."""

    target: sink_ports.OpenTarget
    act: Act

    def held(self) -> sink_ports.SinkState | None:
        return self.target.held()

    def intervention(self, held: sink_ports.SinkState) -> sink_ports.Intervention | None:
        return self.target.intervention(held)


@dataclass(frozen=True)
class _SteppedLog(_SteppedTarget, sink_ports.OpenChangeLog):
    """A target that appends."""

    target: sink_ports.OpenChangeLog

    def unknown_records(self) -> int:
        return self.target.unknown_records()

    def append(
        self, records: sink_ports.ChangeRecords, before: sink_ports.SinkState | None, after: sink_ports.SinkState
    ) -> None:
        self.act()
        self.target.append(_SteppedRecords.from_whole(records, self.act), before, after)
        self.act()


@dataclass(frozen=True)
class _SteppedSink(_SteppedTarget, sink_ports.OpenSink):
    """A target that holds rows."""

    target: sink_ports.OpenSink

    def apply(
        self, changes: sink_ports.Changes, before: sink_ports.SinkState | None, after: sink_ports.SinkState
    ) -> sink_ports.AppliedCounts:
        self.act()
        counts = self.target.apply(_SteppedChanges.from_whole(changes, self.act), before, after)
        self.act()
        return counts


@contextmanager
def at_each_step(world: SinkWorld, act: Act) -> Iterator[None]:
    """Inside, deliveries to the sink of ``world`` call ``act`` at each of their steps."""
    kind = sink_ports.SINKS[world.sink.kind]
    open_real = kind.open

    @contextmanager
    def open_stepped(*open_arguments: Any) -> Iterator[sink_ports.OpenTarget]:
        with open_real(*open_arguments) as target:
            if isinstance(target, sink_ports.OpenChangeLog):
                yield _SteppedLog(target, act)
            else:
                assert isinstance(target, sink_ports.OpenSink)
                yield _SteppedSink(target, act)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "open", open_stepped)
        yield


@dataclass
class _Countdown:
    """Ends the process in which it was made, as a machine does that loses its power, at the step of that number."""

    left: int
    process: int = field(default_factory=os.getpid)

    def __call__(self) -> None:
        if self.left == 0:
            os.kill(self.process, signal.SIGKILL)
        self.left -= 1


def _deliver_until_killed(world: SinkWorld, folder: Path, environment: Mapping[str, str], step: int) -> None:
    from headrace.testing.connectors.worlds import SinkDeployment

    os.environ.update(environment)
    countdown = _Countdown(step)
    world.before_each_request(countdown)
    deployment = SinkDeployment(world, folder)
    with at_each_step(world, countdown):
        deployment.deliver(deployment.sales())


def killed_at(world: SinkWorld, folder: Path, step: int) -> bool:
    """Deliver in a process that is killed at its ``step``; False if it came to its end with fewer."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOAD, type(world).__module__])
    process = context.Process(target=_deliver_until_killed, args=(world, folder, dict(os.environ), step))
    process.start()
    process.join(_JOIN_SECONDS)
    if process.exitcode not in (0, -signal.SIGKILL):
        process.kill()
        pytest.fail(f"a delivery that was to be killed at step {step} ended with {process.exitcode} (None: it hung)")
    return process.exitcode != 0


_WINDOWS: dict[str, WindowFn] = {
    "fixed": FixedWindows("1h"),
    "sessions": Sessions("20m"),
    "global": GlobalWindows(),
}


class SinkConformance:
    """Inherit it, and define the fixture ``world``."""

    counts_replaced: ClassVar[bool] = True
    """Whether a target that is filled again tells how many rows it had. One through Spark does not."""

    @pytest.fixture
    def world(self) -> SinkWorld:
        """A target that nobody has delivered to."""
        raise NotImplementedError("define a fixture world that gives a SinkWorld")

    @pytest.fixture
    def deployment(self, world: SinkWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SinkDeployment:
        """Pipelines that deliver to the sink of ``world``."""
        for name, value in world.environment.items():
            monkeypatch.setenv(name, value)
        folder = tmp_path / "root"
        folder.mkdir()
        return SinkDeployment(world, folder)

    # --- wherever published moves -------------------------------------------------------------------------------------

    def test_follows_publish_and_rollback(self, deployment: SinkDeployment) -> None:
        sales = deployment.sales()
        handle = deployment.handle(sales)
        assert deployment.deliver(sales).source is None  # nothing is published
        deployment.land("1", order("ann", 5, 10), order("bob", 10, 20), order("ann", 70, 30))
        first = handle.run()
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.before, delivery.after) == (ChangeSource.ALL_ROWS, None, first.snapshot)
        assert delivery.reason is FillReason.FIRST
        assert (delivery.written, delivery.removed) == (3, 0)
        assert deployment.held(sales) == deployment.published(sales)
        assert deployment.deliver(sales).source is None

        deployment.land("2", order("bob", 15, 5), order("cyd", 80, 1), order("", 80, 1))
        handle.run()
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.before, delivery.written) == (ChangeSource.PANES, first.snapshot, 3)
        assert delivery.removed == 0
        assert deployment.held(sales) == deployment.published(sales)
        assert len(deployment.held(sales)) == 5

        deployment.land("3", order("", 85, 1))
        handle.run()
        assert deployment.deliver(sales).written == 1
        assert deployment.held(sales) == deployment.published(sales)

        handle.rollback(to=str(first.snapshot), message="a wrong file")
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.DIFFERENCE, 1, 2)
        assert deployment.held(sales) == deployment.published(sales)
        assert len(deployment.held(sales)) == 3

        handle.rollback(to="beginning", message="all of it")
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.reason, delivery.after) == (
            ChangeSource.ALL_ROWS,
            FillReason.UNPUBLISHED,
            None,
        )
        assert delivery.removed == (3 if self.counts_replaced else 0)
        assert deployment.held(sales) == []
        assert deployment.deliver(sales).source is None
        handle.run()
        assert deployment.deliver(sales).source is ChangeSource.ALL_ROWS
        assert deployment.held(sales) == deployment.published(sales)

    def test_follows_a_patch(self, deployment: SinkDeployment) -> None:
        """A row whose window had expired becomes another one, and no other row moves."""
        sales = deployment.sales(how=retracting())
        handle = deployment.handle(sales)
        for name, order_landed in enumerate((order("ann", 5, 10), order("bob", 300, 20), order("ann", 6, 1))):
            deployment.land(str(name), order_landed)
        handle.run(files_per_epoch=1)  # the last one is late
        deployment.deliver(sales)
        rows_before = deployment.held(sales)
        patch = handle.backfill(patch=True)
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.after, delivery.written) == (ChangeSource.PANES, patch.snapshot, 1)
        assert deployment.held(sales) == deployment.published(sales) != rows_before

    def test_follows_a_release(self, deployment: SinkDeployment) -> None:
        """What is held back comes when a person releases it, and not before."""
        sales = deployment.sales(limits=Limits(rejected=0))
        handle = deployment.handle(sales)
        deployment.land("1", order("ann", 5))
        handle.run()
        deployment.deliver(sales)
        deployment.land("2", order("bob", 10), {**order("bob", 11), "price": "twelve"})
        with pytest.raises(FixDataError):
            handle.run()
        assert deployment.deliver(sales).source is None
        handle.release("main", message="the price is known")
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.written) == (ChangeSource.PANES, 1)
        assert deployment.held(sales) == deployment.published(sales)
        assert len(deployment.held(sales)) == 2

    @pytest.mark.parametrize(("seed", "windows"), [*enumerate(_WINDOWS)])
    def test_after_any_history_holds_what_readers_see(
        self, deployment: SinkDeployment, seed: int, windows: str
    ) -> None:
        """Publishes, rollbacks, promotions and expiries in any order; deliveries now and then. NULL is a key."""
        choice = random.Random(seed)  # noqa: S311
        sales = deployment.sales(_WINDOWS[windows], null_keys=True)
        handle = deployment.handle(sales)
        sources = set()
        for step in range(14):
            heads = handle.snapshots().to_json() if step > 1 else []
            match choice.randrange(6) if heads else 0:
                case 0 | 1 | 2:
                    users = choice.choices(["a", "b", "c", None, ""], k=6)
                    deployment.land(f"{step:02}", *(order(user, choice.randrange(2000), step) for user in users))
                    handle.run()
                case 3:
                    with contextlib.suppress(RefusedError):  # it is of a line that was given up
                        handle.rollback(to=choice.choice(heads)["snapshot"], message="back")
                case 4:
                    handle.backfill(promote=True, branch=f"again{step}")
                case 5:
                    handle.expire(keep_last=1)
            if choice.random() < 0.6:
                sources.add(deployment.deliver(sales).source)
                assert deployment.held(sales) == deployment.published(sales), step
        deployment.deliver(sales)
        assert deployment.held(sales) == deployment.published(sales)
        assert ChangeSource.PANES in sources or ChangeSource.DIFFERENCE in sources

    def test_rows_known_by_an_id_are_those_that_readers_see(self, deployment: SinkDeployment) -> None:
        """A row takes the place of that with its id, and one that is deleted goes, wherever ``published`` moves."""
        choice = random.Random(0)  # noqa: S311
        newest = deployment.newest()
        handle = deployment.handle(newest)
        rows_moved = rows_removed = 0
        for step in range(12):
            heads = handle.snapshots().to_json() if step > 2 else []
            match choice.randrange(6) if heads else 0:
                case 4:
                    with contextlib.suppress(RefusedError):  # it is of a line that was given up
                        handle.rollback(to=choice.choice(heads)["snapshot"], message="back")
                case 5:
                    handle.backfill(promote=True, branch=f"again{step}")
                case _:
                    users = choice.choices(["a", "b", "c", "d", ""], k=3)
                    deployment.land(
                        f"{step:02}", *(order(user, choice.randrange(3000), choice.randint(-1, 2)) for user in users)
                    )
                    handle.run()
            if choice.random() < 0.7:
                delivery = deployment.deliver(newest)
                rows_moved, rows_removed = rows_moved + delivery.written, rows_removed + delivery.removed
                assert deployment.held(newest) == deployment.published(newest), step
        deployment.deliver(newest)
        rows_held = deployment.held(newest)
        assert rows_held == deployment.published(newest)
        assert len({user for user, *_ in rows_held}) == len(rows_held) < rows_moved
        assert rows_removed

    def test_what_is_filled_again_holds_what_readers_see(self, deployment: SinkDeployment) -> None:
        """Whatever somebody else has done to it, if the world can do something; numbers of records go on."""
        sales = deployment.sales()
        deployment.land("1", order("ann", 5), order("bob", 10), order("cyd", 70))
        deployment.handle(sales).run()
        deployment.deliver(sales)
        if deployment.world.lose_a_row():
            assert len(deployment.held(sales)) == 2
        delivery = deployment.deliver(sales, refill=True)
        assert delivery.source is ChangeSource.ALL_ROWS
        assert delivery.reason in (FillReason.REFILL, FillReason.CHANGED)
        assert deployment.held(sales) == deployment.published(sales)
        assert deployment.deliver(sales).source is None
        deployment.land("2", order("ann", 6))
        deployment.handle(sales).run()
        assert deployment.deliver(sales).source is ChangeSource.PANES
        assert deployment.held(sales) == deployment.published(sales)

    # --- deliveries that are disturbed --------------------------------------------------------------------------------

    @pytest.mark.parametrize("begins", ["empty", "filled"])
    def test_a_delivery_that_is_killed_at_any_step(self, deployment: SinkDeployment, begins: str) -> None:
        sales = deployment.sales()
        handle = deployment.handle(sales)
        deployment.land("1", order("ann", 5), order("bob", 10))
        handle.run()
        if begins != "empty":
            deployment.deliver(sales)
            deployment.land("2", order("ann", 6), order("cyd", 70))
            handle.run()
        rows_before, rows_after = deployment.held(sales), deployment.published(sales)
        assert rows_before != rows_after
        step = 0
        while killed_at(deployment.world, deployment.folder, step):
            # what was applied and not told of stays, and a later delivery finds it
            assert deployment.held(sales) in (rows_before, rows_after), step
            step += 1
        assert step >= 3
        assert deployment.held(sales) == rows_after
        assert deployment.deliver(sales).source is None

    def test_a_delivery_that_another_one_overtook_changes_nothing(self, deployment: SinkDeployment) -> None:
        sales = deployment.sales()
        handle = deployment.handle(sales)
        deployment.land("1", order("ann", 5))
        first = handle.run()
        deployment.deliver(sales)
        deployment.land("2", order("ann", 6))
        handle.run()

        def overtake() -> None:
            deployment.deliver(sales)
            handle.rollback(to=str(first.snapshot), message="back")
            deployment.deliver(sales)
            handle.run()
            deployment.deliver(sales)

        with pytest.raises(sink_ports.SinkMovedError), at_each_step(deployment.world, _at_most_once(overtake)):
            deployment.attempt(sales)
        assert deployment.held(sales) == deployment.published(sales)
        assert deployment.deliver(sales).source is None

    @pytest.mark.parametrize("begins", ["empty", "filled"])
    def test_of_two_deliveries_at_once_one_is_done(self, deployment: SinkDeployment, begins: str) -> None:
        sales = deployment.sales()
        deployment.land("1", order("ann", 5))
        deployment.handle(sales).run()
        if begins != "empty":
            deployment.deliver(sales)
            deployment.land("2", order("ann", 6), order("bob", 10))
            deployment.handle(sales).run()
        barrier = threading.Barrier(2, timeout=60)
        both_know = threading.local()

        def meet() -> None:
            if not hasattr(both_know, "met"):
                both_know.met = True
                with contextlib.suppress(threading.BrokenBarrierError):  # the other one was refused before it came here
                    barrier.wait()

        ends: list[Delivery | RetryError] = []

        def deliver() -> None:
            try:
                ends.append(deployment.attempt(sales))
            except RetryError as error:
                ends.append(error)
                barrier.abort()

        with at_each_step(deployment.world, meet):
            threads = [threading.Thread(target=deliver) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(ends) == 2, ends
        assert [isinstance(end, Delivery) for end in ends].count(True) == 1, ends
        assert deployment.held(sales) == deployment.published(sales)

    # --- what rows are ------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", [*VALUES])
    def test_a_value_arrives_as_it_is_or_is_refused(self, deployment: SinkDeployment, kind: DataType) -> None:
        _arrives_or_is_refused(deployment, deployment.values(kind), kind)

    @pytest.mark.parametrize("kind", [kind for kind in VALUES if kind is not DataType.BOOL])
    def test_a_list_arrives_as_it_is_or_is_refused(self, deployment: SinkDeployment, kind: DataType) -> None:
        _arrives_or_is_refused(deployment, deployment.values(kind, value=col("value").top(3)), kind)

    @pytest.mark.parametrize("kind", [kind for kind in VALUES if kind is not DataType.FLOAT])  # no keys
    def test_a_key_arrives_as_it_is_or_is_refused(self, deployment: SinkDeployment, kind: DataType) -> None:
        _arrives_or_is_refused(deployment, deployment.keyed(kind), kind)

    def test_columns_that_are_renamed_and_added(self, deployment: SinkDeployment) -> None:
        sales = deployment.sales()
        deployment.land("1", order("ann", 5, 10), order("bob", 10, 20))
        deployment.handle(sales).run()
        deployment.deliver(sales)
        changed_sales = deployment.sales(what={"paid": col("price").sum(), "most": col("price").max()})
        deployment.handle(changed_sales).backfill(promote=True)
        delivery = deployment.deliver(changed_sales)
        assert (delivery.source, delivery.written) == (ChangeSource.ALL_ROWS, 2)
        self.check_all_again(deployment, delivery)
        assert deployment.held(changed_sales) == deployment.published(changed_sales)
        deployment.land("2", order("bob", 15, 5))
        deployment.handle(changed_sales).run()
        assert deployment.deliver(changed_sales).source is ChangeSource.PANES
        assert deployment.held(changed_sales) == deployment.published(changed_sales)

    def check_all_again(self, deployment: SinkDeployment, delivery: Delivery) -> None:
        """Fails unless ``delivery`` put two rows in the place of the two that were there."""
        del deployment
        assert delivery.removed == (2 if self.counts_replaced else 0)

    def test_columns_that_get_the_names_of_others_and_a_key_that_gets_a_column(
        self, deployment: SinkDeployment
    ) -> None:
        sales = deployment.sales()
        deployment.land("1", order("ann", 5, 10), order("bob", 10, 20), order("bob", 70, 30))
        deployment.handle(sales).run()
        deployment.deliver(sales)
        orders, spending = count(), col("price").sum()
        middle_sales = deployment.sales(what={"a": orders, "b": spending}, renamed={"orders": "a", "spent": "b"})
        swapped_sales = deployment.sales(
            what={"spent": orders, "orders": spending}, renamed={"a": "spent", "b": "orders"}
        )
        for name, changed_sales in enumerate((middle_sales, swapped_sales), 2):
            deployment.land(str(name), order("ann", name, 1))
            deployment.handle(changed_sales).run()
        deployment.deliver(swapped_sales)
        assert deployment.held(swapped_sales) == deployment.published(swapped_sales)

        by_price = deployment.sales(key={"user": col("user"), "orders": col("price")}, what={"spent": orders})
        deployment.handle(by_price).backfill(promote=True)
        assert deployment.deliver(by_price).reason is FillReason.COLUMNS
        assert deployment.held(by_price) == deployment.published(by_price)
        deployment.land("4", order("ann", 5, 10), order("ann", 5, 11))
        deployment.handle(by_price).run()
        assert deployment.deliver(by_price).source is ChangeSource.PANES
        assert deployment.held(by_price) == deployment.published(by_price)

    # --- whose rows they are ------------------------------------------------------------------------------------------

    def test_rows_of_another_root_are_refused(self, deployment: SinkDeployment, tmp_path: Path) -> None:
        sales = deployment.sales()
        deployment.land("1", order("ann", 5))
        deployment.handle(sales).run()
        deployment.deliver(sales)
        other = replace(deployment, folder=tmp_path / "other")
        other.folder.mkdir()
        other.land("1", order("eve", 5))
        other.handle(sales).run()
        with pytest.raises(SinkTakenError, match="--take-over"):
            other.deliver(sales)
        assert deployment.held(sales) == deployment.published(sales)
        assert other.deliver(sales, take_over=True).reason is FillReason.OWNER
        assert deployment.held(sales) == other.published(sales)
        with pytest.raises(SinkTakenError):
            deployment.deliver(sales)

    def test_what_a_definition_names_pickles_and_has_no_secret(self, deployment: SinkDeployment) -> None:
        sink = deployment.world.sink
        assert pickle.loads(pickle.dumps(sink)) == sink  # noqa: S301
        pickle.dumps(deployment.world)
        with_it, without_it = deployment.sales(), deployment.sales(sinks=())
        assert fingerprint(with_it) == fingerprint(without_it)
        for secret in deployment.world.secrets:
            assert secret not in repr(sink)
            assert secret not in repr(with_it)


def _arrives_or_is_refused(deployment: SinkDeployment, pipeline: Pipeline, kind: DataType) -> None:
    """All values, then other ones in their place: changed rows take another way than a target that is filled."""
    for name, values in enumerate((VALUES[kind], [*reversed(VALUES[kind])])):
        deployment.land_values(kind, [*values, None], str(name))
        deployment.handle(pipeline).run()
        rows_before = deployment.world.rows()
        try:
            deployment.deliver(pipeline)
        except sink_ports.UndeliverableError:
            assert list(map(plain, deployment.world.rows())) == list(map(plain, rows_before))
            return
        assert deployment.held(pipeline) == deployment.published(pipeline)


def _at_most_once(act: Callable[[], None]) -> Callable[[], None]:
    """``act`` the first time that it is called, and nothing later, nor while it acts."""
    acts = iter([act])

    def first() -> None:
        next(acts, lambda: None)()

    return first


class ChangeLogConformance(SinkConformance):
    """Inherit it, and define the fixture ``world``, which gives a ChangeLogWorld.

    What the target holds is the sum of its records: so all that holds of sinks with rows holds of that sum. The world
    looks at the numbers of records each time: nothing is there twice, and nothing is lost.
    """

    def test_follows_publish_and_rollback(self, deployment: SinkDeployment) -> None:
        sales, world = deployment.sales(), deployment.world
        assert isinstance(world, ChangeLogWorld)
        handle = deployment.handle(sales)

        def news(known_number: int) -> list[tuple[object, ...]]:
            shown_columns = (sink_ports.SIGN, sink_ports.EPOCH, "user", "orders", "spent")
            return [
                tuple(record[name] for name in shown_columns)
                for record in world.records()
                if record[sink_ports.NUMBER] > known_number
            ]

        assert deployment.deliver(sales).source is None  # nothing is published
        deployment.land("1", order("ann", 5, 10), order("bob", 10, 20))
        first = handle.run()
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.ALL_ROWS, 2, 0)
        assert sorted(news(0)) == [(1, None, "ann", 1, 10), (1, None, "bob", 1, 20)]
        assert deployment.deliver(sales).source is None

        # two epochs that one delivery brings, each with what it withdraws and puts in its place
        deployment.land("2", order("bob", 15, 5))
        handle.run()
        deployment.land("3", order("bob", 16, 1), order("cyd", 20, 1))
        handle.run()
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.PANES, 3, 2)
        forward = news(2)
        assert forward[:2] == [(-1, 1, "bob", 1, 20), (1, 1, "bob", 2, 25)]
        of_bob = [record for record in forward[2:] if record[2] == "bob"]
        assert of_bob == [(-1, 2, "bob", 2, 25), (1, 2, "bob", 3, 26)]
        assert [record for record in forward[2:] if record[2] != "bob"] == [(1, 2, "cyd", 1, 1)]
        assert deployment.held(sales) == deployment.published(sales)

        handle.rollback(to=str(first.snapshot), message="wrong files")
        delivery = deployment.deliver(sales)
        assert (delivery.source, delivery.written, delivery.removed) == (ChangeSource.DIFFERENCE, 1, 2)
        taken_back = news(7)
        assert sorted(taken_back[:2]) == [(-1, None, "bob", 3, 26), (-1, None, "cyd", 1, 1)]
        assert taken_back[2:] == [(1, None, "bob", 1, 20)]
        assert deployment.held(sales) == deployment.published(sales)

        handle.rollback(to="beginning", message="all of it")
        assert deployment.deliver(sales).removed == 2
        assert deployment.held(sales) == []
        assert deployment.deliver(sales).source is None
        handle.run()
        assert deployment.deliver(sales).source is ChangeSource.ALL_ROWS
        assert deployment.held(sales) == deployment.published(sales)
        assert 0 not in {record[sink_ports.SIGN] for record in world.records()}

    def test_what_is_not_known_any_more_is_void(self, deployment: SinkDeployment) -> None:
        """The snapshot that it holds has expired: a record of sign 0 comes before all rows."""
        sales, world = deployment.sales(), deployment.world
        assert isinstance(world, ChangeLogWorld)
        handle = deployment.handle(sales)
        deployment.land("1", order("ann", 5))
        handle.run()
        deployment.deliver(sales)
        for name in "234":
            deployment.land(name, order("bob", 10))
            handle.run()
            handle.expire(keep_last=1)
        assert deployment.deliver(sales).source is ChangeSource.ALL_ROWS
        assert [record[sink_ports.SIGN] for record in world.records()] == [1, 0, 1, 1]
        assert deployment.held(sales) == deployment.published(sales)

    def check_all_again(self, deployment: SinkDeployment, delivery: Delivery) -> None:
        assert isinstance(deployment.world, ChangeLogWorld)
        assert [record[sink_ports.SIGN] for record in deployment.world.records()] == [1, 1, 0, 1, 1]
