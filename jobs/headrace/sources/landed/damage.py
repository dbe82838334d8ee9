"""Landed records that are not as they were written, and what to do: they are often the only copies."""

from headrace.errors import FixDataError


class LandedDamagedError(FixDataError, code="data.landed_damaged"):
    """A landed file has another content than it had when its range was sealed."""

    def __init__(self, path: str, how: str) -> None:
        super().__init__(f"{path}, which has landed records, {how}. {way_on(path)}")


def way_on(path: str) -> str:
    """What helps a run that needs a landed object which is damaged, or gone."""
    pipeline = path.partition("/")[0]
    return (
        f"Bring it back from a backup. Without one `headrace fsck {pipeline}` says how runs go on: which snapshot to "
        "roll back to, if any, and which objects to delete, so that they land again what the source still has"
    )
