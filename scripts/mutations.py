"""Deliberate mistakes in the Spark engine, each of which the conformance cases must catch: ``make mutations``.

Every mutation is one change of text in a copy of the engine; the named cases are then run on Spark with the copy. A
mutation that no case notices is a hole in the cases, and fails the command.
"""

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from os import environ
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
ENGINE = REPOSITORY / "jobs/headrace/engine"
CASES = REPOSITORY / "tests/conformance/cases"


@dataclass(frozen=True)
class Mutation:
    """``old`` becomes ``new`` in ``file`` of the engine; ``cases`` (file, glob) must fail then."""

    name: str
    file: str
    old: str
    new: str
    cases: tuple[str, str]


MUTATIONS = (
    Mutation(
        "no watermark crosses the end of a window",
        "firing.py",
        "pairs = [(c.WATERMARK_BEFORE, c.WATERMARK_AFTER)]",
        "pairs = [(c.WATERMARK_AFTER, c.WATERMARK_AFTER)]",
        ("own_triggers", "own_late_counts_start_at_the_on_time_pane"),
    ),
    Mutation(
        "lateness is one granule longer",
        "delta.py",
        "f.lit(int(lateness) - 1)",
        "f.lit(int(lateness))",
        ("lateness_and_triggers", "derived_late_drop_boundary_W30"),
    ),
    Mutation(
        "a merge keeps the late phase of one window",
        "triggers/composites.py",
        "Field(self._late_phase, DataType.BOOL, FALSE, Fold.ALL)",
        "Field(self._late_phase, DataType.BOOL, FALSE, Fold.ANY)",
        ("session_merges", "transcript_early_late_sessions"),
    ),
    Mutation(
        "a grown session does not owe a new on-time pane",
        "triggers/composites.py",
        'program.let("late_phase", all_of(state[self._late_phase], moment.passed_end))',
        'program.let("late_phase", state[self._late_phase])',
        ("session_merges", "derived_session_rearm_after_extension"),
    ),
    Mutation(
        "counts of merged windows are not added",
        "triggers/leaves.py",
        "Field(self._total, DataType.INT, Literal(0), Fold.SUM)",
        "Field(self._total, DataType.INT, Literal(0), Fold.MIN)",
        ("session_merges", "derived_bytes_trigger_merge_sums"),
    ),
    Mutation(
        "the latest deadline wins a merge",
        "triggers/leaves.py",
        "Field(self._deadline, DataType.INT, NO_DEADLINE, Fold.MIN, is_deadline=True)",
        "Field(self._deadline, DataType.INT, NO_DEADLINE, Fold.MAX, is_deadline=True)",
        ("own_triggers", "own_any_merges_to_the_earliest_deadline"),
    ),
    Mutation(
        "a closed marker is lost",
        "firing.py",
        "choose(marker, c.CLOSED, c.OPEN),",
        "choose(marker, c.DELETED, c.OPEN),",
        ("bundling", "unit_fixed_after_count_b4"),
    ),
    Mutation(
        "closed sessions take part in merging",
        "merging.py",
        "f.when(f.col(c.STATUS) == c.CLOSED, int(_Kind.CLOSED)).otherwise(int(_Kind.MERGED))",
        "f.when(f.col(c.STATUS) == c.DELETED, int(_Kind.CLOSED)).otherwise(int(_Kind.MERGED))",
        ("session_merges", "derived_closed_session_does_not_poison"),
    ),
    Mutation(
        "sessions that touch are one",
        "merging.py",
        "self.touching = isinstance(plan.where, Sessions) and plan.where.touching_merges",
        "self.touching = True",
        ("windows", "merge_sessions_static"),
    ),
    Mutation(
        "a pane does not withdraw the one before it",
        "emission.py",
        "record = f.concat(withdrawn, record)",
        "record = record",
        ("retractions", "derived_retract_early_on_time_late"),
    ),
    Mutation(
        "what is emitted is not remembered",
        "emission.py",
        "live = f.when(emitted, replaced).otherwise(live)",
        "live = live",
        ("retractions", "derived_retract_early_on_time_late"),
    ),
    Mutation(
        "a window fires once in an epoch",
        "firing.py",
        'let("fires_again", all_of(still_open,',
        'let("fires_again", all_of(negate(fires), negate(crossed), still_open,',
        ("own_triggers", "own_late_counts_start_at_the_on_time_pane"),
    ),
    Mutation(
        "a hold survives its pane",
        "firing.py",
        'self.hold = let("hold", choose(fires, NO_HOLD, self.hold))',
        "self.hold = self.hold",
        ("timestamps", "derived_earliest_is_per_pane"),
    ),
    Mutation(
        "elements behind the output watermark lend their timestamp",
        "delta.py",
        "held = f.when(stamp >= by_reference(int(output_watermark), stamp), stamp)",
        "held = stamp",
        ("timestamps", "transcript_known_late_data_watermark"),
    ),
    Mutation(
        "a retraction adds",
        "parts.py",
        "return f.sum(value if sign is None else value * sign).cast(self.type)",
        "return f.sum(value).cast(self.type)",
        ("own_retractions", "own_retracted_input"),
    ),
    Mutation(
        "passed deadlines are never asked about",
        "state.py",
        "f.col(c.DUE_TIME) <= int(clocks.processing_time)\n",
        "f.col(c.DUE_TIME) < int(clocks.processing_time)\n",
        ("processing_time", "derived_pt_due_at_equality"),
    ),
)


def mutated(mutation: Mutation, folder: Path) -> Path:
    """A copy of the source root under ``folder`` with the mutation. Raises ValueError if its text is not there once."""
    root = folder / "jobs"
    shutil.copytree(REPOSITORY / "jobs", root, ignore=shutil.ignore_patterns("__pycache__"))
    file = root / "headrace/engine" / mutation.file
    text = file.read_text()
    if text.count(mutation.old) != 1:
        raise ValueError(f"{mutation.name}: its text is {text.count(mutation.old)} times in {mutation.file}, not once")
    file.write_text(text.replace(mutation.old, mutation.new))
    return root


def is_caught(mutation: Mutation) -> bool:
    """Whether the cases of the mutation fail with it."""
    with tempfile.TemporaryDirectory() as folder:
        root = mutated(mutation, Path(folder))
        file, glob = mutation.cases
        command = [sys.executable, "-m", "headrace.entrypoints.conformance", str(CASES / f"{file}.json")]
        command += ["--engine", "spark", "--only", glob]
        paths = [str(root), str(REPOSITORY / "snapshots")]
        done = subprocess.run(
            command,
            env={**environ, "PYTHONPATH": ":".join(paths)},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise RuntimeError(f"{mutation.name}: the cases did not run:\n{done.stderr[-2000:]}")
    return done.returncode == 1


def main() -> int:
    """Try every mutation; 1 if some case should have failed and did not."""
    missed = []
    for mutation in MUTATIONS:
        caught = is_caught(mutation)
        print(f"{'caught' if caught else 'MISSED'}  {mutation.name}", flush=True)
        if not caught:
            missed.append(mutation.name)
    print(f"{len(MUTATIONS) - len(missed)} of {len(MUTATIONS)} mutations caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
