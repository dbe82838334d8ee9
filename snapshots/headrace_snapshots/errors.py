"""What the catalog may answer instead of doing it."""

from headrace.errors import FixConfigError, GiveUpError, RestoreError, RetryError


class FencedError(GiveUpError, code="give_up.fenced"):
    """Another writer has the branch: this one must stop; what it wrote is garbage, and nothing of it is visible."""


class FencedAfterCommitError(FencedError, code="give_up.fenced_after_commit"):
    """Another writer has the branch, but what this one committed last counts: there is nothing to repeat."""


class PublishConflictError(RetryError, code="retry.publish_conflict"):
    """``published`` or ``main`` moved since the caller looked: look again, audit the new range, then decide again."""


class RefusedError(FixConfigError, code="config.refused"):
    """What was asked makes no sense in the catalog's state."""


class MissingSnapshotError(RestoreError, code="restore.missing_snapshot"):
    """There is no manifest of that snapshot."""


class DamagedLogError(RestoreError, code="restore.damaged_log"):
    """Entries of the catalog's log are lost, so it is not known where its branches are."""
