"""Deliberate mistakes in the program and the kernel, each of which a test must catch: ``make mutations``.

Every mutation is one change of text in a copy of the package, which takes the place of the package in this process. A
conformance case is then run on the executor local, or a test of the repository is called; all of them must pass with
the copy unchanged. A mutation that nobody notices is a hole in the cases or tests, and fails the command.
"""

import importlib
import inspect
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

REPOSITORY = Path(__file__).parent.parent
CASES = REPOSITORY / "tests/conformance/cases"


@dataclass(frozen=True)
class Case:
    """A conformance case: a file, and a glob of names in it."""

    file: str
    glob: str

    def failures(self) -> list[str]:
        """Names of cases that do not pass. Raises RuntimeError if no case runs."""
        command = importlib.import_module("headrace_lab.conformance.runner")
        executor = importlib.import_module("headrace_lab.conformance.on_local").LocalExecutor()
        results = command.run_file(CASES / f"{self.file}.json", executor, self.glob)
        if not results:
            raise RuntimeError(f"no case of {self.file} is called {self.glob}")
        return [result.name for result in results if result.status != "passed"]


def _on_local(_: str) -> Any:
    return importlib.import_module("tests.process.executors").Executed("local")


def _make_landed(folder: str) -> Any:
    return importlib.import_module("tests.sources.landed").LandedFiles(Path(folder))


HOLDING = frozenset({"headrace", "headrace_lab", "headrace_snapshots", "tests"})
"""The packages whose modules hold something of the package that is mutated."""

FIXTURES: Mapping[str, Callable[[str], Any]] = {"tmp_path": Path, "executor": _on_local, "landed_files": _make_landed}
"""What tests may ask for, made of a folder."""


@dataclass(frozen=True)
class Test:
    """A test function of the repository, with the arguments of its parameters: all, or those that are no fixtures."""

    __test__ = False
    module: str
    function: str
    arguments: tuple[Any, ...] = ()

    def failures(self) -> list[str]:
        """Its name, if it fails. Raises RuntimeError if there is no such test."""
        test = getattr(importlib.import_module(self.module), self.function, None)
        if test is None:
            raise RuntimeError(f"{self.module} has no {self.function}")
        names = inspect.signature(test).parameters
        with tempfile.TemporaryDirectory() as folder:
            makers = FIXTURES if len(self.arguments) < len(names) else {}
            fixtures = {name: make(folder) for name, make in makers.items() if name in names}
            own = [name for name in names if name not in fixtures]
            try:
                test(**fixtures, **dict(zip(own, self.arguments, strict=True)))
            except (Exception, pytest.fail.Exception):  # of whatever kind: the test has noticed
                return [f"{self.module}.{self.function}"]
        return []


@dataclass(frozen=True)
class Mutation:
    """``old`` becomes ``new`` in ``file`` of the package; ``by`` must fail then."""

    name: str
    file: str
    old: str
    new: str
    by: Case | Test


