"""Random histories of a pipeline with runs, backfills, promotions and expiries that stand still or die at some request
while others go on: fsck finds nothing wrong, and the catalog is as it has to be.
"""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import HeadraceError
from headrace_lab.catalog_checks import check_catalog
from headrace_lab.fault_plans import HoldRequest, Operation, disturb_stores
from headrace_lab.sizes import set_sizes
from tests.process.late_clicks import Live, of_rows, pipeline
from tests.reference.strategies import examples

MOMENTS = (
    ("create", "/log/"), ("put", "/manifests/"), ("put", "/audits/"), ("put", "/runs/"), ("put", "log-hint"),
    ("put", "/marks/"), ("delete", "clicks/"), ("list", "/manifests/"), ("list", "/data/"), ("get", "/manifests/"),
)  # fmt: skip
STEPS = (
    "run",
    "run",
    "run",
    "fill",
    "fill_and_promote",
    "promote",
    "patch",
    "fork",
    "drop",
    "rollback",
    "expire",
    "expire",
)


PIPELINES = (
    pipeline(),
    pipeline(),
    of_rows(rows=["user", "price"]),
    of_rows(rows=["price"], key="user", take=hr.top(2, by="price"), where=hr.FixedWindows("1h"), when=hr.on_update()),
)
"""Of rows nothing is patched."""


class KillSignal(BaseException):
    """Ends whoever stood still."""


class History:
    """What is done to one root."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.live = Live(folder, self.dice.choice(PIPELINES))
        self.steps_done: list[str] = []
        self._depth = 0
        hr.open(self.live.root, create=True)
        self.run()

    def step(self) -> None:
        """Something, by somebody who may stand still meanwhile."""
        stands_still = self._depth < 2 and self.dice.random() < 0.4
        what = self.dice.choice(STEPS)
        self.steps_done.append(f"{'  ' * self._depth}{what}{' that stands still' * stands_still}")
        try:
            if stands_still:
                self._stood_still(getattr(self, what))
            else:
                getattr(self, what)()
        except HeadraceError as error:
            self.steps_done[-1] += f": {error.code}"
        assert self.handle.fsck().problems == (), self.steps_done

    @property
    def handle(self) -> Any:
        return hr.open(self.live.root)[self.live.pipeline]

    @property
    def branch(self) -> str:
        return self.dice.choice(sorted({*self.handle._catalog.head().generations, "fix"} - {"main"}))

    def run(self) -> None:
        for _ in range(self.dice.randint(1, 2)):
            hour = self.live._files * 0.4 + self.dice.choice([0, 0, 1])
            self.live.land(("ann", hour, 1), ("bob", max(0, hour - self.dice.choice([0, 3])), 2))
        self.handle.run(publish=self.dice.random() < 0.8)

    def fill(self) -> None:
        self.handle.backfill(branch=self.branch)

    def fill_and_promote(self) -> None:
        self.handle.backfill(branch=self.branch, promote=True)

    def promote(self) -> None:
        self.handle.promote(self.branch)

    def patch(self) -> None:
        self.handle.promote(self.branch, patch=True)

    def fork(self) -> None:
        self.handle.fork("main", f"b{len(self.steps_done)}")

    def drop(self) -> None:
        self.handle.drop(self.branch)

    def rollback(self) -> None:
        catalog = self.handle._catalog
        main = catalog.head().refs.get("main")
        line = [] if main is None else [link.snapshot_id for link in catalog.lineage(main)]
        mains = [promotion.main for promotion in catalog.head().past.replaced]
        self.handle.rollback(to=self.dice.choice([*line[1:4], *mains, "beginning"]), message="back")

    def expire(self) -> None:
        self.handle.expire(keep_last=self.dice.randint(1, 2))

    def check_rows(self) -> None:
        """What stands of rows is the sum of their signs, on main and for readers."""
        if not self.live.pipeline.rows:
            return
        columns = [*self.live.pipeline.value_types, "event_time"]
        for ref in {"main", "published"} & {*self.handle._catalog.head().refs}:
            summed_counts: Counter[tuple[Any, ...]] = Counter()
            for *row, is_retraction in _rows(self.handle.panes(columns=[*columns, "is_retraction"], at=ref)):
                summed_counts[tuple(row)] += -1 if is_retraction else 1
            assert Counter(_rows(self.handle.current(columns=columns, at=ref))) == summed_counts, self.steps_done

    def _stood_still(self, act: Callable[[], None]) -> None:
        kind, part = self.dice.choice(MOMENTS)
        number, dies = self.dice.randint(1, 4), self.dice.random() < 0.4
        self.steps_done[-1] += f" before {kind} {number} of {part}{' and dies' * dies}"
        count = 0

        def act_meanwhile() -> None:
            self._depth += 1
            standing.close()
            for _ in range(self.dice.randint(1, 4)):
                self.step()
            self._depth -= 1
            if dies:
                raise KillSignal

        def plan(operation: Operation) -> HoldRequest | None:
            nonlocal count
            count += operation.kind == kind and part in operation.path
            if count != number or operation.kind != kind or part not in operation.path:
                return None
            count += 1
            return HoldRequest(act_meanwhile)

        with ExitStack() as standing, suppress(KillSignal):
            standing.enter_context(disturb_stores(plan))
            act()


def _rows(view: Any) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in view.to_json()]


@pytest.mark.slow
@given(st.integers(0, 2**32), st.sampled_from([3, 100]))
@settings(examples(20, fewest=2), suppress_health_check=list(HealthCheck), phases=[Phase.generate])
def test_nothing_is_wrong_whoever_stands_still(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kept_entries: int
) -> None:
    with set_sizes(kept_entries=kept_entries):
        history = History(tmp_path_factory.mktemp("history"), seed)
        for _ in range(10):
            history.step()
        check_catalog(history.live.catalog.store, "clicks")
        history.check_rows()
