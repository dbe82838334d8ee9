"""What a run is asked to do: one frozen value that the command line, Airflow and tests fill alike.

Each option is declared here, once. The methods of ``PipelineHandle``, the options of commands, the arguments of a
task's process, and the fields of forms are made of it. ``COMMANDS`` and ``FORMS`` say where people may give it, in
which order; others are for Headrace alone. To add one, declare its field, name it there, and run ``python -m
scripts.handle_options``.

The modes of a run, apart from its other options: a command line that only names them starts sooner.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final

from headrace.runs.option_kinds import (
    OPTION_KEY,
    BranchOption,
    ChoiceOption,
    ExecutorNameOption,
    FlagOption,
    MomentOption,
    OptionField,
    OutputOption,
    RunOption,
    RunOptionsError,
    SignalsOption,
    TextOption,
    TextsOption,
    TimeOption,
    WholeOption,
    option_field,
    single_option,
)
from headrace_snapshots.names import MAIN, PUBLISHED, why_not

if TYPE_CHECKING:
    from headrace.model.triggers import Signal
    from headrace.model.windows import Window
    from headrace.runs.replay_clock import ReplayClock


class Mode(StrEnum):
    """How input is cut into epochs, and under which clock; the pipeline is the same, and for input within its bound so
    are final panes.
    """

    MICRO_BATCH = "micro-batch"
    BATCH = "batch"
    REPLAY = "replay"


@dataclass(frozen=True)
class RunOptions:
    """Options of one run; a limit of None is the pipeline's own. What people give is told where it is declared, and
    behind it what more there is to know. Raises RunOptionsError.
    """

    run_id: str
    """Names the result object, so it is new for every attempt."""
    request: str | None = single_option(None, TextOption(), "names the purpose of the run; the same in every attempt")
    """What every attempt is for, if there may be several: another one does not do again what one has done."""
    snapshot: str | None = single_option(None, TextOption(), "recover: the snapshot to which main moves back")
    message: str = single_option("", TextOption(), "recover: who decided it and why, for the log of the pipeline")
    defer_verdict: bool = False
    """An audit that fails is no error of the run: who comes next reads the stored audit."""
    as_read_by: str | None = None
    """A snapshot whose files, where they are read again, are read in the order and at the processing times that it
    recorded.
    """
    max_epochs: int | None = single_option(
        None,
        WholeOption(),
        "Stop after this many epochs.",
        title="Epochs at most",
        about="Empty: until nothing is left.",
    )
    files_per_epoch: int | None = single_option(
        None,
        WholeOption(),
        "Files in one epoch, at most.",
        title="Files per epoch at most",
        about="Empty: as the pipeline says.",
    )
    bytes_per_epoch: int | None = single_option(
        None,
        WholeOption(),
        "Bytes in one epoch, at most.",
        title="Bytes per epoch at most",
        about="Empty: as the pipeline says.",
    )
    executor: str | None = single_option(
        None,
        ExecutorNameOption(),
        "Where epochs are computed: as Spark jobs, in this process without a JVM, or wherever they fit; by default "
        "as the pipeline says.",
        title="Executor",
        about="Where epochs are computed.",
    )
    reason: str = single_option("", TextOption(), "why this executor was chosen, for the result object")
    mode: Mode = single_option(
        Mode.MICRO_BATCH,
        ChoiceOption(Mode.BATCH),
        "batch: all input in one epoch, to the end. replay: recorded epochs again, or landed files under --clock.",
    )
    """BATCH takes all input as one epoch, after which the watermark goes to +inf: every window gives one pane and
    closes. REPLAY fills an empty branch with the epochs that the branch (or tag) ``from_branch`` recorded, default
    main; or under ``clock`` with what has landed. Run again, a replay that was stopped continues. It publishes nothing.
    """
    branch: str = single_option(
        MAIN,
        BranchOption("trial"),
        "The branch to run on; a replay fills an empty one, or continues its own.",
        title="Branch",
        about="Here only main is audited and published.",
        doors={
            "backfill": {
                "default": None,
                "help": "The branch to fill, by default a new one; a backfill that was stopped continues its branch.",
                "about": "Empty: a new branch for this run. If nobody promotes it, a later backfill drops it once "
                "it has not changed for 14 days; the branch of a scheduled run, once there are 3 newer ones. A "
                "branch that you name stays until it is dropped. A backfill that was stopped continues in "
                "its branch.",
            }
        },
    )
    """What the run moves. A backfill forks to it, and there ``main`` stands for a branch named after the run."""
    from_branch: str | None = single_option(
        None,
        BranchOption(MAIN),
        "replay: the branch or tag whose epochs run again; main unless --clock is given.",
    )
    clock: "ReplayClock | None" = option_field(
        None,
        RunOption(
            MomentOption("2026-01-01T00:00:00Z"),
            "replay: when the first epoch runs, like 2026-01-01T00:00:00Z.",
        ),
        RunOption(TextOption("5m"), "replay: time from epoch to epoch, like 5m.", name="clock_step"),
        result="clock",
    )
    signals: "tuple[Signal, ...]" = single_option(
        (),
        SignalsOption("go"),
        'Signal for open windows: NAME, or NAME=["key"] for one key. Repeatable.',
        flag="--signal",
        title="Signals",
        about='Given to this run\'s first epoch, one a line: {signals}; for one key only, as NAME=["key"].',
        needs="signals",
    )
    """Given to the run's first epoch (semantics 9.3), and not again by another attempt of the ``request`` whose signals
    were given last.
    """
    publish: bool = single_option(
        False,
        FlagOption(),
        "Publish when the audit succeeds.",
        flag="--publish/--no-publish",
        doors={
            "run": {"default": None, "help": "Publish when the audit succeeds; by default on main."},
            "recover": {"default": True},
        },
    )
    """The run ends with a publish if its audit succeeded."""
    create: bool = single_option(
        False,
        FlagOption(),
        "Make a root that does not exist, even if there is no input.",
        title="Create",
        in_python=False,  # hr.open takes it
    )
    full_sweep: bool = single_option(
        False,
        FlagOption(),
        "List the whole landing prefix, to find stragglers that sort before the newest files.",
        title="Full sweep",
    )
    strict: bool = single_option(
        False,
        FlagOption(),
        "Refuse to run if code of your own has changed since the last snapshot.",
        title="Strict",
    )
    allow_new_aggregates: bool = single_option(
        False,
        FlagOption(),
        "Let aggregates that the last snapshot lacks start empty: they count only new data.",
        title="Added aggregates start empty",
        about="Run although the last snapshot lacks some aggregates: these count only new data.",
    )
    """Otherwise the run refuses a snapshot that lacks aggregates."""
    without: tuple[str, ...] = single_option(
        (),
        TextsOption("daily"),
        "Go on without an output, which stays as it is until a later run. Repeatable.",
        title="Without",
        about="Outputs, one a line, that stay as they are until a later run: the others go on without them.",
        needs="has_names",
    )
    """Outputs that are parked stay so, however long they have been."""
    give_up_delivered: bool = single_option(
        False,
        FlagOption(),
        "Go on although the move gives up rows that a sink has got and cannot take back.",
        title="Give up what was delivered",
        about="Go on although the move gives up rows that a sink has got and cannot take back.",
    )
    with_readers: bool = single_option(
        False,
        FlagOption(),
        "First take back all pipelines that have read the snapshots given up, to one consistent cut.",
        title="With readers",
    )
    left_readers: tuple[str, ...] = single_option(
        (),
        TextsOption("daily"),
        "A pipeline that stays where it is. Repeatable.",
        name="leave",
        metavar="READER",
    )
    reader_roots: tuple[str, ...] = single_option(
        (),
        TextsOption("s3://bucket/analytics"),
        "Another root to look for readers in, as HEADRACE_READER_ROOTS names some. Repeatable.",
        flag="--reader-root",
        metavar="URI",
    )
    output: str | None = single_option(
        None,
        OutputOption("daily"),
        on_command_line=False,  # PIPELINE names it
        title="Output",
        about="Compute only this output and those computed from it, in the epochs of main. Then leave out the "
        "range. Main adopts it, and the next run of process publishes it. A patch is always of one output.",
        needs="has_names",
        doors={
            "promote": {
                "needs": "",  # of any pipeline
                "about": "The output that is patched, or that main adopts from a branch which has computed it "
                "again. Empty: the whole branch.",
            }
        },
    )
    """With what is computed of it; None for all."""
    span: "Window | None" = option_field(
        None,
        RunOption(
            TimeOption("2026-01-05"),
            "Compute windows again from here on: a day in UTC, or a time with its zone. By default all.",
            name="start",
            flag="--from",
            in_form="from",
            title="From",
            about="Compute windows again from this event time on. Empty: all input is read again{last}.",
        ),
        RunOption(
            TimeOption("2026-01-07"),
            "Compute windows before this one only; a day or a time, as for --from.",
            name="end",
            flag="--to",
            in_form="to",
            title="To",
            about="Compute only windows before this event time. Empty: up to the newest.",
        ),
        result="span",
    )
    """The event times whose windows a backfill computes again, None for all."""
    promotes: bool = single_option(
        False,
        FlagOption(),
        "Make the branch main and published when its audit succeeds.",
        name="promote",
        argument="--promotes",
    )
    """The branch of a backfill is to be promoted, so what would stand against that whatever it computes is said first.
    """
    patches: bool = single_option(
        False,
        FlagOption(),
        "Replace only rows of main whose windows have expired on both; main goes on, the branch stays.",
        name="patch",
        argument="--patches",
        title="Patch",
        about="Replace only rows of windows that have expired on both; main goes on as it is.",
    )
    """The rows of a backfill are to be a patch of main, and what would stand against that is said first."""

    @property
    def parks(self) -> bool:
        """Whether an output that fails is parked, and others go on: on main alone. Other branches compute all."""
        return self.mode is Mode.MICRO_BATCH and self.branch == MAIN

    def __post_init__(self) -> None:
        from headrace_snapshots.names import RUN_ID  # which takes longer to import than all else here

        if not re.fullmatch(RUN_ID, self.run_id):
            raise RunOptionsError(f"run id {self.run_id!r}: use up to 200 letters, digits, _, . and -")
        if self.branch == PUBLISHED:
            raise RunOptionsError(f"branch {PUBLISHED!r} is what readers see: run on {MAIN}, or a branch of your own")
        if (problem := why_not(self.branch)) is not None:
            raise RunOptionsError(f"{self.branch!r} cannot name a branch: {problem}")
        for name in ("max_epochs", "files_per_epoch", "bytes_per_epoch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RunOptionsError(f"{name} must be at least 1, not {value}")
        if self.with_readers and self.branch != MAIN:
            raise RunOptionsError(f"nobody reads branch {self.branch} of another pipeline: recover {MAIN} with readers")
        if self.promotes and self.patches:
            raise RunOptionsError("a patch leaves main as it is otherwise, and a promotion replaces it: choose one")
        if self.mode is Mode.REPLAY:
            self._check_replay()
            return
        if self.publish and self.branch != MAIN:
            raise RunOptionsError(
                f"a run on branch {self.branch} cannot be published: readers see {MAIN}. Leave out --publish; "
                f"`headrace promote` makes the branch {MAIN}"
            )
        if self.from_branch is not None or self.clock is not None:
            raise RunOptionsError(f"a clock, and a branch to replay, are for mode replay, not for {self.mode}")
        limits = (self.max_epochs, self.files_per_epoch, self.bytes_per_epoch)
        if self.mode is Mode.BATCH and any(limit is not None for limit in limits):
            raise RunOptionsError("mode batch takes all input as one epoch: leave out what limits epochs")

    def _check_replay(self) -> None:
        if self.publish:
            raise RunOptionsError("a replay publishes nothing: read it on its branch, which a promotion can make main")
        if self.branch == MAIN:
            raise RunOptionsError("a replay fills an empty branch of its own, not main: name one (--branch)")
        if self.signals:
            raise RunOptionsError("a replay repeats the recorded signals and no others: leave out signals")
        if self.clock is not None and self.from_branch is not None:
            raise RunOptionsError("a replay repeats what a branch recorded, or has a clock of its own, not both")
        if self.clock is None and (self.files_per_epoch is not None or self.bytes_per_epoch is not None):
            raise RunOptionsError(
                "a replay cuts input as it was recorded; other limits of an epoch need a clock of its own (--clock)"
            )


COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "run": (
        *("max_epochs", "files_per_epoch", "bytes_per_epoch", "executor", "mode", "branch", "from_branch", "clock"),
        *("clock_step", "signals", "publish", "create", "full_sweep", "strict", "allow_new_aggregates", "without"),
    ),
    "backfill": (
        *("output", "start", "end", "branch", "promote", "patch"),
        *("files_per_epoch", "bytes_per_epoch", "executor"),
    ),
    "recover": ("executor", "publish", "give_up_delivered", "with_readers", "leave", "reader_roots"),
    "lineage": ("reader_roots",),
    "recovery_cut": ("leave", "reader_roots", "give_up_delivered"),
    "rollback": ("give_up_delivered",),
    "promote": ("give_up_delivered",),
}
"""The options that a command takes, and the method of its name of ``PipelineHandle``."""

FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    "process": (
        *("max_epochs", "files_per_epoch", "bytes_per_epoch", "branch", "full_sweep", "strict"),
        *("allow_new_aggregates", "create", "executor", "without", "signals"),
    ),
    "recover": ("give_up_delivered", "with_readers", "executor"),
    "backfill": ("output", "start", "end", "patch", "files_per_epoch", "bytes_per_epoch", "branch", "executor"),
    "rollback": ("give_up_delivered",),
    "promote": ("patch", "output", "give_up_delivered"),
}
"""The options that the form of a DAG has: that of a pipeline, or of a decision."""


@cache
def option_fields() -> dict[str, OptionField]:
    """The fields of RunOptions that people and tasks give, each with its options, whose names are all filled in."""
    fields_by_name = {
        field.name: field.metadata[OPTION_KEY] for field in fields(RunOptions) if OPTION_KEY in field.metadata
    }
    return {
        name: OptionField(tuple(_with_names(option, name) for option in of_field.options), of_field.result_kind)
        for name, of_field in fields_by_name.items()
    }


@cache
def declared_options() -> dict[str, RunOption]:
    """All options by their names."""
    return {option.name: option for of_field in option_fields().values() for option in of_field.options}


def options_of_command(command: str) -> list[RunOption]:
    """The options of a command of ``headrace``, in the order of its help."""
    return [option for option in _at_command(command) if option.on_command_line]


def options_of_method(method: str) -> list[RunOption]:
    """The options of a method of ``PipelineHandle``, in the order of its signature."""
    return [option for option in _at_command(method) if option.in_python]


def options_of_form(form: str) -> list[RunOption]:
    """The options that are fields of a form, in its order."""
    return [declared_options()[name].for_door(form) for name in FORMS[form]]


def _at_command(command: str) -> list[RunOption]:
    return [declared_options()[name].for_door(command) for name in COMMANDS[command]]


def _with_names(option: RunOption, field_name: str) -> RunOption:
    name = option.name or field_name
    flag = option.flag or f"--{name.replace('_', '-')}"
    return option._replace(
        name=name,
        flag=flag,
        argument=option.argument or flag.partition("/")[0],
        in_form=option.in_form or name,
    )
