"""Triggers that users write: what they hear, when they are asked, what is refused when a pipeline is built."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from headrace import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterSignal,
    AfterWatermark,
    Aggregation,
    CustomTrigger,
    DataType,
    FixedWindows,
    Progress,
    Repeatedly,
    Sessions,
    ShiftedOutputTime,
    Signal,
    Trigger,
    TriggerElement,
    TriggerMoment,
    accumulating,
    col,
    count,
    discarding,
)
from headrace.errors import PipelineError
from headrace.model.time import Instant
from headrace.model.triggers.custom import State
from headrace.testing import fingerprint
from headrace_lab.reference import Epoch, PipelineRun
from tests.building import written_again
from tests.own_triggers import Jump, Poll, Refusing, Reminder, Rising
from tests.reference.test_new_triggers import Script, build

JUMP = Jump(10, "x")
N = {"n": count()}


def values(run: PipelineRun, processing_time: int, *rows: tuple[int, int], is_last: bool = False) -> list[Any]:
    """The values of the panes of an epoch of one user; rows are of event time and x."""
    records = [{"user": "ann", "at": time, "x": x} for time, x in rows]
    result = run.run(Epoch(Instant(processing_time), records, is_last))
    return [pane.values[0] for pane in result.panes]


def test_it_hears_of_elements_in_order_and_is_asked_once_behind_a_bundle() -> None:
    step = Script(build(Repeatedly(JUMP)))
    assert step(5, 9) == []
    assert step(30, 2, 3) == [(2, 3, 5, 9, 30)], "it jumped within the bundle, all of which joins the pane"
    assert step(4) == [], "a firing starts it again"
    assert step(20) == [(4, 20)]


def test_it_finishes_as_other_leaves_do() -> None:
    step = Script(build(AfterEach(JUMP, AfterCount(1))))
    assert [step(3), step(20), step(50, 51)] == [[], [(3, 20)], [(50, 51)]]
    assert step(52) == [], "both have fired: the window is closed"


def test_it_is_asked_when_its_deadline_is_due() -> None:
    run = PipelineRun(build(Reminder(column="x")))
    assert values(run, 100, (1, 20), (2, 7)) == []
    assert values(run, 106) == []
    assert values(run, 107) == [(7, 20)]
    assert values(run, 120) == [], "the firing forgot the other one"
    assert values(run, 130, (3, 5), is_last=True) == [(5,)]


def test_it_sees_the_watermark_pass_the_end_and_event_times() -> None:
    @dataclass(frozen=True)
    class RisingOrEnd(Rising):
        def on_element(self, state: State, element: TriggerElement, moment: TriggerMoment) -> State:
            record = {"share": float(element.record["x"])}
            return super().on_element(state, TriggerElement(record, element.timestamp), moment)

    run = PipelineRun(build(Repeatedly(RisingOrEnd(3)), how=accumulating("1000us")))
    assert values(run, 0, (50, 1), (40, 1), (60, 1)) == [], "two rises: -1000, 50, 60"
    assert values(run, 0, (130, 9), (55, 1)) == []
    assert values(run, 0, (61, 1)) == [(1, 1, 1, 1, 1)], "the third"
    assert values(run, 0, (2000, 1)) == [(9,)], "its share is above 2 when [100, 200) ends"


def test_merged_windows_get_what_it_makes_of_their_states() -> None:
    run = PipelineRun(build(Repeatedly(AfterAll(JUMP, AfterCount(3))), where=Sessions("10us")))
    assert values(run, 0, (0, 1), (15, 30)) == []
    assert values(run, 0, (8, 25)) == [(1, 25, 30)], "the last value before the merge was 30; 25 is no jump, 30 was one"
    assert values(run, 0, (20, 26), (21, 27), (22, 28)) == [(26, 27, 28)], "from 0, which it begins at, to 26"


GO, STOP = Signal("go"), Signal("stop")


def test_it_hears_of_its_signals_behind_the_bundle_and_is_asked() -> None:
    step = Script(build(Repeatedly(Poll(2))))
    assert step(1, signals=(GO,)) == [], "one element is too few"
    assert step(2) == []
    assert step(3, signals=(GO,)) == [(1, 2, 3)]
    assert step(4, 5, signals=(Signal("ask"),)) == [], "it does not hear of others"
    assert step(signals=(STOP, GO, GO)) == [], "each name once, in the order of names"
    assert step(signals=(Signal("go", key=("bob",)),)) == []
    assert step(signals=(Signal("go", key=("ann",)),)) == [(4, 5)]


def test_a_signal_may_set_a_deadline() -> None:
    run = PipelineRun(build(Poll(9), where=Sessions("10us")))
    row = {"user": "ann", "at": 1, "x": 7}
    assert not run.run(Epoch(Instant(100), [row], signals=(STOP,))).panes
    assert values(run, 104) == []
    assert values(run, 105) == [(7,)]


def test_a_pipeline_knows_the_signals_of_all_its_triggers() -> None:
    aggregation_behind = Aggregation(
        key={"all": col("n")},
        where=FixedWindows("1000us"),
        when=Repeatedly(AfterAny(Poll(1), AfterSignal("ask"))),
        how=discarding("0s"),
        what=N,
    )
    assert build(AfterWatermark(early=AfterSignal("early")), what=N, then=(aggregation_behind,)).signals == [
        "ask",
        "early",
        "go",
        "stop",
    ]
    assert build(Repeatedly(JUMP)).signals == []


@dataclass(frozen=True)
class Lasting(Jump):
    def clear(self, state: State) -> State:
        return state


@pytest.mark.parametrize(("trigger", "expected"), [(JUMP, []), (Lasting(10, "x"), [(5,)])])
def test_what_clear_leaves_is_there_when_another_trigger_has_fired(trigger: Jump, expected: list[Any]) -> None:
    run = PipelineRun(build(AfterEach(AfterCount(1), trigger), where=Sessions("100us")))
    assert values(run, 0, (1, 40)) == [(40,)], "both hear it, for a merge may move the position back"
    assert values(run, 0, (2, 5)) == expected


def test_what_its_code_raises_names_it() -> None:
    step = Script(build(Repeatedly(Refusing(3, "x"))))
    with pytest.raises(PipelineError, match=r"^Refusing\(.*\) could not look at an element: ValueError\('bad luck'\)$"):
        step(1, 13)


@dataclass(frozen=True)
class Forgetful(Jump):
    def on_element(self, state: State, element: TriggerElement, moment: TriggerMoment) -> State:
        return {"jumped": True}


@dataclass(frozen=True)
class Stubborn(Jump):
    may_finish = False

    def on_fire(self, state: State, moment: TriggerMoment) -> Progress:
        return Progress(state, True)


@pytest.mark.parametrize(
    ("trigger", "message"),
    [
        (Forgetful(1, "x"), "made a state with the fields jumped; it declares jumped, last"),
        (Stubborn(1, "x"), "finished, but its may_finish says that it never does"),
    ],
)
def test_what_breaks_its_own_word_is_an_error(trigger: CustomTrigger, message: str) -> None:
    step = Script(build(trigger))
    with pytest.raises(PipelineError, match=message):
        step(50)


class Plain(CustomTrigger):
    state_types = {"n": DataType.INT}

    def create(self) -> State:
        return {"n": 0}

    def on_element(self, state: State, element: TriggerElement, moment: TriggerMoment) -> State:
        return state

    def ready(self, state: State, moment: TriggerMoment) -> bool:
        return False


@dataclass(frozen=True)
class MisdeclaredTrigger(Plain):
    state_types = {"n": DataType.STRING}


@dataclass(frozen=True)
class UntypedTrigger(Plain):
    state_types = {"n": complex}


@dataclass(frozen=True)
class Deaf(Plain):
    signals = ("go",)


@dataclass(frozen=True)
class SpelledSignals(Poll):
    signals = "go"


@dataclass(frozen=True)
class Unheard(Poll):
    signals = ()


@dataclass(frozen=True)
class Failing(Plain):
    def deadline(self, state: State) -> Instant | None:
        raise KeyError("at")


@pytest.mark.parametrize(
    ("trigger", "where", "message"),
    [
        (Plain(), FixedWindows("10us"), "must be a frozen dataclass"),
        (MisdeclaredTrigger(), FixedWindows("10us"), "creates 0 as 'n', which is declared as string"),
        (UntypedTrigger(), FixedWindows("10us"), r"UntypedTrigger\(state_types\['n'\]=.*\): write one of str, int"),
        (Deaf(), FixedWindows("10us"), "declares signals and has no on_signal"),
        (SpelledSignals(2), FixedWindows("10us"), "declares 'go' as its signals; use a tuple"),
        (Unheard(2), FixedWindows("10us"), "has an on_signal and declares no signals="),
        (Failing(), FixedWindows("10us"), "could not create a state: KeyError"),
        (Repeatedly(AfterAll(AfterCount(2), Rising(1))), Sessions("10us"), "has no on_merge, and the windows merge"),
        (AfterWatermark(late=Rising(1)), ShiftedOutputTime(Sessions("10us"), "1us"), "has no on_merge"),
    ],
)
def test_what_cannot_run_is_refused_when_the_pipeline_is_built(trigger: Trigger, where: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        build(trigger, where=where)


def test_it_may_finish_or_not_and_what_stands_behind_it_counts_panes() -> None:
    with pytest.raises(PipelineError, match="can finish"):
        build(JUMP, allow_finishing=False)
    build(Reminder(), allow_finishing=False)
    build(Repeatedly(JUMP), where=Sessions("10us"), allow_finishing=False)
    assert Repeatedly(JUMP).continuation == Repeatedly(AfterCount(1))


def test_a_fingerprint_tells_its_fields_and_its_state_apart() -> None:
    fingerprints: Sequence[str] = [
        fingerprint(build(Repeatedly(t))) for t in (Jump(1), Jump(2), Jump(1, "x"), Reminder(1))
    ]
    assert len(set(fingerprints)) == 4
    assert fingerprint(build(Repeatedly(Jump(1)))) == fingerprints[0]
    asking = written_again(Poll, signals=("go", "ask"))
    assert fingerprint(build(Repeatedly(asking(1)))) != fingerprint(build(Repeatedly(Poll(1))))
    reversed_class = written_again(Jump, state_types=dict(reversed(Jump.state_types.items())))
    assert fingerprint(build(Repeatedly(reversed_class(1)))) != fingerprints[0]
    assert fingerprint(build(Repeatedly(written_again(Jump)(1)))) == fingerprints[0], "a class goes by its name"