MUTATIONS = (
    Mutation(
        "no watermark crosses the end of a window",
        "program/firing.py",
        "pairs = [(c.WATERMARK_BEFORE, c.WATERMARK_AFTER)]",
        "pairs = [(c.WATERMARK_AFTER, c.WATERMARK_AFTER)]",
        Case("own_triggers", "own_late_counts_start_at_the_on_time_pane"),
    ),
    Mutation(
        "lateness is one granule longer",
        "program/firing.py",
        "(how.allowed_lateness - 1), Literal(GLOBAL_WINDOW_END - 1)",
        "how.allowed_lateness, Literal(GLOBAL_WINDOW_END - 1)",
        Test("tests.kernel.test_differential", "test_plain", ("fixed_discarding_default",)),
    ),
    Mutation(
        "a merge keeps the late phase of one window",
        "program/triggers/composites.py",
        "Field(self._late_phase, DataType.BOOL, FALSE, ColumnMerge.ALL)",
        "Field(self._late_phase, DataType.BOOL, FALSE, ColumnMerge.ANY)",
        Case("own_triggers", "own_merge_is_late_only_if_all_of_it_was"),
    ),
    Mutation(
        "a grown session does not owe a new on-time pane",
        "program/triggers/composites.py",
        'program.let("late_phase", all_of(state[self._late_phase], moment.passed_end))',
        'program.let("late_phase", state[self._late_phase])',
        Case("session_merges", "derived_session_rearm_after_extension"),
    ),
    Mutation(
        "counts of merged windows are not added",
        "program/triggers/leaves.py",
        "Field(self._total_column, DataType.INT, Literal(0), ColumnMerge.SUM)",
        "Field(self._total_column, DataType.INT, Literal(0), ColumnMerge.MIN)",
        Case("session_merges", "derived_bytes_trigger_merge_sums"),
    ),
    Mutation(
        "the latest deadline wins a merge",
        "program/triggers/leaves.py",
        "self._deadline, DataType.INT, NO_DEADLINE, ColumnMerge.MIN, is_deadline=True",
        "self._deadline, DataType.INT, NO_DEADLINE, ColumnMerge.MAX, is_deadline=True",
        Case("own_triggers", "own_any_merges_to_the_earliest_deadline"),
    ),
    Mutation(
        "a closed marker is lost",
        "program/firing.py",
        "choose(marker, c.STATUS_CLOSED, c.STATUS_OPEN)",
        "choose(marker, c.STATUS_GONE, c.STATUS_OPEN)",
        Case("own_triggers", "own_or_finally_keeps_until_progress"),
    ),
    Mutation(
        "a window fires once in an epoch",
        "program/firing.py",
        '"fires_again", all_of(still_open,',
        '"fires_again", all_of(negate(self.fires), negate(self.is_crossed), still_open,',
        Case("own_triggers", "own_late_counts_start_at_the_on_time_pane"),
    ),
    Mutation(
        "a hold survives its pane",
        "program/firing.py",
        'self.hold = let("hold", choose(fires, NO_HOLD, self.hold))',
        "self.hold = self.hold",
        Case("timestamps", "derived_earliest_is_per_pane"),
    ),
    Mutation(
        "an unchanged pane is emitted where it should be elided",
        "program/firing.py",
        "any_of(*reasons), negate(is_unchanged))",
        "any_of(*reasons))",
        Case("own_elided", "own_elided_pane_has_no_index"),
    ),
    Mutation(
        "a pane at another time is elided",
        "program/firing.py",
        "all_of(self.exists, self.same, self.live_time == time)",
        "all_of(self.exists, self.same)",
        Case("own_elided", "own_elided_only_with_its_timestamp"),
    ),
    Mutation(
        "a pane that does not exist is the same as another",
        "program/firing.py",
        "all_of(self.exists, self.same, self.live_time == time)",
        "all_of(self.same, self.live_time == time)",
        Case("own_elided", "own_elided_only_if_it_exists"),
    ),
    Mutation(
        "closed sessions take part in merging",
        "kernel/state.py",
        "part = np.flatnonzero(~sides.is_closed)",
        "part = np.arange(len(start))",
        Case("own_triggers", "own_closed_session_takes_no_part_in_merging"),
    ),
    Mutation(
        "a merge into a closed window happens",
        "kernel/state.py",
        "if stage.may_finish and sides.is_closed.any():",
        "if False:",
        Test("tests.kernel.test_differential", "test_plain", ("sessions_finishing",)),
    ),
    Mutation(
        "sessions that touch are one",
        "kernel/windows.py",
        "is_apart = start[1:] > reach[:-1] if where.touching_merges else start[1:] >= reach[:-1]",
        "is_apart = start[1:] > reach[:-1]",
        Case("windows", "merge_sessions_static"),
    ),
    Mutation(
        "a session reaches as far as its last element alone",
        "kernel/windows.py",
        "    reach = _running_maximum(end, same_key)\n",
        "    reach = end\n",
        Test("tests.kernel.test_windows", "test_one_long_session_in_many_small_windows"),
    ),
    Mutation(
        "sessions of neighbouring keys merge",
        "kernel/windows.py",
        "begins = with_first(is_apart | ~same_key, len(key))",
        "begins = with_first(is_apart, len(key))",
        Test("tests.kernel.test_windows", "test_windows_become_what_the_reference_makes_of_them"),
    ),
    Mutation(
        "sliding windows miss the earliest",
        "kernel/windows.py",
        "counts = (size - time_since_start + period - 1) // period",
        "counts = (size - time_since_start) // period",
        Test("tests.kernel.test_windows", "test_windows_are_those_of_the_reference"),
    ),
    Mutation(
        "a pane does not withdraw the one before it",
        "kernel/firing.py",
        "emitted_before = rows[self.live_at[rows] == _LIVE_IN_STATE]",
        "emitted_before = rows[:0]",
        Case("retractions", "derived_retract_early_on_time_late"),
    ),
    Mutation(
        "a pane does not withdraw one of the same epoch",
        "kernel/firing.py",
        "rows_again = rows[self.live_at[rows] == earlier]",
        "rows_again = rows[:0]",
        Test("tests.kernel.test_differential", "test_plain", ("fixed_retracting",)),
    ),
    Mutation(
        "what is emitted is not remembered",
        "kernel/firing.py",
        "                self.live_at[exists] = moment\n",
        "",
        Case("retractions", "derived_retract_early_on_time_late"),
    ),
    Mutation(
        "retractions come after what replaces them",
        "kernel/firing.py",
        "np.full(len(rows), np.iinfo(np.int64).max)",
        "np.full(len(rows), -1)",
        Test("tests.kernel.test_differential", "test_plain", ("fixed_retracting",)),
    ),
    Mutation(
        "elements behind the output watermark give their timestamp",
        "kernel/delta.py",
        "pc.greater_equal(stamps, arrow_scalar(int(self.output_watermark))), stamps, pa.scalar(None, stamps.type)",
        "pa.scalar(True), stamps, pa.scalar(None, stamps.type)",
        Case("timestamps", "transcript_known_late_data_watermark"),
    ),
    Mutation(
        "elements are late at the expiry of their window",
        "kernel/stage.py",
        "return watermark > np.minimum(",
        "return watermark >= np.minimum(",
        Test("tests.kernel.test_differential", "test_plain", ("sliding_accumulating",)),
    ),
    Mutation(
        "elements that are late for one of their windows count in it",
        "kernel/windows.py",
        "windows = windows.where(~stage.expired_mask(windows.end, watermark))",
        "",
        Test("tests.kernel.test_differential", "test_plain", ("sliding_accumulating",)),
    ),
    Mutation(
        "a slice ends where a window begins alone",
        "kernel/windows.py",
        "return times - time_since_start + np.where(time_since_start < rest, 0, rest)",
        "return times - time_since_start",
        Test("tests.kernel.test_differential", "test_plain", ("sliding_accumulating",)),
    ),
    Mutation(
        "the gap-aligned part of a session is as long as two gaps",
        "kernel/delta.py",
        "start = end = instants // gap * gap",
        "start = end = instants // (2 * gap) * (2 * gap)",
        Test("tests.kernel.test_differential", "test_plain", ("sessions_retracting",)),
    ),
    Mutation(
        "withdrawn elements are not counted as such",
        "kernel/delta.py",
        "withdrawn = (as_numpy(self._arranged_column(c.SIGN)) < 0).astype(np.int64)",
        "withdrawn = np.zeros(len(self.groups.of_row), np.int64)",
        Case("own_pipelines", "own_retraction_dropped_below"),
    ),
    Mutation(
        "an epoch in shares forgets where they stood",
        "kernel/delta.py",
        "places = pa.array(self.windows.row[place] + self.place)",
        "places = pa.array(self.windows.row[place])",
        Test("tests.kernel.test_distribution", "test_so_is_one_whose_order_counts", ("pattern_sessions",)),
    ),
    Mutation(
        "a retraction adds",
        "kernel/aggregates/sums.py",
        "return integers.sum_groups(values * sign, groups)",
        "return integers.total(values, groups)",
        Case("own_retractions", "own_retracted_input"),
    ),
    Mutation(
        "infinities stay once they came",
        "kernel/aggregates/sums.py",
        "counts = [np.where(is_it, sign, 0) for is_it in",
        "counts = [np.where(is_it, 1, 0) for is_it in",
        Test("tests.kernel.test_combiners", "test_what_is_not_finite_can_be_withdrawn", (float("inf"),)),
    ),
    Mutation(
        "a pane of another window is elided",
        "kernel/firing.py",
        "equal &= as_numpy(rows[own])[which] == as_numpy(panes.field(name))",
        "pass",
        Case("own_elided", "own_elided_only_in_its_window"),
    ),
    Mutation(
        "NaN is not NaN",
        "kernel/columns.py",
        "equal = equal | true_mask(pc.and_(pc.is_nan(left), pc.is_nan(right)))",
        "pass",
        Test("tests.kernel.test_differential", "test_a_pane_that_is_nan_again_is_elided"),
    ),
    Mutation(
        "lists of one length are equal",
        "kernel/columns.py",
        "equal[rows] = groups.reduce(np.minimum, equal_mask(items, others).astype(np.int8), 1) > 0",
        "pass",
        Test("tests.kernel.test_differential", "test_a_list_of_other_values_is_not_elided"),
    ),
    Mutation(
        "the oldest layer counts",
        "kernel/state.py",
        "    last = groups.offsets[1:] - 1\n",
        "    last = groups.offsets[:-1]\n",
        Test("tests.kernel.test_differential", "test_plain", ("global_count",)),
    ),
    Mutation(
        "windows that are gone come back",
        "kernel/state.py",
        "return rows if is_there.all() else rows.filter(pa.array(is_there))",
        "return rows",
        Test("tests.kernel.test_differential", "test_plain", ("sessions_count",)),
    ),
    Mutation(
        "a signal of one key is heard by all",
        "kernel/state.py",
        "matching &= _is_part(rows[name], part, kind)",
        "pass",
        Test("tests.kernel.test_differential", "test_further", ("signal_sessions",)),
    ),
    Mutation(
        "equal hashes are equal keys",
        "kernel/keys.py",
        "    if is_shared(columns, order, begins):\n",
        "    if False:\n",
        Test("tests.kernel.test_keys", "test_keys_of_one_hash_stand_in_an_order_of_their_own"),
    ),
    Mutation(
        "minus zero is another key",
        "kernel/keys.py",
        "bits = (values + 0.0).view(np.uint64)",
        "bits = values.view(np.uint64)",
        Test("tests.kernel.test_keys", "test_zeros_are_one_key_and_so_are_nans"),
    ),
    Mutation(
        "what a merge took in stays beside it",
        "kernel/step.py",
        "self.sides.state.take(pa.array(np.setdiff1d(open_rows, self.itself)))",
        "self.sides.state.slice(0, 0)",
        Test("tests.kernel.test_differential", "test_plain", ("sessions_retracting",)),
    ),
    Mutation(
        "a merged window keeps the counters of any source",
        "kernel/step.py",
        "places[group[same]] = rows[same]",
        "places[group] = rows",
        Test("tests.kernel.test_differential", "test_plain", ("sessions_retracting",)),
    ),
    Mutation(
        "what is cleared stays in the contents",
        "kernel/step.py",
        "contents_indices = pa.array(kept_rows, mask=firing.result_flags(outcome.is_cleared)[kept_rows])",
        "contents_indices = pa.array(kept_rows)",
        Test("tests.kernel.test_differential", "test_plain", ("global_count",)),
    ),
    Mutation(
        "panes reach the next aggregation in any order",
        "kernel/step.py",
        "order = pc.sort_indices(pa.table(sort_columns), sort_keys=names)",
        "order = pa.array(np.arange(sum(len(part) for part in sort_columns))[::-1])",
        Test("tests.kernel.test_differential", "test_panes_arrive_in_the_order_of_their_emission", ("kept",)),
    ),
    Mutation(
        "integers wrap",
        "kernel/expressions/evaluation.py",
        "_arithmetic(pc.multiply_checked,",
        "_arithmetic(pc.multiply,",
        Test("tests.kernel.test_expressions", "test_integers_that_leave_64_bits_are_errors"),
    ),
    Mutation(
        "a filter that is NULL admits",
        "kernel/delta.py",
        "return values.fill_null(False), overflows",
        "return values.fill_null(True), overflows",
        Test("tests.sources.test_epochs", "test_records_are_judged"),
    ),
    Mutation(
        "every pane that a withheld one would have withdrawn is withdrawn again",
        "kernel/firing.py",
        "return leaves & (~records.is_retraction | np.isin(place, stays))",
        "return leaves",
        Case("own_having", "own_having_accumulating"),
    ),
    Mutation(
        "a union goes on with the greatest of the output watermarks",
        "distribute/tasks/epoch_outcome.py",
        "return min(upstream.clocks[-1].output_watermark for upstream in self.upstream)",
        "return max(upstream.clocks[-1].output_watermark for upstream in self.upstream)",
        Case("own_outputs", "own_outputs_least_watermark"),
    ),
    Mutation(
        "all outputs of a union have the columns of the first",
        "distribute/tasks/tables.py",
        "shuffle_input, dead = _for_chain(own, panes, upstream.index(upstream_number))",
        "shuffle_input, dead = _for_chain(own, panes, 0)",
        Case("own_outputs", "own_outputs_net"),
    ),
    Mutation(
        "what an output withdraws counts below it once more",
        "distribute/tasks/tables.py",
        "pa.scalar(-1, pa.int64())",
        "pa.scalar(1, pa.int64())",
        Case("own_outputs", "own_outputs_having"),
    ),
    Mutation(
        "a union allows no more lateness than its own",
        "pipeline/parts.py",
        "            how = with_upstream_lateness(upstream_output.stage.aggregation.how, how)\n",
        "            pass\n",
        Case("own_outputs", "own_outputs_longest_lateness"),
    ),
    Mutation(
        "records too far ahead move the watermark",
        "distribute/watermark_inputs.py",
        "    if len(rows_ahead):\n",
        "    if False:\n",
        Test("tests.sources.test_epoch_clocks", "test_these_epochs_move_the_clock_as_the_reference_does", ("ahead",)),
    ),
    Mutation(
        "an idle input holds the others back",
        "sources/source_clock.py",
        "speaking = {name: clock for name, clock in clocks.items() if not clock.is_idle(processing_time)} or clocks",
        "speaking = clocks",
        Test(
            "tests.process.test_inputs",
            "test_an_idle_input_holds_back_no_other_and_the_manifest_says_who_does",
        ),
    ),
    Mutation(
        "an id is remembered for ever",
        "state/layers.py",
        "int(self.watermark) > event_times + int(self.deduplicate.horizon)",
        "event_times > int(self.watermark) + int(self.deduplicate.horizon)",
        Test(
            "tests.process.test_inputs",
            "test_landed_files_of_all_inputs_give_what_the_reference_gives",
            ("once",),
        ),
    ),
    Mutation(
        "the sign of a change is ignored",
        "sources/changelogs.py",
        "return replace(records, columns={**columns, c.SIGN: signs})",
        "return replace(records, columns=columns)",
        Test("tests.changelogs.test_changes", "test_signs_of_an_expression", ("local",)),
    ),
    Mutation(
        "ids of changes are told apart without their sign",
        "state/layers.py",
        "return [c.ID, c.SIGN] if self.is_signed else [c.ID]",
        "return [c.ID]",
        Test("tests.changelogs.test_changes", "test_ids_are_told_apart_by_sign", ("local",)),
    ),
    Mutation(
        "what was consumed of a line that is gone is not taken back",
        "connectors/published/source.py",
        " union all select {columns}, -{SIGN} from ({begin_query})",
        "",
        Test("tests.process.test_published", "test_one_of_several_outputs_is_read"),
    ),
    Mutation(
        "of an upstream that discards, panes of a line that is gone are counted once more",
        "connectors/published/source.py",
        "tables_taken_back = [] if begin is None else [_invert_retractions(self._read_panes(begin, since_epoch))]",
        "tables_taken_back = [] if begin is None else [self._read_panes(begin, since_epoch)]",
        Test(
            "tests.process.test_published",
            "test_rows_are_those_of_one_pipeline_whatever_was_taken_back",
            ("discarding", 1),
        ),
    ),
    Mutation(
        "readers that have consumed what is given up stay where they are",
        "runs/recovery_target.py",
        "return upstream_catalog.is_ancestor(position.snapshot, published_id)",
        "return True",
        Test("tests.process.test_recover_with_readers", "test_a_chain_goes_back_to_one_cut_and_reads_on", (0,)),
    ),
    Mutation(
        "a join leaves out a right row at the end of the interval",
        "kernel/joins/step.py",
        "self.end = sides.search_within(self.times, begin, end, last, is_after=True)",
        "self.end = sides.search_within(self.times, begin, end, last, is_after=False)",
        Case("own_joins", "own_joins_as_of"),
    ),
    Mutation(
        "a deleted version is forgotten",
        "kernel/joins/step.py",
        "stays = ~self.is_deleted[right_rows]",
        "stays = self.is_deleted[right_rows] | True",
        Case("own_joins", "own_joins_tied_and_deleted"),
    ),
    Mutation(
        "versions of one moment are told apart without their order",
        "kernel/joins/step.py",
        "ranks.append(_rank_values(of_row.column(sides.ORDER).take(places)))",
        "pass",
        Case("own_joins", "own_joins_tied_and_deleted"),
    ),
    Mutation(
        "a withdrawal of a right row is one more",
        "kernel/joins/step.py",
        "*(np.maximum(total, 0) for total in sums)",
        "*(np.abs(total) for total in sums)",
        Case("own_joins", "own_joins_withdrawn"),
    ),
    Mutation(
        "the last event is met in place of the next",
        "kernel/joins/step.py",
        "if self.join.join.meets is Meets.FIRST:",
        "if self.join.join.meets is None:",
        Case("own_joins", "own_joins_next_event"),
    ),
    Mutation(
        "what stands for good is corrected",
        "kernel/joins/step.py",
        "parts = [(hashes, np.maximum(first, first_open), last)]",
        "parts = [(hashes, first, last)]",
        Test("tests.joins.test_step", "test_what_leaves_is_what_the_reference_says"),
    ),
    Mutation(
        "a version is hidden from rows that still meet it",
        "kernel/joins/merge.py",
        "holds = np.where((counts > 0) & (times < join.held_from(watermark)), times, int(MIN_INSTANT))",
        "holds = times",
        Test("tests.joins.test_step", "test_what_leaves_is_what_the_reference_says"),
    ),
    Mutation(
        "a lookup meets the version that came by the event time of its row",
        "kernel/joins/sides.py",
        "return np.full(len(times), int(MAX_INSTANT)) if self.join.by_arrival else times",
        "return times",
        Case("own_joins", "own_joins_lookup"),
    ),
    Mutation(
        "joined rows are patched before they stand for good",
        "read/snapshots/progress.py",
        "lateness = _longest_lateness(manifest.definition) if made_of is RowOrigin.JOINED else Duration(0)",
        "lateness = Duration(0)",
        Test(
            "tests.joins.test_patched_joins",
            "test_after_random_patches_what_is_over_is_the_branchs_and_main_goes_on",
            ("as_of", 0),
        ),
    ),
    Mutation(
        "a right row is late before the rows that it reaches are",
        "kernel/joins/sides.py",
        "return times - int(self.join.begin) + self.reach",
        "return times - int(self.join.begin)",
        Case("own_joins", "own_joins_within"),
    ),
    Mutation(
        "joined rows come with the watermark of the source",
        "kernel/joins/sides.py",
        "return Instant(int(watermark) - self.reach)",
        "return watermark",
        Case("own_joins", "own_joins_within"),
    ),
)


