"""What the catalog may answer instead of doing it."""

from headrace.errors import FixConfigError, GiveUpError, RestoreError, RetryError


class FencedError(GiveUpError):
    """Another writer has the branch: this one must stop; what it wrote is garbage, and nothing of it is visible."""

    code = "give_up.fenced"


class FencedAfterCommitError(FencedError):
    """Another writer has the branch, but what this one committed last counts: there is nothing to repeat."""

    code = "give_up.fenced_after_commit"


class PublishConflictError(RetryError):
    """``published`` or ``main`` moved since the caller looked: look again, audit the new range, then decide again."""

    code = "retry.publish_conflict"


class RefusedError(FixConfigError):
    """What was asked makes no sense in the catalog's state."""

    code = "config.refused"


class MissingSnapshotError(RestoreError):
    """There is no manifest of that snapshot."""

    code = "restore.missing_snapshot"


class DamagedLogError(RestoreError):
    """Entries of the catalog's log are lost, so it is not known where its branches are."""

    code = "restore.damaged_log"
