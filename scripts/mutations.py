"""Deliberate mistakes in the Spark engine, each of which the conformance cases must catch: ``make mutations``.

Every mutation is one change of text in a copy of the engine; the named case is then run on Spark with the copy, which
takes the place of the engine in this process: one Spark application serves them all. The cases must pass with the copy
unchanged. A mutation that its case does not notice is a hole in the cases, and fails the command.
"""

import importlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import environ
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).parent.parent
CASES = REPOSITORY / "tests/conformance/cases"


@dataclass(frozen=True)
class Mutation:
    """``old`` becomes ``new`` in ``file`` of the package; ``cases`` (file, glob) must fail then."""

    name: str
    file: str
    old: str
    new: str
    cases: tuple[str, str]


MUTATIONS = (
    Mutation(
        "no watermark crosses the end of a window",
        "program/firing.py",
        "pairs = [(c.WATERMARK_BEFORE, c.WATERMARK_AFTER)]",
        "pairs = [(c.WATERMARK_AFTER, c.WATERMARK_AFTER)]",
        ("own_triggers", "own_late_counts_start_at_the_on_time_pane"),
    ),
    Mutation(
        "lateness is one granule longer",
        "program/firing.py",
        "(how.allowed_lateness - 1), Literal(GLOBAL_WINDOW_END - 1)",
        "how.allowed_lateness, Literal(GLOBAL_WINDOW_END - 1)",
        ("lateness_and_triggers", "derived_late_drop_boundary_W30"),
    ),
    Mutation(
        "a merge keeps the late phase of one window",
        "program/triggers/composites.py",
        "Field(self._late_phase, DataType.BOOL, FALSE, Fold.ALL)",
        "Field(self._late_phase, DataType.BOOL, FALSE, Fold.ANY)",
        ("own_triggers", "own_merge_is_late_only_if_all_of_it_was"),
    ),
    Mutation(
        "a grown session does not owe a new on-time pane",
        "program/triggers/composites.py",
        'program.let("late_phase", all_of(state[self._late_phase], moment.passed_end))',
        'program.let("late_phase", state[self._late_phase])',
        ("session_merges", "derived_session_rearm_after_extension"),
    ),
    Mutation(
        "counts of merged windows are not added",
        "program/triggers/leaves.py",
        "Field(self._total, DataType.INT, Literal(0), Fold.SUM)",
        "Field(self._total, DataType.INT, Literal(0), Fold.MIN)",
        ("session_merges", "derived_bytes_trigger_merge_sums"),
    ),
    Mutation(
        "the latest deadline wins a merge",
        "program/triggers/leaves.py",
        "Field(self._deadline, DataType.INT, NO_DEADLINE, Fold.MIN, is_deadline=True)",
        "Field(self._deadline, DataType.INT, NO_DEADLINE, Fold.MAX, is_deadline=True)",
        ("own_triggers", "own_any_merges_to_the_earliest_deadline"),
    ),
    Mutation(
        "a closed marker is lost",
        "program/firing.py",
        "choose(marker, c.CLOSED, c.OPEN),",
        "choose(marker, c.DELETED, c.OPEN),",
        ("own_triggers", "own_or_finally_keeps_until_progress"),
    ),
    Mutation(
        "closed sessions take part in merging",
        "engine/merging.py",
        "f.when(f.col(c.STATUS) == c.CLOSED, int(_Kind.CLOSED)).otherwise(int(_Kind.MERGED))",
        "f.when(f.col(c.STATUS) == c.DELETED, int(_Kind.CLOSED)).otherwise(int(_Kind.MERGED))",
        ("own_triggers", "own_closed_session_takes_no_part_in_merging"),
    ),
    Mutation(
        "sessions that touch are one",
        "engine/merging.py",
        "self.touching = isinstance(plan.where, Sessions) and plan.where.touching_merges",
        "self.touching = True",
        ("windows", "merge_sessions_static"),
    ),
    Mutation(
        "a pane does not withdraw the one before it",
        "engine/emission.py",
        "record = f.concat(live, record)",
        "record = record",
        ("retractions", "derived_retract_early_on_time_late"),
    ),
    Mutation(
        "what is emitted is not remembered",
        "engine/emission.py",
        "live = f.when(emitted, f.when(exists, replaced).otherwise(nothing)).otherwise(live)",
        "live = live",
        ("retractions", "derived_retract_early_on_time_late"),
    ),
    Mutation(
        "a window fires once in an epoch",
        "program/firing.py",
        'let("fires_again", all_of(still_open,',
        'let("fires_again", all_of(negate(fires), negate(crossed), still_open,',
        ("own_triggers", "own_late_counts_start_at_the_on_time_pane"),
    ),
    Mutation(
        "a hold survives its pane",
        "program/firing.py",
        'self.hold = let("hold", choose(fires, NO_HOLD, self.hold))',
        "self.hold = self.hold",
        ("timestamps", "derived_earliest_is_per_pane"),
    ),
    Mutation(
        "elements behind the output watermark lend their timestamp",
        "engine/delta.py",
        "held = f.when(stamp >= by_reference(output_watermark, EVENT_TIME), stamp)",
        "held = stamp",
        ("timestamps", "transcript_known_late_data_watermark"),
    ),
    Mutation(
        "a retraction adds",
        "engine/parts.py",
        "return f.sum(value if sign is None else value * sign).cast(self.type)",
        "return f.sum(value).cast(self.type)",
        ("own_retractions", "own_retracted_input"),
    ),
    Mutation(
        "passed deadlines are never asked about",
        "engine/state.py",
        "time <= by_reference(clocks.processing_time, c.DUE_TIME)\n",
        "time < by_reference(clocks.processing_time, c.DUE_TIME)\n",
        ("processing_time", "derived_pt_due_at_equality"),
    ),
    Mutation(
        "an unchanged pane is emitted where it should be elided",
        "program/firing.py",
        "any_of(*wanted), negate(unchanged))",
        "any_of(*wanted))",
        ("own_elided", "own_elided_pane_has_no_index"),
    ),
    Mutation(
        "a pane at another time is elided",
        "program/firing.py",
        "all_of(self.exists, self.same, self.live_time == time)",
        "all_of(self.exists, self.same)",
        ("own_elided", "own_elided_only_with_its_timestamp"),
    ),
    Mutation(
        "a pane that does not exist is the same as another",
        "program/firing.py",
        "all_of(self.exists, self.same, self.live_time == time)",
        "all_of(self.same, self.live_time == time)",
        ("own_elided", "own_elided_only_if_it_exists"),
    ),
    Mutation(
        "a pane of another window is elided",
        "engine/emission.py",
        """same = same & (live["window_end"] == f.col(c.WINDOW_END))""",
        "pass",
        ("own_elided", "own_elided_only_in_its_window"),
    ),
)


