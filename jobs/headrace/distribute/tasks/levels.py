"""The levels of tasks of an epoch, each a function from the rows of one exchange to those of the next (``exchange``):
the map side, the parts of the ids where duplicates are told, the parts of each stage. What the last says goes to the
driver, as to the only part of a level below.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa

from headrace.distribute.tasks.exchange import hear, say
from headrace.distribute.tasks.found import Above, Found, PanesFound, Passed, attempted
from headrace.distribute.tasks.ids import tell_duplicates
from headrace.distribute.tasks.map_side import Bundles, map_rows, map_share
from headrace.distribute.tasks.panes import map_panes
from headrace.distribute.tasks.plan import EpochPlan
from headrace.distribute.tasks.stages import step_part
from headrace.distribute.tasks.work import Task, Work, work_of

Ran = tuple[Found | None, Bundles]


def levels_below(work: Work, first_stage: int = 0) -> int:
    """How many levels a job that begins with that stage has below the first."""
    stages = next(stages for stages in work.jobs() if stages.start == first_stage)
    return len(stages) + _tells_ids(work, first_stage)


def _tells_ids(work: Work, first_stage: int) -> bool:
    return first_stage == 0 and work.pipeline.deduplicate is not None


def map_level(plan: EpochPlan, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What the shares say whose ``numbers`` the first column has."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            task = Task(plan, work_of(plan.where), number)
            yield from _said(task, plan.parts, None, partial(map_share, task))


def rows_level(plan: EpochPlan, name: str, number: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What is said of ``batches``, which a user's own code made of records of input ``name`` (or of panes, if the plan
    begins with another stage than the first), by task ``number``.
    """
    rows = [batch for batch in batches if batch.num_rows]
    if rows:
        task = Task(plan, work_of(plan.where), number)
        run: Callable[[], Ran] = (
            partial(map_panes, task, rows) if plan.first_stage else partial(map_rows, task, name, rows)
        )
        yield from _said(task, plan.parts, None, run)


def nothing_level(plan: EpochPlan, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Says that there is an epoch to do to stages whose elements go through a user's own code, and may be none."""
    del numbers
    task = Task(plan, work_of(plan.where), 0)
    yield from _said(task, plan.parts, None, lambda: (PanesFound(), {}))


def tasks_above(plan: EpochPlan, level: int) -> int:
    """How many tasks at least speak to the level number ``level`` below the map side."""
    if level:
        return plan.parts
    return 1 if plan.first_stage else len(plan.shares)


def level_below(plan: EpochPlan, level: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a part of the level number ``level`` below the map side says of what it hears: ``batches`` are all the rows
    of the exchange above for it.
    """
    rows = [batch for batch in batches if batch.num_rows]
    if not rows:  # every part hears of every task: this is none
        return
    work = work_of(plan.where)
    task = Task(plan, work, rows[0].column("part")[0].as_py())
    heard = hear(rows, tasks_above(plan, level))
    above = Above.of(heard)
    bundles = [each.rows for each in heard if each.rows is not None]
    tells_ids = _tells_ids(work, plan.first_stage)
    is_last = level == levels_below(work, plan.first_stage) - 1

    def run() -> Ran:
        if tells_ids and level == 0:
            return tell_duplicates(task, above, bundles)
        return step_part(task, plan.first_stage + level - tells_ids, above, bundles)

    yield from _said(task, 1 if is_last else plan.parts, above, run)


def _said(task: Task, parts: int, above: Above | None, run: Callable[[], Ran]) -> Iterator[pa.RecordBatch]:
    """What a task says to ``parts`` of the level below; ``run`` is what it does. Raises RetryError: another attempt may
    end otherwise; any other typed error is said.
    """
    before = task.work.requests()
    error = None if above is None else above.error
    found: Found | None = None
    bundles: Bundles = {}
    if error is None:
        ran, error = attempted(run)
        found, bundles = ran or (None, {})
    heard, history = (b"", ()) if above is None else (above.heard, above.history(task.number))
    passed = Passed(found, heard, history, error, task.work.requests_since(before))
    yield from say(task.number, parts, passed, passed.content, bundles)