def mutate_copy(mutation: Mutation | None, folder: Path) -> Path:
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
def package(mutation: Mutation | None) -> Iterator[None]:
    """``import headrace`` gives a copy with ``mutation`` while this lasts."""

    def forget() -> dict[str, Any]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in HOLDING}

    with tempfile.TemporaryDirectory() as folder:
        root = mutate_copy(mutation, Path(folder))
        modules_before = forget()
        sys.path.insert(0, str(root))
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(str(root))
            forget()
            sys.modules.update(modules_before)


def failures(test: Case | Test, mutation: Mutation | None) -> list[str]:
    """What of ``test`` fails with the mutation. Raises RuntimeError if it could not be tried."""
    with package(mutation):
        package_file = importlib.import_module("headrace.program").__file__
        if Path(str(package_file)).is_relative_to(REPOSITORY):
            raise RuntimeError("the copy of the package was not imported")
        return test.failures()


def main() -> int:
    """Try every mutation; 1 if something should have failed and did not."""
    settings.register_profile("unit", max_examples=50, phases=[Phase.explicit, Phase.generate])
    settings.load_profile("unit")
    wrong = [name for judge in dict.fromkeys(mutation.by for mutation in MUTATIONS) for name in failures(judge, None)]
    if wrong:
        print(f"without any mutation these do not pass: {', '.join(wrong)}")
        return 1
    missed_count = 0
    for mutation in MUTATIONS:
        start = time.monotonic()
        failing_tests = failures(mutation.by, mutation)
        judge = f"by {', '.join(failing_tests)}" if failing_tests else f"({mutation.by})"
        seconds = time.monotonic() - start
        print(f"{'caught' if failing_tests else 'MISSED'}  {seconds:5.1f} s  {mutation.name}  {judge}", flush=True)
        missed_count += not failing_tests
    print(f"{len(MUTATIONS) - missed_count} of {len(MUTATIONS)} mutations caught")
    return 1 if missed_count else 0


if __name__ == "__main__":
    sys.exit(main())