def mutated(mutation: Mutation | None, folder: Path) -> Path:
    """A copy of the source root under ``folder`` with the mutation. Raises ValueError if its text is not there once."""
    root = folder / "jobs"
    shutil.copytree(REPOSITORY / "jobs/headrace", root / "headrace", ignore=shutil.ignore_patterns("__pycache__"))
    if mutation is None:
        return root
    file = root / "headrace" / mutation.file
    text = file.read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: its text is {text.count(mutation.old)} times in {mutation.file}, not once")
    file.write_text(text.replace(mutation.old, mutation.new))
    return root


@contextmanager
def engine(mutation: Mutation | None) -> Iterator[None]:
    """``import headrace`` gives a copy with ``mutation`` while this lasts."""

    def forget() -> dict[str, Any]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "headrace"}

    with tempfile.TemporaryDirectory() as folder:
        root = mutated(mutation, Path(folder))
        before = forget()
        sys.path.insert(0, str(root))
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(str(root))
            forget()
            sys.modules.update(before)


def failures(cases: Iterable[tuple[str, str]], mutation: Mutation | None, spark: SparkSession) -> list[str]:
    """Those of ``cases`` that do not pass with the mutation, by name. Raises RuntimeError if they did not run."""
    with engine(mutation):
        conformance = importlib.import_module("headrace.conformance.command")
        executor = importlib.import_module("headrace.conformance.on_spark").SparkExecutor(spark)
        if Path(str(conformance.__file__)).is_relative_to(REPOSITORY):
            raise RuntimeError("the copy of the engine was not imported")
        try:
            results = [result for file, glob in cases for result in conformance.run_file(_file(file), executor, glob)]
        except Exception as error:
            raise RuntimeError(f"{mutation.name if mutation else 'no mutation'}: the cases did not run") from error
    return [result.name for result in results if result.status != "passed"]


def _file(name: str) -> Path:
    return CASES / f"{name}.json"


def _spark() -> SparkSession:
    environ.setdefault("HEADRACE_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    from headrace.distribute.spark.session import spark_session

    conf = {"spark.log.level": "ERROR", "spark.driver.memory": "2g"}
    return spark_session("headrace mutations", conf=conf)


def main() -> int:
    """Try every mutation; 1 if some case should have failed and did not."""
    spark = _spark()
    try:
        wrong = failures(sorted({mutation.cases for mutation in MUTATIONS}), None, spark)
        if wrong:
            print(f"without any mutation these do not pass: {', '.join(wrong)}")
            return 1
        missed = 0
        for mutation in MUTATIONS:
            begun = time.monotonic()
            caught = failures([mutation.cases], mutation, spark)
            by = f"by {', '.join(caught)}" if caught else f"({'/'.join(mutation.cases)})"
            seconds = time.monotonic() - begun
            print(f"{'caught' if caught else 'MISSED'}  {seconds:5.1f} s  {mutation.name}  {by}", flush=True)
            missed += not caught
    finally:
        spark.stop()
    print(f"{len(MUTATIONS) - missed} of {len(MUTATIONS)} mutations caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
