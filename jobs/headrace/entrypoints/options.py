"""What a run is asked to do: one frozen value that the command line, Airflow and tests fill alike."""

import json
import re
from dataclasses import dataclass
from enum import StrEnum

from headrace.errors import FixConfigError
from headrace.model.triggers import Signal

MAIN = "main"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class RunOptionsError(FixConfigError):
    """An option of a run that cannot be meant."""

    code = "config.run_options"


def parse_signal(text: str) -> Signal:
    """A signal as the command line writes it: its name, and for one key only ``=`` with the key as a JSON list.

    Raises RunOptionsError.
    """
    name, equals, written = text.partition("=")
    try:
        key = json.loads(written) if equals else None
    except ValueError:
        key = ""
    if not name or not (key is None or isinstance(key, list)):
        raise RunOptionsError(f'signal {text!r}: write a name, or a name and a key like go=["u1"]')
    return Signal(name, None if key is None else tuple(key))


class Mode(StrEnum):
    """How input is cut into epochs; the pipeline is the same, and for input within its bound so are final panes."""

    MICRO_BATCH = "micro-batch"
    BATCH = "batch"


@dataclass(frozen=True)
class RunOptions:
    """Options of one run; a limit of None is the pipeline's own.

    ``run_id`` names the result object, so it is new for every attempt. ``branch`` is what the run moves; a backfill
    forks to it, and there ``main`` stands for a branch named after the run. ``publish`` ends the run with a publish if
    its audit succeeded. ``snapshot`` is where a recovery moves ``main`` back to. ``full_sweep`` lists the whole landing
    prefix instead of only its newest part. ``mode`` BATCH takes all input as one epoch, behind which the watermark goes
    to +inf: every window closes. ``signals`` are heard in the run's first epoch (semantics 9.3); a new attempt of a run
    that committed it must not give them again.
    Raises RunOptionsError.
    """

    run_id: str
    max_epochs: int | None = None
    files_per_epoch: int | None = None
    bytes_per_epoch: int | None = None
    branch: str = MAIN
    publish: bool = False
    snapshot: str | None = None
    full_sweep: bool = False
    mode: Mode = Mode.MICRO_BATCH
    signals: tuple[Signal, ...] = ()

    def __post_init__(self) -> None:
        if not _RUN_ID.fullmatch(self.run_id):
            raise RunOptionsError(f"run id {self.run_id!r}: use up to 200 letters, digits, _, . and -")
        if not _BRANCH.fullmatch(self.branch):
            raise RunOptionsError(f"branch {self.branch!r}: use up to 100 letters, digits, _, . and -")
        for name in ("max_epochs", "files_per_epoch", "bytes_per_epoch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RunOptionsError(f"{name} must be at least 1, not {value}")
