"""The stages of a run as values. Each says in a sentence what it will do: dry runs and the log print the same one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.ext.sources import SourcePosition, SourceSplit
from headrace.pipeline.endpoints import Sink
from headrace.pipeline.scheduling import ExecutorDecision
from headrace.runs.reporting.listener import number_of
from headrace.sources.landing import ByInput
from headrace.sources.progress import PipelineProgress
from headrace_snapshots.format.manifest import Manifest

if TYPE_CHECKING:  # which few runs need
    from headrace.runs.backfill.branches import ForkPoint
    from headrace.runs.backfill.replay import MainsReading, Replay

NAMED = 3
"""So many splits of an input a sentence names; of more, the first and the last."""


@dataclass(frozen=True)
class FoundBranch:
    """Where a run finds its branch: at ``snapshot`` (None: it is empty), with that one's ``manifest`` and ``progress``;
    of one that ``is_broken`` there is neither, and restoring says what is. ``history``: what was read before and is to
    be read again as it was.
    """

    snapshot: str | None
    manifest: Manifest | None = None
    progress: PipelineProgress = field(default_factory=PipelineProgress)
    history: "MainsReading | None" = None
    is_broken: bool = False


@dataclass(frozen=True)
class LandRecords:
    """Land what the sources of ``inputs`` have behind ``offsets`` and cannot give again: ``all_at_once``, or what makes
    an epoch, and the rest while epochs are computed. It ends a plan. ``waiting``: what that is, where somebody has
    looked.
    """

    word: ClassVar[str] = "land"
    inputs: tuple[str, ...]
    offsets: Mapping[str, SourcePosition]
    all_at_once: bool
    begin: FoundBranch = field(repr=False)
    waiting: ByInput | None = None

    def __str__(self) -> str:
        if self.waiting is None:
            return f"land what is new of {', '.join(self.inputs)}; what follows is planned from that"
        if not self.waiting:
            return f"land nothing: all that {', '.join(self.inputs)} has was landed"
        what = "; ".join(f"{_split_names(splits)} of {name}" for name, splits in self.waiting.items())
        return f"land {what}{'' if self.all_at_once else ', in portions as large as epochs'}; what follows reads it"


@dataclass(frozen=True)
class TakeBranch:
    """Claim ``branch``, which is at ``snapshot``. ``replay``: what fills it must be what has filled it so far."""

    word: ClassVar[str] = "claim"
    branch: str
    snapshot: str | None
    replay: "Replay | None" = field(default=None, repr=False)

    def __str__(self) -> str:
        place = "which is empty" if self.snapshot is None else f"at snapshot {self.snapshot}"
        return f"claim branch {self.branch}, {place}: nobody else writes it then"


@dataclass(frozen=True)
class RestoreState:
    """Hold ``snapshot`` against what was written, fall back where it is broken, and start ``executor``. It ends a
    plan.
    """

    word: ClassVar[str] = "restore"
    snapshot: str | None
    executor: ExecutorDecision

    def __str__(self) -> str:
        what = "begin with nothing" if self.snapshot is None else f"restore snapshot {self.snapshot}"
        return f"{what}, on executor {self.executor.name}: {self.executor.reason}"


@dataclass(frozen=True)
class CatchUpOutputs:
    """Compute for ``outputs``, which are parked or new, what they have missed."""

    word: ClassVar[str] = "catch_up"
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"compute again for {', '.join(self.outputs)} what was missed"


@dataclass(frozen=True)
class ComputeEpochs:
    """Compute and commit epochs after ``snapshot``: of ``files`` that are new; None for a ``replay``, which has its
    own, and where the snapshot is broken. ``history``: what is read again as it was. ``left``: about how many bytes of
    inputs land meanwhile. ``sweeps``: it looked everywhere for files.
    """

    word: ClassVar[str] = "compute"
    snapshot: str | None
    files: ByInput | None = None
    replay: "Replay | None" = None
    history: "MainsReading | None" = None
    left: Mapping[str, int] = field(default_factory=dict)
    sweeps: bool = False

    def __str__(self) -> str:
        if self.files is None and self.replay is None:
            return "compute epochs of what is new after the newest whole snapshot"
        history_text = " again what was read before, and" if self.history is not None else ""
        what = "; ".join(f"{_split_names(splits)} of {name}" for name, splits in self.reads.items() if splits)
        if not what and self.left:
            return f"compute epochs:{history_text} what lands of {', '.join(self.left)}"
        more = f"; more of {', '.join(self.left)} lands meanwhile" if self.left else ""
        return f"compute epochs:{history_text} {what or 'what is due'}{more}"

    @property
    def reads(self) -> ByInput:
        """All that they may read."""
        if self.replay is None:
            return self.files or {}
        reads: dict[str, list[SourceSplit]] = {}
        for epoch in self.replay.epochs:
            for name, files in epoch.files.items():
                reads.setdefault(name, []).extend(files)
        return reads


@dataclass(frozen=True)
class AuditBranch:
    """Audit what ``branch`` has and readers have not. ``executor``: None where it is chosen by what there is to
    audit.
    """

    word: ClassVar[str] = "audit"
    branch: str
    executor: ExecutorDecision | None = None

    def __str__(self) -> str:
        return f"audit what branch {self.branch} has and readers have not seen"


@dataclass(frozen=True)
class PublishAudited:
    """Let readers see what audits of ``branch`` found good."""

    word: ClassVar[str] = "publish"
    branch: str

    def __str__(self) -> str:
        return f"let readers see what the audit of branch {self.branch} finds good"


@dataclass(frozen=True)
class ForkBranch:
    """Make ``branch`` at ``point``."""

    word: ClassVar[str] = "fork"
    branch: str
    point: "ForkPoint"

    def __str__(self) -> str:
        return f"begin branch {self.branch} with {self.point.begin}: {self.point.reason}"


@dataclass(frozen=True)
class ContinueBranch:
    """Go on with ``branch``, which has begun with a snapshot (``begun``), or with nothing."""

    word: ClassVar[str] = "continue"
    branch: str
    begun: str | None

    def __str__(self) -> str:
        fork_text = "nothing" if self.begun is None else f"snapshot {self.begun}"
        return f"go on with branch {self.branch}, which has begun with {fork_text}"


@dataclass(frozen=True)
class MoveBack:
    """Move ``branch`` back from snapshot ``given_up`` to ``snapshot``; ``message`` is what the log says of it."""

    word: ClassVar[str] = "move_back"
    branch: str
    snapshot: str
    given_up: str | None
    message: str = field(repr=False)

    def __str__(self) -> str:
        return (
            f"move branch {self.branch} back from snapshot {self.given_up} to {self.snapshot}, and readers to what "
            "they could see then; what came after it is read again"
        )


@dataclass(frozen=True)
class TakeReadersBack:
    """Take back the pipelines that have read what is given up, but for those that are ``left``."""

    word: ClassVar[str] = "take_readers_back"
    left: tuple[str, ...] = ()

    def __str__(self) -> str:
        left = f", but for {', '.join(self.left)}" if self.left else ""
        return f"take back the pipelines that have read what is given up{left}, to one consistent cut"


BeginStage = ForkBranch | ContinueBranch | MoveBack | TakeReadersBack
"""What a backfill or a recovery begins with."""


@dataclass(frozen=True)
class CutOver:
    """Let main have what ``branch`` has computed: all; of an ``output`` that main adopts; or as a patch of it.
    ``give_up_delivered``: what sinks have got that cannot take back is not against it.
    """

    word: ClassVar[str] = "cut_over"
    branch: str
    output: str | None = None
    patches: bool = False
    give_up_delivered: bool = False

    def __str__(self) -> str:
        if self.patches:
            output_text = f" of output {self.output}" if self.output else ""
            return (
                f"replace rows{output_text} by those of branch {self.branch} where windows have expired on both; "
                "publish that"
            )
        if self.output is not None:
            output_text = f"output {self.output} of branch {self.branch}, with what is computed of it"
            return f"let main adopt {output_text}; audit that, and publish it"
        return f"make branch {self.branch} main, and publish it, if its audit is good"


RunStage = (
    BeginStage | LandRecords | TakeBranch | RestoreState | CatchUpOutputs | ComputeEpochs | AuditBranch | PublishAudited
)


@dataclass(frozen=True)
class DeliverOutput:
    """Make a ``sink`` hold what readers see of ``output`` ("": the one without a name), now ``snapshot``.

    ``take_over``: also what another root or pipeline has delivered there; ``refill``: whatever others have done to it.
    """

    word: ClassVar[str] = "deliver"
    output: str
    sink: Sink = field(repr=False)
    snapshot: str | None
    take_over: bool = False
    refill: bool = False

    def __str__(self) -> str:
        output_text = f" of output {self.output}" if self.output else ""
        seen_text, unseen = (
            f"snapshot {self.snapshot}, which readers see{output_text}",
            f"nothing{output_text}: none is published",
        )
        content_text = unseen if self.snapshot is None else seen_text
        how = ", all of it again" if self.refill else ""
        take_over_text = ", in place of what others have delivered there" if self.take_over else ""
        return f"make sink {self.sink.name} hold {content_text}{how}{take_over_text}"


PlannedStage = RunStage | CutOver | DeliverOutput
"""With what follows a backfill, and what follows a publish."""


def _split_names(splits: Sequence[SourceSplit]) -> str:
    """Some of ``splits`` by name; of more than a few, the first and the last."""
    names = [split.path for split in splits]
    if len(names) > NAMED:
        return f"{number_of(len(names), 'split')} from {names[0]} to {names[-1]}"
    return ", ".join(names)
