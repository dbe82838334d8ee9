"""What a promotion would change for readers, and what is against it; nothing moves."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.runs.publishing.promotion import BranchFacts, PromoteBranch
from headrace.runs.publishing.refusals import find_refusals
from headrace.runs.reporting.results import RunError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import UnknownOutputError, output_names, seen_by
from headrace_snapshots.output_catalog import seen_catalog

if TYPE_CHECKING:
    from headrace.read.diff.differences import OutputDiff, SnapshotDiff


@dataclass(frozen=True)
class Rehearsal:
    """What a promotion of ``branch`` would change for readers of each output, and why it would be refused: by nothing,
    if by none. ``diffs``: by the branch's names, each beside what readers see now by whatever name main has for it.
    ``gone``: outputs whose readers would see nothing any more, as the branch has none such. ``change``: what it would
    do, in a sentence.
    """

    branch: str
    diffs: "Mapping[str, SnapshotDiff]"
    refusals: tuple[HeadraceError, ...]
    gone: tuple[str, ...] = ()
    change: str = ""

    @property
    def diff(self) -> "SnapshotDiff":
        """What would change of the output without a name. Raises UnknownOutputError if outputs have names."""
        if "" not in self.diffs:
            raise UnknownOutputError(
                f"branch {self.branch} has the outputs {', '.join(self.diffs)}: look at the difference of one of them"
            )
        return self.diffs[""]

    def to_json(self) -> dict[str, Any]:
        """A JSON value, as far as each difference has one."""
        refusals = [asdict(RunError.of(refusal)) for refusal in self.refusals]
        diffs = {output: diff.to_json() for output, diff in self.diffs.items()}
        return {
            "branch": self.branch,
            "refusals": refusals,
            **({"diff": diffs[""]} if "" in diffs else {"outputs": diffs}),
            **({"gone": [*self.gone]} if self.gone else {}),
        }


@dataclass(frozen=True)
class ReadersRehearsal:
    """What of a ``Rehearsal`` readers see: the rows of each output that change, without the state that lies under them,
    which takes longer to read.
    """

    outputs: "Mapping[str, OutputDiff]"
    refusals: tuple[HeadraceError, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON value, as far as each difference has one."""
        refusals = [asdict(RunError.of(refusal)) for refusal in self.refusals]
        outputs = {output: changed.to_json() for output, changed in self.outputs.items()}
        return {"refusals": refusals, **({"output": outputs[""]} if "" in outputs else {"outputs": outputs})}


def rehearse(catalog: Catalog, branch: str, *, limit: int = 20, give_up_delivered: bool = False) -> Rehearsal:
    """What ``promote`` would do; moves nothing. At most ``limit`` of the rows that readers would see change are given.
    ``give_up_delivered``: what sinks have got that cannot take back is not against it.

    Raises UnknownBranchError, and what a reader of ``current`` does.
    """
    facts = BranchFacts.of(catalog, catalog.head(), branch)
    change = PromoteBranch(facts, give_up_delivered)
    refusals = find_refusals(change).errors
    return Rehearsal(branch, differences(facts, output_names(facts.head), limit), refusals, facts.gone, str(change))


def rehearse_for_readers(catalog: Catalog, branch: str, *, limit: int = 20) -> ReadersRehearsal:
    """``rehearse``, as far as readers see it."""
    from headrace.read.diff.comparison import diff_for_readers

    facts = BranchFacts.of(catalog, catalog.head(), branch)
    refusals = find_refusals(PromoteBranch(facts)).errors
    sides = _sides(facts, output_names(facts.head))
    return ReadersRehearsal({name: diff_for_readers(*side, limit=limit).output for name, side in sides}, refusals)


def differences(facts: BranchFacts, outputs: Iterable[str], limit: int) -> "dict[str, SnapshotDiff]":
    """What readers of ``outputs`` see now beside what the branch has."""
    from headrace.read.diff.comparison import diff  # with DuckDB, which a cut-over does not need

    return {output: diff(*sides, limit=limit) for output, sides in _sides(facts, outputs)}


def _sides(
    facts: BranchFacts, outputs: Iterable[str]
) -> Iterator[tuple[str, tuple[Catalog, Manifest | None, Manifest | None]]]:
    """Each of ``outputs``, with its catalog, what readers see of it now by main's name of it, and what the branch
    has.
    """
    for output in outputs:
        own, then = seen_catalog(facts.catalog, output), facts.called[output]
        shown = None if then is None else facts.seen.get(then)
        before = None if then is None or shown is None else seen_catalog(facts.catalog, then).manifest(shown)
        yield output, (own, before, seen_by(facts.head, output))
