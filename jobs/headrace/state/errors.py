"""What can happen to state between epochs."""

from headrace.errors import RestoreError


class LostStateError(RestoreError):
    """State that was held only in memory is gone: restore the last snapshot, redo the epoch."""

    code = "restore.lost_state"
