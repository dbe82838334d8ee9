"""What of main may be published, output by output, as the catalog and the stored audits have it.

Which outputs may be published, and how far: a pure function of audits and of what is computed of what.

An output is never published beyond what it is computed of: else readers would see sums of rows whose audit failed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.audit.store import AuditOutcome, audit_error, read_audit
from headrace.errors import FixDataError, RetryError
from headrace_snapshots.catalog import Catalog
from headrace_snapshots.format.codec import JSON
from headrace_snapshots.format.entry import Entry
from headrace_snapshots.format.manifest import Manifest
from headrace_snapshots.format.output_view import output_names, parked_in, seen_by, upstream_of
from headrace_snapshots.refs import published_of

NOTHING_YET = -1


@dataclass(frozen=True)
class OutputVersions:
    """``published``: the epoch that readers of an output see. ``passed``: epochs of main after it up to which an audit
    from there on succeeded. ``of``: the outputs that it is computed of; none: of records.
    """

    published: int = NOTHING_YET
    passed: frozenset[int] = field(default_factory=frozenset)
    of: tuple[str, ...] = ()


def publishable(outputs: Mapping[str, OutputVersions]) -> dict[str, int]:
    """The epoch that readers of each output may see: the newest up to which its audit succeeded, and which readers of
    all that it is computed of see as well. Where that is nothing new, the epoch that they see.
    """
    reached: dict[str, int] = {}

    def reach(output: str) -> int:
        if output not in reached:
            versions = outputs[output]
            above = [reach(name) for name in versions.of if name in outputs]
            allowed = [epoch for epoch in versions.passed if all(epoch <= bound for bound in above)]
            reached[output] = max([versions.published, *allowed])
        return reached[output]

    for output in outputs:
        reach(output)
    return {output: reached[output] for output in outputs}


def held_back(outputs: Mapping[str, OutputVersions], wanted: int) -> dict[str, tuple[str, ...]]:
    """Outputs whose audit up to epoch ``wanted`` succeeded and that may not be published so far, with those of what
    they are computed of that are to blame.
    """
    reached = publishable(outputs)
    return {
        output: tuple(name for name in versions.of if reached.get(name, wanted) < wanted)
        for output, versions in outputs.items()
        if wanted in versions.passed and reached[output] < wanted
    }


class AuditMissingError(RetryError, code="retry.audit_missing"):
    """The range that would be published has no stored audit."""


class NothingToPublishError(FixDataError, code="data.nothing_to_publish"):
    """There is no snapshot yet."""


class UpstreamUnpublishedError(FixDataError, code="data.upstream_unpublished"):
    """An output whose audit is good is computed of one that is not published so far."""


@dataclass(frozen=True)
class PlannedPublish:
    """``head`` is the snapshot of main that is to be published; ``published`` is what readers see of each of its
    outputs. ``audits``: that of exactly (published, head] of each output, as far as it is stored. ``earlier``: good
    audits up to snapshots before ``head``, by epoch, of outputs that are computed of others. ``asked``: the outputs
    that are to be published. ``gone``: what readers still see of outputs that ``head`` has not.
    """

    catalog: Catalog = field(repr=False)
    head: Manifest
    published: Mapping[str, str | None]
    audits: Mapping[str, AuditOutcome | None]
    asked: frozenset[str]
    earlier: Mapping[str, Mapping[int, AuditOutcome]] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog, head: str, output: str | None = None) -> "PlannedPublish":
        """Plans to publish main as it is now, at ``head``: one ``output``, or all (None). Raises UnknownOutputError."""
        manifest = catalog.manifest(head)
        if output is not None:
            seen_by(manifest, output)
        seen = published_of(catalog.head().refs)
        outputs = output_names(manifest)
        audits = {
            name: None
            if seen.get(name) == head
            else read_audit(catalog.store, catalog.pipeline, seen.get(name), head, name)
            for name in outputs
        }
        asked = outputs if output is None else [output]
        return cls._planned(catalog, manifest, {name: seen.get(name) for name in outputs}, audits, asked)

    @classmethod
    def after_audits(cls, catalog: Catalog, head: str, audits: Mapping[str, AuditOutcome | None]) -> "PlannedPublish":
        """Plans to publish main as it was audited, up to ``head``. An output without an audit had nothing to audit. One
        of ``head`` that the pipeline has not, or calls otherwise, is left to the next epoch: its readers see what they
        see.
        """
        manifest = catalog.manifest(head)
        published = {output: head if made is None else made.from_snapshot for output, made in audits.items()}
        if left := [output for output in output_names(manifest) if output not in published]:
            seen = published_of(catalog.head().refs)
            published = {**{output: seen.get(output) for output in left}, **published}
        return cls._planned(catalog, manifest, published, audits, audits)

    @classmethod
    def _planned(
        cls,
        catalog: Catalog,
        head: Manifest,
        published: Mapping[str, str | None],
        audits: Mapping[str, AuditOutcome | None],
        asked: Iterable[str],
    ) -> "PlannedPublish":
        refs = catalog.head().refs if any(published) else {}
        gone = {output: shown for output, shown in published_of(refs).items() if output not in published}
        planned = cls(catalog, head, published, audits, frozenset(asked), gone=gone)
        return planned if not any(upstream_of(head).values()) else replace(planned, earlier=planned._earlier())

    @property
    def has_names(self) -> bool:
        """Whether the outputs have names."""
        return any(self.published)

    def publish(self, run_id: str) -> Entry | None:
        """Move all that may move, by one entry of the log, which names the run; None if that is nothing.

        Raises PublishConflictError if readers see something else meanwhile; RefusedError.
        """
        moves = self.moves
        if not moves:
            return None
        expected = {output: self.published[output] for output in self._deciding(moves)}
        return self.catalog.publish_outputs(
            {**moves, **dict.fromkeys(self.gone)}, {**expected, **self.gone}, self._detail(moves), run_id
        )

    @property
    def moves(self) -> dict[str, str]:
        """The snapshot that readers of each output may see that see an older one, or none, now."""
        epochs = {output: epoch for output, epoch in publishable(self._versions).items() if output in self.asked}
        return {
            output: self._audit(output, epoch).to_snapshot
            for output, epoch in epochs.items()
            if epoch != self._versions[output].published
        }

    def check(self, *, may_wait: bool = False) -> None:
        """Raise what keeps an output that is asked for from being published up to ``head``: AuditFailedError,
        AuditMissingError, UpstreamUnpublishedError. ``may_wait``: not the last.
        """
        due = [output for output in self.published if output in self.asked and self._is_due(output)]
        failed = [made for output in due if (made := self.audits.get(output)) is not None and not made.success]
        if failed:
            raise audit_error(*failed)
        missing = [output for output in due if self.audits.get(output) is None]
        if missing:
            ranges = " and of ".join(self._range(output) for output in missing)
            raise AuditMissingError(f"there is no audit of {ranges}; run the process DAG again")
        for output, above in held_back(self._versions, self.head.epoch).items():
            if output in self.asked and not may_wait and self.audits.keys() & {*above}:
                raise self._held_back(output, above)

    @property
    def notes(self) -> list[str]:
        """For people: outputs that are asked for and parked, or whose audit is good and that wait for others."""
        held = held_back(self._versions, self.head.epoch)
        stopped = sorted(self._parked & self.asked)
        parked = (f"output {output} is parked: it is published once it has caught up" for output in stopped)
        waiting = (str(self._held_back(output, above)) for output, above in held.items() if output in self.asked)
        return [*parked, *waiting]

    def _held_back(self, output: str, above: Iterable[str]) -> UpstreamUnpublishedError:
        names = " and ".join(above)
        return UpstreamUnpublishedError(
            f"output {output} of {self.head.pipeline} is computed of {names}, of which readers do not see epoch "
            f"{self.head.epoch} yet: it is published with {names}"
        )

    @property
    def _versions(self) -> dict[str, OutputVersions]:
        of = upstream_of(self.head)
        return {
            output: OutputVersions(self._epoch(shown), frozenset(self._passed(output)), of.get(output, ()))
            for output, shown in self.published.items()
        }

    def _passed(self, output: str) -> dict[int, AuditOutcome]:
        made = self.audits.get(output)
        good = dict(self.earlier.get(output, {}))
        if made is not None and made.success:
            good[self.head.epoch] = made
        return good if output in self.asked - self._parked else {}

    def _audit(self, output: str, epoch: int) -> AuditOutcome:
        return self._passed(output)[epoch]

    def _earlier(self) -> dict[str, dict[int, AuditOutcome]]:
        """Good audits up to what readers see of other outputs: an output follows what it is computed of."""
        shown = {snapshot: self._epoch(snapshot) for snapshot in self.published.values() if snapshot is not None}
        return {
            output: {
                epoch: made
                for snapshot, epoch in shown.items()
                if epoch > self._epoch(self.published[output])
                and (made := self._stored(output, snapshot)) is not None
                and made.success
            }
            for output, above in upstream_of(self.head).items()
            if above
        }

    def _stored(self, output: str, until: str) -> AuditOutcome | None:
        return read_audit(self.catalog.store, self.catalog.pipeline, self.published[output], until, output)

    def _epoch(self, snapshot: str | None) -> int:
        return NOTHING_YET if snapshot is None else self.catalog.link(snapshot).epoch

    @property
    def _parked(self) -> frozenset[str]:
        """Outputs that stand still: readers see nothing new of them, whatever their audit says."""
        return frozenset(parked_in(self.head))

    def _is_due(self, output: str) -> bool:
        return self.published[output] != self.head.snapshot_id and output not in self._parked

    def _deciding(self, moves: Iterable[str]) -> list[str]:
        """The outputs that move, and those above them: what readers see of these was reckoned with."""
        of, deciding = upstream_of(self.head), [*moves]
        for output in deciding:
            deciding += [above for above in of.get(output, ()) if above not in deciding]
        return deciding

    def _range(self, output: str) -> str:
        of = f" of output {output}" if output else ""
        begin = self.published[output] or "the beginning"
        return f"({begin}, {self.head.snapshot_id}] of {self.head.pipeline}{of}"

    def _detail(self, moves: Mapping[str, str]) -> dict[str, JSON]:
        """For the log: the audits that were trusted."""
        paths = {
            output: made.path
            for output, snapshot in moves.items()
            for made in self._passed(output).values()
            if made.to_snapshot == snapshot
        }
        return {"audits": paths, "success": True} if self.has_names else {"audit": paths[""], "success": True}
